"""Errors that the user can fix."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class UsageError(ValueError):
    """A wrong option, folder or file, as one sentence that names an option in backticks.

    The command line prints it, with options as flags, and exits with status 2.
    """


def as_flags(message: str, options: Collection[str]) -> str:
    """Errors name an option as Python does, in backticks; on the command line `outer_rate` is --outer-rate."""

    def flag(found: re.Match[str]) -> str:
        return "--" + found[1].replace("_", "-") if found[1] in options else found[0]

    return re.sub(r"`(\w+)`", flag, message)


class NotAvailable(ValueError):
    """What was asked for does not exist here, or nobody knows it; the sentence says which and why.

    A testbed raises it for a constant or a solution that is not known, a method of the arena on a problem to which it
    does not apply. It is an answer, not a failure: the arena shows a dash there.
    """


def renamed_attributes(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`: an old name gives one line with the new one.

    It is an ImportError, because `from module import name` would replace an AttributeError by one of its own.
    """

    def find(name: str) -> Any:
        if name in names:
            raise ImportError(f"{module}.{name} is called {names[name]} since version 1.0.")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return find


def refuse_keywords(owner: str, given: Mapping[str, Any], renamed: Mapping[str, str]) -> None:
    """Raise for keywords that `owner` does not have; an old one gives one line with what to write now."""
    for name in given:
        if name in renamed:
            raise TypeError(f"{owner} has no argument {name!r} since version 1.0: use {renamed[name]}.")
        raise TypeError(f"{owner} got an unexpected keyword argument {name!r}.")


def renamed_keywords(
    renamed: Mapping[str, str],
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Decorates functions whose required arguments have new names: an old keyword gives one line with the new one."""

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @wraps(function)
        def checked(*arguments: _Parameters.args, **keywords: _Parameters.kwargs) -> _Result:
            refuse_keywords(function.__name__, {name: None for name in keywords if name in renamed}, renamed)
            return function(*arguments, **keywords)

        return checked

    return decorate
