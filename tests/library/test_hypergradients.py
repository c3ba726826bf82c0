"""Every estimator against the closed form, and the closed form against finite differences."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import RIDGE_PROBLEM, half_squares, linear, phi, ridge_data, trained_linear
from reference import Ridge, central_differences, features, outer_loss, outer_slope

import smoothfbo as sf
from smoothfbo.functions.base import FunctionState, Term

OUTER = np.array([0.4, -0.7, 0.2])


@eqx.filter_jit
def call(hypergradient, problem, outer, state, data, key):
    return hypergradient(problem, outer, state, data, key)


def estimate(hypergradient, ridge, outer=OUTER, rounds=1):
    """The estimate of the last of some rounds on the same data."""
    data, outer, key = ridge_data(ridge), jnp.asarray(outer), jax.random.key(0)
    state = hypergradient.init(RIDGE_PROBLEM, outer, data, key)
    for t in range(rounds):
        result, state = call(hypergradient, RIDGE_PROBLEM, outer, state, data, jax.random.fold_in(key, t))
    return result, state


def test_reference_agrees_with_finite_differences():
    ridge = Ridge.draw(0)
    np.testing.assert_allclose(
        ridge.hypergradient(OUTER), central_differences(ridge.objective, OUTER), rtol=1e-7, atol=1e-9
    )


CONVERGED = {
    "functional, linear": lambda: sf.Functional(linear(), linear()),
    "functional, trained": lambda: sf.Functional(trained_linear(600), trained_linear(600)),
    "functional, linear inner and trained adjoint": lambda: sf.Functional(linear(), trained_linear(600)),
    "implicit, conjugate gradients": lambda: sf.Implicit(linear(), sf.ConjugateGradient(tolerance=1e-12)),
    "implicit, trained": lambda: sf.Implicit(trained_linear(600), sf.ConjugateGradient(tolerance=1e-12)),
    "implicit, Neumann": lambda: sf.Implicit(linear(), sf.NeumannSeries(terms=600, step=0.5)),
    "unrolled, many steps": lambda: sf.Unrolled(trained_linear(600)),
    "unrolled, exact fit": lambda: sf.Unrolled(linear()),
}


@pytest.mark.parametrize("name", CONVERGED)
@pytest.mark.parametrize("seed", [0, 1])
def test_converged_estimators_equal_the_closed_form(name, seed):
    ridge = Ridge.draw(seed)
    result, _ = estimate(CONVERGED[name](), ridge)
    np.testing.assert_allclose(result.gradient, ridge.hypergradient(OUTER), rtol=1e-8)
    np.testing.assert_allclose(result.gradient, central_differences(ridge.objective, OUTER), rtol=1e-6)
    assert bool(result.converged)
    assert np.isnan(result.adjoint_residual) if name.startswith("unrolled") else result.adjoint_residual < 1e-8


UNCONVERGED = {
    "functional": lambda: sf.Functional(trained_linear(2), linear()),
    "implicit": lambda: sf.Implicit(trained_linear(2), sf.ConjugateGradient()),
    "unrolled": lambda: sf.Unrolled(trained_linear(2)),
    "explicit": lambda: sf.Explicit(trained_linear(2)),
}


@pytest.mark.parametrize("name", UNCONVERGED)
def test_the_inner_residual_is_that_of_the_normal_equations(name):
    """A linear function and squared errors: ∇L_in = Aθ − b, and J^T of the slope at zero is −b. In NumPy."""
    ridge = Ridge.draw(17)
    result, state = estimate(UNCONVERGED[name](), ridge)
    a, b = ridge.system(OUTER)
    expected = np.linalg.norm(a @ np.asarray(state.inner.params) - b) / np.linalg.norm(b)
    assert 0.02 < expected < 0.9
    np.testing.assert_allclose(result.inner_residual, expected, rtol=1e-9)
    assert not bool(result.converged)
    # without a fit the function is zero, and no better than zero
    untrained = eqx.tree_at(lambda estimator: estimator.inner, UNCONVERGED[name](), trained_linear(0))
    result, _ = estimate(untrained, ridge)
    np.testing.assert_allclose(result.inner_residual, 1.0, rtol=1e-12)


def softmax_problem(key):
    x = jax.random.normal(key, (60, 2))
    y = jnp.argmax(x @ jnp.array([[3.0, 0.0, -1.0], [0.0, 2.0, 1.0]]), axis=1)
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels

    def inner_loss(outer, v, x, y):
        with jax.numpy_dtype_promotion("standard"):
            return jnp.exp(outer) * cross_entropy(v, y)

    def outer_loss(outer, v, x, y):
        with jax.numpy_dtype_promotion("standard"):
            return cross_entropy(v, y)

    return sf.Problem(inner_loss, outer_loss), sf.Data(sf.Samples(x[:40], y[:40]), sf.Samples(x[40:], y[40:]))


@pytest.mark.parametrize(
    "make",
    [lambda inner: sf.Functional(inner, linear_adjoint()), pytest.param(sf.Unrolled, marks=pytest.mark.thorough)],
)
def test_one_newton_step_on_a_softmax_is_not_called_converged(make, key):
    problem, data = softmax_problem(key)
    outer, residuals = jnp.zeros(()), {}
    for steps in (1, 5):
        estimator = make(sf.Linear(phi, prediction=jnp.zeros(3), ridge=0.1, steps=steps))
        state = estimator.init(problem, outer, data, key)
        result, _ = call(estimator, problem, outer, state, data, key)
        assert bool(result.converged) == (steps == 5)
        residuals[steps] = float(result.inner_residual)
    assert residuals[1] > 0.02
    assert residuals[5] < 1e-8


def linear_adjoint():
    return sf.Linear(phi, ridge=1e-3)


def test_networks_that_are_far_from_their_targets_are_not_called_converged(key):
    """Few steps on few samples: residuals near 1, of the inner function and of the adjoint."""
    data, outer = ridge_data(Ridge.draw(18)), jnp.asarray(OUTER)
    network = sf.Network(lambda key: eqx.nn.MLP(2, "scalar", 16, 2, jnp.tanh, key=key), optax.adam(1e-4), 2)
    estimator = sf.Functional(linear(), network)
    result, _ = call(estimator, RIDGE_PROBLEM, outer, estimator.init(RIDGE_PROBLEM, outer, data, key), data, key)
    assert float(result.inner_residual) < 1e-10
    assert 0.2 < float(result.adjoint_residual) < 3
    assert not bool(result.converged)
    estimator = sf.Functional(network, linear())
    result, _ = call(estimator, RIDGE_PROBLEM, outer, estimator.init(RIDGE_PROBLEM, outer, data, key), data, key)
    assert float(result.adjoint_residual) < 1e-10
    assert 0.2 < float(result.inner_residual) < 3
    assert not bool(result.converged)


def test_an_inverse_without_a_tolerance_is_judged_by_its_residual():
    ridge = Ridge.draw(19)
    for inverse, solved in (
        (sf.IdentityInverse(), False),
        (sf.NeumannSeries(terms=2, step=0.3), False),
        (sf.NeumannSeries(terms=600, step=0.5), True),
        (sf.ConjugateGradient(tolerance=0.5), True),
        (sf.ConjugateGradient(tolerance=1e-9, max_steps=1), False),
    ):
        result, _ = estimate(sf.Implicit(linear(), inverse), ridge)
        assert bool(result.converged) == solved, inverse


def test_a_loss_without_a_slope_at_zero_has_no_residual(key):
    """log v at v = 0: nothing to compare with, and nothing is claimed."""
    samples = sf.Samples(jnp.ones((4, 1)), jnp.ones(4))
    problem = sf.Problem(
        lambda outer, v, x, y: v * jnp.exp(outer) - y * jnp.log(v), lambda outer, v, x, y: 0.5 * (v - y) ** 2
    )
    inner = sf.Network.from_pair(lambda key, x: jnp.ones(1), lambda params, x: params @ x, optax.sgd(0.1), 1)
    estimator, data, outer = sf.Unrolled(inner), sf.Data(samples, samples), jnp.asarray(0.1)
    result, _ = call(estimator, problem, outer, estimator.init(problem, outer, data, key), data, key)
    assert np.isfinite(result.gradient)
    assert np.isnan(result.inner_residual)
    assert not bool(result.converged)


def test_failed_solves_say_so():
    """Nothing finite, nothing converged; an adjoint where there is nothing to be adjoint to is not called solved."""
    ridge = Ridge.draw(16)
    singular = sf.Linear(lambda x: jnp.concatenate([x, x]))
    result, _ = estimate(sf.Functional(linear(), singular), ridge)
    assert not bool(result.converged)
    assert not np.isfinite(result.adjoint_residual)
    result, _ = estimate(sf.Implicit(linear(), sf.NeumannSeries(terms=500, step=50.0)), ridge)
    assert not bool(result.converged)
    problem = sf.Problem(RIDGE_PROBLEM.inner_loss, lambda outer, v, x, y: jnp.sum(outer**2))
    data, outer, key = ridge_data(ridge), jnp.asarray(OUTER), jax.random.key(0)
    start = sf.Network.from_pair(lambda key, x: jnp.ones(3), lambda params, x: params @ phi(x), optax.sgd(0.1), 1)
    hypergradient = sf.Functional(linear(), start)
    result, _ = call(hypergradient, problem, outer, hypergradient.init(problem, outer, data, key), data, key)
    assert np.isinf(result.adjoint_residual)


class Features(eqx.Module):
    """The `apply` of a pair that also takes all samples in one call."""

    seen: list = eqx.field(static=True)

    def __call__(self, params, x):
        return params @ phi(x)

    def batch(self, params, xs):
        self.seen.append(xs.shape)
        return jax.vmap(phi)(xs) @ params


def test_a_way_to_map_all_samples_at_once_changes_nothing_but_the_speed():
    ridge, apply = Ridge.draw(5), Features([])
    for make in (lambda inner: sf.Functional(inner, inner), sf.Unrolled):
        results = []
        for each in (lambda params, x: apply(params, x), apply):
            assert not apply.seen
            network = sf.Network.from_pair(lambda key, x: jnp.ones(3), each, optax.sgd(0.1), 4)
            results.append(estimate(make(network), ridge)[0])
        np.testing.assert_allclose(results[1].gradient, results[0].gradient, rtol=1e-10)
        np.testing.assert_allclose(results[1].inner_loss, results[0].inner_loss, rtol=1e-10)
        assert len(apply.seen) > 2  # the fit, the losses and the gradient
        assert all(len(shape) == 2 for shape in apply.seen)
        apply.seen.clear()


def test_batched_takes_the_method_or_maps():
    class Doubler(eqx.Module):
        def __call__(self, factor, x):
            return factor * x

        def batch(self, factor, xs):
            return 100 * factor * xs

    class Counter(eqx.Module):
        batch: int = 3  # a number, not a method

        def __call__(self, x):
            return x + self.batch

    xs = jnp.arange(3.0)
    np.testing.assert_array_equal(sf.batched(Doubler(), in_axes=(None, 0))(2.0, xs), [0, 200, 400])
    np.testing.assert_array_equal(sf.batched(lambda f, x: f * x, in_axes=(None, 0))(2.0, xs), [0, 2, 4])
    np.testing.assert_array_equal(sf.batched(Counter())(xs), [3, 4, 5])


class AllAtOnce(eqx.Module):
    """A loss that also takes all samples in one call."""

    loss: Callable = eqx.field(static=True)

    def __call__(self, outer, v, x, y):
        return self.loss(outer, v, x, y)

    def batch(self, outer, v, x, y):
        return jax.vmap(self.loss, in_axes=(None, 0, 0, 0))(outer, v, x, y)


def test_losses_of_all_samples_at_once_change_nothing():
    ridge = Ridge.draw(6)
    data, outer, key = ridge_data(ridge), jnp.asarray(OUTER), jax.random.key(0)
    wrapped = sf.Problem(AllAtOnce(RIDGE_PROBLEM.inner_loss), AllAtOnce(RIDGE_PROBLEM.outer_loss))
    pair = (lambda key, x: jnp.ones(3), lambda params, x: params @ phi(x))
    inner = sf.Network.from_pair(*pair, optax.sgd(0.1), 4)
    for hypergradient in (sf.Functional(inner, inner), sf.Implicit(inner)):
        results = []
        for problem in (RIDGE_PROBLEM, wrapped):
            state = hypergradient.init(problem, outer, data, key)
            results.append(call(hypergradient, problem, outer, state, data, key)[0])
        np.testing.assert_allclose(results[1].gradient, results[0].gradient, rtol=1e-10)
        np.testing.assert_allclose(results[1].inner_loss, results[0].inner_loss, rtol=1e-10)


def test_losses_of_all_samples_are_what_is_averaged_and_fitted():
    """With a `batch` twice as large as the loss of each: the mean doubles, and a fit moves as with twice the rate."""
    data, outer, key = ridge_data(Ridge.draw(6)), jnp.asarray(OUTER), jax.random.key(0)

    class Doubled(AllAtOnce):
        def batch(self, outer, v, x, y):
            return 2 * super().batch(outer, v, x, y)

    doubled = sf.Problem(Doubled(RIDGE_PROBLEM.inner_loss), RIDGE_PROBLEM.outer_loss)
    v = jnp.ones(data.inner.size)
    plain_mean = RIDGE_PROBLEM.inner_mean(outer, v, data.inner)
    np.testing.assert_allclose(doubled.inner_mean(outer, v, data.inner), 2 * plain_mean, rtol=1e-12)
    fitted = []
    for problem, rate in ((doubled, 0.01), (RIDGE_PROBLEM, 0.02)):
        inner = sf.Network.from_pair(lambda key, x: jnp.ones(3), lambda params, x: params @ phi(x), optax.sgd(rate), 4)
        hypergradient = sf.Unrolled(inner)
        state = hypergradient.init(problem, outer, data, key)
        fitted.append(call(hypergradient, problem, outer, state, data, key)[1].inner.params)
    np.testing.assert_allclose(fitted[0], fitted[1], rtol=1e-10)
    assert np.abs(np.asarray(fitted[0]) - 1).max() > 1e-3


def test_losses_of_all_samples_must_be_one_for_each():
    ridge = Ridge.draw(6)

    class Sum(AllAtOnce):
        def batch(self, outer, v, x, y):
            return jnp.sum(super().batch(outer, v, x, y))

    problem = sf.Problem(Sum(RIDGE_PROBLEM.inner_loss), RIDGE_PROBLEM.outer_loss)
    hypergradient = sf.Unrolled(
        sf.Network.from_pair(lambda key, x: jnp.ones(3), lambda p, x: p @ phi(x), optax.sgd(0.1), 4)
    )
    with pytest.raises(ValueError, match=r"inner_loss.batch must return one loss for each of the \d+ samples"):
        hypergradient.init(problem, jnp.asarray(OUTER), ridge_data(ridge), jax.random.key(0))


def test_explicit_and_implicit_terms_are_the_two_halves():
    ridge = Ridge.draw(3)
    theta = ridge.solution(OUTER)
    for hypergradient in (sf.Functional(linear(), linear()), sf.Implicit(linear())):
        result, _ = estimate(hypergradient, ridge)
        np.testing.assert_allclose(result.explicit, ridge.explicit_at(OUTER, theta), rtol=1e-8)
        np.testing.assert_allclose(result.implicit, ridge.cross_at(OUTER, theta, ridge.adjoint(OUTER)), rtol=1e-4)


def test_losses_are_those_of_the_fitted_function():
    ridge = Ridge.draw(4)
    v_in, v_out = (features(x) @ ridge.solution(OUTER) for x in (ridge.x_in, ridge.x_out))
    inner = np.mean(0.5 * np.exp(OUTER[ridge.group]) * (v_in - ridge.y_in) ** 2)
    for hypergradient in (sf.Functional(linear(), linear()), sf.Implicit(linear()), sf.Unrolled(linear())):
        result, _ = estimate(hypergradient, ridge)
        np.testing.assert_allclose(result.inner_loss, inner, rtol=1e-10)
        np.testing.assert_allclose(result.outer_loss, ridge.objective(OUTER), rtol=1e-10)
        assert v_out.shape == (30,)


def test_identity_agrees_with_its_own_formula():
    """OMD: ∂_λ L_out − ∂_λ⟨∇_θ L_in, ∇_θ L_out⟩ at the fitted θ, here one that has not converged."""
    ridge = Ridge.draw(5)
    result, state = estimate(sf.Implicit(trained_linear(3), sf.IdentityInverse()), ridge)
    theta = np.asarray(state.inner.params)
    slope = ridge.outer_slope_at(OUTER, theta)
    expected = ridge.explicit_at(OUTER, theta) - ridge.cross_at(OUTER, theta, slope)
    np.testing.assert_allclose(result.gradient, expected, rtol=1e-10)
    assert float(result.adjoint_residual) > 0.01


@pytest.mark.parametrize("terms", [1, 2, 5])
def test_neumann_is_the_truncated_series(terms):
    ridge, step = Ridge.draw(6), 0.3
    result, state = estimate(sf.Implicit(linear(), sf.NeumannSeries(terms=terms, step=step)), ridge)
    theta, (a, _) = ridge.solution(OUTER), ridge.system(OUTER)
    slope = ridge.outer_slope_at(OUTER, theta)
    v = step * sum(np.linalg.matrix_power(np.eye(3) - step * a, k) @ slope for k in range(terms))
    np.testing.assert_allclose(state.solution, v, rtol=1e-10)
    np.testing.assert_allclose(
        result.gradient, ridge.explicit_at(OUTER, theta) - ridge.cross_at(OUTER, theta, v), rtol=1e-10
    )


def test_unrolled_is_the_derivative_of_the_truncated_optimisation():
    """Against central differences of a NumPy gradient descent of three steps from zero."""
    ridge = Ridge.draw(7)

    def after_three_steps(outer):
        theta = np.zeros(3)
        a, b = ridge.system(outer)
        for _ in range(3):
            theta = theta - 0.5 * (a @ theta - b)
        v = features(ridge.x_out) @ theta
        return np.mean(outer_loss(outer, v, ridge.y_out))

    result, _ = estimate(sf.Unrolled(trained_linear(3)), ridge)
    np.testing.assert_allclose(result.gradient, central_differences(after_three_steps, OUTER), rtol=1e-7)


def test_functional_at_unconverged_functions_is_the_formula_at_them():
    """Nothing differentiates through the fits: ĥ and â enter as they are, however far from h* and a*."""
    ridge = Ridge.draw(8)
    result, state = estimate(sf.Functional(trained_linear(2), trained_linear(2)), ridge)
    theta, xi = np.asarray(state.inner.params), np.asarray(state.adjoint.params)
    expected = ridge.explicit_at(OUTER, theta) + ridge.cross_at(OUTER, theta, xi)
    np.testing.assert_allclose(result.gradient, expected, rtol=1e-12)
    # and the residual is that of the equation A ξ + d = 0
    a, _ = ridge.system(OUTER)
    d = ridge.outer_slope_at(OUTER, theta)
    expected = np.linalg.norm(a @ xi + d) / np.linalg.norm(d)
    np.testing.assert_allclose(result.adjoint_residual, expected, rtol=1e-12)


def test_warm_start_continues_both_fits():
    """Two rounds of M steps are one round of 2M steps on the same data, for h; â restarts from its last value."""
    ridge = Ridge.draw(9)
    _, twice = estimate(sf.Functional(trained_linear(4), trained_linear(4)), ridge, rounds=2)
    _, once = estimate(sf.Functional(trained_linear(8), trained_linear(4)), ridge)
    np.testing.assert_allclose(twice.inner.params, once.inner.params, rtol=1e-12)
    _, many = estimate(sf.Functional(linear(), trained_linear(1)), ridge, rounds=600)
    np.testing.assert_allclose(many.adjoint.params, ridge.adjoint(OUTER), rtol=1e-8)
    _, many = estimate(sf.Unrolled(trained_linear(1)), ridge, rounds=600)
    np.testing.assert_allclose(many.inner.params, ridge.solution(OUTER), rtol=1e-8)


def test_conjugate_gradients_start_from_the_last_solution():
    """Three unknowns need three iterations; one per round is enough only if each starts where the last ended."""
    ridge = Ridge.draw(10)
    one_step = sf.ConjugateGradient(max_steps=1, tolerance=1e-12)
    result, _ = estimate(sf.Implicit(linear(), one_step), ridge)
    assert not bool(result.converged)
    result, _ = estimate(sf.Implicit(linear(), one_step), ridge, rounds=300)
    np.testing.assert_allclose(result.gradient, ridge.hypergradient(OUTER), rtol=1e-6)
    cold = sf.ConjugateGradient(max_steps=1, tolerance=1e-12, warm_start=False)
    result, _ = estimate(sf.Implicit(linear(), cold), ridge, rounds=300)
    assert not bool(result.converged)


def test_final_minibatch_is_drawn_from_final_data_when_given():
    """With `final`, the hypergradient is the formula on those samples, at functions fitted to the others."""
    ridge, fresh = Ridge.draw(11), Ridge.draw(12)
    data = ridge_data(ridge)._replace(final=ridge_data(fresh))
    key, outer = jax.random.key(0), jnp.asarray(OUTER)
    theta, xi = ridge.solution(OUTER), ridge.adjoint(OUTER)
    expected = fresh.explicit_at(OUTER, theta) + fresh.cross_at(OUTER, theta, xi)
    for hypergradient in (
        sf.Functional(linear(), linear()),
        sf.Implicit(linear(), sf.ConjugateGradient(tolerance=1e-12)),
    ):
        state = hypergradient.init(RIDGE_PROBLEM, outer, data, key)
        result, _ = call(hypergradient, RIDGE_PROBLEM, outer, state, data, key)
        np.testing.assert_allclose(result.explicit, fresh.explicit_at(OUTER, theta), rtol=1e-8)
        if isinstance(hypergradient, sf.Functional):
            np.testing.assert_allclose(result.gradient, expected, rtol=1e-8)


def test_minibatch_estimate_is_unbiased_given_the_functions():
    """The mean over many final mini-batches is the full-batch value; their spread falls as one over their size."""
    ridge = Ridge.draw(13)
    data, outer = ridge_data(ridge), jnp.asarray(OUTER)
    full, _ = estimate(sf.Functional(linear(), linear()), ridge)

    def draws(batch_size):
        hypergradient = sf.Functional(linear(), linear(), batch_size=batch_size)
        state = hypergradient.init(RIDGE_PROBLEM, outer, data, jax.random.key(0))
        keys = jax.random.split(jax.random.key(1), 4000)
        call = jax.jit(jax.vmap(lambda key: hypergradient(RIDGE_PROBLEM, outer, state, data, key)[0].gradient))
        return np.asarray(call(keys))

    small, large = draws(5), draws(20)
    standard_error = small.std(axis=0) / np.sqrt(len(small))
    assert np.all(np.abs(small.mean(axis=0) - full.gradient) < 4 * standard_error)
    np.testing.assert_allclose(small.var(axis=0) / large.var(axis=0), 4.0, rtol=0.15)


def test_pointwise_adjoint_solves_sample_by_sample(key):
    """ℓ_in = ½ c (v − u_λ)², ℓ_out = ½ (v − y)²: â_i = −(v_i − y_i)/c_i and g = mean c (−∂u_λ) â."""
    n = 7
    x = jax.random.normal(key, (n, 2))
    y, c = jnp.arange(1.0, n + 1), jnp.linspace(0.5, 2.0, n)
    problem = sf.Problem(
        inner_loss=lambda outer, v, x, y: 0.5 * y["c"] * (v - outer @ x) ** 2,
        outer_loss=lambda outer, v, x, y: 0.5 * (v - y["y"]) ** 2,
    )
    samples = sf.Samples(x, {"y": y, "c": c})
    data, outer = sf.Data(samples, samples), jnp.array([0.3, -1.2])
    hypergradient = sf.Functional(trained_linear(2, rate=0.1), sf.PointwiseAdjoint())
    state = hypergradient.init(problem, outer, data, key)
    result, state = call(hypergradient, problem, outer, state, data, key)
    v = features(np.asarray(x)) @ np.asarray(state.inner.params)
    adjoint = -(v - np.asarray(y)) / np.asarray(c)
    expected = np.mean((np.asarray(c) * adjoint)[:, None] * -np.asarray(x), axis=0)
    np.testing.assert_allclose(result.gradient, expected, rtol=1e-12)
    assert float(result.adjoint_residual) < 1e-12
    # mini-batches keep inner and outer rows together: with one sample, the estimate is that sample's value
    single = sf.Functional(trained_linear(2, rate=0.1), sf.PointwiseAdjoint(), batch_size=1)
    values = (np.asarray(c) * adjoint)[:, None] * -np.asarray(x)
    for seed in range(10):
        state = single.init(problem, outer, data, key)
        result, _ = call(single, problem, outer, state, data, jax.random.key(seed))
        assert np.min(np.abs(values - np.asarray(result.gradient)).sum(axis=1)) < 1e-12


def test_pointwise_with_vector_predictions_inverts_the_hessian(key):
    """ℓ_in = ½ (v − λ)ᵀ M (v − λ), ℓ_out = ½‖v − y‖² at v = ĥ: g = −M â = (v − y), exactly (chain rule)."""
    mixing = jnp.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.7]])
    problem = sf.Problem(
        inner_loss=lambda outer, v, x, y: 0.5 * (v - outer) @ mixing @ (v - outer),
        outer_loss=lambda outer, v, x, y: 0.5 * jnp.sum((v - y) ** 2),
    )
    samples = sf.Samples(jnp.ones((4, 1)), jax.random.normal(key, (4, 3)))
    data, outer = sf.Data(samples, samples), jnp.array([0.1, 0.5, -0.4])
    inner = sf.Linear(lambda x: x, prediction=jnp.zeros(3))
    hypergradient = sf.Functional(inner, sf.PointwiseAdjoint())
    result, _ = call(hypergradient, problem, outer, hypergradient.init(problem, outer, data, key), data, key)
    np.testing.assert_allclose(result.gradient, jnp.mean(outer - samples.y, axis=0), rtol=1e-12)


def test_linear_adjoint_on_the_inner_networks_features(key):
    """With last_hidden features: the same answer as solving the normal equations of these features in NumPy."""
    ridge = Ridge.draw(14)
    data, outer = ridge_data(ridge), jnp.asarray(OUTER)
    inner = sf.Network(lambda key: eqx.nn.MLP(2, "scalar", 8, 2, jnp.tanh, key=key), optax.adam(1e-2), 20)
    hypergradient = sf.Functional(inner, lambda module: sf.Linear(sf.last_hidden(module), ridge=0.05, bias=True))
    state = hypergradient.init(RIDGE_PROBLEM, outer, data, key)
    result, state = call(hypergradient, RIDGE_PROBLEM, outer, state, data, key)

    module = inner.bind(state.inner.params)

    def hidden(x):
        for layer in module.layers[:-1]:
            x = np.tanh(x @ np.asarray(layer.weight).T + np.asarray(layer.bias))
        return np.concatenate([x, np.ones((len(x), 1))], axis=1)

    v_in, v_out = (np.asarray(jax.vmap(module)(jnp.asarray(x))) for x in (ridge.x_in, ridge.x_out))
    weight = np.exp(OUTER[ridge.group])
    in_, out = hidden(ridge.x_in), hidden(ridge.x_out)
    a = (in_ * weight[:, None]).T @ in_ / len(in_) + 0.05 * np.eye(9)
    d = out.T @ outer_slope(OUTER, v_out, ridge.y_out) / len(out)
    adjoint = in_ @ -np.linalg.solve(a, d)
    per_sample = weight * (v_in - ridge.y_in) * adjoint / len(in_)
    implicit = np.array([per_sample[ridge.group == g].sum() for g in range(3)])
    np.testing.assert_allclose(result.implicit, implicit, rtol=1e-9)


def test_newton_steps_solve_logistic_regression(key):
    """A loss that is not quadratic: with enough Newton steps the gradient of the inner objective vanishes."""
    x = jax.random.normal(key, (50, 2))
    y = (x[:, 0] + 0.3 * jax.random.normal(key, (50,)) > 0).astype(x.dtype)
    problem = sf.Problem(
        inner_loss=lambda outer, v, x, y: jnp.exp(outer) * optax.sigmoid_binary_cross_entropy(v, y),
        outer_loss=lambda outer, v, x, y: optax.sigmoid_binary_cross_entropy(v, y),
    )
    data = sf.Data(sf.Samples(x[:30], y[:30]), sf.Samples(x[30:], y[30:]))
    outer = jnp.asarray(0.3)

    hypergradient = sf.Functional(sf.Linear(phi, ridge=0.1, steps=8), sf.Linear(phi, ridge=0.1))

    def solved(outer):
        return call(hypergradient, problem, outer, hypergradient.init(problem, outer, data, key), data, key)

    result, state = solved(outer)
    theta = np.asarray(state.inner.params)
    feats = features(np.asarray(x[:30]))
    slope = feats.T @ (np.exp(0.3) * (1 / (1 + np.exp(-feats @ theta)) - np.asarray(y[:30]))) / 30 + 0.1 * theta
    assert np.abs(slope).max() < 1e-12
    step = 1e-5
    difference = (solved(outer + step)[0].outer_loss - solved(outer - step)[0].outer_loss) / (2 * step)
    np.testing.assert_allclose(result.gradient, difference, rtol=1e-7)

    def operations(steps):
        made = sf.Functional(sf.Linear(phi, ridge=0.1), sf.Linear(phi, ridge=0.1, steps=steps))
        return len(jax.make_jaxpr(lambda outer: made(problem, outer, state, data, key))(outer).eqns)

    assert operations(8) == operations(1)  # the adjoint's objective is quadratic: one step solves it


def test_oracle_passes_the_users_gradient(key):
    oracle = sf.Oracle(
        lambda outer, data, key: {"a": outer["a"] * data + jax.random.normal(key)},
        objective=lambda outer, data: 0.5 * outer["a"] ** 2 * data,
    )
    outer = {"a": jnp.asarray(3.0)}
    state = oracle.init(None, outer, jnp.asarray(2.0), key)
    result, _ = oracle(None, outer, state, jnp.asarray(2.0), key)
    np.testing.assert_allclose(result.gradient["a"], 6.0 + jax.random.normal(key))
    np.testing.assert_allclose(result.outer_loss, 9.0)
    assert np.isnan(result.inner_loss)


EXACT = (
    sf.Functional(linear(), linear()),
    sf.Implicit(linear(), sf.ConjugateGradient(tolerance=1e-13)),
    sf.Unrolled(linear()),
)


@eqx.filter_jit
def first_estimate(hypergradient, outer, data, key):
    state = hypergradient.init(RIDGE_PROBLEM, outer, data, key)
    return hypergradient(RIDGE_PROBLEM, outer, state, data, key)[0]


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), sizes=st.sampled_from([(1, 9, 1), (4, 12, 20)]))
def test_random_problems_agree_with_the_closed_form(seed, sizes):
    groups, n_in, n_out = sizes
    ridge = Ridge.draw(seed, n_in=n_in, n_out=n_out, groups=groups)
    outer = np.random.default_rng(seed).uniform(-1, 1, groups)
    for hypergradient in EXACT:
        result = first_estimate(hypergradient, jnp.asarray(outer), ridge_data(ridge), jax.random.key(0))
        np.testing.assert_allclose(result.gradient, ridge.hypergradient(outer), rtol=1e-7, atol=1e-10)


def test_penalty_of_the_inner_function_enters_the_implicit_system():
    """Without ρ in the Hessian the answer would be another one: the closed form has it."""
    for strength in (0.01, 1.0):
        ridge = Ridge.draw(15, ridge=strength)
        network = trained_linear(2000, rate=0.3, ridge=strength)
        result, _ = estimate(sf.Implicit(network, sf.ConjugateGradient(tolerance=1e-12)), ridge)
        np.testing.assert_allclose(result.gradient, ridge.hypergradient(OUTER), rtol=1e-6)
        assert half_squares(strength)(jnp.ones(2)) == pytest.approx(strength)


def test_newton_steps_that_would_lead_away_are_shortened(key):
    """Logistic regression from far away: whole Newton steps diverge, and later rounds begin where they ended."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = (x @ [1.0, -2.0, 0.5] + rng.normal(size=40) > 0).astype(float)
    objective = (Term(lambda v, x, y: jnp.logaddexp(0.0, v) - y * v, sf.Samples(jnp.asarray(x), jnp.asarray(y))),)

    def value(theta):
        v = x @ theta
        return np.mean(np.logaddexp(0.0, v) - y * v) + 0.05 * theta @ theta

    def slope(theta):
        return x.T @ (1 / (1 + np.exp(-x @ theta)) - y) / 40 + 0.1 * theta

    family = sf.Linear(lambda x: x, ridge=0.1, steps=8)
    fit = jax.jit(lambda params, damping: family.damped(damping).fit(FunctionState(params, ()), objective, key).params)
    start = jnp.array([40.0, 30.0, -50.0])
    theta = np.asarray(fit(start, 0.0))
    np.testing.assert_allclose(slope(theta), 0.0, atol=1e-9)
    # held at its start: the objective plus ½ δ m ‖θ − θ₀‖², m = trace of the Hessian / 3 where the steps begin
    near = np.array([0.3, -0.4, 0.2])
    probability = 1 / (1 + np.exp(-x @ near))
    mean_curvature = np.sum(x**2 * (probability * (1 - probability))[:, None]) / 40 / 3 + 0.1
    assert value(near) < value(np.zeros(3))
    held = np.asarray(fit(jnp.asarray(near), 2.0))
    np.testing.assert_allclose(slope(held) + 2.0 * mean_curvature * (held - near), 0.0, atol=1e-9)

    # √(1 + r²): a whole Newton step takes r to −r³, and diverges from 0 already
    y = np.array([2.5, 3.0, 4.0])
    far = (Term(lambda v, x, y: jnp.sqrt(1 + (v - y) ** 2), sf.Samples(jnp.ones((3, 1)), jnp.asarray(y))),)
    constant = sf.Linear(lambda x: x, steps=12)
    (theta,) = jax.jit(lambda: constant.fit(FunctionState(jnp.zeros(1), ()), far, key).params)()
    np.testing.assert_allclose(np.sum((theta - y) / np.sqrt(1 + (theta - y) ** 2)), 0.0, atol=1e-9)


def test_unrolled_newton_steps_at_a_solved_fit():
    """Targets without noise, and λ that stands still: the fit begins where it ends, and its end moves with λ still."""
    problem = sf.Problem(
        lambda outer, v, x, y: 0.5 * (v - jnp.sin(outer) @ jnp.tanh(x) - outer @ x) ** 2,
        lambda outer, v, x, y: 0.5 * (v - y) ** 2,
    )
    features = lambda x: jnp.append(jnp.tanh(x), x)  # noqa: E731
    algorithm = sf.Online(problem, sf.Unrolled(sf.Linear(features, steps=3)), optax.sgd(0.0))

    def gradients(outer, x, others, y):
        source = sf.RepeatedSource(sf.Data(sf.Samples(x, y), sf.Samples(others, y)))
        return sf.run(
            algorithm, source, outer, rounds=3, key=jax.random.key(0), record=lambda state, info: info.gradient
        )[1]

    rng = np.random.default_rng(5)
    outer, x, others, y = (rng.normal(size=(10, *shape)) for shape in ((3,), (20, 3), (20, 3), (20,)))
    found = jax.jit(jax.vmap(gradients))(*map(jnp.asarray, (outer, x, others, y)))
    both = np.concatenate([np.tanh(others), others], axis=2)
    errors = np.einsum("lnp,lp->ln", both, np.concatenate([np.sin(outer), outer], axis=1)) - y
    slopes = np.einsum("ln,lnp->lp", errors, both) / 20
    expected = np.cos(outer) * slopes[:, :3] + slopes[:, 3:]
    np.testing.assert_allclose(found, np.repeat(expected[:, None], 3, axis=1), rtol=1e-8)
