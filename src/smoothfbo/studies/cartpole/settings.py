"""Settings of the methods: read from a file or from the package, checked, and found by tuning. No jax here."""

import json
import math
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.harness.folders import read_description
from smoothfbo.harness.statistics import Frame
from smoothfbo.studies.cartpole.config import GRID, SMOOTHING, CartPoleConfig, Settings
from smoothfbo.studies.cartpole.methods import find
from smoothfbo.studies.cartpole.presets import PRESETS

SETTINGS_VERSION = 2
ENOUGH_SEEDS = 3
KEPT = 12  # settings of a method that a settings file names, the best one first


def stored_settings(config: CartPoleConfig, folder: Path) -> dict[str, Any] | None:
    """The settings that the run in the folder began with; None if there is none, or one of other settings."""
    if not (folder / "config.json").exists():
        return None
    description = read_description(folder)
    return description.get("settings") if description["config"].get("settings") == config.settings else None


def settings_to_try(config: CartPoleConfig, settings: Settings) -> Settings:
    """The best settings of each method, without what varies: as many as make `config.trials`, at least one."""

    def best(method: str) -> list[dict[str, float]]:
        varied = [name for name in config.vary if name not in SMOOTHING or find(method).is_smoothed]
        values = math.prod(len(getattr(config, name)) for name in varied)
        fixed = [{name: number for name, number in each.items() if name not in varied} for each in settings[method]]
        different = [each for index, each in enumerate(fixed) if each not in fixed[:index]]
        return different[: max(1, config.trials // values)]

    return {method: best(method) for method in settings}


def read_settings(source: str) -> dict[str, Any]:
    """The settings of each method, the best one first.

    `tuned` is what the package ships, `none` is the options alone, everything else is a file that a run wrote.
    """
    if source == "none":
        return {}
    shipped = resources.files("smoothfbo.studies.cartpole") / "tuned.json"
    try:
        text = shipped.read_text(encoding="utf-8") if source == "tuned" else Path(source).read_text(encoding="utf-8")
        content = json.loads(text)
    except FileNotFoundError as error:
        writer = {f"out/cartpole-{name}/best.json": name for name in PRESETS}.get(source)
        hint = f"; the preset {writer} writes it: run that first" if writer else ""
        raise UsageError(f"`settings` {source} does not exist{hint}.") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"`settings` {source} cannot be read: {error}.") from error
    version = content.get("version") if isinstance(content, dict) else None
    if version != SETTINGS_VERSION:
        raise UsageError(
            f"`settings` {source} is of version {version}; this smoothfbo reads version {SETTINGS_VERSION}."
        )
    methods = content.get("methods")
    if not isinstance(methods, dict) or not methods:
        raise UsageError(f"`settings` {source} names no methods; give the best.json of a run of `preset` tune.")
    return methods


def checked(config: CartPoleConfig, settings: dict[str, Any]) -> Settings:
    """The settings of the configuration's methods, whose numbers the options would allow."""
    if not settings:
        return {}
    where = f"`settings` {config.settings}"
    for method in config.methods:
        entries = settings.get(method)
        if not isinstance(entries, list) or not entries or not all(isinstance(each, dict) for each in entries):
            raise UsageError(
                f"{where} has no settings of {method}; known there are {', '.join(settings)}. "
                "Take one of these methods, another file, or `settings` none."
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


def best_settings(config: CartPoleConfig, lanes: Frame) -> dict[str, Any]:
    """The numbers of each method with the highest mean late return, in the form of a settings file.

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
