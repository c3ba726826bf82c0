"""All of optax: optimisers that want values, several steps, or their own schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, phi, ridge_data
from reference import Ridge

import smoothfbo as sf

RIDGE = Ridge.draw(3)
DATA = ridge_data(RIDGE)
OUTER = np.array([0.4, -0.7, 0.2])


def trace_of(optimiser, rounds=4, **oracle):
    """F(λ) = ½‖λ‖² + 1 from (3, 4), exactly."""
    oracle = {"gradient": lambda outer, data, key: outer * data,
              "objective": lambda outer, data: (0.5 * jnp.sum(outer**2) + 1) * data} | oracle  # fmt: skip
    algorithm = sf.Online(estimator=sf.Oracle(**oracle), optimiser=optimiser)
    data = jnp.ones(rounds) if "data" not in oracle else oracle.pop("data")
    return sf.run(algorithm, data, jnp.array([3.0, 4.0]), rounds=rounds, key=jax.random.key(0))


def test_polyak_steps_see_the_outer_loss():
    """λ − (F(λ) − 1)/‖∇F‖² ∇F = λ/2 in every round: half of the way."""
    _, trace = trace_of(optax.polyak_sgd(max_learning_rate=10.0, f_min=1.0))
    np.testing.assert_allclose(trace.outer, np.array([3.0, 4.0]) * 0.5 ** np.arange(4)[:, None], rtol=1e-12)


def test_the_value_is_the_outer_loss_of_the_bilevel_problem(key):
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(linear(), linear()), optax.polyak_sgd(max_learning_rate=100.0))
    state, info = algorithm.step(algorithm.init(jnp.asarray(OUTER), DATA, key), DATA)
    gradient = RIDGE.hypergradient(OUTER)
    expected = OUTER - RIDGE.objective(OUTER) / np.sum(gradient**2) * gradient
    np.testing.assert_allclose(state.outer, expected, rtol=1e-8)
    np.testing.assert_allclose(info.outer_loss, RIDGE.objective(OUTER), rtol=1e-10)


def test_a_plateau_reduces_the_rate():
    """A gradient without a fall of the objective: after three rounds without progress, a tenth of the step."""
    optimiser = optax.chain(optax.sgd(1.0), optax.contrib.reduce_on_plateau(factor=0.1, patience=3, rtol=1e-3))
    for each in (optimiser, optax.chain(sf.mixed_average(0.5, optimiser))):
        _, trace = trace_of(
            each,
            8,
            gradient=lambda outer, data, key: jnp.ones_like(outer),
            objective=lambda outer, data: jnp.ones(()) * data,
        )
        steps = -np.diff(trace.outer[:, 0])
        if each is optimiser:
            np.testing.assert_allclose(steps, [1, 1, 1, 0.1, 0.1, 0.1, 0.01], rtol=1e-12)
        else:  # half of the gradient, and half of what the smoother makes of it
            np.testing.assert_allclose(np.diff(steps), -0.5 * np.array([0, 0, 0.9, 0, 0, 0.09]), atol=1e-12)


def test_a_skipped_round_leaves_no_trace_in_what_an_optimiser_remembers():
    """Its value is that of no progress, and no NaN."""
    optimiser = optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau(factor=0.1, patience=3))
    algorithm = sf.Online(
        estimator=sf.Oracle(lambda outer, data, key: outer * data, lambda outer, data: 0.5 * jnp.sum(outer**2) * data),
        optimiser=optimiser,
    )
    batches = jnp.ones(6).at[1].set(jnp.nan)
    final, trace = sf.run(algorithm, batches, jnp.ones(2), rounds=6, key=jax.random.key(0))
    assert trace.finite.tolist() == [True, False, True, True, True, True]
    np.testing.assert_allclose(trace.outer[5], 0.9**4, rtol=1e-12)
    plateau = final.learner.optimiser[1]
    np.testing.assert_allclose(plateau.best_value, 0.9**8, rtol=1e-6)
    remembers = optax.GradientTransformationExtraArgs(
        lambda params: jnp.zeros(()), lambda updates, state, params=None, *, value, **extra: (updates, value)
    )
    algorithm = sf.Online(algorithm.problem, algorithm.estimator, optax.chain(remembers, optax.sgd(0.1)))
    final, _ = sf.run(algorithm, batches[:2], jnp.ones(2), rounds=2, key=jax.random.key(0))
    assert np.isposinf(final.learner.optimiser[0])


def test_multi_steps_move_every_k_rounds():
    """By the mean of k gradients; also in front of a window."""
    final, trace = trace_of(optax.MultiSteps(optax.sgd(0.1), 3), 7)
    factors = np.array([1, 1, 1, 0.9, 0.9, 0.9, 0.81])
    np.testing.assert_allclose(trace.outer, factors[:, None] * np.array([3.0, 4.0]), rtol=1e-6)
    _, trace = trace_of(optax.MultiSteps(optax.chain(sf.window_average(2), optax.sgd(0.1)), 2), 5)
    np.testing.assert_allclose(trace.outer[:, 0] / 3, [1, 1, 0.95, 0.95, 0.95 - 0.05 * 1.95], rtol=1e-6)
    assert int(final.learner.skipped) == 0


def test_the_inner_fit_passes_on_value_gradient_and_objective(key):
    """L-BFGS with its line search solves the inner problem; MultiSteps and Polyak's steps do as well."""
    pair = (lambda key, x: jnp.zeros(3), lambda params, x: params @ phi(x))
    penalty = lambda params: 0.05 * jnp.sum(params**2)  # noqa: E731
    for optimiser, steps in (
        (optax.lbfgs(linesearch=optax.scale_by_backtracking_linesearch(20)), 30),
        (optax.MultiSteps(optax.sgd(0.5), 2), 1200),
    ):
        inner = sf.Network.from_pair(*pair, optimiser, steps, penalty=penalty)
        algorithm = sf.Online(RIDGE_PROBLEM, sf.Explicit(inner), optax.sgd(0.1))
        state, info = algorithm.step(algorithm.init(jnp.asarray(OUTER), DATA, key), DATA)
        np.testing.assert_allclose(state.estimator.inner.params, RIDGE.solution(OUTER), rtol=1e-4)
        assert bool(info.finite)


@pytest.mark.usefixtures("as_users_call")
def test_what_is_no_optimiser(key):
    with pytest.raises(TypeError, match=r"optimiser asks for 'value_fn', which is not known here .* no line search"):
        trace_of(optax.lbfgs())
    with pytest.raises(TypeError, match=r"optimiser must be an optax transformation such as optax.sgd\(0.1\), got 0.1"):
        sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), 0.1)
    with pytest.raises(TypeError, match=r"optimiser must be an optax optimiser such as optax.adam\(1e-3\), got 'adam'"):
        sf.Network.from_pair(lambda key, x: x, lambda params, x: x, "adam", 1)
