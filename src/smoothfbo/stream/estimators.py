"""The learner as an estimator: one row at a time (river's convention) or in batches (scikit-learn's).

Neither package is needed; where scikit-learn is installed, these are its estimators and follow its rules.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.stream.learner import files
from smoothfbo.stream.learner.learner import Learner, Outcome, Rows
from smoothfbo.stream.learner.specification import Specification, default_block


def _conventions() -> Any:
    try:
        from smoothfbo.stream import conventions_sklearn as conventions
    except ImportError:
        from smoothfbo.stream import conventions_plain as conventions
    return conventions


conventions: Any = _conventions()


class _StreamEstimator(conventions.Base, ABC):
    """What regression and classification share."""

    _is_classification: bool
    _supervised = True  # what river asks of a model that learns from targets
    classes_: Any

    def __init__(
        self,
        *,
        block: int | None = None,
        smoothing: int = 5,
        step: float = 0.5,
        rates: int = 10,
        ridge: float = 1e-3,
        predictor: str = "linear",
        seed: int = 0,
    ):
        self.block = block
        self.smoothing = smoothing
        self.step = step
        self.rates = rates
        self.ridge = ridge
        self.predictor = predictor
        self.seed = seed

    # scikit-learn's convention

    def fit(self, X: Any, y: Any) -> Any:
        """Start anew and go through the rows in their order, which is taken as the order of time."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """Go on with further rows. `classes` may name classes that come later; others are added as they appear."""
        X, y = conventions.check_training(
            self, X, y, reset=not self._is_started, is_classification=self._is_classification
        )
        self._learn(X, self._encode(y, classes))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predictions by what was learnt so far; nothing is kept."""
        self._require_started()
        return self._decode(self._outcome(conventions.check_rows(self, X)))

    # river's convention

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> Any:
        """Learn from one row; the predictor changes whenever a block is full."""
        if not self._is_classification and np.isinf(y):
            raise ValueError(f"The target must be finite, or NaN where it is missing, got {y!r}.")
        self._learn(self._row(x), self._encode(np.array([y]), None))
        return self

    def predict_one(self, x: Mapping[Any, Any]) -> Any:
        """The prediction for one row; 0.0, or None for a class, if nothing was learnt. New features do not count."""
        if not self._is_started:
            return None if self._is_classification else 0.0
        return self._decode(self._outcome(self._row(x)))[0].item()

    def learn_many(self, X: Any, y: Any) -> Any:
        """Learn from the rows of a data frame."""
        return self.partial_fit(X, np.asarray(y))

    def predict_many(self, X: Any) -> Any:
        """A pandas Series of predictions for the rows of a data frame."""
        import pandas as pd

        return pd.Series(self.predict(X), index=X.index)

    # the learner

    @property
    def weights(self) -> np.ndarray:
        """The learned weights of the memories of 1, 2, 4, … blocks and, last, of all of the past."""
        self._require_started()
        logits = np.asarray(self.learner_.state.learners.outer[0])
        return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()

    def save(self, path: str | Path) -> None:
        """The whole estimator in one file of plain arrays."""
        self._require_started()
        content = {
            "estimator": type(self).__name__,
            "parameters": {name: getattr(self, name) for name in _PARAMETERS},
            "classes": self.classes_.tolist() if self._is_classification else None,
            "features": self.features_,
            "previous": self.previous_,
            "columns": self.n_features_in_,
        }
        files.save(Path(path), self.learner_, content)

    @classmethod
    def load(cls, path: str | Path) -> Any:
        """An estimator as it was saved; it goes on as if it had not been interrupted."""
        learner, content = files.load(Path(path))
        if content.get("estimator") != cls.__name__:
            raise UsageError(f"{path} holds a {content.get('estimator', 'table')} learner, not a {cls.__name__}.")
        self = cls(**content["parameters"])
        self.learner_, self.features_ = learner, content["features"]
        self.previous_, self.n_features_in_ = content["previous"], content["columns"]
        if cls._is_classification:
            self.classes_ = np.array(content["classes"])
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_started

    @property
    def _is_started(self) -> bool:
        return hasattr(self, "learner_")

    def _require_started(self) -> None:
        if not self._is_started:
            raise conventions.NotFittedError(
                f"This {type(self).__name__} has not learnt anything yet; call fit or learn_one first."
            )

    def _row(self, x: Mapping[Any, Any]) -> np.ndarray:
        """The features of a mapping in a fixed order, those of the first one; what is missing is NaN."""
        if getattr(self, "features_", None) is None:
            if self._is_started:
                raise ValueError("It learnt from arrays, whose columns have no names; go on with arrays.")
            self.features_ = sorted(x, key=str)
        values = [x.get(name) for name in self.features_ or ()]
        try:
            row = np.array([[np.nan if value is None else float(value) for value in values]])
        except (TypeError, ValueError) as error:
            raise ValueError(f"All features must be numbers, got {dict(x)!r}.") from error
        if np.isinf(row).any():
            raise ValueError(f"All features must be finite, or missing, got {dict(x)!r}.")
        return row

    def _learn(self, X: np.ndarray, y: np.ndarray) -> None:
        if not self._is_started:
            self._start(X)
        if X.shape[1] != self.learner_.spec.features:
            raise ValueError(f"X has {X.shape[1]} features, but it learnt with {self.learner_.spec.features}.")
        known = np.concatenate([[np.nan if self.previous_ is None else self.previous_], y])
        self.learner_.learn(Rows(X, y, known[:-1]))
        self.previous_ = float(known[-1])

    def _start(self, X: np.ndarray) -> None:
        spec = Specification(
            features=X.shape[1],
            outputs=max(len(self.classes_), 2) - 1 if self._is_classification else 1,
            is_classification=self._is_classification,
            block=self.block or default_block(self._is_classification),
            smoothing=self.smoothing,
            step=self.step,
            rates=self.rates,
            ridge=self.ridge,
            with_references=False,
            network=self.predictor == "network",
            seed=self.seed,
        )
        self.learner_ = Learner(spec)
        self.previous_: float | None = None
        self.n_features_in_ = X.shape[1]
        self.features_ = getattr(self, "features_", None)

    def _outcome(self, X: np.ndarray) -> Outcome:
        unknown = np.full(len(X), np.nan)
        previous = np.full(len(X), np.nan if self.previous_ is None else self.previous_)
        return self.learner_.predict(Rows(X, unknown, previous))

    @abstractmethod
    def _encode(self, y: np.ndarray, classes: Any) -> np.ndarray:
        """Targets as the numbers that the learner takes."""

    @abstractmethod
    def _decode(self, outcome: Outcome) -> np.ndarray:
        """The learner's predictions as targets."""


_PARAMETERS = ("block", "smoothing", "step", "rates", "ridge", "predictor", "seed")


class StreamRegressor(conventions.RegressorBase, _StreamEstimator):
    """Regression on a drifting stream: a linear fit whose memory is learnt by SmoothFBO.

    Parameters
    ----------
    block : rows after which the predictor and its memory change; None is 16, for classes 8.
    smoothing : window of SmoothFBO, in blocks.
    step : outer step, of log-weights.
    rates : number of forgetting rates.
    ridge : penalty on the coefficients of standardised features.
    predictor : "linear" or "network".
    seed : of the network.

    Attributes
    ----------
    learner_ : the learner.
    n_features_in_ : number of features.
    feature_names_in_ : their names, if rows came with names.
    """

    _is_classification = False

    def _encode(self, y: np.ndarray, classes: Any) -> np.ndarray:
        del classes
        return np.asarray(y, np.float64)

    def _decode(self, outcome: Outcome) -> np.ndarray:
        return outcome.predictions[0]


class StreamClassifier(conventions.ClassifierBase, _StreamEstimator):
    """Classification on a drifting stream, by a linear fit to the classes' indicators whose memory is learnt.

    Parameters
    ----------
    block : rows after which the predictor and its memory change; None is 16, for classes 8.
    smoothing : window of SmoothFBO, in blocks.
    step : outer step, of log-weights.
    rates : number of forgetting rates.
    ridge : penalty on the coefficients of standardised features.
    predictor : "linear" or "network".
    seed : of the network.

    Attributes
    ----------
    classes_ : the classes so far: sorted in the first call, later ones in order of appearance.
    learner_ : the learner.
    n_features_in_ : number of features.
    feature_names_in_ : their names, if rows came with names.
    """

    _is_classification = True

    def predict_proba(self, X: Any) -> np.ndarray:
        """Scores of all classes, cut to [0, 1] and divided by their sum."""
        self._require_started()
        return self._shares(self._outcome(conventions.check_rows(self, X)))

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        if not self._is_started:
            return {}
        return dict(zip(self.classes_.tolist(), self._shares(self._outcome(self._row(x)))[0].tolist(), strict=True))

    def _shares(self, outcome: Outcome) -> np.ndarray:
        scores = np.zeros((len(outcome.scores), len(self.classes_)))
        width = min(scores.shape[1], outcome.scores.shape[1])
        scores[:, :width] = np.clip(outcome.scores[:, :width], 0, 1)
        return scores / np.maximum(scores.sum(axis=1, keepdims=True), 1e-12)

    def _encode(self, y: np.ndarray, classes: Any) -> np.ndarray:
        seen = np.unique(y if classes is None else np.concatenate([classes, y]))
        known = vars(self).get("classes_")
        self.classes_ = seen if known is None else np.concatenate([known, np.setdiff1d(seen, known)])
        index = {value: float(position) for position, value in enumerate(self.classes_.tolist())}
        return np.array([index[value] for value in y.tolist()])

    def _decode(self, outcome: Outcome) -> np.ndarray:
        return self.classes_[np.minimum(outcome.predictions[0].astype(int), len(self.classes_) - 1)]
