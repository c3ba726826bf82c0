"""The vote of classifiers: weights by mistakes, and probabilities whose largest is that of the predicted class."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from smoothfbo.stream.learner import vote as module

CLASSIFIERS, ROWS, CLASSES = 4, 8, 3
run = jax.jit(module.vote)


def test_votes_are_weighted_by_discounted_mistakes():
    random, blocks = np.random.default_rng(0), 6
    total = blocks * ROWS
    target = random.integers(0, CLASSES, total).astype(float)
    right = random.random((CLASSIFIERS, total)) < np.array([0.9, 0.8, 0.5, 0.3])[:, None]
    classes = np.where(right, target, (target + 1) % CLASSES)
    shares = random.dirichlet(np.ones(CLASSES), total)
    known = (random.random(total) < 0.8).astype(float)
    seen = np.where(known > 0, target, np.nan)

    mistakes, found, probabilities = jnp.zeros(CLASSIFIERS), [], []
    for t in range(0, total, ROWS):
        here = slice(t, t + ROWS)
        mistakes, predicted, after = run(mistakes, classes[:, here], shares[here], seen[here], known[here])
        found.append(predicted)
        probabilities.append(after)

    sums, expected = np.zeros(CLASSIFIERS), []
    for t in range(total):
        weights = np.exp(-1.5 * sums) / np.exp(-1.5 * sums).sum()
        votes = np.array([weights[classes[:, t] == c].sum() for c in range(CLASSES)])
        expected.append((votes, np.argmax(votes + shares[t])))
        if known[t]:
            sums = 0.998 * sums + (classes[:, t] != target[t])
    np.testing.assert_array_equal(np.concatenate(found), [label for _, label in expected])
    np.testing.assert_allclose(mistakes, sums, rtol=1e-12)
    probabilities = np.concatenate(probabilities)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), np.concatenate(found))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    in_order = [t for t in range(total) if np.argmax(0.9 * shares[t] + 0.1 * expected[t][0]) == expected[t][1]]
    assert len(in_order) > total / 2
    for t in in_order:
        np.testing.assert_allclose(probabilities[t], 0.9 * shares[t] + 0.1 * expected[t][0], rtol=1e-6, atol=1e-8)


def test_the_nearest_probabilities_have_the_largest_likelihood():
    shares, chosen = np.array([0.36, 0.1, 0.3, 0.24]), 3
    found = module.largest_at(jnp.asarray(shares), jnp.asarray(chosen))
    ahead = [{"type": "ineq", "fun": lambda q, c=c: q[chosen] - q[c]} for c in (0, 1, 2)]
    whole = {"type": "eq", "fun": lambda q: q.sum() - 1}
    start = np.full(4, 0.25)
    best = minimize(
        lambda q: -shares @ np.log(q), start, bounds=[(1e-6, 1)] * 4, constraints=[*ahead, whole], tol=1e-14
    )
    np.testing.assert_allclose(found, best.x, atol=1e-5)
    np.testing.assert_allclose(found, [0.3, 0.1, 0.3, 0.3], atol=1e-8)
    assert np.argmax(np.asarray(found)) == chosen
