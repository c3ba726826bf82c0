"""Checks of options: one sentence that names the option, its value and what is allowed."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from smoothfbo.errors import UsageError


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raise unless the condition holds. The command line turns a name in backticks into its flag."""
    if not condition:
        raise UsageError(f"`{name}` must be {allowed}, got {value}.")


def require_rising(name: str, values: tuple[Any, ...]) -> None:
    """Different values in rising order, at least one."""
    require(len(values) > 0, name, "nothing", "at least one value")
    rising = list(values) == sorted(set(values))
    require(rising, name, " ".join(map(str, values)), "different values in rising order")


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """A question about the known word that is most like this one, if any is."""
    close = get_close_matches(value, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def require_known(name: str, values: tuple[str, ...], known: tuple[str, ...], how_many: str = "one or more") -> None:
    """Words of a list, each once."""
    allowed = f"{how_many} of {', '.join(known)}"
    require(len(values) > 0, name, "nothing", allowed)
    for value in values:
        require(value in known, name, f"{value}{did_you_mean(value, known)}", allowed)
    require(len(set(values)) == len(values), name, " ".join(values), "a list without repetitions")
