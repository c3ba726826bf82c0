"""The minimum of a convex function of sines, coordinate by coordinate."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.types import Number

SWEEPS = 200  # over the coordinates


def smallest_over_angles(shift: Float[Array, " n"], slope: Float[Array, "n d"], weight: Number) -> Float[Array, " d"]:
    """argmin over λ of ½ mean (δ + M sin λ)² + κ' Σ_j (1 − cos λ_j), for δ = `shift`, M = `slope` and κ' = `weight`.

    It is convex in s = sin λ ∈ [−1, 1]^d, where the last term is κ' Σ_j (1 − √(1 − s_j²)). (Of the two angles with the
    same sine, the one with the larger cosine costs less.) The derivative in s_j grows with s_j, so bisection finds
    where it vanishes, or the end of the interval.
    """

    def bisect(sines: Array, j: Array) -> Array:
        column = slope[:, j]
        others = shift + slope @ sines - column * sines[j]

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2  # an angle
            # √(1 − s²) times the derivative in s, which has the same sign
            rest = jnp.cos(middle) * jnp.mean(column * (others + column * jnp.sin(middle)))
            rises = rest + weight * jnp.sin(middle) > 0
            return jnp.where(rises, low, middle), jnp.where(rises, middle, high)

        ends = jnp.asarray(-jnp.pi / 2, sines.dtype), jnp.asarray(jnp.pi / 2, sines.dtype)
        low, high = jax.lax.fori_loop(0, 60, halve, ends)
        return jnp.sin((low + high) / 2)

    dimension = slope.shape[1]

    def sweep(_: Array, sines: Array) -> Array:
        return jax.lax.fori_loop(0, dimension, lambda j, s: s.at[j].set(bisect(s, j)), sines)

    return jnp.arcsin(jax.lax.fori_loop(0, SWEEPS, sweep, jnp.zeros(dimension)))
