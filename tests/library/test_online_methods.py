"""Online bilevel methods of other papers, round by round against NumPy written from their formulas."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, ridge_data, trained_linear
from reference import Ridge, windowed_means

import smoothfbo as sf

ROUNDS, OUTER, ALPHA, BETA = 7, np.array([0.4, -0.7, 0.2]), 0.3, 0.4
RIDGES = [Ridge.draw(seed) for seed in range(20, 20 + ROUNDS)]
RECORDED = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(ridge_data, RIDGES))
KEY = jax.random.key(0)


def played(estimator, optimiser=None, *, outer=OUTER, problem=RIDGE_PROBLEM, source=RECORDED, rounds=ROUNDS):
    """The final state and the trace, with gradients, of a run over all rounds."""
    algorithm = sf.Online(problem, estimator, optax.sgd(ALPHA) if optimiser is None else optimiser)
    return sf.run(algorithm, source, jnp.asarray(outer), rounds=rounds, key=KEY, record=lambda state, info: info)


def agrees(run, outers, gradients=None):
    final, trace = run
    np.testing.assert_allclose(trace.outer, outers[:ROUNDS], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(final.learner.outer, outers[ROUNDS], rtol=1e-10, atol=1e-13)
    if gradients is not None:
        np.testing.assert_allclose(trace.gradient, gradients, rtol=1e-10, atol=1e-13)
    assert bool(trace.finite.all())
    assert np.ptp(np.asarray(outers), axis=0).min() > 1e-3


def inner_slope(ridge, outer, theta):
    a, b = ridge.system(outer)
    return a @ theta - b


def remainder(ridge, outer, theta, v):
    """A v − b of the linear system."""
    return ridge.system(outer)[0] @ v - ridge.outer_slope_at(outer, theta)


def hypergradient_at(ridge, outer, theta, v):
    return ridge.explicit_at(outer, theta) - ridge.cross_at(outer, theta, v)


def test_sobow_is_one_inner_step_a_few_warm_steps_of_conjugate_gradients_and_a_discounted_window():
    outers, gradients, theta, v = [OUTER], [], np.zeros(3), np.zeros(3)
    for t, ridge in enumerate(RIDGES):
        outer = outers[-1]
        theta = theta - BETA * inner_slope(ridge, outer, theta)
        a, _ = ridge.system(outer)
        residual = -remainder(ridge, outer, theta, v)
        direction = residual
        for _ in range(2):
            length = residual @ residual / (direction @ a @ direction)
            v = v + length * direction
            new = residual - length * a @ direction
            direction, residual = new + (new @ new) / (residual @ residual) * direction, new
        gradients.append(hypergradient_at(ridge, outer, theta, v))
        outers.append(outer - ALPHA * windowed_means(gradients, 3, discount=0.8)[t])
    estimator = sf.Implicit(trained_linear(1, BETA), sf.ConjugateGradient(tolerance=None, max_steps=2))
    smoothed = optax.chain(sf.discounted_average(3, 0.8), optax.sgd(ALPHA))
    final, trace = played(estimator, smoothed)
    agrees((final, trace), outers, gradients)
    np.testing.assert_allclose(final.learner.estimator.solution, v, rtol=1e-9)
    assert not trace.converged.any()


def test_conjugate_gradients_without_a_tolerance_are_judged_by_their_residual():
    for steps, solved in ((1, False), (5, True)):  # three unknowns
        inverse = sf.ConjugateGradient(tolerance=None, max_steps=steps)
        _, trace = played(sf.Implicit(linear(), inverse))
        assert bool(trace.converged[0]) == solved
        assert bool(trace.finite.all())


def test_single_loop_takes_all_three_steps_from_the_same_point():
    outers, gradients, residuals, theta, v = [OUTER], [], [], np.zeros(3), np.zeros(3)
    for ridge in RIDGES:
        outer = outers[-1]
        system, slope = remainder(ridge, outer, theta, v), inner_slope(ridge, outer, theta)
        gradients.append(hypergradient_at(ridge, outer, theta, v))
        residuals.append(
            [
                np.linalg.norm(slope) / np.linalg.norm(ridge.system(outer)[1]),
                np.linalg.norm(system) / np.linalg.norm(ridge.outer_slope_at(outer, theta)),
            ]
        )
        theta, v = theta - BETA * slope, v - 0.6 * system
        outers.append(outer - ALPHA * gradients[-1])
    final, trace = played(sf.SingleLoop(trained_linear(1, BETA), rate=0.6))
    agrees((final, trace), outers, gradients)
    np.testing.assert_allclose(np.stack([trace.inner_residual, trace.adjoint_residual], 1), residuals, rtol=1e-9)
    np.testing.assert_allclose(final.learner.estimator.inner.params, theta, rtol=1e-10)
    np.testing.assert_allclose(final.learner.estimator.solution, v, rtol=1e-10)


def test_single_loop_comes_to_the_hypergradient_on_data_that_stay():
    ridge = RIDGES[0]
    estimator = sf.SingleLoop(trained_linear(1, 0.5), rate=0.5)
    state = estimator.init(RIDGE_PROBLEM, jnp.asarray(OUTER), ridge_data(ridge), KEY)

    def again(state, _):
        estimate, state = estimator(RIDGE_PROBLEM, jnp.asarray(OUTER), state, ridge_data(ridge), KEY)
        return state, estimate

    _, trace = jax.lax.scan(again, state, length=600)
    np.testing.assert_allclose(trace.gradient[-1], ridge.hypergradient(OUTER), rtol=1e-8)
    assert bool(trace.converged[-1])
    assert not bool(trace.converged[0])


def storm(gamma):
    """d_t of all three variables, hand-expanded."""
    outers, gradients, point, before, directions = [OUTER], [], (np.zeros(3), np.zeros(3)), None, None

    def all_three(ridge, outer, theta, v):
        return (
            inner_slope(ridge, outer, theta),
            remainder(ridge, outer, theta, v),
            hypergradient_at(ridge, outer, theta, v),
        )

    for ridge in RIDGES:
        now = (outers[-1], *point)
        new = all_three(ridge, *now)
        if before is not None:
            old = all_three(ridge, *before)
            new = tuple(n + (1 - gamma) * (d - o) for n, d, o in zip(new, directions, old, strict=True))
        before, directions = now, new
        point = (point[0] - BETA * new[0], point[1] - 0.6 * new[1])
        gradients.append(new[2])
        outers.append(outers[-1] - ALPHA * new[2])
    return outers, gradients, point


def test_storm_corrects_its_memory_on_the_data_of_the_round():
    """Three lanes of one program, with rates of their own; one that forgets everything is the single loop."""

    def lane(beta, rate, forgetting):
        return played(sf.Storm(trained_linear(1, beta), rate=rate, forgetting=forgetting))

    numbers = (jnp.asarray([BETA, BETA, 0.1]), jnp.asarray([0.6, 0.6, 0.1]), jnp.asarray([0.3, 1.0, 0.0]))
    lanes = jax.jit(jax.vmap(lane))(*numbers)
    outers, gradients, (theta, v) = storm(0.3)
    final, trace = jax.tree.map(lambda leaf: leaf[0], lanes)
    agrees((final, trace), outers, gradients)
    warm = final.learner.estimator
    np.testing.assert_allclose(warm.inner.params, theta, rtol=1e-10)
    np.testing.assert_allclose(warm.solution, v, rtol=1e-10)
    np.testing.assert_allclose(warm.previous.outer, outers[ROUNDS - 1], rtol=1e-10)
    np.testing.assert_allclose(trace.explicit_norm[0], np.linalg.norm(RIDGES[0].explicit_at(OUTER, np.zeros(3))))
    _, trace = jax.tree.map(lambda leaf: leaf[1], lanes)
    _, plain = played(sf.SingleLoop(trained_linear(1, BETA), rate=0.6))
    for name in ("outer", "gradient", "inner_loss", "outer_loss", "inner_residual", "adjoint_residual"):
        np.testing.assert_allclose(getattr(trace, name), getattr(plain, name), rtol=1e-10, err_msg=name)
    assert np.ptp(lanes[1].outer[:, -1], axis=0).min() > 1e-3


def test_storm_draws_one_mini_batch_for_both_points():
    """On data that stay, with λ and θ at rest, new and old directions are the same: the memory stays what it was."""
    rest = sf.Network.from_pair(
        lambda key, x: jnp.ones(3), lambda p, x: p @ jnp.append(x, 1.0), optax.sgd(0.0), 1, batch_size=4
    )
    estimator = sf.Storm(rest, rate=1e-12, forgetting=0.0, batch_size=4)
    data, outer = ridge_data(RIDGES[0]), jnp.asarray(OUTER)
    state = estimator.init(RIDGE_PROBLEM, outer, data, KEY)

    def again(state, key):
        estimate, state = estimator(RIDGE_PROBLEM, outer, state, data, key)
        return state, (estimate.gradient, state.direction.params)

    _, (gradients, directions) = jax.lax.scan(again, state, jax.random.split(KEY, 3))
    np.testing.assert_allclose(gradients, np.stack([gradients[0]] * 3), rtol=1e-8)
    np.testing.assert_allclose(directions, np.stack([directions[0]] * 3), rtol=1e-8)


def of_groups(ridge, outer, theta):
    """∂_λ g at fixed θ: ½ e^λ (v − y)², summed over the samples of each group."""
    v = np.stack([np.ones(len(ridge.x_in)), ridge.x_in[:, 0], np.sin(ridge.x_in[:, 1])], axis=1) @ theta
    each = 0.5 * np.exp(outer[ridge.group]) * (v - ridge.y_in) ** 2 / len(v)
    return np.array([each[ridge.group == group].sum() for group in range(3)])


def test_first_order_is_a_difference_of_two_fits():
    outers, gradients, y, z = [OUTER], [], np.zeros(3), np.zeros(3)
    for t, ridge in enumerate(RIDGES):
        outer, sigma = outers[-1], 5.0 * (1 + t) ** 0.5
        for _ in range(2):
            z = z - BETA * inner_slope(ridge, outer, z)
            y = y - BETA * (inner_slope(ridge, outer, y) + ridge.outer_slope_at(outer, y) / sigma)
        penalty = sigma * (of_groups(ridge, outer, y) - of_groups(ridge, outer, z))
        gradients.append(ridge.explicit_at(outer, y) + penalty)
        outers.append(outer - ALPHA * gradients[-1])
    final, trace = played(sf.FirstOrder(trained_linear(2, BETA), 5.0, growth=0.5))
    agrees((final, trace), outers, gradients)
    np.testing.assert_allclose(final.learner.estimator.inner.params, z, rtol=1e-10)
    np.testing.assert_allclose(final.learner.estimator.penalised.params, y, rtol=1e-10)
    np.testing.assert_allclose(trace.implicit_norm[-1], np.linalg.norm(penalty), rtol=1e-9)
    assert np.isnan(trace.adjoint_residual).all()


def test_first_order_with_exact_fits_is_wrong_by_one_over_the_penalty():
    """Three penalties as lanes."""
    trace = jax.jit(jax.vmap(lambda penalty: played(sf.FirstOrder(linear(), penalty))[1]))(jnp.asarray([1e2, 1e3, 1e4]))
    exact = RIDGES[0].hypergradient(OUTER)
    errors = np.linalg.norm(trace.gradient[:, 0] - exact, axis=1) / np.linalg.norm(exact)
    assert errors[2] < 1e-3
    np.testing.assert_allclose(errors[:2] / errors[1:], 10, rtol=0.1)
    assert bool(trace.converged.all())


def test_storm_begins_anew_where_the_data_do_not_allow_for_the_point_before():
    """Otherwise θ and v would stand still for ever, and λ would go on."""
    data, outer = ridge_data(RIDGES[0]), jnp.asarray(OUTER)

    @jax.jit
    def call(state, forgetting):
        return sf.Storm(trained_linear(1, BETA), 0.6, forgetting)(RIDGE_PROBLEM, outer, state, data, KEY)

    state = sf.Storm(trained_linear(1, BETA), 0.6, 0.3).init(RIDGE_PROBLEM, outer, data, KEY)
    for _ in range(2):
        _, state = call(state, 0.3)
    previous = state.previous._replace(params=jax.tree.map(lambda leaf: jnp.nan * leaf, state.previous.params))
    estimate, following = call(state._replace(previous=previous), 0.3)
    expected, alone = call(state, 1.0)
    np.testing.assert_allclose(estimate.gradient, expected.gradient, rtol=1e-12)
    np.testing.assert_allclose(following.inner.params, alone.inner.params, rtol=1e-12)
    np.testing.assert_array_equal(following.previous.params, state.inner.params)
    assert int(following.rounds) == 3


def test_first_order_says_when_the_pulled_function_is_not_fitted():
    """z is exact from the start, y is not: not converged."""
    estimator = sf.FirstOrder(trained_linear(1, 0.5), 1.0)
    data, outer = ridge_data(RIDGES[0]), jnp.asarray(OUTER)
    state = estimator.init(RIDGE_PROBLEM, outer, data, KEY)
    exact = state.inner._replace(params=jnp.asarray(RIDGES[0].solution(OUTER)))
    estimate, _ = jax.jit(lambda state: estimator(RIDGE_PROBLEM, outer, state, data, KEY))(state._replace(inner=exact))
    assert float(estimate.inner_residual) < 1e-10
    assert not bool(estimate.converged)


def reevaluated(window, discount, *, refit=False, filled=False):
    """One θ that makes two steps on each new round, or one for every round that is kept; the systems are solved."""
    outers, gradients, kept, theta = [OUTER], [], [], np.zeros(3)
    for ridge in RIDGES:
        outer = outers[-1]
        kept = [(ridge, theta), *kept][:window]
        fresh = []
        for old, start in kept:
            if refit or old is ridge:
                for _ in range(2):
                    start = start - BETA * inner_slope(old, outer, start)
            fresh.append((old, start if refit or old is ridge else fresh[0][1]))
        kept, theta = fresh, fresh[0][1]
        each = [
            hypergradient_at(
                old, outer, fitted, np.linalg.solve(old.system(outer)[0], old.outer_slope_at(outer, fitted))
            )
            for old, fitted in kept
        ]
        weights = discount ** np.arange(window)
        total = weights[: len(each)].sum() if filled else weights.sum()
        gradients.append(sum(weight * g for weight, g in zip(weights, each, strict=False)) / total)
        outers.append(outer - ALPHA * gradients[-1])
    return outers, gradients, theta


def exact_solves():
    return sf.Implicit(trained_linear(2, BETA), sf.ConjugateGradient(tolerance=1e-14))


@pytest.mark.parametrize(
    ("window", "discount", "refit", "normalise"),
    [
        (3, 0.7, False, "window"),
        pytest.param(4, 1.0, False, "filled", marks=pytest.mark.thorough),
        (3, 0.7, True, "filled"),
        pytest.param(2, 1.0, True, "window", marks=pytest.mark.thorough),
    ],
)
def test_reevaluated_forms_every_hypergradient_of_the_window_at_the_current_outer_variable(
    window, discount, refit, normalise
):
    outers, gradients, theta = reevaluated(window, discount, refit=refit, filled=normalise == "filled")
    final, trace = played(sf.Reevaluated(exact_solves(), window, discount, refit=refit, normalise=normalise))
    agrees((final, trace), outers, gradients)
    np.testing.assert_allclose(final.learner.estimator.inner.params, theta, rtol=1e-10)


def test_windows_of_reevaluated_can_be_vmapped():
    def lane(window, discount):
        return played(sf.Reevaluated(exact_solves(), window, discount, capacity=4))[1]

    windows, discounts = (1, 2, 3, 5, 0), (1.0, 1.0, 0.7, 0.9, 0.9)
    lanes = jax.jit(jax.vmap(lane))(jnp.asarray(windows), jnp.asarray(discounts))
    for i in range(3):
        outers, gradients, _ = reevaluated(windows[i], discounts[i])
        np.testing.assert_allclose(lanes.outer[i], outers[:ROUNDS], rtol=1e-10)
        np.testing.assert_allclose(lanes.gradient[i], gradients, rtol=1e-10)
    assert not lanes.finite[3:].any()  # no memory for five rounds, and no window of none


def test_a_window_of_one_is_the_estimator_alone():
    _, plain = played(exact_solves())
    _, trace = played(sf.Reevaluated(exact_solves(), 1))
    for one, other in zip(jax.tree.leaves(trace), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_the_newest_round_says_is_what_is_reported():
    """Losses and residuals of the newest round; on data that stay, also the gradient of the estimator alone."""
    stays = jax.tree.map(lambda leaf: jnp.stack([leaf] * ROUNDS), ridge_data(RIDGES[0]))
    _, plain = played(sf.Functional(linear(), linear()), source=stays)
    _, trace = played(sf.Reevaluated(sf.Functional(linear(), linear()), 3, normalise="filled"), source=stays)
    for name in ("gradient", "outer_loss", "inner_loss", "explicit_norm", "implicit_norm", "converged"):
        np.testing.assert_allclose(getattr(trace, name), getattr(plain, name), rtol=1e-9, err_msg=name)


def test_reevaluated_remembers_the_losses_themselves():
    """Losses that change from round to round: ℓ_out has a centre c_t, and g̃_t = λ_t − mean of the last three c."""

    def centred(centre):
        return sf.Problem(lambda outer, v, x, y: 0.5 * (v - outer) ** 2, Centre(centre))

    samples = sf.Samples(jnp.ones((2, 1)), jnp.zeros(2))
    centres = np.random.default_rng(3).normal(size=ROUNDS)

    def source(round, key):
        return sf.Round(sf.Data(samples, samples), centred(jnp.asarray(centres)[round]))

    inner = sf.Linear(lambda x: x)
    estimator = sf.Reevaluated(sf.Functional(inner, inner), 3, refit=True, normalise="filled")
    _, trace = played(estimator, outer=0.5, problem=centred(jnp.zeros(())), source=source)
    outer = 0.5
    for t in range(ROUNDS):
        np.testing.assert_allclose(trace.outer[t], outer, rtol=1e-10)
        outer -= ALPHA * (outer - centres[max(0, t - 2) : t + 1].mean())


@pytest.mark.parametrize("refit", [False, True])
def test_an_earlier_round_that_is_not_finite_any_more_costs_one_round(refit):
    """h* = λ, and the losses of the first three rounds end at λ = 0.5, which λ passes on its way to −1."""
    x, one = jnp.ones((4, 1)), sf.Linear(lambda x: x)
    problem = sf.Problem(
        inner_loss=lambda outer, v, x, y: (v - outer) ** 2,
        outer_loss=lambda outer, v, x, y: (v + 1) ** 2 + 1e-9 * jnp.sqrt(v - y),
    )

    def source(round, key):
        samples = sf.Samples(x, jnp.full(4, jnp.where(round < 3, 0.5, -9.0)))
        return sf.Data(samples, samples)

    algorithm = sf.Online(problem, sf.Reevaluated(sf.Functional(one, one), 3, refit=refit), optax.sgd(0.1))
    final, outers = sf.run(
        algorithm, source, jnp.asarray(1.0), rounds=8, key=jax.random.key(0), record=lambda state, info: info.outer
    )
    expected = [1.0]
    for t in range(8):  # λ is below 0.5 from t = 3 on: that round is skipped, and the first three never count again
        count = [1, 2, 3, 0, 2, 3, 3, 3][t]
        expected.append(expected[-1] - 0.1 * 2 * (expected[-1] + 1) * count / 3)
    assert min(expected[:3]) > 0.5 > expected[3]
    np.testing.assert_allclose(outers, expected[:8], atol=1e-8)
    assert int(final.learner.skipped) == 1


def test_reevaluated_refuses_losses_that_close_over_what_changes():
    """Nothing would be kept of the c that they close over: earlier rounds would get the newest loss, without a word."""
    samples, inner = sf.Samples(jnp.ones((2, 1)), jnp.zeros(2)), sf.Linear(lambda x: x)

    def centred(centre):
        return sf.Problem(lambda outer, v, x, y: (v - outer) ** 2, lambda outer, v, x, y: (v - centre) ** 2)

    def start(estimator, centres):
        rounds = [sf.Round(sf.Data(samples, samples), centred(each)) for each in centres]
        return played(estimator, outer=0.5, problem=centred(0.0), source=rounds, rounds=len(rounds))

    functional = sf.Functional(inner, inner)
    for kept in (functional, sf.Reevaluated(functional, 1)):
        assert bool(start(kept, [1.0, 2.0])[1].finite.all())
    start(sf.Reevaluated(functional, 2), [0.0, 0.0])  # made again, and the same
    for centres in ([1.0], [jnp.ones(())]):
        with pytest.raises(TypeError, match=r"make what changes a field of an equinox.Module"):
            start(sf.Reevaluated(functional, 2), centres)


class Centre(eqx.Module):
    centre: jax.Array

    def __call__(self, outer, v, x, y):
        return 0.5 * (v - self.centre) ** 2


LARGE = RECORDED._replace(outer=RECORDED.outer._replace(x=RECORDED.outer.x.at[2, :, 0].multiply(1e300)))


def test_a_round_that_overflows_does_not_spoil_the_rounds_after_it():
    """Its data and its fits are finite, its hypergradient is not: it is skipped, and never used again."""
    source = RECORDED._replace(final=LARGE)
    _, trace = played(sf.Reevaluated(exact_solves(), 3, refit=True), source=source)
    assert trace.finite.tolist() == [t != 2 for t in range(ROUNDS)]
    assert np.isfinite(trace.outer).all()


def test_a_round_that_storm_skips_might_as_well_not_have_been():
    """θ's direction is finite there, but all three belong to one point: none moves, and the memory stays."""
    storm = sf.Storm(trained_linear(1, BETA), 0.6, 0.3)
    _, trace = played(storm, source=LARGE)
    _, without = played(
        storm, source=jax.tree.map(lambda leaf: jnp.delete(leaf, 2, axis=0), RECORDED), rounds=ROUNDS - 1
    )
    assert trace.finite.tolist() == [t != 2 for t in range(ROUNDS)]
    np.testing.assert_allclose(np.delete(trace.outer, 2, axis=0), without.outer, rtol=1e-12)
    np.testing.assert_allclose(np.delete(trace.inner_loss, 2), without.inner_loss, rtol=1e-12)


def test_no_part_of_a_first_state_shares_its_memory_with_another():
    """So that it can be donated."""
    for estimator in (
        sf.SingleLoop(trained_linear(1), 0.1),
        sf.Storm(trained_linear(1), 0.1, 0.5),
        sf.FirstOrder(trained_linear(1), 2.0),
        sf.Reevaluated(exact_solves(), 3),
    ):
        state = sf.Online(RIDGE_PROBLEM, estimator, optax.adam(0.1)).init(OUTER, ridge_data(RIDGES[0]), KEY)
        places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state) if leaf.size]
        assert len(places) == len(set(places)), estimator


@pytest.mark.usefixtures("as_users_call")
def test_what_they_refuse():
    network = trained_linear(1)
    for make, error, message in (
        (lambda: sf.SingleLoop(network, 0.0), ValueError, r"rate must be a number in \(0, inf\]"),
        (lambda: sf.SingleLoop(network, 0.1, batch_size=0), ValueError, "batch_size must be an integer >= 1"),
        (lambda: sf.Storm(linear(), 0.1, 0.5), TypeError, "inner must be a Network, .* got a Linear"),
        (lambda: sf.Storm(trained_linear(3), 0.1, 0.5), ValueError, "steps=1, got steps=3"),
        (lambda: sf.Storm(network, 0.1, 1.5), ValueError, r"forgetting must be a number in \[0, 1\]"),
        (lambda: sf.FirstOrder(network, 0.0), ValueError, r"penalty must be a number in \(0, inf\]"),
        (lambda: sf.FirstOrder(network, 1.0, growth=-1), ValueError, "growth must be a number in"),
        (lambda: sf.Reevaluated(network, 3), TypeError, "estimator must be Implicit, .* got a Network"),
        (lambda: sf.Reevaluated(sf.Unrolled(network), 3), TypeError, "or any with refit=True, got a Unrolled"),
        (lambda: sf.Reevaluated(exact_solves(), 0), ValueError, "window must be an integer >= 1"),
        (lambda: sf.Reevaluated(exact_solves(), 5, capacity=4), ValueError, "window must be a number in"),
        (lambda: sf.Reevaluated(exact_solves(), 5, 2.0), ValueError, "discount must be a number in"),
        (lambda: sf.Reevaluated(exact_solves(), 5, normalise="none"), ValueError, "normalise must be 'window' or"),
        (lambda: sf.ConjugateGradient(tolerance=0.0), ValueError, "tolerance must be a number in"),
    ):
        with pytest.raises(error, match=message):
            make()
