"""The minimum of a function of one number, in plain arithmetic."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def smallest_on_line(
    function: Callable[[Float[Array, ""]], Float[Array, ""]], points: Float[Array, " n"], steps: int = 40
) -> Float[Array, ""]:
    """argmin of a continuous function between the first and the last of the rising `points`.

    The best of the points is found first; then golden sections narrow the interval between its neighbours. This is the
    global minimum if the function has no more than one between two points.
    """
    values = jax.vmap(function)(points)
    best = jnp.argmin(values)
    last = len(points) - 1
    ends = points[jnp.maximum(best - 1, 0)], points[jnp.minimum(best + 1, last)]
    shorter = (3 - np.sqrt(5)) / 2

    def narrow(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        left, right = low + shorter * (high - low), high - shorter * (high - low)
        falls = function(left) > function(right)
        return jnp.where(falls, left, low), jnp.where(falls, high, right)

    low, high = jax.lax.fori_loop(0, steps, narrow, ends)
    found = (low + high) / 2
    return jnp.where(function(found) < values[best], found, points[best])
