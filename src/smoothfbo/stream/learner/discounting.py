"""Discounted sums over the rows of a block, one after the other, in one product."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float


def running_sums(
    before: Float[Array, " methods"],
    values: Float[Array, "methods rows"],
    known: Float[Array, " rows"],
    retention: float,
) -> Float[Array, "methods after"]:
    """S_r = Σ_{s < r} ρ^(known rows between s and r) value_s for every row r, and after the last.

    `before` is the sum at the first row. Rows that are not known, whose `known` is 0, neither add nor age.
    """
    count = jnp.concatenate([jnp.zeros(1, known.dtype), jnp.cumsum(known)])  # known rows before every row, and in all
    is_before = jnp.tril(jnp.ones((len(count), len(known)), bool), -1)
    ages = jnp.where(is_before, count[:, None] - count[None, 1:], 0)
    rate = math.log(retention)  # exponentials are compiled to vector instructions, powers are not
    parts = jnp.where(is_before, jnp.exp(rate * ages), 0)
    return before[:, None] * jnp.exp(rate * count) + (values * known) @ parts.T
