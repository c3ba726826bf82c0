"""The settings that a method tries, the same number for each. No jax here."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.studies.arena.config import ArenaConfig
from smoothfbo.studies.arena.entries import ArenaMethod, ArenaProblem

RULES = ("plain", "normalised")
SETTING = ["rule", "window", "rate"]
SHARES = (0.1, 0.3, 1.0, 3.0, 10.0)  # of the rate of a method that is not tuned


@dataclass(frozen=True)
class Setting:
    """One trial: the step rule, the window and the rate (plain) or length (normalised) of the steps."""

    rule: str
    window: int
    rate: float


@dataclass(frozen=True)
class Lane:
    """A method on a problem with its setting and its seed; what tells it apart in the tables."""

    problem: str
    method: str
    rule: str
    window: int
    rate: float
    seed: int

    def keys(self) -> dict[str, Any]:
        return asdict(self)


def settings(method: ArenaMethod, problem: ArenaProblem, trials: int) -> tuple[Setting, ...]:
    """`trials` settings: rules × windows × rates. A method with fewer windows tries more rates in the same range."""
    if method.untuned is not None:
        own = method.untuned  # as it is: the lanes that are reported are found by it
        shares = (own if share == 1 else _round(share * own) for share in SHARES)
        return tuple(Setting(RULES[0], method.windows[0], rate) for rate in shares)
    number = trials // (len(RULES) * len(method.windows))
    if number < 1:
        windows = len(method.windows)
        raise UsageError(
            f"`trials` must be at least {len(RULES) * windows}, for the {windows} windows of {method.name}, got "
            f"{trials}."
        )
    return tuple(
        Setting(rule, window, rate)
        for rule in RULES
        for window in method.windows
        for rate in rates(problem.rates if rule == "plain" and not method.is_scaled else problem.lengths, number)
    )


def rates(ends: tuple[float, float], number: int) -> list[float]:
    """Evenly spaced in logarithms, both ends among them; a single one lies in the middle."""
    if number == 1:
        return [_round(float(np.sqrt(ends[0] * ends[1])))]
    return [_round(float(rate)) for rate in np.geomspace(*ends, number)]


def tuning_lanes(method: ArenaMethod, problem: ArenaProblem, config: ArenaConfig) -> Iterator[Lane]:
    """Every setting with every tuning seed."""
    for setting in settings(method, problem, config.trials):
        yield from with_seeds(method, problem, setting, config.tuning)


def with_seeds(method: ArenaMethod, problem: ArenaProblem, setting: Setting, seeds: tuple[int, ...]) -> Iterator[Lane]:
    for seed in seeds:
        yield Lane(problem.name, method.name, setting.rule, setting.window, setting.rate, seed)


def _round(rate: float) -> float:
    return float(f"{rate:.4g}")
