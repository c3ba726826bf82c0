"""A text file, or standard input, as a table: its header, the types of its first rows, and portions as they come."""

import contextlib
import io
import select
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading.faults import LeftOut
from smoothfbo.stream.reading.lines import open_bytes, whole_lines
from smoothfbo.stream.reading.parsing import Parser, header_fields
from smoothfbo.stream.reading.schema import Schema, check_names, converts

LINES_OF_A_PART = 256
PATIENCE = 1.0  # seconds that standard input has for more than the first rows


class TextTable:
    """A CSV file, packed or not, or standard input: a header line, then one row a line."""

    def __init__(self, path: str, left_out: LeftOut | None = None):
        self.name = "standard input" if path == "-" else path
        self.left_out = left_out or LeftOut()
        self._file = open_bytes(path)
        self._lines = whole_lines(self._file, self.name)
        self._waiting: list[bytes] = []  # read for `first`, to be delivered again
        self._fault: UsageError | None = None  # that was met while `first` read on
        self._types: dict[str, pa.DataType] = {}
        try:
            self.names = header_fields(self._header(), self.name)
            check_names(self.names, self.name)
            self._parser = Parser(self.names, self.name, self.left_out.is_allowed)
        except UsageError:
            self.close()
            raise

    def close(self) -> None:
        if self._file is not sys.stdin.buffer:
            self._file.close()

    def _header(self) -> bytes:
        portion = next(self._lines, b"").removeprefix(b"\xef\xbb\xbf")
        if not portion.strip():
            raise UsageError(f"{self.name} is empty.")
        header, _, rest = portion.partition(b"\n")
        self._waiting = [rest] if rest else []
        return header

    def first(self, rows: int, least: int) -> pa.Table:
        """The first `rows`, from which the types of the columns are inferred; at least `least` are waited for.

        A file is read as far as needed. Standard input may be slow: of it, what comes within a second is used.
        """
        have = sum(_count_rows(portion) for portion in self._waiting)
        deadline = time.monotonic() + PATIENCE
        while have < rows:
            if have >= least and self._file is sys.stdin.buffer and not _has_more(self._file, deadline):
                break
            try:
                portion = next(self._lines, None)
            except UsageError as error:
                if have < least:
                    raise
                self._fault = error
                break
            if portion is None:
                break
            self._waiting.append(portion)
            have += _count_rows(portion)
        text = _first_lines(b"".join(self._waiting), rows)
        if self.left_out.is_allowed:
            text = b"".join(line for line in text.splitlines(keepends=True) if self._parser.has_all_fields(line))
            least = 0
        if not text.strip():
            return pa.table({name: pa.nulls(0) for name in self.names})
        table, fault, _ = self._parser.until_fault(text, 0, {})
        if fault is not None and table.num_rows < least:
            raise fault
        table = _with_late_words(self._parser.with_slashed_times(table), least)
        self._types = {name: table.schema.field(name).type for name in self.names}
        return table

    def portions(self, schema: Schema) -> Iterator[pa.Table]:
        types = {column.name: self._type(column.name, column.kind) for column in schema.columns}
        done = 0
        for portion in self._all_lines():
            parts = [portion]
            while parts:
                part = parts.pop(0)
                if not part.strip():
                    continue
                table, fault, rest = self._parser.until_fault(part, done, types)
                if table.num_rows:
                    yield table
                done += table.num_rows
                if fault is not None:
                    self.left_out.add(fault)
                    done += 1
                    parts = [*_in_small_parts(rest), *parts]

    def _all_lines(self) -> Iterator[bytes]:
        yield from self._waiting
        self._waiting = []
        if self._fault is not None:
            raise self._fault
        yield from self._lines

    def _type(self, name: str, kind: str) -> pa.DataType:
        inferred = self._types.get(name)
        if kind == "time" and inferred is not None and pa.types.is_timestamp(inferred):
            # Seconds may get fractions later.
            return inferred if inferred.unit == "ns" else pa.timestamp("us", inferred.tz)
        return {"numeric": pa.float64(), "categorical": pa.string(), "time": pa.timestamp("us")}[kind]


def _with_late_words(table: pa.Table, least: int) -> pa.Table:
    """A column of numbers, or times, in which a word comes later is one of numbers: the rows before it can be used."""
    for position, name in enumerate(table.column_names):
        if not pa.types.is_string(table.schema.field(name).type):
            continue
        values = table[name].to_pylist()
        for kind in (pa.float64(), pa.timestamp("us")):
            is_word = [value is not None and not converts(value, kind) for value in values]
            words = sum(is_word)
            if 0 < words < (len(values) - table[name].null_count) / 2 and is_word.index(True) >= least:
                # Spaces around a number are no part of it, as where a whole column is parsed.
                good = [
                    None if word or value is None else value.strip(" \t")
                    for value, word in zip(values, is_word, strict=True)
                ]
                table = table.set_column(position, name, pa.array(good, pa.string()).cast(kind))
                break
    return table


def _has_more(file: Any, deadline: float) -> bool:
    """Whether something comes in before the deadline; False where that cannot be known."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        ready, _, _ = select.select([file.fileno()], [], [], max(deadline - time.monotonic(), 0))
        return bool(ready)
    return False


def _count_rows(text: bytes) -> int:
    return sum(1 for line in text.splitlines() if line.strip()) if text else 0


def _in_small_parts(text: bytes) -> list[bytes]:
    """Where one line is bad there may be more; each is searched for among few lines."""
    lines = text.splitlines(keepends=True)
    return [b"".join(lines[at : at + LINES_OF_A_PART]) for at in range(0, len(lines), LINES_OF_A_PART)]


def _first_lines(text: bytes, rows: int) -> bytes:
    kept = []
    for line in io.BytesIO(text):
        if line.strip():
            kept.append(line)
        if len(kept) == rows:
            break
    return b"".join(kept)
