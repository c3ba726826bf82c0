"""Faults of values: infinite numbers, missing values where they are refused; each with its row and column."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading.schema import Schema, is_number

compute: Any = pyarrow.compute  # its functions are made when it is imported

MOST_NAMED = 10  # rows that were left out and are named
LARGEST = 1e100  # squares of numbers, and their sums, must be finite


@dataclass
class LeftOut:
    """Rows that were left out because something is wrong with them: how many, and what is wrong with the first ones."""

    is_allowed: bool = False
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, fault: UsageError) -> None:
        """One row more; raises the fault where nothing may be left out."""
        if not self.is_allowed:
            raise fault
        self.count += 1
        if len(self.first) < MOST_NAMED:
            self.first.append(str(fault))


def good_rows(
    table: pa.Table, schema: Schema, done: int, missing: str, source: str
) -> tuple[pa.Table, UsageError | None]:
    """The rows before the first fault, in uniform types, and the fault; `done` rows came before this table."""
    table = _uniform_types(table, schema)
    faults = []
    for column in schema.columns:
        values = table[column.name]
        if column.kind == "numeric":
            faults += _first(compute.is_inf(values), f"column {column.name!r}: an infinite value")
            large = compute.and_(compute.greater(compute.abs(values), LARGEST), compute.is_finite(values))
            faults += _first(large, f"column {column.name!r}: a value beyond ±{LARGEST:g}, whose square is too large")
        if missing == "error":
            faults += _first(compute.is_null(values), f"column {column.name!r}: a missing value (`missing` is error)")
        elif column.name == schema.time:
            faults += _first(compute.is_null(values), f"column {column.name!r}: a missing time")
        elif column.name in schema.by:
            faults += _first(
                compute.is_null(values), f"column {column.name!r}: a missing value, so the row is of no series"
            )
    if not faults:
        return table, None
    row, what = min(faults)
    return table.slice(0, row), UsageError(f"{source}, row {done + row + 1}, {what}.")


def _first(flags: pa.ChunkedArray, what: str) -> list[tuple[int, str]]:
    position = compute.index(flags, pa.scalar(True)).as_py()
    return [(position, what)] if position >= 0 else []


def _uniform_types(table: pa.Table, schema: Schema) -> pa.Table:
    columns = []
    for column in schema.columns:
        values = table[column.name]
        if column.kind == "numeric" and values.type != pa.float64():
            if not is_number(values.type) and not pa.types.is_null(values.type):
                raise UsageError(f"column {column.name!r} holds {values.type}, but held numbers before.")
            values = values.cast(pa.float64(), safe=False)
        elif column.kind == "categorical":
            values = _labels(values)
        if column.kind == "numeric" and compute.any(compute.is_nan(values)).as_py():
            values = compute.if_else(compute.is_nan(values), pa.scalar(None, pa.float64()), values)
        columns.append(values)
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def _labels(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """As text, the same from every kind of file: integers become 1.0 where a value is missing, and are 1 here."""
    if pa.types.is_boolean(values.type):
        return compute.if_else(values, "True", "False")  # as in a CSV file
    values = values if values.type == pa.string() else values.cast(pa.string())
    if compute.any(compute.match_substring(values, ".0")).as_py():
        values = compute.replace_substring_regex(values, r"^([+-]?[0-9]+)\.0+$", r"\1")
    return values
