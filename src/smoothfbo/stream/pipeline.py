"""`smoothfbo stream`: a table in one pass, predictions before targets, references on the same rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from smoothfbo.errors import UsageError
from smoothfbo.stream import passes
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner.learner import BLOCKS_PER_CALL
from smoothfbo.stream.passes import Clock, Steps, StreamProgress, StreamResults, StreamSink, finish, require_learner
from smoothfbo.stream.reading.faults import LeftOut
from smoothfbo.stream.reading.reader import OpenTable
from smoothfbo.stream.records import BlockRecords, prediction_table
from smoothfbo.stream.session import Session, new_session, open_session, save_session

compute: Any = pyarrow.compute  # its functions are made when it is imported

MOST_FORECASTS = 65_536  # rows without a target that are held back; more are taken for rows whose target is lost
CALLS_PER_PIECE = 16  # between two reports of progress; a network is slower and reports after every call


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
    """Open the table and start, or resume, a learner.

    `state` is where a run over earlier rows ended, and is ignored if it does not exist; `snapshot` is where a run over
    this very table was interrupted.
    """
    if snapshot is not None:
        table, session = open_session(config, snapshot)
        return OpenStream(table, session, session.encoder.rows)
    require_learner(config, state)
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

    `state` is a file that the learner is read from, if it exists, and written to at the end: the next call resumes with
    the next rows and gives the predictions of an uninterrupted run. A fault in the table ends the run and is returned
    in the results; mistakes that show before the first row are raised.
    """
    opened = open_stream(config, state)
    results = finish(process_pieces(opened.session, opened.pieces(), sink, progress), opened.session)
    if state is not None and not config.predict_only:
        save_session(opened.session, state)
    return results


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


def _until_last_target(session: Session, piece: pa.Table, waiting: pa.Table | None) -> tuple[pa.Table, pa.Table | None]:
    """The rows up to the last one with a target, and those after it; not too many of them."""
    together = piece if waiting is None else pa.concat_tables([waiting, piece])
    known = np.flatnonzero(~compute.is_null(together[session.schema.target]).to_numpy())
    end = int(known[-1]) + 1 if len(known) else 0
    if end == together.num_rows or together.num_rows - end > MOST_FORECASTS:
        return together, None
    return together.slice(0, end), together.slice(end)


def _results(session: Session, clock: Clock, fault: UsageError | None) -> StreamResults:
    spec = session.learner.spec
    return passes.results_of(session, clock, fault, spec=spec, blocks=session.blocks, changes=session.changes)


def process_pieces(*arguments: Any, **options: Any) -> StreamResults:
    """`passes.process_pieces` for a table of one series."""
    return passes.process_pieces(Steps(_until_last_target, process_piece, _results), *arguments, **options)
