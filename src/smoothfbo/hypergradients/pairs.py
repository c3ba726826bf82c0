"""What point-wise closed forms share: the same samples on both levels, and a small system for each."""

import jax
import numpy as np
from jaxtyping import Array, Float

from smoothfbo import checks
from smoothfbo.algebra import solve_positive
from smoothfbo.samples import Data


def require_same_inputs(data: Data, name: str, instead: str) -> None:
    """Raise if inner and outer samples differ in their inputs, where this can be seen."""
    if not all(_same_inputs(part) for part in (data, data.final) if part is not None):
        raise ValueError(
            f"{name} needs the same inputs in data.inner.x and data.outer.x (and so in data.final), row by row, with "
            f"the same weights; for different samples use {instead}."
        )


def _same_inputs(data: Data) -> bool:
    """Whether inner and outer inputs and weights agree; values count only where they can be seen."""
    inner, outer = ((samples.x, samples.weight) for samples in (data.inner, data.outer))
    if not checks.same_shapes(inner, outer):
        return False
    pairs = zip(jax.tree.leaves(inner), jax.tree.leaves(outer), strict=True)
    return not checks.is_concrete(data) or all(np.array_equal(a, b) for a, b in pairs)


def solve_small(matrix: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """A⁻¹b of one sample, for a positive definite A."""
    return vector / matrix[0] if vector.shape == (1,) else solve_positive(matrix, vector)
