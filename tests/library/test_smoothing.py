"""Smoothing against hand-expanded sums."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import windowed_means

import smoothfbo as sf
from smoothfbo.smoothing import SmoothingState


def smooth(transformation, gradients):
    """All outputs of a transformation for gradients stacked over rounds, in one compiled scan."""

    def one(state, gradient):
        average, state = transformation.update(gradient, state)
        return state, average

    first = jax.tree.map(lambda g: g[0], gradients)
    return jax.jit(lambda g: jax.lax.scan(one, transformation.init(first), g))(gradients)


def draw(seed, rounds, shape=(3,), dtype=np.float64):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(rounds, *shape)), dtype)


@settings(max_examples=15)
@given(
    window=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    filled=st.booleans(),
    discount=st.sampled_from([0.0, 0.3, 0.9, 0.999999, 1.0]),
)
def test_averages_equal_hand_expanded_sums(window, seed, filled, discount):
    gradients = draw(seed, 40)
    transformation = sf.discounted_average(window, discount, normalise="filled" if filled else "window")
    _, averages = smooth(transformation, gradients)
    expected = windowed_means(gradients, window, discount=discount, filled=filled)
    np.testing.assert_allclose(averages, expected, rtol=1e-11, atol=1e-13)
    if discount == 1.0:
        _, uniform = smooth(sf.window_average(window, normalise="filled" if filled else "window"), gradients)
        np.testing.assert_array_equal(averages, uniform)


def test_paper_divides_by_the_window_from_the_first_round():
    _, padded = smooth(sf.window_average(4), jnp.ones((6, 1)))
    np.testing.assert_allclose(padded[:, 0], [0.25, 0.5, 0.75, 1.0, 1.0, 1.0])
    _, filled = smooth(sf.window_average(4, normalise="filled"), jnp.ones((6, 1)))
    np.testing.assert_allclose(filled[:, 0], 1.0)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
def test_window_one_is_no_smoothing_bit_for_bit(dtype):
    random = np.random.default_rng(0)
    gradients = jnp.asarray(random.normal(size=(100, 3)) * 10.0 ** random.normal(size=(100, 3)), dtype)
    transformations = (
        sf.window_average(1),
        sf.window_average(1, normalise="filled"),
        sf.window_average(jnp.asarray(1), capacity=8),
        sf.discounted_average(1, 0.9),
        sf.discounted_average(5, 0.0),
    )
    for averages in jax.jit(lambda g: [smooth(each, g)[1] for each in transformations])(gradients):
        assert averages.dtype == dtype
        np.testing.assert_array_equal(averages, gradients)


def test_window_one_hands_on_its_gradient_as_the_smoothed_one():
    smoother, gradient = sf.window_average(1), jnp.asarray([1.0, -2.0])
    _, state = smoother.update(gradient, smoother.init(gradient))
    np.testing.assert_array_equal(sf.smoothed_gradient(state, jnp.zeros(2)), gradient)


def test_window_one_passes_even_what_is_not_finite():
    gradients = draw(1, 6).at[2].set(jnp.inf).at[4, 0].set(jnp.nan)
    _, averages = smooth(sf.window_average(1), gradients)
    np.testing.assert_array_equal(averages, gradients)


def test_traced_windows_equal_static_ones():
    gradients = draw(5, 25)
    windows = jnp.arange(1, 10)
    _, traced = jax.jit(jax.vmap(lambda w: smooth(sf.window_average(w, capacity=9), gradients)))(windows)
    for window, averages in zip(range(1, 10), traced, strict=True):
        _, static = smooth(sf.window_average(window), gradients)
        np.testing.assert_array_equal(averages, static)


def direct(gradients, windows, discounts, filled):
    """(1/W) Σ_{i<w_t} η_t^i ĝ_{t−i}, summed anew in every round with its own window and discount."""
    averages = []
    for t, (window, discount) in enumerate(zip(windows, discounts, strict=True)):
        powers = np.float64(discount) ** np.arange(window)
        terms = [powers[i] * np.asarray(gradients[t - i], np.float64) for i in range(min(window, t + 1))]
        averages.append(sum(terms) / powers[: len(terms) if filled else window].sum())
    return np.stack(averages)


@functools.cache
def program(capacity, discounted, filled):
    """One compiled scan for all gradients, windows and discounts."""
    normalise = "filled" if filled else "window"

    def make(window, discount):
        if not discounted:
            return sf.window_average(window, normalise=normalise, capacity=capacity)
        return sf.discounted_average(window, discount, normalise=normalise, capacity=capacity)

    def one(state, inputs):
        gradient, window, discount = inputs
        average, state = make(window, discount).update(gradient, state)
        return state, average

    def scan(gradients, windows, discounts):
        first = make(jnp.asarray(1), jnp.asarray(0.5)).init(gradients[0])
        return jax.lax.scan(one, first, (gradients, windows, discounts))

    return jax.jit(scan)


def smooth_with(gradients, capacity, windows, discounts=None, filled=False):
    """As `smooth`, with a window and perhaps a discount of its own in every round."""
    numbers = jnp.asarray(windows), jnp.asarray(np.ones(len(gradients)) if discounts is None else discounts)
    return program(capacity, discounts is not None, filled)(gradients, *numbers)


CAPACITY, ROUNDS = 6, 40
every_window = st.lists(st.integers(1, CAPACITY), min_size=ROUNDS, max_size=ROUNDS)
few_changes = st.lists(st.integers(1, CAPACITY), min_size=4, max_size=4).map(lambda four: np.repeat(four, 10).tolist())


@settings(max_examples=12)
@given(windows=every_window | few_changes, seed=st.integers(0, 10**6), filled=st.booleans())
def test_a_window_that_changes_is_right_in_every_round(windows, seed, filled):
    gradients = draw(seed, ROUNDS)
    _, averages = smooth_with(gradients, CAPACITY, windows, filled=filled)
    np.testing.assert_allclose(averages, direct(gradients, windows, np.ones(ROUNDS), filled), rtol=1e-11, atol=1e-13)


@settings(max_examples=12)
@given(
    windows=every_window | few_changes,
    discounts=st.lists(st.sampled_from([0.0, 0.5, 0.99, 1.0]), min_size=4, max_size=4),
    seed=st.integers(0, 10**6),
    filled=st.booleans(),
)
def test_windows_and_discounts_that_change_are_right_in_every_round(windows, discounts, seed, filled):
    gradients, discounts = draw(seed, ROUNDS), np.repeat(discounts, 10)
    _, averages = smooth_with(gradients, CAPACITY, windows, discounts, filled)
    np.testing.assert_allclose(averages, direct(gradients, windows, discounts, filled), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    "schedule", [lambda t: jnp.where(t < 20, 10, 5), lambda t: 1 + t // 4], ids=["shrinks", "grows"]
)
def test_scheduled_windows(schedule):
    """As users write them; each round is the average of its last w_t gradients, summed by hand."""
    injected = optax.inject_hyperparams(sf.window_average, static_args=("normalise", "capacity"))
    gradients = draw(11, 60)
    _, averages = smooth(injected(window=schedule, capacity=16), gradients)
    windows = [int(schedule(jnp.asarray(t))) for t in range(60)]
    np.testing.assert_allclose(averages, direct(gradients, windows, np.ones(60), False), rtol=1e-11, atol=1e-13)


def test_a_scheduled_discount_of_a_fixed_window():
    injected = optax.inject_hyperparams(sf.discounted_average, static_args=("window", "normalise", "capacity"))
    schedule = lambda t: jnp.where(t < 13, 0.9, 0.5)  # noqa: E731
    gradients = draw(12, 40)
    _, averages = smooth(injected(window=6, discount=schedule), gradients)
    discounts = [float(schedule(jnp.asarray(t))) for t in range(40)]
    np.testing.assert_allclose(averages, direct(gradients, [6] * 40, discounts, False), rtol=1e-6, atol=1e-7)


def test_windows_that_change_in_one_lane_only():
    """Under vmap, each lane as if alone."""
    windows = jnp.asarray([[3] * 20 + [5] * 20, [4] * 40])
    gradients = jnp.stack([draw(13, 40), draw(14, 40)])
    _, lanes = jax.jit(jax.vmap(lambda g, w: smooth_with(g, 5, w)))(gradients, windows)
    for lane, gradient, window in zip(lanes, gradients, windows, strict=True):
        np.testing.assert_allclose(
            lane, direct(gradient, np.asarray(window), np.ones(40), False), rtol=1e-11, atol=1e-13
        )
    _, static = smooth(sf.window_average(4), gradients[1])
    np.testing.assert_array_equal(lanes[1], static)


def test_a_run_that_goes_on_with_another_window():
    gradients = draw(15, 30)
    state, _ = smooth(sf.window_average(9, capacity=12), gradients[:17])
    _, averages = jax.lax.scan(
        lambda state, gradient: sf.window_average(4, capacity=12).update(gradient, state)[::-1], state, gradients[17:]
    )
    windows = [9] * 17 + [4] * 13
    np.testing.assert_allclose(averages, direct(gradients, windows, np.ones(30), False)[17:], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("capacity", [1, 3])
@pytest.mark.parametrize("wrong", [9, 0, -2])
def test_traced_windows_outside_their_capacity_give_nothing(capacity, wrong):
    """NaN in these rounds, and the right average again once the window fits."""
    gradients = draw(16, 20)
    windows = np.where((np.arange(20) >= 7) & (np.arange(20) < 12), wrong, capacity)
    _, averages = smooth_with(gradients, capacity, windows)
    outside = windows == wrong
    assert np.isnan(averages[outside]).all()
    expected = windowed_means(gradients, capacity)
    np.testing.assert_allclose(averages[~outside], expected[~outside], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("window", [300])
@pytest.mark.usefixtures("optimised")
def test_no_drift_after_a_million_updates_in_float32(window):
    """Within 1e-5 of the direct sum, with a mean far from zero and magnitudes over six decades."""
    rounds = 10**6

    def gradient(t):
        time = t.astype(jnp.float32)
        noise = 2 * jnp.sin(jnp.asarray([12.9898, 78.233], jnp.float32) * time)
        return 10.0 ** (3 * jnp.sin(time / 5000)) * (noise + 0.5)

    transformation = sf.window_average(window)

    def one(state, t):
        _, state = transformation.update(gradient(t), state)
        return state, None

    state, _ = jax.jit(lambda s: jax.lax.scan(one, s, jnp.arange(rounds)))(
        transformation.init(jnp.zeros(2, jnp.float32))
    )
    direct = np.mean(np.asarray(state.history, np.float64), axis=0)
    np.testing.assert_allclose(state.average, direct, rtol=1e-5)
    last = jax.jit(jax.vmap(gradient))(jnp.arange(rounds - window, rounds))
    np.testing.assert_allclose(state.average, np.mean(np.asarray(last, np.float64), axis=0), rtol=1e-5)


def test_large_windows_do_not_lose_digits():
    """A plain float32 running sum of 100,000 numbers is off by more than 1e-5."""
    gradients = draw(2, 150_000, (1,), np.float32) + 1
    state, _ = smooth(sf.window_average(100_000), gradients)
    expected = np.mean(np.asarray(gradients[-100_000:], np.float64))
    np.testing.assert_allclose(state.average[0], expected, rtol=2e-7)


def test_an_outlier_leaves_no_trace_once_it_has_left():
    gradients = draw(3, 60, dtype=np.float32).at[7].set(1e30)
    _, averages = smooth(sf.window_average(10), gradients)
    np.testing.assert_allclose(averages[27:], windowed_means(gradients, 10)[27:], rtol=1e-5, atol=1e-6)
    _, averages = smooth(sf.window_average(10), gradients.at[7].set(jnp.inf))
    np.testing.assert_allclose(averages[27:], windowed_means(gradients, 10)[27:], rtol=1e-5, atol=1e-6)


def test_mix_is_a_convex_combination_with_the_right_ends():
    gradients, mixes = draw(4, 20), jnp.linspace(0, 1, 11)
    _, averages = smooth(sf.window_average(4), gradients)
    _, mixed = jax.jit(jax.vmap(lambda mix: smooth(sf.mixed_average(mix, sf.window_average(4)), gradients)))(mixes)
    for mix, values in zip(np.asarray(mixes), mixed, strict=True):
        np.testing.assert_allclose(values, mix * gradients + (1 - mix) * averages, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(mixed[0], averages)
    np.testing.assert_array_equal(mixed[-1], gradients)


def test_any_pytree_and_dtype():
    gradients = {
        "half": draw(5, 30, (2, 2), jnp.float16),
        "nested": (draw(6, 30, (), jnp.float32), [draw(7, 30, (4,), jnp.float64)]),
    }
    _, averages = smooth(sf.window_average(7), gradients)
    for average, gradient in zip(jax.tree.leaves(averages), jax.tree.leaves(gradients), strict=True):
        assert average.dtype == gradient.dtype
        tolerance = 4 * float(jnp.finfo(gradient.dtype).eps)
        np.testing.assert_allclose(
            np.asarray(average, np.float64), windowed_means(gradient, 7), rtol=tolerance, atol=tolerance
        )


def test_inside_chain_multi_transform_and_inject_hyperparams():
    gradients = {"a": draw(8, 30), "b": draw(9, 30)}
    expected = {name: windowed_means(gradients[name], 5) for name in gradients}

    chain = optax.chain(sf.window_average(5), optax.sgd(0.1))
    state, updates = smooth(chain, gradients)
    np.testing.assert_allclose(updates["a"], -0.1 * expected["a"], rtol=1e-10)
    last = jax.tree.map(lambda g: g[-1], gradients)
    np.testing.assert_allclose(sf.smoothed_gradient(state, last)["b"], expected["b"][-1], rtol=1e-10)

    multi = optax.multi_transform(
        {"smooth": sf.window_average(5), "plain": optax.identity(), "unused": sf.window_average(3)},
        {"a": "smooth", "b": "plain"},
    )
    state, updates = smooth(multi, gradients)
    np.testing.assert_allclose(updates["a"], expected["a"], rtol=1e-10)
    np.testing.assert_array_equal(updates["b"], gradients["b"])
    used = sf.smoothed_gradient(state, last)
    np.testing.assert_allclose(used["a"], expected["a"][-1], rtol=1e-10)
    np.testing.assert_array_equal(used["b"], last["b"])

    injected = optax.inject_hyperparams(sf.discounted_average, static_args=("window", "normalise", "capacity"))
    state, updates = smooth(injected(window=5, discount=0.8), gradients)
    np.testing.assert_allclose(updates["a"], windowed_means(gradients["a"], 5, discount=0.8), rtol=1e-6)
    np.testing.assert_array_equal(sf.smoothed_gradient(state, last)["a"], updates["a"][-1])


def test_smoothed_gradient_takes_the_last_smoother_and_defaults_to_the_raw_one():
    gradients = draw(10, 12)
    state, updates = smooth(optax.chain(sf.window_average(3), sf.window_average(2)), gradients)
    np.testing.assert_array_equal(sf.smoothed_gradient(state, gradients[-1]), updates[-1])
    state, updates = smooth(sf.mixed_average(0.4, sf.window_average(3)), gradients)
    np.testing.assert_array_equal(sf.smoothed_gradient(state, gradients[-1]), updates[-1])
    state, _ = smooth(optax.sgd(0.1), gradients)
    np.testing.assert_array_equal(sf.smoothed_gradient(state, gradients[-1]), gradients[-1])


class Momentum(NamedTuple):
    """The state of somebody else's smoother."""

    average: dict


def test_smoothed_gradient_reads_every_state_that_has_an_average():
    def update(updates, state, params=None):
        average = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state.average, updates)
        return average, Momentum(average)

    own = optax.GradientTransformation(lambda params: Momentum(jax.tree.map(jnp.zeros_like, params)), update)
    gradient = {"a": jnp.ones(2)}
    chain = optax.chain(own, optax.sgd(0.1))
    _, state = chain.update(gradient, chain.init(gradient), gradient)
    np.testing.assert_allclose(sf.smoothed_gradient(state, gradient)["a"], 0.1)


def test_memory_is_the_window_and_a_few_vectors():
    state = sf.window_average(1000).init(jnp.zeros(50, jnp.float32))
    assert isinstance(state, SmoothingState)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(state))
    assert 1000 * 50 <= numbers <= 1.01 * 1000 * 50


@pytest.mark.usefixtures("optimised")
def test_update_in_place_costs_no_copy_of_the_buffer():
    """The compiled, donated update needs temporary memory of the order of d, not w·d."""
    window, size = 2000, 1000
    transformation = sf.window_average(window)
    gradient = jnp.ones(size, jnp.float32)
    update = jax.jit(lambda g, s: transformation.update(g, s), donate_argnums=1)
    memory = update.lower(gradient, transformation.init(gradient)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 50 * size * 4
    assert memory.alias_size_in_bytes >= window * size * 4


@pytest.mark.usefixtures("optimised")
def test_scanned_and_vmapped_updates_cost_no_copy_of_the_buffer():
    window, size, lanes = 2000, 500, 4
    transformation = sf.window_average(window)
    gradients = jnp.ones((50, lanes, size), jnp.float32)
    update = jax.vmap(lambda state, gradient: transformation.update(gradient, state)[1])
    scan = jax.jit(lambda s, g: jax.lax.scan(lambda s, g: (update(s, g), None), s, g)[0], donate_argnums=0)
    compiled = scan.lower(jax.vmap(transformation.init)(gradients[0]), gradients).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 50 * lanes * size * 4


@pytest.mark.usefixtures("optimised")
def test_windows_that_may_change_cost_no_copy_of_the_buffer_either():
    capacity, size, lanes = 2000, 500, 4

    def update(state, gradient, window):
        return sf.window_average(window, capacity=capacity).update(gradient, state)[1]

    def scan(states, gradients, windows):
        return jax.lax.scan(lambda s, g: (jax.vmap(update)(s, g, windows), None), states, gradients)[0]

    gradients, windows = jnp.ones((50, lanes, size), jnp.float32), jnp.asarray([1, 10, 100, 2000])
    states = jax.vmap(sf.window_average(jnp.asarray(1), capacity=capacity).init)(gradients[0])
    memory = jax.jit(scan, donate_argnums=0).lower(states, gradients, windows).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 100 * lanes * size * 4
    assert memory.alias_size_in_bytes >= lanes * capacity * size * 4


@pytest.mark.parametrize("windows", [[3] * 40, [3] * 9 + [5] * 31, [5] * 7 + [2] * 33, [4] * 10 + [6] * 3 + [4] * 27])
def test_a_window_that_was_promised_to_stay_gives_no_wrong_average(windows):
    """Where the promise is kept, also again, the average; where it is broken, NaN."""
    gradients = jnp.asarray(np.random.default_rng(3).normal(size=(len(windows), 2)))

    def step(state, inputs):
        window, gradient = inputs
        return sf.window_average(window, capacity=8, constant=True).update(gradient, state)[::-1]

    start = sf.window_average(jnp.asarray(windows[0]), capacity=8, constant=True).init(gradients[0])
    _, averages = jax.lax.scan(step, start, (jnp.asarray(windows), gradients))
    for t, (window, average) in enumerate(zip(windows, averages, strict=True)):
        expected = np.asarray(gradients)[max(t - window + 1, 0) : t + 1].sum(axis=0) / window
        if window == windows[0]:
            np.testing.assert_allclose(average, expected, rtol=1e-12)
        else:
            assert np.isnan(average).all()


@pytest.mark.parametrize("window", [0, -3, 2.5, True, "10", None])
@pytest.mark.usefixtures("as_users_call")
def test_bad_windows_are_named(window):
    with pytest.raises(ValueError, match=r"window must be an integer >= 1, got window="):
        sf.window_average(window)


@pytest.mark.usefixtures("as_users_call")
def test_other_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"discount must be a number in \[0, 1\], got discount=-0.1"):
        sf.discounted_average(3, -0.1)
    with pytest.raises(ValueError, match=r"discount=1.5"):
        sf.discounted_average(3, 1.5)
    with pytest.raises(ValueError, match="mix must be a number"):
        sf.mixed_average(float("nan"), sf.window_average(3))
    with pytest.raises(ValueError, match="normalise must be 'window' or 'filled', got normalise='mean'"):
        sf.window_average(3, normalise="mean")
    with pytest.raises(ValueError, match=r"window must be a number in \[1, 5\], got window=9"):
        sf.window_average(9, capacity=5)
    with pytest.raises(ValueError, match="give capacity=<largest window>"):
        jax.jit(lambda w: sf.window_average(w).init(jnp.ones(2)))(3)
    with pytest.raises(ValueError, match="static_args"):
        optax.inject_hyperparams(sf.window_average)(window=3).init(jnp.ones(2))
    with pytest.raises(ValueError, match=r"params\['a'\] has dtype int"):
        sf.window_average(3).init({"a": jnp.arange(3)})
    with pytest.raises(TypeError, match="smoother must be an optax transformation"):
        sf.mixed_average(0.5, 10)
