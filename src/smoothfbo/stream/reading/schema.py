"""Which columns a table has and what they hold; inferred from its first rows, then fixed."""

import difflib
import re
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute

from smoothfbo.errors import UsageError

compute: Any = pyarrow.compute  # its functions are made when it is imported

Kind = Literal["numeric", "categorical", "time"]
MOST_LEVELS = 20  # of a column that get a feature each
FEWEST_SLOTS = 8  # of a column that has fewer levels in the first rows: new ones may come
MOST_INFERRED_CLASSES = 10
MOSTLY_NEW = 0.9  # of the values of a column of text: names, of which hardly one comes again
FEWEST_NAMES = 100  # rows from which a column is seen to be of names
FEWEST_OF_A_CLASS = 5  # rows, on average, if integers are to be classes
GROUPS = r"\d{1,3}([,'’ \u00a0\u202f]\d{3})+(\.\d+)?|\d{1,3}([. \u00a0\u202f]\d{3})+,\d+"  # 1,234.5 or 1.234,5
MARKED = re.compile(rf"[+-]?[$€£¥]? ?[+-]?(\d+([.,]\d+)?|{GROUPS}) ?[%$€£¥]?")  # and 1,5 or 12% or $12 or 1 234


@dataclass(frozen=True)
class Column:
    """A column and, if it is categorical, how many levels get a feature each, as they come; all others share one."""

    name: str
    kind: Kind
    slots: int = 0


@dataclass(frozen=True)
class Schema:
    """`columns` are all columns of the table in their order; `notes` says what was inferred."""

    columns: tuple[Column, ...]
    target: str
    time: str | None
    is_classification: bool
    classes: int  # how many there are in the first rows; 0 in regression
    notes: tuple[str, ...]
    by: tuple[str, ...] = ()  # whose values say which series a row is of

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @property
    def features(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.name not in (self.target, self.time, *self.by))


def check_names(names: list[str], source: str) -> None:
    if not names or names == [""]:
        raise UsageError(f"{source} has no header line with column names.")
    for character, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and character in names[0]:
            raise UsageError(f"{source}: columns must be separated by commas, but its header seems to use {called}.")
    for position, name in enumerate(names):
        if name in names[:position]:
            raise UsageError(
                f"{source}: column {name!r} appears twice (columns {names.index(name) + 1} and {position + 1}); "
                "names must differ."
            )


def find_column(name: str, names: list[str], option: str) -> str:
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    near = near or difflib.get_close_matches(name.lower(), [other.lower() for other in names], n=1, cutoff=0.5)
    near = [other for other in names if near and other.lower() == near[0].lower()]
    hint = f"did you mean {near[0]!r}?" if near else f"there are {_list(names)}."
    raise UsageError(f"`{option}` {name}: no such column; {hint}")


def infer_schema(
    first: pa.Table,
    *,
    target: str,
    time: str | None = None,
    task: Literal["regression", "classification"] | None = None,
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
    notes = []
    unused = (target, *by, *ignore)
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
        notes.append(f"{holds} {_list(others)}: times, which are not used; {use}")

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

    values = compute.drop_null(first[target].combine_chunks())
    is_text = next(column for column in columns if column.name == target).kind == "categorical"
    if next(column for column in columns if column.name == target).kind == "time":
        raise UsageError(f"`target` {target} holds times; the target must be a number or a class.")
    if task is None:
        task = "classification" if is_text or _few_integers(values) else "regression"
        count = len(set(values.to_pylist()))
        reason = "text" if is_text else f"{count} different integers" if task == "classification" else "numbers"
        notes.append(f"task: {task}, because {target!r} holds {reason} in the first {first.num_rows:,} rows")
    if task == "regression" and is_text:
        raise UsageError(
            f"`task` is regression, which needs numbers, but column {target!r} holds text such as "
            f"{shortened(str(values[0]))}."
        )
    classes = 0
    if task == "classification":
        classes = len({class_name(value) for value in values.to_pylist()})
        columns = [Column(c.name, "categorical") if c.name == target and is_text else c for c in columns]
    return Schema(tuple(columns), target, time, task == "classification", classes, tuple(notes), by)


def class_name(value: object) -> str:
    """Classes are text; 1, 1.0 and "1" are the same class."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


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


def slots_for(levels: int) -> int:
    return min(max(2 * levels, FEWEST_SLOTS), MOST_LEVELS)


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


def _list(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def converts(value: str, kind: pa.DataType) -> bool:
    """Whether a text can be read as a value of this type."""
    if pa.types.is_string(kind):
        return True
    try:
        pa.scalar(value.strip(" \t")).cast(kind)
    except pa.ArrowException:
        return False
    return True


def shortened(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:40] + "…")


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
