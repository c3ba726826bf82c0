"""The loop: prefixes, resuming, seeds, skipped rounds, vmapped numbers, one compilation."""

import functools
import io
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, marked, phi, ridge_data, trained_linear
from reference import Ridge, windowed_means

import smoothfbo as sf
from smoothfbo.testbeds import DriftingRegression, Sinusoidal

PROJECT = optax.projections.projection_non_negative


@functools.cache
def regression():
    return DriftingRegression(Sinusoidal(), inputs=2, lags=4, batch=8, key=jax.random.key(5))


def network(steps=2):
    optimiser = optax.sgd(1e-2, momentum=0.9)
    return sf.Network(lambda key: eqx.nn.MLP(2, 1, 6, 1, jnp.tanh, key=key), optimiser, steps, batch_size=4)


ESTIMATORS = {
    "functional, network": lambda: sf.Functional(network(), network(), batch_size=8),
    "functional, linear": lambda: sf.Functional(
        sf.Linear(lambda x: x, prediction=jnp.zeros(1), ridge=0.1), sf.Linear(lambda x: x, ridge=0.1)
    ),
    "functional, features": lambda: sf.Functional(
        network(), lambda module: sf.Linear(sf.last_hidden(module), ridge=0.1)
    ),
    "functional, corrected": lambda: sf.Functional(
        network(),
        sf.Linear(lambda x: x, ridge=0.1),
        correction=sf.FittedCorrection(lambda module: sf.Linear(sf.last_hidden(module), ridge=0.1)),
    ),
    "replayed": lambda: sf.Replayed(ESTIMATORS["functional, linear"](), 3, own=ESTIMATORS["functional, linear"]()),
    "implicit, conjugate gradients": lambda: sf.Implicit(network(), sf.ConjugateGradient(ridge=0.1)),
    "unrolled": lambda: sf.Unrolled(network()),
    "implicit, Neumann": lambda: sf.Implicit(network(), sf.NeumannSeries(terms=3, step=0.1)),
    "implicit, identity": lambda: sf.Implicit(network(), sf.IdentityInverse()),
    "explicit": lambda: sf.Explicit(network()),
    "single loop": lambda: sf.SingleLoop(network(1), 0.1),
    "storm": lambda: sf.Storm(network(1), 0.1, 0.5, batch_size=4),
    "first order": lambda: sf.FirstOrder(network(), 10.0, growth=0.1),
    "re-evaluated": lambda: sf.Reevaluated(ESTIMATORS["functional, linear"](), 3, 0.9, refit=True),
}


@functools.cache
def online(name="functional, network", window=5, rate=0.5):
    optimiser = optax.chain(sf.window_average(window), optax.sgd(rate))
    return sf.Online(regression().problem(), ESTIMATORS[name](), optimiser, PROJECT)


RESIDUALS = dict.fromkeys(("inner_residual", "adjoint_residual", "converged"))  # gradients that only they need


def leaves_equal(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def without_residuals(state, info):
    return info._replace(gradient=None, **RESIDUALS)


def through_a_file(state, like):
    """Plain arrays, nothing pickled."""
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, state)
    file.seek(0)
    return eqx.tree_deserialise_leaves(file, like)


FURTHER = (
    "functional, corrected",
    "functional, features",
    "functional, linear",
    "implicit, conjugate gradients",
    "implicit, Neumann",
    "implicit, identity",
    "explicit",
    "single loop",
    "first order",
    "storm",
    "unrolled",
    "re-evaluated",
)


@pytest.mark.parametrize("name", marked(ESTIMATORS, FURTHER))
def test_runs_resume_can_be_vmapped_and_predict(name, key):
    """Twelve rounds, as one of three lanes of one program, are six rounds and six more after a file."""
    algorithm, source = online(name), regression().source()
    run, keys = partial(sf.run, algorithm, source, record=without_residuals), jax.random.split(key, 3)
    middle, head = run(jnp.ones(4), rounds=6, key=keys[1])
    fresh = sf.start(algorithm, source, jnp.full(4, 0.5), jax.random.key(99))
    _, tail = run(rounds=6, state=through_a_file(middle, fresh))
    _, lanes = jax.jit(jax.vmap(lambda key: run(jnp.ones(4), rounds=12, key=key)))(keys)
    for field in ("outer", "outer_loss", "smoothed_norm"):
        one = np.concatenate([getattr(head, field), getattr(tail, field)])
        np.testing.assert_allclose(getattr(lanes, field)[1], one, rtol=1e-8, atol=1e-12, err_msg=field)
    assert bool(lanes.finite.all())
    assert np.ptp(lanes.outer_loss[1]) > 0
    assert len(np.unique(lanes.outer_loss[:, 0])) == 3

    # predictions are those of the inner function: of a batch and of one input, by the state of a run and of the learner
    x = jax.random.normal(key, (5, 2))
    inner = one = algorithm.estimator.inner.bind(middle.learner.estimator.inner.params)
    if name == "functional, corrected":
        weights = middle.learner.estimator.correction.params
        one = lambda x: inner(x) + weights @ sf.last_hidden(inner)(x)  # noqa: E731
    if name == "replayed":  # the window's or the newest round's, whichever predicts better
        warm = middle.learner.estimator
        chosen = (warm.window, warm.own)[int(np.argmin(warm.losses))]
        one = algorithm.estimator.inner.bind(chosen.inner.params)
    expected = np.stack([one(row) for row in x])
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(algorithm.predict(middle, x), expected, rtol=1e-10)
    np.testing.assert_array_equal(algorithm.predict(middle.learner, x), algorithm.predict(middle, x))
    np.testing.assert_allclose(algorithm.predictor(middle)(x[2]), expected[2], rtol=1e-12)
    np.testing.assert_allclose(algorithm.predictor(middle.learner)(x[2]), expected[2], rtol=1e-12)
    states = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), middle)
    lanes = jax.jit(jax.vmap(lambda state: algorithm.predict(state, x)))(states)
    np.testing.assert_allclose(lanes[1], expected, rtol=1e-10)


@pytest.mark.parametrize(
    "name", marked(("functional, network", "implicit, conjugate gradients"), ("implicit, conjugate gradients",))
)
def test_runs_are_prefixes_and_resume_to_the_same_bits(name, key):
    algorithm, source = online(name), regression().source()
    run = partial(sf.run, algorithm, source, record=without_residuals)
    final, trace = run(jnp.ones(4), rounds=12, key=key)
    middle, head = run(jnp.ones(4), rounds=6, key=key)
    assert leaves_equal(head, jax.tree.map(lambda leaf: leaf[:6], trace))
    fresh = sf.start(algorithm, source, jnp.full(4, 0.5), jax.random.key(99))
    resumed, tail = run(rounds=6, state=through_a_file(middle, fresh))
    assert leaves_equal(tail, jax.tree.map(lambda leaf: leaf[6:], trace))
    assert leaves_equal(resumed, final)


def test_seeds_differ_in_initialisation_and_in_data(key):
    algorithm, source = online(), regression().source()
    one, other = (sf.start(algorithm, source, jnp.ones(4), k) for k in jax.random.split(key))
    for a, b in zip(
        jax.tree.leaves((one.learner.estimator.inner.params, one.learner.estimator.adjoint.params)),
        jax.tree.leaves((other.learner.estimator.inner.params, other.learner.estimator.adjoint.params)),
        strict=True,
    ):
        assert not np.array_equal(a, b)
    assert not np.array_equal(one.source.x, other.source.x)
    assert not np.array_equal(one.source.y, other.source.y)
    assert not np.array_equal(one.key, other.key)
    # inner and adjoint do not share their initialisation either
    inner, adjoint = one.learner.estimator[:2]
    assert not np.array_equal(jax.tree.leaves(inner.params)[0], jax.tree.leaves(adjoint.params)[0])


def test_numeric_hyper_parameters_can_be_vmapped(key):
    """Outer and inner rates, window, discount, ridge, drift and noise in one program, each lane as if alone."""

    def lane(outer_rate, inner_rate, window, mix, ridge, frequency, noise):
        testbed = DriftingRegression(
            Sinusoidal(frequency=frequency), inputs=2, lags=4, batch=8, noise=noise, key=jax.random.key(5)
        )
        inner = sf.Network(lambda key: eqx.nn.MLP(2, 1, 6, 1, jnp.tanh, key=key), optax.sgd(inner_rate), 2)
        adjoint = sf.Linear(lambda x: x, ridge=ridge)
        smooth = sf.mixed_average(mix, sf.window_average(window, capacity=4))
        algorithm = sf.Online(
            regression().problem(),
            sf.Functional(inner, adjoint),
            optax.chain(smooth, optax.sgd(outer_rate)),
            PROJECT,
        )
        return sf.run(algorithm, testbed.source(), jnp.ones(4), rounds=6, key=key)[1]

    numbers = (
        jnp.array([0.1, 1.0, 2.0]),
        jnp.array([1e-2, 1e-1, 1e-3]),
        jnp.array([1, 2, 4]),
        jnp.array([0.0, 0.5, 1.0]),
        jnp.array([1e-3, 1e-2, 1e-1]),
        jnp.array([0.05, 0.5, 1.0]),
        jnp.array([0.1, 0.3, 0.0]),
    )
    traces, alone = jax.jit(jax.vmap(lane))(*numbers), jax.jit(lane)
    for i in range(3):
        single = alone(*(number[i] for number in numbers))
        np.testing.assert_allclose(traces.outer[i], single.outer, rtol=1e-9)
        np.testing.assert_allclose(traces.smoothed_norm[i], single.smoothed_norm, rtol=1e-9)
    assert len(np.unique(traces.outer[:, -1, 0])) == 3


def test_one_compilation_per_run_whatever_the_rounds(key):
    """The losses are traced a fixed number of times for one program, and not again for another run of it."""
    traces = []

    def counting(outer, v, x, y):
        traces.append(1)
        return jnp.sum((v - y["target"]) ** 2)

    problem = sf.Problem(regression().problem().inner_loss, counting)
    algorithm = sf.Online(problem, ESTIMATORS["functional, linear"](), optax.sgd(0.1))
    source = regression().source()
    sf.run(algorithm, source, jnp.ones(4), rounds=4, key=key)
    first = len(traces)
    assert first > 0
    init = len(traces)
    sf.start(algorithm, source, jnp.ones(4), key)
    per_init = len(traces) - init  # shapes are checked when a run starts
    before = len(traces)
    sf.run(algorithm, source, jnp.ones(4), rounds=4, key=jax.random.key(8))
    assert len(traces) - before == per_init
    sf.run(algorithm, source, jnp.ones(4), rounds=400, key=key)
    assert len(traces) - before <= first + per_init


def test_live_steps_equal_the_compiled_run(key):
    """init/step from ordinary Python, fed with the same data, are the run; no recompilation after round one."""
    traces = []

    def counting(outer, v, x, y):
        traces.append(1)
        return RIDGE_PROBLEM.inner_loss(outer, v, x, y)

    problem = sf.Problem(counting, RIDGE_PROBLEM.outer_loss)
    rounds = [ridge_data(Ridge.draw(seed)) for seed in range(6)]
    recorded = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds)
    algorithm = sf.Online(
        problem,
        sf.Functional(trained_linear(3, batch_size=7), linear(), batch_size=9),
        optax.chain(sf.window_average(3), optax.adam(0.1)),
    )
    _, trace = sf.run(algorithm, recorded, jnp.zeros(3), rounds=6, key=key)

    state = algorithm.init(jnp.zeros(3), rounds[0], jax.random.split(key, 3)[0])
    for t, data in enumerate(rounds):
        state, info = algorithm.step(state, data)
        np.testing.assert_allclose(info.outer, trace.outer[t], rtol=1e-10)
        np.testing.assert_allclose(info.smoothed_norm, trace.smoothed_norm[t], rtol=1e-10)
        assert int(info.round) == t
        if t == 0:
            after_first = len(traces)
    assert len(traces) == after_first


def test_trace_records_what_was_played_and_used(key):
    """λ before the update; raw and smoothed gradients; SGD moves by the smoothed one, then projects."""
    algorithm = online("functional, linear", window=3, rate=0.7)
    _, trace = sf.run(
        algorithm, regression().source(), jnp.ones(4), rounds=15, key=key, record=lambda state, info: info
    )
    np.testing.assert_array_equal(trace.outer[0], np.ones(4))
    np.testing.assert_allclose(trace.smoothed, windowed_means(trace.gradient, 3), rtol=1e-10, atol=1e-14)
    moved = np.maximum(trace.outer[:-1] - 0.7 * trace.smoothed[:-1], 0)
    np.testing.assert_allclose(trace.outer[1:], moved, rtol=1e-12)
    np.testing.assert_allclose(trace.gradient_norm, np.linalg.norm(trace.gradient, axis=1), rtol=1e-12)
    np.testing.assert_allclose(trace.smoothed_norm, np.linalg.norm(trace.smoothed, axis=1), rtol=1e-12)
    np.testing.assert_array_equal(trace.round, np.arange(15))
    assert trace.explicit_norm.max() == 0  # the outer loss of this problem does not contain λ
    np.testing.assert_allclose(trace.implicit_norm, trace.gradient_norm)


def test_every_round_draws_its_own_mini_batches(key):
    """The same data and λ in every round: the estimates differ because their mini-batches do, and so do the data."""
    data = ridge_data(Ridge.draw(2))
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(linear(), linear(), batch_size=5), optax.set_to_zero())
    _, trace = sf.run(algorithm, sf.RepeatedSource(data), jnp.zeros(3), rounds=20, key=key)
    assert len(np.unique(trace.gradient_norm)) == 20
    seen = sf.Online(None, sf.Oracle(lambda outer, data, key: data * outer), optax.set_to_zero())
    _, trace = sf.run(seen, lambda t, k: jax.random.normal(k), jnp.ones(1), rounds=20, key=key)
    assert len(np.unique(trace.gradient_norm)) == 20


def test_window_one_equals_no_smoothing_in_a_run(key):
    source = regression().source()
    algorithm = online("functional, linear", window=1)
    _, smooth = sf.run(algorithm, source, jnp.ones(4), rounds=10, key=key)
    plain = sf.Online(regression().problem(), algorithm.estimator, optax.sgd(0.5), PROJECT)
    _, raw = sf.run(plain, source, jnp.ones(4), rounds=10, key=key)
    np.testing.assert_array_equal(smooth.outer, raw.outer)


def test_a_stationary_source_converges_to_the_offline_solution(key):
    """The same data every round: λ reaches the point where the exact hypergradient of NumPy vanishes."""
    ridge = Ridge.draw(21)
    data = ridge_data(ridge)
    for hypergradient in (
        sf.Functional(trained_linear(5), trained_linear(5)),
        sf.Implicit(trained_linear(5), sf.ConjugateGradient(tolerance=1e-12)),
    ):
        algorithm = sf.Online(
            RIDGE_PROBLEM,
            hypergradient,
            optax.chain(sf.window_average(5, normalise="filled"), optax.sgd(0.3)),
        )
        final, trace = sf.run(algorithm, sf.RepeatedSource(data), jnp.zeros(3), rounds=3000, key=key)
        assert np.linalg.norm(ridge.hypergradient(np.asarray(final.learner.outer))) < 1e-8
        np.testing.assert_allclose(trace.outer_loss[-1], ridge.objective(np.asarray(final.learner.outer)))


@pytest.mark.usefixtures("as_users_call")
def test_what_cannot_be_predicted(key):
    oracle = sf.Online(estimator=sf.Oracle(lambda outer, data, key: outer), optimiser=optax.sgd(0.1))
    state = oracle.init(jnp.ones(2), jnp.zeros(()), key)
    for predict in (lambda: oracle.predict(state, jnp.ones((3, 2))), lambda: oracle.predictor(state)):
        with pytest.raises(TypeError, match="Oracle has no inner function, so there is nothing to predict with"):
            predict()
    algorithm = online("functional, linear")
    final = sf.start(algorithm, regression().source(), jnp.ones(4), key)
    with pytest.raises(ValueError, match=r"the inner function cannot be evaluated at x=.*\[3\]"):
        algorithm.predict(final, jnp.ones((5, 3)))
    with pytest.raises(ValueError, match="x is a scalar; its first axis must be the samples"):
        algorithm.predict(final, 1.0)


def test_a_function_of_the_user_may_bring_the_problem_of_the_round(key):
    """The same as a source with a state that does."""
    samples = sf.Samples(jnp.ones((3, 2)), jnp.ones(3))

    def with_problem(round, key):
        centre = 1.0 + round.astype(float)
        return sf.Round(
            sf.Data(samples, samples), sf.Problem(Target(centre), lambda outer, v, x, y: 0.5 * (v - y) ** 2)
        )

    algorithm = sf.Online(
        sf.Problem(Target(jnp.ones(())), lambda outer, v, x, y: 0.5 * (v - y) ** 2),
        sf.Functional(sf.Linear(lambda x: x[:1]), sf.PointwiseAdjoint()),
        optax.sgd(0.01),
    )
    _, trace = sf.run(algorithm, with_problem, jnp.asarray(0.2), rounds=5, key=key)
    outer = 0.2
    for t in range(5):
        np.testing.assert_allclose(trace.outer[t], outer, rtol=1e-10)
        outer -= 0.01 * (1 + t) * ((1 + t) * outer - 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_round_that_is_not_finite_is_skipped_and_counted(bad, key):
    """λ stays, the warm start survives, the next round goes on as if the optimiser had seen a zero gradient."""
    rounds = [ridge_data(Ridge.draw(seed)) for seed in range(5)]
    poisoned = rounds[2]._replace(inner=rounds[2].inner._replace(x=rounds[2].inner.x.at[3, 0].set(bad)))
    for hypergradient in (
        sf.Functional(trained_linear(3), trained_linear(3)),
        sf.Implicit(trained_linear(3)),
    ):
        algorithm = sf.Online(RIDGE_PROBLEM, hypergradient, optax.chain(sf.window_average(4), optax.sgd(0.5)))
        state = algorithm.init(jnp.zeros(3), rounds[0], key)
        infos = []
        for data in (rounds[0], rounds[1], poisoned, rounds[3], rounds[4]):
            before = state
            state, info = algorithm.step(state, data)
            infos.append(info)
            if data is poisoned:
                np.testing.assert_array_equal(state.outer, before.outer)
                np.testing.assert_array_equal(state.estimator.inner.params, before.estimator.inner.params)
        assert [bool(info.finite) for info in infos] == [True, True, False, True, True]
        assert int(state.skipped) == int(infos[-1].skipped) == 1
        raw = np.stack([np.where(info.finite, info.gradient, 0) for info in infos])
        np.testing.assert_allclose(
            np.stack([info.smoothed for info in infos]), windowed_means(raw, 4), rtol=1e-9, atol=1e-15
        )
        assert np.isfinite(state.outer).all()


def test_an_exploding_gradient_does_not_freeze_adaptive_optimisers(key):
    """1e25 is finite in float32, its square is not: the round is skipped rather than Adam's memory destroyed."""
    spike = jnp.array([1.0, 1e25, 1.0, 1.0], jnp.float32)
    oracle = sf.Oracle(lambda outer, data, key: data * jnp.ones_like(outer))
    algorithm = sf.Online(None, oracle, optax.adam(0.1))
    final, trace = sf.run(algorithm, spike, jnp.zeros(2, jnp.float32), rounds=4, key=key)
    assert trace.finite.tolist() == [True, False, True, True]
    assert (final.learner.outer < trace.outer[-1]).all()


def test_a_gradient_whose_norm_overflows_is_skipped(key):
    """1.5e19 and its square are finite in float32, the sum of two such squares is not."""
    spike = jnp.array([1.0, 1.5e19, 1.0], jnp.float32)
    oracle = sf.Oracle(lambda outer, data, key: data * jnp.ones_like(outer))
    algorithm = sf.Online(None, oracle, optax.adam(0.1))
    _, trace = sf.run(algorithm, spike, jnp.zeros(2, jnp.float32), rounds=3, key=key)
    assert trace.finite.tolist() == [True, False, True]


def test_inner_training_goes_on_while_the_adjoint_fails(key):
    """A linear system that cannot be solved costs the outer update, not the inner fit."""
    data = ridge_data(Ridge.draw(1))
    broken = sf.Linear(lambda x: jnp.zeros(2, x.dtype))  # singular: no ridge
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(trained_linear(1), broken), optax.sgd(0.1))
    state = algorithm.init(jnp.zeros(3), data, key)
    for _ in range(3):
        before = state
        state, info = algorithm.step(state, data)
        assert not bool(info.finite)
        assert not np.array_equal(state.estimator.inner.params, before.estimator.inner.params)
        assert np.isfinite(state.estimator.adjoint.params).all()


@pytest.mark.parametrize(
    "project",
    [
        lambda outer: optax.projections.projection_box(outer, jnp.zeros(4), jnp.full(4, 1.1)),
        optax.projections.projection_simplex,
        lambda outer: optax.projections.projection_l2_ball(outer, 1.5),
        PROJECT,
    ],
)
def test_projections_keep_the_outer_variable_in_its_set(project, key):
    noise = sf.Oracle(lambda outer, data, key: jax.random.normal(key, outer.shape))
    algorithm = sf.Online(estimator=noise, optimiser=optax.sgd(5.0), project=project)
    with jax.numpy_dtype_promotion("standard"):  # optax's own projections need it
        start = project(jnp.ones(4))
        _, trace = sf.run(algorithm, lambda t, key: t, start, rounds=20, key=key)
        np.testing.assert_allclose(jax.jit(jax.vmap(project))(trace.outer), trace.outer, atol=1e-9)
    assert np.ptp(trace.outer, axis=0).max() > 0.05


class Target(eqx.Module):
    """An inner loss with a part that changes from round to round."""

    centre: jax.Array

    def __call__(self, outer, v, x, y):
        return 0.5 * (v - self.centre * outer) ** 2 + 0.0 * (x[0] + y)


class MovingTarget(sf.AbstractSource):
    """A source that brings the problem of each round with it, and looks at the learner."""

    def init(self, key):
        samples = sf.Samples(jnp.ones((3, 2)), jnp.ones(3))
        return jnp.zeros(()), sf.Data(samples, samples)

    def __call__(self, state, round, learner, key):
        samples = sf.Samples(jnp.ones((3, 2)), jnp.ones(3))
        problem = sf.Problem(Target(1.0 + state), lambda outer, v, x, y: 0.5 * (v - y) ** 2)
        return learner.outer, sf.Round(sf.Data(samples, samples), problem)


def test_the_problem_itself_may_change_from_round_to_round(key):
    """h* = c·λ, so ∇F = c (cλ − 1), with c = 1 + the λ of the round before: a closed-form recursion."""
    algorithm = sf.Online(
        sf.Problem(Target(jnp.ones(())), lambda outer, v, x, y: 0.5 * (v - y) ** 2),
        sf.Functional(sf.Linear(lambda x: x[:1]), sf.PointwiseAdjoint()),
        optax.sgd(0.1),
    )
    _, trace = sf.run(algorithm, MovingTarget(), jnp.asarray(0.2), rounds=8, key=key)
    outer, previous = 0.2, 0.0
    for t in range(8):
        np.testing.assert_allclose(trace.outer[t], outer, rtol=1e-10)
        centre = 1.0 + previous
        outer, previous = outer - 0.1 * centre * (centre * outer - 1), outer


def test_what_is_not_recorded_is_not_computed(key):
    """The adjoint residual costs an extra gradient per round; leaving it out removes it from the program."""
    algorithm, source = online("functional, linear"), regression().source()
    state = sf.start(algorithm, source, jnp.ones(4), key)

    def operations(record):
        run = jax.jit(lambda state: sf.run(algorithm, source, rounds=3, state=state, record=record))
        return run.lower(state).compile().cost_analysis()["flops"]

    few = operations(lambda state, info: info.outer)
    # each residual is two gradients, and nothing else needs them
    assert few < 0.99 * operations(lambda state, info: (info.outer, info.adjoint_residual))
    assert few < 0.99 * operations(lambda state, info: (info.outer, info.inner_residual))


@pytest.mark.parametrize(
    "algorithm",
    [
        sf.Online(RIDGE_PROBLEM, sf.Functional(linear(), linear()), optax.chain(sf.window_average(4), optax.adam(0.1))),
        sf.smooth_fbo(RIDGE_PROBLEM, linear(), window=3),
    ],
    ids=["window", "smooth_fbo"],
)
def test_states_can_be_donated_from_the_first_round_on(algorithm, key):
    """As the docstring of step says, for windows too large to copy."""
    data = ridge_data(Ridge.draw(3))
    outer = jnp.zeros(3)
    donated = algorithm.init(outer, data, key)
    kept = algorithm.init(outer, data, key)
    step = jax.jit(lambda state, data: algorithm.step(state, data), donate_argnums=0)
    for _ in range(3):
        donated, _ = step(donated, data)
        kept, _ = algorithm.step(kept, data)
    np.testing.assert_allclose(donated.outer, kept.outer, rtol=1e-12)
    np.testing.assert_array_equal(outer, 0)  # the user's array is not the state's


def test_weakly_typed_variables_do_not_compile_twice(key):
    traces = []

    def counting(outer, data, key):
        traces.append(1)
        return {"rate": outer["rate"] * data}

    algorithm = sf.Online(None, sf.Oracle(counting), optax.sgd(0.1))
    state = algorithm.init({"rate": jnp.asarray(0.5)}, jnp.asarray(1.0), key)
    for _ in range(3):
        state, _ = algorithm.step(state, jnp.asarray(1.0))
    assert len(traces) == 2  # the check of shapes, and one compilation


def test_networks_whose_initialisation_looks_at_the_input_can_be_vmapped(key):
    """Flax and Haiku run the network on x to find its shapes; scales of an initialisation may be vmapped, too."""

    scales, keys = jnp.array([0.1, 1.0]), jax.random.split(key, 2)

    def lane(key, scale):
        def init(key, x):
            return scale * jax.random.normal(key, x.shape) + 0 * x

        pair = sf.Network.from_pair(init, lambda params, x: params @ x, optax.sgd(0.01), 1)
        module = sf.Network(lambda key: Scaled(key, scale), optax.sgd(0.01), 1)
        algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(pair, module), optax.sgd(0.1))
        return sf.start(algorithm, sf.RepeatedSource(ridge_data(Ridge.draw(3))), jnp.zeros(3), key).learner.estimator

    lanes = jax.jit(jax.vmap(lane))(keys, scales)
    for i in range(2):
        single = lane(keys[i], scales[i])
        np.testing.assert_allclose(lanes.inner.params[i], single.inner.params, rtol=1e-12)
        np.testing.assert_allclose(lanes.adjoint.params.weight[i], single.adjoint.params.weight, rtol=1e-12)


class Scaled(eqx.Module):
    weight: jax.Array

    def __init__(self, key, scale):
        self.weight = scale * jax.random.normal(key, (2,))

    def __call__(self, x):
        return self.weight @ x


def test_a_recorded_source_never_repeats_its_last_round(key):
    """Traced or not: too many rounds are refused when a run starts, and skipped when one is resumed inside jit."""
    recorded = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), ridge_data(Ridge.draw(4)))
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(linear(), linear()), optax.sgd(0.1))
    with pytest.raises(ValueError, match="rounds=7 after 0 rounds done, but the recorded source has 2"):
        jax.jit(lambda key: sf.run(algorithm, recorded, jnp.zeros(3), rounds=7, key=key))(key)
    state = sf.start(algorithm, recorded, jnp.zeros(3), key)
    _, trace = jax.jit(lambda state: sf.run(algorithm, recorded, rounds=4, state=state))(state)
    assert trace.finite.tolist() == [True, True, False, False]


@pytest.mark.parametrize("weight", [None, np.array([[True, True, False]] * 2), np.array([[2, 1, 0]] * 2)])
def test_a_recorded_source_of_integers_never_repeats_its_last_round(key, weight):
    """They have no NaN that could stand past the end."""
    recorded = sf.Data(*[sf.Samples(np.array([[0, 1, 0], [1, 1, 0]]), np.array([[1, 0, 3], [2, 1, 3]]), weight)] * 2)
    table = sf.Linear(lambda x: jax.nn.one_hot(x, 2), ridge=0.1)
    problem = sf.Problem(
        lambda outer, v, x, y: jnp.exp(outer) * (v - y.astype(v.dtype)) ** 2 + v**2,
        lambda outer, v, x, y: (v - y.astype(v.dtype)) ** 2,
    )
    algorithm = sf.Online(problem, sf.Functional(table, table), optax.sgd(0.1))
    state = sf.start(algorithm, recorded, jnp.zeros(()), key)
    final, trace = jax.jit(lambda state: sf.run(algorithm, recorded, rounds=4, state=state))(state)
    assert trace.finite.tolist() == [True, True, False, False]
    parts = [jax.tree.map(lambda leaf, t=t: leaf[t], recorded) for t in range(2)]  # as live data: nothing has changed
    live, _ = sf.run(algorithm, iter(parts), jnp.zeros(()), key=key)
    np.testing.assert_allclose(final.learner.outer, live.learner.outer, rtol=1e-12)


def test_an_infeasible_start_is_projected_before_it_is_played(key):
    algorithm = sf.Online(
        RIDGE_PROBLEM, sf.Functional(linear(), linear()), optax.sgd(0.1), lambda outer: jnp.maximum(outer, 1.0)
    )
    state = algorithm.init(jnp.zeros(3), ridge_data(Ridge.draw(5)), key)
    np.testing.assert_array_equal(state.outer, 1.0)


def test_half_precision_gradients_whose_squares_overflow_are_skipped(key):
    """300² is infinite in float16, where Adam keeps its squares."""
    spikes = jnp.array([1.0, 300.0, 1.0, 1.0], jnp.float16)
    algorithm = sf.Online(None, sf.Oracle(lambda outer, data, key: data * jnp.ones_like(outer)), optax.adam(0.1))
    final, trace = sf.run(algorithm, spikes, jnp.zeros(2, jnp.float16), rounds=4, key=key)
    assert trace.finite.tolist() == [True, False, True, True]
    assert (final.learner.outer < trace.outer[-1]).all()


def test_float32_models_with_float64_numbers(key):
    """Vmapped numbers are float64 arrays in an x64 session; the model stays what it is."""
    data = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf, ridge_data(Ridge.draw(6))
    )

    def initial(key, x):
        return jnp.zeros(3, jnp.float32)

    def lane(ridge, step):
        family = sf.Linear(phi, prediction=jnp.zeros((), jnp.float32), ridge=ridge)
        for hypergradient in (
            sf.Functional(family, family),
            sf.Implicit(family, sf.NeumannSeries(terms=4, step=step)),
            sf.Implicit(family, sf.ConjugateGradient(ridge=ridge)),
            sf.SingleLoop(family, step),
            sf.Storm(sf.Network.from_pair(initial, lambda p, x: p @ phi(x), optax.sgd(step), 1), step, ridge),
            sf.FirstOrder(family, 1 / ridge, growth=ridge),
            sf.Reevaluated(sf.Functional(family, family), 3, ridge),
        ):
            outer = jnp.zeros(3, jnp.float32)
            state = hypergradient.init(RIDGE_PROBLEM, outer, data, key)
            estimate, _ = hypergradient(RIDGE_PROBLEM, outer, state, data, key)
            assert estimate.gradient.dtype == jnp.float32
        return estimate.gradient

    assert np.isfinite(jax.jit(jax.vmap(lane))(jnp.array([0.1, 1.0]), jnp.array([0.1, 0.2]))).all()
