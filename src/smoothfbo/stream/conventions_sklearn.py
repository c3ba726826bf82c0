"""The estimators' bases and checks where scikit-learn is installed: its own."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

__all__ = ["Base", "ClassifierBase", "NotFittedError", "RegressorBase", "check_rows", "check_training"]


class Base(BaseEstimator):
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags


class RegressorBase(RegressorMixin): ...


class ClassifierBase(ClassifierMixin): ...


def check_rows(estimator: Any, X: Any) -> np.ndarray:
    checked: Any = validate_data(estimator, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
    return checked


def check_training(
    estimator: Any, X: Any, y: Any, *, reset: bool, is_classification: bool
) -> tuple[np.ndarray, np.ndarray]:
    X, y = validate_data(
        estimator,
        X,
        y,
        reset=reset,
        dtype=np.float64,
        ensure_all_finite="allow-nan",
        y_numeric=not is_classification,
    )
    if is_classification:
        check_classification_targets(y)
    return X, y
