"""What has come since the last change: an expert that weighs it all alike, and begins again at the next change.

A change is where this expert has done worse than those with the shortest memories, whose errors B_k do not show it:

    A > 1.5 · min_k B_k,     A ← A/2 + Σ |y − x|²,     B_k ← B_k/2 + Σ |y − x_k|²     (sums over the rows of a block)

Without a change A is the smallest of them, so chance hardly ever begins it again; and if it does, other experts have
kept the past. A block in which the data change half-way spoils the new beginning; the next block then begins again.
After a long time without a change the mixture trusts the new beginning at once (`aggregation.trust`).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

RETENTION = 0.5  # of A and B, per block
WORSE = 1.5
LONG = 64  # blocks: what lasted as long is rarely ended by chance
SHORT = 3  # experts it is compared with: memories of 1, 2 and 4 blocks


class Since(NamedTuple):
    """Second moments of the rows since the last change, as in `Memory`; A and B."""

    moments: Float[Array, "size size"]
    losses: Float[Array, " compared"]


def empty_since(size: int) -> Since:
    return Since(jnp.zeros((size, size)), jnp.zeros(1 + SHORT))


def judge(
    state: Since,
    predictions: Float[Array, "compared rows outputs"],
    target: Float[Array, "rows outputs"],
    known: Float[Array, " rows"],
) -> Since:
    """The state after a block that was predicted, before it is added; this expert's predictions stand first."""
    losses = RETENTION * state.losses + jnp.sum((predictions - target) ** 2, axis=2) @ known
    has_changed = losses[0] > WORSE * jnp.min(losses[1:])
    return Since(jnp.where(has_changed, 0, state.moments), jnp.where(has_changed, 0, losses))


def has_lasted(state: Since, constant: int, rows: int) -> Bool[Array, ""]:
    """Whether the last change is long ago; `constant` is where 1 stands in the rows of moments."""
    return state.moments[constant, constant] >= LONG * rows


def has_begun_again(state: Since, constant: int) -> Bool[Array, ""]:
    """Whether the block that is learnt next is its first."""
    return state.moments[constant, constant] == 0


def is_worse(
    predictions: Float[Array, "compared rows outputs"],
    target: Float[Array, "rows outputs"],
    known: Float[Array, " rows"],
) -> Bool[Array, ""]:
    """The rule above for one block alone: A > 1.5 · min_k B_k."""
    losses = jnp.sum((predictions - target) ** 2, axis=2) @ known
    return losses[0] > WORSE * jnp.min(losses[1:])
