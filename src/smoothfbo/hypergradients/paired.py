"""Was λ better where it was? Two functions are compared on the same outer samples, which neither of them has seen."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from smoothfbo.batching import batched
from smoothfbo.problem import LossAt
from smoothfbo.samples import Samples

SURE = 3.0  # standard errors


def surely_lost(
    problem: Any,
    now: tuple[PyTree, Callable[[PyTree], PyTree]],
    before: tuple[PyTree, Callable[[PyTree], PyTree]],
    samples: Samples,
) -> Float[Array, ""]:
    """By how much the outer loss is larger now:  d̄ where d̄ > 3 s, and 0 where it may be chance.

        d_i = ℓ_out(λ_t, ĥ_t(x_i), x_i, y_i) − ℓ_out(λ_{t−1}, ĥ_{t−1}(x_i), x_i, y_i),
        s² = Σ w_i² (d_i − d̄)² / (Σ w_i)²

    λ and its function are given for both rounds, and the samples are those of round t. What the round itself brings, a
    jump or wild targets, is in both losses.
    """
    new, old = (
        LossAt(problem.outer_loss, outer).batch(batched(function)(samples.x), samples.x, samples.y)
        for outer, function in (now, before)
    )
    lost = new - old
    mean = samples.mean(lost)
    error = jnp.sqrt(jnp.sum(samples.weighted(lost - mean) ** 2)) / samples.total(mean.dtype)
    return jnp.where(mean > SURE * error, mean, 0)
