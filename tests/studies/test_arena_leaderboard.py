"""The arena's numbers: equal budgets, choices on tuning seeds alone, ranks, ranges and ratios against NumPy."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from small_arena import SMALL, frame

from smoothfbo.errors import UsageError
from smoothfbo.harness.statistics import rank_intervals, ratio_of_means
from smoothfbo.harness.study import Program, Run
from smoothfbo.studies.arena import ArenaMethod, costs, leaderboard
from smoothfbo.studies.arena.config import PRESETS
from smoothfbo.studies.arena.costs import timed
from smoothfbo.studies.arena.drift_map import cells
from smoothfbo.studies.arena.drift_map import programs as drift_map_programs
from smoothfbo.studies.arena.grid import settings
from smoothfbo.studies.arena.measure import curves, gaps_of, headlines
from smoothfbo.studies.arena.methods import METHODS
from smoothfbo.studies.arena.problems import PROBLEMS
from smoothfbo.studies.arena.tables import equal_time, untuned_table

PROGRAM = partial(Program, "", numbers=(), start=lambda numbers: 0, advance=lambda numbers, state: (0, {}), rounds=20)


@pytest.fixture(autouse=True, scope="module")
def as_users_have_it():
    """The arena runs in float32."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


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
    exactly = dataclasses.replace(method, untuned=0.0123456)  # it is looked up among the lanes: not rounded
    assert [setting.rate for setting in settings(exactly, problem, 24)] == [
        0.001235,
        0.003704,
        0.0123456,
        0.03704,
        0.1235,
    ]
    with pytest.raises(UsageError, match=r"untuned of method mine must be a positive number, got 0\.0"):
        dataclasses.replace(method, untuned=0.0)
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
    assert [cell.get("is_edge") for cell in cells(config, lanes)] == [True, None, None]  # 1 and 2 are all
    for best, is_edge in ((1.0, True), (1.5, False), (2.0, True)):
        three = [frame([1.0 + (rate != best)] * 5, seeds, rate, name, **place)
                 for name in ("fbo", "smooth-fbo") for rate in (1.0, 1.5, 2.0)]  # fmt: skip
        assert cells(config, pd.concat(three, ignore_index=True))[0]["is_edge"] is is_edge
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
    tuned = {lane["rate"] for lane in lanes if lane["method"] == "fbo"}
    assert tuned == {0.01, 1.0, 100.0}  # of the sources: where noise is large, the best rate is below the usual ones


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


def test_a_gap_below_zero_by_rounding_is_none():
    objective = np.array([[1.0 - 3e-8, 1.0 - 1e-3, 1.0 + 3e-8, np.nan]], np.float32).astype(float)
    gaps = gaps_of(objective, np.ones((1, 4)))[0]
    assert gaps[0] == 0
    np.testing.assert_allclose(gaps[1], -1e-3, rtol=1e-4)  # no rounding: the best answer is wrong, and that is shown
    assert gaps[2] >= 0
    assert gaps[3] == np.inf
