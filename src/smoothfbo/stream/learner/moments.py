"""Running means and spreads, and the affine maps between units: standardisation that never sees the future."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Moments(NamedTuple):
    """Number of rows, mean and sum of squared deviations of every column over all blocks so far."""

    rows: Float[Array, " columns"]
    mean: Float[Array, " columns"]
    scatter: Float[Array, " columns"]

    @property
    def spread(self) -> Float[Array, " columns"]:
        """Standard deviation; 1 for a column that has not varied, so that nothing is divided by zero."""
        variance = self.scatter / jnp.maximum(self.rows, 1)
        # A constant column leaves a scatter of rounding errors: of the size of its mean times the precision.
        noise = (16 * jnp.finfo(variance.dtype).eps * self.mean) ** 2
        return jnp.where(variance > noise, jnp.sqrt(jnp.maximum(variance, 0)), 1)


def empty_moments(columns: int) -> Moments:
    return Moments(jnp.zeros(columns), jnp.zeros(columns), jnp.zeros(columns))


def extend(moments: Moments, values: Float[Array, "rows columns"], valid: Bool[Array, "rows columns"]) -> Moments:
    """Add the valid entries of a block: with δ = mean_block − mean,

    mean ← mean + δ n_block/n,   scatter ← scatter + scatter_block + δ² n_old n_block / n   (Chan, Golub, LeVeque).
    """
    here = jnp.sum(valid, axis=0).astype(values.dtype)
    some = jnp.maximum(here, 1)
    mean = jnp.sum(jnp.where(valid, values, 0), axis=0) / some
    scatter = jnp.sum(jnp.where(valid, (values - mean) ** 2, 0), axis=0)
    total = moments.rows + here
    share = here / jnp.maximum(total, 1)
    shift = mean - moments.mean
    return Moments(
        total,
        moments.mean + jnp.where(here > 0, shift * share, 0),
        moments.scatter + jnp.where(here > 0, scatter + shift**2 * moments.rows * share, 0),
    )


def standardise(
    values: Float[Array, "rows columns"], moments: Moments, limit: Array | float
) -> Float[Array, "rows columns"]:
    """(x − mean)/spread, cut to ±limit; what is missing becomes 0, the mean of the past."""
    scaled = (values - moments.mean) / moments.spread
    return jnp.where(jnp.isnan(values), 0, jnp.clip(scaled, -limit, limit))
