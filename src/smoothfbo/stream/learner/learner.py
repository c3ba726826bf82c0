"""The learner seen from outside: rows go in, in any portions; predictions come out; blocks are learnt when full."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from smoothfbo.stream.learner.rounds import BlockResult, LearnerState, Rounds, grow
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.rows import Rows

BLOCKS_PER_CALL = 64  # of the compiled program


class Outcome(NamedTuple):
    """What came of rows, and of the blocks that became full.

    - `predictions`: methods × rows; SmoothFBO, then the references.
    - `scores`: rows × classes, of SmoothFBO.
    - `weights`: blocks × rates, the w_k that were used for a block.
    - `finite`: per block, whether the round was finite.
    """

    predictions: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    finite: np.ndarray


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Second moments need float64. The work is many small steps, which the CPU does best."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.enable_x64(True))
        with contextlib.suppress(RuntimeError):  # no CPU among the platforms that are allowed
            stack.enter_context(jax.default_device(jax.devices("cpu")[0]))
        yield


@functools.lru_cache(maxsize=32)
def _rounds(spec: Specification) -> Rounds:
    """Learners of one specification share a compiled program."""
    return Rounds(spec)


class Learner:
    """Predicts every row before its target is used, and learns block by block.

    Rows may arrive one at a time or millions at once: predictions are the same bits. A row is predicted by the
    predictor that was fitted to the blocks before its own.
    """

    def __init__(self, spec: Specification):
        self.spec = spec
        with double_precision():
            self.state: LearnerState = _rounds(spec).init()
        empty = np.zeros(0)
        self.pending = Rows(np.zeros((0, spec.features)), empty, empty)  # the block that is not yet full

    def predict(self, rows: Rows) -> Outcome:
        """Predictions for rows that could come next. Nothing is learnt or kept."""
        together, skip = _join(self.pending, rows), len(self.pending.target)
        size = self.spec.rows * BLOCKS_PER_CALL
        pieces = [self._call(_cut(together, at, at + size), 0) for at in range(0, len(together.target), size)]
        return self._outcome(pieces, skip, 0)

    def learn(self, rows: Rows) -> None:
        """`process` where nobody asks for the predictions: nothing is computed until a block is full."""
        if len(self.pending.target) + len(rows.target) < self.spec.rows:
            self.pending = _join(self.pending, rows)
        else:
            self.process(rows)

    def process(self, rows: Rows) -> Outcome:
        """Predict rows one after the other, and learn whenever a block is full."""
        together, skip = _join(self.pending, rows), len(self.pending.target)
        block, total = self.spec.rows, len(together.target)
        pieces, at = [], 0
        while at < total:
            piece = _cut(together, at, at + block * self._regular_blocks(together.target[at:]))
            if len(piece.target):
                pieces.append(self._call(piece, len(piece.target) // block))
            else:  # a class that was not seen before, in the next block
                piece = _cut(together, at, at + block)
                pieces.append(self._call(piece, 0))
                if len(piece.target) == block:
                    self._make_room(int(np.nanmax(piece.target)) + 1)
                    self._call(piece, 1)
            at += len(piece.target)
        self.pending = _cut(together, total // block * block, total)
        return self._outcome(pieces, skip, total // block)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "state": jax.tree.map(np.asarray, self.state)}

    def __setstate__(self, content: dict[str, Any]) -> None:
        vars(self).update(content)
        with double_precision():  # else float64 would be narrowed on the way back
            self.state = jax.tree.map(jnp.array, self.state)

    def _regular_blocks(self, target: np.ndarray) -> int:
        """How many of the next blocks, at most one call's, hold no class that there is no room for."""
        target = target[: self.spec.rows * BLOCKS_PER_CALL]
        if not self.spec.is_classification:
            return BLOCKS_PER_CALL
        new = np.flatnonzero(target > self.spec.outputs)
        return int(new[0]) // self.spec.rows if len(new) else BLOCKS_PER_CALL

    def _make_room(self, classes: int) -> None:
        """Twice as many outputs until all classes have one; what was learnt stays."""
        outputs = self.spec.outputs
        while outputs < classes - 1:
            outputs = 2 * outputs + 1
        self.spec = dataclasses.replace(self.spec, outputs=outputs)
        with double_precision():
            self.state = grow(self.state, _rounds(self.spec).init())

    def _call(self, rows: Rows, learn: int) -> tuple[BlockResult, int, int]:
        """One call of the compiled program: the result, the number of rows and the number of blocks learnt."""
        block, count = self.spec.rows, len(rows.target)
        padded: list[Any] = [self._pad(column) for column in rows]
        blocks = Rows(*padded)
        with double_precision():
            number = [jnp.asarray(value, jnp.int32) for value in (-(-count // block), learn)]
            self.state, result = _rounds(self.spec).advance(self.state, blocks, *number)
            return jax.tree.map(np.asarray, result), count, learn

    def _pad(self, column: np.ndarray) -> np.ndarray:
        shape = (BLOCKS_PER_CALL * self.spec.rows, *column.shape[1:])
        padded = np.zeros(shape)
        padded[: len(column)] = column
        return padded.reshape(BLOCKS_PER_CALL, self.spec.rows, *column.shape[1:])

    def _outcome(self, pieces: list[tuple[BlockResult, int, int]], skip: int, full: int) -> Outcome:
        methods = 1 + len(self.spec.reference_names)
        predictions: list[Any] = [np.zeros((methods, 0))]
        scores: list[Any] = []
        weights: list[Any] = [np.zeros((0, self.spec.rates))]
        finite: list[Any] = []
        width = self.spec.outputs + 1 if self.spec.is_classification else 1
        for result, rows, _ in pieces:
            predictions.append(result.predictions.swapaxes(0, 1).reshape(methods, -1)[:, :rows])
            part = result.scores.reshape(-1, result.scores.shape[-1])[:rows]
            scores.append(np.pad(part, ((0, 0), (0, width - part.shape[1]))))
            blocks = rows // self.spec.rows
            weights.append(result.weights[:blocks])
            finite.append(result.finite[:blocks])
        return Outcome(
            np.concatenate(predictions, axis=1)[:, skip:],
            np.concatenate([np.zeros((0, width)), *scores])[skip:],
            np.concatenate(weights)[:full],
            np.concatenate([np.zeros(0, bool), *finite])[:full],
        )


def _join(one: Rows, other: Rows) -> Rows:
    return Rows(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))


def _cut(rows: Rows, start: int, stop: int) -> Rows:
    return Rows(*(column[start:stop] for column in rows))
