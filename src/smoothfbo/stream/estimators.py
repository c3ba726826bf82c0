"""The learner as an estimator: one row at a time (river's convention) or in batches (scikit-learn's)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.stream.learner import files
from smoothfbo.stream.learner.learner import Learner, Outcome
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.options import LearnerOptions
from smoothfbo.stream.rows import Rows

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import validate_data
except ImportError as error:
    raise ImportError(
        "StreamRegressor and StreamClassifier need scikit-learn 1.6: pip install 'smoothfbo[experiments]'."
    ) from error


LEAST_DOUBT = 1e-6  # a part of every probability that is the same for all classes


class _StreamEstimator(BaseEstimator, ABC):
    """What regression and classification share. Options are those of `LearnerOptions`, which checks them at the start.

    There is no horizon: a row is learnt when it is given, so give it when its target is known.
    """

    _is_classification: bool
    _supervised = True  # what river asks of a model that learns from targets
    classes_: Any

    def __init__(
        self,
        *,
        block: int | None = LearnerOptions.block,
        predictor: str = LearnerOptions.predictor,
        smoothing: int = LearnerOptions.smoothing,
        step: float = LearnerOptions.step,
        rates: int = LearnerOptions.rates,
        ridge: float = LearnerOptions.ridge,
        width: int = LearnerOptions.width,
        network_blocks: int = LearnerOptions.network_blocks,
        network_steps: int = LearnerOptions.network_steps,
        network_rate: float = LearnerOptions.network_rate,
        seed: int = LearnerOptions.seed,
    ):
        self.block = block
        self.predictor = predictor
        self.smoothing = smoothing
        self.step = step
        self.rates = rates
        self.ridge = ridge
        self.width = width
        self.network_blocks = network_blocks
        self.network_steps = network_steps
        self.network_rate = network_rate
        self.seed = seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    # scikit-learn's convention

    def fit(self, X: Any, y: Any) -> Any:
        """Start anew and go through the rows in their order, which is taken as the order of time."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """Go on with further rows. `classes` may name classes that come later; others are added as they appear."""
        X, y = validate_data(
            self,
            X,
            y,
            reset=not self._is_started,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            y_numeric=not self._is_classification,
        )
        if self._is_classification:
            check_classification_targets(y)
        self._learn(X, self._encode(y, classes))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predictions by what was learnt so far; nothing is kept."""
        self._require_started()
        return self._decode(self._outcome(self._checked(X)))

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
            "parameters": self.get_params(),
            "classes": self.classes_.tolist() if self._is_classification else None,
            "features": self.features_,
            "feature_names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
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
        if content["feature_names"] is not None:
            self.feature_names_in_ = np.array(content["feature_names"], dtype=object)
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
            raise NotFittedError(
                f"This {type(self).__name__} has not learnt anything yet; call fit or learn_one first."
            )

    def _checked(self, X: Any) -> np.ndarray:
        checked: Any = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return checked

    def _row(self, x: Mapping[Any, Any]) -> np.ndarray:
        """The features of a mapping in a fixed order: that of the first frame, or sorted; what is missing is NaN."""
        if vars(self).get("features_") is None:
            if hasattr(self, "feature_names_in_"):
                self.features_ = self.feature_names_in_.tolist()
            elif self._is_started:
                raise ValueError("It learnt from arrays, whose columns have no names; go on with arrays.")
            else:
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
        options = LearnerOptions(**self.get_params())
        spec = Specification(
            features=X.shape[1],
            outputs=max(len(self.classes_), 2) - 1 if self._is_classification else 1,
            is_classification=self._is_classification,
            with_references=False,
            **options.learner_options,
        )
        self.learner_ = Learner(spec)
        self.previous_: float | None = None
        self.n_features_in_ = X.shape[1]
        self.features_ = vars(self).get("features_")
        if self.features_ is not None and all(isinstance(name, str) for name in self.features_):
            self.feature_names_in_ = np.array(self.features_, dtype=object)

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


class StreamRegressor(RegressorMixin, _StreamEstimator):
    """Regression on a drifting stream: a linear fit whose memory is learnt by SmoothFBO.

    Parameters
    ----------
    block : rows after which the predictor and its memory change; None is 16, for classes 8.
    predictor : "linear" or "network".
    smoothing : window of SmoothFBO, in blocks.
    step : outer step, of log-weights.
    rates : number of forgetting rates.
    ridge : penalty on the coefficients of standardised features.
    width, network_blocks, network_steps, network_rate, seed : of the network; see `LearnerOptions`.

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


class StreamClassifier(ClassifierMixin, _StreamEstimator):
    """Classification on a drifting stream, by a linear fit to the classes' indicators whose memory is learnt.

    Parameters
    ----------
    block : rows after which the predictor and its memory change; None is 16, for classes 8.
    predictor : "linear" or "network".
    smoothing : window of SmoothFBO, in blocks.
    step : outer step, of log-weights.
    rates : number of forgetting rates.
    ridge : penalty on the coefficients of standardised features.
    width, network_blocks, network_steps, network_rate, seed : of the network; see `LearnerOptions`.

    Attributes
    ----------
    classes_ : the classes so far: sorted in the first call, later ones in order of appearance.
    learner_ : the learner.
    n_features_in_ : number of features.
    feature_names_in_ : their names, if rows came with names.
    """

    _is_classification = True

    def predict_proba(self, X: Any) -> np.ndarray:
        """Of all classes, fitted to the rows that were predicted before they were learnt; none is exactly 0 or 1."""
        self._require_started()
        return self._probabilities(self._outcome(self._checked(X)))

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        if not self._is_started:
            return {}
        values = self._probabilities(self._outcome(self._row(x)))[0].tolist()
        return dict(zip(self.classes_.tolist(), values, strict=True))

    def _probabilities(self, outcome: Outcome) -> np.ndarray:
        shares = np.zeros((len(outcome.scores), len(self.classes_)))  # there may be room for more, or fewer
        width = min(shares.shape[1], outcome.scores.shape[1])
        shares[:, :width] = outcome.scores[:, :width]
        shares /= shares.sum(axis=1, keepdims=True)
        return (1 - LEAST_DOUBT) * shares + LEAST_DOUBT / len(self.classes_)

    def _encode(self, y: np.ndarray, classes: Any) -> np.ndarray:
        seen = np.unique(y if classes is None else np.concatenate([classes, y]))
        known = vars(self).get("classes_")
        self.classes_ = seen if known is None else np.concatenate([known, np.setdiff1d(seen, known)])
        index = {value: float(position) for position, value in enumerate(self.classes_.tolist())}
        return np.array([index[value] for value in y.tolist()])

    def _decode(self, outcome: Outcome) -> np.ndarray:
        return self.classes_[np.minimum(outcome.predictions[0].astype(int), len(self.classes_) - 1)]
