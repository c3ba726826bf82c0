"""What people would use instead: Bernstein online aggregation of the same experts, and eight models of river."""

from collections.abc import Callable
from typing import Any

import numpy as np


def bernstein(experts: np.ndarray, target: np.ndarray) -> np.ndarray:
    """BOA with the linearised squared loss and a rate per expert (Wintenberger 2017), row by row; experts × rows."""
    count, rows = experts.shape
    sums, squares, largest = np.zeros(count), np.zeros(count), np.zeros(count)
    out = np.full(rows, np.nan)
    for t in range(rows):
        x = experts[:, t]
        if np.isnan(x).any():
            continue
        with np.errstate(divide="ignore"):
            rate = np.minimum(1 / largest, np.sqrt(np.log(count) / squares))
        rate = np.where(np.isfinite(rate), rate, rate[np.isfinite(rate)].max() if np.isfinite(rate).any() else 1.0)
        exponents = rate * sums
        weights = rate * np.exp(exponents - exponents.max())
        out[t] = weights @ x / weights.sum()
        if np.isnan(target[t]):
            continue
        regrets = 2 * (out[t] - target[t]) * (out[t] - x)
        squares += regrets**2
        largest = np.maximum(largest, np.abs(regrets))
        with np.errstate(divide="ignore"):
            rate = np.minimum(1 / largest, np.sqrt(np.log(count) / squares))
        sums += regrets - np.where(np.isfinite(rate), rate, 0) * regrets**2
    return out


def _models(is_classification: bool) -> dict[str, Callable[[], Any]]:
    from river import ensemble, forest, linear_model, naive_bayes, neighbors, preprocessing, rules, tree

    def scaled(model: Any) -> Any:
        return preprocessing.StandardScaler() | model

    if is_classification:
        from river import multiclass

        return {
            "logistic regression": lambda: scaled(multiclass.OneVsRestClassifier(linear_model.LogisticRegression())),
            "passive aggressive": lambda: scaled(multiclass.OneVsRestClassifier(linear_model.PAClassifier())),
            "naive Bayes": naive_bayes.GaussianNB,
            "Hoeffding tree": tree.HoeffdingTreeClassifier,
            "Hoeffding adaptive tree": lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=0),
            "nearest neighbours": lambda: scaled(neighbors.KNNClassifier()),
            "adaptive random forest": lambda: forest.ARFClassifier(seed=0),
            "leveraging bagging": lambda: ensemble.LeveragingBaggingClassifier(tree.HoeffdingTreeClassifier(), seed=0),
        }
    return {
        "linear regression": lambda: scaled(linear_model.LinearRegression()),
        "Bayesian linear regression": lambda: scaled(linear_model.BayesianLinearRegression()),
        "passive aggressive": lambda: scaled(linear_model.PARegressor()),
        "Hoeffding tree": lambda: scaled(tree.HoeffdingTreeRegressor()),
        "Hoeffding adaptive tree": lambda: scaled(tree.HoeffdingAdaptiveTreeRegressor(seed=0)),
        "nearest neighbours": lambda: scaled(neighbors.KNNRegressor()),
        "adaptive random forest": lambda: scaled(forest.ARFRegressor(seed=0)),
        "model rules": lambda: scaled(rules.AMRules()),
    }


def river_errors(features: np.ndarray, target: np.ndarray, is_classification: bool) -> dict[str, float]:
    """Prequential errors: rows without a target are skipped, and so is the first one, as for SmoothFBO."""
    names = [str(i) for i in range(features.shape[1])]
    rows = [dict(zip(names, row, strict=True)) for row in np.nan_to_num(features).tolist()]
    errors = {}
    for name, make in _models(is_classification).items():
        model, total, count = make(), 0.0, 0
        for row, y in zip(rows, target.tolist(), strict=True):
            if np.isnan(y):
                continue
            y = int(y) if is_classification else y
            if count:
                guess = model.predict_one(row)
                total += float(guess != y) if is_classification else float(((guess or 0.0) - y) ** 2)
            model.learn_one(row, y)
            count += 1
        errors[name] = total / max(count - 1, 1)
    return errors
