"""States of many series, each as one row of numbers: gathered, advanced and put back, whatever they consist of."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from smoothfbo.stream.learner.learner import double_precision


def packed(state: PyTree) -> Float[Array, " numbers"]:
    """All leaves one after the other; they are numbers that float64 holds exactly."""
    return jnp.concatenate([leaf.ravel().astype(jnp.float64) for leaf in jax.tree.leaves(state)])


class Packing:
    """How the states that `init` makes are packed; `initial` is such a state."""

    def __init__(self, init: Callable[[], PyTree]):
        with double_precision():
            self.initial = np.asarray(packed(init()))
            self._template: PyTree = jax.eval_shape(init)

    def unpacked(self, numbers: Float[Array, " numbers"]) -> PyTree:
        """The state that `packed` made a row of numbers."""
        leaves, structure = jax.tree.flatten(self._template)
        ends = np.cumsum([leaf.size for leaf in leaves])
        parts = [numbers[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
        typed = [part.astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(structure, typed)

    def with_room(self, states: np.ndarray, series: int) -> np.ndarray:
        """The same states and new ones, for at least so many series; room doubles, so that it is rarely made."""
        more = max(series - len(states), len(states))
        return np.concatenate([states, np.broadcast_to(self.initial, (more, len(self.initial)))])

    def gathered(self, states: np.ndarray, slots: np.ndarray, lanes: int) -> np.ndarray:
        """The states of these slots; the lanes that are left are new ones."""
        chosen = np.empty((lanes, len(self.initial)))
        chosen[: len(slots)], chosen[len(slots) :] = states[slots], self.initial
        return chosen
