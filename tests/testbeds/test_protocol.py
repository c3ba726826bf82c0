"""Every testbed keeps the one protocol: derivatives, minimisers and bounds against plain NumPy and SciPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import marked
from reference import central_differences
from scipy import optimize

import smoothfbo as sf
from smoothfbo.testbeds import (
    AbstractTestbed,
    ChangingSupport,
    DriftingCosine,
    DriftingRegression,
    FiniteBilevel,
    InstrumentalVariables,
    Jumps,
    MovingSources,
    RotatingCorruption,
    Sinusoidal,
    SinusoidFamilies,
)
from smoothfbo.testbeds.simplex import smallest_on_simplex
from smoothfbo.testbeds.weighting import decay


def make_regression(drift=None, **options):
    return DriftingRegression(
        drift or Sinusoidal(frequency=0.4), inputs=2, lags=4, batch=8, **options, key=jax.random.key(1)
    )


TESTBEDS = {
    "cosine": lambda: DriftingCosine(dimension=3, curvature=1.5, speed=0.3, wobble=0.1),
    "finite": lambda: FiniteBilevel(points=4, speed=0.1),
    "finite, linear": lambda: FiniteBilevel(points=6, features=3, speed=0.1),
    "regression": make_regression,
    "regression, decay": lambda: make_regression(weighting=decay),
    "sources": lambda: MovingSources(sources=4, samples=4, batch=8, features=6, period=20.0),
    "sources, shares": lambda: MovingSources(
        sources=4, samples=4, batch=8, features=6, period=20.0, weights="shares", correlation=0.2
    ),
    "instruments": lambda: InstrumentalVariables(treatments=3, features=5, batch=8, period=20.0),
    "support": lambda: ChangingSupport(features=4, batch=8, period=20.0),
    "sinusoids": lambda: SinusoidFamilies(tasks=2, samples=6, batch=6, frequencies=2, period=20.0),
    "corruption": lambda: RotatingCorruption(
        groups=3, batch=8, components=3, training=90, clean=60, period=20.0, drift="jumps"
    ),
}
# One round of so much data that the closed form of the inner problem is nearly the exact one, and a λ; the last number
# is the allowed error in parts of the gradient's norm.
LARGE = {
    "sources": (
        lambda: MovingSources(sources=4, features=6, samples=20_000, batch=40_000),
        [0.5, -0.5, 1.0, 0.0],
        0.03,
    ),
    "sources, shares": (
        lambda: MovingSources(sources=3, features=6, samples=20_000, batch=40_000, weights="shares", correlation=0.3),
        [0.5, 0.2, 0.3],
        0.03,
    ),
    "instruments": (lambda: InstrumentalVariables(treatments=3, features=5, batch=60_000), [0.5, -1.0, 0.3], 0.03),
    "support": (lambda: ChangingSupport(features=4, batch=60_001), [0.5, -1.0, 2.0, 0.0], 0.03),
    # one task, always the same: a round cannot hold enough tasks for a mean over them
    "sinusoids": (
        lambda: SinusoidFamilies(
            tasks=1, samples=60_000, batch=60_000, frequencies=1, amplitude_spread=0.0, phase_spread=0.0
        ),
        [0.5, -1.0, 0.3],
        0.03,
    ),
}
WITH_BOUNDS = ("cosine", "finite", "finite, linear", "regression", "regression, decay")
ROUNDS = 8


@functools.cache
def make(name):
    return TESTBEDS[name]()


@functools.cache
def make_program(name):
    testbed = make(name)
    return jax.jit(lambda round, outer: (testbed.objective(round, outer), testbed.gradient(round, outer)))


@pytest.fixture(params=TESTBEDS)
def name(request):
    return request.param


@pytest.fixture
def testbed(name):
    return make(name)


@pytest.fixture
def value_and_slope(name):
    """F_t(λ) and ∇F_t(λ): one program for all tests of a testbed."""
    return lambda round, outer: make_program(name)(np.asarray(round), outer)


def points_of(testbed, count=50):
    """Outer variables all over Λ."""
    initial = testbed.initial()
    draws = np.random.default_rng(0).normal(size=(count, *initial.shape)) * 3
    if isinstance(testbed, DriftingRegression) or is_simplex(testbed):
        draws = np.abs(draws)
    if is_simplex(testbed):
        draws /= draws.sum(axis=1, keepdims=True)
    project = jax.jit(lambda outer: testbed.project(outer))
    return np.stack([project(draw) for draw in draws.astype(initial.dtype)])


def is_simplex(testbed):
    return isinstance(testbed, MovingSources) and testbed.weights == "shares"


def test_gradients_are_derivatives_of_the_objective(testbed, value_and_slope):
    for outer in points_of(testbed, 3):
        expected = central_differences(
            lambda flat, shape=outer.shape: float(value_and_slope(5, flat.reshape(shape))[0]), np.atleast_1d(outer)
        )
        got = np.atleast_1d(value_and_slope(5, outer)[1])
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-8)


def three_rounds(testbed, key):
    if testbed.problem() is None:
        estimator = testbed.oracle()
        for part in (testbed.inner, testbed.linear):
            with pytest.raises(sf.NotAvailable, match="DriftingCosine has no inner problem"):
                part()
    else:
        estimator = sf.Functional(testbed.inner(steps=2), testbed.adjoint(batch_size=4))
    algorithm = sf.Online(testbed.problem(), estimator, optax.sgd(1e-3), project=testbed.project)
    return sf.run(algorithm, testbed.source(), testbed.initial(), rounds=3, key=key)[1]


@pytest.mark.parametrize("name", TESTBEDS)
def test_its_parts_fit_together(name, key):
    """The source, the problem and the inner function, by their shapes."""
    testbed = make(name)
    trace = jax.eval_shape(lambda key: three_rounds(testbed, key), key)
    assert trace.outer.shape == (3, *testbed.initial().shape)


@pytest.mark.parametrize("name", marked(TESTBEDS, set(TESTBEDS) - {"cosine", "regression", "corruption"}))
def test_it_can_be_run(name, key):
    testbed = make(name)
    assert bool(three_rounds(testbed, key).finite.all())
    np.testing.assert_array_equal(testbed.project(testbed.initial()), testbed.initial())


@pytest.mark.parametrize("name", LARGE)
def test_problem_and_objective_are_the_same_problem(name, key):
    """On a large round, the library's hypergradient in closed form is the exact gradient, and the losses are F_t."""
    make_large, outer, tolerance = LARGE[name]
    testbed, outer = make_large(), jnp.asarray(outer)
    estimator, problem = sf.Functional(testbed.linear(), testbed.linear()), testbed.problem()

    @jax.jit
    def compare(round):
        data = testbed.draw(round, key)
        estimate, _ = estimator(problem, outer, estimator.init(problem, outer, data, key), data, key)
        return estimate.gradient, testbed.gradient(round, outer), estimate.outer_loss, testbed.objective(round, outer)

    gradient, exact, loss, objective = compare(np.asarray(5))
    np.testing.assert_allclose(gradient, exact, atol=tolerance * np.linalg.norm(exact))
    np.testing.assert_allclose(loss, objective, rtol=tolerance)


@pytest.mark.parametrize("name", LARGE)
def test_steps_on_the_linear_system_are_stable(name, key):
    """‖I − rate · ∇²_θ L_in‖ < 1, also at the largest penalties, where ten times the rate would be too much."""
    make_large, outer, _ = LARGE[name]
    testbed, outer = make_large(), jnp.asarray(outer)
    if name == "support":
        outer = testbed.project(jnp.full_like(outer, jnp.inf))

    @jax.jit
    def hessian(key):
        linear, problem, data = testbed.linear(), testbed.problem(), testbed.draw(jnp.asarray(5), key).inner
        params = linear.init(jax.tree.map(lambda leaf: leaf[0], data.x), None, key).params

        def loss(params):
            return problem.inner_mean(outer, jax.vmap(linear.bind(params))(data.x), data)

        return jax.hessian(loss)(params)

    curvature = np.linalg.eigvalsh(hessian(key))[-1]
    assert 0 < testbed.system_rate * curvature < 2
    assert name != "support" or 10 * testbed.system_rate * curvature > 2


class OnlyWhatIsNeeded(AbstractTestbed):
    """F_t(λ) = (λ − t)² + 1: what a testbed is without anything optional."""

    def objective(self, round, outer):
        return (outer - round.astype(outer.dtype)) ** 2 + 1

    def best(self, round):
        return round.astype(jnp.result_type(float))

    def problem(self):
        return None

    def source(self):
        raise AssertionError

    def initial(self):
        return jnp.zeros(())


def test_what_is_optional_has_a_default():
    testbed, round = OnlyWhatIsNeeded(), jnp.asarray(3)
    np.testing.assert_allclose(testbed.gap(round, jnp.asarray(5.0)), 4)
    np.testing.assert_allclose(testbed.gradient(round, jnp.asarray(5.0)), 4)
    assert testbed.project(1.5) == 1.5
    for missing in (testbed.linear, testbed.inner, testbed.adjoint):
        with pytest.raises(sf.NotAvailable, match="The inner solution of OnlyWhatIsNeeded is not linear in known"):
            missing()
    for bound in (testbed.smoothness, testbed.objective_bound, testbed.suprema, testbed.parameter_suprema):
        with pytest.raises(sf.NotAvailable, match=r"of OnlyWhatIsNeeded .*is known"):
            bound(4)


def values(value_and_slope, points):
    return np.array([[value_and_slope(round, point)[0] for point in points] for round in range(ROUNDS)])


@pytest.mark.parametrize("name", WITH_BOUNDS)
def test_bounds_hold(testbed, value_and_slope):
    points = points_of(testbed)
    found = values(value_and_slope, points)
    assert np.abs(found).max() <= float(testbed.objective_bound(ROUNDS)) * (1 + 1e-9)
    changes = np.abs(np.diff(found, axis=0)).max(axis=1)
    suprema = np.asarray(testbed.suprema(ROUNDS))
    assert suprema.shape == testbed.parameter_suprema(ROUNDS).shape == (ROUNDS - 1,)
    assert (changes <= suprema * (1 + 1e-9) + 1e-12).all()
    if isinstance(testbed, DriftingRegression):
        with pytest.raises(sf.NotAvailable, match="no smoothness constant"):
            testbed.smoothness(ROUNDS)
    else:
        hessian = jax.jit(jax.vmap(jax.jacfwd(lambda outer: testbed.gradient(jnp.asarray(3), outer))))
        norms = np.linalg.norm(np.asarray(hessian(points)), 2, axis=(1, 2))
        assert norms.max() <= float(testbed.smoothness(ROUNDS)) * (1 + 1e-9)


def test_nothing_is_better_than_the_best(testbed, value_and_slope):
    every_value = values(value_and_slope, points_of(testbed, 5 if isinstance(testbed, RotatingCorruption) else 50))
    best_of = jax.jit(lambda round: testbed.best(round))
    for round in (0, 5):
        best = best_of(np.asarray(round))
        reached = float(value_and_slope(round, best)[0])
        assert reached <= every_value[round].min() + 1e-12

        def function(outer, round=round, best=best):
            value, slope = value_and_slope(round, np.reshape(outer, best.shape))
            return float(value), np.ravel(slope)

        np.testing.assert_allclose(testbed.project(best), best, atol=1e-12)
        positive = isinstance(testbed, DriftingRegression) or is_simplex(testbed)
        in_a_corner = isinstance(testbed, RotatingCorruption)
        bounds = [(1e-9, None)] * best.size if positive else [(-3, 3)] * best.size if in_a_corner else None
        for start in points_of(testbed, 3):
            found = optimize.minimize(function, np.ravel(start), jac=True, bounds=bounds, method="L-BFGS-B")
            assert reached <= found.fun + 1e-9, (round, found.x, best)
        if not positive and not in_a_corner:
            np.testing.assert_allclose(function(np.asarray(best))[1], 0, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_the_quadratic_programme_against_scipy(seed):
    """Also nearly singular matrices, and ones whose minimiser is a corner."""
    generator = np.random.default_rng(seed)
    size, rank = 8, (8, 2, 1)[seed % 3]
    vectors = generator.normal(size=(size, rank)) + (0.0, 3.0)[seed // 3]
    matrix = vectors @ vectors.T
    shares = np.asarray(jax.jit(smallest_on_simplex)(jnp.asarray(matrix)))
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(), 1, rtol=1e-12)
    results = [
        optimize.minimize(
            lambda p: p @ matrix @ p,
            generator.dirichlet(np.ones(size)),
            jac=lambda p: 2 * matrix @ p,
            bounds=[(0, 1)] * size,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        ).fun
        for _ in range(3)
    ]
    scale = np.abs(matrix).max()
    assert abs(shares @ matrix @ shares - min(results)) < 1e-7 * scale
    # the certificate: f(p) − f* ≤ 2 (pᵀKp − min_i (Kp)_i)
    assert shares @ matrix @ shares - (matrix @ shares).min() < 1e-7 * scale


def test_the_newest_batch_alone_is_not_always_best():
    """Straight after a jump back to where the drift was before, old batches are the better ones."""

    def at_best_and_newest(drift):
        testbed, newest = make_regression(drift), jnp.asarray([1.0, 0.0, 0.0, 0.0])

        def evaluate(round):
            best = testbed.best(round)
            return best, testbed.objective(round, best), testbed.objective(round, newest)

        return jax.jit(evaluate)(np.asarray(6))

    best, reached, by_the_newest = at_best_and_newest(Sinusoidal(amplitude=2.0, frequency=3.0))
    assert best[0] < 0.5
    assert reached < 0.9 * by_the_newest
    np.testing.assert_allclose(at_best_and_newest(Jumps(interval=10**6))[1], 0.09, rtol=1e-9)


def test_how_far_the_solution_of_the_regression_moves():
    """‖h*_{t+1,λ} − h*_{t,λ}‖ from a large sample: below the bound for every λ, and equal at a corner."""
    testbed, x = make_regression(), jax.random.normal(jax.random.key(9), (40_000, 2))
    bounds = np.asarray(testbed.parameter_suprema(ROUNDS))
    step = jax.jit(lambda t, outer: jnp.mean((testbed.solution(t + 1, outer, x) - testbed.solution(t, outer, x)) ** 2))
    for t in range(ROUNDS - 1):
        moved = [float(step(np.asarray(t), outer)) ** 0.5 for outer in [*np.eye(4), *points_of(testbed, 3)]]
        np.testing.assert_allclose(max(moved), bounds[t], rtol=0.02)
        assert max(moved[4:]) <= bounds[t] * 1.02
