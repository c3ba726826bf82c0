"""One way to read all kinds of tables: names, the first rows, then checked portions."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading.faults import LeftOut, good_rows
from smoothfbo.stream.reading.inference import infer_schema
from smoothfbo.stream.reading.schema import Schema, check_names
from smoothfbo.stream.reading.text import TextTable

Missing = Literal["impute", "error"]
FIRST_ROWS = 1000  # from which the kinds of the columns, and the task, are inferred


@runtime_checkable
class Source(Protocol):
    """Where rows come from. `portions` raises a UsageError after everything before the fault was delivered."""

    name: str

    def first(self, rows: int, least: int) -> pa.Table:
        """The first rows, with inferred types; they are delivered by `portions` again.

        A slow source may give fewer than `rows`, but no fewer than `least` unless there are no more.
        """
        ...

    def portions(self, schema: Schema) -> Iterator[pa.Table]: ...

    def close(self) -> None: ...


class ParquetTable:
    """A Parquet file, read in portions of 65,536 rows."""

    def __init__(self, path: str):
        self.name = path
        try:
            self._file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise UsageError(f"{path} is not a Parquet file, or it is truncated: {_first_line(error)}.") from error
        check_names(list(self._file.schema_arrow.names), path)

    def first(self, rows: int, least: int) -> pa.Table:
        del least
        return next(self._read(rows), self._file.schema_arrow.empty_table())

    def portions(self, schema: Schema) -> Iterator[pa.Table]:
        names = [column.name for column in schema.columns]
        for table in self._read(65_536):
            yield table.select(names)

    def _read(self, rows: int) -> Iterator[pa.Table]:
        done = 0
        try:
            for batch in self._file.iter_batches(batch_size=rows):
                yield pa.Table.from_batches([batch])
                done += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise UsageError(f"{self.name} is damaged after row {done}: {_first_line(error)}.") from error

    def close(self) -> None:
        self._file.close()


class MemoryTable:
    """A table in memory: a sorted file, or a data frame."""

    def __init__(self, table: pa.Table, name: str):
        self.name, self._table = name, table
        check_names(table.column_names, name)

    def first(self, rows: int, least: int) -> pa.Table:
        del least
        return self._table.slice(0, rows)

    def portions(self, schema: Schema) -> Iterator[pa.Table]:
        table = self._table.select([column.name for column in schema.columns])
        for start in range(0, table.num_rows, 65_536):
            yield table.slice(start, 65_536)

    def close(self) -> None:
        """Nothing is open."""


def open_source(path: str, left_out: LeftOut | None = None) -> Source:
    """CSV, CSV.gz or Parquet by the file's name; `-` is CSV from standard input. `left_out` counts lines it skips."""
    if path != "-" and not Path(path).exists():
        raise UsageError(f"{path} does not exist.")
    if can_be_read_again(path) and Path(path).stat().st_size == 0:
        raise UsageError(f"{path} is empty.")
    is_parquet = Path(path).suffix.lower() in (".parquet", ".pq")
    return ParquetTable(path) if is_parquet and not Path(path).is_dir() else TextTable(path, left_out)


class OpenTable:
    """A table whose schema is known; iterate over its checked portions once."""

    def __init__(self, source: Source, schema: Schema, missing: Missing, left_out: LeftOut | None = None):
        self.source, self.schema, self.missing = source, schema, missing
        self.left_out = left_out or LeftOut()

    def __iter__(self) -> Iterator[pa.Table]:
        """Portions with numbers as float64, text as strings, and nothing infinite; faults name row and column.

        A portion ends before a row that is left out, so that `left_out` tells how many were left out before it.
        """
        done = 0
        with contextlib.closing(self.source):
            for portion in self.source.portions(self.schema):
                while portion.num_rows:
                    before = done + self.left_out.count
                    table, fault = good_rows(portion, self.schema, before, self.missing, self.source.name)
                    if table.num_rows:
                        yield table
                    done += table.num_rows
                    portion = portion.slice(table.num_rows + 1)
                    if fault is not None:
                        self.left_out.add(fault)

    def close(self) -> None:
        self.source.close()


def open_table(
    path: str,
    *,
    target: str,
    block: int,
    time: str | None = None,
    task: Literal["regression", "classification"] | None = None,
    categorical: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    missing: Missing = "impute",
    sort: bool = False,
    by: tuple[str, ...] = (),
    schema: Schema | None = None,
    skip: bool = False,
) -> OpenTable:
    """Open a table of at least `block` rows. Its schema is inferred from the first rows, or that of a table before.

    `sort` holds the whole file in memory to sort it by `time`; `skip` leaves rows out that cannot be read.
    """
    left_out = LeftOut(skip)
    source = open_source(path, left_out)
    choices = {"target": target, "time": time, "task": task, "categorical": categorical, "ignore": ignore, "by": by}
    try:
        # Where the columns are known already, standard input need not be waited for.
        is_slow = schema is not None and not can_be_read_again(path)
        first = source.first(*(1, 1) if is_slow else (FIRST_ROWS, block))
        if schema is not None:
            _check_same_columns(schema, first.column_names, source.name)
            known = OpenTable(source, schema, missing, left_out)
            return OpenTable(_in_order(known), schema, missing, left_out) if sort else known
        if first.num_rows == 0:
            raise UsageError(f"{source.name} has a header and no rows.")
        inferred = infer_schema(first, **choices)
        if sort:
            source = _in_order(OpenTable(source, inferred, missing, left_out))
            first = source.first(FIRST_ROWS, block)  # other rows are first now
            inferred = infer_schema(first, **{**choices, "time": inferred.time, "ignore": ()})
        if first.num_rows < block:
            raise UsageError(
                f"{source.name} has {_rows(first.num_rows)}, fewer than one block of {block}; choose a smaller `block`."
            )
    except UsageError:
        source.close()
        raise
    return OpenTable(source, inferred, missing, left_out)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _in_order(table: OpenTable) -> MemoryTable:
    """The whole table in memory, sorted by its time column."""
    time, name = table.schema.time, table.source.name
    if name == "standard input" or time is None:
        raise UsageError("`sort` needs a file and a time column (`time`); standard input cannot be sorted.")
    return MemoryTable(pa.concat_tables(table).sort_by(time), name)


def can_be_read_again(path: str) -> bool:
    """A file, and not standard input or a pipe, whose rows are gone once they were read."""
    return path != "-" and Path(path).is_file()


def _check_same_columns(schema: Schema, names: list[str], source: str) -> None:
    expected = [column.name for column in schema.columns]
    for name in expected:
        if name not in names:
            raise UsageError(f"{source} has no column {name!r}, which the saved learner was trained with.")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
