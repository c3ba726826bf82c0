"""The learner seen from outside: rows go in, in any portions; predictions come out; blocks are learnt when full."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from smoothfbo.stream.learner.rounds import Rounds
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import BlockResult, LearnerState, grow
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


class _Piece(NamedTuple):
    """What came of one call of the compiled program, and how many rows it predicted."""

    result: BlockResult
    rows: int


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Second moments need float64. The work is many small steps, which the CPU does best."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.enable_x64(True))
        with contextlib.suppress(RuntimeError):  # no CPU among the platforms that are allowed
            stack.enter_context(jax.default_device(jax.devices("cpu")[0]))
        yield


def _rounds(spec: Specification) -> Rounds:
    """Learners of one specification share a compiled program, which asks only whether there is a delay."""
    return _compiled_once(dataclasses.replace(spec, delay=min(spec.delay, 1)))


@functools.lru_cache(maxsize=32)
def _compiled_once(spec: Specification) -> Rounds:
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
        self.pending = Rows(
            np.zeros((0, spec.features)), empty, empty
        )  # not yet learnt: blocks that wait, and the one that is not yet full

    @property
    def sharpness(self) -> float:
        """τ of the probabilities softmax(τ · scores); 1 before anything was learnt."""
        calibration = self.state.calibration
        if calibration is None:
            raise ValueError("Only classes have probabilities.")
        return float(np.exp(calibration.log_sharpness)) if int(self.state.memory.blocks) else 1.0

    def predict(self, rows: Rows) -> Outcome:
        """Predictions for rows that could come next. Nothing is learnt or kept."""
        begun = len(self.pending.target) % self.spec.rows
        together = _join(_cut(self.pending, len(self.pending.target) - begun, None), rows)
        size = self.spec.rows * BLOCKS_PER_CALL
        pieces = [self._call(_cut(together, at, at + size)) for at in range(0, len(together.target), size)]
        return self._outcome(pieces, begun, 0)

    def learn(self, rows: Rows) -> None:
        """`process` where nobody asks for the predictions: nothing is computed until a block is full."""
        if len(self.pending.target) % self.spec.rows + len(rows.target) < self.spec.rows:
            self.pending = _join(self.pending, rows)
        else:
            self.process(rows)

    def process(self, rows: Rows) -> Outcome:
        """Predict rows one after the other, and learn whenever a block is full.

        With a delay d, block i − d is learnt when block i is full; `pending` begins with the oldest block that waits.
        """
        together = _join(self.pending, rows)
        block, delay, total = self.spec.rows, self.spec.delay, len(together.target)
        waiting, begun = divmod(len(self.pending.target), block)
        pieces: list[_Piece] = []
        at = waiting  # blocks, counted from the oldest that waits
        while at * block < total:
            if at < delay:  # nothing can be learnt yet
                count = min(delay - at, BLOCKS_PER_CALL)
                pieces.append(self._call(_cut(together, at * block, (at + count) * block)))
            else:
                oldest = _cut(together, (at - delay) * block, None)
                count = self._regular_blocks(oldest.target)
                piece = _cut(together, at * block, (at + max(count, 1)) * block)
                full = len(piece.target) // block
                if count or not full:
                    pieces.append(self._call(piece, oldest, full))
                else:  # the next block to learn has a class that was not seen before
                    pieces.append(self._call(piece))
                    self._make_room(int(np.nanmax(oldest.target[:block])) + 1)
                    self._call(piece, oldest, 1)
                count = max(count, 1)
            at += count
        learnt = max(total // block - delay, 0)
        self.pending = _cut(together, learnt * block, None)
        return self._outcome(pieces, begun, total // block - waiting)

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
            fresh = _rounds(self.spec).init()
            # The mixture begins again: what it weighs are other numbers now.
            grown = grow(self.state._replace(aggregate=None), fresh._replace(aggregate=None))
            self.state = grown._replace(aggregate=fresh.aggregate)

    def _call(self, rows: Rows, oldest: Rows | None = None, learn: int = 0) -> "_Piece":
        """One call of the compiled program: predict `rows`, learn from the first `learn` blocks of `oldest`."""
        count = len(rows.target)
        blocks = self._blocks(rows)
        late = None
        if self.spec.delay:
            late = self._blocks(rows if oldest is None else _cut(oldest, 0, learn * self.spec.rows))
        with double_precision():
            number = [jnp.asarray(value, jnp.int32) for value in (-(-count // self.spec.rows), learn)]
            self.state, result = _rounds(self.spec).advance(self.state, blocks, late, *number)
            return _Piece(jax.tree.map(np.asarray, result), count)

    def _blocks(self, rows: Rows) -> Rows:
        """Blocks by rows, with room for as many as the compiled program takes."""
        return Rows(*(self._pad(column) for column in rows))

    def _pad(self, column: np.ndarray) -> np.ndarray:
        shape = (BLOCKS_PER_CALL * self.spec.rows, *column.shape[1:])
        padded = np.zeros(shape)
        padded[: len(column)] = column
        return padded.reshape(BLOCKS_PER_CALL, self.spec.rows, *column.shape[1:])

    def _outcome(self, pieces: list["_Piece"], skip: int, full: int) -> Outcome:
        methods = 1 + len(self.spec.reference_names)
        predictions: list[Any] = [np.zeros((methods, 0))]
        scores: list[Any] = []
        weights: list[Any] = [np.zeros((0, self.spec.rates))]
        finite: list[Any] = []
        width = self.spec.outputs + 1 if self.spec.is_classification else 1
        for result, rows in pieces:
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


def _cut(rows: Rows, start: int, stop: int | None) -> Rows:
    return Rows(*(column[start:stop] for column in rows))
