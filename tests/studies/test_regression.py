"""The regression experiment: its lanes, its measures against NumPy, its summary, its command line."""

import dataclasses
import functools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from small_regression import SMALL

import smoothfbo as sf
from smoothfbo import cli
from smoothfbo.hypergradients.base import Estimate
from smoothfbo.source import RoundNumbers
from smoothfbo.studies.regression import measure as regression_measure
from smoothfbo.studies.regression import program as regression
from smoothfbo.studies.regression import theory as regression_theory
from smoothfbo.studies.regression.lanes import Lane
from smoothfbo.studies.regression.methods import METHODS
from smoothfbo.studies.regression.presets import PRESETS
from smoothfbo.testbeds.weighting import shares


@pytest.fixture(autouse=True, scope="module")
def single_precision():
    """The experiment runs in float32."""
    with jax.enable_x64(False):
        yield


@pytest.fixture(scope="module")
def measured(single_precision):
    """A small run of everything but the files."""
    result = {}
    for program in regression.programs(SMALL):
        start, advance = jax.jit(jax.vmap(program.start)), jax.jit(jax.vmap(program.advance))
        state, chunks = start(program.numbers), []
        for _ in range(program.chunks):
            state, records = advance(program.numbers, state)
            chunks.append(records)
        records = {name: np.concatenate([np.asarray(c[name]) for c in chunks], axis=1) for name in chunks[0]}
        result[program.name] = (program, records, regression_measure.measure(SMALL, program, records))
    return result


def find(measured, method, window=1, seed=0):
    """The lane's records and its rows of the two tables."""
    for program, records, tables in measured.values():
        for index, keys in enumerate(program.lanes):
            if (keys["method"], keys["window"], keys["seed"]) == (method, window, seed):
                own = {name: values[index] for name, values in records.items()}
                rounds, lanes = (
                    table[(table["method"] == method) & (table["window"] == window) & (table["seed"] == seed)]
                    for table in (tables.tables["metrics"], tables.tables["lanes"])
                )
                return Lane(**keys), own, rounds, lanes.iloc[0]
    raise AssertionError((method, window, seed))


def fine_grid():
    axis = np.arange(-7, 7, 0.2)  # exact to many digits: the error of a sum over a Gaussian falls exponentially
    x = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    density = np.exp(-np.sum(x**2, axis=1) / 2)
    return x, density / density.sum()


class Reference:
    """F_t and its gradient in NumPy float64: own drift, own sigmoid, own quadrature, gradient by differences."""

    def __init__(self, lane):
        testbed = regression_measure.testbed_of_lane(SMALL, lane)
        self.weight, self.bias = np.asarray(testbed.weight, float), np.asarray(testbed.bias, float)
        self.x, self.probability = fine_grid()
        self.truth = functools.cache(self.truth)  # a hundred rounds are asked for at many λ

    def truth(self, time):
        shift = 2.0 * np.sin(0.3 * time)
        return 1 / (1 + np.exp(-(self.x @ (self.weight + shift) + self.bias + shift)))[:, 0]

    def excess(self, time, outer):
        past = sum(weight * self.truth(time - 1 - lag) for lag, weight in enumerate(outer)) / sum(outer)
        return self.probability @ (self.truth(time) - past) ** 2

    def gradient(self, time, outer):
        """Zero before the first round, as in the paper."""
        if time < 0:
            return np.zeros(len(outer))
        steps = 1e-4 * np.eye(len(outer))
        return np.array([(self.excess(time, outer + s) - self.excess(time, outer - s)) / 2e-4 for s in steps])


@pytest.mark.parametrize(("method", "window"), [("fbo", 1), ("smooth-fbo", 5), ("exact", 1)])
def test_measures_agree_with_numpy(measured, method, window):
    lane, records, rounds, _ = find(measured, method, window)
    reference = Reference(lane)
    outers = np.asarray(records["outer"], float)
    along = [reference.gradient(t, outers[t]) for t in range(24)]
    for t in (0, 3, 11, 23):
        row = rounds[rounds["round"] == t].iloc[0]
        np.testing.assert_allclose(row["excess"], reference.excess(t, outers[t]), rtol=1e-4)
        np.testing.assert_allclose(row["excess_newest"], reference.excess(t, np.array([1.0, 0, 0])), rtol=1e-4)
        np.testing.assert_allclose(row["exact_squared"], np.sum(along[t] ** 2), rtol=1e-3)
        target = sum(reference.gradient(t - i, outers[t]) for i in range(window)) / window
        common = sum(reference.gradient(t - i, outers[t]) for i in range(100)) / 100
        np.testing.assert_allclose(row["regret_100_squared"], np.sum(common**2), rtol=1e-3)
        np.testing.assert_allclose(row["regret_squared"], np.sum(target**2), rtol=1e-3)
        history = sum(along[t - i] for i in range(window) if t >= i) / window
        np.testing.assert_allclose(row["tracking_squared"], np.sum((history - target) ** 2), rtol=0.01, atol=1e-12)
        used, raw = (np.asarray(records[name][t], float) for name in ("used", "raw"))
        np.testing.assert_allclose(row["error_squared"], np.sum((used - target) ** 2), rtol=1e-3, atol=1e-12)
        for name, vector in (("used", used), ("raw", raw)):
            cosine = vector @ along[t] / np.linalg.norm(vector) / np.linalg.norm(along[t])
            np.testing.assert_allclose(row[f"cosine_{name}"], cosine, atol=2e-3)
            np.testing.assert_allclose(row[f"{name}_squared"], vector @ vector, rtol=1e-5)
        np.testing.assert_allclose([row[f"share_{lag}"] for lag in range(3)], outers[t] / outers[t].sum(), rtol=1e-5)
        np.testing.assert_allclose(row["shift"], 2 * np.sin(0.3 * t), rtol=1e-4, atol=1e-6)


def test_smoothing_averages_the_raw_gradients(measured):
    _, records, _, _ = find(measured, "smooth-fbo", 5)
    raw, used = (np.asarray(records[name], float) for name in ("raw", "used"))
    for t in range(24):
        np.testing.assert_allclose(used[t], raw[max(0, t - 4) : t + 1].sum(axis=0) / 5, rtol=1e-4, atol=1e-9)
    stepped = np.maximum(records["outer"][:-1] - 5.0 * used[:-1], 0)
    np.testing.assert_allclose(records["outer"][1:], stepped, rtol=1e-4)


def test_normalised_steps_have_the_length_of_the_rate():
    gradient = jnp.asarray([3.0, 4.0])
    for flag, expected in ((1.0, [0.6, 0.8]), (0.0, [3.0, 4.0])):
        transformation = regression.normalise_if(jnp.asarray(flag))
        got, _ = transformation.update(gradient, transformation.init(gradient), gradient)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    transformation = regression.normalise_if(jnp.ones(()))
    np.testing.assert_array_equal(transformation.update(0 * gradient, transformation.init(gradient), gradient)[0], 0.0)


def test_headlines_are_sums_and_late_means(measured):
    _, records, rounds, lane = find(measured, "smooth-fbo", 5)
    np.testing.assert_allclose(lane["proxy"], rounds["used_squared"].sum(), rtol=1e-5)
    np.testing.assert_allclose(rounds["proxy"].iloc[-1], lane["proxy"], rtol=1e-5)
    np.testing.assert_allclose(lane["regret"], rounds["regret_squared"].sum(), rtol=1e-5)
    np.testing.assert_allclose(lane["regret_1"], rounds["exact_squared"].sum(), rtol=1e-5)
    np.testing.assert_allclose(rounds["regret_1"].iloc[-1], lane["regret_1"], rtol=1e-5)
    np.testing.assert_allclose(lane["excess"], rounds["excess"].iloc[12:].mean(), rtol=1e-5)
    np.testing.assert_allclose(lane["excess_all"], rounds["excess"].mean(), rtol=1e-5)
    np.testing.assert_allclose(lane["variance"], records["used"][12:].astype(float).var(axis=0).sum(), rtol=1e-6)


def test_the_methods_are_what_they_are_called(measured):
    assert (find(measured, "uniform")[1]["outer"] == 1).all()
    _, _, rounds, _ = find(measured, "exact")
    np.testing.assert_allclose(rounds["cosine_raw"], 1.0, atol=1e-4)
    np.testing.assert_allclose(rounds["error_squared"], 0.0, atol=1e-10)
    _, uniform, _, _ = find(measured, "uniform")
    _, fbo, _, _ = find(measured, "fbo")
    np.testing.assert_array_equal(uniform["raw"][0], fbo["raw"][0])  # the same seed is the same problem
    np.testing.assert_array_equal(fbo["raw"], fbo["used"])


def test_fbo_is_the_library_without_smoothing(measured):
    """The lane of the vmapped program against a plain `sf.run` with no smoother in its chain."""
    lane, records, _, _ = find(measured, "fbo")
    numbers = jax.tree.map(lambda leaf: leaf[0], regression.numbers_of([lane]))
    testbed = regression.make_testbed(SMALL, lane.shape, numbers)
    algorithm = sf.Online(
        testbed.problem(),
        regression.make_estimator(SMALL, lane.shape, numbers, testbed),
        optax.sgd(lane.outer_rate),
        project=optax.projections.projection_non_negative,
    )
    key = jax.random.fold_in(jax.random.key(numbers.seed), 1)
    _, trace = sf.run(algorithm, testbed.source(), jnp.ones(3), rounds=24, key=key)
    np.testing.assert_allclose(records["outer"], trace.outer, rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(records["outer_loss"], trace.outer_loss, rtol=2e-3)


def test_seeds_differ_in_truth_data_and_initialisation(measured):
    lanes = [find(measured, "fbo", seed=seed) for seed in (0, 1)]
    testbeds = [regression_measure.testbed_of_lane(SMALL, lane) for lane, *_ in lanes]
    assert not np.allclose(testbeds[0].weight, testbeds[1].weight)
    assert lanes[0][1]["outer_loss"][0] != lanes[1][1]["outer_loss"][0]
    (program, *_) = next(entry for name, entry in measured.items() if name.startswith("fbo"))
    state = jax.jit(jax.vmap(program.start))(program.numbers)
    params = jax.tree.leaves(state.learner.estimator.inner.params)
    assert all((leaf[0] != leaf[1]).any() for leaf in params)
    assert (state.source.x[0] != state.source.x[1]).any()


class Shifted(sf.AbstractEstimator):
    """∇F plus a known bias and a known noise."""

    testbed: object
    bias: float
    noise: float

    def init(self, problem, outer, data, key):
        return ()

    def __call__(self, problem, outer, state, data, key):
        exact = self.testbed.gradient(data, outer)
        gradient = exact + self.bias + self.noise * jax.random.normal(key, exact.shape, exact.dtype)
        unknown = jnp.zeros(())
        return Estimate(gradient, None, None, unknown, unknown, unknown, unknown, jnp.asarray(True)), ()


def test_the_probe_tells_bias_from_noise():
    lane = next(SMALL.lanes())
    numbers = jax.tree.map(lambda leaf: leaf[0], regression.numbers_of([lane]))
    testbed = regression.make_testbed(SMALL, lane.shape, numbers)
    source = RoundNumbers()

    def one(key):
        algorithm = sf.Online(None, Shifted(testbed, 0.2, 0.5), optax.sgd(0.1))
        state = sf.start(algorithm, source, jnp.ones(3), key)
        return regression.probe(algorithm, source, testbed, state, 4)

    probed = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(3), 4_000))
    for name, expected in (("bias_given_past", 3 * 0.2**2), ("noise_given_past", 3 * 0.5**2)):
        assert abs(np.mean(probed[name]) - expected) < 5 * np.std(probed[name]) / np.sqrt(4_000)
    assert np.std(probed["bias_given_past"]) / np.sqrt(4_000) < 0.01


def test_bias_and_noise_given_the_fits_are_those_of_the_formula():
    """Networks that stay as they are drawn: G_t[s] = (1/L) E 2 (ĥ(x) − f_{t−1−s}(x)) â(x), by NumPy on a grid."""
    config = dataclasses.replace(SMALL, inner_steps=(1,), noise=0.4)
    lane = next(config.lanes())
    numbers = jax.tree.map(lambda leaf: leaf[0], regression.numbers_of([lane]))
    testbed = regression.make_testbed(config, lane.shape, numbers)
    fixed = sf.Network(lambda key: eqx.nn.MLP(2, 1, 8, 2, jax.nn.gelu, key=key), optax.sgd(0.0), 1, batch_size=4)
    algorithm = sf.Online(testbed.problem(), sf.Functional(fixed, fixed), optax.sgd(0.1))
    state = sf.start(algorithm, testbed.source(), jnp.asarray([1.0, 0.5, 2.0]), jax.random.key(5))
    # A small â, so that G_t and ∇F_t are of one size: the bias shows the sign of G_t then.
    warm = state.learner.estimator
    smaller = jax.tree.map(lambda leaf: 0.3 * leaf, warm.adjoint.params)
    warm = warm._replace(adjoint=warm.adjoint._replace(params=smaller))
    state = state._replace(learner=state.learner._replace(round=jnp.asarray(10, jnp.int32), estimator=warm))
    probed = jax.jit(lambda: regression.probe_given_fits(algorithm, testbed.source(), testbed, state, 4_000))()

    reference = Reference(lane)
    inner, adjoint = (
        np.asarray(jax.jit(jax.vmap(fixed.bind(each.params)))(reference.x), float)[:, 0]
        for each in (warm.inner, warm.adjoint)
    )
    products = np.stack([2 * (inner - reference.truth(9 - lag)) * adjoint for lag in range(3)])
    mean = products @ reference.probability / 3
    exact = reference.gradient(10, np.array([1.0, 0.5, 2.0]))
    np.testing.assert_allclose(probed["bias_given_fits"], np.sum((mean - exact) ** 2), rtol=0.02)
    second = (products**2 + (2 * 0.4 * adjoint) ** 2) @ reference.probability / 9
    np.testing.assert_allclose(probed["noise_given_fits"], np.sum(second - mean**2) / 8, rtol=0.05)  # batches of 8
    assert regression.probe_given_fits(algorithm, testbed.source(), testbed, state, 0) == {}


def test_final_batches_are_all_data_drawn_again_or_fresh():
    lane = next(SMALL.lanes())
    numbers = jax.tree.map(lambda leaf: leaf[0], regression.numbers_of([lane]))
    testbed = regression.make_testbed(dataclasses.replace(SMALL, noise=0.0), lane.shape, numbers._replace(noise=0.0))
    for final, size in (("all", None), ("drawn", 8), ("fresh", None)):
        config = dataclasses.replace(SMALL, final=final)
        for estimator in ("fbo", "aid", "unrolled"):
            shape = dataclasses.replace(lane.shape, estimator=estimator)
            assert regression.make_estimator(config, shape, numbers, testbed).batch_size == size
        source = regression.make_source(config, testbed)
        state, first = source.init(jax.random.key(0))
        _, (data, _) = source(state, jnp.asarray(5), None, jax.random.key(1))
        assert (data.final is None) == (first.final is None) == (final != "fresh")
    fresh = data.final
    assert jax.tree.map(jnp.shape, fresh) == jax.tree.map(jnp.shape, data._replace(final=None))
    assert not np.isin(fresh.inner.x, data.inner.x).any()
    np.testing.assert_array_equal(fresh.inner.y["lag"], np.repeat([0, 1, 2], 8))
    for part, times in ((fresh.inner, 4 - np.repeat([0, 1, 2], 8)), (fresh.outer, np.full(8, 5))):
        expected = jax.jit(jax.vmap(testbed.truth))(jnp.asarray(times), part.x)
        np.testing.assert_allclose(part.y["target"], expected, rtol=1e-6)


def test_options_of_a_lane_reach_its_program():
    config = dataclasses.replace(
        SMALL, methods=("fbo", "smooth-fbo"), weights=("log",), minibatch=("batch", "5", "full"), tied=True
    )
    lanes = list(config.lanes())
    assert {(lane.method, lane.lags) for lane in lanes} == {("fbo", 3), ("smooth-fbo", 5)}
    assert {lane.shape.samples_per_step for lane in lanes} == {8, 5, None}
    lane = next(lane for lane in lanes if lane.minibatch == "full" and lane.window == 5)
    numbers = jax.tree.map(lambda leaf: leaf[0], regression.numbers_of([lane]))
    testbed = regression.make_testbed(config, lane.shape, numbers)
    estimator = regression.make_estimator(config, lane.shape, numbers, testbed)
    assert estimator.inner.batch_size is estimator.adjoint.function.batch_size is None
    algorithm = regression.make_algorithm(config, lane.shape, numbers, testbed, 5)
    np.testing.assert_array_equal(algorithm.project(jnp.asarray([-1.0, 2.0])), [-1.0, 2.0])  # logarithms are free
    np.testing.assert_array_equal(testbed.initial(), np.zeros(5))
    outer = jnp.asarray([0.3, -1.0, 0.2, 0.0, 2.0])
    weights = np.exp(np.asarray(outer))
    np.testing.assert_allclose(shares(testbed.weighting, outer, 5), weights / weights.sum(), rtol=1e-6)


def test_every_method_of_every_kind_has_its_lanes():
    config = dataclasses.replace(SMALL, methods=METHODS, weights=("per-lag", "decay"), drift=("sinusoidal", "jumps"))
    lanes = list(config.lanes())
    assert len(lanes) == len(set(lanes)) == 2 * 2 * 2 * len(METHODS)
    assert all(lane.window == (5 if lane.method.startswith("smooth-") else 1) for lane in lanes)
    assert all((lane.outer_rate == 0) == (lane.method in ("uniform", "recommended")) for lane in lanes)
    assert len(regression.programs(config)) == 2 * 2 * 5
    crossed = dataclasses.replace(config, outer_rate=(1.0, 5.0), minibatch=("full", "batch"))
    recommended = [lane for lane in crossed.lanes() if lane.method == "recommended"]
    assert len(recommended) == 2 * 2 * 2  # once, whatever the rates and mini-batches of the others
    assert {lane.minibatch for lane in recommended} == {crossed.base["minibatch"]}


def test_the_recommended_lane_is_smooth_fbo_with_its_defaults():
    config = dataclasses.replace(SMALL, methods=("recommended",), seeds=1, probe_draws=2, chunk=6, rounds=6)
    (program,), (lane,) = regression.programs(config), config.lanes()
    numbers = jax.tree.map(lambda leaf: leaf[0], program.numbers)
    _, records = jax.jit(lambda numbers: program.advance(numbers, program.start(numbers)))(numbers)
    testbed = regression.make_testbed(config, lane.shape, numbers)
    network = sf.Network(
        lambda key: eqx.nn.MLP(2, 1, 8, 2, jax.nn.gelu, key=key), optax.adam(3e-3, eps_root=1e-12), 2, batch_size=8
    )
    algorithm = sf.smooth_fbo(testbed.problem(), network, project=optax.projections.projection_non_negative)
    key = jax.random.fold_in(jax.random.key(numbers.seed), 1)
    _, trace = sf.run(algorithm, testbed.source(), jnp.ones(3), rounds=6, key=key)
    np.testing.assert_allclose(records["outer"], trace.outer, rtol=2e-3, atol=1e-5)
    assert (np.asarray(trace.outer[-1]) != 1).any()


@pytest.mark.parametrize(
    ("estimator", "weights"), [("unrolled", "decay"), pytest.param("aid", "per-lag", marks=pytest.mark.thorough)]
)
def test_the_other_programs_run(estimator, weights):
    config = dataclasses.replace(
        SMALL, methods=(f"smooth-{estimator}",), weights=(weights,), drift=("jumps",), seeds=1, probe_draws=0, chunk=6,
        rounds=6,
    )  # fmt: skip
    (program,) = regression.programs(config)
    numbers = jax.tree.map(lambda leaf: leaf[0], program.numbers)
    _, records = jax.jit(lambda numbers: program.advance(numbers, program.start(numbers)))(numbers)
    outer = np.asarray(records["outer"])
    assert np.isfinite(outer).all()
    assert (outer[-1] != outer[0]).any()
    assert (outer >= 0).all()


def test_regimes_and_paper_values():
    config = dataclasses.replace(SMALL, sweep_rates=(1.0, 2.0), sweep_windows=(1, 5), paper_values=True)
    lanes = list(config.lanes())
    noisy = [lane for lane in lanes if lane.regime == "noisy"]
    assert {lane.method for lane in noisy} == {"fbo", "smooth-fbo"}
    assert all(lane.noise == pytest.approx(0.9) for lane in noisy)
    assert all(lane.frequency == pytest.approx(1.2) for lane in lanes if lane.regime == "fast")
    normalised = [lane for lane in lanes if lane.normalised]
    assert {(lane.regime, lane.outer_rate) for lane in normalised} == {("normalised", 0.001), ("normalised", 0.002)}
    paper = [lane for lane in lanes if lane.inner_rate == 1e-4]
    assert {(lane.method, lane.outer_rate) for lane in paper} == {("fbo", 1e-3), ("smooth-fbo", 1e-3)}


def test_presets_ask_for_what_they_promise():
    assert PRESETS["paper"].seeds >= 10
    assert set(PRESETS["paper"].methods) == set(METHODS)
    assert PRESETS["paper"].windows == (1, 5, 10, 50, 100, 250, 500)
    tuned = {lane.seed for lane in PRESETS["tune"].lanes()}
    for name in ("demo", "paper", "ablation"):
        assert not tuned & {lane.seed for lane in PRESETS[name].lanes()}


def test_summary_and_claims(measured):
    lanes = pd.concat([tables.tables["lanes"] for *_, tables in measured.values()], ignore_index=True)
    summary = regression_measure.summarise(SMALL, {"lanes": lanes})["summary"]
    json.dumps(summary, allow_nan=False)
    group = next(g for g in summary["groups"] if g["method"] == "smooth-fbo")
    values = lanes.loc[lanes["method"] == "smooth-fbo", "proxy"]
    np.testing.assert_allclose(group["metrics"]["proxy"]["mean"], values.mean())
    assert group["metrics"]["proxy"]["seeds"] == 2
    assert {claim["verdict"] for claim in summary["claims"]} <= {"holds", "fails", "open"}


def test_the_theorem_on_this_task(measured):
    """V₁, Q, L and the bound against NumPy: L by differences of the reference's gradient."""
    lane, records, _, row = find(measured, "smooth-fbo", 5)
    reference, outers = Reference(lane), np.asarray(records["outer"], float)

    def hessian(t):
        steps = 1e-3 * np.eye(3)
        return np.stack(
            [(reference.gradient(t, outers[t] + s) - reference.gradient(t, outers[t] - s)) / 2e-3 for s in steps]
        )

    np.testing.assert_allclose(row["curvature"], max(np.linalg.norm(hessian(t), 2) for t in range(24)), rtol=1e-3)
    lanes = pd.concat([tables.tables["lanes"] for *_, tables in measured.values()], ignore_index=True)
    entries = {entry["window"]: entry for entry in regression_theory.theorem_on_this_task(SMALL, lanes)}
    assert set(entries) == {1, 5}
    own = regression_theory._of_lane(SMALL, row.to_dict())
    testbed = regression_measure.testbed_of_lane(SMALL, lane)
    changes, largest = np.asarray(testbed.suprema(24), float), float(testbed.objective_bound(24))
    np.testing.assert_allclose(own["variation_1"], changes.sum(), rtol=1e-5)
    np.testing.assert_allclose(own["variation_0.5"], changes[:11].sum(), rtol=1e-5)
    bound = 2 / 5.0 * (2 * 24 * largest / 5 + changes.sum()) + row["error"]
    np.testing.assert_allclose(own["bound"], bound, rtol=1e-5)
    np.testing.assert_allclose(own["step_times_smoothness_times_window"], 5.0 * row["curvature"] * 5, rtol=1e-6)
    assert own["regret"] <= own["bound"]
    assert entries[5]["step_allowed"] == (5.0 * lanes.loc[lanes["window"] == 5, "curvature"].max() <= 1)
    assert np.isnan(find(measured, "exact")[3]["curvature"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "fbbo"], "--methods must be one or more of unrolled, aid, fbo, exact,"),
        (["--methods", "smoth-fbo"], "(did you mean smooth-fbo?)"),
        (["--windows", "1", "401"], "--windows must be between 1 and rounds = 400, got 401."),
        (["--methods", "smooth-fbo", "--windows", "1"], "--windows must be above 1 somewhere"),
        (["--sweep-methods", "uniform"], "--sweep-methods must be methods that have an outer rate, got uniform."),
        (["--sweep-methods", "recommended"], "must be methods that have an outer rate, got recommended."),
        (["--windows", "0"], "--windows must be between 1 and rounds = 400, got 0."),
        (["--outer-rate", "-1"], "--outer-rate must be positive and finite, got -1.0."),
        (["--inner-rate", "0"], "--inner-rate must be positive and finite, got 0.0."),
        (["--inner-rate", "nan"], "--inner-rate must be positive and finite, got nan."),
        (["--seeds", "0"], "--seeds must be an integer of at least 1, got 0."),
        (["--minibatch", "321"], "--minibatch must be batch, full, or between 1 and the 320 samples of a round's"),
        (["--minibatch", "all"], "--minibatch must be batch, full, or between 1 and the 320 samples of a round's"),
        (["--final", "new"], "--final must be one of all, drawn, fresh, got new."),
        (["--batch", "0"], "--batch must be integers of at least 1, got 0."),
        (["--drift", "sideways"], "--drift must be one or more of sinusoidal, jumps, got sideways."),
        (["--weights", "none"], "--weights must be one or more of per-lag, decay, log, got none."),
        (["--preset", "papr"], "of demo, paper, ablation, tune, got papr (did you mean paper?)."),
        (["--rounds", "many"], "--rounds"),
        (["--colour", "red"], "--colour"),
        (["--noise", "-0.1"], "--noise must be finite and not negative, got -0.1."),
        (["--chunk", "0"], "--chunk must be an integer of at least 1, got 0."),
    ],
)  # fmt: skip
def test_bad_options_are_one_line_and_make_no_folder(options, message, capsys, tmp_path):
    folder = tmp_path / "run"
    assert cli.main(["regression", *options, "--out", str(folder)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not folder.exists()
