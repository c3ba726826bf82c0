"""The learner as an estimator: `StreamRegressor` and `StreamClassifier`."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from smoothfbo.stream.base import StreamEstimator
from smoothfbo.stream.frames import is_missing
from smoothfbo.stream.learner.outcome import Outcome
from smoothfbo.stream.learner.specification import LEVELS
from smoothfbo.stream.reading.faults import LARGEST
from smoothfbo.stream.scikit import ClassifierMixin, RegressorMixin, check_classification_targets
from smoothfbo.stream.series import KeyedRows

LEAST_DOUBT = 1e-6  # a part of every probability that is the same for all classes


class StreamRegressor(RegressorMixin, StreamEstimator):
    """Regression on a drifting stream: a mixture of experts, one of them a fit whose memory SmoothFBO learns.

    Parameters
    ----------
    block
        Rows of a block: a round of SmoothFBO, and the unit of all memories. None is 16, for classes 8.
    predictor
        "linear", in closed form, or "network", with two hidden layers.
    smoothing
        Window of SmoothFBO, in blocks.
    step
        Outer step, of log-weights.
    rates
        Number of forgetting rates.
    ridge
        Penalty on the coefficients of standardised features.
    width
        Units of each hidden layer of the network.
    network_blocks
        Blocks whose rows the network keeps and is fitted to.
    network_steps
        Optimiser steps of the network in a round.
    network_rate
        Learning rate of the network.
    seed
        Seed of all that is drawn: random features, which products of many columns, the network.

    Attributes
    ----------
    learned_
        What was learnt.
    n_features_in_
        Number of features.
    feature_names_in_
        Their names, if rows came with names.
    """

    _is_classification = False

    def _encode(self, y: np.ndarray, classes: Any) -> np.ndarray:
        del classes
        try:
            known = y if y.dtype.kind in "fiub" else [math.nan if is_missing(value) else value for value in y]
            targets = np.array(known, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The target must be a number, or None where it is missing, got {y[0]!r}.") from error
        if np.isinf(targets).any():
            raise ValueError("The target must be finite, or NaN where it is missing, got an infinite one.")
        if (np.abs(targets) > LARGEST).any():
            raise ValueError(f"The target must lie within ±{LARGEST:g}, else its square is too large.")
        return targets

    def _decode(self, outcome: Outcome) -> np.ndarray:
        return outcome.predictions[0]

    def _one(self, row: KeyedRows) -> float:
        return self.learned_.predict_number(row)

    def predict_interval(self, X: Any, level: float = 0.8) -> np.ndarray:
        """Rows × 2: where the part `level` of the targets lies, by adaptive conformal prediction; 0.5, 0.8 or 0.95.

        The part holds on average over rows that are predicted and then learnt, whatever the data do; see
        `smoothfbo.stream.learner.intervals`. NaN before two rows were learnt.
        """
        if level not in LEVELS:
            raise ValueError(f"`level` must be one of {', '.join(map(str, LEVELS))}, got {level!r}.")
        self._require_started()
        bands: Any = self.learned_.predict(self._checked(X), with_bands=True).bands
        return bands[:, LEVELS.index(level)]

    def _of_classes(self, values: np.ndarray, first: float) -> Any:
        del first
        return values[0]


class StreamClassifier(ClassifierMixin, StreamEstimator):
    """Classification on a drifting stream: a vote of experts that are fitted to the classes' indicators.

    Parameters
    ----------
    block
        Rows of a block: a round of SmoothFBO, and the unit of all memories. None is 16, for classes 8.
    predictor
        "linear", in closed form, or "network", with two hidden layers.
    smoothing
        Window of SmoothFBO, in blocks.
    step
        Outer step, of log-weights.
    rates
        Number of forgetting rates.
    ridge
        Penalty on the coefficients of standardised features.
    width
        Units of each hidden layer of the network.
    network_blocks
        Blocks whose rows the network keeps and is fitted to.
    network_steps
        Optimiser steps of the network in a round.
    network_rate
        Learning rate of the network.
    seed
        Seed of all that is drawn: random features, which products of many columns, the network.

    Attributes
    ----------
    classes_
        The classes so far: sorted in the first call, later ones in order of appearance.
    learned_
        What was learnt.
    n_features_in_
        Number of features.
    feature_names_in_
        Their names, if rows came with names.
    """

    _is_classification = True

    def predict_proba(self, X: Any) -> np.ndarray:
        """Of all classes, fitted to the rows that were predicted before they were learnt; none is exactly 0 or 1."""
        self._require_target()
        return self._probabilities(self.learned_.predict(self._checked(X)))

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        if not self._can_predict(x):
            return {}
        values = self._probabilities(self.learned_.predict(self._row(x)))[0].tolist()
        return dict(zip(self.classes_.tolist(), values, strict=True))

    def _probabilities(self, outcome: Outcome) -> np.ndarray:
        shares = np.zeros((len(outcome.scores), len(self.classes_)))  # there may be room for more, or fewer
        width = min(shares.shape[1], outcome.scores.shape[1])
        shares[:, :width] = outcome.scores[:, :width]
        shares /= shares.sum(axis=1, keepdims=True)
        return (1 - LEAST_DOUBT) * shares + LEAST_DOUBT / len(self.classes_)

    def _check_targets(self, y: np.ndarray) -> None:
        _check_classes(y)
        check_classification_targets(y)

    def _encode(self, y: np.ndarray, classes: Any) -> np.ndarray:
        known = vars(self).get("classes_")
        _check_classes(*(np.asarray(group) for group in (known, classes, y) if group is not None))
        seen, first = np.unique(y if classes is None else np.concatenate([classes, y]), return_index=True)
        if known is not None:
            new = seen[np.argsort(first)]
            seen = np.concatenate([known, new[~np.isin(new, known)]])
        self.classes_ = seen
        index = {value: float(position) for position, value in enumerate(self.classes_.tolist())}
        return np.array([index[value] for value in y.tolist()])

    def _of_classes(self, values: np.ndarray, first: float) -> Any:
        return np.concatenate([first - values.sum(axis=0, keepdims=True), values])[: len(self.classes_)]

    def _decode(self, outcome: Outcome) -> np.ndarray:
        return self.classes_[np.minimum(outcome.predictions[0].astype(int), len(self.classes_) - 1)]


def _check_classes(*groups: np.ndarray) -> None:
    """Raise if a class is missing, or if some are text and others are not: NumPy would make text of all."""
    one_of_kind: dict[bool, Any] = {}
    for value in (value for group in groups for value in (group if group.dtype.kind == "O" else group[:1]).tolist()):
        if np.ndim(value) > 0 or is_missing(value):
            raise ValueError(f"Every row needs a class, which is text or a number, got {value!r}.")
        one_of_kind[isinstance(value, str)] = value
    if len(one_of_kind) == 2:
        text, number = one_of_kind[True], one_of_kind[False]
        raise ValueError(f"Classes must be all text or all numbers, got {text!r} and {number!r}.")
