"""Which of the paper's claims hold, and what the truth says: paired comparisons over seeds."""

import json
import math
from collections.abc import Iterator
from importlib import resources
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from smoothfbo.harness.methods import FBO, RECOMMENDED, SMOOTH_FBO
from smoothfbo.harness.statistics import Frame, interval, ratio_interval
from smoothfbo.studies.regression.config import RegressionConfig
from smoothfbo.studies.regression.lanes import REGIMES
from smoothfbo.studies.regression.methods import find
from smoothfbo.studies.regression.presets import PRESETS

SAME_RATE = "against w = 1 at the same outer rate"
BEST_RATE = "each at its best outer rate"
BEST_RATE_AND_BATCHES = "each at its best outer rate and mini-batches"
UNTUNED = "nothing tuned, against the other at the best outer rate and mini-batches of this run"
COMPARED = ("claim", "comparison", "drift", "weights", "minibatch", "regime")  # what is compared, and where
LOWER_OBJECTIVE = "smoothing lowers the exact objective"
# Options that change what the best outer rates are.
TUNED_FOR = ("rounds", "adjoint_rate", "adjoint_steps", "lags", "tied", "final", "inputs", "width", "noise",
             "amplitude", "frequency", "aid_ridge", "aid_steps")  # fmt: skip

Method: TypeAlias = tuple[str, int]  # its name and its window


class Tuned(NamedTuple):
    """What was best for a method on the tuning seeds."""

    excess: float
    outer_rate: float
    minibatch: str


def tuned_rates(sweep: tuple[float, ...]) -> dict[tuple[str, str, str], dict[Method, Tuned]]:
    """By regime, kind of weights and mini-batches: for each method and window the rate of the sweep with the smallest
    exact objective on the tuning seeds.

    From the stored result of `smoothfbo regression --preset tune`, whose seeds are used for nothing else.
    """
    text = (resources.files("smoothfbo.studies.regression") / "tuned.json").read_text(encoding="utf-8")
    best: dict[tuple[str, str, str], dict[Method, Tuned]] = {}
    for row in json.loads(text)["rows"]:
        if any(math.isclose(row["outer_rate"], rate * REGIMES[row["regime"]].rate) for rate in sweep):
            here = best.setdefault((row["regime"], row["weights"], row["minibatch"]), {})
            method, candidate = (row["method"], row["window"]), Tuned(*(row[name] for name in Tuned._fields))
            here[method] = min(here.get(method, candidate), candidate)
    return best


def best_use(rates: dict[tuple[str, str, str], dict[Method, Tuned]], weights: str) -> dict[Method, Tuned]:
    """The better kind of mini-batches for each method and window, each at its best rate, in the default regime."""
    best: dict[Method, Tuned] = {}
    for (regime, kind, _), methods in rates.items():
        for method, tuned in methods.items() if (regime, kind) == ("default", weights) else ():
            best[method] = min(best.get(method, tuned), tuned)
    return best


def judge_claims(config: RegressionConfig, lanes: Frame) -> Iterator[dict[str, Any]]:
    """Each claim in each setting, with its 95 % interval. There are many: one in twenty errs by chance."""
    kinds = list(product(config.weights, config.minibatch))
    for drift, weights in product(config.drift, config.weights):
        places = [_place(drift, weights, minibatch) for minibatch in config.minibatch]
        everywhere = pd.concat([at_base(lanes, place, config.base) for place in places])
        yield from _untuned(everywhere, _place(drift, weights, config.base["minibatch"]))
    for drift, (weights, minibatch) in product(config.drift, kinds):
        base = at_base(lanes, _place(drift, weights, minibatch), config.base)
        yield from _effect_of_window(
            base[base["outer_rate"] == config.base["outer_rate"]], _place(drift, weights, minibatch)
        )
    if not config.sweep_rates:
        return
    drift, rates = config.drift[0], tuned_rates(config.sweep_rates)
    tuned = all(getattr(config, name) == getattr(PRESETS["tune"], name) for name in TUNED_FOR)
    tuned &= drift == PRESETS["tune"].drift[0]
    for regime, (weights, minibatch) in product(config.sweep_regimes, kinds):
        place = _place(drift, weights, minibatch, regime)
        here = at_base(lanes, place, config.base)
        if tuned:
            yield from _at_best(here, place, BEST_RATE, rates.get((regime, weights, minibatch), {}))
        yield from _over_rates(here[here["outer_rate"] != 0], place)
    for weights in config.weights if tuned and len(config.minibatch) > 1 else ():
        parts = [at_base(lanes, _place(drift, weights, minibatch), config.base) for minibatch in config.minibatch]
        place = _place(drift, weights, "tuned")
        yield from _at_best(pd.concat(parts), place, BEST_RATE_AND_BATCHES, best_use(rates, weights))


def _place(drift: str, weights: str, minibatch: str, regime: str = "default") -> dict[str, Any]:
    return {"drift": drift, "weights": weights, "minibatch": minibatch, "regime": regime}


def at_base(frame: Frame, place: dict[str, Any], base: dict[str, Any]) -> Frame:
    """Rows of a place, with the usual value of every factor that it does not name, but the outer rate."""
    usual = ("weights", "minibatch", "inner_rate", "adjoint_rate", "batch", "inner_steps")
    wanted = {name: base[name] for name in usual}
    wanted |= {name: value for name, value in place.items() if name in frame}
    return frame[np.logical_and.reduce([frame[name] == value for name, value in wanted.items()])]


def _effect_of_window(lanes: Frame, place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """SmoothFBO against FBO at the same outer rate."""
    single = _by_seed(lanes, FBO, 1)
    for window in _windows(lanes):
        smooth = _by_seed(lanes, SMOOTH_FBO, window)
        setting = {**place, "window": window}
        for claim, metric in (
            ("the proxy falls", "proxy"),
            ("the variance of the smoothed gradient falls", "variance"),
            ("the true regret falls (BLR_1 of both)", "regret_1"),
            ("the true regret falls (BLR_100 of both)", "regret_100"),
            ("the exact objective falls", "excess"),
        ):
            yield from _falls(claim, SAME_RATE, setting, single, smooth, metric)
        claim = "the cosine of the smoothed gradient with the exact one grows"
        yield from _grows(claim, setting, single, smooth, 1.0)
        if window == 100:
            yield from _grows("the cosine at least doubles", setting, single, smooth, 2.0)
            yield from _falls("the proxy falls at least fivefold", SAME_RATE, setting, single, smooth, "proxy", 0.2)


def _untuned(lanes: Frame, place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The recommended method against FBO and the exact hypergradient, with what is best for these on the same seeds."""
    ours = _by_seed(lanes, RECOMMENDED, 1)
    for other, claim, limit in (
        (FBO, "the recommended method has a lower exact objective than FBO", 1.0),
        ("exact", "the recommended method has at most 1.2 times the objective of the exact hypergradient", 1.2),
    ):
        theirs = lanes[lanes["method"] == other]
        if len(ours) and len(theirs):
            means = theirs.groupby(["outer_rate", "minibatch"], observed=True)["excess"].mean()
            rate, minibatch = means.index[means.fillna(np.inf).argmin()]
            chosen = theirs[(theirs["outer_rate"] == rate) & (theirs["minibatch"] == minibatch)]
            rival = _by_seed(chosen, other, 1)
            setting = {**place, "window": 1, "other_rate": float(rate), "other_minibatch": minibatch}
            yield from _falls(claim, UNTUNED, setting, rival, ours, "excess", limit)


def _at_best(
    lanes: Frame, place: dict[str, Any], comparison: str, tuned: dict[Method, Tuned]
) -> Iterator[dict[str, Any]]:
    """SmoothFBO against every other method, each with what was best for it on the tuning seeds."""
    runs = {
        method: _by_seed(
            lanes[(lanes["outer_rate"] == best.outer_rate) & (lanes["minibatch"] == best.minibatch)], *method
        )
        for method, best in tuned.items()
    }
    for (name, window), ours in runs.items():
        for (other, other_window), theirs in runs.items():
            if name == SMOOTH_FBO and other in (FBO, "aid", "unrolled"):
                own, rival = tuned[name, window], tuned[other, other_window]
                setting = {**place, "window": window, "outer_rate": own.outer_rate, "other_rate": rival.outer_rate}
                if comparison == BEST_RATE_AND_BATCHES:
                    setting |= {"own_minibatch": own.minibatch, "other_minibatch": rival.minibatch}
                claim = f"the exact objective is below that of {find(other).label}"
                yield from _falls(claim, comparison, setting, theirs, ours, "excess")


def _over_rates(lanes: Frame, place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Where smoothing helps the exact objective: FBO against SmoothFBO at every outer rate of the sweep."""
    for rate, group in lanes.groupby("outer_rate"):
        single = _by_seed(group, FBO, 1)
        for window in _windows(group):
            setting = {**place, "window": window, "outer_rate": float(rate)}
            smooth = _by_seed(group, SMOOTH_FBO, window)
            yield from _falls(LOWER_OBJECTIVE, SAME_RATE, setting, single, smooth, "excess")


def _windows(lanes: Frame) -> list[int]:
    return sorted(int(window) for window in lanes.loc[lanes["method"] == SMOOTH_FBO, "window"].unique())


def _by_seed(lanes: Frame, method: str, window: int) -> Frame:
    chosen = lanes[(lanes["method"] == method) & (lanes["window"] == window)].set_index("seed")
    assert chosen.index.is_unique, f"several lanes of {method} with window {window} in one comparison"
    return chosen


def _falls(
    claim: str, comparison: str, setting: dict[str, Any], before: Frame, after: Frame, metric: str, limit: float = 1.0
) -> Iterator[dict[str, Any]]:
    """The ratio after / before is below the limit (geometric mean of paired ratios)."""
    common = before.index.intersection(after.index)
    if len(common):
        ratio = ratio_interval(after.loc[common, metric], before.loc[common, metric])
        yield {
            "claim": claim, "comparison": comparison, **setting, "metric": metric, "measure": "ratio", "value": ratio,
            "limit": limit, "verdict": verdict(ratio, limit, len(common), below=True),
        }  # fmt: skip


def _grows(claim: str, setting: dict[str, Any], before: Frame, after: Frame, factor: float) -> Iterator[dict[str, Any]]:
    """after − factor·before is above zero (paired; cosines may be negative, so there are no ratios)."""
    common = before.index.intersection(after.index)
    if len(common):
        old, new = before.loc[common, "cosine_used"], after.loc[common, "cosine_used"]
        difference = interval(new - factor * old)
        yield {
            "claim": claim, "comparison": SAME_RATE, **setting, "metric": "cosine_used",
            "measure": f"cosine − {factor:g} × cosine at w = 1", "value": difference, "limit": 0.0,
            "verdict": verdict(difference, 0.0, len(common), below=False),
        }  # fmt: skip


def verdict(value: dict[str, Any], limit: float, pairs: int, *, below: bool) -> str:
    """It holds if the whole interval is on the good side of the limit, fails if on the other, and is else open.

    Open, too, if a seed gave no finite figure: the others are not a fair sample.
    """
    if value["low"] is None or value["seeds"] < pairs:
        return "open"
    if value["high"] < limit:
        return "holds" if below else "fails"
    if value["low"] > limit:
        return "fails" if below else "holds"
    return "open"
