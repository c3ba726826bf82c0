"""Means over the window of a trace: of values, and of past objectives at the current point."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from smoothfbo import checks

Gradient = Callable[[Int[Array, ""], PyTree], PyTree]
Window = int | Int[Array, ""]


def window_mean(values: PyTree, window: Window, *, capacity: int | None = None) -> PyTree:
    """(1/w) Σ_{i<w} x_{t−i} for every t, with x_s = 0 for s < 0."""

    def lagged(lag: Array) -> PyTree:
        return jax.tree.map(lambda x: jnp.roll(x, lag, axis=0), values)

    return mean_over_lags(lagged, length(values), window, capacity)


def window_gradients(gradient: Gradient, outers: PyTree, window: Window, *, capacity: int | None = None) -> PyTree:
    """∇F_{t,w}(λ_t) = (1/w) Σ_{i<w} ∇F_{t−i}(λ_t): past objectives at the current point, for every t."""
    require_gradient(gradient, outers)
    times = jnp.arange(length(outers))

    def lagged(lag: Array) -> PyTree:
        return jax.vmap(gradient)(jnp.maximum(times - lag, 0), outers)

    return mean_over_lags(lagged, len(times), window, capacity)


def squared_norms(values: PyTree) -> Float[Array, " rounds"]:
    """‖x_t‖² for every t."""
    rows = [jnp.sum(leaf.reshape(leaf.shape[0], -1) ** 2, axis=1) for leaf in jax.tree.leaves(values)]
    return sum(rows[1:], rows[0])


def length(values: PyTree) -> int:
    return jax.tree.leaves(values)[0].shape[0]


def along(gradient: Gradient, outers: PyTree) -> PyTree:
    """∇F_t(λ_t) for every t."""
    require_gradient(gradient, outers)
    return jax.vmap(gradient)(jnp.arange(length(outers)), outers)


def require_gradient(gradient: Gradient, outers: PyTree) -> None:
    """Raise where the gradient at one point has not the form of that point."""
    checks.require_arguments(gradient, "gradient", "round", "outer")
    outer = checks.one_of(checks.shapes(outers))
    round = jax.ShapeDtypeStruct((), jnp.result_type(int))
    require_form(checks.abstract_call(gradient, "gradient", round=round, outer=outer), outer, "gradient", "outer")


def require_form(values: PyTree, like: PyTree, name: str, other: str) -> None:
    """Raise where structure or shapes differ: numbers of shape (n,) less those of (n, 1) would be n² numbers."""
    forms = [jax.tree.map(jnp.shape, checks.shapes(tree)) for tree in (values, like)]
    if forms[0] != forms[1]:
        raise ValueError(f"{name} must have the form of {other}, {forms[1]}, got {forms[0]}.")


def mean_over_lags(
    lagged: Callable[[Int[Array, ""]], PyTree], rounds: int, window: Window, capacity: int | None
) -> PyTree:
    """(1/w) Σ_{i<w} lagged(i), where row t of lagged(i) counts only if t − i ≥ 0."""
    if capacity is None:
        checks.require_integer(window, "window", 1)
    else:
        checks.require_integer(capacity, "capacity", 1)
        checks.require_range(window, "window", 1, capacity)
    largest = min(window if capacity is None else capacity, rounds)
    times = jnp.arange(rounds)

    def add(total: PyTree, lag: Array) -> tuple[PyTree, None]:
        counts = (times >= lag) & (lag < window)

        def accumulate(total: Array, value: Array) -> Array:
            return total + jnp.where(counts.reshape(-1, *([1] * (value.ndim - 1))), value, 0)

        return jax.tree.map(accumulate, total, lagged(lag)), None

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(lagged, jnp.zeros((), int)))
    total, _ = jax.lax.scan(add, zeros, jnp.arange(largest))  # pyright: ignore[reportArgumentType]
    return jax.tree.map(lambda leaf: leaf / jnp.asarray(window, leaf.dtype), total)
