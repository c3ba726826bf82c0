"""The rounds of a batch of learners as one compiled program: the rounds of one learner under `vmap`."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from smoothfbo.stream.learner.learner import double_precision
from smoothfbo.stream.learner.rounds import Rounds
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.rows import Rows

LANES = 64  # series of a batch; always as many, so that a series has the same bits in whatever batch it is
BLOCKS = 4  # of each series, at most, in one call


class Batch:
    """Learners of one specification, each packed into one row of numbers, `LANES` of them at a time.

    What the state of a learner consists of does not matter here: all its leaves are numbers that float64 holds exactly.
    """

    def __init__(self, spec: Specification):
        with double_precision():
            self.spec, self.rounds = spec, Rounds(spec)
            self.initial = np.asarray(packed(self.rounds.init()))
            self.template: PyTree = jax.eval_shape(self.rounds.init)
            self._call = jax.jit(self._advance, donate_argnums=0)

    def unpacked(self, numbers: Float[Array, " numbers"]) -> PyTree:
        """The state that `packed` made a row of numbers."""
        leaves, structure = jax.tree.flatten(self.template)
        ends = np.cumsum([leaf.size for leaf in leaves])
        parts = [numbers[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
        typed = [part.astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(structure, typed)

    def advance(self, states: np.ndarray, blocks: Rows, late: Rows | None, count: int, learn: int) -> Any:
        """Of every lane, predict `count` blocks and learn `learn` of them, or of `late`; the states, and the results.

        `count` and `learn` are the same for all lanes, so nothing is computed that is not used.
        """
        with double_precision():
            numbers = [jnp.asarray(value, jnp.int32) for value in (count, learn)]
            return jax.tree.map(np.asarray, self._call(states, blocks, late, *numbers))

    def _advance(
        self,
        states: Float[Array, "lanes numbers"],
        blocks: Rows,
        late: Rows | None,
        count: Int[Array, ""],
        learn: Int[Array, ""],
    ) -> tuple[Float[Array, "lanes numbers"], PyTree]:
        def lane(state: PyTree, blocks: Rows, late: Rows | None) -> tuple[PyTree, PyTree]:
            state, result = self.rounds.advance(self.unpacked(state), blocks, late, count, learn)
            return packed(state), result

        return jax.vmap(lane)(states, blocks, late)


def packed(state: PyTree) -> Float[Array, " numbers"]:
    return jnp.concatenate([leaf.ravel().astype(jnp.float64) for leaf in jax.tree.leaves(state)])


def batch_of(spec: Specification) -> Batch:
    """Learners of one specification share a compiled program, which asks only whether there is a delay."""
    return _compiled_once(dataclasses.replace(spec, delay=min(spec.delay, 1)))


@functools.lru_cache(maxsize=8)
def _compiled_once(spec: Specification) -> Batch:
    return Batch(spec)
