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
from scipy import stats

import smoothfbo as sf
from smoothfbo import cli
from smoothfbo.harness.statistics import interval, ratio_interval
from smoothfbo.hypergradients.base import Estimate
from smoothfbo.source import RoundNumbers
from smoothfbo.studies.regression import claims as regression_claims
from smoothfbo.studies.regression import measure as regression_measure
from smoothfbo.studies.regression import program as regression
from smoothfbo.studies.regression import theory as regression_theory
from smoothfbo.studies.regression.config import RegressionConfig
from smoothfbo.studies.regression.lanes import REGIMES, Lane
from smoothfbo.studies.regression.methods import METHODS
from smoothfbo.studies.regression.presets import PRESETS
from smoothfbo.testbeds.weighting import shares

SMALL = RegressionConfig(
    methods=("fbo", "smooth-fbo", "uniform", "exact"), windows=(1, 5), baseline_windows=(5,), rounds=24, seeds=2,
    chunk=12, inputs=2, lags=3,
    width=8, batch=(8,), inner_steps=(2,), adjoint_steps=2, probe_draws=2, outer_rate=(5.0,), frequency=0.3,
)  # fmt: skip


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


def test_intervals_are_those_of_student():
    values = np.array([1.0, 2.0, 4.0, 8.0])
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    result = interval([*values, np.nan])
    np.testing.assert_allclose([result["low"], result["mean"], result["high"]], [low, values.mean(), high], rtol=1e-12)
    assert result["seeds"] == 4
    assert interval([3.0]) == {"mean": 3.0, "low": None, "high": None, "seeds": 1}
    ratio = ratio_interval(values, [2.0, 2.0, 2.0, 2.0])
    np.testing.assert_allclose(ratio["mean"], np.prod(values / 2) ** (1 / 4))
    logs = np.log(values / 2)
    np.testing.assert_allclose(ratio["high"], np.exp(stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs))[1]))


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
    entries = {entry["window"]: entry for entry in regression_theory.on_this_task(SMALL, lanes)}
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
    ("low", "high", "seeds", "expected"),
    [
        (0.2, 0.8, 4, "holds"),
        (1.1, 2.0, 4, "fails"),
        (0.5, 1.5, 4, "open"),
        (0.2, 0.8, 3, "open"),
        (None, None, 4, "open"),
    ],
)
def test_verdicts(low, high, seeds, expected):
    value = {"mean": 0.5, "low": low, "high": high, "seeds": seeds}
    assert regression_claims.verdict(value, 1.0, 4, below=True) == expected
    opposite = {"holds": "fails", "fails": "holds", "open": "open"}[expected]
    assert regression_claims.verdict(value, 1.0, 4, below=False) == opposite


def lanes_of(method, window, **columns):
    base = {"drift": "sinusoidal", "weights": "per-lag", "regime": "default", **SMALL.base, "outer_rate": 5.0}
    seeds = len(next(iter(columns.values())))
    rest = dict.fromkeys(("proxy", "variance", "regret_1", "regret_100", "excess", "cosine_used"), np.ones(seeds))
    return pd.DataFrame({**base, "method": method, "window": window, "seed": range(seeds), **(rest | columns)})


def test_claims_are_paired_and_have_limits():
    before = lanes_of("fbo", 1, proxy=np.array([6.0, 12.0, 18.0]), cosine_used=np.array([0.2, 0.3, -0.1]))
    after = lanes_of("smooth-fbo", 100, proxy=np.array([1.0, 2.01, 2.99]), cosine_used=np.array([0.61, 0.89, 0.1]))
    config = dataclasses.replace(SMALL, windows=(1, 100), rounds=100)
    claims = {claim["claim"]: claim for claim in regression_claims.judge_claims(config, pd.concat([before, after]))}
    fall = claims["the proxy falls at least fivefold"]
    np.testing.assert_allclose(fall["value"]["mean"], 1 / 6, rtol=1e-2)
    assert (fall["limit"], fall["verdict"]) == (0.2, "holds")
    doubles = claims["the cosine at least doubles"]
    np.testing.assert_allclose(doubles["value"]["mean"], np.mean([0.21, 0.29, 0.3]))
    assert doubles["verdict"] == "holds"
    assert claims["the exact objective falls"]["verdict"] == "open"


def test_the_recommended_method_meets_others_at_their_best_rates():
    ours = lanes_of("recommended", 1, excess=np.array([1.0, 1.1, 0.9])).assign(outer_rate=0.0)
    rows = [
        lanes_of(method, 1, excess=factor * np.array([1.0, 1.1, 0.9])).assign(outer_rate=rate)
        for method, rate, factor in (("fbo", 5.0, 9.0), ("fbo", 7.0, 2.0), ("exact", 5.0, 0.8), ("exact", 7.0, 0.9))
    ]
    claims = list(regression_claims.judge_claims(SMALL, pd.concat([ours, *rows], ignore_index=True)))
    found = {claim["limit"]: claim for claim in claims if claim["comparison"] == regression_claims.UNTUNED}
    assert {limit: claim["other_rate"] for limit, claim in found.items()} == {1.0: 7.0, 1.2: 5.0}
    assert {limit: claim["verdict"] for limit, claim in found.items()} == {1.0: "holds", 1.2: "fails"}
    np.testing.assert_allclose([found[1.0]["value"]["mean"], found[1.2]["value"]["mean"]], [0.5, 1.25])


def test_each_method_may_have_its_own_mini_batches(monkeypatch):
    def lanes(method, window, minibatch, rate, excess):
        return lanes_of(method, window, excess=np.asarray(excess)).assign(minibatch=minibatch, outer_rate=rate)

    rows = [
        lanes("fbo", 1, "batch", 3.0, [4.0, 4.0, 4.2]),
        lanes("fbo", 1, "full", 3.0, [2.0, 2.0, 2.1]),
        lanes("smooth-fbo", 10, "batch", 3.0, [1.0, 1.0, 1.1]),
        lanes("smooth-fbo", 10, "full", 9.0, [3.0, 3.0, 3.1]),
    ]
    best = {("fbo", 1): (1.9, 3.0, "full"), ("smooth-fbo", 10): (0.9, 3.0, "batch")}
    tuned = {("default", "per-lag", use): {} for use in ("batch", "full")}
    for method, values in best.items():
        tuned["default", "per-lag", values[-1]][method] = regression_claims.Tuned(*values)
    monkeypatch.setattr(regression_claims, "tuned_rates", lambda sweep: tuned)
    same = {name: getattr(PRESETS["tune"], name) for name in regression_claims.TUNED_FOR}
    config = dataclasses.replace(
        SMALL, **same, minibatch=("batch", "full"), sweep_rates=(3.0, 9.0), sweep_regimes=("default",)
    )
    claims = regression_claims.judge_claims(config, pd.concat(rows, ignore_index=True))
    (claim,) = [each for each in claims if each["comparison"] == regression_claims.BEST_RATE_AND_BATCHES]
    np.testing.assert_allclose(claim["value"]["mean"], 0.5, rtol=0.02)
    assert (claim["verdict"], claim["minibatch"], claim["weights"]) == ("holds", "tuned", "per-lag")
    assert (claim["own_minibatch"], claim["other_minibatch"], claim["window"]) == ("batch", "full", 10)


def test_tuned_rates_come_from_the_stored_tuning_and_are_not_the_smallest():
    grid = PRESETS["paper"].sweep_rates
    rates = regression_claims.tuned_rates(grid)
    for regime in PRESETS["tune"].sweep_regimes:
        factor = REGIMES[regime].rate
        here = rates[regime, "per-lag", "batch"]
        assert {place for place in here if place[0].endswith("fbo")} == {
            ("fbo", 1), ("smooth-fbo", 10), ("smooth-fbo", 100),
        }  # fmt: skip
        assert all(grid[0] * factor < tuned.outer_rate for tuned in here.values())
    methods = {method for method, _ in rates["default", "per-lag", "batch"]}
    assert methods >= {"unrolled", "aid", "fbo", "smooth-fbo", "exact"}


def test_the_better_mini_batches_of_a_method_are_found():
    tuned = {use: regression_claims.Tuned(excess, rate, use) for use, excess, rate in (("batch", 2, 3), ("full", 1, 9))}
    rates = {("default", "decay", use): {("fbo", 1): tuned[use]} for use in tuned}
    rates["default", "per-lag", "batch"] = {("fbo", 1): tuned["batch"]}
    rates["noisy", "decay", "full"] = {("fbo", 1): regression_claims.Tuned(0, 1, "full")}
    assert regression_claims.best_use(rates, "decay") == {("fbo", 1): tuned["full"]}
    assert regression_claims.best_use(rates, "per-lag") == {("fbo", 1): tuned["batch"]}


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
