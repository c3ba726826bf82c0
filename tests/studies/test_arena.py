"""The arena: equal budgets, choices on tuning seeds alone, ranks and ranges against NumPy, plug-ins, resuming."""

import dataclasses
import json
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from browser import check_study_page, needs_browser
from scipy import stats
from toy_study import Kill, stop_after

import smoothfbo as sf
from smoothfbo import cli
from smoothfbo.errors import UsageError
from smoothfbo.harness import chunks, runner
from smoothfbo.harness.statistics import rank_intervals, ratio_of_means
from smoothfbo.harness.study import Program, Run
from smoothfbo.studies.arena import ArenaMethod, contestants, costs, knobs, leaderboard, plugins, report, trials
from smoothfbo.studies.arena.config import PRESETS, ArenaConfig
from smoothfbo.studies.arena.costs import timed
from smoothfbo.studies.arena.drift_map import cells
from smoothfbo.studies.arena.drift_map import programs as drift_map_programs
from smoothfbo.studies.arena.grid import settings
from smoothfbo.studies.arena.measure import curves, gaps_of, headlines, study
from smoothfbo.studies.arena.methods import METHODS
from smoothfbo.studies.arena.plugins import Failure, Plugin
from smoothfbo.studies.arena.problems import PROBLEMS
from smoothfbo.studies.arena.program import fresh_programs, programs, run_key, with_length
from smoothfbo.studies.arena.references import constants, smallest
from smoothfbo.studies.arena.tables import board_table, equal_time, untuned_table

EXAMPLE = Path(__file__).parents[2] / "examples" / "arena_plugin.py"
SMALL = ArenaConfig(
    problems=("target",), methods=("fbo", "smooth-fbo", "momentum", "exact"), add=(str(EXAMPLE),), rounds=80, seeds=3,
    tuning_seeds=2, trials=6, map_noises=(),
)  # fmt: skip
PROGRAM = partial(Program, "", numbers=(), start=lambda numbers: 0, advance=lambda numbers, state: (0, {}), rounds=20)


@pytest.fixture(autouse=True, scope="module")
def as_users_have_it():
    """The arena runs in float32; a plug-in is a user's code, with JAX's usual promotion."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def no_processes(monkeypatch):
    """Trials of plug-ins in this process."""
    monkeypatch.setattr(plugins, "trial", lambda task, limit: trials.run_task(task))


@pytest.fixture(scope="module")
def players(as_users_have_it):
    """The methods and the problem of the small run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "trial", lambda task, limit: None)
        return contestants.gather(SMALL, Path("nowhere"))


def execute(folder, players, on_records=lambda program, records: None):
    run = Run(SMALL, folder, "smoothfbo arena", lambda progress: None, on_records)
    runner.execute(study(SMALL, players), timed(run, time.perf_counter))


@pytest.fixture(scope="module")
def complete(tmp_path_factory, players):
    folder = tmp_path_factory.mktemp("arena") / "run"
    execute(folder, players)
    return folder


# Numbers


def test_ranks_by_paired_bootstrap_against_loops():
    values = np.random.default_rng(1).normal([0.0, 0.5, 0.6, 5.0], size=(7, 4))
    rows = np.random.default_rng(0).integers(7, size=(2_000, 7))
    drawn = np.array([stats.rankdata(values[row].mean(axis=0)) for row in rows])
    found = rank_intervals(values)
    for column, rank in enumerate(found):
        assert rank["mean"] == stats.rankdata(values.mean(axis=0))[column]
        assert (rank["low"], rank["high"]) == tuple(np.percentile(drawn[:, column], [2.5, 97.5]))
    assert (found[3]["low"], found[3]["high"]) == (4, 4)
    values[2, 0] = np.nan  # it diverged: last
    assert rank_intervals(values)[0]["mean"] == 4


def test_ratios_of_means_are_paired():
    ours, theirs = np.array([1.0, 2.0, 9.0]), np.array([2.0, 4.0, 18.0])
    ratio = ratio_of_means(ours, theirs)
    np.testing.assert_allclose([ratio["mean"], ratio["low"], ratio["high"]], 0.5)  # no spread, if pairs stay together
    assert ratio_of_means([1.0, np.inf], [1.0, 1.0])["mean"] is None
    assert ratio_of_means([3.0, 1.0], [0.0, 2.0])["mean"] == 2.0  # a seed without a gap is a result
    assert ratio_of_means([1.0, 1.0], [0.0, 0.0])["mean"] is None


def test_every_method_tries_as_many_settings():
    for config in PRESETS.values():
        tuned = [method for method in METHODS if method.untuned is None]
        counts = {len(settings(method, problem, config.trials)) for method in tuned for problem in PROBLEMS}
        assert counts == {config.trials}
    method, problem = METHODS[1], PROBLEMS[0]
    found = settings(method, problem, 12)
    assert {setting.window for setting in found} == set(method.windows)
    for rule, ends in (("plain", problem.rates), ("normalised", problem.lengths)):
        rates = [setting.rate for setting in found if setting.rule == rule]
        assert (min(rates), max(rates)) == pytest.approx(ends)
    with pytest.raises(UsageError, match="`trials` must be at least 4"):
        settings(method, problem, 3)


def frame(gaps, seeds, rate=1.0, method="fbo", **more):
    """Lanes of one setting."""
    base = {"problem": "p", "method": method, "rule": "plain", "window": 1, "rate": rate, "seed": seeds}
    rest = {"gap_all": 1.0, "regret_1": 1.0, "proxy": 1.0, "raw": 1.0, "skipped": 0}
    return pd.DataFrame(base | rest | {"gap": gaps} | more)


def test_settings_are_chosen_on_tuning_seeds_alone_and_reported_on_fresh_ones():
    seeds = [*SMALL.tuning, *SMALL.fresh]
    gaps = {1.0: [1.0, 1.0, 9.0, 9.0, 9.0], 2.0: [2.0, 2.0, 1.0, 1.0, 1.0], 3.0: [0.1, np.inf, 0.1, 0.1, 0.1]}
    lanes = pd.concat([frame(values, seeds, rate=rate) for rate, values in gaps.items()], ignore_index=True)
    (choice,) = leaderboard.choices(SMALL, lanes, {})
    assert choice == {"problem": "p", "method": "fbo", "rule": "plain", "window": 1, "rate": 1.0}
    (row,) = leaderboard.judge(SMALL, lanes[lanes["seed"].isin(SMALL.tuning) | (lanes["rate"] == 1.0)], ["fbo"])
    assert row["rate"] == 1.0
    assert row["gap"]["mean"] == 9.0
    assert row["rank"]["mean"] == 1


def test_what_is_not_tuned_is_reported_at_its_own_rate():
    """Whatever the tuning seeds say; the other rates are there for the range."""
    method, problem = ArenaMethod("mine", lambda testbed, rate, window: None, untuned=0.03), PROBLEMS[0]
    assert [setting.rate for setting in settings(method, problem, 24)] == [0.003, 0.009, 0.03, 0.09, 0.3]
    seeds = [*SMALL.tuning, *SMALL.fresh]
    lanes = pd.concat([frame([gap] * 5, seeds, rate=rate) for rate, gap in ((0.003, 1.0), (0.03, 1.05), (0.3, 9.0))])
    assert [row["rate"] for row in leaderboard.choices(SMALL, lanes, {"fbo": 0.03})] == [0.03]
    lanes = lanes[lanes["seed"].isin(SMALL.tuning) | (lanes["rate"] == 0.03)].reset_index(drop=True)
    (row,) = leaderboard.judge(SMALL, lanes, ["fbo"])
    assert (row["rate"], row["gap"]["mean"]) == (0.03, 1.05)
    assert row["range"]["decades"] > 1


def test_a_lane_that_diverged_is_marked_and_ranks_last():
    seeds = [*SMALL.tuning, *SMALL.fresh]
    lanes = pd.concat(
        [frame([1.0, 1.0, 1.0, 2.0, 3.0], seeds), frame([0.5, 0.5, 0.5, np.inf, 0.5], seeds, method="aid")]
    )
    fbo, aid = leaderboard.judge(SMALL, lanes.reset_index(drop=True), ["fbo", "aid"])
    assert (aid["diverged"], aid["gap"]["mean"], aid["rank"]["mean"]) == (1, None, 2)
    np.testing.assert_allclose(fbo["gap"]["mean"], 2.0)
    assert fbo["to_best"]["mean"] == 1.0


def test_what_diverged_is_infinite_and_no_warning():
    """A curve ends where the first seed does."""
    lanes = frame([0.0] * 3, list(SMALL.fresh))
    objective = np.array([[2.0, 3.0, 4.0, 5.0], [2.0, np.inf, np.nan, 5.0], [2.0, 3.0, -np.inf, 5.0]])
    gaps = gaps_of(objective, np.ones((3, 4)))
    np.testing.assert_array_equal(gaps, [[1, 2, 3, 4], [1, np.inf, np.inf, 4], [1, 2, np.inf, 4]])
    (curve,) = curves(SMALL, lanes, np.arange(0, 40, 10), gaps)
    assert list(curve["round"]) == [0, 30]
    assert list(curve["mean"]) == [1, 4]
    records = {"round": np.arange(0, 40, 10)[None], "skipped": np.zeros((3, 4), int)} | dict.fromkeys(
        ("exact_squared", "raw_squared", "used_squared"), objective**2
    )
    found = headlines(records, gaps)
    np.testing.assert_array_equal(found["gap"], [3.5, np.inf, np.inf])
    np.testing.assert_array_equal(found["gap_all"], [2.5, np.inf, np.inf])


def test_a_method_without_all_its_fresh_seeds_is_left_out():
    lanes = pd.concat(
        [frame([1.0] * 5, [*SMALL.tuning, *SMALL.fresh]), frame([1.0] * 2, SMALL.fresh[:2], method="aid")]
    )
    assert [row["method"] for row in leaderboard.judge(SMALL, lanes, ["fbo", "aid"])] == ["fbo"]


@pytest.mark.parametrize(("number", "tolerance"), [(5, 0.25), (9, 0.15), (41, 0.02)])
def test_the_range_of_good_rates_does_not_depend_on_the_grid(number, tolerance):
    """log gap = 2 u² in decades u: it is below log 1.1 for |u| ≤ √(log 1.1 / 2)."""
    rates, seeds = np.geomspace(0.01, 100, number), list(SMALL.tuning)
    lanes = [frame([np.exp(2 * np.log10(rate) ** 2)] * 2, seeds, rate=rate) for rate in rates]
    found = leaderboard.good_rates(SMALL, pd.concat(lanes, ignore_index=True), {"rule": "plain", "window": 1})
    np.testing.assert_allclose(found["decades"], 2 * np.sqrt(np.log(1.1) / 2), rtol=tolerance)
    assert (found["is_open"], found["is_edge"]) == (False, False)


def test_a_range_that_reaches_the_end_of_the_grid_is_open():
    gaps = {0.1: np.inf, 1.0: 1.0, 10.0: 1.05}
    lanes = pd.concat([frame([gap] * 2, SMALL.tuning, rate=rate) for rate, gap in gaps.items()], ignore_index=True)
    found = leaderboard.good_rates(SMALL, lanes, {"rule": "plain", "window": 1})
    assert (found["high"], found["is_open"], found["is_edge"]) == (pytest.approx(10.0), True, False)
    assert 0.5 < found["low"] < 1.0


def test_the_proxys_rank_correlation_is_scipys():
    generator, seeds = np.random.default_rng(3), list(SMALL.fresh)
    names = ["fbo", "aid", "omd", "unrolled"]
    lanes = pd.concat([frame(generator.uniform(1, 2, 3), seeds, method=name, proxy=generator.uniform(1, 2, 3))
                       for name in names], ignore_index=True)  # fmt: skip
    board = leaderboard.judge(SMALL, lanes, names)
    found = leaderboard.correlate(SMALL, lanes, board)
    means = lanes.groupby("method", sort=False)[["proxy", "gap"]].mean()
    np.testing.assert_allclose(found["spearman_gap"]["mean"], stats.spearmanr(means["proxy"], means["gap"]).statistic)
    np.testing.assert_allclose(found["kendall_gap"], stats.kendalltau(means["proxy"], means["gap"]).statistic)


def test_the_map_compares_each_at_its_own_best_rate():
    config = dataclasses.replace(SMALL, map_noises=(1.0,), map_seeds=3)
    seeds = [*config.tuning, *config.fresh]
    rows = {("fbo", 1.0): 4.0, ("fbo", 2.0): 2.0, ("smooth-fbo", 1.0): 3.0, ("smooth-fbo", 2.0): 6.0}
    place = {"noise": 1.0, "period": 5.0}
    lanes = [frame([gap + 1] * 2 + [gap] * 3, seeds, rate, method, **place) for (method, rate), gap in rows.items()]
    lanes = pd.concat(lanes, ignore_index=True)
    ratios = {cell["rate"]: cell["ratio"]["mean"] for cell in cells(config, lanes)}
    assert ratios == {None: 1.5, 1.0: 0.75, 2.0: 3.0}
    own = frame([1.0] * 3, list(config.fresh), 0.01, "recommended", **place)  # not tuned: its own rate, no tuning seeds
    (cell,) = (each for each in cells(config, pd.concat([lanes, own])) if each["method"] == "recommended")
    assert (cell["rate"], cell["ratio"]["mean"]) == (None, 0.5)


def test_the_map_runs_the_recommended_method_at_its_own_rate():
    config = dataclasses.replace(SMALL, map_noises=(0.1, 1.0), map_periods=(200.0,), map_seeds=2, map_rates=3)
    methods = tuple(method for method in METHODS if method.name in ("fbo", "recommended"))
    lanes = [lane for run in drift_map_programs(config, PROBLEMS[0], methods) for lane in run.lanes]
    own = [lane for lane in lanes if lane["method"] == "recommended"]
    assert len(lanes) - len(own) == 2 * 3 * 4  # noises × rates × seeds
    assert {(lane["rate"], lane["seed"]) for lane in own} == {(0.01, 0), (0.01, 1)}
    assert {lane["noise"] for lane in own} == {0.1, 1.0}


def test_at_equal_time_the_rival_is_the_best_that_costs_no_more():
    gaps = {"fbo": 2.0, "aid": 1.0, "omd": 3.0, "f2sa": 1.5}
    lanes = pd.concat([frame([gap, 2 * gap, gap], list(SMALL.fresh), method=name) for name, gap in gaps.items()])
    board = [{"problem": "p", **row} for row in leaderboard.judge(SMALL, lanes, list(gaps))]
    cost = {"fbo": 1.0, "aid": 5.0, "omd": 1.05, "f2sa": 2.0}
    found = {name: equal_time({"board": board}, lanes, cost, "p", name) for name in gaps}
    assert found["fbo"]["method"] == "omd"  # within 10 %
    np.testing.assert_allclose(found["fbo"]["ratio"]["mean"], 2 / 3)
    assert (found["aid"]["method"], found["omd"]["method"], found["f2sa"]["method"]) == ("f2sa", "fbo", "fbo")
    np.testing.assert_allclose(found["aid"]["ratio"]["low"], 1 / 1.5)  # paired: no spread
    assert equal_time({"board": board}, lanes, {"fbo": 1.0, "aid": 0.5}, "p", "aid") is None


def test_costs_are_those_of_the_fresh_seeds(tmp_path):
    """Of equally many lanes; the chunks of the tuning seeds and of the map do not count, nor the first one."""
    lane = {"problem": "p", "method": "fbo", "window": 1, "seed": 0}
    program = PROGRAM(lanes=(lane, lane), chunk=5)
    ticks = iter([0.0, 1.0, 21.0, 21.0, 26.0, 26.0])
    run = timed(Run(SMALL, tmp_path, "", lambda progress: None), lambda: next(ticks))
    for other in ({**lane, "seed": SMALL.tuning[0]}, {**lane, "noise": 1.0}):
        run.on_records(PROGRAM(lanes=(other,), chunk=5), {})
    for _ in range(3):
        run.on_records(program, {})
    assert costs.read(tmp_path) == {"p/fbo/1": 5 / 10}


def test_what_is_not_tuned_is_set_against_the_best_that_is():
    """Not against itself, nor against references; the ratio is paired."""
    gaps = {"mine": 1.0, "fbo": 3.0, "aid": 2.0, "exact": 0.1}
    lanes = pd.concat([frame([gap, 3 * gap, gap], list(SMALL.fresh), method=name) for name, gap in gaps.items()])
    board = leaderboard.judge(SMALL, lanes, ["mine", "fbo", "aid"])
    (found,) = leaderboard.against_tuned(SMALL, lanes, board, ["mine"])
    assert (found["method"], found["best_tuned"]) == ("mine", "aid")
    ratio = found["to_best_tuned"]
    np.testing.assert_allclose([ratio["mean"], ratio["low"], ratio["high"]], 0.5)
    summary = {
        "methods": [{"name": name, "label": name} for name in gaps],
        "problems": [{"name": "p", "label": "p"}],
        "board": [{"problem": "p", **row} for row in board],
        "untuned": [{"problem": "p", **found}],
    }
    table = untuned_table(summary, lanes.assign(problem="p"), {"p": {"mine": 2.0, "fbo": 1.0, "aid": 5.0}})
    (row,) = table.rows
    assert row[1].text == "0.5 [0.5, 0.5] of aid"
    assert row[3].text == "0.333 [0.333, 0.333] of fbo"  # aid costs more
    assert untuned_table(summary | {"untuned": []}, lanes, {}) is None


# Knobs


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_every_problem_has_every_kind_of_drift(problem):
    """With a period of 40 rounds, s_t = t/40 (smooth), ⌊t/10⌋/4 in the calm rounds of bursts, constant for ten rounds
    between jumps, and 0 at the start of a walk: the truth of one kind is that of another in another round."""
    assert list(problem.knobs) == ["noise", "dimension", "drift", "period"]
    rounds, seed = jnp.asarray([0, 5, 10, 15, 18, 25]), jnp.uint32(3)

    def truths(rounds):
        def truth(kind):
            (changed,) = knobs.with_knobs([problem], [f"drift={kind}", "period=40"])
            bed = changed.testbed(seed)
            if problem.name == "corruption":  # whose objective takes long to compile
                return jax.vmap(lambda round: jnp.sum(bed.is_corrupted(round) * 1.5 ** jnp.arange(5.0)))(rounds)
            outer = bed.project(jax.tree.map(lambda leaf: leaf + 0.3 * jnp.arange(leaf.size * 1.0).reshape(leaf.shape),
                                             bed.initial()))  # fmt: skip
            return jax.vmap(bed.objective, in_axes=(0, None))(rounds, outer)

        return [truth(kind) for kind in ("smooth", "bursts", "jumps", "walk")]

    smooth, bursts, jumps, walk = map(np.asarray, jax.jit(truths)(rounds))
    has_memory = problem.name in ("regression", "decay")  # the truth of a round is that of the last ones as well
    same = {"rtol": 1e-4, "atol": 1e-6}
    if not has_memory:
        np.testing.assert_allclose(bursts[[0, 1, 2, 3]], smooth[[0, 0, 2, 2]], **same)
        np.testing.assert_allclose(jumps[[0, 2, 2]], jumps[[1, 3, 4]], **same)
        np.testing.assert_allclose(walk[0], smooth[0], **same)
    else:
        np.testing.assert_allclose(bursts[[1, 3]], jumps[[1, 3]], **same)  # at rest for longer than the memory
    for other in (bursts, jumps, walk):
        assert np.abs(other - smooth).max() > 1e-4
    assert np.ptp(jumps) + np.ptp(walk) > 1e-4


def test_knobs_change_the_size_and_the_noise():
    for problem in PROBLEMS:
        (changed,) = knobs.with_knobs([problem], ["dimension=7", f"{problem.name}.noise=0.5"])
        assert (changed.knobs["dimension"], changed.knobs["noise"]) == (7, 0.5)
        bed = jax.eval_shape(changed.testbed, jnp.uint32(0))
        assert problem.name == "corruption" or bed.noise.shape == ()
        size = jax.eval_shape(lambda problem=changed: problem.testbed(jnp.uint32(0)).initial()).size
        assert size == {"decay": 1, "families": 15}.get(problem.name, 7)
    assert PROBLEMS[-1].testbed(jnp.uint32(0), noise=0.9).noise == 0.9  # as a lane of the map has it


# Lanes


def test_normalised_steps_have_the_length_of_the_rate():
    change = {"a": jnp.asarray([3.0, 0.0]), "b": jnp.asarray(4.0)}
    for flag, factor in ((1.0, 0.1), (0.0, 1.0)):
        transformation = with_length(jnp.asarray(0.5), jnp.asarray(flag))
        got, _ = transformation.update(change, transformation.init(change), change)
        np.testing.assert_allclose(got["b"], 4 * factor, rtol=1e-6)
    zero = jax.tree.map(jnp.zeros_like, change)
    np.testing.assert_array_equal(with_length(0.5, 1.0).update(zero, (), change)[0]["a"], 0.0)


def test_lanes_are_plain_runs_of_the_library_and_gaps_those_of_the_testbed(complete, players):
    """The lane of FBO at its first setting against `sf.run`, and its headlines against NumPy."""
    problem = players.problem("target")
    seed = SMALL.tuning[0]
    testbed = problem.build(jnp.uint32(seed))
    estimator = sf.Functional(testbed.inner(), testbed.adjoint())
    algorithm = sf.Online(testbed.problem(), estimator, optax.sgd(problem.rates[0]), testbed.project)
    _, trace = sf.run(algorithm, testbed.source(), testbed.initial(), rounds=80, key=run_key(jnp.uint32(seed)))
    outers = np.asarray(trace.outer, float)[::10]
    angles = 2 * np.pi * np.arange(0, 80, 10) / 300 + float(testbed.phase)
    away = outers - np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gaps = np.sum(away**2, axis=1)
    lanes = pd.read_parquet(complete / "lanes.parquet")
    lane = lanes[(lanes["method"] == "fbo") & (lanes["rule"] == "plain") & (lanes["seed"] == seed)].iloc[0]
    np.testing.assert_allclose(lane["gap"], gaps[4:].mean(), rtol=1e-4)
    np.testing.assert_allclose(lane["gap_all"], gaps.mean(), rtol=1e-4)
    np.testing.assert_allclose(lane["regret_1"], 10 * np.sum(4 * gaps), rtol=1e-4)
    np.testing.assert_allclose(lane["proxy"], np.sum(np.asarray(trace.gradient_norm, float) ** 2), rtol=1e-4)
    still = lanes[(lanes["method"] == "still") & (lanes["seed"] == 0)].iloc[0]
    np.testing.assert_allclose(still["gap"], 1.0, rtol=1e-5)  # λ stays 0, the target on its circle


def test_references_are_the_best_of_every_round_and_the_best_constant(players):
    problem, rounds = players.problem("target"), np.arange(0, 300, 20)
    seeds = np.array([0, 7])
    np.testing.assert_allclose(smallest(problem, seeds, rounds, {}), 0.09, rtol=1e-5)
    found = constants(problem, seeds, rounds)
    np.testing.assert_allclose(found.still, 1.09, rtol=1e-5)
    part = rounds[:8]  # half of the circle: the best constant is the mean of the targets
    halves = constants(problem, seeds, part).constant
    angles = 2 * np.pi * part / 300
    centre = np.exp(1j * angles).mean()
    np.testing.assert_allclose(
        halves.mean(axis=1), 0.09 + np.mean(np.abs(np.exp(1j * angles) - centre) ** 2), rtol=1e-3
    )
    late = np.exp(2j * np.pi * rounds[8:] / 300)  # and of the second half alone
    np.testing.assert_allclose(
        found.late[:, 8:].mean(axis=1), 0.09 + np.mean(np.abs(late - late.mean()) ** 2), rtol=1e-3
    )


def test_methods_of_one_structure_share_a_program(players):
    names = [program.name for program in programs(SMALL, players.pairs())]
    assert names == ["target: fbo, smooth-fbo", "target: exact", "target: momentum"]
    static = dataclasses.replace(players.methods[1], static_window=True, windows=(2, 3))
    problem = players.problem("target")
    assert [program.name for program in programs(SMALL, [(problem, static)])] == [
        "target: smooth-fbo, w = 2", "target: smooth-fbo, w = 3",
    ]  # fmt: skip
    chosen = [{"problem": "target", "method": "smooth-fbo", "rule": "normalised", "window": 3, "rate": 0.5}]
    (fresh,) = fresh_programs(SMALL, [(problem, static)], chosen)
    assert fresh.name == "fresh seeds, target: smooth-fbo, w = 3"
    assert [lane["seed"] for lane in fresh.lanes] == list(SMALL.fresh)
    assert {(lane["rule"], lane["rate"]) for lane in fresh.lanes} == {("normalised", 0.5)}
    (same,) = fresh_programs(SMALL, [(problem, players.methods[1])], [chosen[0] | {"window": 4}])
    assert same.width == programs(SMALL, [(problem, players.methods[1])])[0].width  # one compilation for both


def test_only_the_chosen_setting_runs_on_fresh_seeds(complete, players):
    lanes = pd.read_parquet(complete / "lanes.parquet")
    counts = lanes.groupby(["method", "seed"]).size().unstack()
    tried = {name: sum(counts.loc[name, list(SMALL.tuning)]) for name in ("fbo", "smooth-fbo", "momentum", "exact")}
    assert tried["fbo"] == tried["exact"] == SMALL.trials * SMALL.tuning_seeds
    assert (counts[list(SMALL.fresh)] == 1).all().all()


def test_methods_that_do_not_apply_are_left_out_with_a_reason():
    config = ArenaConfig(problems=("cosine",), methods=("fbo", "aid"), map_noises=())
    found = study(config, contestants.gather(config, Path("nowhere")))
    assert [program.name for program in found.programs] == ["cosine: fbo"]
    (absent,) = found.summarise.args[1]["absent"]
    assert absent["method"] == "aid"
    assert "has no inner function" in absent["why"]


# Runs


def test_the_page_and_the_table_name_every_method(complete):
    page = report.build(complete).read_text()
    for text in ("FBO with momentum", "Moving target", "Best constant λ", "the cost of a round", "range of good rates"):
        assert text in page
    summary = json.loads((complete / "summary.json").read_text())
    board = {row["method"]: row for row in summary["board"]}
    assert set(board) == {"fbo", "smooth-fbo", "momentum", "exact", "still", "constant"}
    assert "rank" not in board["exact"]
    assert {row["rank"]["mean"] for row in board.values() if "rank" in row} == {1, 2, 3}
    assert board["exact"]["gap"]["mean"] < board["still"]["gap"]["mean"]
    table, sentence = report.as_text(complete)
    assert table.row_count == 3
    assert sentence.count("best or tied with the best on") == 1
    assert (complete / "figures" / "leaderboard.png").stat().st_size > 5_000


@needs_browser
@pytest.mark.usefixtures("no_figures")
def test_the_page_works_in_a_browser(complete, tmp_path):
    check_study_page(report.build(complete), tmp_path)


def test_a_best_rank_that_is_shared_is_said_to_be():
    methods = [{"name": name, "label": name.upper(), "is_reference": False} for name in ("a", "b", "c")]
    ranks = {"x": {"a": 1.0, "b": 2.0, "c": 3.0}, "y": {"a": 2.0, "b": 1.0, "c": 3.0}}
    board = [
        {"problem": problem, "method": method, "rank": {"mean": rank}, "to_best": {"mean": rank, "low": rank}}
        for problem, of_methods in ranks.items()
        for method, rank in of_methods.items()
    ]
    summary = {"methods": methods, "problems": [{"name": "x"}, {"name": "y"}], "board": board}
    assert report.result(summary).startswith("A has the best mean rank, 1.5 of 3 (shared with B), and is best")


def test_a_run_that_died_goes_on_without_its_plug_in_to_the_same_bits(complete, players, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHECKPOINT_SHARE", np.inf)
    for number in (6, 10):  # among the tuning seeds, and then among the fresh ones
        with pytest.raises(Kill):
            execute(tmp_path, players, stop_after(number))
    monkeypatch.setattr(plugins, "read", None)
    monkeypatch.setattr(plugins, "trial", None)
    again = contestants.gather(SMALL, tmp_path)
    assert [method.name for method in again.methods] == [method.name for method in players.methods]
    execute(tmp_path, again)
    for name in ("lanes.parquet", "curves.parquet", "summary.json"):
        assert (tmp_path / name).read_bytes() == (complete / name).read_bytes(), name


# Plug-ins

TEXT = EXAMPLE.read_text()
BAD = {
    "def (": ("import", "SyntaxError"),
    "import there_is_no_such_module": ("import", "No module named 'there_is_no_such_module'"),
    "raise SystemExit('no')": ("import", "SystemExit"),
    "x = 1": ("import", "it defines neither METHOD nor PROBLEM"),
    "METHOD = 'momentum'": ("import", "METHOD must be an ArenaMethod or a list of them, got a str"),
    TEXT.replace("windows=(4, 16)", "windows=(400,)"): ("import", "windows of method momentum must be integers"),
    TEXT.replace("    def best(self", "    def worst(self"): ("PROBLEM target", "abstract"),
    TEXT.replace("return self.centre(round)", "return self.centre(round)[:1]"): ("PROBLEM target", "best must return"),
    TEXT.replace("optimiser = optax.sgd", "optimiser = jnp.sin"): ("METHOD momentum", "momentum"),
    TEXT.replace("return sf.Online(testbed", "return 3 or sf.Online(testbed"): ("METHOD momentum", "int"),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=[f"{part}-{why[:20]}" for part, why in BAD.values()])
def test_bad_plug_ins_are_one_line_and_the_others_go_on(text, tmp_path, no_processes):
    file = tmp_path / "mine.py"
    file.write_text(text)
    config = dataclasses.replace(SMALL, add=(str(file),), problems=("cosine",), methods=("fbo",))
    with pytest.warns(UserWarning, match=r"mine\.py, ") as seen:
        found = contestants.gather(config, tmp_path / "run")
    part, why = BAD[text]
    lines = [failure.line for failure in found.failures]
    assert any(f"mine.py, {part}" in line and why in line for line in lines), lines
    assert all("\n" not in line for line in lines)
    assert len(seen) == len(lines)
    assert ("cosine", "fbo") in {(problem.name, method.name) for problem, method in found.pairs()}
    assert found.inputs["plugins"][0]["text"] == text
    assert len(found.inputs["failures"]) == len(lines)


def test_a_method_that_gives_nothing_finite_fails():
    method = ArenaMethod("nan", lambda testbed, rate, window: sf.Online(
        testbed.problem(), sf.Oracle(lambda outer, data, key: outer * jnp.nan), optax.sgd(rate)))  # fmt: skip
    cosine = next(problem for problem in PROBLEMS if problem.name == "cosine")
    with pytest.raises(UsageError, match="its hypergradient is not finite in any of the first 10 rounds"):
        trials.run_rounds(method, cosine)


def test_a_plug_in_that_never_ends_is_stopped():
    """In a process of its own, which can be ended whatever it does."""
    endless = dataclasses.asdict(Plugin("endless.py", "while True: pass"))
    assert plugins.trial({"plugins": [endless]}, 1.5) == "it did not end within 1.5 s"


def test_what_failed_does_not_play_and_is_on_the_page(players):
    failed = dataclasses.replace(players, failures=(Failure("mine.py", "METHOD momentum", "no", "target", "momentum"),))
    assert ("target", "momentum") not in {(problem.name, method.name) for problem, method in failed.pairs()}
    found = study(SMALL, failed)
    known = found.summarise.args[1]
    assert known["failures"] == ["mine.py, METHOD momentum on target: no"]
    lanes = pd.concat([frame([1.0] * 3, list(SMALL.fresh), method=name, problem="target") for name in ("fbo", "exact")])
    summary = leaderboard.summarise(SMALL, known, {"lanes": lanes})["summary"]
    rows = {row[0]: row[2:] for row in board_table(summary).rows}
    assert [cell.text for cell in rows["FBO with momentum"]] == ["failed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "smoth-fbo"], "--methods must be one or more of fbo, smooth-fbo,"),
        (["--methods", "smoth-fbo"], "got smoth-fbo (did you mean smooth-fbo?)."),
        (["--problems", "source"], "got source (did you mean sources?)."),
        (["--add", "nowhere.py"], "--add nowhere.py cannot be read: No such file or directory."),
        (["--rounds", "50"], "--rounds must be a multiple of 4 × --record-every = 40, at least 80, got 50."),
        (["--trials", "3", "--methods", "smooth-fbo"], "--trials must be at least 4, for the 2 windows of smooth-fbo"),
        (
            ["--knobs", "noice=1"],
            "--knobs noice=1: noice is not a knob of a problem of this run, one of noise, dimension",
        ),
        (["--knobs", "noice=1"], "period (did you mean noise?)."),
        (["--knobs", "source.noise=1"], "source is not a problem of this run, one of sources, instruments, families"),
        (["--knobs", "sources.dimension=2.5"], "--knobs sources.dimension=2.5: 2.5 is not a whole number."),
        (["--knobs", "drift"], "--knobs must be NAME=VALUE or PROBLEM.NAME=VALUE, got drift."),
        (["--knobs", "drift=jump"], "got 'jump' (did you mean 'jumps'?)."),
        (["--knobs", "noise=-1"], "--knobs noise=-1: sources refuses them: noise must be"),
        (["--time-limit", "0"], "--time-limit must be positive and finite, got 0.0."),
        (["--preset", "fast"], "--preset must be one of quick, full, got fast."),
    ],
)
def test_bad_options_are_one_line_and_make_no_folder(options, message, capsys, tmp_path):
    folder = tmp_path / "run"
    assert cli.main(["arena", *options, "--out", str(folder)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not folder.exists()


def test_tables_and_help_agree():
    fields = Path(ArenaConfig.__module__.replace(".", "/"))
    text = (Path(__file__).parents[2] / "src" / fields.with_suffix(".py")).read_text()
    for entry in (*METHODS, *PROBLEMS):
        assert entry.name in text.split("rounds: int")[0], f"the help does not name {entry.name}"
    for config in PRESETS.values():
        assert set(config.methods) <= {method.name for method in METHODS}
        assert set(config.problems) <= {problem.name for problem in PROBLEMS}
    assert PRESETS["full"].seeds >= 20
    assert not set(PRESETS["full"].fresh) & set(PRESETS["full"].tuning)


def test_a_gap_below_zero_by_rounding_is_none():
    objective = np.array([[1.0 - 3e-8, 1.0 - 1e-3, 1.0 + 3e-8, np.nan]], np.float32).astype(float)
    gaps = gaps_of(objective, np.ones((1, 4)))[0]
    assert gaps[0] == 0
    np.testing.assert_allclose(gaps[1], -1e-3, rtol=1e-4)  # no rounding: the best answer is wrong, and that is shown
    assert gaps[2] >= 0
    assert gaps[3] == np.inf
