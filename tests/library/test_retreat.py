"""Steps where noise comes in bursts, and where a move has gone up a wall or to a place without gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import smoothfbo as sf
from smoothfbo.adaptive import retreat


def run(steps, gradient, rounds, start, noise):
    """λ of all rounds and how often λ has gone back, for `gradient(λ, t, noise) -> (value, gradient)`."""

    def one(carry, inputs):
        outer, state = carry
        t, error = inputs
        value, slope = gradient(outer, t, error)
        change, state = steps.update(slope, state, outer, value=value)
        return (outer + change, state), outer

    return jax.lax.scan(one, (start, steps.init(start)), (jnp.arange(rounds), noise))[1]


def test_a_burst_of_noise_neither_moves_far_nor_shortens_what_follows(key):
    """F_t(λ) = ½‖λ − b_t‖² with noise thirty times as large in fifty of 200 rounds, the first fifty among them. The
    gap of the calm rounds, against the best fixed rate for them in a run without bursts."""
    rounds, times = 1000, jnp.arange(1000)
    calm = (times % 200 >= 80) & (times >= 400)
    noise = 0.3 * jax.random.normal(key, (16, rounds, 3))
    burst = jnp.where(times % 200 < 50, 30.0, 1.0)[:, None] * noise

    def best(t):
        return jnp.sin(t / 60 + jnp.arange(3.0))

    def gap(steps, noise):
        def gradient(outer, t, error):
            return jnp.sum((outer - best(t) + error) ** 2) / 2, outer - best(t) + error

        path = jax.vmap(lambda each: run(steps, gradient, rounds, jnp.zeros(3), each))(noise)
        each = jnp.mean(jnp.sum((path - jax.vmap(best)(times)) ** 2, axis=-1), axis=0)
        return jnp.sum(jnp.where(calm, each, 0)) / jnp.sum(jnp.where(calm, 1.0, 0.0))

    fixed = [float(gap(optax.with_extra_args_support(optax.sgd(rate)), noise)) for rate in (0.1, 0.2, 0.4)]
    ours = float(gap(sf.adaptive_steps(), burst))
    assert ours < 1.5 * min(fixed), (ours, fixed)


@pytest.mark.parametrize("units", [1000.0, 30.0, 1.0])
def test_first_moves_that_are_too_long_are_taken_back(key, units):
    """Weights softmax(units · λ): with 1000 the first move ends where gradients are 0 to rounding. λ does as well as in
    its natural units."""
    target = jnp.array([0.5, 0.3, 0.2])
    noise = 0.02 * jax.random.normal(key, (16, 600, 3))

    def gradient(outer, t, error):
        goal = jnp.roll(target, t // 200)

        def value(outer):
            return jnp.sum((jax.nn.softmax(units * outer) - goal - error) ** 2)

        return jax.value_and_grad(value)(outer)

    def gap(noise):
        path = run(sf.adaptive_steps(), gradient, 600, jnp.zeros(3), noise)
        goals = jax.vmap(lambda t: jnp.roll(target, t // 200))(jnp.arange(600))
        return jnp.mean(jnp.sum((jax.nn.softmax(units * path) - goals) ** 2, axis=1)[300:])

    gaps = jax.jit(jax.vmap(gap))(noise)
    standing = float(jnp.sum((target - 1 / 3) ** 2))
    assert jnp.mean(gaps) < 0.3 * standing, (jnp.mean(gaps), standing)


@pytest.mark.parametrize(
    ("length", "center", "is_undone"),
    [(0.5, 0.0, False), (3.9, 0.0, False), (4.1, 0.0, True), (4.1, 50.0, False), (4.1, -50.0, False)],
)
def test_a_move_more_than_four_times_too_long_is_undone(length, center, is_undone):
    """F_{t−1}(λ) = ½λ², from λ = 1. If its centre jumps away, F_t is larger after the move, but not for its length."""

    def objective(outer, center):
        return (outer - center) ** 2 / 2

    move, slope = -length, jax.grad(objective)
    now = slope(1.0 + move, center)
    lost = objective(1.0 + move, center) - objective(1.0, center)
    found = retreat.has_overshot(jnp.asarray(move), (slope(1.0, 0.0),), (now,), jnp.asarray(lost))
    assert bool(found) == is_undone
    # All candidates must say so.
    for other in (-now, now / 100):
        arguments = jnp.asarray(move), (slope(1.0, 0.0),) * 2, (now, other), jnp.asarray(lost)
        assert not retreat.has_overshot(*arguments)
    arguments = jnp.asarray(move), (slope(1.0, 0.0), 100.0), (now, now), jnp.asarray(lost)
    assert not retreat.has_overshot(*arguments)
    assert not retreat.has_overshot(*arguments[:3], None)


def test_undoing_a_move():
    """λ is where it was, lengths are 0.3 of what they were, and of the far end nothing is learnt."""
    steps, outer = sf.adaptive_steps(), jnp.zeros(2)
    state = steps.init(outer)

    @jax.jit
    def update(gradient, state, outer, lost):
        return steps.update(gradient, state, outer, candidates=sf.Candidates((gradient,), gradient, None, lost))

    for _ in range(5):
        change, state = update(jnp.ones(2), state, outer, 0.0)
        outer, before, old = outer + change, outer, state
    change, state = update(jnp.full(2, -1e4), old, outer, 1.0)
    np.testing.assert_allclose(outer + change, before, rtol=1e-6)
    np.testing.assert_allclose(state.lengths, 0.3 * old.lengths)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves((state.moves, state.directions, state.mean)))
    assert eqx.tree_equal((state.usual, state.retreat, state.judged), (old.usual, old.retreat, old.judged))
    # In the next round there is no move to be undone.
    again, _ = update(jnp.full(2, -1e4), state, outer + change, 1.0)
    assert np.all(np.abs(again) > 0)
    stays, _ = update(jnp.full(2, -1e4), old, outer, 0.0)
    assert np.linalg.norm(stays) < 0.1 * np.linalg.norm(change)


@pytest.mark.parametrize(("value", "share"), [(1.0, 0.5), (3.0, 1.0), (0.0, 0.01), (None, 1.0), (jnp.nan, 1.0)])
def test_the_first_move_promises_no_more_than_the_loss(value, share):
    """λ moves by 0.01 along gradients of 100 each: it promises 2."""
    steps, outer = sf.adaptive_steps(), jnp.zeros(2)
    gradient = jnp.full(2, 100.0)
    change, _ = steps.update(gradient, steps.init(outer), outer, value=value)
    np.testing.assert_allclose(change, -0.01 * share, rtol=1e-5)


def test_when_to_go_back():
    """The two rules, round by round, from their sentences."""
    generator = np.random.default_rng(0)
    rounds = 400
    sizes = np.exp(generator.normal(size=rounds)) * np.repeat(generator.choice([0.003, 0.05, 1.0], rounds // 8), 8)
    sizes[:10] = [1.0, 0.5, 0.2, 0.02, 0.5, 1.0, 0.04, 0.9, 0.0, 0.03]
    values = generator.normal(size=rounds) * 0.1 + np.repeat(generator.choice([1.0, 2.0], rounds // 16), 16)
    values[[50, 51, 200]] = np.nan  # not known
    state = retreat.at_start(jnp.zeros(2), jnp.ones(3))
    place, loss, now, scatter, last, recent, found = np.zeros(2), 0.0, 0.0, 0.0, 0.0, [1.0, 1.0], []
    judge = jax.jit(retreat.judge_place)
    for t, (size, value) in enumerate(zip(sizes, values, strict=True)):
        params = np.array([t, -1.0 * t])
        known = np.isfinite(value)
        if known:
            now = value if t == 0 else 0.7 * now + 0.3 * value
            scatter = 0.0 if t == 0 else 0.9 * scatter + 0.1 * (value - last) ** 2 / 2
            last = value
        flat = max(size, *recent) < 0.1
        worse = known and now - loss > 2 * np.sqrt(2 * scatter * 0.3 / 1.7)
        early = 0 < t < 10 and 0 < size < 1 / 30
        returns, was_too_long, state = judge(
            state,
            jnp.asarray(params),
            jnp.full(3, 1.0 + t),
            (jnp.asarray(size), jnp.asarray(max(size, *recent))),
            jnp.asarray(value),
            jnp.asarray(1.0 * t),
        )
        assert bool(returns) == ((flat and worse) or early), t
        assert bool(was_too_long) == early
        if 0.3 <= size <= 3:
            place, loss = params, now
        if returns:
            now, recent = loss, [1.0, 1.0]
        else:
            recent = [size, recent[0]]
        np.testing.assert_allclose(state.place, place)
        np.testing.assert_allclose(state.usual, 1.0 + place[0] if place[0] else 1.0)
        np.testing.assert_allclose(state.now, now, rtol=1e-6)
        found.append(bool(returns))
    assert sum(found[:10]) == 2
    assert 5 < sum(found[10:]) < 100


@pytest.mark.parametrize("left", [1e-3, 0.0])
def test_going_back(key, left):
    """λ is the place again, lengths are 0.3 of what they were, and nothing is said about the moves before. Gradients
    that are exactly 0 are no skipped rounds where the loss is known."""
    steps, outer = sf.adaptive_steps(), jnp.zeros(2)
    state = steps.init(outer)
    for t in range(40):
        far = t >= 30  # gradients vanish, and the loss grows
        gradient = jnp.ones(2) + 1e-4 * jax.random.normal(jax.random.fold_in(key, t), (2,))
        gradient = left * gradient if far else gradient
        before, old = state, outer
        change, state = steps.update(gradient, state, outer, value=5.0 if far else 1.0 + 1e-3 * (t % 2))
        outer = outer + change
        if t == 29:
            place = old
        if far and np.allclose(outer, place):
            break
    else:
        pytest.fail("λ did not go back")
    assert t == 32  # three rounds
    np.testing.assert_allclose(state.lengths[0] / before.lengths[0], 0.3, rtol=0.05)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves((state.moves, state.directions, state.mean)))
    np.testing.assert_allclose(state.usual.usual[0], 1.0, rtol=0.01)
    np.testing.assert_allclose(state.before, outer)  # this was no move that could be undone


@pytest.mark.parametrize("value", [None, jnp.inf])
def test_skipped_rounds_do_not_lead_back(value):
    """They have gradients of 0, too, but no loss."""
    steps, outer = sf.adaptive_steps(), jnp.zeros(2)
    state = steps.init(outer)
    for _ in range(5):
        change, state = steps.update(jnp.ones(2), state, outer, value=1.0)
        outer = outer + change
    for _ in range(5):
        change, after = steps.update(jnp.zeros(2), state, outer, value=value)
        np.testing.assert_array_equal(change, 0)
        assert eqx.tree_equal(after.retreat, state.retreat)
        assert eqx.tree_equal(after.usual, state.usual)
        state = after
