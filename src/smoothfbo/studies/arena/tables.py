"""The tables of the leaderboard page. No jax here."""

from pathlib import Path
from typing import Any

from smoothfbo.harness.methods import FBO
from smoothfbo.harness.page import BAD, GOOD, OPEN, Table, Verdict, estimate_cell, estimate_text
from smoothfbo.studies.arena import costs
from smoothfbo.studies.arena.charts import Summary, label_of, rows_of, standings

EQUAL_TIME = ("fbo-4", FBO)  # FBO with more fit steps, and as it is
SLACK = 1.1  # costs are measured: up to this factor they are equal


def is_tied(row: dict[str, Any]) -> bool:
    """Whether the paired interval of the ratio to the best method's gap holds 1."""
    ratio = row["to_best"]
    return ratio["mean"] is not None and (ratio["low"] is None or ratio["low"] <= 1)


def board_table(summary: Summary) -> Table:
    """Methods down, problems across."""
    problems = [problem for problem in summary["problems"] if rows_of(summary, problem["name"])]
    rows = [
        (method["label"], (method["mean_rank"], f"{method['mean_rank']:.1f}"),
         *(_board_cell(summary, problem["name"], method["name"]) for problem in problems))
        for method in standings(summary)
    ]  # fmt: skip
    return Table(
        "Leaderboard",
        "Gap with its 95 % interval. Green: best, or tied with the best (the paired interval of the ratio holds 1). "
        "Red: worse than FBO with the whole interval, or diverged. A dash: the method does not apply there.",
        ("method", "mean rank", *(problem["label"] for problem in problems)),
        rows,
    )


def _board_cell(summary: Summary, problem: str, method: str) -> Verdict | str:
    row = rows_of(summary, problem).get(method)
    if row is None:
        is_absent = any((each["problem"], each["method"]) == (problem, method) for each in summary["absent"])
        return "–" if is_absent else Verdict("failed", BAD)
    if row["diverged"]:
        return Verdict(f"diverged ({row['diverged']} seeds)", BAD)
    worse = row.get("to_fbo", {}).get("low")
    kind = GOOD if is_tied(row) else BAD if worse is not None and worse > 1 else OPEN
    return Verdict(estimate_text(row["gap"]), kind)


def range_table(summary: Summary) -> Table:
    rows = []
    for method in standings(summary):
        cells = []
        for problem in summary["problems"]:
            found = rows_of(summary, problem["name"]).get(method["name"], {}).get("range")
            sign = "≥ " if found and found["is_open"] else ""
            cells.append(found and (found["decades"], f"{sign}{10 ** found['decades']:.2g} ×"))
        rows.append((method["label"], *cells))
    return Table(
        "Width of the range of good rates",
        "Largest over smallest rate with at most 1.1 times the method's own smallest gap, at its chosen window and "
        "step rule. Wider is easier to tune. “≥”: the range reaches an end of the rates that were tried.",
        ("method", *(problem["label"] for problem in summary["problems"])),
        rows,
    )


def relative_costs(folder: Path, summary: Summary) -> dict[str, dict[str, float]]:
    """By problem and method: the cost of a round at the chosen window, in rounds of FBO."""
    measured = costs.read(folder)
    result: dict[str, dict[str, float]] = {}
    for problem in (problem["name"] for problem in summary["problems"]):
        rows = rows_of(summary, problem)
        seconds = {name: measured.get(costs.key(problem, name, row["window"])) for name, row in rows.items()}
        if unit := seconds.get(FBO):
            result[problem] = {name: value / unit for name, value in seconds.items() if value}
    return result


def cost_table(summary: Summary, cost: dict[str, dict[str, float]]) -> Table:
    """Every method against the FBO that costs as much: with four times the fit steps if it may, else as it is."""
    rows = []
    for method in standings(summary):
        cells: list[Any] = []
        for problem in cost:
            mine, board = cost[problem].get(method["name"]), rows_of(summary, problem)
            rivals = [
                name for name in EQUAL_TIME if name in board and cost[problem].get(name, 1e9) <= SLACK * (mine or 0)
            ]
            gap, best = (
                board.get(name, {}).get("gap", {}).get("mean") for name in (method["name"], (rivals or [FBO])[0])
            )
            cells.append((mine, f"{mine:.2f} ×") if mine else None)
            cells.append(gap / best if gap and best and rivals else None)
        rows.append((method["label"], *cells))
    return Table(
        "Cost of a round, and the gap against an FBO that takes as much time",
        "Time per round and lane, as a ratio to FBO's in the same run (the fastest chunk of each program). Methods "
        "that share a program, FBO and SmoothFBO, share its time. Beside it, the gap as a ratio to that of FBO with as "
        "much time: with four times the fit steps where that costs no more than the method, else FBO as it is; below 1 "
        "the method is worth its time. Empty where it is cheaper than FBO.",
        ("method", *(text for problem in cost for text in (label_of(summary, "problems", problem), "at equal time"))),
        rows,
    )


def proxy_table(summary: Summary) -> Table:
    rows = [
        (label_of(summary, "problems", each["problem"]), estimate_cell(each["spearman_gap"]), each["kendall_gap"],
         estimate_cell(each["spearman_regret_1"]), each["kendall_regret_1"])
        for each in summary["correlations"]
        if len(each) > 1
    ]  # fmt: skip
    return Table(
        "How well the proxy ranks methods",
        "Rank correlation, over methods at their chosen settings, of the proxy Σ‖g̃‖² with the gap and with the true "
        "regret BLR_1. 1 would be a perfect proxy, 0 says nothing, below 0 it misleads.",
        ("problem", "gap, Spearman", "gap, Kendall", "BLR_1, Spearman", "BLR_1, Kendall"),
        rows,
    )


def number_table(summary: Summary) -> Table:
    rows = []
    for row in summary["board"]:
        setting = (row["rule"], row["window"], row["rate"]) if row["rule"] != "none" else (None, None, None)
        values = (estimate_cell(row.get(name)) for name in ("gap", "gap_all", "to_fbo", "rank"))
        sums = (estimate_cell(row.get(name)) for name in ("regret_1", "proxy", "raw"))
        edge = "at an end" if row.get("range") and row["range"]["is_edge"] else None
        names = (label_of(summary, "methods", row["method"]), label_of(summary, "problems", row["problem"]))
        rows.append((*names, *values, *setting, edge, *sums, row["diverged"], row["skipped"]))
    return Table(
        "Every method on every problem",
        "Chosen setting, gap over the second half and over all rounds, ratio to FBO, rank by paired bootstrap, and "
        "sums over rounds (BLR_1 is estimated from the recorded rounds). “At an end”: the best rate is the smallest or "
        "largest that was tried. Click a heading to sort.",
        ("method", "problem", "gap", "gap, all rounds", "ratio to FBO", "rank", "steps", "w", "rate", "best rate",
         "BLR_1", "proxy Σ‖g̃‖²", "Σ‖ĝ‖²", "diverged seeds", "skipped rounds"),
        rows,
    )  # fmt: skip
