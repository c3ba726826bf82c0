"""One convention for functions of many samples: a method `batch`, or else `jax.vmap`."""

from collections.abc import Callable
from typing import Any

import jax


def batched(function: Callable[..., Any], in_axes: int | tuple[int | None, ...] = 0) -> Callable[..., Any]:
    """`function` of all samples at once, along the first axis: its own method `batch`, or else `jax.vmap`.

    Losses, networks and `apply` functions are written for ONE sample. Where there is a faster way for many, the
    callable may have a method `batch` that takes the same arguments with samples along the first axis. It must give
    the same numbers. `in_axes` is that of `jax.vmap`: None for an argument that all samples share.
    """
    own = getattr(function, "batch", None)
    return own if callable(own) else jax.vmap(plain(function), in_axes=in_axes)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same as a function with a name: JAX asks for it, and would write out all of a module that has none."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return function if hasattr(function, "__name__") else call
