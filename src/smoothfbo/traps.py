"""Mistakes that compile, run and give a wrong answer: each gets one sentence."""

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jaxtyping import PyTree

from smoothfbo import checks
from smoothfbo.compiled import Static, run_once, split
from smoothfbo.flow import Flow, flow


def check_source(function: Callable[..., Any], key: Any) -> None:
    """Refuse a source that draws random numbers outside of JAX; warn of one that uses neither round nor key.

    By tracing it twice: what was drawn outside is a constant of the program, and another one the second time.
    """
    # jit would remember the first trace; a method of a module is left as it is, bound to it
    plain = inspect.unwrap(function, stop=lambda each: isinstance(each, eqx.Module))

    def traced() -> Flow:
        def arrays(round: Any, key: Any) -> list[Any]:  # a function of its own each time: traces are remembered
            leaves = jax.tree.leaves(plain(round, key))
            return [leaf for leaf in leaves if isinstance(leaf, (jax.Array, np.ndarray, float))]

        return flow(arrays, round=jnp.zeros((), jnp.int32), key=key)

    first, second = traced(), traced()
    if not _same_constants(first.constants, second.constants):
        raise ValueError(
            "source gave other numbers when it was called again with the same round and key, so it draws them outside "
            "of JAX, e.g. with numpy.random; compiled, it would repeat one batch for ever: use jax.random with the key."
        )
    if not any(first.outputs):
        warnings.warn(
            "source uses neither the round nor the key, so every round has the same data; where that is meant, pass "
            "smoothfbo.RepeatedSource(data).",
            stacklevel=2,
        )


def check_indices(loss: Callable[..., Any], name: str, outer: PyTree, prediction: PyTree, x: PyTree, y: PyTree) -> None:
    """Refuse an index out of range into λ or the prediction: JAX would take the last entry, which then gets the
    gradient as well, or NaN without a gradient.

    The values of λ, x and y must be known; a loss that indexes neither by its data costs no more than a trace.
    """
    samples = jax.tree.leaves((x, y))[0].shape[0]
    zeros = jax.tree.map(lambda leaf: np.zeros((samples, *leaf.shape), leaf.dtype), prediction)
    mapped = jax.vmap(loss, in_axes=(None, 0, 0, 0))
    found = flow(mapped, outer=outer, prediction=zeros, x=x, y=y)
    may_leave = [each for each in found.operations if _may_be_out_of_range(each)]
    indexed = {str(each.equation.invars[0].aval.shape): each.inputs[0] for each in may_leave}
    if not indexed:
        return
    with jax.ensure_compile_time_eval():  # known values stay known where the caller is being traced
        message = _index_error(*split(loss), outer, zeros, x, y).get() or ""
    for shape, marks in indexed.items():
        if f"array of shape {shape}:" not in message:
            continue
        where = message.split(": ", 1)[1].split(". ")[0].strip()
        if "prediction" in marks:
            raise ValueError(
                f"{name} indexes the prediction out of range ({where}); JAX would take another entry or NaN instead. "
                "Number the classes from 0, or let the function predict one value for each."
            )
        raise ValueError(
            f"{name} indexes the outer variable out of range ({where}); JAX would take its last entry instead. Number "
            'the groups from 0, make outer larger, or write outer.at[index].get(mode="fill", fill_value=0).'
        )


@partial(run_once, static_argnums=0)
def _index_error(static: Static, arrays: list[Any], outer: PyTree, prediction: PyTree, x: PyTree, y: PyTree) -> Any:
    """The first index out of range in a loss of all samples; one program for all data of a shape."""
    mapped = jax.vmap(static.join(arrays), in_axes=(None, 0, 0, 0))
    return checkify.checkify(mapped, errors=checkify.index_checks)(outer, prediction, x, y)[0]


def check_broadcast(
    loss: Callable[..., Any], name: str, outer: PyTree, prediction: PyTree, x: PyTree, y: PyTree
) -> None:
    """Refuse a loss that broadcasts the scalar which a `Linear` predicts by default against a vector of y."""
    for each in flow(loss, outer=outer, prediction=prediction, x=x, y=y).operations:
        shapes = [jnp.shape(atom.aval) for atom in each.equation.invars]
        has_scalar = any("prediction" in marks and not shape for marks, shape in zip(each.inputs, shapes, strict=True))
        for marks, shape in zip(each.inputs, shapes, strict=True):
            if has_scalar and marks == {"y"} and len(shape) == 1 and each.equation.outvars[0].aval.shape == shape:
                raise ValueError(
                    f"{name} broadcasts the prediction, a scalar, against a y of shape {shape}: write "
                    f"Linear(..., prediction=jnp.zeros({shape[0]})) to predict a vector, or prediction=jnp.zeros(()) "
                    "where a scalar is meant."
                )


def warn_after_run(rounds: Any, skipped: Any, oscillating: Any, norms: Any) -> None:
    """Warn at the end of a run that stood still or worked against itself, where its numbers can be seen.

    `norms` are those of the gradients and of their implicit terms; None: not recorded.
    """
    if not checks.is_concrete((rounds, skipped, oscillating)) or jnp.shape(skipped):
        return
    rounds = int(rounds)
    if 2 * int(skipped) > rounds:
        wrong = "hypergradient or update"
        if norms is not None:
            is_known = np.isfinite(norms[0]).sum() > rounds / 2
            wrong = "update, though not their hypergradient," if is_known else "hypergradient"
        warnings.warn(
            f"{int(skipped)} of {rounds} rounds were skipped because their {wrong} was not finite: λ stood still "
            "there. Look at `finite`, the losses and the norms in the trace.",
            stacklevel=3,
        )
    # The implicit term of an oracle is NaN, which is not 0: its gradient may well vanish.
    if norms is not None and not np.any(norms[0]) and not np.any(norms[1]):
        warnings.warn(
            f"The hypergradient was exactly 0 in all {rounds} rounds: λ stood still. Does inner_loss or a penalty use "
            "outer, without stop_gradient? Or is λ where they no longer change with it, far out on a sigmoid, say?",
            stacklevel=3,
        )
    if 4 * int(oscillating) > rounds:
        warnings.warn(
            f"In {int(oscillating)} of {rounds} rounds the moves of λ had raised the outer loss more than they had "
            "lowered it: they answer too strongly or too late, or lead uphill. Shrink the step or the window: with "
            "plain steps, step · curvature · window must stay below 4.9 (`oscillating` in the trace). And let the "
            "optimiser have a step down in it, such as optax.sgd: a window alone has none.",
            stacklevel=3,
        )


def _may_be_out_of_range(operation: Any) -> bool:
    """Whether an operation reads λ or the prediction at an index that depends on data, and would be clamped or NaN."""
    equation = operation.equation
    if equation.primitive.name not in ("gather", "dynamic_slice") or not operation.inputs[0] & {"outer", "prediction"}:
        return False
    fill = equation.params.get("fill_value")
    return fill is None or bool(np.isnan(fill))


def _same_constants(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))


def _same(one: Any, other: Any) -> bool:
    if one is other or not checks.is_concrete((one, other)):
        return True
    if checks.is_key(one) and checks.is_key(other):
        one, other = jax.random.key_data(one), jax.random.key_data(other)
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
