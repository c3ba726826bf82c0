"""What the features of a row take from the rows before it: lags of the target, and values for missing ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from smoothfbo.stream.segments import Segments, fill_forward, join


class Past:
    """Of every series: the newest `reach` targets, the newest values of all features, and the newest time.

    Targets are NaN before the first one, and never missing after it. Rows come series by series, as `segments` says.
    """

    def __init__(self, reach: int, width: int, time: type[np.int64 | np.float64]):
        self._history, self._last, self._last_time = np.zeros((0, reach)), np.zeros((0, width)), np.zeros(0, time)
        self.never: Any = np.iinfo(np.int64).min if time is np.int64 else -np.inf

    def make_room(self, series: int) -> None:
        """For as many series; twice as many as before, so that it is rarely needed."""
        have = len(self._history)
        if series > have:
            more = max(series - have, have if have > 1 else 0)
            self._history = np.concatenate([self._history, np.full((more, self._history.shape[1]), np.nan)])
            self._last = np.concatenate([self._last, np.full((more, self._last.shape[1]), np.nan)])
            self._last_time = np.concatenate([self._last_time, np.full(more, self.never, self._last_time.dtype)])

    def earlier_targets(self, target: np.ndarray, segments: Segments, offsets: Sequence[int]) -> list[np.ndarray]:
        """For every offset the targets that many rows back; keeps the newest."""
        reach = self._history.shape[1]
        joined = join(segments, np.full(len(segments.slots), reach))
        filled = joined.of(self._history[segments.slots].ravel(), target)
        fill_forward(filled[:, None], joined.starts)
        self._history[segments.slots] = filled[joined.starts[1:, None] + np.arange(-reach, 0)]
        return [filled[joined.rows - offset] for offset in offsets]

    def fill(self, features: np.ndarray, segments: Segments) -> None:
        """In place: the last value before a missing one; NaN where there was none (the learner uses its mean)."""
        has_gaps = np.isnan(features).any(axis=0)
        if has_gaps.any():
            joined = join(segments, np.ones(len(segments.slots), np.int64))
            together = joined.of(self._last[segments.slots][:, has_gaps], features[:, has_gaps])
            fill_forward(together, joined.starts)
            features[:, has_gaps] = together[joined.rows]
        self._last[segments.slots] = features[segments.starts[1:] - 1]

    def goes_back(self, time: np.ndarray, segments: Segments) -> np.ndarray:
        """Whether the time of a row is before that of the row above it of its series."""
        joined = join(segments, np.ones(len(segments.slots), np.int64))
        together = joined.of(self._last_time[segments.slots], time)
        return together[joined.rows] < together[joined.rows - 1]

    def keep_times(self, time: np.ndarray, segments: Segments) -> None:
        self._last_time[segments.slots] = time[segments.starts[1:] - 1]

    @property
    def last_time(self) -> int | float | None:
        """The newest time of the only series."""
        return None if not len(self._last_time) or self._last_time[0] == self.never else self._last_time[0].item()

    def arrays(self, series: int) -> dict[str, np.ndarray]:
        """What is kept of each of so many series."""
        self.make_room(series)
        arrays = {"history": self._history, "last": self._last, "last_time": self._last_time}
        return {name: values[:series] for name, values in arrays.items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self._history, self._last = arrays["history"].astype(np.float64), arrays["last"].astype(np.float64)
        self._last_time = arrays["last_time"].astype(self._last_time.dtype)
