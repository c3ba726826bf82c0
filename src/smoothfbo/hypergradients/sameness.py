"""Whether the problem of a round is the usual one with other arrays in it."""

from types import FunctionType
from typing import Any

import jax
import numpy as np


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


def same_but_arrays(one: Any, other: Any) -> bool:
    """Whether two problems differ in their arrays at most; a function may have been made again."""
    leaves, structure = jax.tree.flatten(one)
    others, other_structure = jax.tree.flatten(other)
    return structure == other_structure and all(
        is_array(b) if is_array(a) else _same_code(a, b) for a, b in zip(leaves, others, strict=True)
    )


def _same_code(one: Any, other: Any) -> bool:
    """Whether two leaves that are not arrays are the same, functions with all that they close over."""
    if one is other:
        return True
    if is_array(one) or is_array(other):
        return False
    if not isinstance(one, FunctionType) or not isinstance(other, FunctionType):
        return type(one) is type(other) and bool(one == other)
    closed, others = ([cell.cell_contents for cell in each.__closure__ or ()] for each in (one, other))
    return one.__code__ is other.__code__ and all(map(_same_code, closed, others))
