"""CSV text: a fast parser for whole portions, and a careful one that finds the row and column of a fault."""

import contextlib
import csv
import io
import select
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as arrow_csv

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading.faults import LeftOut
from smoothfbo.stream.reading.lines import open_bytes, whole_lines
from smoothfbo.stream.reading.schema import Schema, check_names, converts, shortened

compute: Any = pyarrow.compute  # its functions are made when it is imported

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
SLASHED = r"^ *\d{4}/\d{2}/\d{2}( |$)"  # 2024/05/01: the year first, so day and month cannot be mixed up
WORD_HINT = " (`on_error` skip leaves out such rows; `categorical` names columns of labels)"
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
        self._slashed: set[str] = set()  # columns of times with slashes
        try:
            self.names = _fields(self._header(), self.name)
            check_names(self.names, self.name)
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
            text = b"".join(line for line in text.splitlines(keepends=True) if self._has_all_fields(line))
            least = 0
        if not text.strip():
            return pa.table({name: pa.nulls(0) for name in self.names})
        table, fault, _ = self._parse_until_fault(text, 0, {})
        if fault is not None and table.num_rows < least:
            raise fault
        table = _with_late_words(self._with_slashed_times(table), least)
        self._types = {name: table.schema.field(name).type for name in self.names}
        return table

    def _with_slashed_times(self, table: pa.Table) -> pa.Table:
        """Columns of text all of which is times with slashes, as times; others stay."""
        for name in table.column_names:
            values = compute.drop_null(table[name])
            if not pa.types.is_string(values.type) or not len(values):
                continue
            if compute.all(compute.match_substring_regex(values, SLASHED)).as_py():
                with contextlib.suppress(pa.ArrowException):
                    table = _with_column(table, name, _without_slashes(table[name], pa.timestamp("us")))
                    self._slashed.add(name)
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
                table, fault, rest = self._parse_until_fault(part, done, types)
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

    def _parse_until_fault(
        self, text: bytes, done: int, types: dict[str, pa.DataType]
    ) -> tuple[pa.Table, UsageError | None, bytes]:
        """All rows of a portion, or those before its first fault, the fault, and the lines after it."""
        end, what = _broken_line(text)
        if what is None:
            with contextlib.suppress(pa.ArrowException):
                return self._parse(text, types), None, b""
        lines = [line for line in text[:end].splitlines(keepends=True) if line.strip()]
        good = self._good_lines(lines, types)
        rest = text[end:].partition(b"\n")[2]
        if good < len(lines):
            what = self._fault_of_line(lines[good], types)
            rest = b"".join(lines[good + 1 :]) + text[end:]
        fault = None if what is None else UsageError(f"{self.name}, row {done + good + 1}{what}.")
        if not good:
            return self._empty(types), fault, rest
        return self._parse(b"".join(lines[:good]), types), fault, rest

    def _has_all_fields(self, line: bytes) -> bool:
        """Whether a line can be a row at all: text with as many values as there are columns."""
        try:
            return len(next(csv.reader([line.decode("utf-8")], strict=True), [])) == len(self.names)
        except (UnicodeDecodeError, csv.Error):
            return False

    def _good_lines(self, lines: list[bytes], types: dict[str, pa.DataType]) -> int:
        """How many lines can be parsed together, by bisection: the parser that failed decides, and no other."""
        if not lines:
            return 0
        low, high = 0, len(lines)  # `low` lines can be parsed
        while low < high:
            middle = (low + high + 1) // 2
            try:
                self._parse(b"".join(lines[:middle]), types)
                low = middle
            except pa.ArrowException:
                high = middle - 1
        return low

    def _empty(self, types: dict[str, pa.DataType]) -> pa.Table:
        return pa.table({name: pa.nulls(0, types.get(name, pa.null())) for name in types or self.names})

    def _parse(self, text: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        slashed = [name for name in types if name in self._slashed and pa.types.is_timestamp(types[name])]
        # Without threads of its own: a process that ended soon after they had begun was sometimes aborted.
        table = arrow_csv.read_csv(
            io.BytesIO(text),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, column_names=self.names, block_size=max(len(text), 1) + 1
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types={**types, **dict.fromkeys(slashed, pa.string())},
                include_columns=list(types),
                null_values=list(MISSING),
                strings_can_be_null=True,
                # Else True is read as a truth value here and as text there, and is not the same level.
                true_values=[],
                false_values=[],
            ),
        )
        for name in slashed:
            table = _with_column(table, name, _without_slashes(table[name], types[name]))
        return table

    def _fault_of_line(self, line: bytes, types: dict[str, pa.DataType]) -> str:
        try:
            values = next(csv.reader([line.decode("utf-8")], strict=True))
        except csv.Error:
            return ": a quote that is not closed on its line"
        if len(values) > len(self.names):
            return f": {len(values)} values for {len(self.names)} columns; a column appeared"
        if len(values) < len(self.names):
            missing = self.names[len(values)]
            return f", column {missing!r}: no value; {len(values)} values for {len(self.names)} columns"
        for name, value in zip(self.names, values, strict=True):
            if name not in types:
                continue
            try:
                self._parse(line, {name: types[name]})
            except pa.ArrowException:
                if not pa.types.is_floating(types[name]):
                    return f", column {name!r}: {shortened(value)} is not a time"
                hint = "" if self.left_out.is_allowed else WORD_HINT
                return f", column {name!r}: {shortened(value)} is not a number{hint}"
        return ": it cannot be read as a row of the table"


def _broken_line(text: bytes) -> tuple[int, str | None]:
    """Where the first line begins that is not text or whose quotes are not closed, and what is wrong with it."""
    end, what = len(text), None
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        end, what = text.rfind(b"\n", 0, error.start) + 1, ": not UTF-8 text"
    if b'"' not in text[:end]:
        return end, what
    # A quoted value must not go on in the next line: every line has an even number of quotes.
    characters = np.frombuffer(text, np.uint8)[:end]
    ends = np.flatnonzero(characters == ord("\n"))
    quotes = np.bincount(np.searchsorted(ends, np.flatnonzero(characters == ord('"'))))
    odd = np.flatnonzero(quotes % 2)
    if len(odd):
        end, what = int(ends[odd[0] - 1]) + 1 if odd[0] else 0, ": a quote that is not closed on its line"
    return end, what


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


def _with_column(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def _without_slashes(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return compute.replace_substring(compute.utf8_trim_whitespace(values), "/", "-").cast(kind)


def _has_more(file: Any, deadline: float) -> bool:
    """Whether something comes in before the deadline; False where that cannot be known."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        ready, _, _ = select.select([file.fileno()], [], [], max(deadline - time.monotonic(), 0))
        return bool(ready)
    return False


def _fields(line: bytes, name: str) -> list[str]:
    line = line.rstrip(b"\r")
    try:
        return next(csv.reader([line.decode("utf-8")], strict=True))
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}, line 1: the header is not UTF-8 text.") from error
    except csv.Error as error:
        is_old = b"\r" in line
        what = "lines must end with newlines, not with carriage returns alone" if is_old else "a quote is not closed"
        raise UsageError(f"{name}, line 1: the header cannot be read: {what}.") from error


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
