"""Steps that find their own length: the recursion in NumPy, no units, and what it is for."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from steps_reference import ROUNDS, counted, draw, moved, reference

import smoothfbo as sf
from smoothfbo.adaptive import usual
from smoothfbo.testbeds import DriftingCosine


@pytest.mark.parametrize(
    ("count", "averaging", "length", "cautious"),
    [(1, 1, 3e-2, False), (3, 1, 3e-2, False), (1, 16, 1.0, True), (1, 16, 1.0, False), (3, 4, 3e-2, True)],
)
def test_the_recursion(count, averaging, length, cautious):
    gradients, start = draw(count=count), [0.1, -3.0, 2.0, 5.0]
    gradients[25] *= 20  # alone
    gradients[29:33] = 8 * gradients[29]  # they agree
    gradients[35:39] = 50 * np.abs(gradients[35:39])  # they do not
    gradients[36::2] *= -1
    weights = counted(gradients, 0.999)
    assert max(weights[[25, 29, 37]]) < 0.5 < 0.7 < min(weights[30:33])
    options = {"averaging": averaging, "length": length, "cautious": cautious}
    expected, lengths, _ = reference(gradients, start, lambda outer: np.maximum(outer, -3.01), **options)
    path, state = moved(gradients, start, lambda outer: jnp.maximum(outer, -3.01), **options)
    np.testing.assert_allclose(path, expected, rtol=1e-10)
    np.testing.assert_allclose(state.lengths, lengths, rtol=1e-10)
    assert np.ptp(np.log(lengths)) > 0.01 or count == averaging == 1
    assert np.any(expected == -3.01)  # the projection was met


@pytest.mark.parametrize("project", [None, lambda outer: outer - jnp.mean(outer) + 0.25])
def test_after_a_change_earlier_moves_are_forgotten(project):
    """Running mean and moves begin again; lengths, the speed of adaptation and sizes of gradients are kept."""
    gradients, start, changes = draw(), np.array([0.5, -0.5, 0.5, 0.5]), [9, 10, 31]
    through = None if project is None else lambda point, vector: vector - np.mean(vector)
    made = (lambda outer: outer) if project is None else (lambda outer: np.asarray(project(outer)))
    expected, lengths, _ = reference(gradients, start, made, through=through, changes=changes)
    path, state = moved(gradients, start, project or (lambda outer: outer), project, changes=changes)
    tolerance = 1e-10 if project is None else 1e-4
    np.testing.assert_allclose(path, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(state.lengths, lengths, rtol=tolerance)
    assert int(state.since) == ROUNDS - 31
    _, other = moved(gradients, start, project or (lambda outer: outer), project)
    assert np.max(np.abs(np.log(other.lengths / lengths))) > 1e-2


@pytest.mark.parametrize("curved", [False, True])
def test_the_recursion_through_the_derivative_of_a_projection(curved):
    """Onto a plane and onto a ball, whose derivatives are known. On the ball differences replace it up to the square of
    a tenth of a move."""
    gradients, start = draw(), np.array([0.5, -0.5, 0.5, 0.5])
    gradients += 10.0  # out of the plane, and out of the ball

    def project(outer):
        return outer / jnp.maximum(1, jnp.linalg.norm(outer)) if curved else outer - jnp.mean(outer) + 0.25

    def through(point, vector):
        if not curved:
            return vector - np.mean(vector)
        size = np.linalg.norm(point)
        return vector if size <= 1 else (vector - point * (point @ vector) / size**2) / size

    expected, lengths, _ = reference(gradients, start, lambda outer: np.asarray(project(outer)), through=through)
    path, state = moved(gradients, start, project, project_in_steps=project)
    tolerance = 3e-2 if curved else 1e-4
    np.testing.assert_allclose(path, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(state.lengths, lengths, rtol=tolerance)
    _, other = moved(gradients, start, project)
    assert np.max(np.abs(np.log(other.lengths / lengths))) > 0.3  # entry by entry it is something else


def test_lengths_do_not_grow_on_the_border_of_a_ball(key):
    """The answer moves along the border, and the best point without it is outside: −ĝ points outwards for ever."""
    noise = 0.5 * jax.random.normal(key, (8, 600, 4))

    def project(outer):
        return outer / jnp.maximum(1, jnp.linalg.norm(outer))

    def gap(optimiser, noise):
        def one(carry, inputs):
            outer, state = carry
            t, error = inputs
            best = jnp.array([jnp.cos(t / 50), jnp.sin(t / 50), 0.0, 0.0])
            change, state = optimiser.update(outer - 3 * best + error, state, outer)
            return (project(outer + change), state), 3 * jnp.sum((outer - best) ** 2) / 2

        start = jnp.zeros(4)
        return jnp.mean(jax.lax.scan(one, (start, optimiser.init(start)), (jnp.arange(600.0), noise))[1][300:])

    def mean(make, number):
        return jnp.mean(jax.vmap(lambda each: gap(make(number), each))(noise))

    rates = jnp.array([0.05, 0.1, 0.2, 0.4])
    fixed = np.asarray(jax.jit(jax.vmap(lambda rate: mean(optax.sgd, rate)))(rates))
    ours = float(jax.jit(lambda: mean(lambda length: sf.adaptive_steps(length, project=project), 1e-2))())
    assert ours < 1.2 * fixed.min(), (ours, fixed)


def test_moves_that_keep_being_too_short_grow_faster():
    """A gradient that does not change: its length grows by exp(0.3 m²) a round, not by exp(0.02)."""
    steps, zero = sf.adaptive_steps(averaging=1), jnp.zeros(4)
    state = steps.init(zero)._replace(cosines=jnp.array([0.9]))
    known = state.usual._replace(usual=jnp.ones(1), long=jnp.ones(1), last=(jnp.ones(4),))
    state = state._replace(rounds=jnp.asarray(10_000), usual=known)
    outer, lengths = zero, []
    for _ in range(4):
        change, state = steps.update(jnp.ones(4), state, outer)
        outer = outer + change
        lengths.append(float(state.lengths[0]))
    mean = 0.8 * 0.9 * np.array([1, 0.8, 0.64, 0.512])[1:] + np.array([0.2, 0.36, 0.488])  # the first round judges none
    np.testing.assert_allclose(np.diff(np.log(lengths)), 0.3 * mean**2, rtol=1e-6)


def test_the_usual_size_follows_gradients_that_fade_by_a_factor_of_six_at_most():
    """Of size 1 for 300 rounds and 1e-4 for 300 more: s² is then the mean of all, 1/2, and u is s/6."""

    def one(state, size):
        t, gradient = size
        return usual.learn(state, (gradient,), t, jnp.asarray(0.999)), None

    first = usual.nothing_known(jnp.zeros(4), 1, 1, float)
    sizes = jnp.repeat(jnp.array([1.0, 1e-4]), 300)[:, None] * jnp.ones(4)
    state, _ = jax.lax.scan(one, first, (jnp.arange(600.0), sizes))
    np.testing.assert_allclose(state.long, 0.5, rtol=1e-6)
    np.testing.assert_allclose(state.usual, 0.5 / 36, rtol=1e-6)


def test_gradients_have_no_units():
    path, _ = moved(draw(), np.zeros(4))
    scaled, _ = moved(1e4 * draw(), np.zeros(4))
    np.testing.assert_allclose(scaled, path, rtol=1e-9)


def test_the_first_length_is_in_units_of_the_outer_variable():
    """A coordinate moves by `length` times the scale of λ_0, at least 1."""
    for scale, expected in ((0.0, 0.01), (0.5, 0.01), (300.0, 3.0)):
        path, _ = moved(draw()[:1, :1], np.full(4, scale))
        np.testing.assert_allclose(np.sqrt(np.mean((path[1] - path[0]) ** 2)), expected, rtol=1e-9)


def test_the_first_move_is_no_longer_for_many_coordinates():
    gradients = np.random.default_rng(0).normal(size=(1, 1, 1000))
    path, _ = moved(gradients, np.zeros(1000))
    np.testing.assert_allclose(np.linalg.norm(path[1]), 0.01 * np.sqrt(10), rtol=1e-9)


@pytest.mark.parametrize(("cautious", "share"), [(False, 1.0), (True, 0.3)])
def test_no_move_is_longer_than_a_share_of_the_outer_variable(cautious, share):
    """Gradients a thousand times as large as those before move λ by its own size, or by 0.3 of it."""
    gradients = draw()
    gradients[37:] = 1e3 * gradients[37]  # they agree
    path, _ = moved(gradients, np.full(4, 2.0), cautious=cautious)
    moves = np.linalg.norm(np.diff(path, axis=0), axis=1)
    bounds = share * np.maximum(2.0 * np.sqrt(4), np.linalg.norm(path[:-1], axis=1))
    assert (moves <= bounds * (1 + 1e-9)).all()
    np.testing.assert_allclose(moves[38], bounds[38])


def test_one_huge_gradient_hardly_moves_anything():
    """Neither λ nor, by their mean square, all steps that follow."""
    gradients = draw()
    expected, state = moved(gradients, np.zeros(4))
    gradients[20] *= 1e4
    path, after = moved(gradients, np.zeros(4))
    moves = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert moves[20] < 0.5 * np.median(moves)
    np.testing.assert_allclose(after.usual.usual, state.usual.usual, rtol=0.3)
    np.testing.assert_allclose(moves[30:], np.linalg.norm(np.diff(expected, axis=0), axis=1)[30:], rtol=0.5)


@pytest.mark.parametrize("cautious", [False, True])
def test_gradients_that_fade_away_are_followed_but_not_to_where_they_vanish(cautious):
    """F_t(λ) = (σ(λ) − s_t)², where s_t is 1 for 150 rounds and 0 for 150 more: the best answers are at ±∞. λ follows
    the first so far that F is 1e-3 of what it was, and comes back from there."""
    steps = sf.adaptive_steps(cautious=cautious)

    def one(carry, target):
        outer, state = carry
        objective, slope = jax.value_and_grad(lambda outer: (jax.nn.sigmoid(outer) - target) ** 2)(outer)
        change, state = steps.update(slope, state, outer)
        return (outer + change, state), objective

    start, targets = jnp.zeros(()), jnp.repeat(jnp.array([1.0, 0.0]), 150)
    _, objectives = jax.lax.scan(one, (start, steps.init(start)), targets)
    assert objectives[149] < 2.5e-4
    assert objectives[-1] < 0.01


def test_a_running_mean_is_used_where_it_helps():
    """The best answer moves steadily: with the mean as velocity λ lags less than without."""
    generator = np.random.default_rng(1)
    noise = jnp.asarray(generator.normal(size=(8, 400, 2)))

    def lag(averaging, noise):
        steps = sf.adaptive_steps(averaging=averaging)

        def one(carry, inputs):
            outer, state = carry
            t, error = inputs
            best = 0.1 * t * jnp.ones(2)
            change, state = steps.update(outer - best + error, state, outer)
            return (outer + change, state), jnp.sum((outer - best) ** 2)

        start = jnp.zeros(2)
        _, squares = jax.lax.scan(one, (start, steps.init(start)), (jnp.arange(400.0), noise))
        return jnp.mean(squares[200:])

    without, helped = (np.mean(jax.jit(jax.vmap(lambda n, a=a: lag(a, n)))(noise)) for a in (1, 16))
    assert helped < 0.9 * without, (helped, without)


def test_lengths_are_learnt_across_skipped_rounds():
    """With a gradient in every second round alone the trace of the moves fades twice from one to the next; no more."""
    gradients, start = draw(), [0.1, -3.0, 2.0, 5.0]
    skipping = np.stack([gradients, np.zeros_like(gradients)], axis=1).reshape(-1, *gradients.shape[1:])
    skipping[3, 0, 0] = np.nan
    expected, lengths, _ = reference(gradients, start, lambda outer: np.maximum(outer, -3.01), trace=0.8**2)
    path, state = moved(skipping, start, lambda outer: jnp.maximum(outer, -3.01))
    np.testing.assert_allclose(path[::2], expected, rtol=1e-10)
    np.testing.assert_allclose(state.lengths, lengths, rtol=1e-10)


def test_skipped_rounds_change_nothing():
    """A zero gradient neither moves λ nor the lengths, and the next round does not judge a move that was not made."""
    gradients = draw()
    gradients[20] = 0
    path, _ = moved(gradients, np.zeros(4))
    np.testing.assert_array_equal(path[21], path[20])
    before, after = (moved(gradients[:rounds], np.zeros(4))[1].lengths for rounds in (20, 21))
    np.testing.assert_array_equal(after, before)
    without, _ = moved(np.delete(gradients, 20, axis=0), np.zeros(4))
    np.testing.assert_allclose(path[:21], without[:21])
    assert np.isfinite(path).all()
    gradients[20, 1, 2] = np.nan  # of a candidate
    gradients[20, 0] = 1.0
    spoilt, state = moved(gradients, np.zeros(4))
    np.testing.assert_allclose(spoilt, path)
    assert np.isfinite(state.usual.usual).all()


def test_any_first_length_ends_as_the_best_fixed_rate(key):
    """Oracle with noise on a drifting cosine: four decades of first lengths, against a grid of fixed rates."""
    testbed = DriftingCosine(noise=0.5, speed=0.02)

    def gap(optimiser, seed):
        algorithm = sf.Online(estimator=testbed.oracle(), optimiser=optimiser, monitor=False)
        _, outer = sf.run(
            algorithm, testbed.source(), testbed.best(jnp.asarray(0)), rounds=600, key=jax.random.key(seed),
            record=lambda state, info: info.outer,
        )  # fmt: skip
        return jnp.mean(jax.vmap(testbed.gap)(jnp.arange(300, 600), outer[300:]))

    seeds = jnp.arange(8)
    rates, lengths = jnp.array([0.01, 0.03, 0.1, 0.3, 1.0]), jnp.array([1e-4, 1e-3, 1e-2, 1e-1, 1.0])

    def means(make, numbers):
        return np.asarray(
            jax.jit(lambda n: jax.vmap(lambda r: jnp.mean(jax.vmap(lambda s: gap(make(r), s))(seeds)))(n))(numbers)
        )

    fixed, adaptive = means(optax.sgd, rates), means(lambda length: sf.adaptive_steps(length), lengths)
    assert adaptive.max() < 1.3 * fixed.min(), (adaptive, fixed)
    assert np.sum(fixed > 2 * fixed.min()) >= 2, fixed  # so a rate must be chosen, but not a length


def test_candidates_come_from_replay_through_the_loop(key):
    """The loop hands them on, and the trace shows the gradient that was followed."""
    problem = sf.Problem(
        inner_loss=lambda outer, v, x, y: 0.5 * (v - outer * y) ** 2,
        outer_loss=lambda outer, v, x, y: 0.5 * (v - y) ** 2,
    )
    x = jnp.ones((6, 1))

    def source(round, key):
        keys = jax.random.split(key)
        return sf.Data(*(sf.Samples(x, 1 + 0.5 * jax.random.normal(each, (6,))) for each in keys))

    inner = sf.Linear(lambda x: x)
    estimator = sf.Replayed(sf.Functional(inner, inner), 8, own=sf.Functional(inner, inner.damped(1.0)))
    algorithm = sf.Online(problem, estimator, sf.adaptive_steps(candidates=2))
    final, trace = sf.run(algorithm, source, jnp.zeros(()), rounds=300, key=key, record=lambda s, i: i)
    assert abs(float(final.learner.outer) - 1) < 0.2
    assert not np.array_equal(trace.smoothed, trace.gradient)
    chain = optax.chain(optax.clip(1e-3), sf.adaptive_steps(candidates=2))
    with pytest.raises(ValueError, match="nothing may change the gradient before it"):
        sf.run(sf.Online(problem, estimator, chain), source, jnp.zeros(()), rounds=1, key=key)
    with pytest.raises(ValueError, match=r"write adaptive_steps\(candidates=2\)"):
        sf.run(sf.Online(problem, estimator, sf.adaptive_steps()), source, jnp.zeros(()), rounds=1, key=key)


@pytest.mark.usefixtures("as_users_call")
def test_bad_options():
    for options in ({"length": 0.0}, {"adaptation": -1.0}, {"memory": 1.0}, {"candidates": 0}, {"averaging": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            sf.adaptive_steps(**options)
    steps = sf.adaptive_steps()
    with pytest.raises(TypeError, match=r"must be a smoothfbo\.Candidates\(directions, judge\), got a tuple"):
        steps.update(jnp.ones(2), steps.init(jnp.ones(2)), jnp.ones(2), candidates=(jnp.ones(2),))
    with pytest.raises(ValueError, match="adaptive_steps needs params"):
        steps.update(jnp.ones(2), steps.init(jnp.ones(2)))
