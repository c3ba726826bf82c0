"""What the page and the command say about many series, from stored files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from smoothfbo.harness.charts import Chart, Series
from smoothfbo.harness.page import BAD, GOOD, OPEN, Section, Table, Verdict
from smoothfbo.stream.charts import COLOURS

OURS, LAST = COLOURS["smoothfbo"], COLOURS["last_value"]
INTERVALS = 60  # of the table, in which changes are counted
MOST_BLOCKS = 4096  # of a series, that the chart of its learning shows


def series_verdict(summary: dict[str, Any]) -> str:
    series = summary["series"]
    text = (
        f"SmoothFBO's {summary['error_name']} over {series['count']:,} series is {summary['errors']['smoothfbo']:.4g}."
    )
    if not _evaluated(series):
        return f"{text} All series are too short to be evaluated."
    share = series["better_than_last_value"] / _evaluated(series)
    return (
        f"{text} It is below that of the last value in {share:.0%} of the series; the median ratio is "
        f"{series['ratios']['0.5']:.3f}, the worst {series['ratios']['1']:.3f}."
    )


def _evaluated(series: dict[str, Any]) -> int:
    """How many series were; earlier summaries say `judged`."""
    return series["evaluated"] if "evaluated" in series else series["judged"]


def series_facts(summary: dict[str, Any]) -> list[str]:
    """Sentences about the series."""
    series, lines = summary["series"], []
    by, rows = ", ".join(repr(name) for name in series["by"]), series["rows"]
    lines.append(
        f"{series['count']:,} series by {by}, of {rows['0']:,.0f} to {rows['1']:,.0f} rows (median "
        f"{rows['0.5']:,.0f}); each learner takes {series['bytes_per_series'] / 1024:.0f} KiB."
    )
    if series["without_a_full_block"]:
        lines.append(
            f"{series['without_a_full_block']:,} series have less than a block of {summary['block']} rows: their "
            "prediction is their last value."
        )
    if series["worst"]:
        worst = series["worst"][0]
        lines.append(
            f"Worst series, by the ratio to its last value: {worst['series']} with {worst['ratio']:.3f} "
            f"({summary['error_name']} {worst['error']:.4g})."
        )
    heaviest = series["most_of_the_error"][0]
    lines.append(f"Most of the error of all rows, {heaviest['share']:.1%}, is that of {heaviest['series']}.")
    lines.append(f"Detected changes: {series['changes']:,}, in {series['series_that_changed']:,} series.")
    return lines


def series_sections(folder: Path, summary: dict[str, Any]) -> Iterator[Section]:
    series, error = summary["series"], summary["error_name"]
    chart = [] if not _evaluated(series) else [_ratio_chart(folder, summary)]
    tables = [_quantile_table(series, error), _named_table("Worst series", "By the ratio to the last value; of those "
              "with errors of at least one block of rows.", series["worst"], error),
              _named_table("Where most of the error is", "By the sum of the losses of all rows of a series.",
                           series["most_of_the_error"], error)]  # fmt: skip
    yield Section("The series", ["series.parquet has all of them."], [*chart, *tables])
    if (folder / "blocks.parquet").exists():
        yield Section("How they learn", parts=list(_learning_charts(folder, summary)))
    yield Section("Changes", ["changes.parquet has all of them."], list(_changes(folder, summary)))


def _quantile_table(series: dict[str, Any], error: str) -> Table:
    rows = []
    for share in series["rows"]:
        cells: list[Any] = [f"{float(share):.0%}"]
        for name, form in (("rows", ",.0f"), ("errors", ".4g"), ("ratios", ".3f")):
            value = (series[name] or {}).get(share)
            cells.append(None if value is None else (value, f"{value:{form}}"))
        rows.append(cells)
    return Table(
        "Quantiles over the series",
        "Each column is sorted by itself: the value that this part of the series does not exceed.",
        ("series", "rows", error, "ratio to the last value"),
        rows,
    )


def _named_table(title: str, caption: str, listed: list[dict[str, Any]], error: str) -> Table:
    rows = [
        (
            one["series"],
            (one["rows"], f"{one['rows']:,}"),
            (one["error"], f"{one['error']:.4g}"),
            None if one["ratio"] is None else _verdict(one["ratio"]),
            (one["share"], f"{one['share']:.1%}"),
            one["changes"],
        )
        for one in listed
    ]
    return Table(title, caption, ("series", "rows", error, "ratio to the last value", "share of all", "changes"), rows)


def _verdict(ratio: float) -> Verdict:
    return Verdict(f"{ratio:.3f}", GOOD if ratio < 1 else OPEN if ratio < 1.02 else BAD)


def _ratio_chart(folder: Path, summary: dict[str, Any]) -> Chart:
    table = pq.read_table(folder / "series.parquet", columns=["known", "ratio_to_last_value"])
    known, ratio = (table[name].to_numpy() for name in table.column_names)
    ratio = np.sort(ratio[(known >= summary["block"]) & ~np.isnan(ratio)])
    share = 100 * (np.arange(len(ratio)) + 1) / len(ratio)
    return Chart(
        "series_ratios", "Error of each series, relative to its last value", "All series from the best to the worst; "
        "below 1 is better than to predict the last value.", "per cent of the series", "ratio",
        [Series("SmoothFBO", share, ratio, colour=OURS), Series("last value", share, np.ones_like(share), colour=LAST)],
        log_y=True,
    )  # fmt: skip


def _learning_charts(folder: Path, summary: dict[str, Any]) -> Iterator[Chart]:
    """Means over all series, by the number of the block in its series; scale-free, so that all series count alike."""
    sums = np.zeros((3, MOST_BLOCKS))
    memory, series = np.zeros(MOST_BLOCKS), np.zeros(MOST_BLOCKS)
    columns = ["block", "memory", "loss_smoothfbo", "loss_last_value"]
    with pq.ParquetFile(folder / "blocks.parquet") as file:
        for batch in file.iter_batches(65_536, columns=columns):
            block, here, ours, last = (batch[name].to_numpy() for name in columns)
            shown = block < MOST_BLOCKS
            block, here, ours, last = block[shown], here[shown], ours[shown], last[shown]
            series += np.bincount(block, minlength=MOST_BLOCKS)
            memory += np.bincount(block, here, minlength=MOST_BLOCKS)
            if summary["is_classification"]:
                values = [np.ones(len(block)), ours, last]
            else:
                positive = (ours > 0) & (last > 0)
                logarithm = np.log(np.where(positive, ours, 1) / np.where(positive, last, 1))
                values = [positive.astype(float), logarithm, np.zeros(len(block))]
            sums += [np.bincount(block, value, minlength=MOST_BLOCKS) for value in values]
    end = int(np.flatnonzero(series)[-1]) + 1
    row = (np.arange(end) + 1) * summary["block"]
    counts = np.maximum(sums[0, :end], 1)
    ours, last = sums[1, :end] / counts, sums[2, :end] / counts
    if not summary["is_classification"]:
        ours, last = np.exp(ours), np.exp(last)
    what = "error rate" if summary["is_classification"] else "ratio to the last value"
    yield Chart(
        "series_learning", "Error by the age of a series", f"The {what} of all series' first, second, … block of rows"
        + ("." if summary["is_classification"] else " (geometric mean)."), "row of the series", what,
        [Series("SmoothFBO", row, ours, colour=OURS), Series("last value", row, last, colour=LAST)],
        log_y=not summary["is_classification"],
    )  # fmt: skip
    yield Chart(
        "series_memory", "Memory by the age of a series", "How many blocks the learned weights look back, on average.",
        "row of the series", "blocks", [Series("memory", row, memory[:end] / np.maximum(series[:end], 1), colour=OURS)],
        log_y=True,
    )  # fmt: skip


def _changes(folder: Path, summary: dict[str, Any]) -> Iterator[Chart | Table]:
    series = summary["series"]
    if series["changes"]:
        rows = pq.read_table(folder / "changes.parquet", columns=["row"])["row"].to_numpy()
        counts, edges = np.histogram(rows, INTERVALS, (1, max(int(rows.max()), summary["table_rows"])))
        yield Chart(
            "series_changes", "Changes over all series", "How many series changed, by the row of the table; many at "
            "once have a common cause.", "row of the table", "changes",
            [Series("changes", edges[1:], counts, colour=OURS)], steps=True,
        )  # fmt: skip
    newest = [
        (c["series"], (c["row"], f"{c['row']:,}"), c["block"], c["seen_in_block"]) for c in series["newest_changes"]
    ]
    yield Table(
        "The newest changes",
        ("" if newest else "None. ") + "`row` is that of the table where it happened; blocks are those of the series.",
        ("series", "row", "block", "seen in block"),
        newest,
    )
