"""Your own problem: tune the regularisation of a classifier online, while the data drift.

Two features decide the class, eight do not, and which way the two point turns slowly. A logistic regression is
refitted every round on the latest labelled batch (few samples: it overfits without regularisation); the
strength of the ridge penalty, one per feature, is the outer variable, judged on the next batch.

    python examples/regularisation_under_drift.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

import smoothfbo as sf

FEATURES, BATCH, ROUNDS = 10, 40, 600


def draw(round, key):
    """One labelled batch of time `round`: only the first two features matter, and they rotate."""
    key_x, key_y = jax.random.split(key)
    x = jax.random.normal(key_x, (BATCH, FEATURES))
    angle = 0.01 * round
    logit = 3 * (jnp.cos(angle) * x[:, 0] + jnp.sin(angle) * x[:, 1])
    return x, jax.random.bernoulli(key_y, jax.nn.sigmoid(logit)).astype(x.dtype)


def source(round, key):
    """Train on the batch of this round, judge on the batch of the next."""
    key_train, key_next = jax.random.split(key)
    train, following = draw(round, key_train), draw(round + 1, key_next)
    return sf.Data(inner=sf.Samples(*train), outer=sf.Samples(*following))


def inner_loss(outer, prediction, x, y):
    """Cross-entropy plus the penalty. The penalty acts on the weights, so the prediction carries them along."""
    penalty = 0.5 * jnp.sum(jnp.exp(outer) * prediction["weight"] ** 2)
    return optax.sigmoid_binary_cross_entropy(prediction["logit"], y) + penalty


def outer_loss(outer, prediction, x, y):
    return optax.sigmoid_binary_cross_entropy(prediction["logit"], y)


def main() -> None:
    def predict(weight, x):
        return {"logit": weight @ x, "weight": weight}

    logistic = sf.Network.from_pair(lambda key, x: jnp.zeros(FEATURES), predict, optax.sgd(0.5), steps=30)

    algorithm = sf.Online(
        sf.Problem(inner_loss, outer_loss),
        sf.Implicit(logistic, sf.ConjugateGradient(ridge=1e-4)),
        optax.chain(sf.window_average(20), optax.adam(5e-2)),
        project=lambda outer: optax.projections.projection_box(outer, -8.0, 0.5),
    )
    keys = jax.random.split(jax.random.key(0), 8)
    start = jnp.full(FEATURES, -8.0)  # no regularisation to speak of

    def lane(key, algorithm):
        return sf.run(algorithm, source, start, rounds=ROUNDS, key=key)[1]

    tuned = jax.jit(jax.vmap(lambda key: lane(key, algorithm)))(keys)
    fixed_optimiser = sf.Online(algorithm.problem, algorithm.estimator, optax.set_to_zero())
    fixed = jax.jit(jax.vmap(lambda key: lane(key, fixed_optimiser)))(keys)

    half = ROUNDS // 2
    for name, trace in (("fixed", fixed), ("tuned online", tuned)):
        losses = np.asarray(trace.outer_loss[:, half:].mean(axis=1))
        error = stats.t.ppf(0.975, len(losses) - 1) * losses.std(ddof=1) / np.sqrt(len(losses))
        print(f"{name:13s} loss on the next batch, second half: {losses.mean():.4f} ± {error:.4f} (8 seeds)")
    strength = np.exp(np.asarray(tuned.outer[:, -1])).mean(axis=0)
    print(f"learned penalty on the two features that matter: {strength[:2].round(4)}")
    print(f"learned penalty on the eight that do not:        {strength[2:].round(4)}")


if __name__ == "__main__":
    main()
