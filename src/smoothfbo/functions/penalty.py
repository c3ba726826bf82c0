"""Penalties R(θ) and R(θ, λ) on the parameters of a function."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from smoothfbo import checks


class PenaltyAt(eqx.Module):
    """R(·, λ): a penalty with the outer variable filled in."""

    penalty: Callable[[PyTree, PyTree], Float[Array, ""]]
    outer: PyTree

    def __call__(self, params: PyTree) -> Float[Array, ""]:
        return self.penalty(params, self.outer)


def takes_outer(penalty: Callable[..., Any]) -> bool:
    """Whether a penalty is a function of (params, outer) rather than of (params); anything else is refused."""
    required = required_arguments(penalty)
    if required not in (1, 2):
        raise TypeError(
            "penalty must be a function of (params), or of (params, outer) where it depends on the outer variable; "
            f"got one of {required} arguments, {penalty!r}."
        )
    if required == 1 and _has_default(penalty, "outer"):
        raise TypeError(
            f"penalty has a default for outer, so λ would never reach it: write (params, outer), got {penalty!r}."
        )
    if required == 2:
        checks.require_arguments(penalty, "penalty", "params", "outer")
    return required == 2


def required_arguments(function: Callable[..., Any]) -> int:
    """How many positional arguments without a default a function takes; 1 if it does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some built-in functions
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


def _has_default(function: Callable[..., Any], name: str) -> bool:
    """Whether an argument by position may be left out; one that `functools.partial` has filled in is none any more."""
    try:
        argument = inspect.signature(function).parameters.get(name)
    except ValueError:  # some built-in functions
        return False
    return argument is not None and argument.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
