"""What a run over many series carries along: encoder, learners, detectors, and the sums of errors of every series."""

import numpy as np

from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.groups.changes import ChangeDetectors
from smoothfbo.stream.groups.keys import SeriesKeys
from smoothfbo.stream.groups.learners import SeriesLearners, SeriesOutcome
from smoothfbo.stream.learner.changes import LOOK_BACK, effective_memories
from smoothfbo.stream.learner.specification import LEVELS
from smoothfbo.stream.reading import Encoder, Schema
from smoothfbo.stream.reading.faults import LeftOut
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.segments import Segments, join
from smoothfbo.stream.session import specification

METHODS = ("smoothfbo", "last_value")


class Sums:
    """Of every series, in arrays.

    - `rows`, `blocks`: how many there were; `known`: rows whose errors count.
    - `squared`, `absolute`: sums of errors, per method; squared ones are wrong classes in classification.
    - `pending`: of the block that is not yet full, the sums of losses, and last the number of rows that count.
    - `first_rows`: where the last blocks begin in the table, slot block mod length; `begun`: the one that is not full.
    - `changes`: how many were detected; `memory`: of the newest block.
    - `banded`: rows with a band and a target; `covered`: how many of them lay in each band.
    """

    def __init__(self) -> None:
        methods, integers = len(METHODS), np.int64
        self.rows, self.blocks, self.known = (np.zeros(0, integers) for _ in range(3))
        self.squared, self.absolute = np.zeros((0, methods)), np.zeros((0, methods))
        self.pending, self.begun = np.zeros((0, methods + 1)), np.zeros(0, integers)
        self.first_rows = np.zeros((0, LOOK_BACK), integers)
        self.changes, self.memory = np.zeros(0, integers), np.zeros(0)
        self.banded, self.covered = np.zeros(0, integers), np.zeros((0, len(LEVELS)))

    def make_room(self, series: int) -> None:
        more = series - len(self.rows)
        for name, old in vars(self).items() if more > 0 else ():
            setattr(self, name, np.concatenate([old, np.zeros((more, *old.shape[1:]), old.dtype)]))


class NewBlocks:
    """The blocks that became full with some rows, series by series: `losses` are blocks × methods."""

    def __init__(self, slots: np.ndarray, numbers: np.ndarray, first_rows: np.ndarray, sums: np.ndarray):
        self.slots, self.numbers, self.first_rows = slots, numbers, first_rows
        self.known = sums[:, -1]
        self.losses = sums[:, :-1] / np.maximum(self.known, 1)[:, None]
        self.memory = np.zeros(len(slots))


class SeriesSession:
    """The state of a run between two portions."""

    def __init__(self, config: StreamConfig, schema: Schema):
        self.config, self.schema = config.for_task(schema.is_classification), schema
        self.encoder = Encoder(schema, config.all_lags, config.horizon, config.data)
        self.learners = SeriesLearners(specification(self.config, self.encoder))
        self.keys, self.detectors, self.sums = SeriesKeys(config.by), ChangeDetectors(), Sums()
        self.changes: list[dict[str, int]] = []
        self.skipped = 0
        # Rows of the table that were read, and the numbers of those that wait for a target of their series.
        self.read, self.waiting = 0, np.zeros(0, np.int64)
        self.before = 0  # rows of the tables before this one
        self.left_out = LeftOut(config.on_error == "skip")  # rows that could be read, but not used
        self.unread = LeftOut()  # those that could not be read; the table's own count

    @property
    def series(self) -> int:
        """That have had a row."""
        return len(self.sums.rows)

    @property
    def rows(self) -> int:
        return int(self.sums.rows.sum())

    @property
    def known(self) -> int:
        return int(self.sums.known.sum())

    @property
    def notes(self) -> tuple[str, ...]:
        return self.schema.notes

    @property
    def first_notes(self) -> tuple[str, ...]:
        return self.notes

    def errors(self, absolute: bool = False) -> dict[str, float]:
        """Of all rows of all series."""
        sums = (self.sums.absolute if absolute else self.sums.squared).sum(axis=0)
        return dict(zip(METHODS, (sums / max(self.known, 1)).tolist(), strict=True))

    def coverage(self) -> dict[str, float]:
        """The part of all targets that lay in each band, by the part that should; empty for classes."""
        banded = self.sums.banded.sum()
        parts = self.sums.covered.sum(axis=0) / max(banded, 1)
        return {str(level): float(part) for level, part in zip(LEVELS, parts, strict=True)} if banded else {}

    def losses(self, rows: Rows, outcome: SeriesOutcome) -> tuple[np.ndarray, np.ndarray]:
        """rows × (SmoothFBO, last value, 1): losses, then whether the row counts; and the absolute errors."""
        predictions = np.stack([outcome.predictions[0], rows.previous], axis=1)
        target = rows.target[:, None]
        scored = ~np.isnan(target) & ~np.isnan(predictions).any(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            raw = predictions != target if self.schema.is_classification else (predictions - target) ** 2
            absolute = np.abs(predictions - target)
        losses = np.concatenate([raw, np.ones_like(target)], axis=1)
        return np.where(scored, losses, 0.0), np.where(scored, absolute, 0.0)

    def add(self, rows: Rows, segments: Segments, numbers: np.ndarray, outcome: SeriesOutcome) -> NewBlocks:
        """Add the errors of new rows to the sums, put them together to blocks, and look for changes."""
        sums, slots, starts = self.sums, segments.slots, segments.starts[:-1]
        sums.make_room(int(slots[-1]) + 1)
        self.detectors.make_room(self.series)
        losses, absolute = self.losses(rows, outcome)
        blocks = self._blocks(losses, segments, numbers)
        totals = np.add.reduceat(losses, starts)
        sums.squared[slots] += totals[:, :-1]
        sums.known[slots] += totals[:, -1].astype(np.int64)
        if not self.schema.is_classification:
            sums.absolute[slots] += np.add.reduceat(absolute, starts)
        if outcome.bands is not None:
            is_evaluated = ~np.isnan(rows.target) & ~np.isnan(outcome.bands[:, 0, 0])
            low, high = outcome.bands.transpose(2, 0, 1)
            with np.errstate(invalid="ignore"):
                inside = (low <= rows.target[:, None]) & (rows.target[:, None] <= high) & is_evaluated[:, None]
            sums.banded[slots] += np.add.reduceat(is_evaluated.astype(np.int64), starts)
            sums.covered[slots] += np.add.reduceat(inside.astype(float), starts)
        sums.rows[slots] += segments.lengths
        self.skipped += int(np.sum(~outcome.finite))
        blocks.memory = effective_memories(outcome.weights, blocks.numbers)
        self._look_for_changes(blocks, outcome.full)
        sums.blocks[slots] += outcome.full
        return blocks

    def _blocks(self, losses: np.ndarray, segments: Segments, numbers: np.ndarray) -> NewBlocks:
        """Losses by block. The rows of a block that was begun before count from its beginning."""
        sums, slots, size = self.sums, segments.slots, self.config.rows_per_block
        begun = sums.rows[slots] % size
        joined = join(segments, begun)
        full, some = np.divmod(begun + segments.lengths, size)
        count = full + (some > 0)
        offsets = np.concatenate([[0], np.cumsum(count)])
        place = joined.rows - np.repeat(joined.starts[:-1], segments.lengths)
        block = np.repeat(offsets[:-1], segments.lengths) + place // size
        totals = np.stack([np.bincount(block, column, minlength=offsets[-1]) for column in losses.T], axis=1)
        first_rows = numbers[np.flatnonzero(np.diff(block, prepend=-1))]
        first = offsets[:-1]
        totals[first] += sums.pending[slots]
        first_rows[first] = np.where(begun > 0, sums.begun[slots], first_rows[first])
        last, is_open = offsets[1:] - 1, some > 0
        sums.pending[slots] = np.where(is_open[:, None], totals[last], 0)
        sums.begun[slots] = np.where(is_open, first_rows[last], 0)
        is_full = np.ones(offsets[-1], bool)
        is_full[last] = ~is_open
        within = np.arange(offsets[-1]) - np.repeat(first, count)
        all_slots = np.repeat(slots, count)
        all_numbers = sums.blocks[all_slots] + within
        return NewBlocks(all_slots[is_full], all_numbers[is_full], first_rows[is_full], totals[is_full])

    def _look_for_changes(self, blocks: NewBlocks, full: np.ndarray) -> None:
        """Block by block; all series that have one more at once."""
        starts = np.cumsum(full) - full
        delay = self.learners.spec.delay  # the losses of a block are known so much later
        for wave in range(int(full.max(initial=0))):
            at = starts[full > wave] + wave
            slots, numbers = blocks.slots[at], blocks.numbers[at]
            self.sums.first_rows[slots, numbers % LOOK_BACK] = blocks.first_rows[at]
            self.sums.memory[slots] = blocks.memory[at]
            places = self.detectors.update(slots, blocks.memory[at], blocks.losses[at, 0])
            found = places >= 0
            self.sums.changes[slots] += found
            rows = self.sums.first_rows[slots, places % LOOK_BACK]
            columns = (column[found].tolist() for column in (slots, rows, places, numbers + delay))
            for slot, row, place, seen in zip(*columns, strict=True):
                self.changes.append({"series": slot, "row": row, "block": place, "seen_in_block": seen})

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is kept of every series."""
        series = self.series
        kept = self.learners.arrays(series) | {"waiting": self.waiting}
        kept |= {f"encoder.{name}": values for name, values in self.encoder.series_state(series).items()}
        kept |= {f"sums.{name}": values for name, values in vars(self.sums).items()}
        return kept | {f"detectors.{name}": values for name, values in vars(self.detectors).items()}
