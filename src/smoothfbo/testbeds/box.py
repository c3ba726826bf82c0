"""A minimum in a box, from a point nearby, where one evaluation costs much."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.algebra import norm

STEPS = 40
SHORTEST = 1e-2  # step


def lower_in_box(
    objective: Callable[[Float[Array, " n"]], Float[Array, ""]],
    gradient: Callable[[Float[Array, " n"]], Float[Array, " n"]],
    project: Callable[[Float[Array, " n"]], Float[Array, " n"]],
    start: Float[Array, " n"],
) -> Float[Array, " n"]:
    """A local minimum, or what is lower than `start` after 40 steps of projected descent.

    λ ← Proj(λ − s g/‖g‖), where g is the gradient without the parts that point out of the box. A step that lowers the
    objective is made, and s grows by half; any other step is not made, and halves s.
    """

    def is_moving(carry: tuple[Array, Array, Array, Array, Array]) -> Array:
        step, outer, _, slope, length = carry
        is_inside = jnp.any(project(outer - slope) != outer)
        return is_inside & (step < STEPS) & (length > SHORTEST)

    def improve(carry: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        step, outer, value, slope, length = carry
        free = jnp.where(project(outer - slope) != outer, slope, 0)  # not against the border
        tried = project(outer - length * free / norm(free))
        found = objective(tried)
        is_lower = found < value
        outer, value = jnp.where(is_lower, tried, outer), jnp.where(is_lower, found, value)
        return step + 1, outer, value, gradient(outer), length * jnp.where(is_lower, 1.5, 0.5)

    first = jnp.zeros((), jnp.int32), start, objective(start), gradient(start), jnp.ones((), start.dtype)
    return jax.lax.while_loop(is_moving, improve, first)[1]
