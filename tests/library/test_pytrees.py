"""λ, x, y and predictions may be scalars, vectors or dicts, in every estimator, under jit and vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import marked

import smoothfbo as sf

# A quadratic in a pytree prediction v with curvature c per sample and target u(λ, x):
#   ℓ_in = ½ c ‖v − u(λ, x)‖², ℓ_out = ½‖v − y‖² + ½‖λ‖².
# Inner and outer samples are the same, so h* = u on the features {x} and everything is known.


def flat_sum(tree):
    return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))


def target(outer, x, like):
    scale = flat_sum(jax.tree.map(lambda o: o * jnp.arange(1.0, o.size + 1).reshape(o.shape), outer))
    return jax.tree.map(lambda leaf: scale * flat_sum(x) * jnp.ones_like(leaf), like)


PROBLEM = sf.Problem(
    inner_loss=lambda outer, v, x, y: (
        0.5 * y["c"] * flat_sum(jax.tree.map(lambda v, u: (v - u) ** 2, v, target(outer, x, v)))
    ),
    outer_loss=lambda outer, v, x, y: (
        0.5 * flat_sum(jax.tree.map(lambda v, y: (v - y) ** 2, v, y["y"]))
        + 0.5 * flat_sum(jax.tree.map(lambda o: o**2, outer))
    ),
)

shapes = st.sampled_from([(), (2,), (2, 3)])


def trees(shape):
    return st.sampled_from([shape, {"a": shape, "b": ((), (3,))}, [shape]])


def is_shape(node):
    return isinstance(node, tuple) and all(isinstance(n, int) for n in node)


def fill(tree, rng, *lead):
    return jax.tree.map(lambda s: jnp.asarray(rng.normal(size=(*lead, *s))), tree, is_leaf=is_shape)


def features(x):
    return flat_sum(x)[None]


ESTIMATORS = [
    lambda like: sf.Functional(sf.Linear(features, prediction=like), sf.Linear(features)),
    lambda like: sf.Functional(sf.Linear(features, prediction=like), sf.PointwiseAdjoint()),
    lambda like: sf.Implicit(sf.Linear(features, prediction=like), sf.ConjugateGradient(tolerance=1e-12)),
    lambda like: sf.Implicit(sf.Linear(features, prediction=like), sf.NeumannSeries(terms=3, step=0.1)),
    lambda like: sf.Implicit(sf.Linear(features, prediction=like), sf.IdentityInverse()),
    lambda like: sf.Unrolled(sf.Linear(features, prediction=like)),
    lambda like: sf.Functional(network(like), network(like)),
    lambda like: sf.SingleLoop(network(like), 0.1),
    lambda like: sf.Storm(network(like, 1), 0.1, 0.5),
    lambda like: sf.FirstOrder(network(like), 2.0),
    lambda like: sf.Reevaluated(sf.Explicit(network(like)), 3),
]


def network(like, steps=2):
    def init(key, x):
        return jax.tree.map(jnp.zeros_like, like)

    def apply(params, x):
        return jax.tree.map(lambda p: p * flat_sum(x), params)

    return sf.Network.from_pair(init, apply, optax.sgd(0.1), steps)


@pytest.mark.parametrize("which", marked(range(len(ESTIMATORS)), (3, 4, 6, 7, 9)))
@settings(max_examples=2)
@given(data=st.data())
def test_any_structure(which, data):
    outer_tree, x_tree, v_tree = (data.draw(shapes.flatmap(trees)) for _ in range(3))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    outer, like = fill(outer_tree, rng), fill(v_tree, rng)
    x, y = fill(x_tree, rng, 5), {"y": fill(v_tree, rng, 5), "c": jnp.linspace(0.5, 1.5, 5)}
    samples = sf.Samples(x, y)
    rounds = sf.Data(samples, samples)
    hypergradient = ESTIMATORS[which](like)
    state = hypergradient.init(PROBLEM, outer, rounds, jax.random.key(0))
    shape = jax.eval_shape(
        lambda *arguments: hypergradient(PROBLEM, *arguments), outer, state, rounds, jax.random.key(0)
    )
    assert jax.tree.structure(shape[0].gradient) == jax.tree.structure(outer)
    assert [leaf.shape for leaf in jax.tree.leaves(shape[0].gradient)] == [
        leaf.shape for leaf in jax.tree.leaves(outer)
    ]
    assert jax.tree.structure(shape[1]) == jax.tree.structure(state)


@pytest.mark.parametrize("which", marked((3, 4, 7, 8, 9, 10), (3, 4, 7)))
def test_lanes_are_as_if_alone(which):
    """Lanes with different λ in one program, each as if alone."""
    samples = sf.Samples(jnp.linspace(-1, 1, 5), {"y": jnp.linspace(0, 2, 5), "c": jnp.linspace(0.5, 1.5, 5)})
    data, key = sf.Data(samples, samples), jax.random.key(0)
    hypergradient = ESTIMATORS[which](jnp.zeros(()))
    outers = jnp.array([[0.5, -0.3], [1.0, 2.0]])
    state = hypergradient.init(PROBLEM, outers[0], data, key)

    def gradient(outer):
        _, warm = hypergradient(PROBLEM, 0.5 * outer, state, data, key)
        return hypergradient(PROBLEM, outer, warm, data, key)[0].gradient

    lanes = jax.jit(jax.vmap(gradient))(outers)
    for outer, lane in zip(outers, lanes, strict=True):
        np.testing.assert_allclose(lane, jax.jit(gradient)(outer), rtol=1e-12)
    assert not np.allclose(lanes[0], lanes[1])


@pytest.mark.parametrize("which", [0, 1, 2, 5])
def test_exact_estimators_on_dictionaries(which):
    """Against central differences of F(λ) = ½ Σ mean (w* features − y)² + ½‖λ‖², w* = Σ_k k·λ_k for all outputs."""
    rng = np.random.default_rng(3)
    outer = {"a": jnp.asarray(rng.normal(size=2)), "b": (jnp.asarray(rng.normal()),)}
    like = {"mean": jnp.zeros(2), "other": [jnp.zeros(())]}
    x = {"first": jnp.asarray(rng.normal(size=(6, 2))), "second": jnp.asarray(rng.normal(size=6))}
    y = {
        "y": jax.tree.map(lambda v: jnp.asarray(rng.normal(size=(6, *v.shape))), like),
        "c": jnp.linspace(0.5, 2, 6),
    }
    samples = sf.Samples(x, y)
    data, key = sf.Data(samples, samples), jax.random.key(0)
    hypergradient = ESTIMATORS[which](like)
    state = hypergradient.init(PROBLEM, outer, data, key)
    keys = jax.random.split(key, 2)
    lanes = jax.jit(jax.vmap(lambda key: hypergradient(PROBLEM, outer, state, data, key)[0]))(keys)

    phi = np.asarray(x["first"]).sum(axis=1) + np.asarray(x["second"])
    targets = np.concatenate([np.asarray(y["y"]["mean"]), np.asarray(y["y"]["other"][0])[:, None]], axis=1)

    def objective(flat):
        weight = flat[0] + 2 * flat[1] + flat[2]  # leaves are numbered 1, 2, … each on its own
        return np.mean(0.5 * ((weight * phi)[:, None] - targets) ** 2, axis=0).sum() + 0.5 * np.sum(flat**2)

    flat = np.concatenate([np.asarray(outer["a"]), np.asarray(outer["b"][0])[None]])
    expected = [(objective(flat + 1e-6 * unit) - objective(flat - 1e-6 * unit)) / 2e-6 for unit in np.eye(3)]
    got = np.concatenate([np.asarray(lanes.gradient["a"][1]), np.asarray(lanes.gradient["b"][0][1])[None]])
    np.testing.assert_allclose(got, expected, rtol=1e-6)
