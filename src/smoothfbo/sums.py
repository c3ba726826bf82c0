"""Running sums of gradients that keep their rounding errors, and how to make them anew from a ring of gradients."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from smoothfbo.types import Number


class RunningSum(NamedTuple):
    """A running sum and the rounding errors it has made so far (compensated summation)."""

    value: PyTree
    error: PyTree


def decay_and_add(total: RunningSum, discount: Number, terms: PyTree, factor: Callable[[Array], Array]) -> RunningSum:
    """η·total + factor(η)·terms, with the rounding error of the addition kept (Knuth's two-sum)."""

    def add(value: Array, error: Array, term: Array) -> tuple[Array, Array]:
        eta = jnp.asarray(discount, value.dtype)
        old, new = eta * value, factor(eta) * term.astype(value.dtype)
        result = old + new
        virtual = result - old
        lost = (old - (result - virtual)) + (new - virtual)
        return result, eta * error + lost

    leaves, structure = jax.tree.flatten(terms)
    pairs = [
        add(*each) for each in zip(jax.tree.leaves(total.value), jax.tree.leaves(total.error), leaves, strict=True)
    ]
    return RunningSum(*(jax.tree.unflatten(structure, [pair[part] for pair in pairs]) for part in (0, 1)))


def gradient_at(history: PyTree, slots: int, slot: Array) -> PyTree:
    """What a ring of `slots` gradients holds in `slot`, which may be negative or beyond its end."""
    return jax.tree.map(lambda h: jax.lax.dynamic_index_in_dim(h, slot % slots, keepdims=False), history)


def sum_of_past(
    history: PyTree, slots: int, slot: Array, past: Array, discount: Number, like: RunningSum
) -> RunningSum:
    """Σ_{i=1}^{past} η^i ĝ_{t−i} from a ring of `slots` gradients, where `slot` is that of ĝ_t.

    A loop of `past` turns rather than a branch: where nothing changes it has none, also for lanes under `vmap`.
    """

    def add(carry: tuple[Array, RunningSum]) -> tuple[Array, RunningSum]:
        age, total = carry
        return age - 1, decay_and_add(total, discount, gradient_at(history, slots, slot - age), jnp.ones_like)

    first = (past, optax.tree.zeros_like(like))
    _, total = jax.lax.while_loop(lambda carry: carry[0] > 0, add, first)
    return jax.tree.map(lambda leaf: jnp.asarray(discount, leaf.dtype) * leaf, total)


def total_weight(discount: Number, terms: Array, dtype: Any) -> Array:
    """Σ_{i<n} η^i = (1 − η^n)/(1 − η), n for η = 1; accurate for η close to 1."""
    number = terms.astype(dtype)
    eta = jnp.asarray(discount, dtype)
    is_one = eta == 1
    rate = jnp.log1p(jnp.where(is_one, 0.5, eta) - 1)  # log η
    return jnp.where(is_one, number, jnp.expm1(number * rate) / jnp.expm1(rate))
