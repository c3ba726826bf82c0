"""Dropout and other randomness in the inner function; mutable state is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, phi, ridge_data
from reference import Ridge

import smoothfbo as sf
from smoothfbo.functions import Term
from smoothfbo.functions.recipes import WithKey

RIDGE = Ridge.draw(2)
DATA = ridge_data(RIDGE)
OUTER = jnp.array([0.4, -0.7, 0.2])


class Masked(eqx.Module):
    """θᵀ dropout(φ(x)): a linear function, so the mean over masks is known."""

    weight: jax.Array
    dropout: eqx.nn.Dropout

    def __init__(self, key, rate=0.5):
        self.weight = jax.random.normal(key, (3,))
        self.dropout = eqx.nn.Dropout(rate)

    def __call__(self, x, *, key=None):
        return self.weight @ self.dropout(phi(x), key=key)


def masked_apply(params, x, key=None):
    features = phi(x)
    if key is not None:
        features = jnp.where(jax.random.bernoulli(key, 0.5, features.shape), features / 0.5, 0.0)
    return params @ features


def from_module(steps, rate=0.02, **options):
    return sf.Network(Masked, optax.sgd(rate), steps, **options)


def from_pair(steps, rate=0.02, **options):
    return sf.Network.from_pair(lambda key, x: jnp.ones(3), masked_apply, optax.sgd(rate), steps, **options)


def weights(params):
    return params.weight if isinstance(params, Masked) else params


@pytest.mark.parametrize("make", [from_module, from_pair])
def test_dropout_is_on_in_fits_and_off_elsewhere(make, key):
    """Dropout on a linear function is a ridge: E = L + ½ (1/p − 1) mean Σ_j w_j² e^λ φ_j². In NumPy."""
    inner = make(6000)
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Implicit(inner), optax.set_to_zero())
    state, info = algorithm.step(algorithm.init(OUTER, DATA, key), DATA)
    rows = np.stack([np.ones(40), RIDGE.x_in[:, 0], np.sin(RIDGE.x_in[:, 1])], axis=1)
    weight = np.exp(np.asarray(OUTER)[RIDGE.group])
    gram = (rows * weight[:, None]).T @ rows / 40
    expected = np.linalg.solve(gram + np.diag(np.diag(gram)), rows.T @ (weight * RIDGE.y_in) / 40)
    without = np.linalg.solve(gram, rows.T @ (weight * RIDGE.y_in) / 40)
    got = np.asarray(weights(state.estimator.inner.params))
    assert np.linalg.norm(got - expected) < 0.2 * np.linalg.norm(got - without)
    # predictions and losses have no masks
    np.testing.assert_allclose(algorithm.predict(state, DATA.inner.x), rows @ got, rtol=1e-9)
    loss = np.mean(0.5 * weight * (rows @ got - RIDGE.y_in) ** 2)
    np.testing.assert_allclose(info.inner_loss, loss, rtol=1e-9)
    # nor has the hypergradient: that of the linear function with these weights
    slope = RIDGE.outer_slope_at(np.asarray(OUTER), got)
    implicit = RIDGE.cross_at(np.asarray(OUTER), got, -np.linalg.solve(gram, slope))
    np.testing.assert_allclose(info.gradient, RIDGE.explicit_at(np.asarray(OUTER), got) + implicit, rtol=1e-4)


@pytest.mark.parametrize("make", [from_module, from_pair])
def test_every_step_round_and_sample_has_masks_of_its_own(make, key):
    inner = make(1)
    state = inner.init(DATA.inner.x[0], None, key)
    objective = (Term(lambda v, x, y: 0.5 * (v - y["target"]) ** 2, DATA.inner),)
    one, same, other = (inner.fit(state, objective, jax.random.key(seed)).params for seed in (1, 1, 2))
    np.testing.assert_array_equal(weights(one), weights(same))
    assert not np.array_equal(weights(one), weights(other))
    twice = make(2).fit(state, objective, jax.random.key(1)).params
    assert not np.array_equal(weights(twice), weights(one))
    function = Masked(key) if make is from_module else (lambda x, key: masked_apply(jnp.ones(3), x, key))
    values = WithKey(function, key).batch(jnp.ones((50, 2)))
    assert len(np.unique(values)) > 4
    assert WithKey(function, key)(jnp.ones(2)).shape == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda inner: sf.Functional(inner, inner),
        *(pytest.param(make, marks=pytest.mark.thorough) for make in (sf.Unrolled, sf.Explicit)),
    ],
)
def test_random_functions_in_every_estimator_and_in_runs(make, key):
    inner = sf.Network(
        lambda key: eqx.nn.Sequential(
            [eqx.nn.Linear(2, 8, key=key), eqx.nn.Lambda(jnp.tanh), eqx.nn.Dropout(0.2),
             eqx.nn.Linear(8, "scalar", key=jax.random.fold_in(key, 1))]
        ),
        optax.sgd(0.05),
        3,
        batch_size=8,
    )  # fmt: skip
    assert inner.is_random
    algorithm = sf.Online(RIDGE_PROBLEM, make(inner), optax.sgd(0.1))
    batches = jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), DATA)
    final, trace = sf.run(algorithm, batches, OUTER, rounds=4, key=key)
    assert bool(trace.finite.all())
    np.testing.assert_array_equal(algorithm.predict(final, DATA.inner.x), algorithm.predict(final, DATA.inner.x))


def test_networks_without_randomness_get_no_key():
    mlp = sf.Network(lambda key: eqx.nn.MLP(2, "scalar", 4, 1, key=key), optax.sgd(0.1), 1)
    assert not mlp.is_random
    assert not sf.Network.from_pair(lambda key, x: x, lambda params, x: params @ x, optax.sgd(0.1), 1).is_random


class Own(eqx.Module):
    """A module of the user's with noise of its own."""

    weight: jax.Array

    def __call__(self, x, key=None):
        noise = 0.0 if key is None else jax.random.normal(key)
        return self.weight @ x + noise


class Demanding(Own):
    def __call__(self, x, key):
        return self.weight @ x


class Normalised(eqx.Module):
    norm: eqx.nn.BatchNorm
    layer: eqx.nn.Linear

    def __init__(self, key):
        self.norm = eqx.nn.BatchNorm(2, "batch", mode="batch")
        self.layer = eqx.nn.Linear(2, "scalar", key=key)

    def __call__(self, x, state):
        x, state = self.norm(x, state)
        return self.layer(x), state


@pytest.mark.usefixtures("as_users_call")
def test_what_is_refused(key):
    assert sf.Network(lambda key: Own(jnp.ones(2)), optax.sgd(0.1), 1).is_random
    with pytest.raises(TypeError, match=r"A network that takes a key must do without it as well, .* write key=None"):
        sf.Network(lambda key: Demanding(jnp.ones(2)), optax.sgd(0.1), 1)
    for make in (Normalised, lambda key: eqx.nn.make_with_state(Normalised)(key)):
        with pytest.raises(TypeError, match=r"changes its own state .* equinox.nn.LayerNorm or GroupNorm"):
            sf.Network(make, optax.sgd(0.1), 1)
    sf.Network(lambda key: eqx.nn.Sequential([eqx.nn.LayerNorm(2), eqx.nn.Linear(2, "scalar", key=key)]),
               optax.sgd(0.1), 1)  # fmt: skip
    statistics = sf.Network.from_pair(
        lambda key, x: {"params": jnp.ones(2), "batch_stats": jnp.ones(2)},
        lambda params, x: params["params"] @ x, optax.sgd(0.1), 1,
    )  # fmt: skip
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(statistics, linear()), optax.sgd(0.1))
    with pytest.raises(TypeError, match=r"running statistics \(batch_stats\)"):
        algorithm.init(OUTER, DATA, key)
