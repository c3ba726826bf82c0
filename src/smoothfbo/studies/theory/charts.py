"""The figures of the theory study, from its stored files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from smoothfbo.harness import store
from smoothfbo.harness.charts import PALETTE, Chart, Series
from smoothfbo.harness.statistics import Frame, bands

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

COLOURS = {"noise": "#0072b2", "tracking": "#d55e00", "bias": "#cc79a7", "error": "#222222", "regret": "#009e73"}

ONE_WINDOW = "functional, replayed"  # a problem that is run at one window only: there is no line over windows


def share_of_bound(lanes: Frame) -> Chart:
    """The picture to look at first: how much of the theorem's bound the measured regret uses; one line per problem."""
    setting = ["problem", "window", "drift", "step"]
    lanes = lanes[lanes["problem"] != ONE_WINDOW]
    shares = lanes["regret"] / lanes.groupby(setting)["bound"].transform("mean")
    means = shares.groupby([lanes[name] for name in setting]).mean()
    worst = pd.DataFrame(means.groupby(["problem", "window"]).idxmax().tolist(), columns=setting)
    shown = lanes.assign(share=shares).merge(worst)
    lines = []
    for problem, colour in zip(shown["problem"].unique(), PALETTE, strict=False):
        band = bands(shown[shown["problem"] == problem], "window", "share")
        lines.append(Series(problem, band.index, band["mean"], band["low"], band["high"], colour, markers=True))
    windows = sorted(shown["window"].unique())
    lines.append(Series("the bound", windows, np.ones(len(windows)), colour="#000000", dashed=True))
    return Chart(
        "share_of_bound",
        "How much of its bound the regret uses",
        "Measured E BLR_w(T) over the theorem's right side; the theorem says: at most 1. Of all drifts and steps, the "
        "one with the largest share is shown; mean and 95 % interval over lanes. One line per problem.",
        "window w",
        "regret / bound",
        lines,
        log_x=True,
        log_y=True,
    )


def regret_over_horizons(growth: Frame, slopes: list[dict[str, Any]]) -> Chart:
    """Where the variation grows like log T: which steps and smoothings make the regret per round fall."""
    exponents = sorted(growth["exponent"].unique())
    exponent = exponents[len(exponents) // 2]
    lines = []
    for (smoothing, step, _, _), colour in zip(CURVES, ("#0072b2", "#d55e00", "#009e73"), strict=True):
        place = {"drift": "log T", "step": step, "smoothing": smoothing, "exponent": exponent, "bias": "none"}
        band = bands(_at(growth, place), "rounds", "regret_per_round")
        name = f"{smoothing}, α = {step}: slope {_slope(slopes, place, 'slope'):+.2f}"
        lines.append(Series(name, band.index, band["mean"], band["low"], band["high"], colour, markers=True))
    return Chart(
        "regret_over_horizons",
        f"Regret per round over the horizon, V₁ ~ log T, w = T^{exponent:g}",
        "The regret is sublinear where the line falls. Slopes are those of the larger half of the horizons; mean and "
        "95 % interval over lanes.",
        "rounds T",
        "BLR_w(T) / T",
        lines,
        log_x=True,
        log_y=True,
    )


def draw(folder: Path) -> list[Path]:
    """All figures of a stored run, into `folder`/figures."""
    figures = folder / "figures"
    store.prepare(figures)
    lanes = pd.read_parquet(folder / "metrics.parquet")
    growth = pd.read_parquet(folder / "growth.parquet")
    slopes = store.read_json(folder / "summary.json")["growth_slopes"]
    decomposition = pd.read_parquet(folder / "decomposition.parquet")
    return [
        _save(figures / "bound.png", lambda: _bound(lanes)),
        _save(figures / "trade_off.png", lambda: _trade_off(lanes)),
        _save(figures / "growth.png", lambda: _growth(growth, slopes)),
        _save(figures / "growth_bias.png", lambda: _growth_with_bias(growth, slopes)),
        _save(figures / "decomposition.png", lambda: _decomposition(decomposition)),
    ]


def _save(path: Path, make: Callable[[], Any]) -> Path:
    figure = make()
    store.write(path, lambda file: figure.savefig(file, dpi=130))
    plt.close(figure)
    return path


def _band(axis: Axes, groups: Any, column: str, colour: str, label: str, style: str = "-") -> None:
    """Mean over lanes with its 95 % interval, over windows."""
    mean, half = groups[column].mean(), 1.96 * groups[column].sem()
    mean = mean.where(mean > 1e-20)  # nothing to show on a logarithmic axis
    axis.plot(mean.index, mean, style, marker="o", markersize=4, color=colour, label=label)
    axis.fill_between(mean.index, mean - half, mean + half, color=colour, alpha=0.25, linewidth=0)


def _bound(lanes: Any) -> Any:
    """Measured regret and the theorem's right side, over windows; a row per problem, a column per drift."""
    lanes = lanes[lanes["problem"] != ONE_WINDOW]
    problems, drifts = list(lanes["problem"].unique()), sorted(lanes["drift"].unique())
    figure, axes = plt.subplots(
        len(problems), len(drifts), figsize=(4 * len(drifts), 3 * len(problems)), sharex=True, sharey="row",
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for row, problem in zip(axes, problems, strict=True):
        for axis, drift in zip(row, drifts, strict=True):
            here = lanes[(lanes["problem"] == problem) & (lanes["drift"] == drift)]
            steps = sorted(here["step"].unique(), reverse=True)
            for step, style, colour in zip(steps, ("-", "--"), ("#009e73", "#56b4e9"), strict=False):
                groups = here[here["step"] == step].groupby("window")
                _band(axis, groups, "regret", colour, f"measured, α = {step:g}/L", style)
                axis.plot(groups["bound"].mean(), style, color="#222222", marker="^", markersize=4,
                          label=f"bound, α = {step:g}/L")  # fmt: skip
            axis.set(xscale="log", yscale="log", title=f"{problem}, drift {drift:g}")
            axis.set_xlabel("window w")
        row[0].set_ylabel("E BLR_w(T)")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def _trade_off(lanes: Any) -> Any:
    """Variance falls with w, tracking grows: their sum has a best window."""
    oracle = lanes[lanes["problem"] == "oracle"].assign(both=lambda frame: frame["noise"] + frame["tracking"])
    steps, drifts = sorted(oracle["step"].unique()), sorted(oracle["drift"].unique())
    figure, axes = plt.subplots(
        len(steps), len(drifts), figsize=(4 * len(drifts), 3 * len(steps)), sharex=True, sharey=True,
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for row, step in zip(axes, steps, strict=True):
        for axis, drift in zip(row, drifts, strict=True):
            groups = oracle[(oracle["step"] == step) & (oracle["drift"] == drift)].groupby("window")
            _band(axis, groups, "noise", COLOURS["noise"], "variance Σ‖ζ̄‖²")
            _band(axis, groups, "tracking", COLOURS["tracking"], "tracking D")
            _band(axis, groups, "both", COLOURS["error"], "sum", "--")
            means: Any = groups["both"].mean()
            best = means.idxmin()
            axis.axvline(best, color="grey", linewidth=0.8)
            axis.set(xscale="log", yscale="log", title=f"α = {step:g}/L, drift {drift:g}: best w = {best}")
            axis.set_xlabel("window w")
    axes[0, 0].set_ylim(0.1, 2 * oracle.groupby(["step", "drift", "window"])["both"].mean().max())
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


CURVES = (("stored", "1/(2Lw)", "-", "o"), ("stored", "1/L", "--", "o"), ("replayed", "1/L", ":", "s"))
REGRETS = (("BLR_w(T) / T", "regret_per_round", "slope"), ("BLR_1(T) / T", "regret_one_per_round", "slope_one"))


def _growth(growth: Any, slopes: list[dict[str, Any]]) -> Any:
    """Regret per round over the horizon, log-log; a row for each regret, a column for each growth of the variation."""
    drifts = [drift for drift in dict.fromkeys(growth["drift"]) if "alone" not in drift]
    figure, axes = plt.subplots(
        2, len(drifts), figsize=(4.6 * len(drifts), 8), sharey="row", layout="constrained", squeeze=False
    )
    exponents = sorted(growth["exponent"].unique())
    for row, (label, column, slope_name) in zip(axes, REGRETS, strict=True):
        for axis, drift in zip(row, drifts, strict=True):
            for smoothing, step, style, marker in CURVES:
                for exponent, colour in zip(exponents, ("#0072b2", "#009e73", "#d55e00", "#cc79a7"), strict=False):
                    place = {"drift": drift, "step": step, "smoothing": smoothing, "exponent": exponent, "bias": "none"}
                    mean = _at(growth, place).groupby("rounds")[column].mean()
                    slope = _slope(slopes, place, slope_name)
                    name = f"{smoothing}, α = {step}, w = T^{exponent:g}: slope {slope:+.2f}"
                    axis.plot(mean, style, marker=marker, markersize=3, color=colour, label=name)
            axis.set(xscale="log", yscale="log", title=f"V₁ ~ {drift}")
            axis.legend(frameon=False, fontsize=6)
        row[0].set_ylabel(label)
    for axis in axes[-1]:
        axis.set_xlabel("rounds T")
    return figure


def _at(growth: Any, place: dict[str, Any]) -> Any:
    """The rows at one setting."""
    return growth[np.logical_and.reduce([growth[name] == value for name, value in place.items()])]


def _slope(slopes: list[dict[str, Any]], place: dict[str, Any], name: str) -> float:
    (slope,) = [row[name] for row in slopes if all(row[key] == value for key, value in place.items())]
    return slope


def _growth_with_bias(growth: Any, slopes: list[dict[str, Any]]) -> Any:
    """Regret per round over the horizon without a bias, with one that falls and with one that stays."""
    biases = [bias for bias in dict.fromkeys(growth["bias"]) if bias != "none"]
    drift, step = growth.loc[growth["bias"] != "none", ["drift", "step"]].iloc[0]
    exponents = sorted(growth["exponent"].unique())
    figure, axes = plt.subplots(1, len(exponents), figsize=(4.6 * len(exponents), 4), sharey=True, layout="constrained")
    for axis, exponent in zip(np.atleast_1d(axes), exponents, strict=True):
        for bias, colour in zip(("none", *biases), ("#0072b2", "#009e73", "#d55e00"), strict=True):
            place = {"drift": drift, "step": step, "smoothing": "stored", "exponent": exponent, "bias": bias}
            slope = _slope(slopes, place, "slope")
            mean = _at(growth, place).groupby("rounds")["regret_per_round"].mean()
            axis.plot(mean, "-", marker="o", markersize=3, color=colour, label=f"bias: {bias}, slope {slope:+.2f}")
        axis.set(xscale="log", yscale="log", xlabel="rounds T", title=f"V₁ ~ {drift}, α = {step}, w = T^{exponent:g}")
        axis.legend(frameon=False, fontsize=7)
    np.atleast_1d(axes)[0].set_ylabel("BLR_w(T) / T")
    return figure


def _decomposition(frame: Any) -> Any:
    """The terms of one run's error over time."""
    figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
    labels = {"error": "error ‖e‖", "noise": "noise ‖ζ̄‖", "bias": "bias ‖b̄‖", "tracking": "tracking ‖r‖"}
    for name, label in labels.items():
        axis.plot(
            frame["round"], frame[name], color=COLOURS[name], linewidth=2 if name == "error" else 1.2, label=label
        )
    axis.plot(frame["round"], frame["regret"], color=COLOURS["regret"], linestyle=":", label="‖∇F_{t,w}(λ_t)‖")
    axis.set(
        xlabel="round", ylabel="norm", title=f"g̃ − ∇F = noise + bias + tracking, one run, w = {frame['window'][0]}"
    )
    axis.set_ylim(0, 1.3 * float(frame[["error", "bias", "regret"]].max().max()))
    axis.legend(frameon=False, ncols=3, fontsize=8, loc="upper center")
    return figure
