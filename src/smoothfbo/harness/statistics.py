"""Means over seeds with their 95 % intervals."""

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

Frame = Any  # a pandas.DataFrame; its stubs call most of what one selects from it a Series


def interval(values: Any) -> dict[str, Any]:
    """Mean, 95 % interval (Student's t; None with fewer than two values) and number of the finite values."""
    numbers = np.asarray(values, float)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return {"mean": None, "low": None, "high": None, "seeds": 0}
    mean = float(numbers.mean())
    if len(numbers) < 2:
        return {"mean": mean, "low": None, "high": None, "seeds": len(numbers)}
    half = float(stats.t.ppf(0.975, len(numbers) - 1) * numbers.std(ddof=1) / np.sqrt(len(numbers)))
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": len(numbers)}


def ratio_interval(numerators: Any, denominators: Any) -> dict[str, Any]:
    """Geometric mean of paired ratios, with the interval of the mean of their logarithms."""
    with np.errstate(divide="ignore", invalid="ignore"):
        result = interval(np.log(np.asarray(numerators, float) / np.asarray(denominators, float)))
    return {
        name: None if value is None else float(np.exp(value)) if name != "seeds" else value
        for name, value in result.items()
    }


def bands(frame: Frame, by: str, column: str, *, geometric: bool = False) -> Frame:
    """Mean, low and high of `column` over seeds, for every value of `by`.

    Of the logarithms, if `geometric`: the interval of what spans powers of ten then stays above zero.
    """
    if geometric:
        smallest = np.finfo(np.float32).tiny  # a gradient may be exactly zero
        logarithms = frame.assign(**{column: np.log(np.maximum(frame[column], smallest))})
        return bands(logarithms, by, column).transform(np.exp)
    groups = frame.groupby(by, observed=True)[column]
    mean, number = groups.mean(), groups.count()
    half = groups.std(ddof=1) * stats.t.ppf(0.975, np.maximum(number - 1, 1)) / np.sqrt(number)
    half = half.where(number > 1, 0.0)
    return pd.DataFrame({"mean": mean, "low": mean - half, "high": mean + half})


def interquartile_mean(values: Any, axis: int = -1) -> np.ndarray:
    """Mean of the middle half of the values (a quarter trimmed at each end)."""
    return np.asarray(stats.trim_mean(np.asarray(values, float), 0.25, axis=axis))


def bootstrap(samples: list[Any], statistic: Any, *, draws: int = 2_000, seed: int = 0) -> dict[str, Any]:
    """`statistic` of the samples with its 95 % percentile interval; each sample is resampled on its own (stratified).

    `statistic` takes one array per sample, with a leading axis over draws, and reduces the last axes.
    """
    arrays = [np.asarray(sample, float) for sample in samples]
    value = float(statistic(*(array[None] for array in arrays))[0])
    if min(map(len, arrays)) < 2:
        return {"mean": value, "low": None, "high": None, "seeds": min(map(len, arrays))}
    generator = np.random.default_rng(seed)
    resampled = [array[generator.integers(len(array), size=(draws, len(array)))] for array in arrays]
    low, high = np.percentile(statistic(*resampled), [2.5, 97.5])
    return {"mean": value, "low": float(low), "high": float(high), "seeds": min(map(len, arrays))}


def ratio_of_means(ours: Any, theirs: Any) -> dict[str, Any]:
    """mean(ours)/mean(theirs) with its 95 % interval by a paired bootstrap over seeds.

    Empty if not all are finite, or if theirs are not all ≥ 0 with some above: a ratio would say nothing then.
    """
    pairs = np.stack([np.asarray(ours, float), np.asarray(theirs, float)], axis=1)
    if not np.isfinite(pairs).all() or (pairs[:, 1] < 0).any() or not (pairs[:, 1] > 0).any():
        return {"mean": None, "low": None, "high": None, "seeds": 0}
    with np.errstate(divide="ignore", invalid="ignore"):  # draws of zeros alone
        return bootstrap([pairs], lambda draws: draws[..., 0].mean(axis=1) / draws[..., 1].mean(axis=1))


def rank_intervals(values: Any, *, draws: int = 2_000, seed: int = 0) -> list[dict[str, Any]]:
    """Rank of every column by its mean over rows (1 is the smallest), with its 95 % interval by a paired bootstrap.

    All columns are resampled with the same rows. What is not finite ranks last; equal means share the mean of their
    ranks. `mean` is the rank in the sample itself.
    """
    table = np.asarray(values, float)
    table = np.where(np.isfinite(table), table, np.inf)

    def ranks(means: np.ndarray) -> np.ndarray:
        return stats.rankdata(means, axis=-1)

    observed = ranks(table.mean(axis=0))
    if len(table) < 2:
        return [{"mean": float(rank), "low": None, "high": None, "seeds": len(table)} for rank in observed]
    rows = np.random.default_rng(seed).integers(len(table), size=(draws, len(table)))
    low, high = np.percentile(ranks(table[rows].mean(axis=1)), [2.5, 97.5], axis=0)
    return [
        {"mean": float(rank), "low": float(below), "high": float(above), "seeds": len(table)}
        for rank, below, above in zip(observed, low, high, strict=True)
    ]


def probability_of_improvement(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """P(X > Y) + ½ P(X = Y) over all pairs; axes (draw, seed)."""
    difference = ours[:, :, None] - theirs[:, None, :]
    return np.mean((difference > 0) + 0.5 * (difference == 0), axis=(1, 2))
