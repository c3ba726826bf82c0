"""Corrections: the hypergradient at v⁺ is that of the solved inner problem, whatever state ĥ is in."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, phi, ridge_data, trained_linear
from reference import Ridge, features

import smoothfbo as sf

X = np.random.default_rng(0).normal(size=(7, 2))
Y, CURVATURE = np.arange(1.0, 8.0), np.linspace(0.5, 2.0, 7)
OUTER = np.array([0.3, -1.2])


def untrained():
    """An inner function that is far from its solution and stays there."""
    init, apply = (lambda key, x: jnp.array([0.7, -0.4, 2.0])), (lambda params, x: params @ phi(x))
    return sf.Network.from_pair(init, apply, optax.sgd(0.1), steps=0)


def estimated(estimator, problem, outer, data, key):
    state = estimator.init(problem, jnp.asarray(outer), data, key)
    return eqx.filter_jit(estimator)(problem, jnp.asarray(outer), state, data, key)


def test_pointwise_correction_is_the_gradient_of_the_solution(key):
    """ℓ_in = ½ c (v − λᵀx)²: v⁺ = λᵀx = h*, so g = ∇ mean ½(λᵀx − y)² + the explicit ∂_λ ½‖λ‖²(1 + h*)."""
    problem = sf.Problem(
        inner_loss=lambda outer, v, x, y: 0.5 * y["c"] * (v - outer @ x) ** 2,
        outer_loss=lambda outer, v, x, y: 0.5 * (v - y["y"]) ** 2 + 0.5 * jnp.sum(outer**2) * (1 + v),
    )
    samples = sf.Samples(jnp.asarray(X), {"y": jnp.asarray(Y), "c": jnp.asarray(CURVATURE)})
    data = sf.Data(samples, samples)
    estimator = sf.Functional(untrained(), sf.PointwiseAdjoint(), correction=sf.PointwiseCorrection())
    result, state = estimated(estimator, problem, OUTER, data, key)

    solution, size = X @ OUTER, OUTER @ OUTER
    slope = solution - Y + 0.5 * size  # ∂_v ℓ_out
    expected = np.mean(slope[:, None] * X, axis=0) + OUTER * np.mean(1 + solution)
    np.testing.assert_allclose(result.gradient, expected, rtol=1e-12)
    np.testing.assert_allclose(result.explicit, OUTER * np.mean(1 + solution), rtol=1e-12)
    # the inner function itself is not changed, and neither is what it predicts, nor its loss
    predicted = np.stack([np.ones(len(X)), X[:, 0], np.sin(X[:, 1])], axis=1) @ [0.7, -0.4, 2.0]
    np.testing.assert_allclose(result.inner_loss, np.mean(0.5 * CURVATURE * (predicted - solution) ** 2), rtol=1e-12)
    np.testing.assert_allclose(estimator.predictor(state)(samples.x[0]), np.array([0.7, -0.4, 2.0]) @ phi(samples.x[0]))
    # inner and outer rows of a mini-batch stay together
    single = sf.Functional(untrained(), sf.PointwiseAdjoint(), correction=sf.PointwiseCorrection(), batch_size=1)
    of_samples = slope[:, None] * X + OUTER * (1 + solution)[:, None]
    for seed in range(5):
        result, _ = estimated(single, problem, OUTER, data, jax.random.key(seed))
        assert np.min(np.abs(of_samples - np.asarray(result.gradient)).sum(axis=1)) < 1e-12


def test_inner_and_outer_rows_stay_together_whatever_the_adjoint(key):
    """One sample: the explicit term λ(y_i + v⁺_i) must take y and v⁺ of the same row."""
    problem = sf.Problem(
        inner_loss=lambda outer, v, x, y: 0.5 * (v - outer @ x) ** 2,
        outer_loss=lambda outer, v, x, y: 0.5 * jnp.sum(outer**2) * (y + v),
    )
    samples = sf.Samples(jnp.asarray(X), jnp.asarray(Y))
    estimator = sf.Functional(untrained(), linear(), correction=sf.PointwiseCorrection(), batch_size=1)
    of_rows = OUTER * (Y + X @ OUTER)[:, None]
    for seed in range(6):
        result, _ = estimated(estimator, problem, OUTER, sf.Data(samples, samples), jax.random.key(seed))
        assert np.min(np.abs(of_rows - np.asarray(result.explicit)).sum(axis=1)) < 1e-12


def test_pointwise_correction_is_one_newton_step(key):
    """A loss that is not quadratic, log(1 + eᵛ) − λv: v⁺ = v − (σ(v) − λ)/σ'(v), and the outer slope is v⁺'s."""
    problem = sf.Problem(
        inner_loss=lambda outer, v, x, y: jax.nn.softplus(v) - outer[0] * v,
        outer_loss=lambda outer, v, x, y: 0.5 * (v - y) ** 2,
    )
    samples = sf.Samples(jnp.asarray(X), jnp.asarray(Y))
    estimator = sf.Functional(untrained(), sf.PointwiseAdjoint(), correction=sf.PointwiseCorrection())
    result, _ = estimated(estimator, problem, [0.4], sf.Data(samples, samples), key)

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    v = np.array([[1, x[0], np.sin(x[1])] for x in X]) @ [0.7, -0.4, 2.0]
    moved = v - (sigmoid(v) - 0.4) / (sigmoid(v) * (1 - sigmoid(v)))
    adjoint = -(moved - Y) / (sigmoid(moved) * (1 - sigmoid(moved)))
    np.testing.assert_allclose(result.gradient, [np.mean(-adjoint)], rtol=1e-10)


def test_fitted_correction_with_noisy_targets_follows_the_solution(key):
    """Weighted regression with noise in its targets: finite differences of the solved problem, from any ĥ."""
    ridge, outer = Ridge.draw(3, ridge=0.0), np.array([0.2, -0.5, 0.1])
    data = ridge_data(ridge)
    estimator = sf.Functional(untrained(), linear(ridge=0.0), correction=sf.FittedCorrection(linear(ridge=0.0)))
    result, state = estimated(estimator, RIDGE_PROBLEM, outer, data, key)
    steps = 1e-5 * np.eye(3)
    slopes = [(ridge.objective(outer + step) - ridge.objective(outer - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(result.gradient, slopes, rtol=1e-6)
    np.testing.assert_allclose(result.outer_loss, ridge.objective(outer), rtol=1e-10)
    np.testing.assert_allclose(
        sf.batched(estimator.predictor(state))(data.outer.x), features(ridge.x_out) @ ridge.solution(outer), rtol=1e-9
    )


def test_fitted_correction_starts_where_the_last_round_ended(key):
    ridge = Ridge.draw(3, ridge=0.0)
    estimator = sf.Functional(
        untrained(), linear(), correction=sf.FittedCorrection(trained_linear(1, rate=0.1, ridge=0.0))
    )
    data, outer = ridge_data(ridge), jnp.array([0.2, -0.5, 0.1])
    _, state = estimated(estimator, RIDGE_PROBLEM, outer, data, key)
    a, b = ridge.system(np.asarray(outer))
    first = -0.1 * (a @ np.array([0.7, -0.4, 2.0]) - b)
    np.testing.assert_allclose(state.correction.params, first, rtol=1e-12)
    _, state = eqx.filter_jit(estimator)(RIDGE_PROBLEM, outer, state, data, key)
    second = first - 0.1 * (a @ (np.array([0.7, -0.4, 2.0]) + first) - b)
    np.testing.assert_allclose(state.correction.params, second, rtol=1e-12)


def test_fitted_parameters_are_those_of_the_correction_where_it_has_any(key):
    data, wider = ridge_data(Ridge.draw(0)), sf.Linear(lambda x: jnp.ones(5))
    for correction, expected in ((None, 3), (sf.FittedCorrection(wider), 5)):
        estimator = sf.Functional(untrained(), linear(), correction=correction)
        assert estimator.parameters(estimator.init(RIDGE_PROBLEM, jnp.zeros(3), data, key)) == expected


def test_what_cannot_be_corrected_is_refused(key, as_users_call):
    data = ridge_data(Ridge.draw(0))
    with pytest.raises(TypeError, match=r"correction must be a PointwiseCorrection\(\), .* got a str"):
        sf.Functional(untrained(), linear(), correction="newton")
    estimator = sf.Functional(untrained(), linear(), correction=sf.PointwiseCorrection())
    with pytest.raises(ValueError, match="PointwiseCorrection needs the same inputs"):
        estimator.init(RIDGE_PROBLEM, jnp.zeros(3), data, key)
    wrong = sf.Network.from_pair(lambda key, x: jnp.zeros(2), lambda params, x: params, optax.sgd(0.1), 1)
    estimator = sf.Functional(untrained(), linear(), correction=sf.FittedCorrection(wrong))
    with pytest.raises(ValueError, match="The correction function must return what the inner function returns"):
        estimator.init(RIDGE_PROBLEM, jnp.zeros(3), data, key)
    estimator = sf.Functional(untrained(), linear(), correction=sf.FittedCorrection(lambda module: 3))
    with pytest.raises(TypeError, match=r"correction\(module\) must return a Network or a Linear, got 3"):
        estimator.init(RIDGE_PROBLEM, jnp.zeros(3), data, key)
