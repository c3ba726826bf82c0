"""What the theory allows: the paper's bounds, and the constants of a problem that stand in them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from smoothfbo import checks
from smoothfbo.regret.terms import Objective
from smoothfbo.regret.windows import Gradient, squared_norms
from smoothfbo.types import Number


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


def _check_step(step: Number, smoothness: Number, allow_large_step: bool) -> None:
    checks.require_range(step, "step", 0.0, open_low=True)
    if not allow_large_step and checks.is_concrete((step, smoothness)) and step * smoothness > 1 + 1e-12:
        raise ValueError(
            f"step={float(step):g} is larger than 1/L = {1 / float(smoothness):g}, for which the theorems are proved; "
            "use a smaller step, or allow_large_step=True to see what the formula gives all the same."
        )
