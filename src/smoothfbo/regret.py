"""Bilevel local regret, its terms, and the paper's bounds: pure functions of a trace and known objectives.

A trace is what was played and used, stacked over rounds t = 0, …, T−1: `outers` (λ_t), `gradients` (the estimates
ĝ_t) and `smoothed` (g̃_t), pytrees with a leading axis over rounds. What is known of the problem comes as functions of
`(round, outer)`: `objective` is F_t(λ) and `gradient` is ∇F_t(λ). Whatever has an index before round 0 is zero, as in
the paper.

Every function is for one run; `jax.vmap` it over lanes. None costs more than O(T·w·d). `window` may be traced (to vmap
over windows) if `capacity`, the largest window, is given.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree

from smoothfbo import checks
from smoothfbo.errors import renamed_keywords
from smoothfbo.types import Number

Objective = Callable[[Int[Array, ""], PyTree], Float[Array, ""]]
Gradient = Callable[[Int[Array, ""], PyTree], PyTree]
Window = int | Int[Array, ""]
_RENAMED = {"hypergradients": "gradients", "used": "smoothed"}


class Terms(NamedTuple):
    """g̃_t − ∇F_{t,w}(λ_t) = noise + bias + tracking, each averaged over the window (Lemma 5.1), for every t."""

    error: PyTree  # e_t = g̃_t − ∇F_{t,w}(λ_t), from the smoothed gradients
    noise: PyTree  # ζ̄_t = (1/w) Σ_{i<w} (ĝ_{t−i} − G_{t−i})
    bias: PyTree  # b̄_t = (1/w) Σ_{i<w} (G_{t−i} − ∇F_{t−i}(λ_{t−i}))
    tracking: PyTree  # r_t = (1/w) Σ_{i<w} (∇F_{t−i}(λ_{t−i}) − ∇F_{t−i}(λ_t))


def window_mean(values: PyTree, window: Window, *, capacity: int | None = None) -> PyTree:
    """(1/w) Σ_{i<w} x_{t−i} for every t, with x_s = 0 for s < 0."""

    def lagged(lag: Array) -> PyTree:
        return jax.tree.map(lambda x: jnp.roll(x, lag, axis=0), values)

    return _mean_over_lags(lagged, _rounds(values), window, capacity)


def window_gradients(gradient: Gradient, outers: PyTree, window: Window, *, capacity: int | None = None) -> PyTree:
    """∇F_{t,w}(λ_t) = (1/w) Σ_{i<w} ∇F_{t−i}(λ_t): past objectives at the current point, for every t."""
    _require_gradient(gradient, outers)
    times = jnp.arange(_rounds(outers))

    def lagged(lag: Array) -> PyTree:
        return jax.vmap(gradient)(jnp.maximum(times - lag, 0), outers)

    return _mean_over_lags(lagged, len(times), window, capacity)


def squared_norms(values: PyTree) -> Float[Array, " rounds"]:
    """‖x_t‖² for every t."""
    rows = [jnp.sum(leaf.reshape(leaf.shape[0], -1) ** 2, axis=1) for leaf in jax.tree.leaves(values)]
    return sum(rows[1:], rows[0])


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


def tracking(gradient: Gradient, outers: PyTree, window: Window, *, capacity: int | None = None) -> PyTree:
    """r_{t,w} = (1/w) Σ_{i<w} (∇F_{t−i}(λ_{t−i}) − ∇F_{t−i}(λ_t)) for every t; D_{T,w} is the sum of its squares."""
    historical = window_mean(_along(gradient, outers), window, capacity=capacity)
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
    exact = _along(gradient, outers)
    expected = exact if expected is None else expected
    for name, values in {"gradients": gradients, "smoothed": smoothed, "expected": expected}.items():
        _require_form(values, outers, name, "outers")

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
    exact = _along(gradient, outers)
    bias = jax.tree.map(jnp.subtract, exact if expected is None else expected, exact)
    target = jax.tree.map(jnp.subtract, smoothed, terms.error)
    parts = (target, smoothed, terms.error, terms.noise, bias, terms.tracking)
    return Totals(*(jnp.sum(squared_norms(part)) for part in parts))


def noise_level(noises: PyTree) -> Float[Array, ""]:
    """σ² = max over rounds of the mean over lanes of ‖ζ_t‖², for noises with axes (lane, round, …)."""
    return jnp.max(jnp.mean(jax.vmap(squared_norms)(noises), axis=0))


def largest_objective(objective: Objective, rounds: int, candidates: PyTree) -> Float[Array, ""]:
    """The largest |F_t(λ)| found over all rounds and candidates: a lower bound of Q."""
    checks.require_arguments(objective, "objective", "round", "outer")

    def largest(round: Array) -> Array:
        return jnp.max(jnp.abs(jax.vmap(lambda outer: objective(round, outer))(candidates)))

    return jnp.max(jax.lax.map(largest, jnp.arange(rounds)))


def largest_slope(gradient: Gradient, rounds: int, candidates: PyTree) -> Float[Array, ""]:
    """The largest ‖∇F_t(λ) − ∇F_t(λ')‖ / ‖λ − λ'‖ found between neighbouring candidates: a lower bound of L."""

    def difference(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[1:] - leaf[:-1], tree)

    def steepest(round: Array) -> Array:
        gradients = jax.vmap(lambda outer: gradient(round, outer))(candidates)
        return jnp.max(squared_norms(difference(gradients)) / squared_norms(difference(candidates)))

    return jnp.sqrt(jnp.max(jax.lax.map(steepest, jnp.arange(rounds))))


def movement(outers: PyTree, window: Window, *, capacity: int | None = None) -> Float[Array, ""]:
    """(1/w) Σ_t Σ_{i<w} ‖λ_{t−i} − λ_t‖²; times L² it bounds D_{T,w}   (the movement bound)."""
    times = jnp.arange(_rounds(outers))

    def lagged(lag: Array) -> Array:
        past = jax.tree.map(lambda x: jnp.roll(x, lag, axis=0), outers)
        return squared_norms(jax.tree.map(jnp.subtract, past, outers))

    return jnp.sum(_mean_over_lags(lagged, len(times), window, capacity))


def telescoping(
    objective: Objective, outers: PyTree, window: Window, *, capacity: int | None = None
) -> Float[Array, ""]:
    """Σ_t F_{t,w}(λ_t) − F_{t,w}(λ_{t+1}) for the T+1 points λ_0, …, λ_T   (the telescoping lemma)."""
    checks.require_arguments(objective, "objective", "round", "outer")
    now, following = (jax.tree.map(lambda x, part=part: x[part], outers) for part in (slice(-1), slice(1, None)))
    times = jnp.arange(_rounds(now))

    def lagged(lag: Array) -> Array:
        past = jnp.maximum(times - lag, 0)
        return jax.vmap(objective)(past, now) - jax.vmap(objective)(past, following)

    return jnp.sum(_mean_over_lags(lagged, len(times), window, capacity))


def variation(suprema: Float[Array, " changes"], order: int = 1) -> Float[Array, ""]:
    """V_{p,T} = Σ_t (sup_λ |F_{t+1}(λ) − F_t(λ)|)^p from the suprema of all T−1 changes.

    With the suprema of ‖θ*_{t−1,λ} − θ*_{t,λ}‖ and order 2 it is the path variation H_{2,T}.
    """
    checks.require_integer(order, "order", 1)
    return jnp.sum(suprema**order)


class Supremum(NamedTuple):
    """A supremum found by search: it lies between `lower` and `upper`."""

    lower: Float[Array, " changes"]
    upper: Float[Array, " changes"]


def searched_suprema(
    objective: Objective, rounds: int, candidates: PyTree, *, lipschitz: Number, radius: Number
) -> Supremum:
    """sup_λ |F_{t+1}(λ) − F_t(λ)| for every t, searched over `candidates` (leading axis: the points tried).

    The largest value found is a lower bound. If every point of Λ is within `radius` of a candidate and every F_t is
    `lipschitz`-continuous, the supremum is at most 2·lipschitz·radius above it.
    """
    checks.require_integer(rounds, "rounds", 2)
    checks.require_arguments(objective, "objective", "round", "outer")

    def change(round: Array) -> Array:
        values = jax.vmap(lambda outer: objective(round + 1, outer) - objective(round, outer))(candidates)
        return jnp.max(jnp.abs(values))

    lower = jax.lax.map(change, jnp.arange(rounds - 1))
    return Supremum(lower, lower + 2 * lipschitz * radius)


def regret_bound(
    error: ArrayLike,
    *,
    step: Number,
    smoothness: Number,
    objective_bound: Number,
    variation: ArrayLike,
    rounds: int,
    window: ArrayLike,
    allow_large_step: bool = False,
) -> Any:
    """E BLR_w(T) ≤ (2/α)(2TQ/w + V_{1,T}) + E Γ_{T,w} for any step 0 < α ≤ 1/L   (proof of Theorem 5.3).

    `error` is Γ or a bound of it: `oracle_error` for Theorem 4.4, where α = 1/L makes 2/α = 2L, and `estimated_error`
    for Theorem 5.3, where α = 4/(5L) makes 2/α = 5L/2. Steps beyond 1/L are outside the theorems and refused, unless
    `allow_large_step`.
    """
    _check_step(step, smoothness, allow_large_step)
    return 2 / step * (2 * rounds * objective_bound / window + variation) + error


def descent_bound(
    error: ArrayLike,
    *,
    step: Number,
    smoothness: Number,
    objective_bound: Number,
    variation: ArrayLike,
    rounds: int,
    window: ArrayLike,
    allow_large_step: bool = False,
) -> Any:
    """BLR_w(T) ≤ (2/α)(2Q + min(V_{1,T}, 2TQ/w)) + Γ_{T,w} on every path, for any step 0 < α ≤ 1/L and w ≤ T.

    It is `regret_bound` with the sum of F_{t,w}(λ_t) − F_{t,w}(λ_{t+1}) counted more closely. Two neighbouring windows
    differ by (F_t − F_{t−w})/w: at most 2Q/w, and V₁ in all; the ends and the zeros before round 0 add 2Q. `error` is Γ
    or a bound of it; with `replayed_error` it is the bound for replayed windows.
    """
    _check_step(step, smoothness, allow_large_step)
    drift = jnp.minimum(jnp.asarray(variation), 2 * rounds * objective_bound / window)
    return 2 / step * (2 * objective_bound + drift) + error


def replayed_error(*, rounds: int, window: Any, noise: Any) -> Any:
    """Tσ²/w, a bound of E Γ_{T,w} for the last w losses evaluated at the current λ: there is no tracking term.

    σ² bounds the *uniform* variance, w·E sup_λ‖ζ̄_t(λ)‖² ≤ σ² for the mean ζ̄_t(λ) of the noise in the window: λ_t
    has seen the samples of the window but the newest, so the variance at a fixed λ is not enough. For noise that does
    not depend on λ the two are the same.
    """
    return rounds * noise / window


def oracle_error(*, rounds: int, window: Any, noise: Any, tracking: Any) -> Any:
    """2Tσ_f²/w + 2D_{T,w}, a bound of E Γ_{T,w} for an unbiased oracle   (Lemma 4.2, summed)."""
    return 2 * rounds * noise / window + 2 * tracking


def estimated_error(*, rounds: int, window: Any, noise: Any, bias: Any, tracking: Any) -> Any:
    """3Tσ_F²/w + 3B_T + 3D_{T,w}, a bound of E Γ_{T,w} for an estimated hypergradient   (Lemma 5.2)."""
    return 3 * rounds * noise / window + 3 * bias + 3 * tracking


def _check_step(step: Number, smoothness: Number, allow_large_step: bool) -> None:
    checks.require_range(step, "step", 0.0, open_low=True)
    if not allow_large_step and checks.is_concrete((step, smoothness)) and step * smoothness > 1 + 1e-12:
        raise ValueError(
            f"step={float(step):g} is larger than 1/L = {1 / float(smoothness):g}, for which the theorems are proved; "
            "use a smaller step, or allow_large_step=True to see what the formula gives all the same."
        )


def _rounds(values: PyTree) -> int:
    return jax.tree.leaves(values)[0].shape[0]


def _along(gradient: Gradient, outers: PyTree) -> PyTree:
    """∇F_t(λ_t) for every t."""
    _require_gradient(gradient, outers)
    return jax.vmap(gradient)(jnp.arange(_rounds(outers)), outers)


def _require_gradient(gradient: Gradient, outers: PyTree) -> None:
    checks.require_arguments(gradient, "gradient", "round", "outer")
    outer = checks.one_of(checks.shapes(outers))
    round = jax.ShapeDtypeStruct((), jnp.result_type(int))
    _require_form(checks.abstract_call(gradient, "gradient", round=round, outer=outer), outer, "gradient", "outer")


def _require_form(values: PyTree, like: PyTree, name: str, other: str) -> None:
    """Raise where structure or shapes differ: numbers of shape (n,) less those of (n, 1) would be n² numbers."""
    forms = [jax.tree.map(jnp.shape, checks.shapes(tree)) for tree in (values, like)]
    if forms[0] != forms[1]:
        raise ValueError(f"{name} must have the form of {other}, {forms[1]}, got {forms[0]}.")


def _mean_over_lags(
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
