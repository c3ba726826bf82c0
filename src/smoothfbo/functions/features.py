"""Samples that carry their features φ(x), so that a round computes them once, however many functions share them."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from smoothfbo.batching import batched


class Featured(NamedTuple):
    """Inputs beside their features φ(x), which are then not computed again."""

    x: PyTree
    features: Float[Array, "*samples p"]


class LossOfInput(eqx.Module):
    """A loss that sees the input, and not the features beside it. Its last two arguments are x and y; `in_axes` says
    which of its arguments have a row for each sample, as in `batched`."""

    loss: Callable[..., Float[Array, ""]]
    in_axes: int | tuple[int | None, ...] = eqx.field(static=True, default=0)

    def __call__(self, *arguments: PyTree) -> Float[Array, ""]:
        *before, x, y = arguments
        return self.loss(*before, x.x, y)

    def batch(self, *arguments: PyTree) -> Float[Array, " samples"]:
        *before, x, y = arguments
        return batched(self.loss, in_axes=self.in_axes)(*before, x.x, y)


def identical(one: PyTree, other: PyTree) -> bool:
    """Whether features, ridges and the like are the same objects: they are code, and arrays in them may be traced."""
    leaves, structure = jax.tree.flatten(one)
    others, other_structure = jax.tree.flatten(other)
    return structure == other_structure and all(a is b for a, b in zip(leaves, others, strict=True))
