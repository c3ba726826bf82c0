"""The page of a stream's run and what the command prints, from stored files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoothfbo.harness import store
from smoothfbo.harness.page import Page, Section, repeat_section, write_page
from smoothfbo.harness.study import Outcome
from smoothfbo.stream import charts, diagnostics, stored
from smoothfbo.stream.config import with_flags
from smoothfbo.stream.groups.report import series_sections, series_verdict
from smoothfbo.stream.tables import (
    changes_table,
    confusion_table,
    error_table,
    facts,
    features_table,
    is_evaluated,
    marked,
    ranking,
    warnings_table,
)


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


def _horizon(rows: int) -> str:
    if rows == 1:
        return "Every row is predicted before its target is used."
    return f"Every row is predicted {rows} rows ahead: targets that are not known by then are used for nothing."


def _verdict(summary: dict[str, Any]) -> str:
    if not is_evaluated(summary):
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


def _name(data: str) -> str:
    return "standard input" if data == "-" else Path(data).name


def outcome(folder: Path) -> Outcome:
    """How the command ends: with 2 after a fault in the table, with 130 where standard input was stopped."""
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
    for name, error, ratio, absolute in ranking(summary):
        cells = [marked(name, summary), f"{error:.6g}", "" if ratio is None else f"{ratio:.4f}"]
        cells += [] if absolute is None else [f"{absolute:.6g}"]
        printed.add_row(*cells, style="bold" if name == "smoothfbo" else None)
    lines = [line for line in facts(summary) if line.rstrip(".").lower() not in summary["notes"]]
    state = store.read_json(folder / "config.json")["config"].get("state")
    if state is not None:
        lines.append(f"Learner: {state}, after {summary['rows']:,} rows")
    return [printed, *lines] if is_evaluated(summary) else lines
