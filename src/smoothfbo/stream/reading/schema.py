"""Which columns a table has and what they hold."""

import difflib
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from smoothfbo.errors import UsageError

Kind = Literal["numeric", "categorical", "time"]
MOST_LEVELS = 20  # of a column that get a feature each
FEWEST_SLOTS = 8  # of a column that has fewer levels in the first rows: new ones may come


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
    hint = f"did you mean {near[0]!r}?" if near else f"there are {listed(names)}."
    raise UsageError(f"`{option}` {name}: no such column; {hint}")


def class_name(value: object) -> str:
    """Classes are text; 1, 1.0 and "1" are the same class."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def slots_for(levels: int) -> int:
    return min(max(2 * levels, FEWEST_SLOTS), MOST_LEVELS)


def listed(names: list[str]) -> str:
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
