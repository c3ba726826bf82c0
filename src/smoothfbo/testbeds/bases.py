"""Features and directions that several testbeds are made of."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from smoothfbo.types import Number


def fourier(x: Float[Array, ""], count: int) -> Float[Array, " count"]:
    """1, √2 cos 2πx, √2 sin 2πx, √2 cos 4πx, …: orthonormal for x uniform on [0, 1]."""
    number = np.arange(count)
    angles = 2 * np.pi * ((number + 1) // 2).astype(x.dtype) * x
    waves = jnp.where(number % 2 == 1, jnp.cos(angles), jnp.sin(angles))
    return jnp.where(number == 0, jnp.ones((), x.dtype), np.sqrt(2).astype(x.dtype) * waves)


def orthonormal(key: PRNGKeyArray, count: int, dimension: int) -> Float[Array, "count dimension"]:
    """Random orthonormal vectors by Gram and Schmidt's method, in plain arithmetic and each projected twice."""
    return _gram_schmidt(jax.random.normal(key, (count, dimension)))


@jax.jit
def _gram_schmidt(draws: Float[Array, "count dimension"]) -> Float[Array, "count dimension"]:
    def add(k: Array, vectors: Array) -> Array:
        vector = draws[k]
        for _ in range(2):
            vector = vector - (vectors @ vector) @ vectors
        return vectors.at[k].set(vector / jnp.linalg.norm(vector))

    return jax.lax.fori_loop(0, draws.shape[0], add, jnp.zeros_like(draws))


def circle(vectors: Float[Array, "3 n"], radius: Number, position: Float[Array, ""]) -> Float[Array, " n"]:
    """a + r (b cos 2πs + c sin 2πs) for the vectors a, b, c and the position s."""
    centre, one, other = vectors
    angle = 2 * np.pi * position
    return centre + radius * (jnp.cos(angle) * one + jnp.sin(angle) * other)
