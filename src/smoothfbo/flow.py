"""What depends on what in a traced function: enough to see mistakes that JAX lets pass in silence."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core
from jaxtyping import PyTree

Marks = frozenset[str]


class Operation(NamedTuple):
    """One primitive operation, and which marked arguments each of its inputs depends on."""

    equation: Any
    inputs: tuple[Marks, ...]


class Flow(NamedTuple):
    """All operations of a function with the calls inside it, what its outputs depend on, and its constants."""

    operations: list[Operation]
    outputs: list[Marks]
    constants: list[Any]


def flow(function: Callable[..., PyTree], **arguments: PyTree) -> Flow:
    """Trace `function(*arguments)`, the arguments being marked by their names; only shapes of arguments count.

    Loops and branches are one operation each: what they return depends on all that they take.
    """
    closed = jax.make_jaxpr(function)(*arguments.values())
    marks = [frozenset([name]) for name, value in arguments.items() for _ in jax.tree.leaves(value)]
    operations: list[Operation] = []
    outputs = _follow(closed.jaxpr, marks, operations)
    literals = [atom for each in operations for atom in each.equation.invars if _is_literal(atom)]
    literals += [atom for atom in closed.jaxpr.outvars if _is_literal(atom)]
    return Flow(operations, outputs, [*closed.consts, *(literal.val for literal in literals)])


def _follow(jaxpr: Any, marks: Sequence[Marks], operations: list[Operation]) -> list[Marks]:
    known = dict(zip(jaxpr.invars, marks, strict=True))

    def mark(atom: Any) -> Marks:
        return frozenset() if _is_literal(atom) else known.get(atom, frozenset())

    for equation in jaxpr.eqns:
        inputs = tuple(mark(atom) for atom in equation.invars)
        operations.append(Operation(equation, inputs))
        called = _called(equation)
        if called is None:
            outputs = [frozenset[str]().union(*inputs)] * len(equation.outvars)
        else:
            outputs = _follow(called, inputs, operations)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [mark(atom) for atom in jaxpr.outvars]


def _called(equation: Any) -> Any:
    """What an operation calls once with its own arguments: a jitted function, one with derivatives of its own."""
    if equation.primitive.name in ("scan", "while", "cond"):
        return None
    called = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    called = getattr(called, "jaxpr", called)
    if called is None or len(called.invars) != len(equation.invars) or len(called.outvars) != len(equation.outvars):
        return None
    return called


def _is_literal(atom: Any) -> bool:
    return isinstance(atom, jax.extend.core.Literal)
