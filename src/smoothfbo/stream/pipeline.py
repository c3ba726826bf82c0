"""`smoothfbo stream`: a table in one pass, predictions before targets, references on the same rows."""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute

from smoothfbo.errors import UsageError
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner.learner import BLOCKS_PER_CALL
from smoothfbo.stream.reading.faults import MOST_NAMED, LeftOut
from smoothfbo.stream.reading.reader import OpenTable
from smoothfbo.stream.records import BlockRecords, prediction_table
from smoothfbo.stream.session import Session, new_session, open_session, save_session

compute: Any = pyarrow.compute  # its functions are made when it is imported

MOST_FORECASTS = 65_536  # rows without a target that are held back; more are taken for rows whose target is lost
CALLS_PER_PIECE = 16  # between two reports of progress; a network is slower and reports after every call


@runtime_checkable
class StreamSink(Protocol):
    """Takes what a run produces, portion by portion: one row per input row, and one row per block."""

    def predictions(self, table: pa.Table) -> None: ...

    def blocks(self, table: pa.Table) -> None: ...


@dataclass(frozen=True)
class StreamProgress:
    """Told after every piece. `errors` are the running errors of SmoothFBO ("smoothfbo") and of the references."""

    rows: int
    rows_per_second: float
    """After the first block, which compiles."""
    errors: dict[str, float]
    notes: tuple[str, ...]
    block: int
    """Rows of a block."""


@dataclass
class StreamResults:
    """What a run comes to. `fault` is what ended it before the end of the table; everything before it is kept."""

    rows: int
    table_rows: int
    """Of this table: `rows`, and the errors, are of all since the learner began."""
    block: int
    """Rows of a block."""
    blocks: int
    is_classification: bool
    error_name: str
    """"mean squared error" or "error rate"."""
    judged: int
    """Rows with a target and a prediction; the errors are means over them, and 0 if there are none."""
    errors: dict[str, float]
    absolute_errors: dict[str, float]
    """Mean absolute errors; empty in classification."""
    coverage: dict[str, float]
    """The part of the targets that lay in the bands of 0.5, 0.8 and 0.95; empty in classification."""
    changes: list[dict[str, int]]
    """Detected changes: `row` and `block` where the data changed, and `seen_in_block`, where it showed."""
    notes: list[str]
    missing: dict[str, int]
    constant_features: list[str]
    features: list[str]
    effects: list[str | None]
    """The features whose effects are in the columns effect_0, effect_1, … of the blocks; None for room."""
    classes: list[str]
    skipped_rounds: int
    seconds: float
    rows_per_second: float
    """After the first block, which compiles."""
    forecasts: int = 0
    """The last rows, which have no target; they are predicted, and no part of the learner that is saved."""
    left_out: int = 0
    """Rows of this table that could not be read or used, where `on_error` is skip."""
    left_out_first: list[str] = field(default_factory=list)
    """What was wrong with the first of them."""
    fault: UsageError | None = field(default=None)
    series: dict[str, Any] | None = None
    """Of many series (`by`): their number, quantiles of their errors, the worst, the changes."""

    @property
    def best_reference(self) -> str | None:
        """The fixed expert with the least error, chosen in hindsight; persistence is one of them."""
        return best_reference(self.errors)

    def summary(self) -> dict[str, Any]:
        """All of it as JSON."""
        best = self.best_reference or ""
        content = {name: value for name, value in vars(self).items() if name != "fault"}
        return content | {
            "best_reference": best or None,
            "ratio_to_best_reference": self.errors["smoothfbo"] / self.errors[best] if self.errors.get(best) else None,
            "fault": None if self.fault is None else str(self.fault),
        }


def best_reference(errors: dict[str, float]) -> str | None:
    """The fixed expert with the least error so far: forgetting, window or persistence; none that adapts."""
    fixed = {k: v for k, v in errors.items() if k not in ("smoothfbo", "learned_memory", "unsmoothed")}
    return min(fixed, key=fixed.__getitem__) if fixed else None


@dataclass(frozen=True)
class OpenStream:
    """A table and the learner that goes through it; the first `done` rows of the table were processed already."""

    table: OpenTable
    session: Session
    done: int = 0

    def __post_init__(self) -> None:
        self.session.unread = self.table.left_out

    def pieces(self) -> Iterator[pa.Table]:
        """The rows that are left. The first block comes alone, so that the time of compilation shows by itself.

        Pieces end in the same places whether a run was interrupted between two of them or not.
        """
        config = self.session.config
        size = config.rows_per_block * BLOCKS_PER_CALL * (1 if config.predictor == "network" else CALLS_PER_PIECE)
        skip, grid = self.done, config.rows_per_block
        for portion in self.table:
            at = min(skip, portion.num_rows)
            skip -= at
            while at < portion.num_rows:
                end = grid + ((at - grid) // size + 1) * size
                yield portion.slice(at, end - at)
                at = end
            grid = 0


def open_stream(config: StreamConfig, state: Path | None = None, snapshot: Path | None = None) -> OpenStream:
    """Open the table and start, or go on with, a learner.

    `state` is where a run over earlier rows ended, and is ignored if it does not exist; `snapshot` is where a run over
    this very table was interrupted.
    """
    if snapshot is not None:
        table, session = open_session(config, snapshot)
        return OpenStream(table, session, session.encoder.rows)
    if config.predict_only and not (state is not None and state.exists()):
        raise UsageError(f"`predict_only` needs a learner, but {state} does not exist.")
    if state is not None and state.exists():
        table, session = open_session(config, state)
        session.encoder.rows, session.left_out = 0, LeftOut(config.on_error == "skip")  # a new table
        return OpenStream(table, session)
    return OpenStream(*new_session(config))


def run_stream(
    config: StreamConfig,
    sink: StreamSink | None = None,
    progress: Callable[[StreamProgress], None] | None = None,
    state: Path | None = None,
) -> StreamResults:
    """Go through the table once; memory does not grow with it.

    `state` is a file that the learner is read from, if it exists, and written to at the end: the next call goes on with
    the next rows and gives the predictions of an uninterrupted run. A fault in the table ends the run and is returned
    in the results; mistakes that show before the first row are raised.
    """
    opened = open_stream(config, state)
    results = finish(process_pieces(opened.session, opened.pieces(), sink, progress), opened.session)
    if state is not None and not config.predict_only:
        save_session(opened.session, state)
    return results


def process_pieces(
    session: Session,
    pieces: Iterator[pa.Table],
    sink: StreamSink | None = None,
    progress: Callable[[StreamProgress], None] | None = None,
    after_piece: Callable[[Session], None] | None = None,
    before_forecasts: Callable[[Session], None] | None = None,
) -> StreamResults:
    """Predict and learn piece by piece. After `after_piece` everything before it can be taken up from the session.

    The last rows of a table may have no target yet. They are predicted, but `session` stays where it was before them:
    they come again, with their targets. So rows without a target wait until a row with one follows, or the end.
    """
    clock, block = Clock(session.rows), session.config.rows_per_block
    fault: UsageError | None = None
    waiting: pa.Table | None = None
    while fault is None:
        try:
            piece = next(pieces, None)
        except UsageError as error:
            fault = error
            break
        if piece is None:
            break
        piece, waiting = _until_last_target(piece, waiting, session.schema.target)
        fault = process_piece(session, piece, sink)
        if fault is not None:
            waiting = None
        if after_piece is not None:
            after_piece(session)
        clock.add(session.rows)
        if progress is not None:
            progress(StreamProgress(session.rows, clock.rows_per_second, session.errors(), session.notes, block))
    if before_forecasts is not None:
        before_forecasts(session)
    if waiting is None:
        return _results(session, clock, fault)
    ahead = copy.deepcopy(session)
    fault = process_piece(ahead, waiting, sink) or fault
    return replace(_results(ahead, clock, fault), forecasts=ahead.rows - session.rows)


def process_piece(session: Session, piece: pa.Table, sink: StreamSink | None) -> UsageError | None:
    """Predict and learn the rows of one piece; what is wrong with them, if anything is and nothing may be left out."""
    while piece.num_rows:
        rows, fault = _until_fault(session, piece, sink)
        if fault is None or not session.left_out.is_allowed:
            return fault
        session.left_out.add(fault)
        session.encoder.rows += 1  # of the table; none of the learner's
        piece = piece.slice(rows + 1)
    return None


def _until_fault(session: Session, piece: pa.Table, sink: StreamSink | None) -> tuple[int, UsageError | None]:
    """Predict and learn the rows before the first fault; their number, and the fault."""
    encoded, times, fault = session.encoder.encode(piece, session.unread.count)
    session.look_for_odd_values(encoded)
    start = session.rows
    outcome = (session.learner.predict if session.config.predict_only else session.learner.process)(encoded)
    session.add(encoded.target, outcome)
    blocks = BlockRecords(session).add(start, encoded.target, outcome)
    if sink is not None:
        sink.predictions(prediction_table(session, start, encoded, times, outcome))
        if blocks is not None:
            sink.blocks(blocks)
    return len(encoded.target), fault


def _until_last_target(piece: pa.Table, waiting: pa.Table | None, target: str) -> tuple[pa.Table, pa.Table | None]:
    """The rows up to the last one with a target, and those after it; not too many of them."""
    together = piece if waiting is None else pa.concat_tables([waiting, piece])
    known = np.flatnonzero(~compute.is_null(together[target]).to_numpy())
    end = int(known[-1]) + 1 if len(known) else 0
    if end == together.num_rows or together.num_rows - end > MOST_FORECASTS:
        return together, None
    return together.slice(0, end), together.slice(end)


def finish(results: StreamResults, session: Any) -> StreamResults:
    """The results of a whole table, of one series or of many; if no row of it could be judged, that is a fault."""
    if session.known or results.fault is not None:
        return results
    column = f"column {session.schema.target!r}"
    what = f"{session.encoder.source}: {column} has no value that could be predicted, so there is no error to tell."
    return replace(results, fault=UsageError(what))


class Clock:
    """Rows per second after the first piece, which compiles."""

    def __init__(self, rows: int):
        self._started = time.perf_counter()
        self._now = self._started
        self._begin: tuple[int, float] = (rows, self._started)
        self._rows, self._pieces = rows, 0

    def add(self, rows: int) -> None:
        self._rows, self._now, self._pieces = rows, time.perf_counter(), self._pieces + 1
        if self._pieces == 1:
            self._first = rows, self._now

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    @property
    def rows_per_second(self) -> float:
        rows, since = self._first if self._pieces > 1 else self._begin
        return (self._rows - rows) / max(self._now - since, 1e-9)


def _results(session: Session, clock: Clock, fault: UsageError | None) -> StreamResults:
    return StreamResults(
        rows=session.rows,
        table_rows=session.encoder.rows - session.left_out.count,
        block=session.config.rows_per_block,
        blocks=session.blocks,
        is_classification=session.schema.is_classification,
        error_name="error rate" if session.schema.is_classification else "mean squared error",
        judged=session.known,
        errors=session.errors(),
        absolute_errors={} if session.schema.is_classification else session.errors(absolute=True),
        coverage=session.coverage(),
        changes=session.changes,
        notes=list(session.notes),
        missing={name: count for name, count in session.encoder.missing.items() if count},
        constant_features=session.encoder.constant_columns,
        features=session.encoder.used_names,
        effects=[] if session.learner.spec.is_network else session.encoder.names,
        classes=session.encoder.classes,
        skipped_rounds=session.skipped,
        seconds=clock.seconds,
        rows_per_second=clock.rows_per_second,
        left_out=session.unread.count + session.left_out.count,
        left_out_first=[*session.unread.first, *session.left_out.first][:MOST_NAMED],
        fault=fault,
    )
