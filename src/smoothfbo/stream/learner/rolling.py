"""A reference that shares nothing with the learner: a ridge regression on the last rows, in their own units."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from smoothfbo.algebra import solve_positive
from smoothfbo.stream.learner.specification import CLIP

ROWS = 500


class RawRows(NamedTuple):
    """The rows of the last blocks as they came, slot t mod length; the target is NaN where there is none.

    Columns come first: sums over rows then go through memory in its order, in half the time.
    """

    features: Float[Array, "columns length rows"]
    target: Float[Array, "length rows"]
    blocks: Int[Array, ""]


class RollingRidge(NamedTuple):
    """((x − mean)/spread, 1) @ weightsᵀ · scale + centre, with standardised features cut to ±CLIP."""

    mean: Float[Array, " columns"]
    spread: Float[Array, " columns"]
    weights: Float[Array, "outputs coefficients"]
    centre: Float[Array, " outputs"]
    scale: Float[Array, " outputs"]


def rolling_blocks(rows: int) -> int:
    """Blocks of so many rows that make up the last 500 rows."""
    return math.ceil(ROWS / rows)


def empty_raw_rows(length: int, rows: int, columns: int) -> RawRows:
    # Sums with zeros, here and elsewhere: an array filled by a number alone has a weak type, and the compiled program,
    # whose results have none, would be compiled a second time.
    nothing = jnp.zeros((length, rows)) + jnp.nan
    return RawRows(jnp.zeros((columns, length, rows)) + jnp.nan, nothing, jnp.zeros((), jnp.int32))


def empty_rolling_ridge(columns: int, outputs: int) -> RollingRidge:
    weights = jnp.zeros((outputs, columns + 1))
    return RollingRidge(jnp.zeros(columns), jnp.ones(columns), weights, jnp.zeros(outputs), jnp.ones(outputs))


def add_raw_rows(raw: RawRows, features: Float[Array, "rows columns"], target: Float[Array, " rows"]) -> RawRows:
    slot = raw.blocks % raw.target.shape[0]
    return RawRows(raw.features.at[:, slot].set(features.T), raw.target.at[slot].set(target), raw.blocks + 1)


def last_blocks(raw: RawRows, count: int) -> tuple[Float[Array, "columns count rows"], Float[Array, "count rows"]]:
    """Features and targets of the last blocks, oldest first."""
    slots = (raw.blocks - count + jnp.arange(count, dtype=jnp.int32)) % raw.target.shape[0]
    return raw.features[:, slots], raw.target[slots]


def fit_rolling_ridge(
    features: Float[Array, "columns rows"],
    target: Float[Array, "outputs rows"],
    known: Float[Array, " rows"],
    ridge: float,
    is_scaled: bool,
) -> RollingRidge:
    """argmin mean ½‖y − h(x)‖² + ½ridge‖h‖² over the rows whose target is known, in their own standard units."""
    counts = (known > 0) & ~jnp.isnan(features)
    mean, spread = _moments(features, counts)
    inputs = _inputs(features, mean, spread)
    centre, scale = jnp.zeros(target.shape[0]), jnp.ones(target.shape[0])
    if is_scaled:
        centre, scale = _moments(target, jnp.broadcast_to(known > 0, target.shape))
    goal = (target - centre[:, None]) / scale[:, None]
    rows = jnp.maximum(jnp.sum(known), 1)
    sums = (inputs * known) @ jnp.concatenate([inputs, goal]).T / rows
    size = inputs.shape[0]
    matrix = sums[:, :size] + ridge * jnp.eye(size)
    right = sums[:, size:].T
    return RollingRidge(mean, spread, jax.vmap(lambda one: solve_positive(matrix, one))(right), centre, scale)


def predict_rolling_ridge(fit: RollingRidge, features: Float[Array, "rows columns"]) -> Float[Array, "rows outputs"]:
    return (fit.weights @ _inputs(features.T, fit.mean, fit.spread)).T * fit.scale + fit.centre


def _moments(values: Float[Array, "columns rows"], counts: Bool[Array, "columns rows"]) -> tuple[Array, Array]:
    rows = jnp.maximum(jnp.sum(counts, axis=1), 1).astype(values.dtype)
    mean = jnp.sum(jnp.where(counts, values, 0), axis=1) / rows
    variance = jnp.sum(jnp.where(counts, (values - mean[:, None]) ** 2, 0), axis=1) / rows
    noise = (16 * jnp.finfo(values.dtype).eps * mean) ** 2
    return mean, jnp.where(variance > noise, jnp.sqrt(jnp.maximum(variance, 0)), 1)


def _inputs(features: Float[Array, "columns rows"], mean: Array, spread: Array) -> Float[Array, "size rows"]:
    # Cut, because the first rows of a slow column, such as the time of the year, have hardly any spread.
    standard = jnp.clip((features - mean[:, None]) / spread[:, None], -CLIP, CLIP)
    standard = jnp.where(jnp.isnan(features), 0, standard)
    return jnp.concatenate([standard, jnp.ones((1, features.shape[1]), features.dtype)])
