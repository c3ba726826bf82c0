"""The rows of the last blocks, for predictors that need them one by one (a network)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from smoothfbo.samples import Samples


class RowMemory(NamedTuple):
    """Standardised rows of the last L blocks, slot t mod L; `known` is 0 where there is no target, or no row yet."""

    inputs: Float[Array, "length block coefficients"]
    target: Float[Array, "length block outputs"]
    known: Float[Array, "length block"]
    blocks: Int[Array, ""]


def empty_rows(length: int, block: int, coefficients: int, outputs: int) -> RowMemory:
    return RowMemory(
        jnp.zeros((length, block, coefficients)),
        jnp.zeros((length, block, outputs)),
        jnp.zeros((length, block)),
        jnp.zeros((), jnp.int32),
    )


def add_rows(
    memory: RowMemory,
    inputs: Float[Array, "block coefficients"],
    target: Float[Array, "block outputs"],
    known: Float[Array, " block"],
) -> RowMemory:
    slot = memory.blocks % memory.known.shape[0]

    def put(history: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_index_in_dim(history, new, slot, 0)

    return RowMemory(
        put(memory.inputs, inputs), put(memory.target, target), put(memory.known, known), memory.blocks + 1
    )


def row_samples(memory: RowMemory, retention: Float[Array, " rates"]) -> Samples:
    """All rows as inner samples; share_k = n·ρ_k^lag / Σ ρ_k^lag over the known rows, 0 for the others."""
    length, block = memory.known.shape
    lag = ((memory.blocks - 1 - jnp.arange(length, dtype=jnp.int32)) % length).astype(retention.dtype)
    # 0⁰ = 1: the rate 0 is the newest block alone.
    decay = jnp.where(lag[:, None] == 0, 1, retention ** lag[:, None])
    part = memory.known[:, :, None] * decay[:, None, :]
    total = jnp.sum(part, axis=(0, 1))
    count = float(length * block)
    share = count * part / jnp.where(total > 0, total, 1)
    return Samples(
        memory.inputs.reshape(length * block, -1),
        {"target": memory.target.reshape(length * block, -1), "share": share.reshape(length * block, -1)},
    )
