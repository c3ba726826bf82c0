"""The page of a stream's run and what the command prints, from stored files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoothfbo.harness import store
from smoothfbo.harness.page import BAD, GOOD, OPEN, Page, Section, Table, Verdict, repeat_section, write_page
from smoothfbo.harness.study import Outcome
from smoothfbo.stream import charts, diagnostics, stored
from smoothfbo.stream.config import with_flags
from smoothfbo.stream.groups.report import series_facts, series_sections, series_verdict

MOST_NAMES = 12  # of columns or rows that are listed in a line
MUCH_MISSING = 0.1  # of the rows of a column: a warning
CLEARLY_WORSE = 1.02  # ratio to the best fixed forgetting: a warning
ENOUGH_ROWS = 500  # for errors and coverage that are no chance
MOST_CLASSES = 12  # of the confusion table


def build(folder: Path) -> Path:
    """All figures, and the page; returns the page's path."""
    config, summary = (store.read_json(folder / f"{name}.json") for name in ("config", "summary"))
    settings, page = config["config"], folder / "report.html"
    averages = _block_averages(folder, summary)
    first = [] if averages is None else [next(charts.error_charts(averages, summary))]
    warned = warnings_table(summary)
    write_page(
        page,
        Page(
            title=f"{settings['target']}: how much of the past to trust",
            result=_verdict(summary),
            setting=(
                f"{_name(settings['data'])}: {summary['rows']:,} rows, learnt in blocks of {summary['block']}, "
                f"{'classification' if summary['is_classification'] else 'regression'}, "
                f"{settings['predictor']} predictor. {_horizon(settings.get('horizon', 1))}"
            ),
            lead=[*([warned] if warned.rows else []), *first, error_table(summary)],
            sections=list(_sections(folder, config, summary, averages)),
        ),
    )
    return page


def _block_averages(folder: Path, summary: dict[str, Any]) -> Any:
    """The blocks, averaged for the charts; None if there was no full block, or if they are of many series."""
    blocks = folder / "blocks.parquet"
    is_one = summary.get("series") is None
    return stored.read_averages(blocks, summary["block"]) if is_one and blocks.exists() else None


def _sections(folder: Path, config: dict[str, Any], summary: dict[str, Any], averages: Any) -> Iterator[Section]:
    target, classes = config["config"]["target"], summary["is_classification"]
    predictions = folder / "predictions.parquet"
    series = summary.get("series") is not None
    if series:
        yield from series_sections(folder, summary)
        if classes and predictions.exists():
            yield Section("Predictions", parts=[confusion_table(stored.count_pairs(predictions))])
    # Of many series, the rows of the table do not follow each other.
    found = diagnostics.read_diagnostics(predictions, classes) if predictions.exists() and not series else None
    if found is not None:
        shown = confusion_table(stored.count_pairs(predictions)) if classes else None
        shown = shown or charts.last_predictions(predictions, target)
        yield Section("Predictions", parts=[shown])
    if averages is not None:
        times = list(diagnostics.time_parts(found, summary["error_name"])) if found is not None else []
        yield Section("Errors over time", parts=[*list(charts.error_charts(averages, summary))[1:], *times])
        changes = summary["changes"]
        around = stored.around_changes(folder / "blocks.parquet", changes, summary.get("effects", []))
        table = changes_table(
            changes, stored.times_of(predictions, [c["row"] for c in changes]), around, summary["block"]
        )
        effects = charts.effects_chart(averages, summary, target)
        yield Section("What changed", parts=[table, *([] if effects is None else [effects])])
    if found is not None:
        parts = diagnostics.reliability_parts(found) if classes else diagnostics.residual_parts(found, target)
        covered = None if classes else diagnostics.coverage_chart(found)
        title = "Are the probabilities right?" if classes else "Can the bands be trusted?"
        yield Section(title, parts=[*([] if covered is None else [covered]), *parts])
    if averages is not None:
        unit = _duration(None if found is None else found.spacing)
        yield Section("How much of the past is trusted", parts=list(charts.memory_charts(averages, summary, unit)))
    yield Section("The data", facts(summary))
    yield Section("Features", parts=[features_table(summary)], folded=True)
    yield repeat_section(config)


def _duration(spacing: float | None) -> str:
    """How long a row is, where there are times."""
    if not spacing:
        return ""
    return (
        f" 100 rows are {100 * spacing:.3g} hours." if spacing < 1 else f" 100 rows are {100 * spacing / 24:.3g} days."
    )


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


def _horizon(rows: int) -> str:
    if rows == 1:
        return "Every row is predicted before its target is used."
    return f"Every row is predicted {rows} rows ahead: targets that are not known by then are used for nothing."


def _verdict(summary: dict[str, Any]) -> str:
    if not _is_evaluated(summary):
        return "No row has both a prediction and a target, so there is no error to report."
    if summary.get("series") is not None:
        return series_verdict(summary)
    error, best = summary["errors"]["smoothfbo"], summary["best_reference"]
    text = f"SmoothFBO's {summary['error_name']} is {error:.4g}."
    if summary.get("coverage"):
        absolute, held = summary["absolute_errors"]["smoothfbo"], summary["coverage"]["0.8"]
        text += f" Its predictions are off by {absolute:.3g} on average; {100 * held:.1f} % of the targets lie in the"
        text += " 80 % bands."
    if best is None or summary["ratio_to_best_reference"] is None:
        return text
    return (
        f"{text} The best fixed expert in hindsight, “{charts.label(best, summary['block'])}”, has "
        f"{summary['errors'][best]:.4g}: the ratio is {summary['ratio_to_best_reference']:.4f}."
    )


def _ranking(summary: dict[str, Any]) -> list[tuple[str, float, float | None, float | None]]:
    """(method, error, ratio to the best fixed expert, absolute error), best first; none, if no row was evaluated."""
    if not _is_evaluated(summary):
        return []
    errors, absolute = summary["errors"], summary["absolute_errors"]
    best = errors.get(summary["best_reference"])
    return [
        (name, error, error / best if best else None, absolute.get(name))
        for name, error in sorted(errors.items(), key=lambda item: item[1])
    ]


def _is_evaluated(summary: dict[str, Any]) -> bool:
    """Whether any row was. Earlier summaries call their number `judged`, or do not have it."""
    return summary.get("evaluated", summary.get("judged", summary["rows"])) > 0


def _marked(name: str, summary: dict[str, Any]) -> str:
    return charts.label(name, summary["block"]) + (" (best in hindsight)" if name == summary["best_reference"] else "")


def error_table(summary: dict[str, Any]) -> Table:
    columns, rows = ["method", summary["error_name"], "ratio to the best fixed expert"], []
    for name, error, ratio, absolute in _ranking(summary):
        row = [_marked(name, summary), (error, f"{error:.6g}"), None if ratio is None else _ratio_verdict(ratio)]
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


def _name(data: str) -> str:
    return "standard input" if data == "-" else Path(data).name


def outcome(folder: Path) -> Outcome:
    """A fault in the table, or the end of standard input, is told after what came before it."""
    summary = store.read_json(folder / "summary.json")
    if summary["fault"] is not None:
        rows = "1 row before is" if summary["rows"] == 1 else f"{summary['rows']:,} rows before are"
        return Outcome(2, f"{with_flags(summary['fault'])} The {rows} kept.")
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
    return [printed, *lines] if _is_evaluated(summary) else lines
