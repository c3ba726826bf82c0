"""What the estimators share: the learner, one row at a time (river's convention) or in batches (scikit-learn's)."""

import copy
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.stream.frames import FrameEncoder, as_frame
from smoothfbo.stream.inputs import RowsEstimator
from smoothfbo.stream.learner.outcome import Outcome
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.options import LearnerOptions
from smoothfbo.stream.scikit import NotFittedError, check_sample_weight
from smoothfbo.stream.series import AbstractSeries, KeyedRows, OneSeries


class StreamEstimator(RowsEstimator):
    """What regression and classification share. Options are those of `LearnerOptions`, which checks them at the start.

    There is no horizon: a row is learnt when it is given, so give it when its target is known.
    """

    _kind: type[Any] = OneSeries  # what is learnt; it takes the parameters that are no options of the learner
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, with those that a subclass passes to this constructor."""
        return super().get_params(deep) | self._options()

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Forget what was learnt, and learn the rows in their order, which is taken as the order of time."""
        self._forget()
        return self.partial_fit(X, y, sample_weight=sample_weight)

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """Learn further rows. `classes` may name classes that come later; others are added as they appear.

        `sample_weight` is how much each row counts in the fit and in the loss that tunes its memory. The target of a
        row with weight 0 enters nothing. Random features, products, bands and the mixture of experts count every other
        row once.
        """
        rows, y = self._checked_rows(X, y)
        self._check_targets(y)
        weight = None if sample_weight is None else self._checked_weight(sample_weight, rows.features)
        self._check(weight, "sample_weight")
        self._learn(rows, self._encode(y, classes), weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predictions by what was learnt so far; nothing is kept."""
        self._require_target()
        return self._decode(self.learned_.predict(self._checked(X)))

    # river's convention

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> Any:
        """Learn from one row, whose weight is w."""
        weight = None if w == 1 else np.array([w], np.float64)
        self._check(weight, "w")
        try:
            row = self._row(x, learns=True)
            self._learn(row, self._encode(np.array([y]), None), weight)
        except ValueError:
            if not self._is_started:  # its names are not those of all rows to come
                self._forget()
            raise
        return self

    def predict_one(self, x: Mapping[Any, Any]) -> Any:
        """The prediction for one row; 0.0, or None for a class, before a target is known. New features do not count."""
        if not self._can_predict(x):
            return None if self._is_classification else 0.0
        return self._one(self._row(x))

    def _one(self, row: KeyedRows) -> Any:
        return self._decode(self.learned_.predict(row))[0].item()

    def learn_many(self, X: Any, y: Any, w: Any = None) -> Any:
        """Learn from the rows of a data frame, which may have weights."""
        return self.partial_fit(X, np.asarray(y), sample_weight=w)

    def predict_many(self, X: Any) -> Any:
        """A pandas Series of predictions for the rows of a data frame."""
        import pandas as pd

        frame = as_frame(X)
        return pd.Series(self.predict(frame), index=frame.index)

    def clone(self, new_params: Mapping[str, Any] | None = None, include_attributes: bool = False) -> Any:
        """A copy that has learnt nothing, or all that this one has, with some parameters changed."""
        other = copy.deepcopy(self) if include_attributes else type(self)(**self.get_params())
        return other.set_params(**(new_params or {}))

    # the learner

    @property
    def weights(self) -> np.ndarray:
        """The learned weights of the memories of 1, 2, 4, … blocks and, last, of all of the past."""
        self._require_started()
        return self.learned_.weights()

    @property
    def coef_(self) -> np.ndarray:
        """The present linear fit, in the units of the features: of the target, or (classes × features) of the scores.

        A text column has an entry for each level; see `get_feature_names_out`. For classes, the scores are fitted to
        indicators, before they become probabilities.
        """
        return self._of_classes(self._learned.linear_fit().coefficients, 0.0)

    @property
    def intercept_(self) -> Any:
        """What the linear fit gives where all features are 0."""
        return self._of_classes(self._learned.linear_fit().intercepts, 1.0)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the encoded features, in the order of `coef_`; empty for levels that have not come yet."""
        del input_features
        self._require_started()
        if self.encoder_ is not None:
            return np.array(self.encoder_.feature_names, dtype=object)
        names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(self.n_features_in_)])
        return np.array(names, dtype=object)

    def save(self, path: str | Path) -> None:
        """The whole estimator in one file of plain arrays."""
        self._require_started()
        self.learned_.save(Path(path), self._described())

    @classmethod
    def load(cls, path: str | Path) -> Any:
        """An estimator as it was saved; it resumes as if it had not been interrupted."""
        learned, content = cls._kind.load(Path(path))
        self = cls._restored(path, content)
        self.learned_ = learned
        return self

    def _described(self) -> dict[str, Any]:
        """All but what was learnt, ready for JSON."""
        return {
            "estimator": type(self).__name__,
            "parameters": {k: list(v) if isinstance(v, tuple) else v for k, v in self.get_params().items()},
            "classes": self.classes_.tolist() if self._is_classification else None,
            "features": self.features_,
            "feature_names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
            "columns": self.n_features_in_,
            "encoder": None if self.encoder_ is None else self.encoder_.state(),
        }

    @classmethod
    def _restored(cls, path: str | Path, content: dict[str, Any]) -> Any:
        """The estimator of such a description, without a learner yet."""
        if content.get("estimator") != cls.__name__:
            raise UsageError(f"{path} holds a {content.get('estimator', 'table')} learner, not a {cls.__name__}.")
        self = cls(**content["parameters"])
        self.features_, self.n_features_in_ = content["features"], content["columns"]
        self.encoder_ = None if content["encoder"] is None else FrameEncoder.restored(**content["encoder"])
        if content["feature_names"] is not None:
            self.feature_names_in_ = np.array(content["feature_names"], dtype=object)
        if cls._is_classification:
            self.classes_ = np.array(content["classes"])
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_started

    @property
    def _learned(self) -> AbstractSeries:
        """What was learnt, or what it begins with."""
        if self._is_started:
            return self.learned_
        return self._kind(**{k: v for k, v in super().get_params().items() if k not in self._options()})

    def _can_predict(self, x: Mapping[Any, Any]) -> bool:
        return self._is_started and self.learned_.can_predict(self.learned_.split_row(x)[1])

    def _require_target(self) -> None:
        self._require_started()
        if not self.learned_.has_target:
            raise NotFittedError(f"This {type(self).__name__} has seen rows, but no target that counts.")

    def _require_started(self) -> None:
        if not self._is_started:
            raise NotFittedError(
                f"This {type(self).__name__} has not learnt anything yet; call fit or learn_one first."
            )

    def _checked_weight(self, sample_weight: Any, features: np.ndarray) -> np.ndarray:
        """As numbers, one for each row. scikit-learn refuses zeros alone; a later portion may count nothing."""
        if self._is_started and np.shape(sample_weight) == features.shape[:1] and not np.any(sample_weight):
            return np.zeros(len(features))
        return check_sample_weight(sample_weight, features, dtype=np.float64)

    def _check(self, weight: np.ndarray | None, name: str) -> None:
        """Raise if rows of such weights, the argument `name`, cannot be learnt, or not by the present parameters."""
        self._learned.check_weights(weight, name)
        for name, value in self._options().items() if self._is_started else ():
            if (then := getattr(self.learned_.spec, name)) != value:
                raise ValueError(
                    f"`{name}` is {value}, but it has learnt with {then}; start anew by fit, or set it back."
                )

    def _learn(self, rows: KeyedRows, y: np.ndarray, weight: np.ndarray | None = None) -> None:
        width = rows.features.shape[1]
        if not self._is_started:
            self._start(width)
        if width != self.learned_.spec.features:
            raise ValueError(f"X has {width} features, but it learnt with {self.learned_.spec.features}.")
        self.learned_.learn(rows, y, weight)

    def _start(self, width: int) -> None:
        options, encoder = LearnerOptions(**self._options()), vars(self).get("encoder_")
        spec = Specification(
            features=width,
            own=(-1,) * width if encoder is None else encoder.places,
            outputs=max(len(self.classes_), 2) - 1 if self._is_classification else 1,
            is_classification=self._is_classification,
            with_references=False,
            **options.learner_options,
        )
        learned = self._learned
        learned.start(spec)
        self.learned_ = learned
        self.encoder_ = encoder
        self.n_features_in_ = width if self.encoder_ is None else len(self.encoder_.names)
        self.features_ = vars(self).get("features_")
        if self.features_ is not None and all(isinstance(name, str) for name in self.features_):
            self.feature_names_in_ = np.array(self.features_, dtype=object)

    def _options(self) -> dict[str, Any]:
        """The parameters that are options of the learner."""
        return {name: getattr(self, name) for name in LearnerOptions.__dataclass_fields__}

    def _check_targets(self, y: np.ndarray) -> None:
        """Raise if these are no targets of this kind at all."""
        del y

    @abstractmethod
    def _encode(self, y: np.ndarray, classes: Any) -> np.ndarray:
        """Targets as the numbers that the learner takes."""

    @abstractmethod
    def _decode(self, outcome: Outcome) -> np.ndarray:
        """The learner's predictions as targets."""

    @abstractmethod
    def _of_classes(self, values: np.ndarray, first: float) -> Any:
        """Something of the fit, whose first axis is over outputs, by class. The first class has `first` − Σ others."""
