"""Many learners seen from outside: mixed rows go in, in any portions; each series is learnt as if it were alone."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from smoothfbo.stream.groups.bands import SeriesBands
from smoothfbo.stream.groups.batch import BLOCKS, LANES, batch_of
from smoothfbo.stream.groups.states import SeriesStates
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.segments import Joined, Segments, join

NEVER = 2**62  # a row that does not come


class SeriesOutcome(NamedTuple):
    """What came of rows of many series, series by series, and of the blocks that became full.

    - `predictions`: methods × rows; `scores`: rows × classes. See `Outcome`.
    - `full`: of each segment, how many blocks became full; the next three have them one after the other.
    - `weights`: blocks × rates; `effects`: blocks × features; `finite`: per block.
    - `bands`: rows × levels × 2; None for classes.
    """

    predictions: np.ndarray
    scores: np.ndarray
    full: np.ndarray
    weights: np.ndarray
    effects: np.ndarray
    finite: np.ndarray
    bands: np.ndarray | None = None


class SeriesLearners:
    """One learner for each series, in slots 0, 1, …; all begin with one specification.

    The rounds are those of `Learner`, under `vmap`, for whichever series have a block to predict: predictions are those
    of a learner of that series alone, up to rounding, and the same bits for any portions.
    """

    def __init__(self, spec: Specification):
        self.spec, self.series = spec, 0
        self.states = SeriesStates(spec)
        self.bands = None if spec.is_classification else SeriesBands(spec.horizon)
        length = spec.rows * (spec.delay + 1)
        # Of each series, the rows that are not yet learnt, and how many of them there are.
        self.pending = Rows(np.zeros((0, length, spec.features)), np.zeros((0, length)), np.zeros((0, length)))
        self.kept = np.zeros(0, np.int64)

    @property
    def bytes_per_series(self) -> int:
        numbers = self.states.numbers.shape[1] + self.pending.target.shape[1] * (self.spec.features + 2)
        return 8 * (numbers + (0 if self.bands is None else self.bands.states.shape[1]))

    def arrays(self, series: int) -> dict[str, np.ndarray]:
        """All that is kept of the first series, so many of them."""
        states = {"states": self.states.numbers[:series], "outputs": self.states.outputs[:series]}
        kept = states | {"kept": self.kept[:series]}
        kept |= {} if self.bands is None else {"bands": self.bands.states[:series]}
        return kept | {f"pending.{name}": column[:series] for name, column in self.pending._asdict().items()}

    def make_room(self, series: int) -> None:
        """Learners that have learnt nothing, up to so many series; room doubles, so that it is rarely made."""
        have, self.series = len(self.kept), max(self.series, series)
        if series <= have:
            return
        self.states.make_room(series)
        more = len(self.states.numbers) - have
        self.pending = Rows(*(np.concatenate([c, np.zeros((more, *c.shape[1:]))]) for c in self.pending))
        self.kept = np.concatenate([self.kept, np.zeros(more, np.int64)])

    def process(self, rows: Rows, segments: Segments) -> SeriesOutcome:
        """Predict at least one row, those of every series one after the other; learn whenever a block is full."""
        if self.spec.is_classification:
            self.states.make_room_for_classes(int(np.nanmax(rows.target, initial=0)) + 1)
        return self._run_rows(rows, segments, learns=True)

    def predict(self, rows: Rows, segments: Segments, with_bands: bool = True) -> SeriesOutcome:
        """Predictions for rows that could come next. Nothing is learnt or kept."""
        return self._run_rows(rows, segments, learns=False, with_bands=with_bands)

    def _run_rows(self, rows: Rows, segments: Segments, learns: bool, with_bands: bool = True) -> SeriesOutcome:
        self.make_room(int(segments.slots.max(initial=-1)) + 1)
        with ThreadPoolExecutor(_processors()) as workers:
            outcome = _Pass(self, rows, segments, learns).outcome(workers)
            if self.bands is None or not with_bands:
                return outcome
            bands = self.bands.add(outcome.predictions[0], rows.target, segments, workers, keep=learns)
            return outcome._replace(bands=bands)


def _processors() -> int:
    """Batches are of different series, so as many can run at once; one compiled program uses one processor."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pass:
    """Rows of many series on their way through the learners.

    Of each segment the rows that were kept come first, so its blocks begin with the oldest that waits to be learnt.
    With a delay d, block i − d is learnt after block i was predicted. A class for which a series has no room gets it
    where `Learner` makes it: after the first row of that class or, with a delay, when the row is to be learnt.
    """

    def __init__(self, learners: SeriesLearners, rows: Rows, segments: Segments, learns: bool):
        self.learners, self.segments, self.learns = learners, segments, learns
        self.spec = learners.spec
        kept = learners.kept[segments.slots]
        self.joined: Joined = join(segments, kept)
        is_kept = np.arange(learners.pending.target.shape[1]) < kept[:, None]
        past = (column[segments.slots][is_kept] for column in learners.pending)
        # The last row is for places beyond the end of a segment.
        self.rows = Rows(*(self.joined.of(*pair, more=1) for pair in zip(past, rows, strict=True)))
        block, total = self.spec.rows, np.diff(self.joined.starts)
        self.first = kept // block  # the first block that is predicted
        self.full, self.blocks = total // block, -(-total // block)
        self.at = self.first.copy()
        self.offsets = np.concatenate([[0], np.cumsum(self.blocks - self.first)])
        self.results: Any = None  # a `BlockResult` of all blocks that are predicted
        # Of each segment, the first row with a class for which there is no room, and how many rows of the next block
        # were predicted before there was room.
        self.new_class = self._new_classes(np.arange(len(total)))
        self.predicted = np.zeros(len(total), np.int64)

    def outcome(self, workers: ThreadPoolExecutor) -> SeriesOutcome:
        while len(active := np.flatnonzero(self.at < self.blocks)):
            batches = list(self._batches(active))
            if self.results is None:
                self._run(*batches.pop(0))  # says what results look like
            list(workers.map(lambda batch: self._run(*batch), batches))
        if self.learns:
            self._keep()
        place = self.joined.rows - np.repeat(self.joined.starts[:-1], self.segments.lengths)
        number, within = np.divmod(place, self.spec.rows)
        at = number + np.repeat(self.offsets[:-1] - self.first, self.segments.lengths)
        became_full = np.maximum(self.full - self.first, 0) * self.learns
        ends = np.cumsum(became_full)
        blocks = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
            self.offsets[:-1] - ends + became_full, became_full
        )
        results: Any = self.results
        return SeriesOutcome(
            results.predictions[at, :, within].T,
            results.scores[at, within],
            became_full,
            results.weights[blocks],
            results.effects[blocks],
            results.finite[blocks],
        )

    def _batches(self, active: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Segments in batches, and how many blocks all of a batch can learn: those with most of them together."""
        outputs = self.learners.states.outputs[self.segments.slots[active]]
        for count in np.unique(outputs):
            alike = active[outputs == count]
            at = self.at[alike]
            without_new_class = self.new_class[alike] // self.spec.rows - (at - self.spec.delay)
            can = np.minimum(np.minimum(self.full[alike] - at, BLOCKS), without_new_class)
            can = np.where(self._is_early(at), 0, can)
            order = np.argsort(-can, kind="stable")
            learning = int(np.sum(can > 0))
            for part in (order[:learning], order[learning:]):
                for start in range(0, len(part), LANES):
                    lanes = part[start : start + LANES]
                    yield alike[lanes], int(can[lanes[-1]])

    def _run(self, lanes: np.ndarray, learn: int) -> None:
        """One call of the compiled program, for at most `LANES` segments that have as many outputs."""
        spec, at, slots, states = self.spec, self.at[lanes], self.segments.slots[lanes], self.learners.states
        outputs = int(states.outputs[slots[0]])
        is_waiting, is_new = self._is_early(at), self._has_new_class(lanes, at)
        count = min(learn + (BLOCKS if is_waiting.any() else 1), BLOCKS)
        early = np.minimum(spec.delay - at, count) if self.learns else count
        valid = np.minimum(np.where(is_waiting, early, np.where(is_new, 1, count)), self.blocks[lanes] - at)
        keep = np.zeros(LANES, np.int32)  # with a delay: predictions of full blocks are kept until these are learnt
        if self.learns:
            keep[: len(lanes)] = np.where(is_waiting, np.clip(self.full[lanes] - at, 0, valid), learn)
        late = self._gather(lanes, at - spec.delay) if spec.delay else None
        batch = batch_of(states.spec_of(outputs))
        advanced, result = batch.advance(states.of(slots, outputs), self._gather(lanes, at), late, count, learn, keep)
        if keep.any():
            states.put(slots, advanced)
        self._write(lanes, at, valid, result)
        # A block that is full and not yet learnt is predicted again, with the same result.
        is_last = (at + learn >= self.full[lanes]) & ~self._has_new_class(lanes, at + learn)
        self.at[lanes] = np.where(is_new, at, np.where(is_waiting | is_last, at + valid, at + learn))
        self.predicted[lanes] = 0
        if is_new.any():
            self._make_room_for_classes(lanes[is_new])

    def _write(self, lanes: np.ndarray, at: np.ndarray, valid: np.ndarray, result: Any) -> None:
        """Results of the first `valid` blocks of each lane, but for the rows that were predicted before."""
        if self.spec.is_classification:  # with as many scores for all series
            more = self.learners.states.classes - result.scores.shape[-1]
            result = result._replace(scores=np.pad(result.scores, ((0, 0), (0, 0), (0, 0), (0, more))))
        if self.results is None:
            room = int(self.offsets[-1])
            self.results = result._replace(
                **{k: np.zeros((room, *leaf.shape[2:]), leaf.dtype) for k, leaf in result._asdict().items()}
            )
        is_valid = np.arange(BLOCKS) < valid[:, None]
        first = self.offsets[lanes] + at - self.first[lanes]
        places = (first[:, None] + np.arange(BLOCKS))[is_valid]
        lane, row = np.nonzero(np.arange(self.spec.rows) < self.predicted[lanes, None])
        predictions, scores = self.results.predictions[first[lane], :, row], self.results.scores[first[lane], row]
        for leaf, new in zip(self.results, result, strict=True):
            leaf[places] = new[: len(lanes)][is_valid]
        self.results.predictions[first[lane], :, row], self.results.scores[first[lane], row] = predictions, scores

    def _make_room_for_classes(self, lanes: np.ndarray) -> None:
        """Room for the classes that the next block to learn has, one after the other without a delay."""
        block, delay = self.spec.rows, self.spec.delay
        starts = self.joined.starts[lanes]
        if delay:
            places = (starts + (self.at[lanes] - delay) * block)[:, None] + np.arange(block)
            index = np.nanmax(self.rows.target[places], axis=1)
            self.predicted[lanes] = block
        else:
            index = self.rows.target[starts + self.new_class[lanes]]
            self.predicted[lanes] = self.new_class[lanes] + 1 - self.at[lanes] * block
        self.learners.states.widen(self.segments.slots[lanes], index.astype(np.int64) + 1)
        self.new_class[lanes] = self._new_classes(lanes)

    def _new_classes(self, lanes: np.ndarray) -> np.ndarray:
        """Of each of these segments, the first row with a class for which there is no room."""
        found = np.full(len(lanes), NEVER)
        if self.learns and self.spec.is_classification:
            outputs, starts = self.learners.states.outputs[self.segments.slots[lanes]], self.joined.starts
            for place, (lane, count) in enumerate(zip(lanes, outputs, strict=True)):
                is_new = self.rows.target[starts[lane] : starts[lane + 1]] > count
                found[place] = np.argmax(is_new) if is_new.any() else NEVER
        return found

    def _has_new_class(self, lanes: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Whether there is no room for a class of the block that is learnt after block `at`, if there is one."""
        is_learnt = ~self._is_early(at) & ((at < self.full[lanes]) | (self.spec.delay == 0))
        return is_learnt & (self.new_class[lanes] // self.spec.rows == at - self.spec.delay)

    def _is_early(self, at: np.ndarray) -> np.ndarray:
        """Where nothing can be learnt after block `at`, so that several blocks can be predicted at once."""
        return (at < self.spec.delay) | (not self.learns)

    def _gather(self, lanes: np.ndarray, at: np.ndarray) -> Rows:
        """`BLOCKS` blocks of each segment, from block `at` on; zeros beyond its end and in lanes that are free."""
        length = BLOCKS * self.spec.rows
        starts, ends = self.joined.starts[lanes], self.joined.starts[lanes + 1]
        places = (starts + at * self.spec.rows)[:, None] + np.arange(length)
        nowhere = len(self.rows.target) - 1
        places = np.where((places >= starts[:, None]) & (places < ends[:, None]), places, nowhere)
        places = np.concatenate([places, np.full((LANES - len(lanes), length), nowhere)])
        return Rows(*(c[places].reshape(LANES, BLOCKS, self.spec.rows, *c.shape[1:]) for c in self.rows))

    def _keep(self) -> None:
        """The rows that are not yet learnt."""
        learners, block = self.learners, self.spec.rows
        learnt = np.maximum(self.full - self.spec.delay, 0) * block
        starts = self.joined.starts[:-1] + learnt
        kept = self.joined.starts[1:] - starts
        length = np.arange(learners.pending.target.shape[1])
        places = np.where(length < kept[:, None], starts[:, None] + length, len(self.rows.target) - 1)
        for column, rows in zip(learners.pending, self.rows, strict=True):
            column[self.segments.slots] = rows[places]
        learners.kept[self.segments.slots] = kept
