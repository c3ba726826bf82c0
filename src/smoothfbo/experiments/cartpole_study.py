"""The CartPole study: programs, measures, and what smoothing does to the return, with what confidence."""

import json
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from smoothfbo.errors import UsageError
from smoothfbo.experiments.cartpole import Settings, programs
from smoothfbo.experiments.cartpole_config import GRID, CartPoleConfig
from smoothfbo.experiments.program import Measured, Program, Study
from smoothfbo.experiments.statistics import (
    Frame,
    bootstrap,
    interquartile_mean,
    interval,
    probability_of_improvement,
)

SETTINGS_VERSION = 1
LATE = 5  # evaluations at the end whose mean tells settings apart in tuning
SHOWN_MOMENTS = 8  # of training, for the animation
ENOUGH_SEEDS = 5
CANDIDATES = 2  # settings of a method that a settings file keeps, the best one among them


def study(config: CartPoleConfig) -> Study:
    settings = read_settings(config.settings, "candidates" if config.candidates else "methods")
    return Study("cartpole", config, programs(config, settings), measure, partial(summarise, config))


def read_settings(source: str, part: str = "methods") -> Settings:
    """`tuned` is what the package ships, `none` is the options alone, everything else is a file of `tune`."""
    if source == "none":
        return {}
    shipped = resources.files("smoothfbo.experiments") / "cartpole_tuned.json"
    try:
        text = shipped.read_text(encoding="utf-8") if source == "tuned" else Path(source).read_text(encoding="utf-8")
        content = json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"--settings {source} cannot be read: {error}.") from error
    version = content.get("version") if isinstance(content, dict) else None
    if version != SETTINGS_VERSION:
        raise UsageError(
            f"--settings {source} is of version {version}; this smoothfbo reads version {SETTINGS_VERSION}."
        )
    if part not in content:
        raise UsageError(f"--settings {source} names no {part}; give the best.json of a run of --preset tune.")
    return content[part]


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
                "late_return": frame["return_mean"].iloc[-LATE:].mean(),
                "mean_return": frame["return_mean"].mean(),
                "cumulative_return": last["cumulative_return"],
                "proxy": last["proxy"],
                "raw": frame["hypergradient_squares"].sum(),
                "skipped": float(last["skipped"]),
                "frozen": float(not frame["finite"].all()),
            }
        )
    return Measured(pd.concat(frames, ignore_index=True), pd.DataFrame(lanes), _episodes(program, records, shown))


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


HEADLINES = ("final_return", "late_return", "mean_return", "cumulative_return", "proxy", "raw")


def summarise(config: CartPoleConfig, rounds: Frame, lanes: Frame) -> dict[str, Any]:
    del rounds
    groups = []
    for (method, environment, *numbers), group in lanes.groupby(["method", "environment", *GRID], sort=False):
        returns = group["final_return"].to_numpy()
        entry = {"method": method, "environment": environment, **dict(zip(GRID, map(float, numbers), strict=True))}
        entry["metrics"] = {name: interval(group[name]) for name in HEADLINES}
        entry["metrics"]["final_return_iqm"] = bootstrap([returns], interquartile_mean)
        entry |= {"max": float(returns.max()), "mean": float(returns.mean()), "min": float(returns.min())}
        entry |= {"seeds": len(returns), "frozen": int(group["frozen"].sum()), "skipped": float(group["skipped"].sum())}
        groups.append(entry)
    return {"groups": groups, "improvement": list(improvements(lanes)), "best": best_settings(config, lanes)}


def improvements(lanes: Frame) -> Any:
    """P(SmoothFBO's final return is above that of another method), and the difference of the means."""
    for environment, here in lanes.groupby("environment", sort=False):
        ours = here[here["method"] == "smooth-fbo"]
        for (window, mix), own in ours.groupby(["window", "mix"], sort=False):
            for method, other in here[here["method"] != "smooth-fbo"].groupby("method", sort=False):
                samples = [own["final_return"], other["final_return"]]
                yield {
                    "environment": environment, "window": int(window), "mix": float(mix), "other": method,
                    "probability": bootstrap(samples, probability_of_improvement),
                    "difference": bootstrap(samples, lambda x, y: x.mean(axis=-1) - y.mean(axis=-1)),
                }  # fmt: skip


def best_settings(config: CartPoleConfig, lanes: Frame) -> dict[str, Any]:
    """For each method the numbers with the highest mean late return, in the form of a settings file.

    With fewer than `ENOUGH_SEEDS` seeds a mean says little: then neighbours in the grid, which differ in one number,
    count as much as the setting itself, so that a good region wins and not a lucky seed.
    """
    reach = 1 if config.seeds < ENOUGH_SEEDS else 0
    candidates = {}
    for method, group in lanes.groupby("method", sort=False):
        means = group.groupby(list(GRID), sort=False)["late_return"].mean()
        places = np.array(list(means.index), float)
        near = (places[:, None] != places[None]).sum(axis=-1) <= reach
        order = np.argsort(-(near @ means.to_numpy()) / near.sum(axis=1), kind="stable")
        candidates[str(method)] = [dict(zip(GRID, map(float, places[index]), strict=True)) for index in order]
    return {
        "version": SETTINGS_VERSION,
        "steps": config.steps,
        "seeds": [config.first_seed, config.first_seed + config.seeds - 1],
        "methods": {method: settings[:1] for method, settings in candidates.items()},
        "candidates": {method: settings[:CANDIDATES] for method, settings in candidates.items()},
    }
