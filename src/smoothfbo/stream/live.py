"""`smoothfbo stream --live`: rows are answered as they arrive, and the learner is saved every few seconds."""

import contextlib
import copy
import csv
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from smoothfbo.errors import UsageError
from smoothfbo.harness.interruption import Interruption
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.passes import StreamSink
from smoothfbo.stream.pipeline import MOST_FORECASTS, compute, open_stream, process_piece
from smoothfbo.stream.run import check_state
from smoothfbo.stream.session import Session, save_session

SHOWN = ("row", "time", "target", "prediction", "probability")  # and the bands


def run_live(config: StreamConfig, say: Callable[[str], None]) -> int:
    """Answer every row on standard output, speak to people by `say`, and return the exit status.

    The state is written every few seconds, at the end, and when Ctrl-C or a closed pipe ends it. After a crash the next
    start resumes from the version written last: rows that were answered after it are not in it, and can be given again.
    """
    state = None if config.state is None else Path(config.state)
    check_state(state)
    opened = open_stream(config, state)
    session = opened.session
    if session.rows:
        say(f"{state}: {session.rows:,} rows were learnt; the next one is row {session.rows + 1:,}")
    printer = Printer(config.live == "csv", sys.stdout)
    answers = Answers(session, printer)
    is_learning = state is not None and not config.predict_only
    fault: UsageError | None = None
    reported = len(session.changes), 0, 0
    with Interruption() as interruption, Saver(session, state if is_learning else None, config.save_every) as saver:
        try:
            for piece in interruption.watch(opened.pieces()):
                with saver.pause():
                    fault = answers.add(piece)
                    printer.flush()
                reported = report_news(session, reported, say)
                if fault is not None:
                    break
        except UsageError as error:
            fault = error
    for line in _summary(session, answers.waiting, state if is_learning else None):
        say(line)
    if fault is not None:
        say(str(fault))
    return 2 if fault is not None else 130 if interruption.is_requested else 0


class Answers:
    """Answers rows; those with a target are learnt.

    A row without a target waits for it. When the same row comes again with a target, it is learnt in its place; rows
    that wait before it are then rows whose target is lost, as in the middle of a file. A row with a target that is no
    answer to a waiting one comes after all of them.
    """

    def __init__(self, session: Session, sink: StreamSink):
        self.session, self.sink = session, sink
        self.waiting: list[pa.Table] = []
        self._ahead: Session | None = None  # the session after the rows that wait

    def add(self, piece: pa.Table) -> UsageError | None:
        """Answer the rows of a piece; what is wrong with them, if anything is."""
        known = ~compute.is_null(piece[self.session.schema.target]).to_numpy()
        if self.session.config.predict_only:
            return process_piece(self.session, piece, self.sink)
        at, fault = 0, None
        while at < len(known) and fault is None:
            if known[at]:
                others = np.flatnonzero(~known[at:])
                # Rows that can answer nothing are learnt together.
                count = 1 if self.waiting else int(others[0]) if len(others) else len(known) - at
                fault = self._learn(piece.slice(at, count))
            else:
                count = 1
                fault = self._predict(piece.slice(at, 1))
            at += count
        return fault

    def _learn(self, rows: pa.Table) -> UsageError | None:
        lost = self.waiting
        if lost:
            self._ahead = None
            place = next((i for i, row in enumerate(lost) if self._is_same(row, rows)), len(lost))
            lost, self.waiting = lost[:place], lost[place + 1 :]
        fault = self._learn_without_target(lost)
        return fault or process_piece(self.session, rows, self.sink)

    def _predict(self, row: pa.Table) -> UsageError | None:
        if len(self.waiting) == MOST_FORECASTS:
            self._learn_without_target([self.waiting.pop(0)])
            self._ahead = None
        if self._ahead is None:
            self._ahead = copy.deepcopy(self.session)
            for other in self.waiting:
                process_piece(self._ahead, other, None)
        before = self._ahead.left_out.count
        fault = process_piece(self._ahead, row, self.sink)
        if self._ahead.left_out.count > before:  # it can never be used
            self.session.left_out = copy.deepcopy(self._ahead.left_out)
            self.session.encoder.rows += 1
        elif fault is None:
            self.waiting.append(row)
        return fault

    def _learn_without_target(self, rows: list[pa.Table]) -> UsageError | None:
        """The targets of these rows will never come."""
        faults = [process_piece(self.session, row, None) for row in rows]
        return next((fault for fault in faults if fault is not None), None)

    def _is_same(self, one: pa.Table, other: pa.Table) -> bool:
        return all(one[name].equals(other[name]) for name in one.column_names if name != self.session.schema.target)


class Printer:
    """A line for every row on standard output: a JSON object, or CSV after a header."""

    def __init__(self, is_csv: bool, file: Any):
        self._is_csv, self._file, self._writer = is_csv, file, None

    def predictions(self, table: pa.Table) -> None:
        shown = [name for name in table.column_names if name in SHOWN or name.startswith(("low_", "high_"))]
        rows = table.select(shown).to_pylist()
        if not self._is_csv:
            self._file.writelines(json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in rows)
            return
        if self._writer is None:
            self._writer = csv.DictWriter(self._file, shown, lineterminator="\n")
            self._writer.writeheader()
        self._writer.writerows(rows)

    def blocks(self, table: pa.Table) -> None:
        """Not printed."""

    def flush(self) -> None:
        self._file.flush()


class Saver:
    """Writes a session every few seconds while rows come, or do not; the file is complete at any time.

    with Saver(session, path, seconds) as saver:
        with saver.pause(): ...  # the session changes
    """

    def __init__(self, session: Session, path: Path | None, seconds: float):
        self._session, self._path, self._seconds = session, path, seconds
        self._lock, self._end = threading.Lock(), threading.Event()
        self._rows = session.rows  # when it was saved last
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def pause(self) -> contextlib.AbstractContextManager[Any]:
        return self._lock

    def __enter__(self) -> "Saver":
        if self._path is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """What has changed since is written, whatever ended it: Ctrl-C, a fault, a reader that has gone."""
        if self._path is not None:
            self._end.set()
            self._thread.join()
            self._save()

    def _watch(self) -> None:
        while not self._end.wait(self._seconds):
            with self._lock, contextlib.suppress(UsageError):  # raised when it is written for the last time
                self._save()

    def _save(self) -> None:
        if self._path is not None and self._session.rows != self._rows:
            save_session(self._session, self._path)
            self._rows = self._session.rows


def report_news(session: Session, reported: tuple[int, int, int], say: Callable[[str], None]) -> tuple[int, int, int]:
    """Say what was found after so many changes, lines and rows that were reported, and how many there are now."""
    changes, lines, rows = reported
    for change in session.changes[changes:]:
        say(f"the data changed at row {change['row']:,}")
    for fault in (*session.unread.first[lines:], *session.left_out.first[rows:]):
        say(f"left out: {fault}")
    return len(session.changes), len(session.unread.first), len(session.left_out.first)


def _summary(session: Session, waiting: list[pa.Table], state: Path | None) -> list[str]:
    error = session.errors()["smoothfbo"]
    name = "error rate" if session.schema.is_classification else "mean squared error"
    lines = [f"{session.rows:,} rows, {name} {error:.6g}"]
    lines += [note for note in session.notes if note not in session.schema.notes]
    if waiting:
        lines.append(f"{len(waiting):,} rows wait for their targets and are no part of what was learnt")
    bad = session.unread.count + session.left_out.count
    if bad:
        lines.append(f"{bad:,} rows were left out")
    if state is not None:
        lines.append(f"learner: {state}")
    return lines
