"""Which of the paper's claims hold, and what the truth says: paired comparisons over seeds."""

import json
import math
from collections.abc import Iterator
from importlib import resources
from typing import Any

from smoothfbo.harness.methods import FBO, SMOOTH_FBO, find
from smoothfbo.harness.statistics import Frame, interval, ratio_interval
from smoothfbo.studies.regression.config import PRESETS, REGIMES, RegressionConfig

SAME = "against w = 1 at the same outer rate"
BEST = "each at its best outer rate"
SWEEP = "smoothing lowers the exact objective"
# Options that change what the best outer rates are.
TUNED_FOR = ("rounds", "adjoint_rate", "minibatch", "adjoint_steps", "lags", "inputs", "width", "noise", "amplitude",
             "frequency", "aid_ridge", "aid_steps")  # fmt: skip


def tuned_rates(sweep: tuple[float, ...]) -> dict[str, dict[tuple[str, int], float]]:
    """By regime, method and window: the rate of the sweep with the smallest exact objective on the tuning seeds.

    From the stored result of `smoothfbo regression --preset tune`, whose seeds are used for nothing else.
    """
    text = (resources.files("smoothfbo.studies.regression") / "tuned.json").read_text(encoding="utf-8")
    best: dict[str, dict[tuple[str, int], tuple[float, float]]] = {}
    for row in json.loads(text)["rows"]:
        place, candidate = (row["method"], row["window"]), (row["excess"], row["outer_rate"])
        here = best.setdefault(row["regime"], {})
        if any(math.isclose(row["outer_rate"], rate * REGIMES[row["regime"]].rate) for rate in sweep):
            here[place] = min(here.get(place, candidate), candidate)
    return {regime: {place: rate for place, (_, rate) in here.items()} for regime, here in best.items()}


def judge_claims(config: RegressionConfig, lanes: Frame) -> Iterator[dict[str, Any]]:
    """Each claim in each setting, with its 95 % interval. There are many: one in twenty errs by chance."""
    for drift in config.drift:
        base = at_base(lanes[lanes["regime"] == "default"], config.base, drift)
        yield from _effect_of_window(base[base["outer_rate"] == config.base["outer_rate"]], drift)
    if not config.sweep_rates:
        return
    drift, rates = config.drift[0], tuned_rates(config.sweep_rates)
    tuned = all(getattr(config, name) == getattr(PRESETS["tune"], name) for name in TUNED_FOR)
    for regime in config.sweep_regimes:
        here = at_base(lanes[lanes["regime"] == regime], config.base, drift)
        if tuned and drift == PRESETS["tune"].drift[0]:
            yield from _at_best_rates(here, drift, regime, rates.get(regime, {}))
        yield from _over_rates(here[here["outer_rate"] != 0], drift, regime)


def at_base(frame: Frame, base: dict[str, Any], drift: str) -> Frame:
    """Rows of the main comparison: the usual value of every factor but the outer rate."""
    chosen = frame["drift"] == drift
    for name in ("weights", "inner_rate", "adjoint_rate", "batch", "inner_steps"):
        chosen &= frame[name] == base[name]
    return frame[chosen]


def _effect_of_window(lanes: Frame, drift: str) -> Iterator[dict[str, Any]]:
    """SmoothFBO against FBO at the same outer rate."""
    single = _by_seed(lanes, FBO, 1)
    for window in _windows(lanes):
        smooth = _by_seed(lanes, SMOOTH_FBO, window)
        setting = {"drift": drift, "regime": "default", "window": window}
        for claim, metric in (
            ("the proxy falls", "proxy"),
            ("the variance of the used hypergradient falls", "variance"),
            ("the true regret falls (BLR_1 of both)", "regret_1"),
            ("the true regret falls (BLR_100 of both)", "regret_100"),
            ("the exact objective falls", "excess"),
        ):
            yield from _falls(claim, SAME, setting, single, smooth, metric)
        claim = "the cosine of the used hypergradient with the exact one grows"
        yield from _grows(claim, setting, single, smooth, 1.0)
        if window == 100:
            yield from _grows("the cosine at least doubles", setting, single, smooth, 2.0)
            yield from _falls("the proxy falls at least fivefold", SAME, setting, single, smooth, "proxy", 0.2)


def _at_best_rates(
    lanes: Frame, drift: str, regime: str, rates: dict[tuple[str, int], float]
) -> Iterator[dict[str, Any]]:
    """SmoothFBO against every other method, each at the outer rate that was best for it on the tuning seeds."""
    runs = {place: _by_seed(lanes[lanes["outer_rate"] == rate], *place) for place, rate in rates.items()}
    for (method, window), ours in runs.items():
        for (other, other_window), theirs in runs.items():
            if method == SMOOTH_FBO and other in (FBO, "aid", "unrolled"):
                setting = {"drift": drift, "regime": regime, "window": window, "outer_rate": rates[method, window]}
                setting["other_rate"] = rates[other, other_window]
                yield from _falls(
                    f"the exact objective is below that of {find(other).label}", BEST, setting, theirs, ours, "excess"
                )


def _over_rates(lanes: Frame, drift: str, regime: str) -> Iterator[dict[str, Any]]:
    """Where smoothing helps the exact objective: FBO against SmoothFBO at every outer rate of the sweep."""
    for rate, group in lanes.groupby("outer_rate"):
        single = _by_seed(group, FBO, 1)
        for window in _windows(group):
            setting = {"drift": drift, "regime": regime, "window": window, "outer_rate": float(rate)}
            smooth = _by_seed(group, SMOOTH_FBO, window)
            yield from _falls(SWEEP, SAME, setting, single, smooth, "excess")


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
            "claim": claim, "comparison": SAME, **setting, "metric": "cosine_used",
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
