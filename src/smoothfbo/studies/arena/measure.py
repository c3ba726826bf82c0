"""What the lanes of the arena achieved, from their records and the known truth."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd

from smoothfbo.errors import NotAvailable
from smoothfbo.harness.statistics import Frame
from smoothfbo.harness.study import Measured, Program, SecondStage, Study
from smoothfbo.studies.arena import drift_map, leaderboard, plugins
from smoothfbo.studies.arena.config import ArenaConfig
from smoothfbo.studies.arena.contestants import Contestants
from smoothfbo.studies.arena.entries import ArenaMethod, ArenaProblem
from smoothfbo.studies.arena.grid import SETTING
from smoothfbo.studies.arena.methods import METHODS
from smoothfbo.studies.arena.plugins import Failure
from smoothfbo.studies.arena.program import fresh_programs, programs
from smoothfbo.studies.arena.references import constants, in_second_half, smallest

ROUNDING = 1e-6  # of F_t, which is computed in single precision
DRAWS = 400  # of the bootstrap of a curve
KEYS = ("problem", "method", *SETTING, "seed")


def study(config: ArenaConfig, contestants: Contestants) -> Study:
    pairs, absent, failures = applicable(contestants)
    runs = programs(config, pairs)
    playing = {problem.name: problem for problem, _ in pairs}
    measure = Measure(config, playing, runs)
    untuned = {method.name: method.untuned for method in contestants.methods if method.untuned is not None}
    if config.map_noises and drift_map.PROBLEM in playing:
        compared = tuple(method for method in METHODS if method.name in (drift_map.FBO, *drift_map.COMPARED))
        runs += drift_map.programs(config, playing[drift_map.PROBLEM], compared)
    known = {
        "problems": [problem.description for problem in contestants.problems],
        "methods": [method.description for method in contestants.methods],
        "absent": absent,
        "failures": [failure.line for failure in (*contestants.failures, *failures)],
    }
    second_stage = SecondStage(
        choose=lambda tables: leaderboard.choices(config, tables["lanes"], untuned),
        programs=partial(fresh_programs, config, pairs),
        rounds=len(pairs) * config.seeds * config.rounds,
    )
    return Study(
        "arena", config, runs, measure, partial(leaderboard.summarise, config, known), second_stage, contestants.inputs
    )


def applicable(
    contestants: Contestants,
) -> tuple[list[tuple[ArenaProblem, ArenaMethod]], list[dict[str, str]], list[Failure]]:
    """The pairs that can be built; those that say they do not apply, and why; plug-ins that fail all the same."""
    pairs, absent, failures = [], [], []
    for problem, method in contestants.pairs():
        try:
            if method.name in problem.without:
                raise NotAvailable("it would take too long on this problem")
            jax.eval_shape(partial(_build, problem, method), np.uint32(0))
            pairs.append((problem, method))
        except NotAvailable as error:
            absent.append({"problem": problem.name, "method": method.name, "why": str(error)})
        except Exception as error:
            owner = contestants.owner(method, problem)
            if owner is None:
                raise
            failures.append(Failure(owner[1], owner[0], plugins.reason(error), problem.name, method.name))
    pairs.sort(key=lambda pair: -pair[0].stride)  # the dearest first, so that workers end together
    return pairs, absent, failures


def _build(problem: ArenaProblem, method: ArenaMethod, seed: Any) -> Any:
    testbed = problem.testbed(seed)
    method.build(testbed, 1.0, method.windows[0], **method.options)
    return testbed.initial()


class Measure:
    """`(program, records) -> Measured`. References that never move are measured with the first program of a problem.

    What was measured for the choice of settings is kept for the summary.
    """

    def __init__(self, config: ArenaConfig, problems: dict[str, ArenaProblem], runs: list[Program]):
        self._config, self._problems = config, problems
        self._first = {run.lanes[0]["problem"]: run.name for run in reversed(runs)}
        self._seeds = np.array([*config.tuning, *config.fresh])
        self._smallest: dict[str, np.ndarray] = {}  # min F_t, computed once; axes (seed, record)
        self._kept: dict[tuple[str, int], Measured] = {}

    def __call__(self, program: Program, records: dict[str, np.ndarray]) -> Measured:
        key = program.name, len(program.lanes)
        if key not in self._kept:
            self._kept[key] = self._measure(program, records)
        return self._kept[key]

    def _measure(self, program: Program, records: dict[str, np.ndarray]) -> Measured:
        lanes: Frame = pd.DataFrame(program.lanes)
        problem, rounds = self._problems[lanes["problem"].iloc[0]], records["round"][0]
        knobs = [name for name in lanes if name not in KEYS]
        if knobs:
            gaps = gaps_of(records["objective"], _smallest_of_lanes(problem, lanes, knobs, rounds))
            return Measured({"map": lanes.assign(**headlines(records, gaps))})
        gaps = gaps_of(records["objective"], self._least(problem, lanes["seed"], rounds))
        rows, lines = [lanes.assign(**headlines(records, gaps))], curves(self._config, lanes, rounds, gaps)
        if program.name == self._first[problem.name]:
            for more, line in self._unmoved(problem, rounds):
                rows.append(more)
                lines += line
        tables = {"lanes": rows, "curves": lines}
        return Measured({name: pd.concat(parts, ignore_index=True) for name, parts in tables.items() if parts})

    def _least(self, problem: ArenaProblem, seeds: Any, rounds: np.ndarray) -> np.ndarray:
        """min F_t for these seeds."""
        if problem.name not in self._smallest:
            self._smallest[problem.name] = smallest(problem, self._seeds, rounds, {})
        place = {seed: index for index, seed in enumerate(self._seeds)}
        return self._smallest[problem.name][[place[seed] for seed in seeds]]

    def _unmoved(self, problem: ArenaProblem, rounds: np.ndarray) -> list[tuple[Frame, list[Frame]]]:
        """The rows of the references that never move, as if they were lanes. The best constant λ is that of the rounds
        that are judged: of the second half for `gap`, of all for `gap_all` and for the curve."""
        seeds = np.array(self._config.fresh)
        least, found = self._least(problem, seeds, rounds), constants(problem, seeds, rounds)
        result = []
        for name, values, of_half in (("still", found.still, found.still), ("constant", found.constant, found.late)):
            setting = {"problem": problem.name, "method": name, "rule": "none", "window": 1, "rate": 0.0}
            lanes, gaps = pd.DataFrame({**setting, "seed": seeds}), gaps_of(values, least)
            late, every = _means(gaps_of(of_half, least), rounds)[0], _means(gaps, rounds)[1]
            result.append((lanes.assign(gap=late, gap_all=every), curves(self._config, lanes, rounds, gaps)))
        return result


def gaps_of(objective: np.ndarray, least: np.ndarray) -> np.ndarray:
    """F_t(λ_t) − min F_t; infinite where a lane has diverged, so that F_t is not finite.

    What is below 0 by rounding is 0: else a lane that plays the best answer has a gap of which no ratio can be made.
    What is further below shows that the smallest value is not the smallest, and stays.
    """
    gaps = np.where(np.isfinite(objective), objective, np.inf) - least
    is_rounding = np.abs(gaps) <= ROUNDING * np.abs(least)
    return np.where(is_rounding, np.maximum(gaps, 0), gaps)


def headlines(records: dict[str, np.ndarray], gaps: np.ndarray) -> dict[str, np.ndarray]:
    """One number per lane: mean gaps, and sums over rounds. BLR_1 is estimated from the rounds that were recorded."""
    rounds = records["round"][0]
    late, every = _means(gaps, rounds)
    spacing = rounds[1] - rounds[0]
    return {
        "gap": late,
        "gap_all": every,
        "regret_1": spacing * records["exact_squared"].astype(float).sum(axis=1),
        "proxy": records["used_squared"].astype(float).sum(axis=1),
        "raw": records["raw_squared"].astype(float).sum(axis=1),
        "skipped": records["skipped"][:, -1],
    }


def _means(gaps: np.ndarray, rounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Over the second half and over all rounds; infinite where any gap is: such a lane has diverged."""
    return gaps[:, in_second_half(rounds)].mean(axis=1), gaps.mean(axis=1)


def curves(config: ArenaConfig, lanes: Frame, rounds: np.ndarray, gaps: np.ndarray) -> list[Frame]:
    """The gap over time on the fresh seeds: mean and 95 % bootstrap interval, in rounds before any of them diverged."""
    frames = []
    fresh = lanes[lanes["seed"].isin(config.fresh)]
    for setting, group in fresh.groupby(["problem", "method", *SETTING], sort=False):
        here = gaps[group.index]
        fine = np.isfinite(here).all(axis=0)
        here = here[:, fine]
        drawn = np.random.default_rng(0).integers(len(here), size=(DRAWS, len(here)))
        counts = (drawn[:, :, None] == np.arange(len(here))).mean(axis=1)  # axes (draw, seed)
        low, high = np.percentile(counts @ here, [2.5, 97.5], axis=0)
        band = pd.DataFrame({"round": rounds[fine], "mean": here.mean(axis=0), "low": low, "high": high})
        frames.append(band.assign(**dict(zip(["problem", "method", *SETTING], setting, strict=True))))
    return frames


def _smallest_of_lanes(problem: ArenaProblem, lanes: Frame, knobs: list[str], rounds: np.ndarray) -> np.ndarray:
    """min F_t for every lane, computed once for lanes of the same seed and knobs."""
    names = ["seed", *knobs]
    different = lanes[names].drop_duplicates().reset_index(drop=True)
    values = smallest(
        problem, different["seed"].to_numpy(), rounds, {name: different[name].to_numpy(np.float32) for name in knobs}
    )
    place = {key: index for index, key in enumerate(different.itertuples(index=False, name=None))}
    return values[[place[key] for key in lanes[names].itertuples(index=False, name=None)]]
