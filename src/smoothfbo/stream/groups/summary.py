"""What many series come to: how their errors are spread, which are worst, how many changed."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from smoothfbo.harness import store
from smoothfbo.stream.groups.records import change_table, series_table
from smoothfbo.stream.groups.session import SeriesSession

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  # of the quantiles over series
LISTED = 10  # series, and changes, that are named


def summary_of_series(session: SeriesSession) -> dict[str, Any]:
    """As JSON can hold it. Series with errors of less than a block are too short to be called good or bad."""
    sums = session.sums
    known, squared = np.maximum(sums.known, 1), sums.squared
    is_evaluated = (sums.known >= session.config.rows_per_block) & (squared[:, 1] > 0)
    ratio = np.where(is_evaluated, squared[:, 0] / np.where(is_evaluated, squared[:, 1], 1), -np.inf)
    evaluated, total = ratio[is_evaluated], max(float(squared[:, 0].sum()), 1e-300)

    def listed(values: np.ndarray) -> list[dict[str, Any]]:
        """The series with the largest of these values."""
        found = np.argsort(-values, kind="stable")[:LISTED].tolist()
        return [
            {
                "series": session.keys.text(slot),
                "rows": int(sums.rows[slot]),
                "error": float(squared[slot, 0] / known[slot]),
                "last_value": float(squared[slot, 1] / known[slot]),
                "ratio": float(ratio[slot]) if is_evaluated[slot] else None,
                "share": float(squared[slot, 0]) / total,
                "changes": int(sums.changes[slot]),
            }
            for slot in found
            if values[slot] > -np.inf
        ]

    return {
        "by": list(session.keys.by),
        "count": session.series,
        "rows": _quantiles(sums.rows),
        "without_a_full_block": int(np.sum(sums.blocks == 0)),
        "bytes_per_series": session.learners.bytes_per_series,
        "errors": _quantiles((squared[:, 0] / known)[sums.known > 0]),
        "evaluated": int(is_evaluated.sum()),
        "ratios": _quantiles(evaluated),
        "better_than_last_value": int(np.sum(evaluated < 1)),
        "worst": listed(ratio),
        "most_of_the_error": listed(squared[:, 0]),
        "changes": len(session.changes),
        "series_that_changed": int(np.sum(sums.changes > 0)),
        "newest_changes": [
            change | {"series": session.keys.text(change["series"])} for change in session.changes[: -LISTED - 1 : -1]
        ],
    }


def write_series(session: SeriesSession, folder: Path) -> None:
    """series.parquet, and changes.parquet with all of them."""
    for name, table in (("series", series_table(session)), ("changes", change_table(session))):
        store.write(folder / f"{name}.parquet", lambda path, table=table: pq.write_table(table, path))


def _quantiles(values: np.ndarray) -> dict[str, float] | None:
    """By the share of series below; None if there are none."""
    if not len(values):
        return None
    found = np.quantile(values, SHARES, method="inverted_cdf").tolist()
    return {f"{share:g}": float(value) for share, value in zip(SHARES, found, strict=True)}
