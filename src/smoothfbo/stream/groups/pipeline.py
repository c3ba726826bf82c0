"""`smoothfbo stream --by`: a table of many series in one pass, each predicted and learnt as if it were alone."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from smoothfbo.errors import UsageError
from smoothfbo.stream import passes
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.groups.files import new_session, open_session, save_session
from smoothfbo.stream.groups.keys import SeriesKeys
from smoothfbo.stream.groups.records import block_table, prediction_table
from smoothfbo.stream.groups.session import SeriesSession
from smoothfbo.stream.groups.summary import summary_of_series
from smoothfbo.stream.passes import Clock, Steps, StreamProgress, StreamResults, StreamSink, finish, require_learner
from smoothfbo.stream.reading.faults import LeftOut
from smoothfbo.stream.reading.reader import OpenTable, can_be_read_again

compute: Any = pyarrow.compute  # its functions are made when it is imported

NUMBER = "\x00row"  # a column that no table has: the number of a row, from 1
FIRST_PIECE = 1024  # rows; it compiles
PIECE = 524_288  # rows: many, so that many series have full blocks
MOST_FORECASTS = 2**20  # rows without a target that are held back; more are taken for rows whose target is lost


@dataclass(frozen=True)
class OpenSeries:
    """A table of many series and the learners that go through it."""

    table: OpenTable
    session: SeriesSession
    choose: Callable[[pa.Table, tuple[str, ...]], pa.Table] | None = None  # rows of some series; None: all

    def __post_init__(self) -> None:
        self.session.unread = self.table.left_out

    def pieces(self) -> Iterator[pa.Table]:
        """The rows that are left, with their numbers; of a file, the next piece is read while one is learnt.

        Pieces end in the same places if a run was interrupted. Rows that waited then come with the first of them.
        """
        is_file = can_be_read_again(self.session.config.data)
        pieces = self._pieces() if self.choose is None else self._chosen(self.choose)
        return _read_ahead(pieces) if is_file else pieces

    def _chosen(self, choose: Callable[[pa.Table, tuple[str, ...]], pa.Table]) -> Iterator[pa.Table]:
        """Pieces end where they would with all series; those without a row are left out."""
        for piece in self._pieces():
            chosen = choose(piece, self.session.config.by)
            if chosen.num_rows:
                yield chosen

    def _pieces(self) -> Iterator[pa.Table]:
        read, waiting = self.session.read, self.session.waiting
        parts: list[pa.Table] = []
        done = 0
        try:
            for portion in self.table:
                numbers = np.arange(done + 1, done + portion.num_rows + 1)
                portion = portion.append_column(NUMBER, pa.array(numbers))
                if done < read:
                    old = portion.slice(0, read - done)
                    parts.append(old.filter(pa.array(np.isin(numbers[: old.num_rows], waiting))))
                    portion = portion.slice(old.num_rows)
                at = max(done, read)
                done += len(numbers)
                while portion.num_rows:
                    end = PIECE * (at // PIECE + 1) if at >= FIRST_PIECE else FIRST_PIECE
                    part = portion.slice(0, end - at)
                    portion, at = portion.slice(end - at), at + part.num_rows
                    parts.append(part)
                    if at == end:
                        yield pa.concat_tables(parts)
                        parts = []
        except UsageError:  # what came before is good
            if parts:
                yield pa.concat_tables(parts)
            raise
        if parts:
            yield pa.concat_tables(parts)


def _read_ahead(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(next, pieces, None)
        while (piece := waiting.result()) is not None:
            waiting = reader.submit(next, pieces, None)
            yield piece


def open_stream(
    config: StreamConfig,
    state: Path | None = None,
    snapshot: Path | None = None,
    choose: Callable[[pa.Table, tuple[str, ...]], pa.Table] | None = None,
) -> OpenSeries:
    """See `pipeline.open_stream`; with `choose`, of the rows that it returns alone."""
    if snapshot is not None:
        return OpenSeries(*open_session(config, snapshot), choose)
    require_learner(config, state)
    if state is None or not state.exists():
        return OpenSeries(*new_session(config), choose)
    table, session = open_session(config, state)
    # A new table; rows that waited come again in it.
    session.before, session.read, session.encoder.rows = session.rows, 0, 0
    session.waiting, session.left_out = np.zeros(0, np.int64), LeftOut(config.on_error == "skip")
    return OpenSeries(table, session)


def _process(session: SeriesSession, piece: pa.Table, sink: StreamSink | None) -> UsageError | None:
    """Predict and learn the rows of one piece; what is wrong with them, if anything is and nothing may be left out."""
    while piece.num_rows:
        before = session.encoder.rows
        fault = _until_fault(session, piece, sink)
        if fault is None:
            return None
        if not session.left_out.is_allowed:
            session.waiting = np.zeros(0, np.int64)  # no row comes after a fault
            return fault
        piece = piece.slice(session.encoder.rows - before + 1)
        session.left_out.add(fault)
        session.encoder.rows += 1  # of the table; none of a learner's
    return None


def _until_fault(session: SeriesSession, piece: pa.Table, sink: StreamSink | None) -> UsageError | None:
    """Predict and learn the rows before the first fault."""
    series, numbers = session.keys.of(piece), piece[NUMBER].to_numpy()
    too_many = _memory_fault(session, int(series.max()) + 1)
    if too_many is not None:
        session.left_out.is_allowed = False  # it would be the same with every further row
        return too_many
    rows, segments, times, fault = session.encoder.encode_series(piece, series, session.unread.count + numbers)
    if not segments.rows:
        return fault
    numbers = session.before + numbers[: segments.rows]
    learners = session.learners
    outcome = (learners.predict if session.config.predict_only else learners.process)(rows, segments)
    blocks = session.add(rows, segments, numbers[segments.order], outcome)
    if sink is not None:
        sink.predictions(prediction_table(session, rows, segments, numbers, times, outcome))
        if len(blocks.slots):
            sink.blocks(block_table(session, blocks, outcome))
    return fault


def _hold_back(session: SeriesSession, piece: pa.Table, waiting: pa.Table | None) -> tuple[pa.Table, pa.Table | None]:
    """See `_until_last_targets`; the session remembers how far the table was read, and which rows wait."""
    session.read = int(piece[NUMBER][-1].as_py())
    piece, waiting = _until_last_targets(session, piece, waiting)
    session.waiting = np.zeros(0, np.int64) if waiting is None else waiting[NUMBER].to_numpy()
    return piece, waiting


def _until_last_targets(
    session: SeriesSession, piece: pa.Table, waiting: pa.Table | None
) -> tuple[pa.Table, pa.Table | None]:
    """The rows up to the last one with a target, series by series, and those after it; not too many of them."""
    together = piece if waiting is None else pa.concat_tables([waiting, piece])
    is_known = ~compute.is_null(together[session.schema.target]).to_numpy()
    if is_known.all():
        return together, None
    series = SeriesKeys(session.keys.by).of(together)
    rows = np.arange(len(series))
    last = np.full(int(series.max()) + 1, -1)
    last[series[is_known]] = rows[is_known]  # the last one stays
    waits = rows > last[series]
    if not waits.any() or waits.sum() > MOST_FORECASTS:
        return together, None
    return together.filter(pa.array(~waits)), together.filter(pa.array(waits))


def _memory_fault(session: SeriesSession, series: int) -> UsageError | None:
    """Learners that would not fit into the memory that is free."""
    have, each = len(session.learners.kept), session.learners.bytes_per_series
    free = _free_memory()
    needed = (max(series, 2 * have) + have) * each  # while room is made, the old learners are there, too
    if series <= have or free is None or needed <= free:
        return None
    return UsageError(
        f"{session.config.data} has {series:,} series and more to come: their learners need {needed / 2**30:.1f} GiB "
        f"({each / 1024:.0f} KiB each), but {free / 2**30:.1f} GiB are free; fewer columns, lags or "
        "`rates` make them smaller."
    )


def _free_memory() -> int | None:
    """Bytes; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            return None


def results_of(session: SeriesSession, clock: Clock, fault: UsageError | None) -> StreamResults:
    spec, series = session.learners.spec, summary_of_series(session)
    blocks = int(session.sums.blocks.sum())
    return passes.results_of(session, clock, fault, spec=spec, blocks=blocks, changes=[], series=series)


def process_pieces(*arguments: Any, **options: Any) -> StreamResults:
    """`passes.process_pieces` for a table of many series."""
    return passes.process_pieces(Steps(_hold_back, _process, results_of), *arguments, **options)


def run_series(
    config: StreamConfig,
    sink: StreamSink | None = None,
    progress: Callable[[StreamProgress], None] | None = None,
    state: Path | None = None,
) -> tuple[StreamResults, SeriesSession]:
    """`run_stream` for many series; also the session, which knows every series."""
    opened = open_stream(config, state)
    results = finish(process_pieces(opened.session, opened.pieces(), sink, progress), opened.session)
    if state is not None and not config.predict_only:
        save_session(opened.session, state)
    return results, opened.session
