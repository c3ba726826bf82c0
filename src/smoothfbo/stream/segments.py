"""Rows of several series that come mixed: put together series by series, each after what is kept of its past."""

from typing import NamedTuple

import numpy as np


class Segments(NamedTuple):
    """Mixed rows, in their order within each series.

    - `order`: values[order] has the rows of one series after the other.
    - `slots`: the series of each segment; rising.
    - `starts`: where each segment starts in the ordered rows; last, how many rows there are.
    """

    order: np.ndarray
    slots: np.ndarray
    starts: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def rows(self) -> int:
        return len(self.order)

    def in_table_order(self, values: np.ndarray) -> np.ndarray:
        """Undo values[order], along the first axis."""
        result = np.empty_like(values)
        result[self.order] = values
        return result


class Joined(NamedTuple):
    """The rows of each segment after those kept of its past; both are places in the joined rows.

    - `starts`: where each segment starts; last, how many rows there are.
    - `past`, `rows`: the places of all kept rows and of all ordered new ones.
    """

    starts: np.ndarray
    past: np.ndarray
    rows: np.ndarray

    def of(self, past: np.ndarray, rows: np.ndarray, more: int = 0) -> np.ndarray:
        """The joined rows, and so many more of zeros."""
        joined = np.empty((int(self.starts[-1]) + more, *rows.shape[1:]), rows.dtype)
        joined[self.past], joined[self.rows] = past, rows
        joined[self.starts[-1] :] = 0
        return joined


def segments_of(series: np.ndarray) -> Segments:
    """`series` says, for each row, which series it is of."""
    is_small = series.max(initial=0) < 2**16  # 16 bits are sorted by their digits, which is ten times as fast
    order = np.argsort(series.astype(np.uint16) if is_small else series, kind="stable")
    ordered = series[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    return Segments(order, ordered[first], np.append(first, len(order)))


def join(segments: Segments, kept: np.ndarray) -> Joined:
    """`kept` says how many rows of the past stand before the new ones of each segment."""
    before = np.concatenate([[0], np.cumsum(kept)])
    shift = np.repeat(before[1:], segments.lengths)
    starts = segments.starts + before
    past = np.arange(before[-1]) + np.repeat(segments.starts[:-1], kept)
    return Joined(starts, past, np.arange(segments.rows) + shift)


def fill_forward(columns: np.ndarray, starts: np.ndarray) -> None:
    """In place: every NaN becomes the last number above it in its column and segment, if there is one."""
    first = np.repeat(starts[:-1], np.diff(starts))[:, None]
    rows = np.where(np.isnan(columns), first, np.arange(len(columns))[:, None])
    np.maximum.accumulate(rows, axis=0, out=rows)
    columns[:] = np.take_along_axis(columns, rows, axis=0)
