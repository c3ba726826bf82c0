"""The rows that an estimator is given: checked, in a fixed order of columns, text encoded."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from smoothfbo.stream.frames import FrameEncoder, as_frame, check_columns, is_missing
from smoothfbo.stream.reading.faults import LARGEST
from smoothfbo.stream.scikit import BaseEstimator, check_X_y, validate_data
from smoothfbo.stream.series import AbstractSeries, KeyedRows


class RowsEstimator(BaseEstimator, ABC):
    """Takes data frames, arrays and single rows as mappings; the first of them fixes the columns."""

    _is_classification: bool
    learned_: Any
    encoder_: FrameEncoder | None
    features_: list[Any] | None  # the names in a mapping, in their order
    feature_names_in_: np.ndarray

    @property
    @abstractmethod
    def _learned(self) -> AbstractSeries:
        """What was learnt, or what it begins with."""

    @property
    def _is_started(self) -> bool:
        return hasattr(self, "learned_")

    def _checked(self, X: Any) -> KeyedRows:
        X, keys = self._learned.split(as_frame(X))
        if self.encoder_ is not None:
            return KeyedRows(self._encoded(X, learns=False), keys)
        checked: Any = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return KeyedRows(checked, keys)

    def _checked_rows(self, X: Any, y: Any) -> tuple[KeyedRows, np.ndarray]:
        """Numbers and targets; text columns of a data frame are encoded."""
        X, keys = self._learned.split(as_frame(X))
        if not self._is_started:
            is_frame = hasattr(X, "columns") and hasattr(X, "dtypes")
            if is_frame:
                check_columns(X)
            self.encoder_ = FrameEncoder.of_frame(X) if is_frame else None
        options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        numeric = not self._is_classification
        if self.encoder_ is None:
            checked: Any = validate_data(self, X, y, reset=not self._is_started, y_numeric=numeric, **options)
        else:
            checked = check_X_y(self._encoded(X, learns=True), y, y_numeric=numeric, **options)
        return KeyedRows(_bounded(checked[0], "X"), keys), checked[1]

    def _encoded(self, frame: Any, learns: bool) -> np.ndarray:
        encoder: Any = self.encoder_
        if not hasattr(frame, "columns"):
            raise ValueError(f"It learnt from text, too; give a data frame with the columns {encoder.names}.")
        validate_data(self, frame, reset=not self._is_started, skip_check_array=True)
        return _finite(encoder.frame(frame, learns), "the data frame")

    def _row(self, x: Mapping[Any, Any], learns: bool = False) -> KeyedRows:
        """The features of a mapping in a fixed order: that of the first frame, or sorted; what is missing is NaN."""
        if not isinstance(x, Mapping):
            raise ValueError(f"A row must be a mapping of names to values, such as a dict, got {type(x).__name__}.")
        x, keys = self._learned.split_row(x)
        if vars(self).get("features_") is None:
            if hasattr(self, "feature_names_in_"):
                self.features_ = self.feature_names_in_.tolist()
            elif self._is_started:
                raise ValueError("It learnt from arrays, whose columns have no names; continue with arrays.")
            else:
                if not x:
                    raise ValueError("The first row has no features, so there is nothing to learn from.")
                self.features_ = sorted(x, key=str)
                self.encoder_ = FrameEncoder.of_row(self.features_, x)
        try:
            if self.encoder_ is not None:
                row = self.encoder_.row(x, learns)
            else:
                values: list[Any] = [x.get(name) for name in self.features_ or ()]
                row = np.array([[math.nan if is_missing(value) else float(value) for value in values]])
        except (TypeError, ValueError) as error:
            raise ValueError(f"Features must be numbers, or text from the first row on, got {dict(x)!r}.") from error
        row = _finite(row, dict(x))
        return KeyedRows(_bounded(row, dict(x)) if learns else row, keys)


def _finite(values: np.ndarray, source: object) -> np.ndarray:
    if np.isinf(values).any():
        raise ValueError(f"All features must be finite, or missing, got {source!r}.")
    return values


def _bounded(values: Any, source: object) -> Any:
    if (np.abs(values) > LARGEST).any():
        raise ValueError(
            f"All features must lie within ±{LARGEST:g}, else their squares are too large, got {source!r}."
        )
    return values
