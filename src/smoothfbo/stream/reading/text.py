"""CSV text: a fast parser for whole portions, and a careful one that finds the row and column of a fault."""

import csv
import io
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading.lines import open_bytes, whole_lines
from smoothfbo.stream.reading.schema import Schema, check_names, converts, shortened

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")


class TextTable:
    """A CSV file, packed or not, or standard input: a header line, then one row a line."""

    def __init__(self, path: str):
        self.name = "standard input" if path == "-" else path
        self._file = open_bytes(path)
        self._lines = whole_lines(self._file, self.name)
        self._waiting: list[bytes] = []  # read for `first`, to be delivered again
        self._types: dict[str, pa.DataType] = {}
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

    def first(self, rows: int) -> pa.Table:
        """Waits for the first rows and infers the types of the columns from them alone."""
        have = sum(_count_rows(portion) for portion in self._waiting)
        while have < rows:
            portion = next(self._lines, None)
            if portion is None:
                break
            self._waiting.append(portion)
            have += _count_rows(portion)
        text = _first_lines(b"".join(self._waiting), rows)
        if not text.strip():
            return pa.table({name: pa.nulls(0) for name in self.names})
        good, fault = self._before_fault(text, 0, {})
        if fault is not None:
            raise fault
        table = self._parse(good, {})
        self._types = {name: table.schema.field(name).type for name in self.names}
        return table

    def portions(self, schema: Schema) -> Iterator[pa.Table]:
        types = {column.name: self._type(column.name, column.kind) for column in schema.columns}
        done = 0
        for portion in self._all_lines():
            if not portion.strip():
                continue
            table, fault = self._careful(portion, done, types)
            if table.num_rows:
                yield table
            if fault is not None:
                raise fault
            done += table.num_rows

    def _all_lines(self) -> Iterator[bytes]:
        yield from self._waiting
        self._waiting = []
        yield from self._lines

    def _type(self, name: str, kind: str) -> pa.DataType:
        inferred = self._types.get(name)
        if kind == "time" and inferred is not None and not pa.types.is_null(inferred):
            return inferred
        return {"numeric": pa.float64(), "categorical": pa.string(), "time": pa.timestamp("us")}[kind]

    def _careful(self, text: bytes, done: int, types: dict[str, pa.DataType]) -> tuple[pa.Table, UsageError | None]:
        """All rows of a portion, or those before its first fault, and the fault."""
        if not _quotes_are_closed(text):
            text, fault = self._before_fault(text, done, types)
        else:
            try:
                return self._parse(text, types), None
            except (pa.ArrowException, UnicodeError) as error:
                text, fault = self._before_fault(text, done, types)
                reason = (str(error).strip().splitlines() or ["not a table"])[0]
                fault = fault or UsageError(f"{self.name}, after row {done}: {reason}.")
        if not text.strip():
            return pa.table({name: pa.nulls(0, kind) for name, kind in types.items()}), fault
        return self._parse(text, types), fault

    def _parse(self, text: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        # Without threads of its own: a process that ended soon after they had begun was sometimes aborted.
        return arrow_csv.read_csv(
            io.BytesIO(text),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, column_names=self.names, block_size=max(len(text), 1) + 1
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=list(MISSING),
                strings_can_be_null=True,
            ),
        )

    def _before_fault(self, text: bytes, done: int, types: dict[str, pa.DataType]) -> tuple[bytes, UsageError | None]:
        """Line by line, as Python reads CSV: the text before the first faulty line, and what is wrong with it."""
        end, row = 0, done
        for line in text.splitlines(keepends=True):
            if line.strip():
                row += 1
                what = self._fault_of_line(line, types)
                if what:
                    return text[:end], UsageError(f"{self.name}, row {row}{what}.")
            end += len(line)
        return text, None

    def _fault_of_line(self, line: bytes, types: dict[str, pa.DataType]) -> str | None:
        try:
            values = next(csv.reader([line.decode("utf-8")], strict=True))
        except UnicodeDecodeError:
            return ": not UTF-8 text"
        except csv.Error:
            return ": a quote that is not closed on its line"
        if len(values) > len(self.names):
            return f": {len(values)} values for {len(self.names)} columns; a column appeared"
        if len(values) < len(self.names):
            missing = self.names[len(values)]
            return f", column {missing!r}: no value; {len(values)} values for {len(self.names)} columns"
        for name, value in zip(self.names, values, strict=True):
            if name in types and value not in MISSING and not converts(value, types[name]):
                expected = "a number" if pa.types.is_floating(types[name]) else "a time"
                return f", column {name!r}: {shortened(value)} is not {expected}"
        return None


def _fields(line: bytes, name: str) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8").rstrip("\r")], strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{name}, line 1: the header cannot be read: {error}.") from error


def _count_rows(text: bytes) -> int:
    return sum(1 for line in text.splitlines() if line.strip()) if text else 0


def _first_lines(text: bytes, rows: int) -> bytes:
    kept = []
    for line in io.BytesIO(text):
        if line.strip():
            kept.append(line)
        if len(kept) == rows:
            break
    return b"".join(kept)


def _quotes_are_closed(text: bytes) -> bool:
    """Whether every line has an even number of quotes: a quoted value must not go on in the next line."""
    if b'"' not in text:
        return True
    characters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    line = np.searchsorted(ends, np.flatnonzero(characters == ord('"')))
    return bool((np.bincount(line) % 2 == 0).all())
