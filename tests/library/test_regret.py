"""Regret and its terms against loops written out in NumPy; the statements on random problems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothfbo import regret
from smoothfbo.testbeds import DriftingCosine

ROUNDS, SIZE = 12, 3


def centres(speed=0.3):
    time = np.arange(ROUNDS + 1)[:, None]
    return np.arange(SIZE) + np.where(np.arange(SIZE) % 2 == 0, 1, -1) * speed * time


def gradient(t, outer, speed=0.3):
    return 1.5 * np.sin(outer - centres(speed)[t])


def objective(t, outer, speed=0.3):
    return -1.5 * np.cos(outer - centres(speed)[t]).sum()


PROBLEM = DriftingCosine(dimension=SIZE, curvature=1.5, speed=0.3)


def looped(function, window):
    """(1/w) Σ_{i<w} function(t, t − i), term by term."""
    return np.array([sum(function(t, t - i) for i in range(window) if t - i >= 0) / window for t in range(ROUNDS)])


def draw(seed, rounds=ROUNDS):
    return np.random.default_rng(seed).normal(size=(rounds, SIZE))


def test_the_cosine_problem_is_what_it_says():
    outer = draw(0)[0]
    for t in range(ROUNDS):
        np.testing.assert_allclose(PROBLEM.gradient(jnp.asarray(t), jnp.asarray(outer)), gradient(t, outer), rtol=1e-9)
        np.testing.assert_allclose(
            PROBLEM.objective(jnp.asarray(t), jnp.asarray(outer)), objective(t, outer), rtol=1e-9
        )


@pytest.mark.parametrize("window", [1, 2, 5, 12])
def test_terms_equal_loops(window):
    outers, gradients, smoothed, expected = (draw(seed) for seed in range(4))
    arrays = [jnp.asarray(values) for values in (outers, gradients, smoothed)]
    terms = regret.decompose(PROBLEM.gradient, *arrays, window, expected=jnp.asarray(expected))
    target = looped(lambda t, s: gradient(s, outers[t]), window)
    np.testing.assert_allclose(terms.error, smoothed - target, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        terms.noise, looped(lambda t, s: gradients[s] - expected[s], window), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        terms.bias, looped(lambda t, s: expected[s] - gradient(s, outers[s]), window), rtol=1e-9, atol=1e-12
    )
    tracking = looped(lambda t, s: gradient(s, outers[s]) - gradient(s, outers[t]), window)
    np.testing.assert_allclose(terms.tracking, tracking, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(regret.tracking(PROBLEM.gradient, arrays[0], window), tracking, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        regret.regret(PROBLEM.gradient, arrays[0], window), np.cumsum((target**2).sum(axis=1)), rtol=1e-9
    )
    np.testing.assert_allclose(regret.proxy(arrays[2]), np.cumsum((smoothed**2).sum(axis=1)), rtol=1e-12)
    moved = looped(lambda t, s: ((outers[s] - outers[t]) ** 2).sum(), window).sum()
    np.testing.assert_allclose(regret.movement(arrays[0], window), moved, rtol=1e-9, atol=1e-12)


def test_totals_are_the_sums_of_the_paper():
    outers, gradients, smoothed, expected = (draw(seed) for seed in range(4))
    arrays = [jnp.asarray(values) for values in (outers, gradients, smoothed)]
    sums = regret.totals(PROBLEM.gradient, *arrays, 4, expected=jnp.asarray(expected))
    terms = regret.decompose(PROBLEM.gradient, *arrays, 4, expected=jnp.asarray(expected))
    exact = np.array([gradient(t, outers[t]) for t in range(ROUNDS)])
    np.testing.assert_allclose(sums.bias, ((expected - exact) ** 2).sum(), rtol=1e-9)  # B_T, not window by window
    np.testing.assert_allclose(sums.error, (np.asarray(terms.error) ** 2).sum(), rtol=1e-9)
    np.testing.assert_allclose(sums.noise, (np.asarray(terms.noise) ** 2).sum(), rtol=1e-9)
    np.testing.assert_allclose(sums.tracking, (np.asarray(terms.tracking) ** 2).sum(), rtol=1e-9)
    np.testing.assert_allclose(sums.regret, regret.regret(PROBLEM.gradient, arrays[0], 4)[-1], rtol=1e-9)
    np.testing.assert_allclose(sums.proxy, (smoothed**2).sum(), rtol=1e-9)
    unbiased = regret.totals(PROBLEM.gradient, *arrays, 4)
    assert unbiased.bias == 0


def test_constants_found_by_search_are_close_from_below():
    """σ² from lanes; Q and L of one cosine, which a fine grid finds."""
    noises = 2.0 * jax.random.normal(jax.random.key(1), (4000, 3, SIZE))
    np.testing.assert_allclose(regret.noise_level(noises), 4.0 * SIZE, rtol=0.05)
    problem = DriftingCosine(dimension=1, curvature=2.0)
    grid = jnp.linspace(-np.pi, np.pi, 2001)[:, None]
    found = regret.largest_objective(problem.objective, 3, grid), regret.largest_slope(problem.gradient, 3, grid)
    for value in found:
        assert value <= 2.0 + 1e-9
        np.testing.assert_allclose(value, 2.0, rtol=1e-4)


@pytest.mark.parametrize("window", [1, 3, 12])
def test_telescoping_sum_equals_a_loop(window):
    outers = draw(5, ROUNDS + 1)
    expected = looped(lambda t, s: objective(s, outers[t]) - objective(s, outers[t + 1]), window).sum()
    np.testing.assert_allclose(regret.telescoping(PROBLEM.objective, jnp.asarray(outers), window), expected, rtol=1e-9)


def test_traced_windows_and_pytrees():
    outers = jnp.asarray(draw(6))
    tree = {"a": outers[:, :1], "b": outers[:, 1:]}

    def tree_gradient(t, outer):
        flat = PROBLEM.gradient(t, jnp.concatenate([outer["a"], outer["b"]]))
        return {"a": flat[:1], "b": flat[1:]}

    windows = jnp.array([1, 4, 12])
    traced = jax.jit(jax.vmap(lambda w: regret.regret(tree_gradient, tree, w, capacity=12)))(windows)
    for window, values in zip((1, 4, 12), traced, strict=True):
        np.testing.assert_allclose(values, regret.regret(PROBLEM.gradient, outers, window), rtol=1e-12)


def test_exact_suprema_equal_a_dense_search():
    """In one dimension a fine grid finds the supremum; in several, the search brackets it."""
    problem = DriftingCosine(dimension=1, curvature=2.0, speed=0.4, slowing=0.5, wobble=0.1)
    grid = jnp.linspace(-np.pi, np.pi, 4001)[:, None]
    found = regret.searched_suprema(problem.objective, 8, grid, lipschitz=2.0, radius=2 * np.pi / 8000)
    exact = problem.suprema(8)
    assert (found.lower <= exact + 1e-12).all()
    assert (exact <= found.upper).all()
    np.testing.assert_allclose(found.lower, exact, rtol=1e-5)
    points = jax.random.uniform(jax.random.key(0), (20_000, SIZE), minval=-np.pi, maxval=np.pi)
    found = regret.searched_suprema(PROBLEM.objective, 4, points, lipschitz=1.5, radius=1.0)
    assert (found.lower <= PROBLEM.suprema(4)).all()
    np.testing.assert_allclose(found.lower, PROBLEM.suprema(4), rtol=0.05)


def test_variation_orders():
    suprema = jnp.array([0.5, 2.0, 1.0])
    assert regret.variation(suprema) == 3.5
    assert regret.variation(suprema, order=2) == 5.25


def test_bounds_have_the_constants_of_the_theorems():
    known = {"smoothness": 2.0, "objective_bound": 3.0, "variation": 5.0, "rounds": 100, "window": 4}
    oracle = regret.oracle_error(rounds=100, window=4, noise=0.5, tracking=7.0)
    assert oracle == 2 * 100 * 0.5 / 4 + 2 * 7.0
    # 2L(2TQ/w + V) + 2Tσ²/w + 2D at α = 1/L
    assert regret.regret_bound(oracle, step=0.5, **known) == pytest.approx(2 * 2.0 * (2 * 100 * 3 / 4 + 5) + 39.0)
    # 2L(2Q + min(V, 2TQ/w)) + Tσ²/w for replayed windows at α = 1/L; 2TQ/w = 150
    replayed = regret.replayed_error(rounds=100, window=4, noise=0.5)
    assert replayed == 12.5
    assert regret.descent_bound(replayed, step=0.5, **known) == pytest.approx(2 * 2.0 * (6 + 5) + 12.5)
    wild = known | {"variation": 1e3}
    assert regret.descent_bound(0.0, step=0.25, **wild) == pytest.approx(4 * 2.0 * (6 + 150))
    estimated = regret.estimated_error(rounds=100, window=4, noise=0.5, bias=1.0, tracking=7.0)
    assert estimated == 3 * 100 * 0.5 / 4 + 3 + 21
    # (5L/2)(2TQ/w + V) + 3Tσ²/w + 3B + 3D at α = 4/(5L)
    assert regret.regret_bound(estimated, step=0.4, **known) == pytest.approx(5 * (2 * 100 * 3 / 4 + 5) + 61.5)


@pytest.mark.usefixtures("as_users_call")
def test_bad_arguments_are_named():
    known = {"objective_bound": 3.0, "variation": 5.0, "rounds": 100, "window": 4}
    with pytest.raises(ValueError, match=r"step=0.6 is larger than 1/L = 0.5, for which the theorems are proved"):
        regret.regret_bound(0.0, step=0.6, smoothness=2.0, **known)
    assert regret.regret_bound(0.0, step=0.6, smoothness=2.0, allow_large_step=True, **known) > 0
    with pytest.raises(ValueError, match=r"step=0.6 is larger than 1/L = 0.5, for which the theorems are proved"):
        regret.descent_bound(0.0, step=0.6, smoothness=2.0, **known)
    with pytest.raises(ValueError, match=r"step must be a number in \(0, inf\]"):
        regret.regret_bound(0.0, step=0.0, smoothness=2.0, **known)
    with pytest.raises(ValueError, match=r"window must be an integer >= 1, got window=0"):
        regret.window_mean(jnp.ones((3, 2)), 0)
    for window in (0, 5):
        with pytest.raises(ValueError, match=rf"window must be a number in \[1, 3\], got window={window}"):
            regret.window_mean(jnp.ones((4, 2)), window, capacity=3)
    with pytest.raises(ValueError, match="order must be an integer >= 1"):
        regret.variation(jnp.ones(3), order=0)


@pytest.mark.usefixtures("as_users_call")
def test_gradients_of_another_form_than_the_outer_variable():
    """(T,) less (T, 1) would be (T, T), and its sum of squares many times too large."""
    outers = jnp.ones((4, 1))
    for wrong, form in ((lambda round, outer: outer[0], r"\(\)"), (lambda round, outer: outer[None], r"\(1, 1\)")):
        for function in (regret.regret, regret.tracking):
            with pytest.raises(ValueError, match=rf"gradient must have the form of outer, \(1,\), got {form}\."):
                function(wrong, outers, 2)
    good = lambda round, outer: outer  # noqa: E731
    right = {"gradients": outers, "smoothed": outers, "expected": outers}
    for name in right:
        with pytest.raises(ValueError, match=rf"{name} must have the form of outers, \(4, 1\), got \(4,\)\."):
            regret.totals(good, outers, window=2, **(right | {name: jnp.ones(4)}))
    with pytest.raises(ValueError, match="gradient must have the form of outer"):
        regret.regret(lambda round, outer: outer["a"], {"a": outers}, 2)


@pytest.mark.usefixtures("as_users_call")
def test_functions_of_outer_and_round():
    """The order before version 1.0: with numbers for both nothing else would tell them apart."""
    old = lambda outer, round: (outer - round) ** 2  # noqa: E731
    outers = jnp.ones(4)
    for call in (
        lambda: regret.regret(old, outers, 2),
        lambda: regret.telescoping(old, outers, 2),
        lambda: regret.largest_objective(old, 4, outers),
        lambda: regret.searched_suprema(old, 4, outers, lipschitz=1.0, radius=1.0),
    ):
        with pytest.raises(TypeError, match=r"must be a function of \(round, outer\), got one of \(outer, round\)\."):
            call()


@jax.jit
def everything(speed, slowing, wobble, smoothness, noise, window, step, seed):
    """One run of Algorithm 1 written as a loop of its own, and all sides of the pathwise statements."""
    problem = DriftingCosine(
        dimension=2, curvature=smoothness, noise=noise, speed=speed, slowing=slowing, wobble=wobble
    )
    rounds, capacity = 40, 16
    noises = noise * jax.random.normal(jax.random.key(seed), (rounds, 2))

    def play(carry, t):
        outer, stored = carry
        estimate = problem.gradient(t, outer) + noises[t]
        stored = stored.at[t].set(estimate)
        inside = (jnp.arange(rounds) <= t) & (jnp.arange(rounds) > t - window)
        smoothed = jnp.sum(jnp.where(inside[:, None], stored, 0), axis=0) / window.astype(outer.dtype)
        return (outer - step / smoothness * smoothed, stored), (outer, estimate, smoothed)

    start = 3 * jax.random.normal(jax.random.key(seed + 1), (2,))
    (last, _), (outers, estimates, smoothed) = jax.lax.scan(play, (start, jnp.zeros((rounds, 2))), jnp.arange(rounds))
    terms = regret.decompose(problem.gradient, outers, estimates, smoothed, window, capacity=capacity)
    gamma = jnp.sum(regret.squared_norms(terms.error))
    blr = regret.regret(problem.gradient, outers, window, capacity=capacity)[-1]
    variation = regret.variation(problem.suprema(rounds))
    bound = 2 * smoothness * rounds * 2 / window.astype(start.dtype) + variation
    closely = 4 * smoothness + jnp.minimum(variation, 4 * smoothness * rounds / window.astype(start.dtype))
    tracking = jnp.sum(regret.squared_norms(terms.tracking))
    whole = jnp.concatenate([outers, last[None]])
    return {
        "decomposition": (
            jnp.max(jnp.abs(terms.error - terms.noise - terms.bias - terms.tracking)),
            1e-11 * (1 + noise),
        ),
        "telescoping": (regret.telescoping(problem.objective, whole, window, capacity=capacity), bound),
        "movement": (tracking, smoothness**2 * regret.movement(outers, window, capacity=capacity)),
        "proxy": (regret.proxy(smoothed)[-1], 2 * blr + 2 * gamma),
        "descent": (blr, 2 * smoothness / step * bound + gamma),
        "telescoping, closely": (regret.telescoping(problem.objective, whole, window, capacity=capacity), closely),
        "descent, closely": (
            blr,
            regret.descent_bound(
                gamma,
                step=step / smoothness,
                smoothness=smoothness,
                objective_bound=smoothness * 2,
                variation=variation,
                rounds=rounds,
                window=window.astype(start.dtype),
            ),
        ),
    }


@settings(max_examples=12)
@given(
    speed=st.floats(0, 2),
    slowing=st.floats(0, 1),
    wobble=st.floats(0, 3),
    smoothness=st.floats(0.1, 10),
    noise=st.floats(0, 5),
    window=st.integers(1, 16),
    step=st.floats(0.01, 1),
    seed=st.integers(0, 10**6),
)
def test_pathwise_statements_hold_on_random_problems(speed, slowing, wobble, smoothness, noise, window, step, seed):
    """Drifts, windows and steps within the assumptions: no violation of what must hold on every path."""
    sides = everything(speed, slowing, wobble, smoothness, noise, jnp.asarray(window), step, seed)
    for name, (left, right) in sides.items():
        assert left <= right * (1 + 1e-9) + 1e-9, name


@pytest.mark.parametrize("window", [16, 64, 256])
def test_averaged_gradients_are_stable_up_to_half_pi_squared(window):
    """λ ← λ − (αL/w) Σ_{i<w} λ_{t−i} on a parabola: stable below α·L·w = π²/2, unstable above, for large windows."""

    def spectral_radius(product):
        coefficients = np.full(window + 1, product / window**2)
        coefficients[:2] = [1.0, product / window**2 - 1.0]
        return np.abs(np.roots(coefficients)).max()

    assert spectral_radius(0.93 * np.pi**2 / 2) < 1
    assert spectral_radius(1.1 * np.pi**2 / 2) > 1
