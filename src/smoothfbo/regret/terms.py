"""What a trace shows: its regret, the paper's proxy, and the terms of the smoothed gradient's error."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from smoothfbo import checks
from smoothfbo.errors import renamed_keywords
from smoothfbo.regret.windows import (
    Gradient,
    Window,
    along,
    length,
    mean_over_lags,
    require_form,
    squared_norms,
    window_gradients,
    window_mean,
)

Objective = Callable[[Int[Array, ""], PyTree], Float[Array, ""]]
_RENAMED = {"hypergradients": "gradients", "used": "smoothed"}


def regret(
    gradient: Gradient, outers: PyTree, window: Window, *, capacity: int | None = None
) -> Float[Array, " rounds"]:
    """BLR_w(t) = Σ_{s≤t} ‖∇F_{s,w}(λ_s)‖² after every round   (Definition 4.3)."""
    return jnp.cumsum(squared_norms(window_gradients(gradient, outers, window, capacity=capacity)))


@renamed_keywords(_RENAMED)
def proxy(smoothed: PyTree) -> Float[Array, " rounds"]:
    """Σ_{s≤t} ‖g̃_s‖² after every round: the paper's plotted proxy.

    It is not comparable between windows: averaging shrinks any noise. Look at it beside the regret.
    """
    return jnp.cumsum(squared_norms(smoothed))


class Terms(NamedTuple):
    """g̃_t − ∇F_{t,w}(λ_t) = noise + bias + tracking, each averaged over the window (Lemma 5.1), for every t."""

    error: PyTree  # e_t = g̃_t − ∇F_{t,w}(λ_t), from the smoothed gradients
    noise: PyTree  # ζ̄_t = (1/w) Σ_{i<w} (ĝ_{t−i} − G_{t−i})
    bias: PyTree  # b̄_t = (1/w) Σ_{i<w} (G_{t−i} − ∇F_{t−i}(λ_{t−i}))
    tracking: PyTree  # r_t = (1/w) Σ_{i<w} (∇F_{t−i}(λ_{t−i}) − ∇F_{t−i}(λ_t))


def tracking(gradient: Gradient, outers: PyTree, window: Window, *, capacity: int | None = None) -> PyTree:
    """r_{t,w} = (1/w) Σ_{i<w} (∇F_{t−i}(λ_{t−i}) − ∇F_{t−i}(λ_t)) for every t; D_{T,w} is the sum of its squares."""
    historical = window_mean(along(gradient, outers), window, capacity=capacity)
    return jax.tree.map(jnp.subtract, historical, window_gradients(gradient, outers, window, capacity=capacity))


@renamed_keywords(_RENAMED)
def decompose(
    gradient: Gradient,
    outers: PyTree,
    gradients: PyTree,
    smoothed: PyTree,
    window: Window,
    *,
    expected: PyTree | None = None,
    capacity: int | None = None,
) -> Terms:
    """The terms of the smoothed estimator's error. `expected` is G_t = E[ĝ_t | past]; None means an unbiased oracle."""
    exact = along(gradient, outers)
    expected = exact if expected is None else expected
    for name, values in {"gradients": gradients, "smoothed": smoothed, "expected": expected}.items():
        require_form(values, outers, name, "outers")

    def averaged(minuend: PyTree, subtrahend: PyTree) -> PyTree:
        return window_mean(jax.tree.map(jnp.subtract, minuend, subtrahend), window, capacity=capacity)

    target = window_gradients(gradient, outers, window, capacity=capacity)
    historical = window_mean(exact, window, capacity=capacity)
    return Terms(
        error=jax.tree.map(jnp.subtract, smoothed, target),
        noise=averaged(gradients, expected),
        bias=averaged(expected, exact),
        tracking=jax.tree.map(jnp.subtract, historical, target),
    )


class Totals(NamedTuple):
    """The sums that the paper's bounds are made of, for one run of T rounds."""

    regret: Float[Array, ""]  # BLR_w(T)
    proxy: Float[Array, ""]  # Σ‖g̃_t‖²
    error: Float[Array, ""]  # Γ_{T,w} = Σ‖g̃_t − ∇F_{t,w}(λ_t)‖²
    noise: Float[Array, ""]  # Σ‖ζ̄_t‖², averaged over the window: falls as 1/w
    bias: Float[Array, ""]  # B_T = Σ‖b_t‖², of every round on its own
    tracking: Float[Array, ""]  # D_{T,w} = Σ‖r_{t,w}‖²


@renamed_keywords(_RENAMED)
def totals(
    gradient: Gradient,
    outers: PyTree,
    gradients: PyTree,
    smoothed: PyTree,
    window: Window,
    *,
    expected: PyTree | None = None,
    capacity: int | None = None,
) -> Totals:
    """BLR, proxy, Γ, noise, B_T and D_{T,w} of one run; take means over lanes for expectations."""
    terms = decompose(gradient, outers, gradients, smoothed, window, expected=expected, capacity=capacity)
    exact = along(gradient, outers)
    bias = jax.tree.map(jnp.subtract, exact if expected is None else expected, exact)
    target = jax.tree.map(jnp.subtract, smoothed, terms.error)
    parts = (target, smoothed, terms.error, terms.noise, bias, terms.tracking)
    return Totals(*(jnp.sum(squared_norms(part)) for part in parts))


def movement(outers: PyTree, window: Window, *, capacity: int | None = None) -> Float[Array, ""]:
    """(1/w) Σ_t Σ_{i<w} ‖λ_{t−i} − λ_t‖²; times L² it bounds D_{T,w}   (the movement bound)."""
    times = jnp.arange(length(outers))

    def lagged(lag: Array) -> Array:
        past = jax.tree.map(lambda x: jnp.roll(x, lag, axis=0), outers)
        return squared_norms(jax.tree.map(jnp.subtract, past, outers))

    return jnp.sum(mean_over_lags(lagged, len(times), window, capacity))


def telescoping(
    objective: Objective, outers: PyTree, window: Window, *, capacity: int | None = None
) -> Float[Array, ""]:
    """Σ_t F_{t,w}(λ_t) − F_{t,w}(λ_{t+1}) for the T+1 points λ_0, …, λ_T   (the telescoping lemma)."""
    checks.require_arguments(objective, "objective", "round", "outer")
    now, following = (jax.tree.map(lambda x, part=part: x[part], outers) for part in (slice(-1), slice(1, None)))
    times = jnp.arange(length(now))

    def lagged(lag: Array) -> Array:
        past = jnp.maximum(times - lag, 0)
        return jax.vmap(objective)(past, now) - jax.vmap(objective)(past, following)

    return jnp.sum(mean_over_lags(lagged, len(times), window, capacity))
