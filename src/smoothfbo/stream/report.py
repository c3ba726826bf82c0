"""The page of a stream's run and what the command prints, from stored files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoothfbo.harness import store
from smoothfbo.harness.page import BAD, GOOD, OPEN, Page, Section, Table, Verdict, repeat_section, write_page
from smoothfbo.harness.study import Outcome
from smoothfbo.stream import charts as charts

MOST_NAMES = 12  # of columns or rows that are listed in a line
MOST_CLASSES = 12  # of the confusion table


def build(folder: Path) -> Path:
    """All figures, and the page; returns the page's path."""
    config, summary = (store.read_json(folder / f"{name}.json") for name in ("config", "summary"))
    settings, page = config["config"], folder / "report.html"
    averages = _block_averages(folder, summary)
    first = [] if averages is None else [next(charts.error_charts(averages, summary))]
    write_page(
        page,
        Page(
            title=f"{settings['target']}: how much of the past to trust",
            result=_verdict(summary),
            setting=(
                f"{_name(settings['data'])}: {summary['rows']:,} rows in {summary['blocks']:,} blocks of "
                f"{summary['block']}, {'classification' if summary['is_classification'] else 'regression'}, "
                f"{settings['predictor']} predictor. Every row is predicted before its target is used."
            ),
            lead=[*first, error_table(summary)],
            sections=list(_sections(folder, config, summary, averages)),
        ),
    )
    return page


def _block_averages(folder: Path, summary: dict[str, Any]) -> Any:
    """The blocks, averaged for the charts; None if there was no full block."""
    blocks = folder / "blocks.parquet"
    return charts.read_averages(blocks, summary["block"]) if blocks.exists() else None


def _sections(folder: Path, config: dict[str, Any], summary: dict[str, Any], averages: Any) -> Iterator[Section]:
    settings = config["config"]
    predictions = folder / "predictions.parquet"
    text = []
    if summary["fault"] is not None:
        text.append(f"The run ended before the end of the table: {summary['fault']}")
    if averages is None:
        text.append("There was no full block, so nothing was learnt.")
    if text:
        yield Section("Warnings", text)
    if averages is not None:
        yield Section("Errors over time", parts=list(charts.error_charts(averages, summary))[1:])
    if averages is not None:
        table = changes_table(summary["changes"], charts.times_of(predictions, [c["row"] for c in summary["changes"]]))
        yield Section("How much of the past is trusted", parts=[*charts.memory_charts(averages, summary), table])
    if predictions.exists():
        if summary["is_classification"]:
            shown: Any = confusion_table(charts.count_pairs(predictions))
        else:
            shown = charts.last_predictions(predictions, settings["target"])
        yield Section("Predictions", parts=[shown])
    yield Section("The data", facts(summary))
    yield Section("Features", parts=[features_table(summary)], folded=True)
    yield repeat_section(config)


def _verdict(summary: dict[str, Any]) -> str:
    error, best = summary["errors"]["smoothfbo"], summary["best_reference"]
    text = f"SmoothFBO's {summary['error_name']} is {error:.4g}."
    if best is None or summary["ratio_to_best_reference"] is None:
        return text
    return (
        f"{text} The best fixed expert, chosen in hindsight, is {charts.label(best)} with "
        f"{summary['errors'][best]:.4g}; the ratio is {summary['ratio_to_best_reference']:.4f}."
    )


def _ranking(summary: dict[str, Any]) -> list[tuple[str, float, float | None, float | None]]:
    """(method, error, ratio to the best fixed expert, absolute error), best first."""
    errors, absolute = summary["errors"], summary["absolute_errors"]
    best = errors.get(summary["best_reference"])
    return [
        (name, error, error / best if best else None, absolute.get(name))
        for name, error in sorted(errors.items(), key=lambda item: item[1])
    ]


def _marked(name: str, summary: dict[str, Any]) -> str:
    return charts.label(name) + (" (best in hindsight)" if name == summary["best_reference"] else "")


def error_table(summary: dict[str, Any]) -> Table:
    columns, rows = ["method", summary["error_name"], "ratio to the best fixed expert"], []
    for name, error, ratio, absolute in _ranking(summary):
        row = [_marked(name, summary), (error, f"{error:.6g}"), None if ratio is None else _ratio_verdict(ratio)]
        rows.append([*row, (absolute, f"{absolute:.6g}")] if absolute is not None else row)
    if summary["absolute_errors"]:
        columns.append("mean absolute error")
    return Table(
        "All methods on the same rows",
        "Memories and windows are in blocks. Rows without a target, and those before the first one, do not count.",
        columns,
        rows,
    )


def _ratio_verdict(ratio: float) -> Verdict:
    """Green is better than the best fixed expert, red is clearly worse."""
    return Verdict(f"{ratio:.4f}", GOOD if ratio < 1 else OPEN if ratio < 1.02 else BAD)


def changes_table(changes: list[dict[str, int]], times: dict[int, str]) -> Table:
    rows = [(c["row"], times.get(c["row"]), c["block"], c["seen_in_block"]) for c in changes]
    return Table(
        "Detected changes",
        ("" if rows else "None. ")
        + "A change is reported when the memory has fallen to a quarter of what it was since the last one, or when the "
        "error of three blocks is six standard deviations above that of the sixty before; its place is where the error "
        "rose most.",
        ("row", "time", "block", "seen in block"),
        [((row, f"{row:,}"), time, block, seen) for row, time, block, seen in rows],
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
        parts = [f"{100 * part:.1f} % in the band of {100 * float(level):.0f} %"
                 for level, part in summary["coverage"].items()]  # fmt: skip
        lines.append(f"Of the targets lay {_list(parts)}.")
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


def _name(data: str) -> str:
    return "standard input" if data == "-" else Path(data).name


def outcome(folder: Path) -> Outcome:
    """A fault in the table, or the end of standard input, is told after what came before it."""
    summary = store.read_json(folder / "summary.json")
    if summary["fault"] is not None:
        return Outcome(2, f"{summary['fault']} The {summary['rows']:,} rows before are kept.")
    if summary["stopped"]:
        return Outcome(130, "stopped; standard input cannot be read again, so this is the end.")
    return Outcome()


def as_text(folder: Path) -> list[Any]:
    """What the command prints at the end: all methods, best first, and what is to be known about the data."""
    from rich import box
    from rich.table import Table as Printed

    summary = store.read_json(folder / "summary.json")
    printed = Printed(box=box.SIMPLE)
    printed.add_column("method, best first")
    columns = [summary["error_name"], "ratio to the best fixed"]
    for column in [*columns, "mean absolute error"] if summary["absolute_errors"] else columns:
        printed.add_column(column, justify="right")
    for name, error, ratio, absolute in _ranking(summary):
        cells = [_marked(name, summary), f"{error:.6g}", "" if ratio is None else f"{ratio:.4f}"]
        cells += [] if absolute is None else [f"{absolute:.6g}"]
        printed.add_row(*cells, style="bold" if name == "smoothfbo" else None)
    lines = [line for line in facts(summary) if line.rstrip(".").lower() not in summary["notes"]]
    state = store.read_json(folder / "config.json")["config"].get("state")
    if state is not None:
        lines.append(f"Learner: {state}, after {summary['rows']:,} rows")
    return [printed, *lines]
