"""What the columns of a table hold, inferred from its first rows; then it is fixed."""

import re
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading.schema import (
    Column,
    Kind,
    Schema,
    class_name,
    converts,
    find_column,
    is_number,
    listed,
    shortened,
    slots_for,
)

compute: Any = pyarrow.compute  # its functions are made when it is imported

Task = Literal["regression", "classification"]
MOST_INFERRED_CLASSES = 10
MOSTLY_NEW = 0.9  # of the values of a column of text: names, of which hardly one comes again
FEWEST_NAMES = 100  # rows from which a column is seen to be of names
FEWEST_OF_A_CLASS = 5  # rows, on average, if integers are to be classes
GROUPS = r"\d{1,3}([,'’ \u00a0\u202f]\d{3})+(\.\d+)?|\d{1,3}([. \u00a0\u202f]\d{3})+,\d+"  # 1,234.5 or 1.234,5
MARKED = re.compile(rf"[+-]?[$€£¥]? ?[+-]?(\d+([.,]\d+)?|{GROUPS}) ?[%$€£¥]?")  # and 1,5 or 12% or $12 or 1 234


def infer_schema(
    first: pa.Table,
    *,
    target: str,
    time: str | None = None,
    task: Task | None = None,
    categorical: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
) -> Schema:
    """What the columns of the first rows hold. Types are those that pyarrow inferred or that the file declares."""
    names: list[str] = list(first.column_names)
    target = find_column(target, names, "target")
    for option, chosen in (("categorical", categorical), ("ignore", ignore), ("by", by)):
        for name in chosen:
            find_column(name, names, option)
    if target in ignore:
        raise UsageError(f"`ignore` {target} is the target, which cannot be left out.")
    for name in names:
        if name not in (*categorical, *ignore, *by):
            _refuse_mixed(first, name)
    notes: list[str] = []
    time = _time_column(first, target, time, (target, *by, *ignore), notes)
    columns = []
    for name in names:
        if name in ignore and name not in (target, time, *by):
            continue
        if name in by:
            columns.append(Column(name, "categorical"))
            continue
        is_feature = name not in (target, time, *categorical)
        if is_feature and _is_text(first.schema.field(name).type):
            note, is_left_out = _about_names(name, compute.drop_null(first[name].combine_chunks()))
            notes += note
            if is_left_out:
                continue
        kind = _kind(first.schema.field(name).type, name, "numeric" if name not in categorical else "categorical")
        slots = _slots(first[name]) if kind == "categorical" and name != target else 0
        columns.append(Column(name, kind, slots))
    kind = next(column.kind for column in columns if column.name == target)
    values = compute.drop_null(first[target].combine_chunks())
    task = _task(values, target, kind, task, first.num_rows, notes)
    is_classification = task == "classification"
    classes = len({class_name(value) for value in values.to_pylist()}) if is_classification else 0
    return Schema(tuple(columns), target, time, is_classification, classes, tuple(notes), by)


def _time_column(
    first: pa.Table, target: str, time: str | None, unused: tuple[str, ...], notes: list[str]
) -> str | None:
    """The column with times: the one that was asked for, or the only one. Adds notes on it, and on others."""
    names: list[str] = list(first.column_names)
    times = [name for name in names if _is_time(first.schema.field(name).type) and name not in unused]
    if time is not None:
        time = find_column(time, names, "time")
        if time == target:
            raise UsageError(f"`time` {time} is the target; they must be different columns.")
    elif len(times) == 1:
        time = times[0]
        notes.append(f"time: column {time!r}, which holds times")
    others = [name for name in times if name != time]
    if others:
        holds = "column" if len(others) == 1 else "columns"
        use = "`time` says which one is used" if time is None else f"`time` is {time!r}"
        notes.append(f"{holds} {listed(others)}: times, which are not used; {use}")
    return time


def _task(values: pa.Array, target: str, kind: Kind, task: Task | None, rows: int, notes: list[str]) -> Task:
    """The task that was asked for, or the one that the target suggests; then adds a note."""
    if kind == "time":
        raise UsageError(f"`target` {target} holds times; the target must be a number or a class.")
    is_text = kind == "categorical"
    if task is None:
        task = "classification" if is_text or _few_integers(values) else "regression"
        count = len(set(values.to_pylist()))
        reason = "text" if is_text else f"{count} different integers" if task == "classification" else "numbers"
        notes.append(f"task: {task}, because {target!r} holds {reason} in the first {rows:,} rows")
    if task == "regression" and is_text:
        raise UsageError(
            f"`task` is regression, which needs numbers, but column {target!r} holds text such as "
            f"{shortened(str(values[0]))}."
        )
    return task


def _refuse_mixed(first: pa.Table, name: str) -> None:
    """A column that is text only because of marks in its numbers, or a few words among them: name the first."""
    if not _is_text(first.schema.field(name).type):
        return
    values = [(row, value) for row, value in enumerate(first[name].to_pylist()) if value is not None]
    words = [(row, value) for row, value in values if not converts(value, pa.float64())]
    if words and all(MARKED.fullmatch(value.strip()) for _, value in words):
        row, value = words[0]
        marks = re.sub(r"[0-9.+-]", "", value.strip())
        mark = "a comma" if "," in value else repr(marks[0])
        raise UsageError(
            f"row {row + 1}, column {name!r}: {shortened(value)} has {mark}; numbers have a decimal point and no "
            f"other mark, such as 1234.5; if they are labels, add {name!r} to `categorical`."
        )
    if words and len(words) < len(values) / 2:
        row, value = words[0]
        raise UsageError(
            f"row {row + 1}, column {name!r}: {shortened(value)} is not a number, but most values are; "
            f"if they are labels, add {name!r} to `categorical`."
        )


def _about_names(name: str, values: pa.Array) -> tuple[list[str], bool]:
    """Notes about a column of text in which hardly a value comes twice, and whether it is left out."""
    are_many = len(values) >= FEWEST_NAMES
    if len(values) < 3 or len(compute.unique(values)) < (MOSTLY_NEW if are_many else 1) * len(values):
        return [], False
    consequence = "it is left out, unless `categorical` names it" if are_many else "`ignore` leaves it out"
    return [
        f"column {name!r} holds text that differs from row to row and tells the learner nothing: {consequence}; times "
        "are read in forms like 2024-05-01 13:00"
    ], are_many


def _few_integers(values: pa.Array) -> bool:
    """Two integers, or a few of which each is seen often: else they are amounts, such as weights in kilograms."""
    distinct = set(values.to_pylist())
    is_few = len(distinct) <= 2 or len(distinct) <= min(MOST_INFERRED_CLASSES, len(values) / FEWEST_OF_A_CLASS)
    return len(distinct) > 0 and is_few and all(float(value).is_integer() for value in distinct)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def _kind(kind: pa.DataType, name: str, preferred: Kind) -> Kind:
    if _is_time(kind):
        return "time"
    if pa.types.is_null(kind) or is_number(kind):
        return preferred
    if pa.types.is_boolean(kind) or _is_text(kind):
        return "categorical"
    held = "times of day without a date" if pa.types.is_time(kind) else kind
    raise UsageError(
        f"column {name!r} holds {held}; allowed are numbers, text, true/false and times with a date; `ignore` leaves "
        "it out."
    )


def _is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)


def _slots(values: pa.ChunkedArray) -> int:
    """Twice the levels of the first rows, within bounds: shapes are fixed, and new levels may come."""
    return slots_for(len(compute.unique(compute.drop_null(values.combine_chunks()))))
