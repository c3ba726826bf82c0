"""Columns of a data frame, or the entries of a row, as numbers; text is encoded as by the command line."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from smoothfbo.stream.reading.features import one_hot
from smoothfbo.stream.reading.schema import FEWEST_SLOTS, slots_for


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

    def frame(self, frame: Any) -> np.ndarray:
        """The columns of a data frame, which has the names of the first one."""
        return np.concatenate([self._column(name, frame[name]) for name in self.names], axis=1)

    def row(self, row: Mapping[Any, Any]) -> np.ndarray:
        return np.concatenate([self._column(name, [row.get(name)]) for name in self.names], axis=1)

    def _column(self, name: Any, values: Any) -> np.ndarray:
        if name not in self.slots:
            numbers = [np.nan if value is None else float(value) for value in values]
            return np.array(numbers, np.float64)[:, None]
        missing = [value is None or value != value for value in values]  # NaN is not equal to itself
        text = [None if none else str(value) for value, none in zip(values, missing, strict=True)]
        return one_hot(pa.chunked_array([pa.array(text, pa.string())]), self.levels[name], self.slots[name])

    def state(self) -> dict[str, Any]:
        return {"names": self.names, "slots": self.slots, "levels": self.levels}


def check_columns(frame: Any) -> None:
    """Raise if a data frame has no columns, two of one name, or times, which have no units that could be meant."""
    if not len(frame.columns):
        raise ValueError("The data frame has no column of features, so there is nothing to learn from.")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"Column {twice[0]!r} appears twice in the data frame; names must differ.")
    for name in frame.columns:
        if getattr(frame[name].dtype, "kind", "") in "mM":
            raise ValueError(f"Column {name!r} holds times; make them numbers, such as the hour of the day.")


def _is_text(column: Any) -> bool:
    kind = column.dtype
    if str(kind) in ("category", "string", "str"):
        return True
    return kind.kind == "O" and any(isinstance(value, str) for value in column)
