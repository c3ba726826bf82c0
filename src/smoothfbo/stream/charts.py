"""The charts of a stream's run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smoothfbo.harness.charts import PALETTE, Chart, HeatMap, Series
from smoothfbo.harness.methods import SMOOTH_FBO, find
from smoothfbo.stream.stored import BlockAverages

LAST_ROWS = 200  # whose predictions are shown
MOST_EFFECTS = 6  # features whose effects are drawn
COLOURS = {
    "learned_memory": "#56b4e9",
    "smoothfbo": find(SMOOTH_FBO).colour, "unsmoothed": "#0072b2", "last_block": "#cc79a7", "all_past": "#e69f00",
    "last_value": "#777777",
}  # fmt: skip
BEST_COLOUR = "#d55e00"


def label(method: str, block: int) -> str:
    """A method in words; memories and windows in rows, of which a block has `block`."""
    kind, _, number = method.rpartition("_")
    if kind == "season":
        return f"value {number} rows before"
    if kind in ("forgetting", "window", "difference", "cautious_difference"):
        length = "all of the past" if number == "all" else f"{int(number) * block:,} rows"
        return f"{kind.replace('_', ' ')}, {length}"
    return {
        "smoothfbo": find(SMOOTH_FBO).label, "learned_memory": "learned memory alone",
        "unsmoothed": "learned memory, without smoothing", "last_block": "last block only",
        "random_features": "random features", "random_features_difference": "random features, difference",
        "products": "products of columns", "products_difference": "products of columns, difference",
        "neighbours": "nearest rows", "weighted_neighbours": "nearest rows, weighted columns",
        "since_change": "since the last change",
        "all_past": "all of the past", "rolling_ridge": "ridge, last 500 rows", "last_value": "last value",
    }[method]  # fmt: skip


def _over(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(others > 0, values / others, np.nan)


def error_charts(averages: BlockAverages, summary: dict[str, Any]) -> Iterator[Chart]:
    best, error, block = summary["best_reference"], summary["error_name"], summary["block"]
    # Those that others would hide are in the table.
    shown = ("last_value", "all_past", "learned_memory", best, "smoothfbo")
    shown = [name for name in dict.fromkeys(shown) if name in averages.losses]

    def lines(values: Any) -> list[Series]:
        return [
            Series(
                label(name, block) + (" (best fixed expert in hindsight)" if name == best else ""),
                averages.row, values(name), colour=BEST_COLOUR if name == best else COLOURS[name],
                dashed=name == best,
            )
            for name in shown
        ]  # fmt: skip

    logarithmic = not summary["is_classification"]
    yield Chart(
        "running_error", "Error so far", f"The {error} of all rows from the first to this one. Every row was predicted "
        "before its target was used, by all methods from the same features.", "row", error, lines(averages.running),
        log_y=logarithmic,
    )  # fmt: skip
    yield Chart(
        "recent_error", "Error over time", f"The {error} within each of {len(averages.row)} intervals of rows. "
        "Dotted lines: detected changes.", "row", error, lines(averages.recent), log_y=logarithmic,
        marks=[float(change["row"]) for change in summary["changes"]],
    )  # fmt: skip
    if best and best in averages.losses:
        yield Chart(
            "relative_error", "Error so far, relative to the best fixed expert",
            f"1 is “{label(best, block)}”, known to be the best only in hindsight; below 1 is better. Dashed: windows.",
            "row", "ratio",
            [Series(label(name, block), averages.row, _over(averages.running(name), averages.running(best)),
                    colour=colour, dashed=dashed)
             for name, colour, dashed in _all_methods(averages) if name not in (best, "last_block", "last_value")],
        )  # fmt: skip


def _all_methods(averages: BlockAverages) -> Iterator[tuple[str, str, bool]]:
    """(method, colour, dashed): windows are dashed; the longer a memory, the lighter. SmoothFBO comes last, on top."""
    for kind in ("forgetting", "window"):
        names = [name for name in averages.losses if name.startswith(kind)]
        for index, name in enumerate(names):
            share = index / max(len(names) - 1, 1)
            red, green, blue = (round(a + share * (b - a)) for a, b in ((80, 190), (20, 175), (110, 215)))
            yield name, f"#{red:02x}{green:02x}{blue:02x}", kind == "window"
    for name, colour in reversed(COLOURS.items()):
        if name in averages.losses:
            yield name, colour, False


def effects_chart(averages: BlockAverages, summary: dict[str, Any], target: str) -> Chart | None:
    """The features that matter most, over time."""
    named = [(k, name) for k, name in enumerate(summary.get("effects", [])) if name is not None]
    if not named or not averages.effects.shape[1]:
        return None
    sizes = {k: np.nanmax(np.abs(averages.effects[:, k])) for k, _ in named}
    shown = sorted(named, key=lambda one: -sizes[one[0]])[:MOST_EFFECTS]
    unit = "the scores of the classes" if summary["is_classification"] else target
    return Chart(
        "effects", "Effects of the features over time", "By how much the prediction of the learned memory rises with "
        f"one standard deviation of a feature, in units of {unit}; the {len(shown)} features with the largest effects. "
        "Lags of the target are features, too. Dotted lines: detected changes.", "row", "effect",
        [Series(name, averages.row, averages.effects[:, k], colour=PALETTE[i % len(PALETTE)])
         for i, (k, name) in enumerate(shown)],
        marks=[float(change["row"]) for change in summary["changes"]],
    )  # fmt: skip


def memory_charts(averages: BlockAverages, summary: dict[str, Any], unit: str = "") -> Iterator[Chart | HeatMap]:
    block = summary["block"]
    memories = [f"{2**k * block:,}" for k in range(averages.weights.shape[1] - 1)]
    marks = [float(change["row"]) for change in summary["changes"]]
    yield Chart(
        "memory", "Memory over time", "How many rows the learned weights look back (geometric mean of the memories). "
        f"It falls when the past no longer helps; dotted lines: detected changes.{unit}", "row", "rows",
        [Series("memory", averages.row, block * averages.memory, colour=COLOURS["smoothfbo"])], log_y=True, marks=marks,
    )  # fmt: skip
    yield HeatMap(
        "weights", "Learned weights of the memories", "λ as weights w_k over the forgetting rates, each with a memory "
        f"of so many rows; SmoothFBO tunes them so that the newest {block} rows would have been predicted best.",
        "row", "memory (rows)", "weight", averages.row, np.arange(len(memories) + 1), averages.weights.T,
        [*memories, "all"],
    )  # fmt: skip
    ages, shares = shares_by_age(averages, block)
    yield HeatMap(
        "ages", "How old the trusted rows are", "The part of the fit's weight on rows of each age, when the next ones "
        "are predicted.", "row", "age (rows)", "share of the weight", averages.row,
        np.arange(len(ages)), shares, ages,
    )  # fmt: skip


def shares_by_age(averages: BlockAverages, block: int) -> tuple[list[str], np.ndarray]:
    """Σ_k w_k Σ_{s in group} ρ_k^(s−1) / Σ_{s ≤ t} ρ_k^(s−1), for ages of s blocks in groups 1, 2, 3–4, 5–8, …"""
    rates = averages.weights.shape[1]
    past = np.maximum(averages.block, 1)
    ends = [2.0**k for k in range(rates - 1)] + [np.inf]
    until = np.zeros((len(ends) + 1, len(past)))
    for row, end in enumerate(ends, 1):
        for k in range(rates):
            retention = 1 - 2.0**-k if k < rates - 1 else 1.0
            reached = np.minimum(end, past)
            part = reached / past if retention == 1 else (1 - retention**reached) / (1 - retention**past)
            until[row] += averages.weights[:, k] * part
    starts = [1, *(int(end) + 1 for end in ends[:-1])]
    names = [f"{(a - 1) * block + 1:,}–{b * block:,.0f}" for a, b in zip(starts[:-1], ends[:-1], strict=True)]
    return [*names, f"{(starts[-1] - 1) * block + 1:,} or more"], np.diff(until, axis=0)


def last_predictions(path: Path, target: str) -> Chart:
    """Predictions and truth of the last rows."""
    with pq.ParquetFile(path) as file:
        groups, rows, group = [], 0, file.num_row_groups
        bands = [f"{side}_{level}" for level in (80, 95) for side in ("low", "high")]
        columns = [name for name in ("row", "target", "prediction", *bands) if name in file.schema_arrow.names]
        while group > 0 and rows < LAST_ROWS:
            group -= 1
            groups.insert(0, file.read_row_group(group, columns=columns))
            rows += groups[0].num_rows
        table = pa.concat_tables(groups)
    frame = table.slice(max(table.num_rows - LAST_ROWS, 0)).to_pandas()
    lines = [Series("truth", frame["row"], frame["target"], colour="#000000")]
    for level, colour in (("95", "#56b4e9"), ("80", COLOURS["smoothfbo"])):
        if f"low_{level}" in frame:
            edges = {"low": frame[f"low_{level}"], "high": frame[f"high_{level}"]}
            lines.append(
                Series(f"{level} % band", frame["row"], frame["prediction"], **edges, colour=colour, only_band=True)
            )
    lines.append(Series("SmoothFBO", frame["row"], frame["prediction"], colour=COLOURS["smoothfbo"]))
    return Chart(
        "predictions", "Predictions and truth, last rows", f"The last {len(frame)} rows; every prediction, and its "
        "bands, were made before the target was used. The bands should hold 80 and 95 % of the targets.", "row", target,
        lines,
    )  # fmt: skip
