"""The map of when smoothing pays: noise × speed of drift × rate, on the moving sources."""

from itertools import product
from typing import Any

import numpy as np

from smoothfbo.harness.methods import FBO, SMOOTH_FBO
from smoothfbo.harness.statistics import Frame, ratio_of_means
from smoothfbo.harness.study import Program
from smoothfbo.studies.arena.config import ArenaConfig
from smoothfbo.studies.arena.entries import ArenaMethod, ArenaProblem
from smoothfbo.studies.arena.grid import Lane, rates
from smoothfbo.studies.arena.program import Part, grouped

PROBLEM = "sources"
COMPARED = (SMOOTH_FBO,)  # with FBO


def programs(config: ArenaConfig, problem: ArenaProblem, methods: tuple[ArenaMethod, ...]) -> list[Program]:
    """Every method at every noise, period and rate, with plain steps, and SmoothFBO with one window."""
    seeds = (*config.tuning, *config.fresh[: config.map_seeds])
    grid = product(methods, config.map_noises, config.map_periods, rates(problem.rates, config.map_rates), seeds)
    parts = [
        Part(
            Lane(problem.name, method.name, "plain", config.map_window if max(method.windows) > 1 else 1, rate, seed),
            method,
            {"noise": noise, "period": period},
        )
        for method, noise, period, rate, seed in grid
    ]
    return grouped(config, problem, parts, "map")


def cells(config: ArenaConfig, lanes: Frame) -> list[dict[str, Any]]:
    """The ratio of each method's gap to FBO's, with its paired 95 % interval over the fresh seeds: at every rate, and
    (rate None) each at the rate that is best for it on the tuning seeds."""
    result = []
    for (noise, period), here in lanes.groupby(["noise", "period"]):
        place = {"noise": float(noise), "period": float(period)}
        chosen = {method: _best_rate(config, group) for method, group in here.groupby("method")}
        for method in (name for name in chosen if name != FBO):
            for rate in (None, *sorted(here["rate"].unique())):
                ours, theirs = (
                    _gaps(config, here, name, chosen[name] if rate is None else rate) for name in (method, FBO)
                )
                ratio = ratio_of_means(ours, theirs)
                result.append(
                    {**place, "method": method, "rate": None if rate is None else float(rate), "ratio": ratio}
                )
    return result


def _best_rate(config: ArenaConfig, lanes: Frame) -> float:
    means = lanes[lanes["seed"].isin(config.tuning)].groupby("rate")["gap"].mean()
    return float(means.where(np.isfinite(means), np.inf).idxmin())


def _gaps(config: ArenaConfig, lanes: Frame, method: str, rate: float) -> Any:
    chosen = (lanes["method"] == method) & (lanes["rate"] == rate) & ~lanes["seed"].isin(config.tuning)
    return lanes[chosen].sort_values("seed")["gap"]
