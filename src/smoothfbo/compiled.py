"""Functions that are compiled for callables and settings, and called often: what stays the same is hashed once."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree


class Static:
    """The part of a pytree that is no array: its structure, functions and settings. Equal parts compile alike.

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
        return jax.tree.unflatten(structure, [next(remaining) if leaf is _ARRAY else leaf for leaf in leaves])


_ARRAY = object()  # stands where an array was


def split(tree: PyTree) -> tuple[Static, list[Any]]:
    """A pytree as its static part and its arrays, as `jax.jit` takes them."""
    leaves, structure = jax.tree.flatten(tree)
    static = tuple(_ARRAY if eqx.is_array(leaf) else leaf for leaf in leaves)
    return Static(structure, static), [leaf for leaf in leaves if eqx.is_array(leaf)]


class _Plain:
    def __init__(self, function: Callable[..., Any]):
        self._function, self.__doc__ = function, function.__doc__

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self._function if instance is None else jax.tree_util.Partial(self._function, instance)


def plain_method(function: Any) -> Any:
    """A method of an Equinox module that is called in loops: Equinox's own binding takes a third of a small round."""
    return _Plain(function)
