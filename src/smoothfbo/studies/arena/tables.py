"""The tables of the leaderboard page. No jax here."""

from pathlib import Path
from typing import Any

from smoothfbo.harness.methods import FBO
from smoothfbo.harness.page import BAD, GOOD, OPEN, Table, Verdict, estimate_cell, estimate_text
from smoothfbo.harness.statistics import Frame, ratio_of_means
from smoothfbo.studies.arena import costs
from smoothfbo.studies.arena.charts import Summary, label_of, rows_of, standings
from smoothfbo.studies.arena.config import FIRST_TUNING_SEED
from smoothfbo.studies.arena.grid import SETTING

SAME_COST = 1.1  # costs are measured: up to this factor they are equal


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
    ranked = {method["name"] for method in standings(summary)}
    rows += [
        (method["label"], None, *(_board_cell(summary, problem["name"], method["name"]) for problem in problems))
        for method in summary["methods"]
        if method["name"] not in ranked and not method["is_reference"]
    ]
    return Table(
        "Leaderboard",
        "Gap with its 95 % interval. Green: best, or tied with the best (the paired interval of the ratio holds 1). "
        "Red: worse than FBO with the whole interval, or diverged. A dash: the method "
        "does not apply there, because no closed form is known or there is no inner function.",
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


def untuned_table(summary: Summary, lanes: Frame, cost: dict[str, dict[str, float]]) -> Table | None:
    """What needs no tuning against the best of what was tuned; None where nothing of the kind took part."""
    rows, names = [], {each["method"] for each in summary.get("untuned", [])}
    for each in summary.get("untuned", []):
        problem, method = each["problem"], each["method"]
        known = cost.get(problem, {})
        rival = equal_time(summary, lanes, known, problem, method)
        title = label_of(summary, "problems", problem)
        rows.append((
            title if len(names) == 1 else f"{label_of(summary, 'methods', method)}: {title}",
            _ratio_verdict(summary, each["to_best_tuned"], each["best_tuned"]),
            (known[method], f"{known[method]:.2g} ×") if method in known else None,
            _ratio_verdict(summary, rival["ratio"], rival["method"]) if rival else None,
        ))  # fmt: skip
    if not rows:
        return None
    who = " and ".join(sorted(label_of(summary, "methods", name) for name in names))
    return Table(
        f"{who}: against the best of the tuned methods",
        "The gap as a ratio to that of the tuned method with the smallest gap on these seeds, with a paired 95 % "
        "interval. Cost: of a round, as a ratio to FBO's. At equal time: the gap as a ratio to that of the best other "
        "method that costs no more a round, up to 10 %. Green: better, or tied (the interval holds 1); red: "
        "worse.",
        ("problem", "gap / best tuned", "cost", "gap at equal time"),
        rows,
    )


def _ratio_verdict(summary: Summary, ratio: dict[str, Any], rival: str | None = None) -> Verdict:
    if ratio["mean"] is None:
        return Verdict("diverged", BAD)
    whose = f" of {label_of(summary, 'methods', rival)}" if rival else ""
    return Verdict(estimate_text(ratio) + whose, GOOD if ratio["low"] is None or ratio["low"] <= 1 else BAD)


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
        "step rule, on the tuning seeds: only the chosen setting runs on the fresh ones. Wider is easier to tune. “≥”: "
        "the range reaches an end of the rates that were tried.",
        ("method", *(problem["label"] for problem in summary["problems"])),
        rows,
    )


def relative_costs(folder: Path, summary: Summary) -> dict[str, dict[str, float]]:
    """The cost of a round at the chosen window, in rounds of FBO, by problem and method."""
    measured = costs.read(folder)
    result: dict[str, dict[str, float]] = {}
    for problem in (problem["name"] for problem in summary["problems"]):
        rows = rows_of(summary, problem)
        seconds = {name: measured.get(costs.key(problem, name, row["window"])) for name, row in rows.items()}
        if unit := seconds.get(FBO):
            result[problem] = {name: value / unit for name, value in seconds.items() if value}
    return result


def equal_time(
    summary: Summary, lanes: Frame, cost: dict[str, float], problem: str, method: str
) -> dict[str, Any] | None:
    """The best other method that costs no more a round, and the ratio of this one's gap to its gap, paired over seeds.

    None where there is no such method, or where this one diverged.
    """
    board = rows_of(summary, problem)
    rivals = {
        name: row["gap"]["mean"]
        for name, row in board.items()
        if "rank" in row and name != method and row["gap"]["mean"] is not None
        and cost.get(name, float("inf")) <= SAME_COST * cost.get(method, 0)
    }  # fmt: skip
    if not rivals or method not in board:
        return None
    rival = min(rivals, key=lambda name: rivals[name])
    ours, theirs = (chosen_gaps(lanes, board[name]) for name in (method, rival))
    ratio = ratio_of_means(ours, theirs)
    return {"method": rival, "ratio": ratio} if ratio["mean"] is not None else None


def chosen_gaps(lanes: Frame, row: dict[str, Any]) -> Frame:
    """The gaps of a row of the leaderboard, in the order of the fresh seeds. Its lanes are those of its setting."""
    same = lanes["seed"] < FIRST_TUNING_SEED
    for name in ("problem", "method", *SETTING):
        same &= lanes[name] == row[name]
    return lanes[same].sort_values("seed")["gap"]


def cost_table(summary: Summary, lanes: Frame, cost: dict[str, dict[str, float]]) -> Table:
    """Every method against the best of those that cost no more."""
    rows = []
    for method in standings(summary):
        cells: list[Any] = []
        for problem in cost:
            mine = cost[problem].get(method["name"])
            rival = equal_time(summary, lanes, cost[problem], problem, method["name"])
            cells.append((mine, f"{mine:.2g} ×") if mine else None)
            cells.append(rival and (rival["ratio"]["mean"], _rival_text(summary, rival)))
        rows.append((method["label"], *cells))
    return Table(
        "At equal time: the cost of a round, and the gap against whatever costs no more",
        "Time per round and lane as a ratio to FBO's, of the fastest chunk on the fresh seeds: there every method has "
        "the same number of lanes, in a process that does nothing else. FBO's time is that of SmoothFBO with a window "
        "of 1. Beside it, the gap as a ratio to that of the best other method that costs at most as much (up to 10 %), "
        "FBO with four times the fit steps among them, with a paired 95 % interval: above 1, that one is the better "
        "choice where time is short. Empty where none is as cheap.",
        ("method", *(text for problem in cost for text in (label_of(summary, "problems", problem), "at equal time"))),
        rows,
    )


def _rival_text(summary: Summary, rival: dict[str, Any]) -> str:
    return f"{estimate_text(rival['ratio'])} of {label_of(summary, 'methods', rival['method'])}"


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
