"""The finite bilevel problem: its closed forms against NumPy, searches, Monte Carlo and the library's estimators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Compiled
from reference import central_differences

import smoothfbo as sf
from smoothfbo.testbeds import FiniteBilevel

PROBLEMS = {
    "functional": {"points": 4},
    "linear": {"points": 6, "features": 3},
    "both terms": {"points": 4, "outer_coupling": 0.6},
}
ROUND = 5


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return Compiled(FiniteBilevel(**PROBLEMS[request.param], speed=0.1, batch=16))


def outer_of(problem, seed=0):
    return np.random.default_rng(seed).uniform(-3, 3, problem.dimension)


def numpy_objective(problem, outer, round=ROUND):
    """The population problem by least squares: no projection formula."""
    phi, n = np.asarray(problem.features), problem.points
    moved = problem.speed * round
    inner = np.sin(np.asarray(problem.offsets) + moved) + np.asarray(problem.coupling) @ np.sin(outer)
    solution = phi @ np.linalg.lstsq(phi, inner, rcond=None)[0]
    target = 0.5 * np.cos(2 * np.asarray(problem.offsets) - moved)
    target += problem.outer_coupling * np.asarray(problem.coupling) @ np.sin(outer)
    explicit = problem.explicit_weight * np.mean(1 - np.cos(outer))
    return np.sum((solution - target) ** 2) / (2 * n) + explicit + problem.noise**2 / 2


def test_objective_and_gradient(problem):
    outer = outer_of(problem)
    here = jnp.asarray(ROUND), jnp.asarray(outer)
    np.testing.assert_allclose(problem.objective(*here), numpy_objective(problem, outer), rtol=1e-10)
    expected = central_differences(lambda point: numpy_objective(problem, point), outer)
    np.testing.assert_allclose(problem.gradient(*here), expected, rtol=1e-6, atol=1e-9)


def test_mean_and_variance_of_the_hypergradient_by_monte_carlo(problem, key):
    """Given the adjoint, the library's final step has the stated mean and variance."""
    outer = jnp.asarray(outer_of(problem, 1))
    inner, adjoint = (jnp.asarray(np.random.default_rng(seed).normal(size=problem.points)) for seed in (2, 3))
    losses = problem.problem()

    def estimate(key):
        data = problem.draw(jnp.asarray(ROUND), key).final
        explicit = losses.explicit(outer, inner[data.outer.x], data.outer)
        return explicit + losses.implicit(outer, inner[data.inner.x], adjoint[data.inner.x], data.inner)

    draws = np.asarray(jax.jit(jax.vmap(estimate))(jax.random.split(key, 40_000)))
    given = jnp.asarray(ROUND), outer, inner, adjoint
    expected = np.asarray(problem.expected_hypergradient(*given))
    assert np.all(np.abs(draws.mean(axis=0) - expected) < 5 * draws.std(axis=0) / np.sqrt(len(draws)) + 1e-12)
    spread = np.sum((draws - expected) ** 2, axis=1)
    assert abs(spread.mean() - problem.variance(*given)) < 5 * spread.std() / np.sqrt(len(draws))


def test_estimators_reach_the_exact_gradient_with_much_data(problem, key):
    """The general functional and implicit estimators of the core, on a large sample of this problem."""
    features = None if problem.points == 4 else 3
    large = Compiled(
        FiniteBilevel(
            points=problem.points, features=features, outer_coupling=problem.outer_coupling, speed=0.1, batch=200_000
        )
    )
    outer = jnp.asarray(outer_of(problem, 4))
    exact = np.asarray(large.gradient(jnp.asarray(ROUND), outer))
    family = sf.Linear(large.phi)
    estimator = sf.Functional(family, family) if problem.points == 4 else sf.Implicit(family)

    @jax.jit
    def estimated(outer):
        data = large.draw(jnp.asarray(ROUND), key)
        return estimator(large.problem(), outer, estimator.init(large.problem(), outer, data, key), data, key)

    estimate, state = estimated(outer)
    np.testing.assert_allclose(estimate.gradient, exact, atol=0.02 * np.linalg.norm(exact))
    np.testing.assert_allclose(state.inner.params, large.parameters(jnp.asarray(ROUND), outer), atol=0.02)


def test_constants_bound_what_they_should(problem):
    """Random points never exceed Q, L and the supremum of the change; corners of the cube attain the last."""
    rounds = 12
    points = jnp.asarray(np.random.default_rng(5).uniform(-np.pi, np.pi, (4000, problem.dimension)))
    times = jnp.arange(rounds)
    values = jax.jit(jax.vmap(jax.vmap(problem.objective, (None, 0)), (0, None)))(times, points)
    assert np.abs(np.asarray(values)).max() <= problem.objective_bound(rounds)
    hessian = jax.jit(jax.vmap(jax.jacfwd(lambda point: problem.gradient(jnp.asarray(3), point))))
    hessians = hessian(np.asarray(points)[:500])
    assert np.linalg.norm(np.asarray(hessians), 2, axis=(1, 2)).max() <= problem.smoothness(rounds)
    corners = np.stack(np.meshgrid(*[[-np.pi / 2, np.pi / 2]] * problem.dimension), -1).reshape(-1, problem.dimension)
    at_corners = jax.jit(jax.vmap(jax.vmap(problem.objective, (None, 0)), (0, None)))(times, corners)
    largest = np.abs(np.diff(np.asarray(at_corners), axis=0)).max(axis=1)
    np.testing.assert_allclose(problem.suprema(rounds), largest, rtol=1e-9)
    inside = np.abs(np.diff(np.asarray(values), axis=0)).max(axis=1)
    assert (inside <= np.asarray(problem.suprema(rounds)) + 1e-12).all()


def test_the_inner_function_enters_both_terms_where_the_outer_target_depends_on_the_outer_variable():
    """∂_λ ℓ_out at two predictions differs with ρ, and the bias of wrong functions is within its constant."""
    generator = np.random.default_rng(7)
    for share in (0.0, 0.6, 2.5):
        problem = Compiled(FiniteBilevel(points=4, outer_coupling=share))
        explicit = jax.jit(problem.problem().explicit)
        outer, first, second = (jnp.asarray(generator.normal(size=4)) for _ in range(3))
        data = problem.draw(jnp.asarray(ROUND), jax.random.key(0)).outer
        terms = [np.asarray(explicit(outer, np.asarray(inner)[data.x], data)) for inner in (first, second)]
        assert np.allclose(*terms) == (share == 0)
        exact, inner = problem.solution(jnp.asarray(ROUND), outer), first
        change = 0.3 * np.asarray(second)
        adjoint = np.asarray(problem.adjoint_of(jnp.asarray(ROUND), outer, inner)) + change
        expected = problem.expected_hypergradient(jnp.asarray(ROUND), outer, inner, jnp.asarray(adjoint))
        bias = np.asarray(expected) - np.asarray(problem.gradient(jnp.asarray(ROUND), outer))
        suboptimality = 0.5 * np.mean((np.asarray(inner) - np.asarray(exact)) ** 2) + 0.5 * np.mean(change**2)
        assert np.sum(bias**2) <= problem.bias_constant() * suboptimality


def test_path_of_the_parameters(problem):
    outer = jnp.asarray(outer_of(problem, 6))
    path = np.stack([problem.parameters(jnp.asarray(t), outer) for t in range(6)])
    np.testing.assert_allclose(problem.parameter_suprema(6), np.linalg.norm(np.diff(path, axis=0), axis=1), rtol=1e-9)


@pytest.mark.usefixtures("as_users_call")
def test_bad_arguments():
    with pytest.raises(ValueError, match=r"features must be a number in \[1, 4\], got features=5"):
        FiniteBilevel(points=4, features=5)
    with pytest.raises(ValueError, match="batch must be an integer >= 1"):
        FiniteBilevel(batch=0)
