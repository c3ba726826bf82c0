"""Mistakes that can be seen before anything is computed: each becomes one sentence."""

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jaxtyping import PyTree

from smoothfbo.batching import plain


def is_concrete(tree: PyTree) -> bool:
    """Whether every array of `tree` has values now, i.e. none is being traced by jit, vmap or grad."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def computes_at_once() -> bool:
    """Whether operations are computed where they are called: not inside jit, vmap or grad, whatever their arguments."""
    with jax.core.eval_context():
        at_once = get_opaque_trace_state()
    return get_opaque_trace_state() == at_once


def named_leaves(tree: PyTree, name: str) -> Iterator[tuple[str, Any]]:
    """The leaves of `tree`, each with the expression that reaches it: `outer['weight'][0]`."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        yield name + jax.tree_util.keystr(path), leaf


def describe(tree: PyTree) -> str:
    """Structure, shapes and dtypes of `tree` in one line, for error messages."""
    return str(jax.tree.map(lambda leaf: jax.typeof(leaf).str_short(True), tree)).replace("'", "")


def as_arrays(tree: PyTree) -> PyTree[jax.Array]:
    """Python numbers and NumPy arrays become JAX arrays of a fixed type, so that all rounds compile alike."""
    require_numbers(tree, "data")
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), tree)


def require_numbers(tree: PyTree, name: str) -> None:
    """No text, no dates, no tables, no Python objects, and no integers that do not fit: they would wrap around."""
    for path, leaf in named_leaves(tree, name):
        if hasattr(leaf, "to_numpy") and not hasattr(leaf, "dtype"):
            raise TypeError(f"{path} is a {type(leaf).__name__}; give an array: {path}.to_numpy().")
        kind = np.asarray(leaf).dtype if isinstance(leaf, (str, bytes, np.ndarray, np.generic)) else None
        if kind is not None and kind.kind in "SUOMm":
            raise TypeError(
                f"{path} has dtype {kind}, and JAX computes with numbers only: number classes first, e.g. by "
                "numpy.unique(y, return_inverse=True)[1], and make dates and other objects floats."
            )
        if kind is not None and kind.kind in "iu" and kind != jnp.result_type(leaf):
            kept, values = np.iinfo(jnp.result_type(leaf)), np.asarray(leaf)
            wrapped = values[(values < kept.min) | (values > kept.max)]
            if wrapped.size:
                raise ValueError(
                    f"{path} has the integer {wrapped[0]}, and JAX computes with {kept.dtype} here: number from 0, "
                    'count time from a later origin, or call jax.config.update("jax_enable_x64", True) first.'
                )


def shapes(tree: PyTree) -> PyTree[jax.ShapeDtypeStruct]:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), tree)


def one_of(samples: PyTree) -> PyTree[jax.ShapeDtypeStruct]:
    """The shapes of one sample."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), samples)


def first_of(samples: PyTree) -> PyTree[jax.Array]:
    """The first sample; no program is compiled for it where its values are known."""

    def first(leaf: Any) -> Any:
        is_plain = is_concrete(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
        return jnp.asarray(np.asarray(leaf)[0]) if is_plain else leaf[0]

    return jax.tree.map(first, samples)


def same_shapes(one: PyTree, other: PyTree) -> bool:
    """Whether two pytrees agree in structure, shapes and dtypes."""
    return jax.tree.structure(one) == jax.tree.structure(other) and all(
        a.shape == b.shape and a.dtype == b.dtype
        for a, b in zip(jax.tree.leaves(shapes(one)), jax.tree.leaves(shapes(other)), strict=True)
    )


def is_floating(value: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jnp.floating)


def require_floating(tree: PyTree, name: str) -> None:
    """Every leaf must be a real floating-point array: gradients of anything else do not exist."""
    leaves = list(named_leaves(tree, name))
    if not leaves:
        raise ValueError(f"{name} has no arrays, got {tree!r}; it needs at least one floating-point array.")
    for path, leaf in leaves:
        dtype = jnp.result_type(leaf)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(f"{path} has dtype {dtype}; allowed are floating-point dtypes such as float32 or float64.")


def require_finite(tree: PyTree, name: str) -> None:
    """No NaN and no infinity, where the values can be seen now."""
    for path, leaf in named_leaves(tree, name):
        if isinstance(leaf, jax.core.Tracer) or not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            continue
        values = np.asarray(leaf)
        bad = ~np.isfinite(values.astype(np.float64))
        if bad.any():
            first = tuple(int(i) for i in np.argwhere(bad)[0])
            where = f" at index {first}" if first else ""
            raise ValueError(f"{path} must be finite, got {values[first]}{where} ({int(bad.sum())} such values).")


def is_key(value: object) -> bool:
    """Whether `value` is a typed JAX key, as `jax.random.key` makes it."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def require_key(key: object, name: str) -> None:
    """A PRNG key of JAX's default generator (its bits are stored without the name of the generator)."""
    if not isinstance(key, jax.Array) or jnp.shape(key) not in ((), (2,)):
        raise TypeError(f"{name} must be a JAX key such as jax.random.key(0), got {key!r}.")
    default = jax.random.key_impl(jax.random.key(0))
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and str(jax.random.key_impl(key)) != str(default):
        raise TypeError(f"{name} must be a key of JAX's default generator ({default}), got {jax.random.key_impl(key)}.")


def require_integer(value: object, name: str, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {name}={value!r}.")


def require_batch_size(value: object) -> None:
    """None stands for all samples."""
    if value is not None:
        require_integer(value, "batch_size", 1)


def require_range(
    value: object, name: str, low: float | int, high: float | int = math.inf, *, open_low: bool = False
) -> None:
    """Check a number that is concrete; a traced one (inside vmap or inject_hyperparams) passes."""
    if isinstance(value, jax.core.Tracer):
        return
    number = np.asarray(value)
    ok = np.issubdtype(number.dtype, np.number) and not np.issubdtype(number.dtype, np.complexfloating)
    if ok:
        above = number > low if open_low else number >= low
        ok = bool((above & (number <= high)).all())
    if not ok:
        bracket = "(" if open_low else "["
        raise ValueError(f"{name} must be a number in {bracket}{low:g}, {high:g}], got {name}={value!r}.")


def require_arguments(function: Callable[..., Any], name: str, *arguments: str) -> None:
    """The function can be called with so many positional arguments, where its signature is known.

    Names of these arguments must stand in their order: the first one first, and others not in each other's places.
    """
    if not callable(function):
        raise TypeError(f"{name} must be a function of ({', '.join(arguments)}), got {function!r}.")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions
        return
    try:
        own = tuple(signature.bind(*arguments).arguments)
    except TypeError as error:
        raise TypeError(f"{name} must be a function of ({', '.join(arguments)}), got {function!r}: {error}.") from None
    places = {name: own.index(name) for name in arguments if name in own}
    is_permuted = set(places.values()) == set(map(arguments.index, places))
    if (is_permuted or arguments[0] in own[1:]) and any(arguments[place] != name for name, place in places.items()):
        raise TypeError(f"{name} must be a function of ({', '.join(arguments)}), got one of ({', '.join(own)}).")


def abstract_call(function: Callable[..., Any], name: str, **arguments: Any) -> PyTree[jax.ShapeDtypeStruct]:
    """Shapes of `function(*arguments)`; if it cannot be called so, say with which shapes it was tried."""
    try:
        return jax.eval_shape(plain(function), *(shapes(argument) for argument in arguments.values()))
    except Exception as error:
        tried = ", ".join(f"{key}={describe(shapes(value))}" for key, value in arguments.items())
        reason = str(error).strip().splitlines()
        raise ValueError(
            f"{name} cannot be evaluated at {tried}: {reason[0] if reason else type(error).__name__}"
        ) from error
