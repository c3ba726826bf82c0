"""From columns to numbers: one-hot levels, lags of the target, the calendar; missing values from the past."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading.schema import Schema, class_name
from smoothfbo.stream.rows import Rows

compute: Any = pyarrow.compute  # its functions are made when it is imported

DAY = 86_400_000_000  # microseconds
MOST_CLASSES = 64
MOST_MARKED_CLASSES = 8  # whose lags are features
PERIODS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}


class Encoder:
    """Encodes portions of a table one after the other, in one pass; `state` is all it needs to go on.

    A row's features use the row itself and the targets of rows at least `horizon` rows before it.
    """

    def __init__(self, schema: Schema, lags: tuple[int, ...], horizon: int, source: str = "the table"):
        self.schema, self.lags, self.horizon, self.source = schema, lags, horizon, source
        self.classes: list[str] = []  # in order of appearance
        self.levels: dict[str, list[str]] = {c.name: [] for c in schema.features if c.kind == "categorical"}
        self.rows = 0
        self.missing = {column.name: 0 for column in schema.columns}
        self.last_time: int | float | None = None
        time = None if schema.time is None else schema.column(schema.time)
        self._has_calendar = time is not None and time.kind == "time"
        if time is not None and time.kind == "categorical":
            raise UsageError(
                f"`time` {time.name}: the column holds text; allowed are times (2024-05-01 13:00) or numbers."
            )
        self.width = len(self.names)
        # The newest targets, as far back as a lag reaches; NaN before the first row. Never missing after it.
        self._history = np.full(max([horizon, *(horizon + lag - 1 for lag in lags)]), np.nan)
        self._last = np.full(self.width, np.nan)
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
        table, crowd = self._before_crowd(table, left_out)
        time, fault = self._time(table, left_out)
        if fault is not None:
            table = table.slice(0, len(time) if time is not None else 0)
        fault = fault or crowd
        parts = [self._column(table, column.name) for column in self.schema.features if column.kind != "time"]
        target = self._target(table[self.schema.target])
        filled = np.concatenate([self._history, target])
        _fill_forward(filled[:, None])
        parts += self._lagged(filled, len(target))
        if self._has_calendar and time is not None:
            parts += [_calendar(time)]
        features = np.concatenate(parts, axis=1) if parts else np.zeros((len(target), 0))
        previous = filled[len(self._history) - self.horizon : len(filled) - self.horizon]
        features = self._impute(features)
        self._history = filled[len(filled) - len(self._history) :]
        self.rows += len(target)
        shown = None if self.schema.time is None else table[self.schema.time].combine_chunks()
        return Rows(features, target, previous), shown, fault

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

    def _before_crowd(self, table: pa.Table, left_out: int) -> tuple[pa.Table, UsageError | None]:
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
            f"{self.source}, row {left_out + self.rows + row + 1}, column {self.schema.target!r}: more than "
            f"{MOST_CLASSES} classes; if they are numbers, set `task` to regression."
        )

    def _lagged(self, filled: np.ndarray, rows: int) -> list[np.ndarray]:
        parts = []
        for offset in self._offsets():
            start = len(self._history) - offset
            lagged = filled[start : start + rows]
            if self.schema.is_classification:
                marks = (lagged[:, None] == np.arange(1, self._marked_classes + 1)).astype(np.float64)
                marks[np.isnan(lagged)] = np.nan
                parts.append(marks)
            else:
                parts.append(lagged[:, None])
        return parts

    def _impute(self, features: np.ndarray) -> np.ndarray:
        """The last value of the column before a missing one; NaN where there was none (the learner uses its mean)."""
        together = np.concatenate([self._last[None], features])
        if np.isnan(together).any():
            _fill_forward(together)
        if len(together) > 1:
            self._last = together[-1].copy()
            with np.errstate(invalid="ignore"):
                self._lowest = np.fmin(self._lowest, np.fmin.reduce(together[1:]))
                self._highest = np.fmax(self._highest, np.fmax.reduce(together[1:]))
        return together[1:]

    def _time(self, table: pa.Table, left_out: int) -> tuple[np.ndarray | None, UsageError | None]:
        if self.schema.time is None:
            return None, None
        values = table[self.schema.time]
        if self._has_calendar:
            zone = values.type.tz if pa.types.is_timestamp(values.type) else None
            values = values.cast(pa.timestamp("us", zone), safe=False)  # nanoseconds are dropped
            time = values.cast(pa.int64()).to_numpy()
        else:
            time = values.to_numpy()
        before = time[:1] if self.last_time is None else np.array([self.last_time], time.dtype)
        back = np.flatnonzero(np.diff(np.concatenate([before, time])) < 0)
        good = time[: back[0]] if len(back) else time
        if len(good):
            self.last_time = good[-1].item()
        if not len(back):
            return time, None
        row, shown = int(back[0]), table[self.schema.time][int(back[0])]
        return good, UsageError(
            f"{self.source}, row {left_out + self.rows + row + 1}, column {self.schema.time!r}: {shown} is before the "
            "row above; rows must be in time order (`sort` sorts files)."
        )

    def state(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "classes": list(self.classes),
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            "missing": dict(self.missing),
            "last_time": self.last_time,
            "history": self._history.tolist(),
            "last": self._last.tolist(),
            "lowest": self._lowest.tolist(),
            "highest": self._highest.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.rows, self.classes, self.last_time = state["rows"], list(state["classes"]), state["last_time"]
        self.missing = dict(state["missing"])
        self.levels = {name: list(levels) for name, levels in state["levels"].items()}
        self._history, self._last = np.array(state["history"]), np.array(state["last"])
        self._lowest, self._highest = np.array(state["lowest"]), np.array(state["highest"])


def one_hot(values: pa.ChunkedArray, levels: list[str], slots: int) -> np.ndarray:
    """A column for each of `levels`, which grow as new ones come, and one for all beyond `slots`; NaN where missing."""
    new = [level for level in compute.unique(values).to_pylist() if level is not None and level not in levels]
    levels += new[: slots - len(levels)]  # in order of appearance
    indices = compute.index_in(values, pa.array(levels, pa.string()))
    indices = compute.fill_null(indices, slots).to_numpy()
    marks = (indices[:, None] == np.arange(slots + 1)).astype(np.float64)
    marks[compute.is_null(values).to_numpy()] = np.nan
    return marks


def _fill_forward(columns: np.ndarray) -> None:
    """In place: every NaN becomes the last number above it in its column, if there is one."""
    rows = np.where(np.isnan(columns), 0, np.arange(len(columns))[:, None])
    np.maximum.accumulate(rows, axis=0, out=rows)
    columns[:] = np.take_along_axis(columns, rows, axis=0)


def _calendar(time: np.ndarray) -> np.ndarray:
    """Sine and cosine of the time of day, of the week and of the year."""
    angles = [2 * np.pi * (time % period) / period for period in PERIODS.values()]
    return np.stack([wave(angle) for angle in angles for wave in (np.sin, np.cos)], axis=1)
