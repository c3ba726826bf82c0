"""The tables of a stream's run: written in parts while it runs, joined at its end."""

import contextlib
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from smoothfbo.errors import UsageError
from smoothfbo.harness import store

TABLES = ("predictions", "blocks")
ROWS_AT_ONCE = 65_536  # of a table that is written
SNAPSHOT_SHARE = 0.02  # of the time may go into snapshots


class StreamFolder:
    """Takes what a run produces; predictions.parquet and blocks.parquet appear, complete, when it is closed.

    with StreamFolder(folder) as sink:
        results = run_stream(config, sink)

    Until then, parts are in `progress/`. A snapshot closes a part and saves the learner beside it: a run that is killed
    resumes there, and what was written after it is written again.
    """

    def __init__(self, folder: Path):
        self.folder, self.progress = folder, folder / "progress"
        self._part = _newest(self.progress)
        self._writers: dict[str, TableWriter] = {}
        self._saved, self._cost = time.monotonic(), 0.0
        self._is_joined = False

    @property
    def snapshot(self) -> Path | None:
        """The newest learner that was saved, if there is one."""
        return self._state(self._part) if self._part else None

    def predictions(self, table: pa.Table) -> None:
        self._write("predictions", table)

    def blocks(self, table: pa.Table) -> None:
        self._write("blocks", table)

    def save_when_due(self, save: Callable[[Path], None]) -> None:
        """A snapshot, unless too much of the time would go into snapshots."""
        if time.monotonic() - self._saved > self._cost / SNAPSHOT_SHARE:
            self.save(save)

    def save(self, save: Callable[[Path], None]) -> None:
        """A snapshot: `save` writes the learner to the path it is given."""
        begin = time.monotonic()
        self._close_part()
        store.prepare(self.progress)
        former, self._part = self._part, self._part + 1
        save(self._state(self._part))
        if former:
            self._state(former).unlink(missing_ok=True)
        self._saved = time.monotonic()
        self._cost = self._saved - begin

    def join(self) -> None:
        """The whole tables, from their parts; the parts stay until the end."""
        self._close_part()
        for name in TABLES:
            whole = TableWriter(self.folder / f"{name}.parquet")
            for part in sorted(self.progress.glob(f"{name}-*.parquet")):
                with pq.ParquetFile(part) as file:
                    for batch in file.iter_batches(ROWS_AT_ONCE):
                        whole.write(pa.Table.from_batches([batch]))
            whole.close()
        self._is_joined = True

    def __enter__(self) -> "StreamFolder":
        for path in self.progress.glob("*.parquet"):
            if _number(path) > self._part:  # written after the snapshot
                path.unlink()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for writer in self._writers.values():
                writer.drop()
            return
        if not self._is_joined:
            self.join()
        shutil.rmtree(self.progress, ignore_errors=True)

    def _write(self, name: str, table: pa.Table) -> None:
        if name not in self._writers:
            store.prepare(self.progress)
            self._writers[name] = TableWriter(self.progress / f"{name}-{self._part + 1:06d}.parquet")
        self._writers[name].write(table)

    def _close_part(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _state(self, part: int) -> Path:
        return self.progress / f"learner-{part:06d}.state"


class TableWriter:
    """A Parquet file to which tables of any size are appended; it appears, complete, when it is closed.

    It is written by a thread of its own, while the next rows are learnt.
    """

    def __init__(self, path: Path):
        self.path, self._partial = path, store.partial_path(path)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._rows = 0  # that wait
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None  # the tables before, at most one at a time

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows >= ROWS_AT_ONCE:
            self._write_waiting()

    def close(self) -> None:
        try:
            self._write_waiting()
            self._wait()
            if self._writer is not None:
                self._writer.close()
                store.publish(self._partial, self.path)
        except OSError as error:
            raise self._fault(error) from error
        finally:
            self._thread.shutdown()

    def drop(self) -> None:
        """Give the file up."""
        self._thread.shutdown()
        with contextlib.suppress(OSError):  # a full disk, perhaps: what is given up need not be written
            if self._writer is not None:
                self._writer.close()
            self._partial.unlink(missing_ok=True)

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        try:
            table = pa.concat_tables(self._waiting)
            self._wait()
            if self._writer is None:
                # Numbers hardly repeat: dictionaries would cost time and save nothing.
                text: Any = [field.name for field in table.schema if pa.types.is_string(field.type)]
                self._writer = pq.ParquetWriter(self._partial, table.schema, use_dictionary=text)
            self._writing = self._thread.submit(self._writer.write_table, table)
        except OSError as error:
            raise self._fault(error) from error
        self._waiting, self._rows = [], 0

    def _wait(self) -> None:
        """Until what was handed over is written."""
        if self._writing is not None:
            self._writing.result()

    def _fault(self, error: OSError) -> UsageError:
        return UsageError(f"{self.path} cannot be written: {store.reason(error)}.")


def _newest(progress: Path) -> int:
    """The part of the newest snapshot, 0 if there is none."""
    return max((_number(path) for path in progress.glob("learner-*.state")), default=0)


def _number(path: Path) -> int:
    return int(path.stem.split("-")[1])
