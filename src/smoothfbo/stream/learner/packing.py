"""A state as one row of numbers, whatever it consists of: a compiled program is called faster with one array."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree


def packed(state: PyTree) -> Float[Array, " numbers"]:
    """All leaves one after the other; they are numbers that float64 holds exactly."""
    return jnp.concatenate([leaf.ravel().astype(jnp.float64) for leaf in jax.tree.leaves(state)])


def unpacked(template: PyTree, numbers: Float[Array, " numbers"]) -> PyTree:
    """The state that `packed` made a row of numbers; `template` has its shapes and types."""
    leaves, structure = jax.tree.flatten(template)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = [numbers[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
    typed = [part.astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, typed)
