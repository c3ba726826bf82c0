"""One convention for functions of many samples: a method `batch`, or else `jax.vmap`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax


def batched(function: Callable[..., Any], in_axes: int | tuple[int | None, ...] = 0) -> Callable[..., Any]:
    """`function` of all samples at once, along the first axis: its own method `batch`, or else `jax.vmap`.

    Losses, networks and `apply` functions are written for ONE sample. Where there is a faster way for many, the
    callable may have a method `batch` that takes the same arguments with samples along the first axis. It must give
    the same numbers. `in_axes` is that of `jax.vmap`: None for an argument that all samples share.
    """
    own, mapped = getattr(function, "batch", None), jax.vmap(plain(function), in_axes=in_axes)
    if type(function) is eqx.nn.MLP and in_axes == 0:
        # A round may call it thirty times: as the argument of a compiled function it is traced once for every shape.
        mapped = partial(_mapped_network, function)
    return own if callable(own) else mapped


@eqx.filter_jit
def _mapped_network(function: Callable[..., Any], *arguments: Any) -> Any:
    return jax.vmap(plain(function))(*arguments)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same as a function with a name: JAX asks for it, and would write out all of a module that has none."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return function if hasattr(function, "__name__") else call
