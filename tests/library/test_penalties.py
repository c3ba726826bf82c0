"""λ in a penalty: every estimator against closed forms, and against differences of the solved inner problem."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import phi
from reference import Ridge, central_differences, features

import smoothfbo as sf
from smoothfbo.functions import Term

RIDGE = Ridge.draw(1)
DATA = sf.Data(
    sf.Samples(jnp.asarray(RIDGE.x_in), {"target": jnp.asarray(RIDGE.y_in), "group": jnp.asarray(RIDGE.group)}),
    sf.Samples(jnp.asarray(RIDGE.x_out), {"target": jnp.asarray(RIDGE.y_out), "group": jnp.zeros(30, int)}),
)
# λ weighs the samples of three groups and, by its logarithm, the ridge of each of three features.
OUTER = {"weight": np.array([0.4, -0.7, 0.2]), "ridge": np.array([-2.0, 0.3, -1.0])}
PROBLEM = sf.Problem(
    lambda outer, v, x, y: 0.5 * jnp.exp(outer["weight"][y["group"]]) * (v - y["target"]) ** 2,
    lambda outer, v, x, y: 0.5 * (v - y["target"]) ** 2,
)


def ridges(outer):
    return jnp.exp(outer["ridge"])


def half_squares(params, outer):
    return 0.5 * jnp.sum(ridges(outer) * params**2)


def trained(steps, penalty, rate=0.3):
    return sf.Network.from_pair(
        lambda key, x: jnp.zeros(3), lambda params, x: params @ phi(x), optax.sgd(rate), steps, penalty=penalty
    )


def linear(**options):
    return sf.Linear(phi, ridge=ridges, **options)


@eqx.filter_jit
def call(estimator, problem, outer, state, data):
    return estimator(problem, outer, state, data, jax.random.key(1))


def estimate(estimator, problem=PROBLEM, outer=OUTER, data=DATA):
    outer = jax.tree.map(jnp.asarray, outer)
    return call(estimator, problem, outer, estimator.init(problem, outer, data, jax.random.key(0)), data)


def system(outer):
    """A = mean e^w φφᵀ + diag e^r and b = mean e^w φ y, in NumPy."""
    rows, weight = features(RIDGE.x_in), np.exp(outer["weight"][RIDGE.group])
    return (rows * weight[:, None]).T @ rows / len(rows) + np.diag(np.exp(outer["ridge"])), rows.T @ (
        weight * RIDGE.y_in
    ) / len(rows)


def slope(theta):
    rows = features(RIDGE.x_out)
    return rows.T @ (rows @ theta - RIDGE.y_out) / len(rows)


def closed_form(outer, w=None):
    """dF/dλ = ∂_λ⟨∇_θ L_in, w⟩ with A w = −∇L_out: for feature j it is e^{r_j} θ_j w_j."""
    a, b = system(outer)
    theta = np.linalg.solve(a, b)
    w = -np.linalg.solve(a, slope(theta)) if w is None else w(theta)
    rows, weight = features(RIDGE.x_in), np.exp(outer["weight"][RIDGE.group])
    each = weight * (rows @ theta - RIDGE.y_in) * (rows @ w) / len(rows)
    return {
        "weight": np.array([each[RIDGE.group == group].sum() for group in range(3)]),
        "ridge": np.exp(outer["ridge"]) * theta * w,
    }


def objective(flat):
    a, b = system({"weight": flat[:3], "ridge": flat[3:]})
    return np.mean(0.5 * (features(RIDGE.x_out) @ np.linalg.solve(a, b) - RIDGE.y_out) ** 2)


def assert_trees_close(got, expected, rtol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), got, expected)


EXACT = {
    "functional": lambda: sf.Functional(linear(), linear()),
    "functional, fitted adjoint": lambda: sf.Functional(linear(), sf.FittedAdjoint(linear())),
    "implicit": lambda: sf.Implicit(linear(), sf.ConjugateGradient(tolerance=1e-12)),
    "implicit, Neumann": lambda: sf.Implicit(linear(), sf.NeumannSeries(terms=900, step=0.3)),
    "implicit, trained": lambda: sf.Implicit(trained(900, half_squares), sf.ConjugateGradient(tolerance=1e-12)),
    "unrolled": lambda: sf.Unrolled(linear()),
    "unrolled, trained": lambda: sf.Unrolled(trained(900, half_squares)),
}


@pytest.mark.parametrize("name", EXACT)
def test_a_ridge_for_each_feature(name):
    expected = closed_form(OUTER)
    differences = central_differences(objective, np.concatenate([OUTER["weight"], OUTER["ridge"]]))
    np.testing.assert_allclose(np.concatenate([expected["weight"], expected["ridge"]]), differences, rtol=1e-6)
    result, _ = estimate(EXACT[name]())
    assert_trees_close(result.gradient, expected, 1e-8)
    assert bool(result.converged)
    if result.implicit is not None:
        assert_trees_close(result.implicit, expected, 1e-8)


SETTLING = {
    "single loop": (lambda: sf.SingleLoop(trained(1, half_squares), 0.3), 1e-8),
    "storm": (lambda: sf.Storm(trained(1, half_squares), 0.3, 0.5), 1e-8),
    "first order": (lambda: sf.FirstOrder(linear(), 1e5), 1e-3),
}


@pytest.mark.parametrize("name", SETTLING)
def test_methods_that_settle_over_rounds(name):
    """Many rounds at one λ: the same hypergradient, up to 1/σ for the first-order method."""
    make, rtol = SETTLING[name]
    estimator, outer, key = make(), jax.tree.map(jnp.asarray, OUTER), jax.random.key(0)

    @jax.jit
    def last(state):
        def round(state, _):
            result, state = estimator(PROBLEM, outer, state, DATA, key)
            return state, result.gradient

        return jax.tree.map(lambda leaf: leaf[-1], jax.lax.scan(round, state, length=900)[1])

    assert_trees_close(last(estimator.init(PROBLEM, outer, DATA, key)), closed_form(OUTER), rtol)


def test_the_identity_in_place_of_the_inverse():
    result, _ = estimate(sf.Implicit(linear(), sf.IdentityInverse()))
    assert_trees_close(result.gradient, closed_form(OUTER, w=lambda theta: -slope(theta)), 1e-10)


@pytest.mark.parametrize("make", [sf.Implicit, sf.Unrolled, sf.Explicit])
def test_the_inner_residual_has_the_penalty_of_this_outer_variable(make):
    result, state = estimate(make(trained(2, half_squares)))
    a, b = system(OUTER)
    expected = np.linalg.norm(a @ np.asarray(state.inner.params) - b) / np.linalg.norm(b)
    assert expected > 0.05
    np.testing.assert_allclose(result.inner_residual, expected, rtol=1e-10)


EPSILON = 0.1


def smooth_absolute(params, outer):
    """An elastic net: Σ λ_j √(θ_j² + ε²), a smooth version of λ‖θ‖₁, and a fixed ridge."""
    return jnp.sum(outer * jnp.sqrt(params**2 + EPSILON**2)) + 0.05 * jnp.sum(params**2)


def sparse_solution(outer):
    """By Newton's method in NumPy, to the last digit."""
    rows = features(RIDGE.x_in)
    theta = np.zeros(3)
    for _ in range(60):
        root = np.sqrt(theta**2 + EPSILON**2)
        gradient = rows.T @ (rows @ theta - RIDGE.y_in) / len(rows) + outer * theta / root + 0.1 * theta
        hessian = rows.T @ rows / len(rows) + np.diag(outer * EPSILON**2 / root**3 + 0.1)
        theta = theta - np.linalg.solve(hessian, gradient)
    assert np.abs(gradient).max() < 1e-13
    return theta


@pytest.mark.parametrize("make", [lambda inner: sf.Implicit(inner, sf.ConjugateGradient(tolerance=1e-12)), sf.Unrolled])
def test_an_elastic_net(make):
    """Against central differences of the fully solved problem."""
    outer = np.array([0.05, 0.2, 0.1])
    problem = sf.Problem(
        lambda outer, v, x, y: 0.5 * (v - y["target"]) ** 2, lambda outer, v, x, y: 0.5 * (v - y["target"]) ** 2
    )

    def solved(outer):
        return np.mean(0.5 * (features(RIDGE.x_out) @ sparse_solution(outer) - RIDGE.y_out) ** 2)

    result, state = estimate(make(trained(1500, smooth_absolute, rate=0.2)), problem, outer)
    np.testing.assert_allclose(state.inner.params, sparse_solution(outer), rtol=1e-9)
    np.testing.assert_allclose(result.gradient, central_differences(solved, outer), rtol=1e-6)


@pytest.mark.parametrize("make", [lambda inner: sf.Functional(inner, inner), sf.Implicit])
def test_vector_predictions_a_bias_and_a_loss_that_is_not_quadratic(make, key):
    """Two logistic regressions with Newton steps: against differences of the solved problem."""
    x = jax.random.normal(key, (60, 1))
    y = (x + jnp.array([0.5, -0.3]) + jnp.sin(5 * x) > 0).astype(x.dtype)
    loss = lambda outer, v, x, y: jnp.sum(jax.nn.softplus(v) - y * v)  # noqa: E731
    problem, data = sf.Problem(loss, loss), sf.Data(sf.Samples(x[:40], y[:40]), sf.Samples(x[40:], y[40:]))
    estimator = make(sf.Linear(lambda x: x, prediction=jnp.zeros(2), ridge=jnp.exp, bias=True, steps=5))
    outer, key = jnp.array([-2.0, -1.0]), jax.random.key(0)
    state = estimator.init(problem, outer, data, key)
    result, _ = call(estimator, problem, outer, state, data)
    assert bool(result.converged)
    losses = central_differences(lambda at: float(call(estimator, problem, jnp.asarray(at), state, data)[0].outer_loss),
                                 np.asarray(outer))  # fmt: skip
    assert np.abs(losses).min() > 1e-3
    np.testing.assert_allclose(result.gradient, losses, rtol=2e-4)


def test_one_ridge_for_all_features():
    """A function of λ that returns a number: the sum over features."""
    outer = {"weight": OUTER["weight"], "ridge": np.full(3, -1.0)}
    inner = sf.Linear(phi, ridge=lambda outer: jnp.exp(outer["ridge"]))
    expected = closed_form(outer)
    result, _ = estimate(sf.Functional(inner, inner), outer={**outer, "ridge": np.asarray(-1.0)})
    np.testing.assert_allclose(result.gradient["ridge"], expected["ridge"].sum(), rtol=1e-9)
    np.testing.assert_allclose(result.gradient["weight"], expected["weight"], rtol=1e-9)


def test_a_fixed_vector_of_ridges_is_the_same_as_its_weights_one_by_one():
    """Fit, penalty and hypergradient; a list is as good as an array."""
    a, b = system(OUTER)
    fixed = np.exp(OUTER["ridge"])
    for ridge in (fixed, jnp.asarray(fixed), list(fixed)):
        inner = sf.Linear(phi, ridge=ridge)
        result, state = estimate(sf.Functional(inner, inner))
        np.testing.assert_allclose(state.inner.params, np.linalg.solve(a, b), rtol=1e-10)
        np.testing.assert_allclose(result.gradient["weight"], closed_form(OUTER)["weight"], rtol=1e-9)
        np.testing.assert_array_equal(result.gradient["ridge"], 0)
    penalty = inner.regulariser(jnp.ones(3))
    np.testing.assert_allclose(penalty, 0.5 * fixed.sum(), rtol=1e-12)


def test_lanes_and_runs_with_a_penalty_in_the_outer_variable(key):
    estimator = sf.Functional(linear(), linear())
    algorithm = sf.Online(PROBLEM, estimator, optax.chain(sf.window_average(2), optax.sgd(0.5)))
    scales = jnp.array([1.0, 0.5])

    def lane(scale):
        outer = jax.tree.map(lambda leaf: scale * jnp.asarray(leaf), OUTER)
        state = algorithm.init(outer, DATA, key)
        for _ in range(3):
            state, info = algorithm.step(state, DATA)
        return state.outer, info.outer_loss

    lanes = jax.jit(jax.vmap(lane))(scales)
    for index, scale in enumerate(scales):
        assert_trees_close(jax.tree.map(lambda leaf, i=index: leaf[i], lanes), lane(scale), 1e-9)


# What Functional cannot do, it says.


@pytest.mark.usefixtures("as_users_call")
@pytest.mark.parametrize(
    ("inner", "adjoint"),
    [
        (lambda: trained(3, half_squares), lambda: trained(3, half_squares)),
        (lambda: trained(3, half_squares), linear),
        (linear, lambda: sf.Linear(phi, ridge=0.1)),
        (linear, lambda: sf.Linear(lambda x: x, ridge=ridges)),
        (linear, lambda: linear(bias=True)),
        (linear, sf.PointwiseAdjoint),
        (linear, lambda: trained(3, None)),
        (linear, lambda: lambda module: linear()),
    ],
)
def test_functional_refuses_what_it_cannot_differentiate(inner, adjoint):
    with pytest.raises(TypeError, match=r"penalty depends on the outer variable: it acts on parameters .* Implicit"):
        sf.Functional(inner(), adjoint())


def test_functional_refuses_a_correction_where_the_penalty_has_the_outer_variable():
    with pytest.raises(TypeError, match="correction must be None where the inner function's penalty depends"):
        sf.Functional(linear(), linear(), correction=sf.FittedCorrection(sf.Linear(phi)))


def test_an_adjoint_may_have_a_penalty_of_its_own_with_the_outer_variable():
    """It only regularises the fit of the adjoint; nothing differentiates it."""
    fixed = sf.Linear(phi, ridge=0.1)
    result, state = estimate(sf.Functional(fixed, linear()))
    a, _ = system(OUTER)
    theta, b = np.asarray(state.inner.params), slope(np.asarray(state.inner.params))
    np.testing.assert_allclose(state.adjoint.params, -np.linalg.solve(a, b), rtol=1e-9)
    np.testing.assert_array_equal(result.gradient["ridge"], 0)
    assert theta.shape == (3,)


@pytest.mark.usefixtures("as_users_call")
def test_bad_penalties():
    for wrong, number in ((lambda: 0.0, 0), (lambda params, outer, data: 0.0, 3)):
        with pytest.raises(TypeError, match=rf"penalty must be a function of \(params\), or .* one of {number} arg"):
            trained(1, wrong)
    with pytest.raises(
        TypeError, match=r"penalty must be a function of \(params, outer\), got one of \(outer, params\)"
    ):
        trained(1, lambda outer, params: jnp.exp(jnp.sum(outer)) * jnp.sum(params**2))
    assert not trained(1, lambda params, scale=0.1: scale * jnp.sum(params**2)).depends_on_outer
    with pytest.raises(TypeError, match="penalty has a default for outer, so λ would never reach it"):
        trained(1, lambda params, outer=0.1: outer * jnp.sum(params**2))
    filled = functools.partial(lambda params, outer: outer * jnp.sum(params**2), outer=0.1)
    assert not trained(1, filled).depends_on_outer
    with pytest.raises(ValueError, match=r"penalty must return a floating-point scalar, got .*\[3\]"):
        estimate(sf.Implicit(trained(1, lambda params, outer: params**2)))
    with pytest.raises(ValueError, match=r"penalty cannot be evaluated at params=.*\[3\]"):
        estimate(sf.Implicit(trained(1, lambda params, outer: jnp.sum(params * outer["other"]))))
    with pytest.raises(
        ValueError, match=r"ridge must be a number or a vector of 3 numbers, .* got one of shape \(2,\)"
    ):
        estimate(sf.Implicit(sf.Linear(phi, ridge=[0.1, 0.2])))
    with pytest.raises(ValueError, match=r"a vector of 4 numbers, .* and the last for the bias, .* \(3,\)"):
        estimate(sf.Implicit(linear(bias=True)))
    with pytest.raises(ValueError, match=r"ridge must be a number or a vector with one number a feature, got \(2, 3\)"):
        sf.Linear(phi, ridge=np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"ridge\(outer\) must be a number in \[0, inf\]"):
        estimate(sf.Implicit(sf.Linear(phi, ridge=lambda outer: outer["ridge"])))
    term = Term(lambda v, x, y: 0.5 * (v - y["target"]) ** 2, DATA.inner)
    for function in (linear(), trained(1, half_squares)):
        state = function.init(DATA.inner.x[0], None, jax.random.key(0))
        with pytest.raises(TypeError, match=r"\.at\(outer\)"):
            function.fit(state, (term,), jax.random.key(0))


@pytest.mark.parametrize("kind", ["functional", "implicit"])
def test_rounds_that_are_evaluated_again_have_their_penalty_at_the_current_outer_variable(kind):
    """On data that stay all rounds have one solution, so their mean is the hypergradient of one."""
    inner = linear()
    estimator = sf.Functional(inner, inner) if kind == "functional" else sf.Implicit(inner)
    plain, _ = estimate(estimator)
    again = sf.Reevaluated(estimator, 2, normalise="filled")
    outer = jax.tree.map(jnp.asarray, OUTER)
    state = again.init(PROBLEM, outer, DATA, jax.random.key(0))
    for _ in range(2):
        found, state = call(again, PROBLEM, outer, state, DATA)
    for name, expected in plain.gradient.items():
        np.testing.assert_allclose(found.gradient[name], expected, rtol=1e-4)
