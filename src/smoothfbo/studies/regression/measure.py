"""What the lanes of the regression achieved, from their records and the known truth."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from smoothfbo import regret
from smoothfbo.harness.methods import FBO
from smoothfbo.harness.statistics import Frame, interval
from smoothfbo.harness.study import Measured, Program, Study
from smoothfbo.studies.regression.claims import judge_claims
from smoothfbo.studies.regression.config import RegressionConfig
from smoothfbo.studies.regression.lanes import Lane
from smoothfbo.studies.regression.methods import find
from smoothfbo.studies.regression.program import WEIGHTINGS, make_testbed, numbers_of, programs, testbed_of_lane
from smoothfbo.studies.regression.theory import theorem_on_this_task
from smoothfbo.testbeds.weighting import Weighting, excess, shares

# Headline figures of a lane: sums over all rounds, and means over the second half, when the start is forgotten.
TOTALS = {
    "proxy": "used_squared",
    "raw": "raw_squared",
    "regret": "regret_squared",
    "regret_1": "exact_squared",
    "regret_100": "regret_100_squared",
    "tracking": "tracking_squared",
    "error": "error_squared",
}
COMMON_WINDOW = 100  # every lane is also scored by BLR_100, whatever its own window: that can be compared
LATE_MEANS = ("excess", "excess_newest", "cosine_raw", "cosine_used", "outer_loss", "inner_error", "truth_error")
PROBED = ("bias_given_past", "noise_given_past", "bias_given_fits", "noise_given_fits")
HEADLINES = (*TOTALS, *LATE_MEANS, *PROBED, "excess_all", "scale", "variance", "curvature", "skipped")
MOST_LAGS = 100  # of lanes whose curvature is measured: a Hessian is kept for every round
SETTING = ("drift", "weights", "minibatch", "lags", "regime", "noise", "frequency", "batch", "inner_steps",
           "inner_rate", "adjoint_rate", "outer_rate")  # fmt: skip
GROUP = (*SETTING, "method", "window")


def study(config: RegressionConfig) -> Study:
    return Study("regression", config, programs(config), partial(measure, config), partial(summarise, config))


def summarise(config: RegressionConfig, tables: Mapping[str, Frame]) -> dict[str, Any]:
    """Per method and window mean and interval of every headline figure; `base` is the main comparison's setting."""
    lanes = tables["lanes"]
    groups = []
    for keys, group in lanes.groupby(list(GROUP), sort=False):
        present = [name for name in HEADLINES if name in group and group[name].notna().any()]
        groups.append({**dict(zip(GROUP, keys, strict=True)), "metrics": {n: interval(group[n]) for n in present}})
    testbed = testbed_of_lane(config, next(config.lanes()))
    truth = {"seed": config.first_seed, "weight": testbed.weight[:, 0].tolist(), "bias": float(testbed.bias[0])}
    claims = list(judge_claims(config, lanes))
    theory = list(theorem_on_this_task(config, lanes))
    return {"summary": {"truth": truth, "base": config.base, "groups": groups, "claims": claims, "theory": theory}}


def measure(config: RegressionConfig, program: Program, records: dict[str, np.ndarray]) -> Measured:
    rounds, lanes = [], []
    for index, keys in enumerate(program.lanes):
        own = {name: values[index] for name, values in records.items()}
        columns = measure_lane(config, Lane(**keys), own)
        lanes.append(keys | headlines(columns, own) | {"curvature": largest_curvature(config, Lane(**keys), own)})
        with np.errstate(over="ignore"):  # a lane that ran away is infinite in the table, too
            kept = {name: values[:: config.record_every].astype(np.float32) for name, values in columns.items()}
        rounds.append(pd.DataFrame({**keys, "round": own["round"][:: config.record_every], **kept}))
    return Measured({"metrics": _with_categories(pd.concat(rounds, ignore_index=True)), "lanes": pd.DataFrame(lanes)})


def measure_lane(config: RegressionConfig, lane: Lane, records: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One array over rounds per metric, in float64."""
    weighting, outers = WEIGHTINGS[lane.weights], jnp.asarray(records["outer"])
    now, windowed, common = (
        discrepancies(config, _truth_of(lane), len(outers), window) for window in (1, lane.window, COMMON_WINDOW)
    )
    value, gradient, share = _exact(weighting, now, outers)
    _, target, _ = _exact(weighting, windowed, outers)  # ∇F_{t,w}(λ_t): F_{t,w} has the mean of the last w matrices
    _, target_100, _ = _exact(weighting, common, outers)
    historical = _window_mean(gradient, lane.window)
    raw, smoothed, gradient, target, target_100, historical, share = map(
        _rows, (records["raw"], records["used"], gradient, target, target_100, historical, share)
    )
    squares = {
        "raw_squared": _square(raw),
        "used_squared": _square(smoothed),
        "exact_squared": _square(gradient),
        "regret_squared": _square(target),
        "regret_100_squared": _square(target_100),
        "tracking_squared": _square(historical - target),
        "error_squared": _square(smoothed - target),
    }
    return {
        **{name: np.asarray(records[name], float) for name in ("outer_loss", "inner_loss", "skipped")},
        "excess": np.asarray(value, float),
        "excess_newest": np.asarray(now[:, 0, 0], float),  # with all weight on the newest batch: K_t[0, 0]
        "scale": np.sum(np.asarray(records["outer"], float).reshape(len(outers), -1), axis=1),
        **squares,
        "proxy": np.cumsum(squares["used_squared"]),
        "regret_1": np.cumsum(squares["exact_squared"]),
        "cosine_raw": _cosine(raw, gradient),
        "cosine_used": _cosine(smoothed, gradient),
        **{
            name: np.asarray(records[name], float)
            for name in ("inner_error", "truth_error", *PROBED)
            if name in records
        },
        "shift": np.asarray(_drift(config, _truth_of(lane), len(outers)), float),
        **{f"share_{lag}": share[:, lag] for lag in range(lane.lags)},
    }


def headlines(columns: dict[str, np.ndarray], records: dict[str, np.ndarray]) -> dict[str, float]:
    """One number per metric. `variance` is that of the smoothed gradient over the second half of the rounds."""
    late = slice(len(columns["excess"]) // 2, None)
    return {
        **{name: float(np.sum(columns[column])) for name, column in TOTALS.items()},
        **{name: _mean(columns[name][late]) for name in LATE_MEANS if name in columns and name != "excess"},
        "excess": float(np.mean(columns["excess"][late])),  # not finite if λ = 0 was ever played: then the lane failed
        **{name: _mean(columns[name]) for name in PROBED if name in columns},
        "excess_all": float(np.mean(columns["excess"])),
        "scale": float(columns["scale"][-1]),
        "variance": float(_rows(records["used"])[late].var(axis=0).sum()),
        "skipped": float(columns["skipped"][-1]),
    }


def largest_curvature(config: RegressionConfig, lane: Lane, records: dict[str, np.ndarray]) -> float:
    """max_t ‖∇²F_t(λ_t)‖ along the lane's path; NaN where it is not asked for."""
    if lane.regime != "default" or find(lane.method).estimator != FBO or lane.lags > MOST_LAGS:
        return float("nan")
    outers = jnp.asarray(records["outer"])
    matrices = discrepancies(config, _truth_of(lane), len(outers), 1)
    hessians = np.asarray(_hessians(WEIGHTINGS[lane.weights], matrices, outers), float)
    square = hessians.reshape(len(outers), *(hessians.shape[1:] or (1, 1)))
    finite = square[np.isfinite(square).all(axis=(1, 2))]
    return float(np.abs(np.linalg.eigvalsh(finite)).max()) if len(finite) else float("nan")


@partial(jax.jit, static_argnums=0)
def _hessians(weighting: Weighting, matrices: Array, outers: Array) -> Array:
    return jax.vmap(jax.hessian(partial(excess, weighting), argnums=1))(matrices, outers)


def _truth_of(lane: Lane) -> Lane:
    """The lane with all that its truth does not depend on set to one value, so that lanes share it."""
    return replace(lane, method="fbo", window=1, weights="per-lag", minibatch="batch", regime="", batch=1,
                   inner_steps=1, outer_rate=0.0, inner_rate=0.0, adjoint_rate=0.0, noise=0.0)  # fmt: skip


@cache
def discrepancies(config: RegressionConfig, lane: Lane, rounds: int, window: int) -> Array:
    """(1/w) Σ_{i<w} K_{t−i} for every t, with K_s = 0 for s < 0."""
    if window > 1:
        return _window_mean(discrepancies(config, lane, rounds, 1), window)
    numbers = jax.tree.map(lambda leaf: leaf[0], numbers_of([lane]))
    return _discrepancies(config, lane.drift, lane.lags, rounds)(numbers)


_window_mean = jax.jit(regret.window_mean, static_argnums=1)


@cache
def _discrepancies(config: RegressionConfig, drift: str, lags: int, rounds: int) -> Any:
    """K_t for t = 0, …, rounds − 1 as a function of a lane's numbers, compiled once for each kind of drift."""
    shape = replace(next(config.lanes()), drift=drift, weights="per-lag", lags=lags).shape

    def compute(numbers: Any) -> Array:
        return jax.lax.map(make_testbed(config, shape, numbers).discrepancy, jnp.arange(rounds), batch_size=32)

    return jax.jit(compute)


@cache
def _drift(config: RegressionConfig, lane: Lane, rounds: int) -> Array:
    """What the drift adds to W and b in every round."""
    return jax.vmap(testbed_of_lane(config, lane).drift)(jnp.arange(rounds))


@partial(jax.jit, static_argnums=0)
def _exact(weighting: Weighting, matrices: Array, outers: Array) -> tuple[Array, Array, Array]:
    """F − σ² and ∇F at every round's λ, and the shares of the lags."""

    def one(matrix: Array, outer: Array) -> tuple[Array, Array, Array]:
        value, gradient = jax.value_and_grad(partial(excess, weighting), argnums=1)(matrix, outer)
        return value, gradient, shares(weighting, outer, len(matrix))

    return jax.vmap(one)(matrices, outers)


def _rows(values: Any) -> np.ndarray:
    """float64, with axes (round, entry)."""
    return np.asarray(values, float).reshape(len(values), -1)


def _square(values: np.ndarray) -> np.ndarray:
    return np.sum(values**2, axis=1)


def _cosine(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """NaN where one of them is zero."""
    product = np.sqrt(_square(left) * _square(right))
    return np.divide(np.sum(left * right, axis=1), product, out=np.full(len(left), np.nan), where=product > 0)


def _mean(values: np.ndarray) -> float:
    """The mean of the values that exist: probed columns have gaps, and there is no cosine with a zero vector."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def _with_categories(frame: pd.DataFrame) -> pd.DataFrame:
    """Words as categories: a column of them costs a byte a row."""
    return frame.astype(dict.fromkeys(("method", "drift", "weights", "minibatch", "regime"), "category"))
