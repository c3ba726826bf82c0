"""What the page of a stream's run says in tables and sentences: warnings, errors, changes, classes, facts."""

from collections.abc import Iterator
from typing import Any

from smoothfbo.harness.page import BAD, GOOD, OPEN, Table, Verdict
from smoothfbo.stream import charts
from smoothfbo.stream.groups.report import series_facts

MOST_NAMES = 12  # of columns or rows that are listed in a line
MUCH_MISSING = 0.1  # of the rows of a column: a warning
CLEARLY_WORSE = 1.02  # ratio to the best fixed forgetting: a warning
ENOUGH_ROWS = 500  # for errors and coverage that are no chance
MOST_CLASSES = 12  # of the confusion table


def warnings_table(summary: dict[str, Any]) -> Table:
    """What a reader must know before anything else."""
    rows = [(what, text) for what, text in _warnings(summary)]
    return Table("Warnings", "What to look at before the numbers are used.", ("what", "why"), rows)


def _warnings(summary: dict[str, Any]) -> Iterator[tuple[Verdict, str]]:
    errors, best = summary["errors"], summary["best_reference"]
    if summary["fault"] is not None:
        yield Verdict("not all rows", BAD), f"The run ended before the end of the table: {summary['fault']}"
    if not summary["blocks"]:
        yield Verdict("nothing learnt", BAD), "There was no full block."
    if summary.get("left_out"):
        first = " ".join(summary["left_out_first"][:3])
        yield Verdict("rows left out", BAD), f"{summary['left_out']:,} rows could not be read or used, e.g. {first}"
    for note in summary["notes"]:
        if "far from all else" in note or "differs from row to row" in note:
            yield Verdict("odd values", OPEN), f"{note[0].upper()}{note[1:]}."
    share = {name: count / max(summary["rows"], 1) for name, count in summary["missing"].items()}
    often = [f"{name!r} {100 * part:.0f} %" for name, part in share.items() if part > MUCH_MISSING]
    if often:
        yield Verdict("missing values", OPEN), f"Of the rows: {_list(often)}."
    if summary["skipped_rounds"]:
        yield Verdict("skipped rounds", BAD), f"A gradient was not finite {summary['skipped_rounds']:,} times."
    if errors.get("last_value", float("inf")) < errors["smoothfbo"]:
        yield Verdict("worse than the last value", BAD), "Repeating the newest known target has a smaller error."
    elif best is not None and (summary["ratio_to_best_reference"] or 0) > CLEARLY_WORSE:
        yield (
            Verdict("another memory is better", OPEN),
            (f"{charts.label(best, summary['block'])} has a smaller error, as is known now; see the table below."),
        )
    off = {level: part for level, part in (summary.get("coverage") or {}).items() if abs(part - float(level)) > 0.02}
    if off and summary["rows"] >= ENOUGH_ROWS:
        text = [
            f"{100 * part:.1f} % of the targets in the {100 * float(level):.0f} % band" for level, part in off.items()
        ]
        yield Verdict("bands", OPEN), f"{_list(text)}; a target that often repeats itself is covered by any band."
    if summary["rows"] < ENOUGH_ROWS:
        yield Verdict("few rows", OPEN), f"With {summary['rows']:,} rows, errors and coverage may be chance."


def ranking(summary: dict[str, Any]) -> list[tuple[str, float, float | None, float | None]]:
    """(method, error, ratio to the best fixed expert, absolute error), best first; none, if no row was evaluated."""
    if not is_evaluated(summary):
        return []
    errors, absolute = summary["errors"], summary["absolute_errors"]
    best = errors.get(summary["best_reference"])
    return [
        (name, error, error / best if best else None, absolute.get(name))
        for name, error in sorted(errors.items(), key=lambda item: item[1])
    ]


def is_evaluated(summary: dict[str, Any]) -> bool:
    """Whether any row was. Earlier summaries call their number `judged`, or do not have it."""
    return summary.get("evaluated", summary.get("judged", summary["rows"])) > 0


def marked(name: str, summary: dict[str, Any]) -> str:
    return charts.label(name, summary["block"]) + (" (best in hindsight)" if name == summary["best_reference"] else "")


def error_table(summary: dict[str, Any]) -> Table:
    columns, rows = ["method", summary["error_name"], "ratio to the best fixed expert"], []
    for name, error, ratio, absolute in ranking(summary):
        row = [marked(name, summary), (error, f"{error:.6g}"), None if ratio is None else _ratio_verdict(ratio)]
        rows.append([*row, (absolute, f"{absolute:.6g}")] if absolute is not None else row)
    if summary["absolute_errors"]:
        columns.append("mean absolute error")
    return Table(
        "All methods on the same rows",
        "Rows without a target, and those before the first one, do not count.",
        columns,
        rows,
    )


def _ratio_verdict(ratio: float) -> Verdict:
    """Green is better than the best fixed expert, red is clearly worse."""
    return Verdict(f"{ratio:.4f}", GOOD if ratio < 1 else OPEN if ratio < 1.02 else BAD)


def changes_table(
    changes: list[dict[str, int]], times: dict[int, str], around: list[dict[str, Any]], block: int
) -> Table:
    """Every change with what it did to the error and to the features' effects."""
    rows = []
    for change, what in zip(changes, around, strict=True):
        row, seen = change["row"], change["seen_in_block"] * block + 1
        before, during, after = (None if value is None else (value, f"{value:.4g}") for value in what["losses"])
        moved = "; ".join(f"{name}: {one:.3g} → {other:.3g}" for name, one, other in what["effects"])
        rows.append(((row, f"{row:,}"), times.get(row), (seen, f"{seen:,}"), before, during, after, moved))
    return Table(
        "Detected changes",
        ("" if rows else "None. ")
        + "A change is reported when the memory has fallen to a quarter of what it was since the last one, or when the "
        "error of three blocks is six standard deviations above that of the sixty before; its place is where the error "
        "rose most. The errors are those of the blocks before it, until it was seen, and after the fit had followed; "
        "the features are those whose effects moved most.",
        ("row", "time", "seen at row", "error before", "at first", "after", "effects of one standard deviation"),
        rows,
    )


def confusion_table(counts: dict[tuple[str, str], int]) -> Table:
    """True classes down, predicted ones across; the rare ones together."""
    totals: dict[str, int] = {}
    for pair, count in counts.items():
        for name in pair:
            totals[name] = totals.get(name, 0) + count
    kept = sorted(totals, key=lambda name: -totals[name])[:MOST_CLASSES]
    groups = [[name] for name in kept] + ([rest] if (rest := [name for name in totals if name not in kept]) else [])
    names = [group[0] if group[0] in kept else f"{len(group)} others" for group in groups]
    rows = []
    for name, true in zip(names, groups, strict=True):
        row = [sum(counts.get((a, b), 0) for a in true for b in guess) for guess in groups]
        right = sum(counts.get((a, a), 0) for a in true)
        rows.append(
            (name, *((n, f"{n:,}") for n in row), (right / max(sum(row), 1), f"{right / max(sum(row), 1):.3f}"))
        )
    return Table(
        "Truth and predictions, all rows",
        "How often the class of the row was predicted as the class of the column; last, the part that was right.",
        ("true class", *(f"predicted {name}" for name in names), "right"),
        rows,
    )


def features_table(summary: dict[str, Any]) -> Table:
    constant = set(summary["constant_features"])
    rows = [(name, "constant" if name in constant else "") for name in summary["features"]]
    return Table("Features", "What the predictor sees, after encoding.", ("feature", "note"), rows)


def facts(summary: dict[str, Any]) -> list[str]:
    """Sentences about the data and the run."""
    lines = [f"{note[0].upper()}{note[1:]}." for note in summary["notes"]]
    if summary["missing"]:
        counts = [f"{name!r} {count:,}" for name, count in summary["missing"].items()]
        lines.append(
            f"Missing values: {_list(counts)}; a feature's is replaced by the last one, a target's row not used."
        )
    if summary["constant_features"]:
        lines.append(f"Features that never varied: {_list([repr(name) for name in summary['constant_features']])}.")
    if summary["skipped_rounds"]:
        lines.append(f"Rounds skipped because a gradient was not finite: {summary['skipped_rounds']:,}.")
    if summary.get("left_out"):
        count = summary["left_out"]
        lines.append(f"{count:,} rows were left out; the first of them: {' '.join(summary['left_out_first'])}")
    if summary.get("coverage"):
        parts = [f"{100 * part:.1f} % in the {100 * float(level):.0f} % band"
                 for level, part in summary["coverage"].items()]  # fmt: skip
        lines.append(f"Targets in the bands: {_list(parts)}.")
    if summary.get("series") is not None:
        lines += series_facts(summary)
    else:
        changes = [f"{change['row']:,}" for change in summary["changes"]]
        lines.append(f"Detected changes, at rows: {_list(changes)}." if changes else "Detected changes: none.")
    lines.append(f"{summary['rows']:,} rows, {summary['rows_per_second']:,.0f} rows per second after the first block.")
    if summary.get("forecasts"):
        lines.append(
            f"The last {summary['forecasts']:,} rows have no target: they are predicted and no part of a saved learner."
        )
    here = summary.get("table_rows", summary["rows"])  # runs of older versions do not say
    if here != summary["rows"]:
        lines.append(f"Only {here:,} of these rows are new: the errors are those of all rows since the learner began.")
    return lines


def _list(words: list[str]) -> str:
    more = len(words) - MOST_NAMES
    return ", ".join(words[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
