"""The CartPole study: programs, measures, and what smoothing does to the return, with what confidence."""

import json
import math
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from smoothfbo.errors import UsageError
from smoothfbo.harness.statistics import (
    Frame,
    bootstrap,
    interquartile_mean,
    interval,
    probability_of_improvement,
)
from smoothfbo.harness.study import Measured, Program, Study
from smoothfbo.studies.cartpole.config import GRID, PRESETS, SMOOTHING, CartPoleConfig
from smoothfbo.studies.cartpole.program import Settings, programs

SETTINGS_VERSION = 2
LATE = 5  # evaluations at the end, or a tenth of all if these are more: their mean tells settings apart in tuning
SHOWN_MOMENTS = 8  # of training, for the animation
ENOUGH_SEEDS = 3
KEPT = 12  # settings of a method that a settings file names, the best one first


def study(config: CartPoleConfig, stored: dict[str, Any] | None = None) -> Study:
    """`stored` are the settings of a run that is taken up: their file may have changed or be gone."""
    settings = checked(config, read_settings(config.settings) if stored is None else stored)
    lanes = programs(config, tried(config, settings))
    return Study("cartpole", config, lanes, measure, partial(summarise, config), {"settings": settings})


def tried(config: CartPoleConfig, settings: Settings) -> Settings:
    """Of each method the best settings, without what varies: as many as make `config.trials`, at least one."""

    def best(method: str) -> list[dict[str, float]]:
        varied = [name for name in config.vary if name not in SMOOTHING or method.startswith("smooth-")]
        values = math.prod(len(getattr(config, name)) for name in varied)
        fixed = [{name: number for name, number in each.items() if name not in varied} for each in settings[method]]
        different = [each for index, each in enumerate(fixed) if each not in fixed[:index]]
        return different[: max(1, config.trials // values)]

    return {method: best(method) for method in settings}


def read_settings(source: str) -> dict[str, Any]:
    """For each method its settings, the best one first.

    `tuned` is what the package ships, `none` is the options alone, everything else is a file that a run wrote.
    """
    if source == "none":
        return {}
    shipped = resources.files("smoothfbo.studies.cartpole") / "tuned.json"
    try:
        text = shipped.read_text(encoding="utf-8") if source == "tuned" else Path(source).read_text(encoding="utf-8")
        content = json.loads(text)
    except FileNotFoundError as error:
        before = {preset.settings: name for name, preset in PRESETS.items()}.get(source)
        hint = f"; run the preset before {before} first: tune, retune, choose" if before else ""
        raise UsageError(f"--settings {source} does not exist{hint}.") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"--settings {source} cannot be read: {error}.") from error
    version = content.get("version") if isinstance(content, dict) else None
    if version != SETTINGS_VERSION:
        raise UsageError(
            f"--settings {source} is of version {version}; this smoothfbo reads version {SETTINGS_VERSION}."
        )
    methods = content.get("methods")
    if not isinstance(methods, dict) or not methods:
        raise UsageError(f"--settings {source} names no methods; give the best.json of a run of --preset tune.")
    return methods


def checked(config: CartPoleConfig, settings: dict[str, Any]) -> Settings:
    """The settings of the configuration's methods, whose numbers the options would allow."""
    if not settings:
        return {}
    where = f"--settings {config.settings}"
    for method in config.methods:
        entries = settings.get(method)
        if not isinstance(entries, list) or not entries or not all(isinstance(each, dict) for each in entries):
            raise UsageError(
                f"{where} has no settings of {method}; known there are {', '.join(settings)}. "
                "Take one of these methods, another file, or --settings none."
            )
        for name, number in ((name, number) for each in entries for name, number in each.items()):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise UsageError(f"{where}: {name} of {method} must be a number, got {number!r}.")
            if name not in GRID:
                raise UsageError(f"{where}: unknown {name} of {method}; known are {', '.join(GRID)}.")
            if name == "window" and not float(number).is_integer():
                raise UsageError(f"{where}: window of {method} must be a whole number, got {number}.")
            try:
                value = (int(number),) if name == "window" else (float(number),)
                used = {"vary": ("window",)} if name == "window" else {}  # what is not used is not checked
                replace(config, **{name: value}, **used)
            except UsageError as error:
                raise UsageError(f"{where}, {method}: {error}") from error
    return {
        method: [{name: float(number) for name, number in each.items()} for each in settings[method]]
        for method in config.methods
    }


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
                "skipped": float(last["skipped"]),
                "frozen": float(not frame["finite"].all()),
            }
        )
    return Measured(pd.concat(frames, ignore_index=True), pd.DataFrame(lanes), _episodes(program, records, shown))


def _late(returns: pd.Series) -> float:
    return returns.iloc[-max(LATE, len(returns) // 10) :].mean()


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
    "proxy", "raw",
)  # fmt: skip


def summarise(config: CartPoleConfig, rounds: Frame, lanes: Frame) -> dict[str, Any]:
    del rounds
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
    return {"groups": groups, "improvement": list(improvements(lanes)), "best": best_settings(config, lanes)}


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
                if method == "smooth-fbo" and (other != method or other_window < window):
                    samples = [own["final_return"], rest["final_return"]]
                    yield {
                        "environment": environment, "window": int(window), "mix": float(mix),
                        "other": other, "other_window": int(other_window),
                        "probability": bootstrap(samples, probability_of_improvement),
                        "difference": bootstrap(samples, lambda x, y: x.mean(axis=-1) - y.mean(axis=-1)),
                        "newest": bootstrap([own["newest_return"], rest["newest_return"]], probability_of_improvement),
                    }  # fmt: skip


def best_settings(config: CartPoleConfig, lanes: Frame) -> dict[str, Any]:
    """For each method the numbers with the highest mean late return, in the form of a settings file.

    With fewer than `ENOUGH_SEEDS` seeds a mean says little: then neighbours in the grid, which differ in one number,
    count as much as the setting itself, so that a good region wins and not a lucky seed.
    """
    ranked = {}
    for method, group in lanes.groupby("method", sort=False):
        settings = group.groupby(list(GRID), sort=False)
        reach = 1 if settings["seed"].nunique().min() < ENOUGH_SEEDS else 0
        means = settings["late_return"].mean()
        places = np.array(list(means.index), float)
        near = (places[:, None] != places[None]).sum(axis=-1) <= reach
        order = np.argsort(-(near @ means.to_numpy()) / near.sum(axis=1), kind="stable")
        ranked[str(method)] = [dict(zip(GRID, map(float, places[index]), strict=True)) for index in order]
    return {
        "version": SETTINGS_VERSION,
        "steps": config.steps,
        "seeds": [int(lanes["seed"].min()), int(lanes["seed"].max())],
        "methods": {method: settings[:KEPT] for method, settings in ranked.items()},
    }
