"""The one compiled step, called often: what stays the same from call to call is hashed once."""

import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from smoothfbo import checks


class Static:
    """The part of a pytree that holds no arrays: its structure, functions and settings. Equal parts compile alike.

    `jax.jit` hashes and compares its static arguments in every call. A pytree with hundreds of nodes takes longer for
    that than a small network for its round, so the hash is kept, and the comparison begins with the identity.
    """

    __slots__ = ("_hash", "_key")

    def __init__(self, structure: Any, leaves: tuple[Any, ...]):
        self._key = (structure, leaves)
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Static) and self._key == other._key)

    def join(self, arrays: list[Any]) -> PyTree:
        """The pytree again, with these arrays."""
        structure, leaves = self._key
        remaining = iter(arrays)
        return jax.tree.unflatten(structure, [next(remaining) if kind is _ARRAY else leaf for kind, leaf in leaves])


_ARRAY = object()  # stands where an array was


def split(tree: PyTree) -> tuple[Static, list[Any]]:
    """A pytree as its static part and its arrays, as `jax.jit` takes them."""
    leaves, structure = jax.tree.flatten(tree)
    # With their types: 1, 1.0 and True are equal, and compile to different programs.
    static = tuple((_ARRAY, None) if _is_array(leaf) else (type(leaf), leaf) for leaf in leaves)
    return Static(structure, static), [leaf for leaf in leaves if _is_array(leaf)]


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


_KNOWN: dict[int, tuple[weakref.ref[Any], tuple[Static, list[Any]]]] = {}


def parts_of(algorithm: Any) -> tuple[Static, list[Any]]:
    """`split((algorithm, None, None))`, found once for each algorithm.

    It is kept beside the algorithm, not in it: Equinox counts an attribute more as another structure, and all that was
    compiled for the algorithm would be compiled again.
    """
    number = id(algorithm)
    known = _KNOWN.get(number)
    if known is not None and known[0]() is algorithm:
        return known[1]
    parts = split((algorithm, None, None))
    _KNOWN[number] = weakref.ref(algorithm, lambda _: _KNOWN.pop(number, None)), parts
    return parts


@partial(jax.jit, static_argnums=0)
def one_step(static: Static, arrays: list[Any], state: Any, data: Any) -> tuple[Any, Any]:
    """One round of `split((algorithm, problem or None, record or None))`: the next state, and what is recorded."""
    algorithm, problem, record = static.join(arrays)
    following, info = algorithm.round(state, data, problem)
    return following, info if record is None else record(following, info)


def run_once(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` for what runs once, before the first round: on a CPU it is compiled without optimisation, which would
    take far longer than the program itself. As a part of another program, under `vmap` or `grad`, it is like any
    other."""
    usual = jax.jit(function, **options)
    quick = jax.jit(function, compiler_options={"xla_backend_optimization_level": 0}, **options)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        # Known arguments are not enough: a static one, such as a loss, may close over traced values.
        is_alone = checks.computes_at_once()
        return (quick if is_alone and jax.default_backend() == "cpu" else usual)(*arguments)

    return call


class _Plain:
    def __init__(self, function: Callable[..., Any]):
        self._function, self.__doc__ = function, function.__doc__

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._function(*arguments, **options)

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self._function if instance is None else jax.tree_util.Partial(self._function, instance)


def plain_method(function: Any) -> Any:
    """A method of an Equinox module that is called in loops: Equinox's own binding takes a third of a small round."""
    return _Plain(function)
