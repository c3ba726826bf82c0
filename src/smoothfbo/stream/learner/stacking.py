"""Ridge regressions on the experts' predictions: they may weigh against an expert, or beyond the best one.

    y − p ≈ Σ_k c_k (x_k − p),   c = argmin Σ ρ^age (y − p − c·(x − p))² + ridge ‖c‖²

with p the mixture that is to be corrected (Breiman, Machine Learning 24, 1996). c is refitted after every row. Rows
with large errors weigh less (Huber 1964), and the correction is cut to a part of the range of what the experts say.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.algebra import transposed_product
from smoothfbo.stream.learner.recursive import Fit, fit_to_past, predict_row_by_row

MEMORIES = (100, 1000)  # rows
RIDGES = (0.1, 0.01)  # in units of the mean of the diagonal
PRIOR = 10.0  # more of it, in units of s²: as if ten rows had given c = 0
REACH = 0.3  # of the way from the mixture to the outermost experts
ROUNDING = 1e-20  # mean squares of differences up to here are rounding: the experts have not differed yet


class Stack(NamedTuple):
    """Second moments of the differences x_k − p, and their products with y − p, for every memory."""

    moments: Float[Array, "memories experts experts"]
    products: Float[Array, "memories experts"]


def empty_stack(experts: int) -> Stack:
    return Stack(jnp.zeros((len(MEMORIES), experts, experts)), jnp.zeros((len(MEMORIES), experts)))


def stacked(
    state: Stack,
    differences: Float[Array, "rows experts"],
    errors: Float[Array, "rows 1"],
    weights: Float[Array, " rows"],
    scale: Float[Array, ""],
) -> tuple[Stack, Float[Array, "memories rows"]]:
    """The state with a block more, and the corrections of its rows, one after the other.

    `weights` of rows are between 0 and 1; 0 where the target is not known. `scale` is s², the loss of the mixture.
    """
    count = differences.shape[0]
    lowest, highest = REACH * jnp.min(differences, axis=1), REACH * jnp.max(differences, axis=1)

    def correct(moments: Array, products: Array, ridge: Array) -> Array:
        matrix, has_begun = _with_ridge(moments, ridge, scale)
        now = jnp.where(has_begun, weights, 0)  # the first block has no scale to compare its rows with
        change = predict_row_by_row(matrix, products[None], differences, errors, now)[:, 0]
        return jnp.clip(jnp.where(has_begun, change, 0), lowest, highest)

    corrections = jax.vmap(correct)(state.moments, state.products, jnp.asarray(RIDGES))
    kept = differences * weights[:, None]
    retention = jnp.asarray([(1 - 1 / memory) ** count for memory in MEMORIES])
    return Stack(
        retention[:, None, None] * state.moments + transposed_product(kept, differences),
        retention[:, None] * state.products + kept.T @ errors[:, 0],
    ), corrections


def _with_ridge(moments: Array, ridge: Array, scale: Array) -> tuple[Array, Array]:
    """The matrix of a fit, and whether the experts have differed yet."""
    size = jnp.trace(moments) / moments.shape[0]
    has_begun = size > ROUNDING
    total = jnp.where(has_begun, ridge * size + PRIOR * scale, 1)
    return moments + total * jnp.eye(moments.shape[0], dtype=moments.dtype), has_begun


def held_stack(state: Stack, scale: Float[Array, ""]) -> Fit:
    """The fits at the beginning of a block, for rows that come one at a time; 0, and for ever, if it has no scale."""

    def hold(moments: Array, products: Array, ridge: Array) -> Fit:
        matrix, has_begun = _with_ridge(moments, ridge, scale)
        return jax.tree.map(lambda leaf: jnp.where(has_begun, leaf, 0), fit_to_past(matrix, products))

    return jax.vmap(hold)(state.moments, state.products, jnp.asarray(RIDGES))
