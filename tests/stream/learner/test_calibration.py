"""Probabilities: both experts and their mixture in NumPy, from the formulas."""

import jax
import jax.numpy as jnp
import numpy as np

from smoothfbo.stream.learner import calibration as module

CLASSES, ROWS = 4, 8
run = jax.jit(module.calibrate)
shares = jax.jit(module.probabilities)


def softmax(logits):
    parts = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return parts / parts.sum(axis=-1, keepdims=True)


def reference(blocks, seen):
    """The probabilities of every block, before it is used, and after all of them."""
    sharpness, squares = np.log(8.0), 0.0
    matrix = 8 * np.array([[1, -1, -1, -1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    curvature, losses, found = 0.1 * np.eye(CLASSES), np.zeros(2), []
    for outputs, truth, known in [*blocks, (*blocks[0][:2], np.zeros(ROWS))]:
        scores = np.column_stack([1 - outputs.sum(axis=1), outputs])
        inputs = np.column_stack([np.ones(ROWS), outputs])
        logits = np.where(seen, [np.exp(sharpness) * scores, inputs @ matrix.T], -np.inf)
        one, other = softmax(logits)
        found.append(softmax(-losses) @ np.stack([one, other]).reshape(2, -1))
        used = (known > 0) & seen[truth]
        indicators = np.eye(CLASSES)[truth]
        right = np.array([expert[np.arange(ROWS), truth] for expert in (one, other)])
        losses = 0.99 * losses - np.log(right[:, used]).sum(axis=1)
        slope = (((one - indicators) * scores).sum(axis=1) * np.exp(sharpness))[used].sum() / max(used.sum(), 1)
        squares = 0.999 * squares + slope**2
        sharpness -= 0.5 * slope / np.sqrt(squares)
        weight = np.maximum(1 - (other**2).sum(axis=1), 0.02)[used] / (2 * CLASSES)
        curvature = 0.999 * curvature + 0.001 * 0.1 * np.eye(CLASSES) + (inputs[used].T * weight) @ inputs[used]
        matrix = matrix - (other - indicators)[used].T @ inputs[used] @ np.linalg.inv(curvature)
    return np.array(found).reshape(-1, ROWS, CLASSES)


def test_probabilities_are_those_of_the_formulas():
    random = np.random.default_rng(0)
    seen = np.array([True, True, False, True])
    blocks = [
        (random.normal(0.3, 0.3, (ROWS, 3)), random.integers(0, 4, ROWS), (random.random(ROWS) < 0.8).astype(float))
        for _ in range(12)
    ]
    expected = reference(blocks, seen)
    state = module.uncalibrated(CLASSES)
    for (outputs, truth, known), right in zip(blocks, expected, strict=False):
        np.testing.assert_allclose(shares(state, outputs, seen), right, rtol=1e-9, atol=1e-12)
        state = run(state, outputs, np.eye(CLASSES)[truth], known, seen)
    np.testing.assert_allclose(shares(state, blocks[0][0], seen), expected[-1], rtol=1e-9, atol=1e-12)
    assert np.all(expected[:, :, 2] == 0)  # a class that was never seen


def test_what_is_not_finite_changes_nothing():
    state = module.uncalibrated(CLASSES)
    outputs = np.full((ROWS, 3), np.nan)
    after = run(state, outputs, np.eye(CLASSES)[np.zeros(ROWS, int)], np.ones(ROWS), np.ones(CLASSES, bool))
    jax.tree.map(np.testing.assert_array_equal, after, state)


def test_unseen_classes_share_what_laplaces_rule_leaves_them():
    seen = jnp.array([True, True, False, False])
    known = np.array([[0.25, 0.75, 0, 0]])
    given = np.asarray(module.with_unseen(jnp.asarray(known), seen, jnp.asarray(16.0)))
    np.testing.assert_allclose(given, [[0.25 * 0.9, 0.75 * 0.9, 0.05, 0.05]])


def test_predictors_are_mixed_by_their_likelihood():
    random = np.random.default_rng(2)
    seen = np.array([True, True, False, True])
    blocks = []
    for _ in range(6):
        truth = random.integers(0, 4, ROWS)
        good = np.eye(CLASSES)[truth][:, 1:] + random.normal(0, 0.3, (ROWS, 3))
        blocks.append((np.stack([random.normal(0.3, 0.3, (ROWS, 3)), good]), truth, (random.random(ROWS) < 0.8) * 1.0))
    each = [reference([(outputs[i], truth, known) for outputs, truth, known in blocks], seen) for i in range(2)]
    state, losses = module.all_uncalibrated(2, CLASSES), np.zeros(2)
    step, mixed = jax.jit(module.calibrate_all), jax.jit(module.mixed_probabilities)
    for t, (outputs, truth, known) in enumerate(blocks):
        weights = softmax(-losses)
        expected = weights[0] * each[0][t] + weights[1] * each[1][t]
        np.testing.assert_allclose(mixed(state, outputs, seen), expected, rtol=1e-9, atol=1e-12)
        used = (known > 0) & seen[truth]
        right = np.stack([probability[t][np.arange(ROWS), truth][used] for probability in each])
        losses = 0.99 * losses - np.log(right).sum(axis=1)
        state = step(state, outputs, np.eye(CLASSES)[truth], known, seen)
    assert weights[1] > 0.9
