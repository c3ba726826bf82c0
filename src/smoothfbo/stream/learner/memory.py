"""What is kept of the past: second moments under several forgetting rates, and of the last few blocks.

For squared losses and a predictor that is linear in z, a set of rows matters only through its second moments
G = Σ z zᵀ. Any rows R with RᵀR = G stand for it exactly, so a past of any length becomes as many rows as z has entries.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from smoothfbo.algebra import transposed_product


class Memory(NamedTuple):
    """Second moments Σ z zᵀ of z in fixed units; the entry of the constant 1 counts the rows.

    z = (features, 1, and every target with its last known value).

    - `origin`, `unit`: the fixed units, mean and spread of the first block.
    - `decayed`: one matrix per forgetting rate ρ: Σ_s ρ^(t−s) G_s.
    - `recent`: the matrices G of the last blocks, slot t mod length.
    - `windows`: sums of `recent` over the last 4, 16, … blocks.
    - `blocks`: how many blocks were added.
    """

    origin: Float[Array, " size"]
    unit: Float[Array, " size"]
    decayed: Float[Array, "rates size size"]
    recent: Float[Array, "length size size"]
    windows: Float[Array, "windows size size"]
    blocks: Int[Array, ""]


def empty_memory(size: int, rates: int, windows: tuple[int, ...]) -> Memory:
    return Memory(
        jnp.zeros(size),
        jnp.ones(size),
        jnp.zeros((rates, size, size)),
        jnp.zeros((max(windows, default=1), size, size)),
        jnp.zeros((len(windows), size, size)),
        jnp.zeros((), jnp.int32),
    )


def remember(
    memory: Memory, gram: Float[Array, "size size"], retention: Float[Array, " rates"], windows: tuple[int, ...]
) -> Memory:
    """One block more: decayed ← ρ·decayed + G, and every window gains G and loses the block that leaves it."""
    length = memory.recent.shape[0]

    def slide(total: Array, window: int) -> Array:
        slot = (memory.blocks - window) % length
        leaving = jax.lax.dynamic_index_in_dim(memory.recent, slot, keepdims=False)
        return total + gram - jnp.where(memory.blocks >= window, leaving, 0)

    sums = [slide(memory.windows[i], window) for i, window in enumerate(windows)]
    return memory._replace(
        decayed=retention[:, None, None] * memory.decayed + gram,
        recent=jax.lax.dynamic_update_index_in_dim(memory.recent, gram, memory.blocks % length, 0),
        windows=jnp.stack(sums) if sums else memory.windows,
        blocks=memory.blocks + 1,
    )


def second_moments(rows: Float[Array, "rows size"], known: Float[Array, " rows"]) -> Float[Array, "size size"]:
    """G = Σ z zᵀ over the rows whose target is known; `known` is the root of a row's weight."""
    weighted = rows * known[:, None]
    return transposed_product(weighted, weighted)


def change_units(
    gram: Float[Array, "size size"], factor: Float[Array, " size"], shift: Float[Array, " size"], constant: int
) -> Float[Array, "size size"]:
    """Mean second moments of factor·z + shift: G/n is transformed by T = diag(factor) + shift·eᵀ, e the constant.

    No rows at all give zero.
    """
    rows = gram[constant, constant]
    mean = gram / jnp.where(rows > 0, rows, 1)
    half = factor[:, None] * mean + jnp.outer(shift, mean[constant])
    return half * factor + jnp.outer(half[:, constant], shift)


def representative_rows(gram: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Rows R with RᵀR = G, for G symmetric and positive semi-definite (Cholesky, in plain arithmetic).

    A column that depends on earlier ones has no remainder; its row is zero.
    """
    size = gram.shape[0]
    indices = jnp.arange(size)

    def column(j: Array, lower: Array) -> Array:
        remainder = gram[:, j] - lower @ lower[j]
        independent = remainder[j] > 1e-14 * gram[j, j]
        entries = remainder / jnp.sqrt(jnp.where(independent, remainder[j], 1))
        return lower.at[:, j].set(jnp.where((indices >= j) & independent, entries, 0))

    return jax.lax.fori_loop(0, size, column, jnp.zeros_like(gram)).T
