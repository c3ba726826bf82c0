"""From columns to numbers: one-hot levels, lags of the target, the calendar."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading.past import Past
from smoothfbo.stream.reading.schema import Schema, class_name
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.segments import Segments, segments_of

compute: Any = pyarrow.compute  # its functions are made when it is imported

DAY = 86_400_000_000  # microseconds
MOST_CLASSES = 64
MOST_MARKED_CLASSES = 8  # whose lags are features
PERIODS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}


class Encoder:
    """Encodes portions of a table one after the other, in one pass; `state` is all it needs to continue.

    A row's features use the row itself and the targets of rows at least `horizon` rows before it. Of many series, each
    has its own past; levels and classes are those of all.
    """

    def __init__(self, schema: Schema, lags: tuple[int, ...], horizon: int, source: str = "the table"):
        self.schema, self.lags, self.horizon, self.source = schema, lags, horizon, source
        self.classes: list[str] = []  # in order of appearance
        self.levels: dict[str, list[str]] = {c.name: [] for c in schema.features if c.kind == "categorical"}
        self.rows = 0
        self.missing = {column.name: 0 for column in schema.columns}
        time = None if schema.time is None else schema.column(schema.time)
        self._has_calendar = time is not None and time.kind == "time"
        if time is not None and time.kind == "categorical":
            raise UsageError(
                f"`time` {time.name}: the column holds text; allowed are times (2024-05-01 13:00) or numbers."
            )
        self.width = len(self.names)
        self._past = Past(max([horizon, *self._offsets()]), self.width, np.int64 if self._has_calendar else np.float64)
        self._lowest, self._highest = np.full(self.width, np.inf), np.full(self.width, -np.inf)

    @property
    def names(self) -> list[str | None]:
        """The names of the features; None where there is room for a level, or a class, that has not come yet."""
        names: list[str | None] = []
        for column in self.schema.features:
            if column.kind == "numeric":
                names.append(column.name)
            elif column.kind == "categorical":
                names += [f"{column.name}={level}" for level in self.levels[column.name]]
                names += [None] * (column.slots - len(self.levels[column.name]))
                names.append(f"{column.name}=other")
        target, marks = self.schema.target, [""]
        if self.schema.is_classification:
            marks = [f"={name}" for name in self.classes[1 : self._marked_classes + 1]]
        for offset in self._offsets():
            names += [f"{target}[-{offset}]{mark}" for mark in marks]
            names += [None] * (self._marked_classes - len(marks))
        if self._has_calendar:
            names += [f"{part} of {period}" for period in PERIODS for part in ("sine", "cosine")]
        return names

    @property
    def places(self) -> tuple[int, ...]:
        """Of the features before the lags: −1 for numbers, for a level of a text column its place among the levels."""
        places: list[int] = []
        for column in self.schema.features:
            if column.kind == "numeric":
                places.append(-1)
            elif column.kind == "categorical":
                places += range(column.slots + 1)
        return tuple(places)

    @property
    def lag_columns(self) -> tuple[int, int]:
        """Which features are lags of the target: from the first number up to the second."""
        stop = self.width - (2 * len(PERIODS) if self._has_calendar else 0)
        return stop - len(self.lags) * self._marked_classes, stop

    @property
    def used_names(self) -> list[str]:
        return [name for name in self.names if name is not None]

    @property
    def _marked_classes(self) -> int:
        """How many classes have a feature for each lag: as many as came first, but the very first; 1 in regression.

        Bounded, because the time of a round grows with the square of the number of features.
        """
        return min(max(self.schema.classes - 1, 1), MOST_MARKED_CLASSES)

    def _offsets(self) -> list[int]:
        """How many rows back the lags reach: lag 1 is the newest target that is known."""
        return [self.horizon + lag - 1 for lag in self.lags]

    @property
    def constant_columns(self) -> list[str]:
        """Features that have not varied so far."""
        columns = zip(self.names, self._lowest, self._highest, strict=True)
        return [name for name, low, high in columns if name is not None and low >= high]

    def encode(self, table: pa.Table, left_out: int = 0) -> tuple[Rows, pa.Array | None, UsageError | None]:
        """The rows before the first one whose time goes back or that has one class too many; their times; the fault.

        `left_out` rows of the table did not come here; they count where a row is named.
        """
        numbers = np.arange(left_out + self.rows + 1, left_out + self.rows + table.num_rows + 1)
        rows, _, times, fault = self.encode_series(table, np.zeros(table.num_rows, np.int64), numbers)
        return rows, times, fault

    def encode_series(
        self, table: pa.Table, series: np.ndarray, numbers: np.ndarray
    ) -> tuple[Rows, Segments, pa.Array | None, UsageError | None]:
        """The same for rows of many series; the encoded rows come series by series, their times as in the table.

        `numbers` are those of the rows, from 1, where one is named.
        """
        self._past.make_room(int(series.max(initial=0)) + 1)
        table, too_many = self._before_too_many_classes(table, numbers)
        segments = segments_of(series[: table.num_rows])
        time, fault = self._time(table, segments, numbers)
        if fault is not None and time is not None:
            table = table.slice(0, len(time))
            segments = segments_of(series[: table.num_rows])
        parts = [self._column(table, column.name) for column in self.schema.features if column.kind != "time"]
        target = self._target(table[self.schema.target])[segments.order]
        *lagged, previous = self._past.earlier_targets(target, segments, (*self._offsets(), self.horizon))
        start, stop = self.lag_columns
        features = np.empty((len(target), self.width))
        if start:
            features[:, :start] = np.concatenate(parts, axis=1)[segments.order]
        for column, lag in zip(range(start, stop, self._marked_classes), lagged, strict=True):
            features[:, column : column + self._marked_classes] = self._marks(lag)
        if time is not None:
            if self._has_calendar:
                features[:, stop:] = _calendar(time)[segments.order]
            self._past.keep_times(time[segments.order], segments)
        if len(features):
            self._past.fill(features, segments)
            with np.errstate(invalid="ignore"):
                self._lowest = np.fmin(self._lowest, np.fmin.reduce(features))
                self._highest = np.fmax(self._highest, np.fmax.reduce(features))
        self.rows += len(target)
        shown = None if self.schema.time is None else table[self.schema.time].combine_chunks()
        return Rows(features, target, previous), segments, shown, fault or too_many

    def _column(self, table: pa.Table, name: str) -> np.ndarray:
        column, values = self.schema.column(name), table[name]
        self.missing[name] += values.null_count
        if column.kind == "numeric":
            return values.to_numpy().astype(np.float64)[:, None]
        return one_hot(values, self.levels[name], column.slots)

    def _target(self, values: pa.ChunkedArray) -> np.ndarray:
        self.missing[self.schema.target] += values.null_count
        if not self.schema.is_classification:
            return values.to_numpy().astype(np.float64)
        distinct = compute.unique(values).to_pylist()  # in order of appearance
        for value in distinct:
            if value is not None and class_name(value) not in self.classes:
                self.classes.append(class_name(value))
        known = [value for value in distinct if value is not None]
        codes = np.array([*(self.classes.index(class_name(value)) for value in known), np.nan])
        indices = compute.index_in(values, pa.array(known, values.type))
        return codes[compute.fill_null(indices, len(known)).to_numpy()]

    def _before_too_many_classes(self, table: pa.Table, numbers: np.ndarray) -> tuple[pa.Table, UsageError | None]:
        """The rows before the first class for which there is no room."""
        if not self.schema.is_classification:
            return table, None
        values = table[self.schema.target]
        distinct = compute.drop_null(compute.unique(values)).to_pylist()  # in order of appearance
        new = [value for value in distinct if class_name(value) not in self.classes]
        if len(self.classes) + len(new) <= MOST_CLASSES:
            return table, None
        row = compute.index(values, new[MOST_CLASSES - len(self.classes)]).as_py()
        return table.slice(0, row), UsageError(
            f"{self.source}, row {numbers[row]}, column {self.schema.target!r}: more than {MOST_CLASSES} "
            "classes; if they are numbers, set `task` to regression."
        )

    def _marks(self, lag: np.ndarray) -> np.ndarray:
        """A lag as a feature; in classification one for every class."""
        if not self.schema.is_classification:
            return lag[:, None]
        marks = (lag[:, None] == np.arange(1, self._marked_classes + 1)).astype(np.float64)
        marks[np.isnan(lag)] = np.nan
        return marks

    def _time(
        self, table: pa.Table, segments: Segments, numbers: np.ndarray
    ) -> tuple[np.ndarray | None, UsageError | None]:
        """The times before the first one that goes back within its series."""
        if self.schema.time is None:
            return None, None
        values = table[self.schema.time]
        if self._has_calendar:
            zone = values.type.tz if pa.types.is_timestamp(values.type) else None
            values = values.cast(pa.timestamp("us", zone), safe=False)  # nanoseconds are dropped
            values = values.cast(pa.int64())
        time = values.to_numpy()
        is_back = self._past.goes_back(time[segments.order], segments)
        if not is_back.any():
            return time, None
        row = int(segments.order[is_back].min())
        return time[:row], UsageError(
            f"{self.source}, row {numbers[row]}, column {self.schema.time!r}: {table[self.schema.time][row]} is "
            f"before the row above{' of its series' if self.schema.by else ''}; "
            "rows must be in time order (`sort` sorts files)."
        )

    @property
    def last_time(self) -> int | float | None:
        """The newest time of the only series."""
        return self._past.last_time

    def state(self) -> dict[str, Any]:
        """Of one series, as JSON can hold it."""
        arrays = self.series_state(1)
        newest = {name: arrays[name][0].tolist() for name in ("history", "last")}
        return self.shared_state() | {"last_time": self.last_time} | newest

    def restore(self, state: dict[str, Any]) -> None:
        time = self._past.never if state["last_time"] is None else state["last_time"]
        arrays = {"history": [state["history"]], "last": [state["last"]], "last_time": [time]}
        self.restore_series(state, {name: np.array(values) for name, values in arrays.items()})

    def shared_state(self) -> dict[str, Any]:
        """What is the same for all series, as JSON can hold it."""
        return {
            "rows": self.rows,
            "classes": list(self.classes),
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            "missing": dict(self.missing),
            "lowest": self._lowest.tolist(),
            "highest": self._highest.tolist(),
        }

    def series_state(self, series: int) -> dict[str, np.ndarray]:
        """What is kept of each of so many series."""
        return self._past.arrays(series)

    def restore_series(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.rows, self.classes = state["rows"], list(state["classes"])
        self.missing = dict(state["missing"])
        self.levels = {name: list(levels) for name, levels in state["levels"].items()}
        self._lowest, self._highest = np.array(state["lowest"]), np.array(state["highest"])
        self._past.restore(arrays)


def one_hot(values: pa.ChunkedArray, levels: list[str], slots: int, learns: bool = True) -> np.ndarray:
    """A column for each of `levels`, which grow as new ones come, and one for all beyond `slots`; NaN where missing.

    Where nothing is to be learnt, `levels` stay, and a row with a new one has the column that it would get as the next.
    """
    if learns:
        new = [level for level in compute.unique(values).to_pylist() if level is not None and level not in levels]
        levels += new[: slots - len(levels)]  # in order of appearance
    indices = compute.index_in(values, pa.array(levels, pa.string()))
    indices = compute.fill_null(indices, slots if learns else len(levels)).to_numpy()
    marks = (indices[:, None] == np.arange(slots + 1)).astype(np.float64)
    marks[compute.is_null(values).to_numpy()] = np.nan
    return marks


def _calendar(time: np.ndarray) -> np.ndarray:
    """Sine and cosine of the time of day, of the week and of the year."""
    angles = [2 * np.pi * (time % period) / period for period in PERIODS.values()]
    return np.stack([wave(angle) for angle in angles for wave in (np.sin, np.cos)], axis=1)
