"""The learner seen from outside: rows go in, in any portions; predictions come out; blocks are learnt when full."""

import functools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from smoothfbo.stream.learner.coefficients import LinearFit, linear_fit
from smoothfbo.stream.learner.intervals import EDGES, Intervals, add_rows, empty_intervals, nested_bands
from smoothfbo.stream.learner.outcome import Outcome, Piece, Processed, outcome_of
from smoothfbo.stream.learner.precision import double_precision
from smoothfbo.stream.learner.rounds import Rounds
from smoothfbo.stream.learner.single import SingleRows, applies_to
from smoothfbo.stream.learner.single_start import Beginning
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import LearnerState, with_more_outputs
from smoothfbo.stream.rows import Rows, cut, join, padded

BLOCKS_PER_CALL = 64  # of the compiled program
ROWS_PER_CALL = 1024  # of the program that makes bands
_add_rows = jax.jit(add_rows)


@functools.lru_cache(maxsize=32)
def _rounds(spec: Specification) -> Rounds:
    """Learners of one specification share a compiled program."""
    return Rounds(spec)


@functools.lru_cache(maxsize=32)
def _beginning(spec: Specification) -> Beginning:
    with double_precision():
        return Beginning(_rounds(spec))


class Learner:
    """Predicts every row before its target is used, and learns block by block.

    Rows may arrive one at a time or millions at once: predictions are the same bits. A row is predicted by the
    predictor that was fitted to the blocks before its own.
    """

    def __init__(self, spec: Specification):
        self.spec = spec
        with double_precision():
            self.state: LearnerState = _rounds(spec).init()
            self._intervals: Intervals | None = None if spec.is_classification else empty_intervals(spec.horizon)
        self._unbanded: list[tuple[np.ndarray, np.ndarray]] = []  # predictions and targets they have not seen yet
        empty = np.zeros(0)
        self.pending = Rows(
            np.zeros((0, spec.features)), empty, empty
        )  # not yet learnt: blocks that wait, and the one that is not yet full
        self.silent = 0  # the last rows of `pending` for which nobody has asked a prediction
        self.learnt = 0  # blocks
        self._fit: tuple[LearnerState, LinearFit] | None = None  # the state it was read from, and the fit
        self.weight: np.ndarray | None = None  # of the rows of `pending`, once a row had one; only without a delay
        self._single: SingleRows | None = None  # the block that has begun, once a single row of it was predicted

    @property
    def intervals(self) -> Intervals | None:
        """What bands are made of, after all rows that were learnt; None for classes."""
        if self._unbanded:
            numbers, targets = (np.concatenate(parts) for parts in zip(*self._unbanded, strict=True))
            self._unbanded = []
            _, self._intervals = self._edges([numbers], targets)
        return self._intervals

    @intervals.setter
    def intervals(self, intervals: Intervals | None) -> None:
        self._intervals = intervals

    def predict(self, rows: Rows, with_bands: bool = True) -> Outcome:
        """Predictions for rows each of which could come next. Nothing is learnt or kept."""
        block = self.spec.rows
        begun = len(self.pending.target) % block
        before = cut(self.pending, len(self.pending.target) - begun, None)
        # Every block begins with the rows that wait, from which its other rows are predicted.
        room, count = block - begun, len(rows.target)
        index = np.arange(count)
        index = np.concatenate([np.arange(begun - self.silent, begun), index // room * block + begun + index % room])
        parts = [join(before, cut(rows, at, at + room)) for at in range(0, max(count, 1), room)]
        together = Rows(
            *(np.concatenate([padded(part, block) for part in column]) for column in zip(*parts, strict=True))
        )
        weight = None
        if self.weight is not None:
            waiting = self.weight[len(self.weight) - begun :]
            weight = np.tile(np.concatenate([waiting, np.ones(room)]), len(parts))
        size = block * BLOCKS_PER_CALL
        pieces = [
            self._call(cut(together, at, at + size), weight=_part(weight, at))
            for at in range(0, len(together.target), size)
        ]
        outcome = outcome_of(self.spec, pieces, 0, 0)
        outcome = outcome._replace(predictions=outcome.predictions[:, index], scores=outcome.scores[index])
        targets = join(before, rows).target[begun - self.silent :]
        edges, _ = self._edges([outcome.predictions[0]], targets) if with_bands else (None, None)
        return self._asked(outcome, edges, self.silent)

    def predict_number(self, features: np.ndarray, previous: float) -> float:
        """`predict` for one row of a regression; the same number up to rounding, in a small part of the time."""
        found = None
        if applies_to(self.spec):
            self._single = self._single or self._begin_singly()
            found = self._single.predict(self.pending, self.weight, features, previous)
        if found is None:
            row = Rows(features[None], np.full(1, np.nan), np.array([previous]))
            found = float(self.predict(row, with_bands=False).predictions[0, 0])
        return found

    def _begin_singly(self) -> SingleRows:
        with double_precision():
            return SingleRows(_beginning(self.spec), self.state)

    def linear_fit(self) -> LinearFit:
        """The present fit of the linear predictor, in NumPy; read again when it has changed."""
        if self._fit is None or self._fit[0] is not self.state:
            self._fit = self.state, linear_fit(self.spec, self.state)
        return self._fit[1]

    def learn(self, rows: Rows, weight: np.ndarray | None = None) -> None:
        """`process` where nobody asks for the predictions: nothing is computed until a block is full."""
        rows = _counting(rows, weight)
        if len(self.pending.target) % self.spec.rows + len(rows.target) < self.spec.rows:
            self.weight = self._weights(rows, weight)
            self.pending = join(self.pending, rows)
            if self.spec.is_classification and not self.spec.delay:
                self._make_room(int(np.nanmax(rows.target, initial=0)) + 1)
            if self._single is not None and self._single.is_asked:  # at once: it is a prediction that is waited for
                self._single.learn(self.pending, self.weight)
            self.silent += len(rows.target)
        else:
            done = self._process(rows, weight)
            if self._intervals is not None:
                # Bands that nobody asks for wait: one call of their program is cheaper than one for each block.
                self._unbanded.append((np.concatenate(list(done.numbers)), done.targets))
                if sum(len(targets) for _, targets in self._unbanded) >= ROWS_PER_CALL:
                    _ = self.intervals

    def process(self, rows: Rows, weight: np.ndarray | None = None) -> Outcome:
        """Predict rows one after the other, and learn whenever a block is full.

        `weight` says how much each row counts in the fit and in the loss that tunes the memory; 1 if there is none.
        With a delay d, block i − d is learnt when block i is full; `pending` begins with the oldest block that waits.
        """
        silent, done = self.silent, self._process(_counting(rows, weight), weight)
        # Bands of the first calls are made while later ones still run.
        edges, self.intervals = self._edges(done.numbers, done.targets)
        return self._asked(outcome_of(self.spec, done.pieces, done.skip, done.full), edges, silent)

    def _process(self, rows: Rows, weight: np.ndarray | None) -> Processed:
        weights = self._weights(rows, weight)
        together = join(self.pending, rows)
        block, delay, total = self.spec.rows, self.spec.delay, len(together.target)
        waiting, begun = divmod(len(self.pending.target), block)
        pieces: list[Piece] = []
        at = waiting  # blocks, counted from the oldest that waits
        while at * block < total:
            if at < delay:  # nothing can be learnt yet
                count = min(delay - at, BLOCKS_PER_CALL)
                piece = cut(together, at * block, (at + count) * block)
                pieces.append(self._call(piece, keep=len(piece.target) // block))
            else:
                oldest = cut(together, (at - delay) * block, None)
                count = self._regular_blocks(oldest.target)
                piece = cut(together, at * block, (at + max(count, 1)) * block)
                full = len(piece.target) // block
                weight = _part(weights, at * block)
                # Does the next block to learn have a class that was not seen before?
                if count or (delay and not full):
                    pieces.append(self._call(piece, oldest, full, full, weight))
                else:
                    predicted = self._call_with_new_classes(piece, oldest, weight)
                    pieces.append(predicted.until(block, self._call(piece, oldest, full, full, weight)))
                count = max(count, 1)
            at += count
        learnt = max(total // block - delay, 0)
        self.learnt += learnt
        skip = begun - self.silent
        done = Processed(pieces, skip, total // block - waiting, together.target[waiting * block + skip :])
        self.pending, self.silent = cut(together, learnt * block, None), 0
        self.weight = _part(weights, learnt * block)
        self._single = self._begin_singly() if self._single is not None and self._single.is_asked else None
        return done

    def __getstate__(self) -> dict[str, Any]:
        arrays = jax.tree.map(np.asarray, {"state": self.state, "_intervals": self.intervals})
        return {**vars(self), **arrays, "_fit": None, "_single": None}

    def __setstate__(self, content: dict[str, Any]) -> None:
        vars(self).update(content)
        with double_precision():  # else float64 would be narrowed on the way back
            self.state, self._intervals = jax.device_put((self.state, self._intervals))

    def _edges(self, parts: Iterable[np.ndarray], targets: np.ndarray) -> tuple[list[Any], Intervals | None]:
        """The edges of all bands, row after row, for predictions that come in parts; and what the next row needs."""
        intervals, edges, done = self.intervals, [], 0
        for part in parts if intervals is not None else ():
            for at in range(0, len(part), ROWS_PER_CALL):
                here = part[at : at + ROWS_PER_CALL]
                both = [padded(values, ROWS_PER_CALL) for values in (here, targets[done : done + len(here)])]
                with double_precision():
                    intervals, all = _add_rows(intervals, *both, np.int32(len(here)))
                edges.append((all, len(here)))
                done += len(here)
        return [np.asarray(all)[:count] for all, count in edges], intervals

    def _asked(self, outcome: Outcome, edges: list[np.ndarray] | None, silent: int) -> Outcome:
        """The rows that were asked for, with their bands: the first `silent` rows were not."""
        bands = None
        if self.intervals is not None and edges is not None:
            bands = nested_bands(np.concatenate([np.zeros((0, len(EDGES))), *edges])[silent:])
        return outcome._replace(
            predictions=outcome.predictions[:, silent:], scores=outcome.scores[silent:], bands=bands
        )

    def _regular_blocks(self, target: np.ndarray) -> int:
        """How many of the next blocks, at most one call's, hold no class that there is no room for."""
        target = target[: self.spec.rows * BLOCKS_PER_CALL]
        if not self.spec.is_classification:
            return BLOCKS_PER_CALL
        new = np.flatnonzero(target > self.spec.outputs)
        return int(new[0]) // self.spec.rows if len(new) else BLOCKS_PER_CALL

    def _make_room(self, classes: int) -> None:
        """Outputs for so many classes; what was learnt stays."""
        spec = self.spec.with_classes(classes)
        if spec is not self.spec:
            self.spec = spec
            with double_precision():
                self.state = with_more_outputs(self.state, _rounds(spec).init())

    def _weights(self, rows: Rows, weight: np.ndarray | None) -> np.ndarray | None:
        """The weights of the rows that wait and of these; None as long as no row had one."""
        if weight is None and self.weight is None:
            return None
        if self.spec.delay:
            raise ValueError("Rows whose targets are known late have no weights.")
        before = np.ones(len(self.pending.target)) if self.weight is None else self.weight
        return np.concatenate([before, np.ones(len(rows.target)) if weight is None else weight])

    def _call(
        self,
        rows: Rows,
        oldest: Rows | None = None,
        learn: int = 0,
        keep: int = 0,
        weight: np.ndarray | None = None,
    ) -> Piece:
        """One call of the compiled program: predict `rows`, learn from the first `learn` blocks of `oldest`.

        With a delay, predictions of the first `keep` blocks are kept until they are learnt. `weight` is that of the
        rows, and may go on.
        """
        count = len(rows.target)
        blocks = self._blocks(rows)
        late = None
        if self.spec.delay:
            late = self._blocks(rows if oldest is None else cut(oldest, 0, learn * self.spec.rows))
        with double_precision():
            number = np.int32(-(-count // self.spec.rows)), np.int32(learn), np.int32(keep)
            weights = None if weight is None else self._pad(weight[:count])
            self.state, result = _rounds(self.spec).advance(self.state, blocks, late, *number, weights)
            return Piece(result, count)

    def _call_with_new_classes(self, rows: Rows, oldest: Rows, weight: np.ndarray | None) -> Piece:
        """Predict the rows of a block: those up to a class that has no room without it, the others with room for it.

        With a delay all of them without it: then the classes are those of the first block of `oldest`.
        """
        piece = self._call(rows, weight=weight)
        if self.spec.delay:
            self._make_room(int(np.nanmax(oldest.target[: self.spec.rows])) + 1)
            return piece
        while len(new := np.flatnonzero(rows.target > self.spec.outputs)):
            self._make_room(int(rows.target[new[0]]) + 1)
            piece = piece.until(int(new[0]) + 1, self._call(rows, weight=weight))
        return piece

    def _blocks(self, rows: Rows) -> Rows:
        """Blocks by rows, with room for as many as the compiled program takes."""
        return Rows(*(self._pad(column) for column in rows))

    def _pad(self, column: np.ndarray) -> np.ndarray:
        rows = padded(column, BLOCKS_PER_CALL * self.spec.rows)
        return rows.reshape(BLOCKS_PER_CALL, self.spec.rows, *column.shape[1:])


def _counting(rows: Rows, weight: np.ndarray | None) -> Rows:
    """Without the targets of weight 0: these are not known, and say nothing about bands, tails or experts."""
    return rows if weight is None else rows._replace(target=np.where(weight > 0, rows.target, np.nan))


def _part(weights: np.ndarray | None, start: int) -> np.ndarray | None:
    return None if weights is None else weights[start:]
