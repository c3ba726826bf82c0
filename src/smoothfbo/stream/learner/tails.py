"""Long tails: values far beyond all others of their column that are right, and predictions that follow them.

In regression with a linear predictor, values count as they are, or they are cut at ten standard deviations: whichever
has been better for the rows that have larger values, by the fit of the learned memory. In the first 32 blocks they are
cut until it is clear that this is worse. A row that the fit explains much better with its values cut is learnt so, and
only after its block: a wrong value does not spoil the fits.

What one value can do to a prediction is bounded, too. Beyond the range of all targets so far, experts may go by half of
its width on either side. If predictions that went farther have been right, they may go farther.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from smoothfbo.stream.learner.specification import CLIP
from smoothfbo.stream.learner.units import FAR, HISTORY, TargetRange

LARGEST = 1000.0  # standard deviations: what larger values would do is lost by rounding
CLEARLY = 0.5  # of the other's loss: no chance
REACH = 1.0  # half ranges beyond the range
ROUNDING = 1e-9  # two ways of computing the same number differ by less


class Tails(NamedTuple):
    """Sums of squared errors, in units of the target's variance: of rows that have values beyond ten standard
    deviations, with these as they are and cut; of rows whose prediction lies beyond the reach, as it is and bounded."""

    free: Float[Array, ""]
    cut: Float[Array, ""]
    far: Float[Array, ""]
    near: Float[Array, ""]


class Edges(NamedTuple):
    """Between which predictions lie."""

    low: Float[Array, ""]
    high: Float[Array, ""]


def empty_tails() -> Tails:
    return Tails(*(jnp.zeros(()) for _ in Tails._fields))


def limit(tails: Tails, blocks: Array) -> Float[Array, ""]:
    """Where values are cut, in standard deviations."""
    is_free = (tails.free < CLEARLY * tails.cut) | ((blocks >= HISTORY) & (tails.free <= tails.cut))
    return jnp.where(is_free, LARGEST, CLIP)


def edges(tails: Tails, range: TargetRange) -> Edges:
    # The range of a few blocks says little of what may come.
    farther = jnp.maximum(1.0, HISTORY / jnp.maximum(range.blocks, 1).astype(tails.far.dtype))
    is_right = (tails.free < CLEARLY * tails.cut) & (tails.far <= tails.near)
    return edges_within(range, farther * jnp.where(is_right, FAR, REACH))


def edges_within(range: TargetRange, reach: Array | float) -> Edges:
    """Everything, as long as the target has not varied."""
    half = (range.high - range.low) / 2
    low, high = range.low - reach * half, range.high + reach * half
    return Edges(jnp.where(half > 0, low, -jnp.inf), jnp.where(half > 0, high, jnp.inf))


def bounded(
    predictions: Float[Array, "*methods rows outputs"], last: Float[Array, "rows outputs"], edges: Edges
) -> Float[Array, "*methods rows outputs"]:
    """Predictions within the edges, or as far out as the last value, which says that the target has moved."""
    return jnp.clip(predictions, jnp.minimum(edges.low, last), jnp.maximum(edges.high, last))


def is_learnt_free(
    free: Float[Array, "rows outputs"], cut: Float[Array, "rows outputs"], target: Float[Array, "rows outputs"]
) -> Bool[Array, " rows"]:
    """Which rows are learnt as they are, by predictions from their values as they are and cut, in standard units."""
    return ~jnp.any(jnp.abs(free - target) > jnp.abs(cut - target) + 1, axis=1)


def add_losses(tails: Tails, *pairs: tuple[Array, Array]) -> Tails:
    """More errors: (free, cut) and (far, near), rows × outputs in standard units. Those of rows that are the same in
    both ways, up to rounding, are left out, as are NaN."""
    sums = []
    for pair in pairs:
        gap = jnp.abs(pair[0] - pair[1]) - ROUNDING * (1 + jnp.abs(pair[0]))
        differ = jnp.any(gap > 0, axis=1, keepdims=True)
        sums += [jnp.sum(jnp.where(differ & ~jnp.isnan(errors), errors**2, 0)) for errors in pair]
    return Tails(*(before + new for before, new in zip(tails, sums, strict=True)))
