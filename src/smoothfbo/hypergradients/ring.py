"""A ring of the rounds that replay keeps: written at a slot, read from the newest round back."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from smoothfbo.compiled import Static, run_once, split
from smoothfbo.samples import Data


def empty_ring(estimator: Any, data: Data, window: int) -> Data:
    """Zeros for `window` rounds like this one, as the estimator prepares them."""
    return _zeros(*split(estimator), data, window)


@partial(run_once, static_argnums=(0, 3))  # one program for all arrays
def _zeros(static: Static, arrays: list[Any], data: Data, window: int) -> Data:
    prepared = static.join(arrays).prepared(data)
    return jax.tree.map(lambda leaf: jnp.zeros((window, *leaf.shape), leaf.dtype), prepared)


def with_round(ring: PyTree, newest: PyTree, slot: Int[Array, ""]) -> PyTree:
    """The ring with a round at this slot. One bad value would spoil the next w rounds, so zeros are stored for it."""
    return jax.tree.map(
        lambda kept, new: jax.lax.dynamic_update_index_in_dim(kept, _finite(new), slot, 0), ring, newest
    )


def _finite(values: Array) -> Array:
    """The same array, with zeros for what is not finite."""
    return jnp.where(jnp.isfinite(values), values, jnp.zeros_like(values))


def last_rounds(ring: PyTree, newest: PyTree, window: int, slot: Int[Array, ""], rounds: Int[Array, ""]) -> PyTree:
    """The samples of the last `rounds` along one axis, again and again; `slot` has the newest one's.

    That round sees its own data as they are.
    """
    ages = jnp.arange(window, dtype=jnp.int32) % rounds

    def joined(kept: Array, newest: Array) -> Array:
        others = kept[(slot - ages[1:]) % len(kept)]
        return jnp.concatenate([newest, others.reshape(-1, *newest.shape[1:])])

    return jax.tree.map(joined, ring, newest)
