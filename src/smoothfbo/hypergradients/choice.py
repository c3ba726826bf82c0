"""Which of several functions predicts: the one with the smallest outer loss on data that it had not seen."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from smoothfbo.batching import batched
from smoothfbo.samples import Data

MEMORY = 0.9  # share of the old mean in the running mean of outer losses


class Chosen(eqx.Module):
    """One of several functions."""

    functions: tuple[Callable[[PyTree], PyTree], ...]
    index: Int[Array, ""]

    def __call__(self, x: PyTree) -> PyTree:
        return self._pick([function(x) for function in self.functions])

    def batch(self, xs: PyTree) -> PyTree:
        return self._pick([batched(function)(xs) for function in self.functions])

    def _pick(self, values: list[PyTree]) -> PyTree:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[self.index], *values)


def outer_losses(
    problem: Any, outer: PyTree, functions: Sequence[Callable[[PyTree], PyTree]], data: Data
) -> Float[Array, " functions"]:
    """The losses of functions fitted before, on the outer samples of this round."""
    values = [batched(function)(data.outer.x) for function in functions]
    new = jnp.stack([problem.outer_mean(outer, each, data.outer) for each in values]).astype(jnp.result_type(float))
    # What is not finite counts as ten times the worst of the others: bad, and forgotten some time.
    return jnp.where(jnp.isfinite(new), new, 10 * jnp.max(jnp.where(jnp.isfinite(new), jnp.abs(new), 0)))


def running_mean(mean: Float[Array, " functions"], new: Float[Array, " functions"], is_first: Array) -> Array:
    return jnp.where(is_first, new, MEMORY * mean + (1 - MEMORY) * new)
