"""The option `knobs`: other numbers for the problems. No jax here."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from smoothfbo.errors import UsageError
from smoothfbo.harness.requirements import did_you_mean
from smoothfbo.studies.arena.entries import ArenaProblem

KINDS = {int: "a whole number", float: "a number", str: "a word"}


def with_knobs(problems: Sequence[ArenaProblem], settings: Sequence[str]) -> tuple[ArenaProblem, ...]:
    """The problems with these settings, each NAME=VALUE for all that have it, or PROBLEM.NAME=VALUE for one."""
    result = {problem.name: problem for problem in problems}
    for setting in settings:
        target, sign, value = setting.partition("=")
        name, dot, knob = target.rpartition(".")
        if not (sign and knob and value and bool(name) == bool(dot)):
            raise UsageError(f"`knobs` must be NAME=VALUE or PROBLEM.NAME=VALUE, got {setting}.")
        if name:
            _require_known(setting, name, result, "a problem of this run")
        owners = [result[name]] if name else list(result.values())
        known = dict.fromkeys(each for problem in owners for each in problem.knobs)
        _require_known(setting, knob, known, f"a knob of {name or 'a problem of this run'}")
        for problem in owners:
            if knob in problem.knobs:
                number = _value(setting, type(problem.knobs[knob]), value)
                result[problem.name] = replace(problem, knobs={**problem.knobs, knob: number})
    return tuple(result.values())


def _require_known(setting: str, name: str, known: Iterable[str], what: str) -> None:
    names = list(known)
    if name not in names:
        allowed = f"one of {', '.join(names)}" if names else "there is none"
        raise UsageError(f"`knobs` {setting}: {name} is not {what}, {allowed}{did_you_mean(name, names)}.")


def _value(setting: str, kind: type, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"`knobs` {setting}: {text} is not {KINDS.get(kind, f'a {kind.__name__}')}.") from None
