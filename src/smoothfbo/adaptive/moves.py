"""Moves of λ along several directions: how far they were followed, and how long they may be."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from smoothfbo.algebra import norm, squared_norm

TRIAL = 0.1  # of the last move: how far the projection is tried to either side
CLEAR = 2 / 3  # power of the rounding of λ: at least so far, relative to λ
LEAST = 0.01  # of the first lengths: they are no shorter, whatever the first move promises
TRACE = 0.8  # of the moves of the round before, in those that are judged


def made(
    lengths: Float[Array, " directions"], directions: tuple[PyTree, ...], before: PyTree, params: PyTree
) -> list[PyTree]:
    """The directions as far as they were followed from `before`: a projection may have cut them, entry by entry."""
    move = combined(lengths, directions)

    def share(now: Array, before: Array, planned: Array) -> Array:
        moved = planned != 0
        return jnp.where(moved, jnp.clip((now - before) / jnp.where(moved, planned, 1), 0, 1), 0)

    shares = jax.tree.map(share, params, before, move)
    return [jax.tree.map(jnp.multiply, direction, shares) for direction in directions]


def through(project: Callable[[PyTree], PyTree], before: PyTree, move: PyTree, direction: PyTree) -> PyTree:
    """D direction, with D the derivative of the projection at before + move, by a difference to both sides.

    An automatic derivative would be wrong for projections that search (by bisection, say), and NaN at some points. What
    is not finite is 0: the round was undone.
    """
    end, size = optax.tree.add(before, move), norm(direction)
    rounding = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(before))
    trial = jnp.maximum(TRIAL * norm(move), rounding**CLEAR * norm(end)) / jnp.where(size > 0, size, 1)
    ahead, behind = (project(optax.tree.add(end, scaled(direction, sign * trial))) for sign in (1, -1))
    moved = optax.tree.sub(ahead, behind)
    usable = jnp.isfinite(squared_norm(moved)) & (size > 0) & (trial > 0)
    moved = scaled(moved, 1 / jnp.where(usable, 2 * trial, 1))
    return optax.tree.where(usable, moved, optax.tree.zeros_like(moved))


def traced(new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda new, old: new + TRACE * old, new, old)


def shortening(move: PyTree, longest: Float[Array, ""]) -> Float[Array, ""]:
    """The factor that makes a move no longer than that."""
    return longest / jnp.maximum(norm(move).astype(longest.dtype), longest)


def believable(gradients: tuple[PyTree, ...], move: PyTree, value: Any) -> Float[Array, ""]:
    """How much of a first move m can be believed in:  min(1, |L|/max_k |⟨g_k, m⟩|), and 0.01 at least.

    To first order m takes |⟨g_k, m⟩| from the outer loss L. Where this is more than all of it, m is too long, whatever
    the units of λ. Where L is not known, nothing is said: 1.
    """
    promised = jnp.max(jnp.stack([jnp.abs(optax.tree.vdot(gradient, move)) for gradient in gradients]))
    loss = jnp.abs(jnp.asarray(jnp.nan if value is None else value, promised.dtype))
    is_less = jnp.isfinite(loss) & (promised > loss)
    return jnp.where(is_less, jnp.maximum(LEAST, loss / jnp.where(is_less, promised, 1)), 1)


def combined(lengths: Float[Array, " candidates"], directions: tuple[PyTree, ...]) -> PyTree:
    """Σ_k ρ_k d_k."""
    parts = [scaled(direction, length) for direction, length in zip(directions, lengths, strict=True)]
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *parts)


def scaled(tree: PyTree, factor: Array) -> PyTree:
    return jax.tree.map(lambda leaf: factor.astype(leaf.dtype) * leaf, tree)
