"""Replay: the hypergradient of the joined data of the last rounds, at the current λ."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, marked, ridge_data
from reference import Ridge, features, outer_loss

import smoothfbo as sf
from smoothfbo.hypergradients import change, paired, span, wild

PLAIN = sf.Functional(linear(), linear())
SGD = optax.sgd(0.1)
OUTER = np.array([0.3, -0.2, 0.1])
RIDGES = [Ridge.draw(seed) for seed in range(9)]
DATA = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(ridge_data(ridge) for ridge in RIDGES))


def joined(rounds):
    """One round with the data of several: rounds, or their numbers."""
    parts = [RIDGES[each] if isinstance(each, int) else each for each in rounds]
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("x_in", "y_in", "group", "x_out", "y_out")
    }
    return dataclasses.replace(RIDGES[0], **arrays)


def everything(state, info):
    return info


def infos(estimator, key, data=DATA):
    """The end of a run that moves λ, and what is known of its rounds."""
    algorithm = sf.Online(RIDGE_PROBLEM, estimator, SGD)
    return sf.run(algorithm, data, jnp.asarray(OUTER), rounds=9, key=key, record=everything)


@eqx.filter_jit
def call(estimator, state, data, key, outer=OUTER):
    """Compiled once for all tests with estimators and data of the same form."""
    return estimator(RIDGE_PROBLEM, jnp.asarray(outer), state, data, key)


@pytest.mark.parametrize("window", marked((3, 4), (3,)))
def test_the_gradient_is_that_of_the_joined_data(window, key):
    """Beyond the second time round the ring; λ moves, so old data are judged at the new λ."""
    _, info = infos(sf.Replayed(PLAIN, window), key)
    for t in range(window - 1, 9):
        expected = joined(range(t - window + 1, t + 1)).hypergradient(np.asarray(info.outer[t]))
        np.testing.assert_allclose(info.gradient[t], expected, rtol=1e-9)
    # before: the rounds that there are, newest first, and again from the newest
    expected = joined([1, 0, 1, 0][:window]).hypergradient(np.asarray(info.outer[1]))
    np.testing.assert_allclose(info.gradient[1], expected, rtol=1e-9)


def test_a_window_of_one_is_the_estimator_itself(key):
    for one, other in zip(infos(sf.Replayed(PLAIN, 1), key)[1], infos(PLAIN, key)[1], strict=True):
        np.testing.assert_array_equal(one, other)


DAMPING = 0.7


def own_estimator():
    return sf.Functional(linear().damped(DAMPING), linear().damped(DAMPING))


def held(matrix, vector, start):
    """Minimises ½wᵀAw − bᵀw + ½ δ m ‖w − start‖², m = trace(A)/p."""
    weight = DAMPING * np.trace(matrix) / len(matrix)
    return np.linalg.solve(matrix + weight * np.eye(len(matrix)), vector + weight * start)


def refined(window, newest, outer):
    """Inner function and adjoint of the newest round, held at those of the window, and their hypergradient."""
    system = newest.system(outer)
    theta = held(*system, window.solution(outer))
    adjoint = held(system[0], -newest.outer_slope_at(outer, theta), window.adjoint(outer))
    return theta, newest.explicit_at(outer, theta) + newest.cross_at(outer, theta, adjoint)


def test_the_rounds_own_estimator_begins_at_the_fits_of_the_window(key):
    """Both candidates and inner functions, by NumPy; and predictions by the one that predicts new rounds better."""
    estimator, outer, chosen = sf.Replayed(PLAIN, 4, own=own_estimator()), OUTER, []
    for drift in (0.0, 3.0):  # where nothing drifts the window predicts better, else the newest round
        ridges = [
            dataclasses.replace(ridge, y_in=ridge.y_in + drift * t, y_out=ridge.y_out + drift * t)
            for t, ridge in enumerate(RIDGES)
        ]
        state = estimator.init(RIDGE_PROBLEM, jnp.zeros(3), ridge_data(ridges[0]), key)
        losses, thetas = None, np.zeros((2, 3))
        for t, newest in enumerate(ridges):
            v = features(newest.x_out) @ thetas.T
            new = np.mean(outer_loss(outer, v, newest.y_out[:, None]), axis=0)
            losses = new if losses is None else 0.9 * losses + 0.1 * new
            estimate, state = call(estimator, state, ridge_data(newest), key)
            window = joined([ridges[t - i % min(t + 1, 4)] for i in range(4)])
            theta, gradient = refined(window, newest, outer)
            thetas = np.stack([window.solution(outer), theta])
            judge = dataclasses.replace(window, x_out=newest.x_out, y_out=newest.y_out).hypergradient(outer)
            np.testing.assert_allclose(estimate.candidates.directions, (judge, gradient), rtol=1e-8)
            np.testing.assert_array_equal(estimate.candidates.judge, estimate.candidates.directions[0])
            np.testing.assert_array_equal(estimate.gradient, estimate.candidates.directions[1])
        np.testing.assert_allclose(state.inner.params, thetas[0], rtol=1e-9)
        np.testing.assert_allclose(state.own.inner.params, thetas[1], rtol=1e-9)
        np.testing.assert_allclose(state.losses, losses, rtol=1e-9)
        chosen.append(int(np.argmin(losses)))
        x = np.array([[0.5, 0.1], [1.0, 2.0]])
        predicted = sf.batched(estimator.predictor(state))(jnp.asarray(x))
        np.testing.assert_allclose(predicted, features(x) @ thetas[chosen[-1]], rtol=1e-9)
        np.testing.assert_allclose(estimator.predictor(state)(jnp.asarray(x[1])), predicted[1], rtol=1e-12)
    assert chosen == [0, 1]


def test_how_much_the_last_move_has_lost(key):
    """The windows of two rounds on the outer samples of the second, each function with its own λ; by NumPy."""
    estimator, outers = sf.Replayed(PLAIN, 4, own=own_estimator()), [OUTER, OUTER + 0.5, OUTER]
    state = estimator.init(RIDGE_PROBLEM, jnp.asarray(OUTER), ridge_data(RIDGES[0]), key)
    old, found = None, []
    for t, outer in enumerate(outers):
        newest = RIDGES[t]
        estimate, state = call(estimator, state, ridge_data(newest), key, outer)
        window = joined([t - i % (t + 1) for i in range(4)])

        def losses(outer, theta, newest=newest):
            return outer_loss(outer, features(newest.x_out) @ theta, newest.y_out)

        new = losses(outer, window.solution(outer))
        if old is not None:
            lost = new - losses(*old)
            is_sure = np.mean(lost) > 3 * np.std(lost) / np.sqrt(len(lost))
            found.append(float(estimate.candidates.lost))
            np.testing.assert_allclose(found[-1], np.mean(lost) if is_sure else 0, rtol=1e-8)
        old = outer, window.solution(outer)
    assert min(found) == 0 < max(found), found


@pytest.mark.parametrize(("shift", "is_sure"), [(3.9, True), (3.7, False), (-3.9, False)])
def test_losses_are_compared_with_weights(shift, is_sure):
    """Differences of 1 + shift and −2 + shift with weights 1 and 2, and one that does not count: their mean is shift
    − 1, and its standard error √(2² + 2² (−1)²)/3 for deviations of 2 and −1. The functions differ by 1, and λ by 1."""
    y = jnp.array([1.0, 100.0, -2.0]) + shift - 4
    samples = sf.Samples(jnp.zeros(3), y, jnp.array([1.0, 0.0, 2.0]))
    problem = sf.Problem(lambda *_: 0.0, lambda outer, v, x, y: v * y + outer * v)
    now, before = (jnp.asarray(2.0), lambda x: x + 2), (jnp.asarray(0.0), lambda x: x + 1)
    np.testing.assert_allclose(paired.surely_lost(problem, now, before, samples), shift - 1 if is_sure else 0)


def test_final_samples_are_those_of_the_terms(key):
    """With `Data.final` the fits see the data, and both terms of the judge are formed on the final samples: the inner
    ones of the window, the outer ones of the newest round."""
    estimator = sf.Replayed(PLAIN, 2, own=own_estimator())
    outer, rounds, finals = OUTER, RIDGES[:4], RIDGES[4:8]
    data = [ridge_data(ridge)._replace(final=ridge_data(final)) for ridge, final in zip(rounds, finals, strict=True)]
    state = estimator.init(RIDGE_PROBLEM, jnp.zeros(3), data[0], key)
    for t in range(1, 4):
        _, state = call(estimator, state, data[t - 1], key)
        estimate, _ = call(estimator, state, data[t], key)
        fitted, terms = (
            dataclasses.replace(joined(each[t - 1 : t + 1]), x_out=each[t].x_out, y_out=each[t].y_out)
            for each in (rounds, finals)
        )
        theta, adjoint = fitted.solution(outer), fitted.adjoint(outer)
        expected = terms.explicit_at(outer, theta) + terms.cross_at(outer, theta, adjoint)
        np.testing.assert_allclose(estimate.candidates.judge, expected, rtol=1e-8)
        assert np.linalg.norm(expected - fitted.hypergradient(outer)) > 0.01 * np.linalg.norm(expected)


def cosine(one, other):
    return one @ other / (np.linalg.norm(one) * np.linalg.norm(other))


def learns_span():
    return sf.Replayed(PLAIN, 6, own=own_estimator(), learns_span=True)


def weighted(data, samples=40):
    """Of the inner samples so many count."""
    return data._replace(inner=data.inner._replace(weight=(jnp.arange(40) < samples).astype(float)))


@pytest.mark.parametrize("mean", [0.2, -0.2])
def test_the_span_is_that_of_the_formula(mean, key):
    """How many rounds are used, by NumPy: from gradients of each round alone, of half of the window and of all."""
    estimator, outer = learns_span(), OUTER
    ridges = [dataclasses.replace(ridge, y_in=ridge.y_in * (-1) ** (t // 2)) for t, ridge in enumerate(RIDGES)]
    state = estimator.init(RIDGE_PROBLEM, jnp.zeros(3), weighted(ridge_data(ridges[0])), key)
    length, before, lengths = 4.4, None, []
    square, first = 0.1, mean  # as if the newer half had led, or the whole
    told = {"span": length, "lead": mean, "square": square}
    state = state._replace(span=state.span._replace(**{name: jnp.asarray(value) for name, value in told.items()}))
    for t, newest in enumerate(ridges):
        used = min(t + 1, round(length))

        def judge(rounds, t=t, newest=newest):
            window = joined([ridges[t - i % rounds] for i in range(6)])
            return dataclasses.replace(window, x_out=newest.x_out, y_out=newest.y_out).hypergradient(outer)

        half, whole, alone = judge(max(used // 2, 1)), judge(used), newest.hypergradient(outer)
        estimate, state = call(estimator, state, weighted(ridge_data(newest)), key)
        np.testing.assert_allclose(estimate.candidates.directions[0], whole, rtol=1e-8)
        np.testing.assert_array_equal(estimate.candidates.judge, estimate.gradient)
        lead = 0.0 if before is None else cosine(alone, before[0]) - cosine(alone, before[1])
        mean, square = 0.9 * mean + 0.1 * lead, 0.9 * square + 0.1 * lead**2
        is_clear = mean > 1.5 * np.sqrt(square / 19)
        length = min(max(length * np.exp(-0.2 * mean if is_clear else 0.005), 1.0), 6.0)
        before = half, whole
        lengths.append(length)
        np.testing.assert_allclose(state.span.span, length, rtol=1e-8)
    assert (np.diff(lengths) < 0).all() == (first > 0)


def test_a_round_that_does_not_determine_its_fit_does_not_judge(key):
    """The inner samples of one round that count are fewer than what is fitted: the judge is that of the window."""
    estimator, few = learns_span(), [weighted(ridge_data(ridge), 3) for ridge in RIDGES[:3]]
    state = estimator.init(RIDGE_PROBLEM, jnp.zeros(3), few[0], key)
    for data in few:
        estimate, state = call(estimator, state, data, key)
    np.testing.assert_array_equal(estimate.candidates.judge, estimate.candidates.directions[0])
    assert not np.array_equal(estimate.candidates.judge, estimate.gradient)


def test_a_span_has_bounds_and_some_rounds_leave_it():
    """Those that do not count, and those with gradients that are not finite or too large to be squared."""
    one, other = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
    learn = jax.jit(lambda state, alone, counts: span.learn_span(state, 6, alone, one, other, counts))
    state = span.whole_window(6, one)
    for expected in (0.0, 0.1):
        state = learn(state, one, jnp.asarray(True))
        np.testing.assert_allclose(state.lead, expected)
        assert state.span == 6  # no clear lead yet, and no more rounds
    unlike = state._replace(half=1e200 * one), state._replace(whole=jnp.nan * other)
    for before, alone, counts in (
        (state, one, False),
        (state, jnp.nan * one, True),
        (state, 1e200 * one, True),
        *((each, one, True) for each in unlike),
    ):
        after = learn(before, alone, jnp.asarray(counts))
        np.testing.assert_array_equal(after[:3], state[:3])
    for _ in range(30):
        state = learn(state, one, jnp.asarray(True))
    assert state.span == 1


def test_which_rounds_determine_a_fit():
    """(Σ tr H)²/Σ tr H² predictions that count, against 1.25 parameters. A squared loss with d outputs and weights c
    has d (Σ c)²/Σ c², a softmax of two classes one for each sample whose class is not certain."""
    determines_fit = jax.jit(span.determines_fit, static_argnums=(0, 4))
    problem = sf.Problem(lambda outer, v, x, y: y * jnp.sum((v - outer) ** 2), lambda outer, v, x, y: jnp.sum(v**2))
    weights = np.array([1.0, 2.0, 0.5, 3.0, 0.0])
    counted = 2 * weights.sum() ** 2 / (weights**2).sum()
    values, x = jnp.ones((5, 2)), jnp.zeros((5, 1))
    for samples in (
        sf.Samples(x, jnp.asarray(weights)),
        sf.Samples(x, jnp.ones(5), jnp.asarray(weights)),  # the same as weights of the samples
    ):
        for parameters, expected in ((int(counted / 1.25), True), (int(counted / 1.25) + 1, False)):
            found = determines_fit(problem, jnp.zeros(()), values, samples, parameters)
            assert bool(found) is expected
    softmax = sf.Problem(
        lambda outer, v, x, y: outer * optax.softmax_cross_entropy_with_integer_labels(v, y), problem.outer_loss
    )
    labels = sf.Samples(x, jnp.zeros(5, int))
    assert determines_fit(softmax, jnp.ones(()), values, labels, 4)
    assert not determines_fit(softmax, jnp.ones(()), values, labels, 5)
    certain = values.at[1:, 0].set(20.0)  # of five samples four say nothing
    assert not determines_fit(softmax, jnp.ones(()), certain, labels, 1)
    assert not determines_fit(softmax, jnp.zeros(()), values, labels, 1)  # nothing counts


def page(gains, counts):
    """S_t and the rounds since it was 0, from the formula; the running mean and variance of the roots of the last 50
    gains that count."""
    mean = variance = total = 0.0
    known, since, found = 0, 0, []
    for gain, counted in zip(np.sign(gains) * np.sqrt(np.abs(gains)), counts, strict=True):
        is_known = known >= 20
        z = (gain - mean) / np.sqrt(variance) if is_known else 0.0
        total = max(0.0, total + z - 2.25)
        since = since + 1 if total > 0 else 0
        found.append((total > 3, since))
        if counted:
            value = min(gain, mean + 3 * np.sqrt(variance)) if is_known else gain
            known, old = min(known + 1, 50), mean
            mean += (value - mean) / known
            variance += ((value - old) * (value - mean) - variance) / known
        if total > 3:
            total, since = 0.0, 0
    return found


def test_changes_are_found_as_by_the_formula():
    """Gains with a small and a large jump, single outliers that are none, and one that is not a number."""
    gains = np.random.default_rng(0).gamma(4.0, size=160)
    gains[90] += 7.0  # about three deviations of the root: once is not enough
    gains[120:] += 10.0
    counts = np.arange(160) % 7 != 3
    expected = page(gains, counts)
    assert next(t for t, (changed, _) in enumerate(expected) if changed) in (121, 122, 123)

    def step(state, at):
        verdict, state = change.watch(state, *at)
        return state, verdict

    _, got = jax.lax.scan(step, change.no_change(), (jnp.asarray(gains), jnp.asarray(counts)))
    np.testing.assert_array_equal(got.changed, [changed for changed, _ in expected])
    np.testing.assert_array_equal(got.since, [since for _, since in expected])
    before, state = change.no_change(), change.watch(change.no_change(), jnp.asarray(jnp.nan), jnp.asarray(True))[1]
    for one, other in zip(before, state, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_window_begins_again_where_the_inner_problem_changes(key):
    """All of it in NumPy: the gains of the round's own fit, Page's test, the rounds that are left, and their fits."""
    estimator, outer = sf.Replayed(PLAIN, 4, own=own_estimator()), OUTER
    ridges = [Ridge.draw(seed) for seed in range(48)]
    for t in range(40, 48):
        ridges[t] = dataclasses.replace(ridges[t], y_in=ridges[t].y_in + 4, y_out=ridges[t].y_out + 4)
    state, length, lengths = estimator.init(RIDGE_PROBLEM, outer, ridge_data(ridges[0]), key), 0, []
    gains, counts = [], []
    for t, newest in enumerate(ridges):
        window = joined([ridges[t - i % min(length + 1, 4)] for i in range(4)])
        theta, gradient = refined(window, newest, outer)
        losses = [
            np.mean(0.5 * np.exp(outer[newest.group]) * (features(newest.x_in) @ each - newest.y_in) ** 2)
            for each in (window.solution(outer), theta)
        ]
        length = min(length + 1, 4)
        gains, counts = [*gains, losses[0] - losses[1]], [*counts, length == 4]
        changed, since = page(gains, counts)[-1]
        before = length
        length = min(length, since) if changed else length
        if changed:
            gradient = refined(joined([ridges[t - i % length] for i in range(4)]), newest, outer)[1]
        estimate, state = call(estimator, state, ridge_data(newest), key)
        np.testing.assert_allclose(estimate.gradient, gradient, rtol=1e-7)
        assert int(state.rounds) == length
        assert bool(estimate.candidates.changed) == (length < before)
        lengths.append(length)
    assert int(state.change.rounds) == sum(counts)
    assert lengths[3:40] == [4] * 37
    assert min(lengths[40:43]) < 4


@pytest.mark.parametrize("has_own", [True, False])
def test_a_round_that_is_not_finite_is_skipped_and_not_kept(has_own, key):
    """The round after it sees the rounds before it."""
    bad = DATA._replace(inner=DATA.inner._replace(x=DATA.inner.x.at[5, 3, 0].set(jnp.nan)))
    own = own_estimator() if has_own else None
    # From a function: a recording is refused at once.
    final, info = infos(sf.Replayed(PLAIN, 3, own=own), key, lambda t, key: jax.tree.map(lambda leaf: leaf[t], bad))
    np.testing.assert_array_equal(info.finite, np.arange(9) != 5)
    assert int(final.learner.skipped) == 1
    for t, rounds in {6: (3, 4, 6), 7: (4, 6, 7), 8: (6, 7, 8)}.items():
        window, outer = joined(rounds), np.asarray(info.outer[t])
        expected = refined(window, RIDGES[t], outer)[1] if has_own else window.hypergradient(outer)
        np.testing.assert_allclose(info.gradient[t], expected, rtol=1e-8)


def test_rows_that_belong_together_stay_together(key):
    """A point-wise adjoint needs inner and outer samples in the same rows: the judge has those of the round alone."""
    both = [ridge_data(ridge).inner for ridge in RIDGES[:2]]
    rounds = [sf.Data(samples, samples._replace(y=np.asarray(samples.x)[:, 0])) for samples in both]
    problem = sf.Problem(RIDGE_PROBLEM.inner_loss, lambda outer, v, x, y: 0.5 * (v - y) ** 2)
    plain = sf.Functional(linear(), sf.PointwiseAdjoint())
    outer, gradients = jnp.array([0.3, -0.2, 0.1]), []
    for estimator in (plain, sf.Replayed(plain, 2, own=plain)):

        @jax.jit
        def second(rounds, estimator=estimator):
            _, state = estimator(problem, outer, estimator.init(problem, outer, rounds[0], key), rounds[0], key)
            return estimator(problem, outer, state, rounds[1], key)[0]

        gradients.append(second(rounds))
    np.testing.assert_allclose(gradients[1].candidates.judge, gradients[0].gradient, rtol=1e-9)


@pytest.mark.usefixtures("as_users_call")
def test_bad_windows_and_data(key):
    estimator = sf.Functional(linear(), linear())
    for window in (0, 2.5, (1, 4), "3"):
        with pytest.raises((TypeError, ValueError), match="window"):
            sf.Replayed(estimator, window)
    for wrong in (3, sf.Oracle(lambda outer, data, key: outer), sf.Replayed(estimator, 2)):
        with pytest.raises(TypeError, match="estimator must be one such as"):
            sf.Replayed(wrong, 2)
        with pytest.raises(TypeError, match="own must be one such as"):
            sf.Replayed(estimator, 2, own=wrong)
    other = sf.Linear(lambda x: x, ridge=0.1)
    with pytest.raises(ValueError, match="own begins where the estimator ends"):
        sf.Replayed(estimator, 2, own=sf.Functional(other, other)).init(
            RIDGE_PROBLEM, jnp.zeros(3), ridge_data(RIDGES[0]), key
        )
    with pytest.raises(TypeError, match=r"Replayed keeps the samples of a smoothfbo\.Data"):
        sf.Replayed(estimator, 2).init(None, jnp.zeros(3), jnp.zeros(()), key)
    # rounds of other sizes would be mixed
    data, smaller = ridge_data(RIDGES[0]), jax.tree.map(lambda leaf: leaf[:7], ridge_data(RIDGES[1]))
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Replayed(estimator, 2), optax.sgd(0.1))
    state = algorithm.init(jnp.zeros(3), data, key)
    with pytest.raises(ValueError, match=r"Replayed needs rounds of one form.*\[40,2\].*\[7,2\]"):
        algorithm.step(state, smaller)


def test_features_of_old_rounds_are_not_computed_again(key):
    """Those of the new round alone, if inner and adjoint function share them."""

    def waves(x):
        return jnp.append(jnp.sin(x), 1.0)

    def shapes_of_sines(estimator):
        state = estimator.init(RIDGE_PROBLEM, jnp.zeros(3), ridge_data(RIDGES[0]), key)
        jaxpr = jax.make_jaxpr(lambda state, data: estimator(RIDGE_PROBLEM, jnp.zeros(3), state, data, key)[0].gradient)
        lines = str(jaxpr(state, ridge_data(RIDGES[1]))).splitlines()
        return {line.split(":")[1].split("=")[0].strip() for line in lines if " sin " in line}

    own, other = sf.Linear(waves, ridge=0.1), sf.Linear(lambda x: waves(x), ridge=0.1)
    assert shapes_of_sines(sf.Replayed(sf.Functional(own, own), 4)) == {"f64[40,2]", "f64[30,2]"}
    assert "f64[160,2]" in shapes_of_sines(sf.Replayed(sf.Functional(own, other), 4))


def test_an_adjoint_with_features_of_its_own_keeps_them(key):
    """The inner function's features are not taken for it: the same as on the joined data."""
    narrow = sf.Linear(lambda x: x, ridge=0.1)
    plain = sf.Functional(linear(), narrow)
    estimator, outer = sf.Replayed(plain, 2), jnp.array([0.3, -0.2, 0.1])
    old, new = ridge_data(RIDGES[0]), ridge_data(RIDGES[1])
    both = jax.tree.map(lambda *leaves: np.concatenate(leaves), new, old)

    @jax.jit
    def compare(old, new, both):
        state, plain_state = (each.init(RIDGE_PROBLEM, outer, old, key) for each in (estimator, plain))
        _, state = estimator(RIDGE_PROBLEM, outer, state, old, key)
        replayed, _ = estimator(RIDGE_PROBLEM, outer, state, new, key)
        return replayed.gradient, plain(RIDGE_PROBLEM, outer, plain_state, both, key)[0].gradient

    np.testing.assert_allclose(*compare(old, new, both), rtol=1e-9)


@pytest.mark.parametrize("in_a_row", [1, 2])
def test_a_round_whose_outer_samples_are_far_off_is_not_kept(key, in_a_row):
    """Estimates after it are those of a run without it. Two in a row are a change, and the second one is kept."""
    estimator = sf.Replayed(PLAIN, 4, own=own_estimator())

    def data_of(t):
        scale = 100.0 if 4 <= t < 4 + in_a_row else 1.0
        return ridge_data(dataclasses.replace(RIDGES[t], y_out=RIDGES[t].y_out * scale))

    def after(numbers):
        state, found = estimator.init(RIDGE_PROBLEM, jnp.asarray(OUTER), data_of(numbers[0]), key), []
        for t in numbers:
            estimate, state = call(estimator, state, data_of(t), key)
            found.append(np.asarray(estimate.gradient))
        return np.stack(found)

    seen, without = after(list(range(9))), after([0, 1, 2, 3, *range(4 + in_a_row, 9)])
    is_same = np.allclose(seen[4 + in_a_row :], without[4:], rtol=1e-9)
    assert is_same == (in_a_row == 1)


def test_when_a_round_is_far_off():
    state = wild.nothing_wild()
    wanted = [(1.0, False, 1.0), (-3.0, False, 1.2), (12.1, True, 1.2), (12.1, False, 2.29), (jnp.nan, False, 2.29)]
    for loss, is_wild, usual in [*wanted, (22.0, False, 4.261), (43.0, True, 4.261), (jnp.inf, False, 4.261)]:
        found, state = wild.judge_round(state, jnp.asarray(loss))
        assert found == is_wild
        np.testing.assert_allclose(state.usual, usual)
