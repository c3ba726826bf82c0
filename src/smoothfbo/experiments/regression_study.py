"""The regression as a study: programs, measures, and what they say about the paper's claims."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from smoothfbo.experiments.program import Study
from smoothfbo.experiments.regression import programs
from smoothfbo.experiments.regression_config import TUNED_RATES, RegressionConfig
from smoothfbo.experiments.regression_measure import HEADLINES, measure, stream_of_lane
from smoothfbo.experiments.statistics import Frame, interval, ratio_interval

SETTING = ("drift", "weights", "regime", "noise", "frequency", "batch", "inner_steps", "inner_rate", "outer_rate")
GROUP = (*SETTING, "method", "window")


def study(config: RegressionConfig) -> Study:
    return Study("regression", config, programs(config), partial(measure, config), partial(summarise, config))


def summarise(config: RegressionConfig, rounds: Frame, lanes: Frame) -> dict[str, Any]:
    del rounds
    groups = []
    for keys, group in lanes.groupby(list(GROUP), sort=False):
        present = [name for name in HEADLINES if name in group and group[name].notna().any()]
        groups.append({**dict(zip(GROUP, keys, strict=True)), "metrics": {n: interval(group[n]) for n in present}})
    stream = stream_of_lane(config, next(config.lanes()))
    truth = {"seed": config.first_seed, "weight": stream.weight[:, 0].tolist(), "bias": float(stream.bias[0])}
    return {"truth": truth, "groups": groups, "claims": list(judge_claims(config, lanes))}


def judge_claims(config: RegressionConfig, lanes: Frame) -> Iterator[dict[str, Any]]:
    """The paper's claims, and what the truth says, as paired comparisons over seeds with 95 % intervals."""
    for drift in config.drift:
        base = lanes[
            (lanes["drift"] == drift)
            & (lanes["weights"] == config.weights[0])
            & (lanes["regime"] == "default")
            & (lanes["inner_rate"] == config.inner_rate[0])
            & (lanes["batch"] == config.batch[0])
            & (lanes["inner_steps"] == config.inner_steps[0])
        ]
        yield from _effect_of_window(base[base["outer_rate"] == config.outer_rate[0]], drift)
    for regime, group in lanes[lanes["regime"] != ""].groupby("regime", sort=False):
        if config.sweep_rates:
            here = group[(group["drift"] == config.drift[0]) & (group["inner_rate"] == config.inner_rate[0])]
            yield from _at_best_rates(here, config.drift[0], str(regime))
            yield from _over_rates(here, str(regime))


def _effect_of_window(lanes: Frame, drift: str) -> Iterator[dict[str, Any]]:
    """SmoothFBO against FBO at the same outer rate."""
    single = _by_seed(lanes, "fbo", 1)
    for window in sorted(lanes.loc[lanes["method"] == "smooth-fbo", "window"].unique()):
        smooth = _by_seed(lanes, "smooth-fbo", window)
        setting = {"drift": drift, "window": int(window)}
        for claim, metric, falls in (
            ("the proxy falls", "proxy", True),
            ("the variance of the used hypergradient falls", "variance", True),
            ("the used hypergradient is closer to the truth (cosine)", "cosine_used", False),
            ("the true regret BLR_w falls", "regret", True),
            ("the exact objective (its excess) falls", "excess", True),
        ):
            paired = _paired(single, smooth, metric)
            if paired is not None:
                ratio = ratio_interval(paired[1], paired[0])
                yield _claim(claim, "w against 1, same rate", setting, metric, ratio, falls)


def _at_best_rates(lanes: Frame, drift: str, regime: str) -> Iterator[dict[str, Any]]:
    """SmoothFBO against every other method, each at the outer rate that was best for it on the tuning seeds."""
    available = [
        (method, window, rate)
        for (method, window), rate in TUNED_RATES.get(regime, {}).items()
        if len(lanes[(lanes["method"] == method) & (lanes["window"] == window) & (lanes["outer_rate"] == rate)])
    ]
    smooth = [entry for entry in available if entry[0] == "smooth-fbo"]
    for _, window, rate in smooth:
        ours = _by_seed(lanes[lanes["outer_rate"] == rate], "smooth-fbo", window)
        for method, other_window, other_rate in available:
            if method.startswith("smooth-"):
                continue
            theirs = _by_seed(lanes[lanes["outer_rate"] == other_rate], method, other_window)
            paired = _paired(theirs, ours, "excess")
            if paired is not None:
                ratio = ratio_interval(paired[1], paired[0])
                setting = {"drift": drift, "regime": regime, "window": window, "outer_rate": rate}
                setting |= {"other_rate": other_rate}
                claim = f"the exact objective (its excess) is below that of {method}"
                yield _claim(claim, "each at its best rate", setting, "excess", ratio, True)


def _over_rates(lanes: Frame, regime: str) -> Iterator[dict[str, Any]]:
    """Where smoothing helps the exact objective: FBO against SmoothFBO at every outer rate of the sweep."""
    for rate, group in lanes.groupby("outer_rate"):
        single = _by_seed(group, "fbo", 1)
        for window in sorted(group.loc[group["method"] == "smooth-fbo", "window"].unique()):
            paired = _paired(single, _by_seed(group, "smooth-fbo", window), "excess")
            if paired is not None:
                ratio = ratio_interval(paired[1], paired[0])
                setting = {"regime": regime, "outer_rate": float(rate), "window": int(window)}
                claim = "smoothing lowers the exact objective (its excess)"
                yield _claim(claim, "w against 1, same rate", setting, "excess", ratio, True)


def _by_seed(lanes: Frame, method: str, window: Any) -> Frame:
    return lanes[(lanes["method"] == method) & (lanes["window"] == window)].drop_duplicates("seed").set_index("seed")


def _paired(first: Frame, second: Frame, metric: str) -> tuple[Any, Any] | None:
    """The metric of the seeds that both have."""
    if metric not in first or metric not in second:
        return None
    common = first.index.intersection(second.index)
    return (first.loc[common, metric], second.loc[common, metric]) if len(common) else None


def _claim(
    claim: str, comparison: str, setting: dict[str, Any], metric: str, ratio: dict[str, Any], below: bool
) -> dict[str, Any]:
    """It holds if the whole interval of the ratio is on the good side of 1, fails if on the other, else is open."""
    low, high = ratio["low"], ratio["high"]
    verdict = "open"
    if low is not None and (high < 1 or low > 1):
        verdict = "holds" if (high < 1) == below else "fails"
    return {"claim": claim, "comparison": comparison, **setting, "metric": metric, "ratio": ratio, "verdict": verdict}
