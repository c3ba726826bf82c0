"""The map of when smoothing pays: noise × speed of drift × rate, on the moving sources."""

from itertools import product
from typing import Any

import numpy as np

from smoothfbo.harness.methods import FBO, RECOMMENDED, SMOOTH_FBO
from smoothfbo.harness.statistics import Frame, ratio_of_means
from smoothfbo.harness.study import Program
from smoothfbo.studies.arena.config import ArenaConfig
from smoothfbo.studies.arena.entries import ArenaMethod, ArenaProblem
from smoothfbo.studies.arena.grid import Lane, rates
from smoothfbo.studies.arena.program import Part, grouped

PROBLEM = "sources"
LOWER = 100.0  # the smallest rate of the map is so many times below that of the problem: much noise wants small steps
COMPARED = (SMOOTH_FBO, RECOMMENDED)  # with FBO


def programs(config: ArenaConfig, problem: ArenaProblem, methods: tuple[ArenaMethod, ...]) -> list[Program]:
    """Every method at every noise, period and rate, with plain steps, and SmoothFBO with one window.

    A method that is not tuned has its own rate, and needs no tuning seeds.
    """
    fresh = config.fresh[: config.map_seeds]
    ends = problem.rates[0] / LOWER, problem.rates[1]
    parts = []
    for method in methods:
        window = config.map_window if max(method.windows) > 1 else 1
        tried = rates(ends, config.map_rates) if method.untuned is None else [method.untuned]
        seeds = (*config.tuning, *fresh) if method.untuned is None else fresh
        for noise, period, rate, seed in product(config.map_noises, config.map_periods, tried, seeds):
            lane = Lane(problem.name, method.name, "plain", window, rate, seed)
            parts.append(Part(lane, method, {"noise": noise, "period": period}))
    return grouped(config, problem, parts, "map")


def cells(config: ArenaConfig, lanes: Frame) -> list[dict[str, Any]]:
    """The ratio of each method's gap to FBO's, with its paired 95 % interval over the fresh seeds: at every rate that
    both have, and (rate None) each at the rate that is best for it on the tuning seeds, or that it has.

    There `is_edge` says whether one of the two is at an end of those that were tried: beyond, it might be better.
    """
    result = []
    for (noise, period), here in lanes.groupby(["noise", "period"]):
        place = {"noise": float(noise), "period": float(period)}
        tried = {method: set(group["rate"]) for method, group in here.groupby("method")}
        chosen = {method: _best_rate(config, here[here["method"] == method]) for method in tried}
        for method in (name for name in COMPARED if name in tried):
            for rate in (None, *sorted(tried[method] & tried[FBO])):
                ours, theirs = (
                    _gaps(config, here, name, chosen[name] if rate is None else rate) for name in (method, FBO)
                )
                cell = {**place, "method": method, "rate": None if rate is None else float(rate)}
                if rate is None:
                    cell["is_edge"] = any(_is_edge(chosen[name], tried[name]) for name in (method, FBO))
                result.append({**cell, "ratio": ratio_of_means(ours, theirs)})
    return result


def _is_edge(rate: float, tried: set[float]) -> bool:
    return len(tried) > 1 and rate in (min(tried), max(tried))


def _best_rate(config: ArenaConfig, lanes: Frame) -> float:
    if lanes["rate"].nunique() == 1:
        return float(lanes["rate"].iloc[0])
    means = lanes[lanes["seed"].isin(config.tuning)].groupby("rate")["gap"].mean()
    return float(means.where(np.isfinite(means), np.inf).idxmin())


def _gaps(config: ArenaConfig, lanes: Frame, method: str, rate: float) -> Any:
    chosen = (lanes["method"] == method) & (lanes["rate"] == rate) & ~lanes["seed"].isin(config.tuning)
    return lanes[chosen].sort_values("seed")["gap"]
