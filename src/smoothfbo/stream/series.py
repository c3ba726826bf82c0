"""What an estimator has learnt of its rows: of one series here, of many in `groups.many`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smoothfbo.stream.learner import files
from smoothfbo.stream.learner.coefficients import LinearFit
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.outcome import Outcome
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.segments import fill_forward


class KeyedRows(NamedTuple):
    """The features of rows, and beside them the columns that say which series they are of, if there are several."""

    features: np.ndarray
    keys: Any = None


class AbstractSeries(ABC):
    """One learner, or one for each series; and the last known target of each. It is empty before `start`."""

    @abstractmethod
    def split(self, frame: Any) -> tuple[Any, Any]:
        """The columns of features, and those that say which series a row is of."""

    @abstractmethod
    def split_row(self, x: Mapping[Any, Any]) -> tuple[Mapping[Any, Any], Any]:
        """The same of one row."""

    @abstractmethod
    def check_weights(self, weights: np.ndarray | None, name: str) -> None:
        """Raise if rows cannot have these weights, which the user calls `name`."""

    @abstractmethod
    def start(self, spec: Specification) -> None:
        """Before the first row."""

    @property
    @abstractmethod
    def spec(self) -> Specification:
        """What the learner, or each of them, is made for."""

    @property
    @abstractmethod
    def has_target(self) -> bool:
        """Whether any target is known."""

    @abstractmethod
    def can_predict(self, keys: Any) -> bool:
        """Whether a target of the series of this row is known; rows without one, or of weight 0, leave nothing."""

    @abstractmethod
    def learn(self, rows: KeyedRows, y: np.ndarray, weights: np.ndarray | None) -> None:
        """Go on with these rows."""

    @abstractmethod
    def predict(self, rows: KeyedRows, with_bands: bool = False) -> Outcome:
        """What could come next; nothing is kept."""

    def predict_number(self, row: KeyedRows) -> float:
        """The prediction for a single row of a regression."""
        return float(self.predict(row).predictions[0, 0])

    @abstractmethod
    def weights(self) -> np.ndarray:
        """Of the memories."""

    @abstractmethod
    def linear_fit(self) -> LinearFit:
        """The present fit, in the units of the features."""

    @abstractmethod
    def save(self, path: Path, content: dict[str, Any]) -> None:
        """With `content`, which says what the estimator is, in one file."""

    @classmethod
    @abstractmethod
    def load(cls, path: Path) -> tuple[Any, dict[str, Any]]:
        """As it was saved, and the content."""


class OneSeries(AbstractSeries):
    learner: Learner
    previous: float = math.nan  # the last target that is known

    def split(self, frame: Any) -> tuple[Any, Any]:
        return frame, None

    def split_row(self, x: Mapping[Any, Any]) -> tuple[Mapping[Any, Any], Any]:
        return x, None

    def check_weights(self, weights: np.ndarray | None, name: str) -> None:
        del name
        if weights is not None and not ((weights >= 0) & (weights < np.inf)).all():
            wrong = weights[~((weights >= 0) & (weights < np.inf))][0]
            raise ValueError(f"Weights must be finite and not negative, got {wrong}.")

    def start(self, spec: Specification) -> None:
        self.learner = Learner(spec)

    @property
    def spec(self) -> Specification:
        return self.learner.spec

    @property
    def has_target(self) -> bool:
        return not math.isnan(self.previous)

    def can_predict(self, keys: Any) -> bool:
        del keys
        return self.has_target

    def learn(self, rows: KeyedRows, y: np.ndarray, weights: np.ndarray | None) -> None:
        if weights is not None:  # what counts nothing is not known: it must enter no expert, mixture or last value
            y = np.where(weights > 0, y, np.nan)
        known = np.empty(len(y) + 1)
        known[0], known[1:] = self.previous, y
        if np.isnan(y).any():
            fill_forward(known[:, None], np.array([0, len(known)]))
        self.learner.learn(Rows(rows.features, y, known[:-1]), weights)
        self.previous = float(known[-1])

    def predict(self, rows: KeyedRows, with_bands: bool = False) -> Outcome:
        count = len(rows.features)
        return self.learner.predict(
            Rows(rows.features, np.full(count, np.nan), np.full(count, self.previous)), with_bands
        )

    def predict_number(self, row: KeyedRows) -> float:
        return self.learner.predict_number(row.features[0], self.previous)

    def weights(self) -> np.ndarray:
        logits = np.asarray(self.learner.state.learners.outer[0])
        return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()

    def linear_fit(self) -> LinearFit:
        if not hasattr(self, "learner") or self.spec.is_network:
            raise AttributeError("There are coefficients once it has learnt, with the linear predictor.")
        return self.learner.linear_fit()

    def save(self, path: Path, content: dict[str, Any]) -> None:
        files.save(path, self.learner, content | {"previous": self.previous})

    @classmethod
    def load(cls, path: Path) -> tuple[Any, dict[str, Any]]:
        self = cls()
        self.learner, content = files.load(path)
        self.previous = content["previous"]
        return self, content
