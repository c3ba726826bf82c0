"""A small quadratic programme in plain arithmetic."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def smallest_on_simplex(matrix: Float[Array, "n n"], steps: int = 2_000) -> Float[Array, " n"]:
    """argmin pᵀKp over p ≥ 0, Σp = 1, for a symmetric positive semi-definite K.

    Each step moves weight from the worst entry to the best one, by as much as helps most: with q = Kp, from
    j = argmax {q_j : p_j > 0} to i = argmin q, by min(p_j, (q_j − q_i)/(K_ii + K_jj − 2K_ij)). It ends where all q_j
    with p_j > 0 are equal and no other is smaller, which is what makes p a minimiser.
    """
    diagonal = jnp.diagonal(matrix)

    def step(_: Array, shares: Array) -> Array:
        slopes = matrix @ shares
        best, worst = jnp.argmin(slopes), jnp.argmax(jnp.where(shares > 0, slopes, -jnp.inf))
        gain = slopes[worst] - slopes[best]
        curvature = diagonal[best] + diagonal[worst] - 2 * matrix[best, worst]
        # Without curvature the line falls all the way: everything moves.
        wanted = jnp.where(curvature > 0, gain / jnp.where(curvature > 0, curvature, 1), jnp.inf)
        moved = jnp.where(gain > 0, jnp.minimum(shares[worst], wanted), 0)
        return shares.at[best].add(moved).at[worst].add(-moved)

    first = (jnp.arange(len(diagonal)) == jnp.argmin(diagonal)).astype(matrix.dtype)
    return jax.lax.fori_loop(0, steps, step, first)
