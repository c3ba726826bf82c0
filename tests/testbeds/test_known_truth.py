"""Networks on the drifting regression, whose exact functional hypergradient is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from problems import Compiled

import smoothfbo as sf
from smoothfbo.testbeds import DriftingRegression, Sinusoidal, regression

OUTER = np.array([1.0, 0.6, 0.3, 0.8])


def make(seed, frequency=0.05, **options):
    return Compiled(DriftingRegression(Sinusoidal(frequency=frequency), **options, key=jax.random.key(seed)))


def fine_grid():
    """Points of the plane and their normal probabilities: the trapezoid rule, four times finer than the library's."""
    axis = np.arange(-7.5, 7.5, 0.05)
    x = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    density = np.exp(-np.sum(x**2, axis=1) / 2)
    return x, density / density.sum()


def numpy_objective(testbed, outer, round):
    """F_t(λ) for two inputs, written out in NumPy, with drift, sigmoid and quadrature of its own."""
    x, probability = fine_grid()

    def truth(time):
        shift = testbed.drift.amplitude * np.sin(testbed.drift.frequency * time)
        return 1 / (1 + np.exp(-(x @ (np.asarray(testbed.weight) + shift) + np.asarray(testbed.bias) + shift)))

    past = [truth(round - 1 - lag) for lag in range(testbed.lags)]
    solution = sum(weight * f for weight, f in zip(outer, past, strict=True)) / sum(outer)
    error = np.sum((truth(round) - solution) ** 2, axis=1)
    return probability @ error + testbed.noise**2 * len(testbed.bias)


def test_exact_objective_equals_numpy():
    testbed = make(1, inputs=2, outputs=2, lags=4, noise=0.2)
    got = testbed.objective(jnp.asarray(7), jnp.asarray(OUTER))
    np.testing.assert_allclose(got, numpy_objective(testbed, OUTER, 7), rtol=1e-6)


def test_exact_objective_in_more_dimensions_equals_a_large_sample():
    testbed = make(11, frequency=0.5, inputs=5, lags=3, noise=0.0)
    x = jax.random.normal(jax.random.key(12), (400_000, 5))
    outer = jnp.asarray([1.0, 0.2, 0.6])
    error = np.asarray(testbed.truth(jnp.asarray(4), x)) - np.asarray(testbed.solution(jnp.asarray(4), outer, x))
    np.testing.assert_allclose(testbed.objective(jnp.asarray(4), outer), np.mean(np.square(error)), rtol=0.01)


def test_a_scalar_decay_is_the_same_as_its_weights():
    key, rate = jax.random.key(13), 0.7
    per_lag, decay = (
        Compiled(DriftingRegression(Sinusoidal(), inputs=2, lags=4, weighting=weighting, key=key))
        for weighting in (regression.per_lag, regression.decay)
    )
    weights = jnp.asarray(np.exp(-rate * np.arange(4)))
    np.testing.assert_allclose(
        decay.objective(jnp.asarray(5), jnp.asarray(rate)), per_lag.objective(jnp.asarray(5), weights), rtol=1e-12
    )
    y = {"target": jnp.ones(1), "lag": jnp.asarray(2)}
    loss = decay.problem().inner_loss(jnp.asarray(rate), jnp.zeros(1), jnp.zeros(2), y)
    np.testing.assert_allclose(loss, np.exp(-2 * rate), rtol=1e-12)


def test_the_weighted_mean_of_past_truths_solves_the_inner_problem():
    """h* minimises Σ_s λ_s E(y_s − h)² point by point: any other value at a point is worse."""
    testbed = make(2, inputs=2, lags=4)
    x = jax.random.normal(jax.random.key(3), (10, 2))
    past = np.stack([testbed.truth(jnp.asarray(6 - lag), x) for lag in range(4)])
    best = np.einsum("s,sno->no", OUTER, past) / OUTER.sum()

    def inner(h):
        return np.einsum("s,sno->no", OUTER, (past - h) ** 2)

    for shift in (-1e-3, 1e-3):
        assert (inner(best + shift) > inner(best)).all()


def test_converged_networks_find_the_exact_functional_hypergradient():
    """Large batches, inner and adjoint networks trained to convergence: cosine ≥ 0.99, norm within 5 %."""
    steps = 200
    key_testbed, key_data, key_init, key_fit, key_x = jax.random.split(jax.random.key(0), 5)
    drift = Sinusoidal(amplitude=2.0, frequency=0.3)
    testbed = Compiled(DriftingRegression(drift, inputs=2, lags=4, batch=500, noise=0.1, key=key_testbed))
    network = sf.Network(
        lambda key: eqx.nn.MLP(2, 1, 32, 2, jax.nn.gelu, dtype=jnp.float32, key=key),
        optax.adam(optax.cosine_decay_schedule(1e-2, steps)),
        steps,
    )
    outer = jnp.asarray(OUTER)
    source = testbed.source()

    @jax.jit
    def third_round(key):
        window, _ = source.init(key)
        _, (data, _) = source(window, jnp.asarray(3), None, jax.random.fold_in(key, 3))
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf, data)

    data = third_round(key_data)

    hypergradient = sf.Functional(network, network)
    with jax.numpy_dtype_promotion("standard"):  # float32 networks, to be fast
        problem, outer = testbed.problem(), outer.astype(jnp.float32)
        estimate, _ = jax.jit(
            lambda data: hypergradient(
                problem, outer, hypergradient.init(problem, outer, data, key_init), data, key_fit
            )
        )(data)
    x = jax.random.normal(key_x, (50_000, 2))
    # the window that init returns is that of round 0, so its lags are those of round 0, seen from round 3
    times = -1 - np.arange(4)
    exact = exact_gradient(testbed, times, 3, np.asarray(x), np.full(len(x), 1 / len(x)))
    got = np.asarray(estimate.gradient, np.float64)
    cosine = got @ exact / np.linalg.norm(got) / np.linalg.norm(exact)
    assert cosine >= 0.99
    np.testing.assert_allclose(np.linalg.norm(got) / np.linalg.norm(exact), 1.0, atol=0.05)


def exact_gradient(testbed, times, now, x, probability):
    """∇F in closed form: ∂F/∂λ_s = −2 E⟨f_t − h*, f_s − h*⟩ / Σλ."""

    def truth(time):
        return np.asarray(testbed.truth(jnp.asarray(time), jnp.asarray(x)))

    past = np.stack([truth(time) for time in times])
    best = np.einsum("s,sno->no", OUTER, past) / OUTER.sum()
    error = truth(now) - best
    return -2 * np.einsum("n,no,sno->s", probability, error, past - best) / OUTER.sum()


def test_closed_form_gradient_equals_the_derivative_of_the_objective():
    testbed = make(4, inputs=2, lags=4)
    automatic = testbed.gradient(jnp.asarray(9), jnp.asarray(OUTER))
    x, probability = fine_grid()
    np.testing.assert_allclose(automatic, exact_gradient(testbed, 8 - np.arange(4), 9, x, probability), rtol=1e-5)


def test_the_testbed_hands_on_its_batches_with_the_right_lags():
    testbed = make(5, inputs=2, lags=3, batch=4, noise=0.0)
    key = jax.random.key(6)
    source = testbed.source()
    window, _ = eqx.filter_jit(source.init)(key)
    step, played = eqx.filter_jit(source), []
    for t in range(5):
        window, (data, problem) = step(window, jnp.asarray(t), None, jax.random.fold_in(key, t))
        assert problem is None
        played.append(data.outer)
        np.testing.assert_allclose(testbed.truth(jnp.asarray(t), data.outer.x), data.outer.y["target"])
        for lag in range(3):
            rows = np.asarray(data.inner.y["lag"]) == lag
            assert rows.sum() == 4
            x, y = (np.asarray(each)[rows] for each in (data.inner.x, data.inner.y["target"]))
            np.testing.assert_allclose(y, testbed.truth(jnp.asarray(t - 1 - lag), x))
            if t - 1 - lag >= 0:
                np.testing.assert_array_equal(x, played[t - 1 - lag].x)


def test_noise_has_the_stated_size():
    testbed = make(7, inputs=2, batch=200_000, noise=0.4)
    x, y = testbed.draw(jnp.asarray(2), jax.random.key(8))
    np.testing.assert_allclose(np.std(np.asarray(y) - np.asarray(testbed.truth(jnp.asarray(2), x))), 0.4, rtol=0.01)
    np.testing.assert_allclose(np.std(x), 1.0, rtol=0.01)


def test_weights_per_lag_keep_a_sum():
    """Projected onto λ ≥ 0, Σλ ≥ 0.01: no point of that set is nearer. Elsewhere negative weights become 0."""
    testbed = DriftingRegression(lags=3, key=jax.random.key(1))
    share = np.random.default_rng(0).dirichlet(np.ones(3), 20_000)
    for point in ([-0.3, -0.1, -0.2], [0.001, 0.004, -0.5], [-0.2, -0.203, -1.0]):
        got = np.asarray(testbed.project(jnp.asarray(point)))
        np.testing.assert_allclose([got.sum(), got.min()], [0.01, max(got.min(), 0)], rtol=1e-6)
        nearest = np.min(np.linalg.norm(0.01 * share - point, axis=1))
        assert np.linalg.norm(got - point) <= nearest + 1e-12
    np.testing.assert_array_equal(testbed.project(jnp.array([0.5, -0.1, 0.0])), [0.5, 0, 0])
