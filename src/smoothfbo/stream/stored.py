"""What the page of a stream's run needs of its stored tables; what is read at a time does not grow with them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CHART_POINTS = 240  # parts of the run, at most, over which charts average


@dataclass(frozen=True)
class BlockAverages:
    """The blocks of a run, averaged over intervals of equal length; the first axis of every array is the interval."""

    row: np.ndarray
    """The last row of an interval."""
    block: np.ndarray
    """The mean number of blocks before."""
    known: np.ndarray
    """Rows whose error counts."""
    memory: np.ndarray
    weights: np.ndarray
    effects: np.ndarray
    """Of every feature, one standard deviation more; no columns if the predictor is not linear."""
    losses: dict[str, np.ndarray]
    """Sums of the losses, by method."""

    def recent(self, method: str) -> np.ndarray:
        """The mean loss within each interval."""
        return _ratio(self.losses[method], self.known)

    def running(self, method: str) -> np.ndarray:
        """The mean loss from the first row to the end of each interval."""
        return _ratio(np.cumsum(self.losses[method]), np.cumsum(self.known))


def read_averages(path: Path, rows_per_block: int) -> BlockAverages:
    """blocks.parquet, portion by portion."""
    with pq.ParquetFile(path) as file:
        total = file.metadata.num_rows
        length = max(-(-total // CHART_POINTS), 1)
        count = -(-total // length)
        sums: dict[str, np.ndarray] = {}
        done, last_row = 0, np.zeros(count)
        for batch in file.iter_batches(65_536):
            place = (done + np.arange(batch.num_rows)) // length
            columns = {name: batch[name].to_numpy(zero_copy_only=False).astype(float) for name in batch.schema.names}
            last_row[place] = columns["first_row"] + rows_per_block - 1
            for name, values in columns.items():
                weighted = values * columns["known"] if name.startswith("loss_") else values
                sums[name] = sums.get(name, 0) + np.bincount(place, weighted, minlength=count)
            done += batch.num_rows
    blocks = np.bincount(np.arange(total) // length, minlength=count)
    rates, features = (sum(name.startswith(part) for name in sums) for part in ("weight_", "effect_"))
    effects = [sums[f"effect_{k}"] / blocks for k in range(features)]
    return BlockAverages(
        row=last_row,
        block=sums["block"] / blocks,
        known=sums["known"],
        memory=sums["memory"] / blocks,
        weights=np.stack([sums[f"weight_{k}"] / blocks for k in range(rates)], axis=1),
        effects=np.stack(effects, axis=1) if effects else np.zeros((count, 0)),
        losses={name.removeprefix("loss_"): values for name, values in sums.items() if name.startswith("loss_")},
    )


def _ratio(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.where(counts > 0, values / np.maximum(counts, 1), np.nan)


def around_changes(path: Path, changes: list[dict[str, int]], names: list[str | None]) -> list[dict[str, Any]]:
    """Of every change: the mean error and the effects before it, and after it, when the fit has followed.

    Before are the 16 blocks up to it; after are at most 32 blocks, beginning 8 after it was seen, up to the next one.
    """
    if not changes:
        return []
    with pq.ParquetFile(path) as file:
        columns = [f"effect_{k}" for k in range(len(names)) if f"effect_{k}" in file.schema_arrow.names]
        table = file.read(columns=["block", "known", "loss_smoothfbo", *columns])
    values = {name: table[name].to_numpy() for name in table.column_names}
    first, total = int(values["block"][0]), table.num_rows
    ends = [*(change["block"] for change in changes[1:]), first + total]
    found = []
    for change, end in zip(changes, ends, strict=True):
        at, seen = change["block"] - first, change["seen_in_block"] - first
        before = slice(max(at - 16, 0), max(at, 0))
        after = slice(min(seen + 8, max(end - first - 1, 0)), min(seen + 40, end - first))
        moved = []
        for name, column in zip(names, columns, strict=False):
            one, other = (values[column][part] for part in (before, after))
            if name is not None and len(one) and len(other):
                moved.append((name, float(one.mean()), float(other.mean())))
        losses = [_mean_loss(values, part) for part in (before, slice(max(at, 0), max(seen + 1, 0)), after)]
        moved.sort(key=lambda one: -abs(one[2] - one[1]))
        found.append({"losses": losses, "effects": moved[:3]})
    return found


def _mean_loss(values: dict[str, np.ndarray], part: slice) -> float | None:
    known = values["known"][part]
    return float(values["loss_smoothfbo"][part] @ known / known.sum()) if known.sum() else None


def count_pairs(path: Path) -> dict[tuple[str, str], int]:
    """How often each class was predicted for each true class."""
    counts: dict[tuple[str, str], int] = {}
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(65_536, columns=["target", "prediction"]):
            pairs = pa.Table.from_batches([batch]).drop_null().group_by(["target", "prediction"])
            for pair in pairs.aggregate([([], "count_all")]).to_pylist():
                key = pair["target"], pair["prediction"]
                counts[key] = counts.get(key, 0) + pair["count_all"]
    return counts


def times_of(path: Path, rows: list[int]) -> dict[int, str]:
    """The times of these rows, where the table has times."""
    found: dict[int, str] = {}
    with pq.ParquetFile(path) as file:
        if "time" not in file.schema_arrow.names or not rows:
            return found
        for batch in file.iter_batches(65_536, columns=["row", "time"]):
            first = batch["row"][0].as_py()
            here = [row for row in rows if first <= row < first + batch.num_rows]
            found |= {row: str(batch["time"][row - first].as_py()) for row in here}
    return found
