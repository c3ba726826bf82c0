"""What the lanes of CartPole achieved, and what smoothing does to the return, with what confidence. No jax here."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from smoothfbo.harness.methods import SMOOTH_FBO
from smoothfbo.harness.statistics import (
    Frame,
    bootstrap,
    interquartile_mean,
    interval,
    probability_of_improvement,
)
from smoothfbo.harness.study import Measured, Program
from smoothfbo.studies.cartpole.config import GRID, SMOOTHING, CartPoleConfig
from smoothfbo.studies.cartpole.settings import best_settings

LATE_EVALUATIONS = (
    5  # evaluations at the end, or a tenth of all if these are more: their mean tells settings apart in tuning
)
WARM_UP = 50  # the first fiftieth of training does not count for the share of clipped steps
SHOWN_MOMENTS = 8  # of training, for the animation


def measure(program: Program, records: dict[str, np.ndarray]) -> Measured:
    """One row per evaluation; a lane's headline figures."""
    shown = records["shown"]
    records = {name: values for name, values in records.items() if name != "shown"}
    frames, lanes = [], []
    for index, keys in enumerate(program.lanes):
        frame: Frame = pd.DataFrame({**keys, **{name: values[index] for name, values in records.items()}})
        frame["cumulative_return"] = frame["return_mean"].cumsum()
        frame["proxy"] = frame["used_squares"].cumsum()
        frames.append(frame)
        last = frame.iloc[-1]
        lanes.append(
            {
                **keys,
                "final_return": last["return_mean"],
                "late_return": _late(frame["return_mean"]),
                "mean_return": frame["return_mean"].mean(),
                "newest_return": last["newest_return"],
                "newest_late_return": _late(frame["newest_return"]),
                "cumulative_return": last["cumulative_return"],
                "proxy": last["proxy"],
                "raw": frame["hypergradient_squares"].sum(),
                "clipped": frame["clipped"].iloc[len(frame) // WARM_UP :].mean(),
                "skipped": float(last["skipped"]),
                "frozen": float(not frame["finite"].all()),
            }
        )
    tables = {"metrics": pd.concat(frames, ignore_index=True), "lanes": pd.DataFrame(lanes)}
    return Measured(tables, _episodes(program, records, shown))


def _late(returns: pd.Series) -> float:
    return returns.iloc[-max(LATE_EVALUATIONS, len(returns) // 10) :].mean()


def _episodes(program: Program, records: dict[str, np.ndarray], shown: np.ndarray) -> dict[str, np.ndarray]:
    """How the first lane of each environment acts at moments of its training: axes (moment, step, column), columns
    round, low, high, position, angle."""
    moments = np.unique(np.linspace(0, shown.shape[1] - 1, SHOWN_MOMENTS).round().astype(int))
    result = {}
    for index, lane in reversed(list(enumerate(program.lanes))):
        when = np.stack([records[name][index, moments] for name in ("round", "reward_low", "reward_high")], axis=-1)
        steps = np.broadcast_to(when[:, None], (len(moments), shown.shape[2], 3))
        result[f"{lane['method']} {lane['environment']}"] = np.concatenate([steps, shown[index, moments]], axis=-1)
    return result


HEADLINES = (
    "final_return", "late_return", "mean_return", "cumulative_return", "newest_return", "newest_late_return",
    "proxy", "raw", "clipped",
)  # fmt: skip


def summarise(config: CartPoleConfig, tables: Mapping[str, Frame]) -> dict[str, Any]:
    """summary.json, and best.json, which the option `settings` reads."""
    lanes = tables["lanes"]
    groups = []
    for (method, environment, *numbers), group in lanes.groupby(["method", "environment", *GRID], sort=False):
        returns = group["final_return"].to_numpy()
        entry = {"method": method, "environment": environment, **dict(zip(GRID, map(float, numbers), strict=True))}
        entry["metrics"] = {name: interval(group[name]) for name in HEADLINES}
        entry["metrics"]["final_return_iqm"] = bootstrap([returns], interquartile_mean)
        logarithm = interval(np.log10(np.maximum(group["proxy"], np.finfo(np.float32).tiny)))
        entry["metrics"]["proxy_log10"] = logarithm  # the mean of the proxies is that of the largest ones
        entry |= {"max": float(returns.max()), "mean": float(returns.mean()), "min": float(returns.min())}
        entry["newest"] = {name: float(group["newest_return"].agg(name)) for name in ("max", "mean", "min")}
        entry |= {"seeds": len(returns), "frozen": int(group["frozen"].sum()), "skipped": float(group["skipped"].sum())}
        groups.append(entry)
    best = best_settings(config, lanes)
    return {"summary": {"groups": groups, "improvement": list(improvements(lanes)), "best": best}, "best": best}


def improvements(lanes: Frame) -> Any:
    """P(SmoothFBO's final return is above that of another method or shorter window), the difference of the means, and
    the same probability for the newest networks alone.

    Not for runs that try several settings of a method, windows and mixes aside: these are for tuning.
    """
    settings = lanes[["method", *GRID]].drop_duplicates()
    if settings.duplicated(["method", *SMOOTHING]).any():
        return
    for environment, here in lanes.groupby("environment", sort=False):
        groups = list(here.groupby(["method", *SMOOTHING], sort=False))
        for (method, window, mix), own in groups:
            for (other, other_window, _), rest in groups:
                if method == SMOOTH_FBO and (other != method or other_window < window):
                    samples = [own["final_return"], rest["final_return"]]
                    yield {
                        "environment": environment, "window": int(window), "mix": float(mix),
                        "other": other, "other_window": int(other_window),
                        "probability": bootstrap(samples, probability_of_improvement),
                        "difference": bootstrap(samples, lambda x, y: x.mean(axis=-1) - y.mean(axis=-1)),
                        "newest": bootstrap([own["newest_return"], rest["newest_return"]], probability_of_improvement),
                    }  # fmt: skip
