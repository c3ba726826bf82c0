"""States of many series, each as one row of numbers: gathered, advanced and put back, whatever they consist of."""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from smoothfbo.stream.learner.packing import packed, unpacked
from smoothfbo.stream.learner.precision import double_precision


class Packing:
    """How the states that `init` makes are packed; `initial` is such a state."""

    def __init__(self, init: Callable[[], PyTree]):
        with double_precision():
            self.initial = np.asarray(packed(init()))
            self._template: PyTree = jax.eval_shape(init)

    def unpacked(self, numbers: Float[Array, " numbers"]) -> PyTree:
        """The state that `packed` made a row of numbers."""
        return unpacked(self._template, numbers)

    def with_room(self, states: np.ndarray, series: int) -> np.ndarray:
        """The same states and new ones, for at least so many series; room doubles, so that it is rarely made."""
        fresh = np.zeros((max(series - len(states), len(states)), states.shape[1]))
        fresh[:, : len(self.initial)] = self.initial
        return np.concatenate([states, fresh])

    def gathered(self, states: np.ndarray, slots: np.ndarray, lanes: int) -> np.ndarray:
        """The states of these slots, whose rows may have room for more; the lanes that are left are new ones."""
        length = len(self.initial)
        chosen = np.empty((lanes, length))
        chosen[: len(slots)], chosen[len(slots) :] = states[slots, :length], self.initial
        return chosen
