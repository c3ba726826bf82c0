"""The arena's charts, from its stored tables. No jax here."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from smoothfbo.harness.charts import Chart, HeatMap, Series
from smoothfbo.harness.methods import FBO, RECOMMENDED, SMOOTH_FBO
from smoothfbo.harness.statistics import Frame
from smoothfbo.studies.arena.grid import SETTING

TOP = 30.0  # ratio to the smallest gap; larger ones are drawn there
METHODS_SHOWN = 6  # methods in a chart over time, beside FBO, SmoothFBO and the references
Summary = dict[str, Any]


def label_of(summary: Summary, kind: str, name: str) -> str:
    return next(entry["label"] for entry in summary[kind] if entry["name"] == name)


def rows_of(summary: Summary, problem: str) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in summary["board"] if row["problem"] == problem}


def standings(summary: Summary) -> list[dict[str, Any]]:
    """The ranked methods by their mean rank over problems; who plays fewer problems is judged by those."""
    ranks = {
        method["name"]: [row["rank"]["mean"] for row in summary["board"] if row["method"] == method["name"]]
        for method in summary["methods"]
        if not method["is_reference"]
    }
    entries = [
        method | {"mean_rank": float(np.mean(ranks[method["name"]])), "problems": len(ranks[method["name"]])}
        for method in summary["methods"]
        if ranks.get(method["name"])
    ]
    return sorted(entries, key=lambda entry: entry["mean_rank"])


def leaderboard(summary: Summary) -> HeatMap:
    """The one picture to look at: every method's gap as a ratio to FBO's."""
    methods = [*standings(summary), *(method for method in summary["methods"] if method["is_reference"])]
    problems = [problem for problem in summary["problems"] if rows_of(summary, problem["name"])]
    values = np.full((len(methods), len(problems)), np.nan)
    texts = [["" for _ in problems] for _ in methods]
    for column, problem in enumerate(problems):
        rows = rows_of(summary, problem["name"])
        for row, method in enumerate(methods):
            found = rows.get(method["name"])
            ratio = found.get("to_fbo", {}).get("mean") if found else None
            if found is not None and found["diverged"]:
                texts[row][column] = "diverged"
            elif ratio is not None:
                values[row, column], texts[row][column] = ratio, f"{ratio:.2f}"
    return HeatMap(
        "leaderboard", "Gap to the best possible answer, as a ratio to FBO's",
        "Mean of F_t(λ_t) − min F_t over the second half of the rounds, on fresh seeds, each method at the setting "
        "that was best for it on the tuning seeds. Blue is better than FBO. Ranked methods come first, by their mean "
        "rank; below them are references, which know the truth or do nothing.",
        "", "", "ratio to FBO", np.arange(len(problems)), np.arange(len(methods))[::-1], values,
        y_ticks=[method["label"] for method in methods], x_ticks=[problem["label"] for problem in problems],
        texts=texts, is_ratio=True,
    )  # fmt: skip


def over_time(summary: Summary, curves: Frame) -> Iterator[Chart]:
    for problem in summary["problems"]:
        rows = rows_of(summary, problem["name"])
        here = curves[curves["problem"] == problem["name"]]
        ranked = sorted((row for row in rows.values() if "rank" in row), key=lambda row: row["rank"]["mean"])
        names = [row["method"] for row in ranked]
        chosen = {*names[:METHODS_SHOWN], FBO, SMOOTH_FBO}
        shown = [*(name for name in names if name in chosen), *(name for name in rows if name not in names)]
        series = []
        for name in shown:
            entry = next(method for method in summary["methods"] if method["name"] == name)
            line = _at(here[here["method"] == name], rows[name]).sort_values("round") if name in rows else here[:0]
            if len(line):
                series.append(Series(entry["label"], line["round"], line["mean"], line["low"], line["high"],
                                     entry["colour"], entry["is_dashed"]))  # fmt: skip
        if series:
            yield Chart(
                f"time_{problem['name']}", f"{problem['label']}: gap over time",
                f"F_t(λ_t) − min F_t, mean and 95 % interval over fresh seeds. {problem['note']}".strip(),
                "round", "gap", series, log_y=True,
            )  # fmt: skip


def over_rates(summary: Summary, lanes: Frame, fresh: range) -> Iterator[Chart]:
    """How much a method loses at another rate than its best one."""
    for problem in summary["problems"]:
        here = lanes[(lanes["problem"] == problem["name"]) & ~lanes["seed"].isin(fresh)]
        series = []
        for name, row in rows_of(summary, problem["name"]).items():
            entry = next(method for method in summary["methods"] if method["name"] == name)
            same = (here["method"] == name) & (here["rule"] == row["rule"]) & (here["window"] == row["window"])
            means = here[same].groupby("rate")["gap"].mean()
            means = means[np.isfinite(means) & (means > 0)]
            if "rank" in row and len(means) > 1:
                series.append(Series(entry["label"], means.index / row["rate"], np.minimum(means / means.min(), TOP),
                                     colour=entry["colour"], dashed=entry["is_dashed"], markers=True))  # fmt: skip
        if series:
            yield Chart(
                f"rates_{problem['name']}", f"{problem['label']}: gap over the rate, each as a ratio to its best",
                "At each method's chosen window and step rule, on the tuning seeds. A flat line forgives a wrong "
                f"rate; the range of good rates is where it is below 1.1. What is worse than {TOP:g} is drawn there.",
                "rate / chosen rate", "gap / smallest gap", series, log_x=True, log_y=True,
            )  # fmt: skip


def against_cost(summary: Summary, costs: dict[str, dict[str, float]]) -> Iterator[Chart]:
    for problem in summary["problems"]:
        points = []
        for name, row in rows_of(summary, problem["name"]).items():
            cost, gap = costs.get(problem["name"], {}).get(name), row["gap"]["mean"]
            if "rank" in row and cost is not None and gap is not None:
                points.append((name, cost, gap))
        series = _points(summary, points)
        if series:
            yield Chart(
                f"cost_{problem['name']}", f"{problem['label']}: gap against cost",
                "Time of a round, in rounds of FBO, against the gap. Left and below is better.",
                "cost of a round (FBO = 1)", "gap", series, log_y=True,
            )  # fmt: skip


def proxy_against_truth(summary: Summary) -> Iterator[Chart]:
    for problem in summary["problems"]:
        points = [
            (name, row["proxy"]["mean"], row["gap"]["mean"])
            for name, row in rows_of(summary, problem["name"]).items()
            if "rank" in row and row["gap"]["mean"] is not None and row["proxy"]["mean"]
        ]
        series = _points(summary, points)
        if len(series) > 2:
            yield Chart(
                f"proxy_{problem['name']}", f"{problem['label']}: the proxy against the truth",
                "Σ‖g̃‖² of the chosen setting against the gap. A proxy that ranks well would show a rising line.",
                "proxy Σ‖g̃‖²", "gap", series, log_x=True, log_y=True,
            )  # fmt: skip


def _points(summary: Summary, points: list[tuple[str, float, float]]) -> list[Series]:
    entries = {method["name"]: method for method in summary["methods"]}
    return [
        Series(entries[name]["label"], [x], [y], colour=entries[name]["colour"], markers=True) for name, x, y in points
    ]


def maps(summary: Summary) -> Iterator[HeatMap]:
    """One map at the best rates, and one for each rate."""
    cells = summary.get("map", [])
    for method in dict.fromkeys(cell["method"] for cell in cells):
        label = label_of(summary, "methods", method) if any(m["name"] == method for m in summary["methods"]) else method
        for rate in dict.fromkeys(cell["rate"] for cell in cells):
            here = [cell for cell in cells if cell["method"] == method and cell["rate"] == rate]
            if not here:  # a method that is not tuned has its own rate alone
                continue
            where = "each at its best rate" if rate is None else f"both at rate {rate:g}"
            if method == RECOMMENDED:
                where = "which is at its best rate"
            yield _map(here, f"map_{method}_{'best' if rate is None else f'{rate:g}'}", f"{label} against FBO, {where}")


def _map(cells: list[dict[str, Any]], name: str, title: str) -> HeatMap:
    noises, periods = (sorted({cell[axis] for cell in cells}) for axis in ("noise", "period"))
    values = np.full((len(noises), len(periods)), np.nan)
    texts = [["" for _ in periods] for _ in noises]
    for cell in cells:
        row, column, ratio = noises.index(cell["noise"]), periods.index(cell["period"]), cell["ratio"]
        if ratio["mean"] is None:
            texts[row][column] = "diverged"
            continue
        is_clear = ratio["low"] is not None and not ratio["low"] <= 1 <= ratio["high"]
        marks = f"{'*' if is_clear else ''}{'†' if cell.get('is_edge') else ''}"
        values[row, column], texts[row][column] = ratio["mean"], f"{ratio['mean']:.2f}{marks}"
    return HeatMap(
        name, title,
        "Ratio of the mean gaps over the second half of the rounds, on fresh seeds; below 1, blue, smoothing pays. A "
        "star marks a 95 % interval without 1, a dagger a best rate at an end of those that were tried.",
        "rounds in a period (the drift is slower to the right)", "noise", "ratio of gaps", np.arange(len(periods)),
        np.arange(len(noises)), values, y_ticks=[f"{noise:g}" for noise in noises],
        x_ticks=[f"{period:g}" for period in periods], texts=texts, is_ratio=True,
    )  # fmt: skip


def _at(frame: Frame, row: dict[str, Any]) -> Frame:
    chosen = np.ones(len(frame), bool)
    for name in SETTING:
        chosen &= frame[name] == row[name]
    return frame[chosen]
