"""Columns of a data frame, or the entries of a row, as numbers; text is encoded as by the command line."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from smoothfbo.stream.reading.features import one_hot
from smoothfbo.stream.reading.schema import FEWEST_SLOTS, slots_for


def as_frame(X: Any) -> Any:
    """A table of polars or pyarrow as a data frame of pandas; anything else as it is."""
    return X.to_pandas() if hasattr(X, "to_pandas") else X


def is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)  # NaN is not equal to itself
    except TypeError:  # pandas.NA is neither
        return True


def as_text(value: Any) -> str:
    """A level, or the name of a series: 1.0 is 1, because integers become floats where a value is missing."""
    return str(int(value)) if isinstance(value, (float, np.floating)) and float(value).is_integer() else str(value)


class FrameEncoder:
    """Numbers stay; a column of text gets a feature for each level, as they come, and one for all that come too late.

    `slots` are the columns of text, with the number of levels there is room for; `levels` those that came.
    """

    def __init__(self, names: Sequence[Any], slots: Mapping[Any, int], levels: Mapping[Any, list[str]] | None = None):
        self.names, self.slots = list(names), dict(slots)
        self.levels = {name: list((levels or {}).get(name, [])) for name in self.slots}

    @classmethod
    def of_frame(cls, frame: Any) -> "FrameEncoder | None":
        """For the columns of a data frame; None if all are numbers."""
        text = {name: slots_for(frame[name].nunique()) for name in frame.columns if _is_text(frame[name])}
        return cls(list(frame.columns), text) if text else None

    @classmethod
    def of_row(cls, names: Sequence[Any], row: Mapping[Any, Any]) -> "FrameEncoder | None":
        """For the entries of a row; None if all are numbers."""
        text = {name: FEWEST_SLOTS for name in names if isinstance(row.get(name), str)}
        return cls(names, text) if text else None

    @classmethod
    def restored(cls, names: list[Any], slots: dict[str, int], levels: dict[str, list[str]]) -> "FrameEncoder":
        """Of a `state` that was JSON, where names of columns that are numbers have become text."""
        text = {name: str(name) for name in names if str(name) in slots}
        return cls(names, {k: slots[v] for k, v in text.items()}, {k: levels[v] for k, v in text.items()})

    @property
    def feature_names(self) -> list[str]:
        """One for each encoded column; empty where there is room for a level that has not come yet."""
        names: list[str] = []
        for name in self.names:
            if name in self.slots:
                levels = [f"{name}={level}" for level in self.levels[name]]
                names += [*levels, *[""] * (self.slots[name] - len(levels)), f"{name}=other"]
            else:
                names.append(str(name))
        return names

    @property
    def places(self) -> tuple[int, ...]:
        """Of the encoded columns: −1 for numbers, for a level of a column of text its place among the levels."""
        places: list[int] = []
        for name in self.names:
            places += range(self.slots[name] + 1) if name in self.slots else (-1,)
        return tuple(places)

    def frame(self, frame: Any, learns: bool) -> np.ndarray:
        """The columns of a data frame, which has the names of the first one; new levels stay if it is to be learnt."""
        return np.concatenate([self._column(name, frame[name], learns) for name in self.names], axis=1)

    def row(self, row: Mapping[Any, Any], learns: bool) -> np.ndarray:
        return np.concatenate([self._column(name, [row.get(name)], learns) for name in self.names], axis=1)

    def _column(self, name: Any, values: Any, learns: bool) -> np.ndarray:
        if name not in self.slots:
            return numbers(values, name)[:, None]
        text = [None if is_missing(value) else as_text(value) for value in values]
        return one_hot(pa.chunked_array([pa.array(text, pa.string())]), self.levels[name], self.slots[name], learns)

    def state(self) -> dict[str, Any]:
        return {"names": self.names, "slots": self.slots, "levels": self.levels}


def numbers(values: Any, name: Any) -> np.ndarray:
    """The values of a column; NaN where one is missing."""
    try:
        if hasattr(values, "to_numpy"):
            return np.asarray(values.to_numpy(np.float64, na_value=np.nan))
        return np.array([np.nan if is_missing(value) else float(value) for value in values])
    except (TypeError, ValueError) as error:
        kinds = {type(value).__name__ for value in values if not is_missing(value)} - {"int", "float", "bool"}
        raise ValueError(f"Column {name!r} must hold numbers, got {', '.join(sorted(kinds)) or error}.") from error


def check_columns(frame: Any) -> None:
    """Raise if a data frame has no columns, two of one name, or times, which have no units that could be meant.

    Nor may it have lists, dates or other objects that are neither numbers nor text.
    """
    if not len(frame.columns):
        raise ValueError("The data frame has no column of features, so there is nothing to learn from.")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"Column {twice[0]!r} appears twice in the data frame; names must differ.")
    for name in frame.columns:
        if getattr(frame[name].dtype, "kind", "") in "mM":
            raise ValueError(f"Column {name!r} holds times; make them numbers, such as the hour of the day.")
        if frame[name].dtype.kind == "O" and not _is_text(frame[name]):
            numbers(frame[name], name)


def _is_text(column: Any) -> bool:
    kind = column.dtype
    if str(kind) in ("category", "string", "str"):
        return True
    return kind.kind in "OU" and any(isinstance(value, str) for value in column)
