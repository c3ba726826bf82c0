"""Lines of CSV as a table: a fast parser for whole portions, and a careful search for the row and column of a fault."""

import contextlib
import csv
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as arrow_csv

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading.schema import shortened

compute: Any = pyarrow.compute  # its functions are made when it is imported

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
SLASHED = r"^ *\d{4}/\d{2}/\d{2}( |$)"  # 2024/05/01: the year first, so day and month cannot be mixed up
WORD_HINT = " (`on_error` skip leaves out such rows; `categorical` names columns of labels)"


class Parser:
    """Parses lines with these columns; `source` is named in faults, and `skips_faults` says what to advise there."""

    def __init__(self, names: list[str], source: str, skips_faults: bool):
        self.names, self.source, self.skips_faults = names, source, skips_faults
        self.slashed: set[str] = set()  # columns of times with slashes

    def until_fault(
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
        fault = None if what is None else UsageError(f"{self.source}, row {done + good + 1}{what}.")
        if not good:
            return self._empty(types), fault, rest
        return self._parse(b"".join(lines[:good]), types), fault, rest

    def has_all_fields(self, line: bytes) -> bool:
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
        slashed = [name for name in types if name in self.slashed and pa.types.is_timestamp(types[name])]
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
                hint = "" if self.skips_faults else WORD_HINT
                return f", column {name!r}: {shortened(value)} is not a number{hint}"
        return ": it cannot be read as a row of the table"

    def with_slashed_times(self, table: pa.Table) -> pa.Table:
        """Columns of text all of which is times with slashes, as times; others stay."""
        for name in table.column_names:
            values = compute.drop_null(table[name])
            if not pa.types.is_string(values.type) or not len(values):
                continue
            if compute.all(compute.match_substring_regex(values, SLASHED)).as_py():
                with contextlib.suppress(pa.ArrowException):
                    table = _with_column(table, name, _without_slashes(table[name], pa.timestamp("us")))
                    self.slashed.add(name)
        return table


def header_fields(line: bytes, source: str) -> list[str]:
    """The names of the columns."""
    line = line.rstrip(b"\r")
    try:
        return next(csv.reader([line.decode("utf-8")], strict=True))
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}, line 1: the header is not UTF-8 text.") from error
    except csv.Error as error:
        is_old = b"\r" in line
        what = "lines must end with newlines, not with carriage returns alone" if is_old else "a quote is not closed"
        raise UsageError(f"{source}, line 1: the header cannot be read: {what}.") from error


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


def _with_column(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def _without_slashes(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return compute.replace_substring(compute.utf8_trim_whitespace(values), "/", "-").cast(kind)
