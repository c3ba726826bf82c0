"""The rounds of a batch of learners as one compiled program: the rounds of one learner under `vmap`."""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from smoothfbo.stream.groups.packing import Packing
from smoothfbo.stream.learner.packing import packed
from smoothfbo.stream.learner.precision import double_precision
from smoothfbo.stream.learner.rounds import Rounds
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.rows import Rows

# Series of a batch; always as many, so that a series has the same bits in whatever batch it is. With more of them, what
# a step reads and writes no longer fits into the cache.
LANES = 32
BLOCKS = 4  # of each series, at most, in one call


class Batch:
    """Learners of one specification, each packed into one row of numbers, `LANES` of them at a time."""

    def __init__(self, spec: Specification):
        with double_precision():
            self.spec, self.rounds = spec, Rounds(spec)
        self.packing = Packing(self.rounds.init)
        self._call = jax.jit(self._advance, donate_argnums=0)

    def advance(
        self, states: np.ndarray, blocks: Rows, late: Rows | None, count: int, learn: int, keep: np.ndarray
    ) -> Any:
        """Of every lane, predict `count` blocks and learn `learn` of them, or of `late`; the states, and the results.

        `count` and `learn` are the same for all lanes, so nothing is computed that is not used. `keep` says for how
        many blocks the predictions are kept until the blocks are learnt.
        """
        with double_precision():
            found = self._call(states, blocks, late, np.int32(count), np.int32(learn), keep)
            return jax.tree.map(np.asarray, found)

    def _advance(
        self,
        states: Float[Array, "lanes numbers"],
        blocks: Rows,
        late: Rows | None,
        count: Int[Array, ""],
        learn: Int[Array, ""],
        keep: Int[Array, " lanes"],
    ) -> tuple[Float[Array, "lanes numbers"], PyTree]:
        def lane(state: PyTree, blocks: Rows, late: Rows | None, keep: Array) -> tuple[PyTree, PyTree]:
            state, result = self.rounds.advance(self.packing.unpacked(state), blocks, late, count, learn, keep)
            return packed(state), result

        return jax.vmap(lane)(states, blocks, late, keep)


@functools.lru_cache(maxsize=32)
def batch_of(spec: Specification) -> Batch:
    """Learners of one specification share a compiled program."""
    return Batch(spec)
