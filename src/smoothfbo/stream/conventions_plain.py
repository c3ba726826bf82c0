"""What estimators need to know of scikit-learn's conventions where it is not installed."""

import inspect
from typing import Any

import numpy as np


class NotFittedError(ValueError, AttributeError):
    """Raised when an estimator is asked before it has learnt anything."""


class Base:
    """Parameters by name, as scikit-learn has them."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        del deep
        return {name: getattr(self, name) for name in list(inspect.signature(type(self)).parameters)}

    def set_params(self, **parameters: Any) -> Any:
        for name, value in parameters.items():
            if name not in self.get_params():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; allowed: {self.get_params()}.")
            setattr(self, name, value)
        return self


class RegressorBase: ...


class ClassifierBase: ...


def check_rows(estimator: Any, X: Any) -> np.ndarray:
    X = np.asarray(X, np.float64)
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix, rows by columns, got shape {X.shape}.")
    if np.isinf(X).any():
        raise ValueError("X must not contain infinity.")
    if X.shape[1] != estimator.n_features_in_:
        name, expected = type(estimator).__name__, estimator.n_features_in_
        raise ValueError(f"X has {X.shape[1]} features, but {name} is expecting {expected} features as input.")
    return X


def check_training(
    estimator: Any, X: Any, y: Any, *, reset: bool, is_classification: bool
) -> tuple[np.ndarray, np.ndarray]:
    if reset:
        estimator.n_features_in_ = np.shape(X)[-1]
    X, y = check_rows(estimator, X), np.asarray(y) if is_classification else np.asarray(y, np.float64)
    if y.shape != X.shape[:1]:
        raise ValueError(f"y must have one entry per row of X, got shapes {X.shape} and {y.shape}.")
    return X, y
