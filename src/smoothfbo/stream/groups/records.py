"""What is written of a run over many series: one row per input row, per block, per series and per change."""

import numpy as np
import pyarrow as pa

from smoothfbo.stream.groups.learners import SeriesOutcome
from smoothfbo.stream.groups.session import METHODS, NewBlocks, SeriesSession
from smoothfbo.stream.learner.specification import LEVELS
from smoothfbo.stream.records import band_columns, probabilities, target_values
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.segments import Segments


def prediction_table(
    session: SeriesSession,
    rows: Rows,
    segments: Segments,
    numbers: np.ndarray,
    time: pa.Array | None,
    outcome: SeriesOutcome,
) -> pa.Table:
    """`row` (its number in all tables so far, from 1), the time if there is one, the series, target and predictions."""
    columns: dict[str, pa.Array] = {"row": pa.array(numbers)}
    if time is not None:
        columns["time"] = time
    values = {"target": rows.target, "prediction": outcome.predictions[0], "last_value": rows.previous}
    slots = segments.in_table_order(np.repeat(segments.slots, segments.lengths))
    more = probabilities(rows.target, outcome.scores) if outcome.bands is None else band_columns(outcome.bands)
    columns |= session.keys.columns(slots, {*columns, *values, *more})
    columns |= {k: target_values(session.encoder, segments.in_table_order(v)) for k, v in values.items()}
    columns |= {k: pa.array(segments.in_table_order(v), from_pandas=True) for k, v in more.items()}
    return pa.table(columns)


def block_table(session: SeriesSession, blocks: NewBlocks, outcome: SeriesOutcome) -> pa.Table:
    """The series, the number of the block in it, the row of the table where it begins, its memory, weights, losses."""
    columns: dict[str, np.ndarray] = {
        "block": blocks.numbers,
        "first_row": blocks.first_rows,
        "known": blocks.known.astype(np.int64),
        "memory": blocks.memory,
        "finite": outcome.finite,
    }
    columns |= {f"weight_{k}": outcome.weights[:, k] for k in range(outcome.weights.shape[1])}
    columns |= {f"loss_{name}": blocks.losses[:, i] for i, name in enumerate(METHODS)}
    series = session.keys.columns(blocks.slots, set(columns))
    return pa.table(series | {name: pa.array(values) for name, values in columns.items()})


def series_table(session: SeriesSession) -> pa.Table:
    """Rows, errors, memory and changes of every series."""
    sums = session.sums
    columns = {"rows": sums.rows, "known": sums.known, "blocks": sums.blocks, "changes": sums.changes}
    numbers: dict[str, np.ndarray] = {"memory": np.where(sums.blocks > 0, sums.memory, np.nan)}
    known = np.where(sums.known > 0, sums.known, np.nan)
    for index, name in enumerate(METHODS):
        numbers[f"error_{name}"] = sums.squared[:, index] / known
        if not session.schema.is_classification:
            numbers[f"absolute_error_{name}"] = sums.absolute[:, index] / known
    if sums.banded.any():
        banded = np.where(sums.banded > 0, sums.banded, np.nan)
        numbers |= {f"coverage_{100 * level:.0f}": sums.covered[:, i] / banded for i, level in enumerate(LEVELS)}
    ours, last = (numbers[f"error_{name}"] for name in METHODS)
    numbers["ratio_to_last_value"] = np.where(last > 0, ours / np.where(last > 0, last, 1), np.nan)
    series = session.keys.columns(np.arange(session.series), {*columns, *numbers})
    counts = {name: pa.array(values) for name, values in columns.items()}
    return pa.table(series | counts | {name: pa.array(v, from_pandas=True) for name, v in numbers.items()})


def change_table(session: SeriesSession) -> pa.Table:
    """The series of every change, the row of the table where it happened, its block, and where it showed."""
    names = ("row", "block", "seen_in_block")
    columns = {name: np.array([change[name] for change in session.changes], np.int64) for name in names}
    slots = np.array([change["series"] for change in session.changes], np.int64)
    return pa.table(session.keys.columns(slots, set(names)) | {name: pa.array(v) for name, v in columns.items()})
