"""The theory laboratory's table and figures, from its stored files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from smoothfbo.harness import store
from smoothfbo.harness.page import BAD, GOOD, OPEN, Page, Picture, Section, Verdict, repeat_section, write_page
from smoothfbo.harness.page import Table as PageTable
from smoothfbo.harness.study import Outcome

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

COLOURS = {"noise": "#0072b2", "tracking": "#d55e00", "bias": "#cc79a7", "error": "#222222", "regret": "#009e73"}


def statement_table(checks: list[dict[str, Any]]) -> Table:
    """One line per statement: how often it was tried and held, and the setting where it was tightest."""
    checks = [check for check in checks if check["problem"] != "growth"]
    result = Table(title="The paper's statements, measured (of all settings, the tightest is shown)", box=box.SIMPLE)
    for column, justify in (
        ("statement", "left"), ("w", "right"), ("drift", "right"), ("α·L", "right"), ("left side", "right"),
        ("right side", "right"), ("ratio", "right"), ("holds", "right"),
    ):  # fmt: skip
        result.add_column(column, justify=justify, no_wrap=column != "statement")  # pyright: ignore[reportArgumentType]
    for name in dict.fromkeys(check["name"] for check in checks):
        same = [check for check in checks if check["name"] == name]
        shown = max(same, key=lambda check: check["ratio"] if check["ratio"] is not None else 0.0)
        held = sum(check["holds"] is True for check in same)
        decided = sum(check["holds"] is not None for check in same)
        outside = any(not check["within_assumptions"] for check in same)
        verdict = "–" if not decided else f"{held}/{decided}"
        colour = "dim" if not decided else "green" if held == decided else "red"
        result.add_row(
            name + (" (step outside the assumptions)" if outside else ""),
            str(shown["window"]),
            f"{shown['drift']:g}",
            f"{shown['step']:.2g}",
            f"{shown['lhs']:.3g}",
            f"{shown['rhs']:.3g}",
            "" if shown["ratio"] is None else f"{shown['ratio']:.2g}",
            f"[{colour}]{verdict}[/]",
        )
    return result


def growth_table(checks: list[dict[str, Any]]) -> Table:
    """Slopes of log(BLR/T) over log T; a claim is judged, the rest is shown."""
    result = Table(title="Growth of the regret: slope of log(BLR/T), below 0 is sublinear", box=box.SIMPLE)
    for column in ("variation, step and window", "slope", "holds"):
        result.add_column(column, justify="left" if column.startswith("v") else "right")
    for check in checks:
        if check["problem"] == "growth":
            slope = -check["lhs"] if "slope > " in check["name"] else check["lhs"]
            verdict = {True: "[green]yes[/]", False: "[red]no[/]", None: "[dim]–[/]"}[check["holds"]]
            result.add_row(check["name"], f"{slope:+.3f} ± {1.96 * check['standard_error']:.3f}", verdict)
    return result


def as_text(folder: Path) -> list[Any]:
    """What the command prints at the end."""
    checks = store.read_json(folder / "summary.json")["checks"]
    return [statement_table(checks), growth_table(checks)]


def outcome(folder: Path) -> Outcome:
    """Status 1 if a statement does not hold within its assumptions."""
    checks = store.read_json(folder / "summary.json")["checks"]
    failed = [check for check in checks if check["holds"] is False and check["within_assumptions"]]
    lines = [
        f"does not hold: {check['name']} ({check['problem']} problem, window {check['window']}, "
        f"drift {check['drift']:g}, α·L = {check['step']:g}): {check['lhs']:.6g} against {check['rhs']:.6g}"
        for check in failed
    ]
    return Outcome(1, "; ".join(lines)) if failed else Outcome()


def build(folder: Path) -> Path:
    """All figures, and the page; returns the page's path."""
    config, summary = (store.read_json(folder / f"{name}.json") for name in ("config", "summary"))
    captions = {
        "bound": ("Measured regret and the theorem's bound", "Over windows; a row per problem, a column per drift."),
        "trade_off": ("Variance falls with the window, tracking grows", "Their sum has a best window."),
        "growth": (
            "Regret per round over the horizon",
            "Below a slope of 0 the regret is sublinear. Above: of the windowed objective; below: of each round's own.",
        ),
        "growth_bias": ("The same with a bias that falls and with one that stays", "Smoothing does not remove a bias."),
        "decomposition": ("The terms of one run's error over time", "Error = noise + bias + tracking, exactly."),
    }
    first, *others = (Picture(*captions[path.stem], path) for path in draw(folder))
    checks, settings = summary["checks"], config["config"]
    decided = [check for check in checks if check["holds"] is not None]
    held = sum(check["holds"] for check in decided)
    page = folder / "report.html"
    write_page(
        page,
        Page(
            title="The paper's statements, measured",
            result=f"{held:,} of {len(decided):,} comparisons with a verdict hold; {len(checks) - len(decided):,} "
            "are shown without a verdict, because the paper gives no constant or claims nothing there.",
            setting=f"{settings['lanes']} lanes of {settings['rounds']} rounds in every setting; windows "
            f"{', '.join(map(str, settings['windows']))}; drifts {', '.join(map(str, settings['drifts']))}.",
            lead=[first, verdict_table(checks)],
            sections=[
                Section("Figures", parts=others),
                Section("Every comparison", parts=[checks_table(checks)], folded=True),
                repeat_section(config),
            ],
        ),
    )
    return page


def verdict_table(checks: list[dict[str, Any]]) -> PageTable:
    """One row per statement: in how many settings it holds, and how tight it is."""
    rows = []
    for name in dict.fromkeys(check["name"] for check in checks):
        same = [check for check in checks if check["name"] == name]
        decided = [check for check in same if check["holds"] is not None]
        held = sum(check["holds"] for check in decided)
        kind = OPEN if not decided else GOOD if held == len(decided) else BAD
        verdict = Verdict(f"{held} of {len(decided)}" if decided else "no verdict", kind)
        tightest = max((check["ratio"] for check in same if check["ratio"] is not None), default=None)
        rows.append((name, verdict, tightest))
    return PageTable(
        "Statements",
        "In how many settings each holds, and the largest ratio of its left side to its right side.",
        ("statement", "holds in", "tightest ratio"),
        rows,
    )


def checks_table(checks: list[dict[str, Any]]) -> PageTable:
    rows = [
        (c["name"], c["problem"], c["window"], c["drift"], c["step"], c["lhs"], c["rhs"], c["ratio"],
         {True: "holds", False: "fails", None: "no verdict"}[c["holds"]])
        for c in checks
    ]  # fmt: skip
    columns = ("statement", "problem", "w", "drift", "α·L", "left side", "right side", "ratio", "verdict")
    return PageTable("All comparisons", "Click a heading to sort.", columns, rows)


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
    lanes = lanes[lanes["problem"] != "functional, replayed"]  # at one window only
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
