"""A drifting, bounded, smooth, non-convex objective with every quantity of the theory in closed form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer, PRNGKeyArray

from smoothfbo import checks
from smoothfbo.errors import NotAvailable, refuse_keywords
from smoothfbo.functions.linear import Linear
from smoothfbo.hypergradients.oracle import Oracle
from smoothfbo.source import RoundNumbers
from smoothfbo.testbeds.base import AbstractTestbed
from smoothfbo.testbeds.drift import Drift, as_drift
from smoothfbo.types import Number


def travelled(round: Int[Array, "..."], speed: Number, slowing: Number) -> Float[Array, "..."]:
    """How far something has moved whose speed after t rounds is speed·(1 + t)^−slowing.

    `slowing` = 0 is a constant speed, so that the total variation grows linearly in T; 1/2 makes it grow like √T.
    """
    slowing = jnp.asarray(slowing, jnp.result_type(float))
    time = 1 + jnp.asarray(round, slowing.dtype)
    exponent = 1 - slowing
    is_one = exponent == 0
    power = (time**exponent - 1) / jnp.where(is_one, 1, exponent)
    return speed * jnp.where(is_one, jnp.log(time), power)


class DriftingCosine(AbstractTestbed):
    """F_t(λ) = −L Σ_j cos(λ_j − c_{t,j}) with drifting centres c_t, and an oracle for its gradient.

    L-smooth, |F_t| ≤ Q = L·d, non-convex, and without constraints. The centres move along (±1, …, ±1)·`travelled`,
    and `wobble` to and fro from round to round. The oracle adds Gaussian noise with E‖ξ‖² = σ².

    With a `drift`, "smooth", "jumps", "bursts" (calm, then fast), "walk" or a function from the round to a position,
    the way is 2π times that position in place of `travelled`: once round the circle in `period` rounds. `seed` draws
    the jumps and the walk.
    """

    dimension: int = eqx.field(static=True)
    curvature: Number  # L
    noise: Number  # σ
    speed: Number
    slowing: Number
    wobble: Number
    drift: Drift | None

    def __init__(
        self,
        dimension: int = 4,
        *,
        curvature: Number = 1.0,
        noise: Number = 1.0,
        speed: Number = 0.02,
        slowing: Number = 0.0,
        wobble: Number = 0.0,
        drift: str | Drift | None = None,
        period: Number = 600.0,
        seed: int | Integer[Array, ""] = 0,
        **old: Any,
    ):
        refuse_keywords("DriftingCosine", old, {"smoothness": "curvature"})
        checks.require_integer(dimension, "dimension", 1)
        checks.require_range(curvature, "curvature", 0.0, open_low=True)
        checks.require_range(noise, "noise", 0.0)
        self.dimension, self.curvature, self.noise = dimension, curvature, noise
        self.speed, self.slowing, self.wobble = speed, slowing, wobble
        self.drift = None if drift is None else as_drift(drift, period, seed)

    def centre(self, round: Int[Array, ""]) -> Float[Array, " d"]:
        coordinates = jnp.arange(self.dimension, dtype=jnp.result_type(float))
        direction = jnp.where(coordinates % 2 == 0, 1.0, -1.0)
        to_and_fro = jnp.where(round % 2 == 0, self.wobble, -self.wobble)
        return coordinates + direction * self._distance(round) + to_and_fro

    def _distance(self, round: Int[Array, ""]) -> Float[Array, ""]:
        return travelled(round, self.speed, self.slowing) if self.drift is None else 2 * np.pi * self.drift(round)

    def objective(self, round: Int[Array, ""], outer: Float[Array, " d"]) -> Float[Array, ""]:
        return -self.curvature * jnp.sum(jnp.cos(outer - self.centre(round)))

    def gradient(self, round: Int[Array, ""], outer: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.curvature * jnp.sin(outer - self.centre(round))

    def oracle(self) -> Oracle:
        """∇F_t(λ) plus noise; the data of a round is its index."""

        def draw(outer: Array, round: Array, key: PRNGKeyArray) -> Array:
            scale = self.noise / jnp.sqrt(jnp.asarray(self.dimension, outer.dtype))
            return self.gradient(round, outer) + scale * jax.random.normal(key, outer.shape, outer.dtype)

        return Oracle(draw, objective=lambda outer, round: self.objective(round, outer))

    def best(self, round: Int[Array, ""]) -> Float[Array, " d"]:
        """c_t, where F_t is −L·d. So is it at every c_t + 2πk."""
        return self.centre(round)

    def problem(self) -> None:
        """There is no inner problem: an `Oracle` needs none."""

    def linear(self) -> Linear:
        raise NotAvailable("DriftingCosine has no inner problem, so there is no inner function: use oracle().")

    def source(self) -> RoundNumbers:
        """The data of a round are its number."""
        return RoundNumbers()

    def initial(self) -> Float[Array, " d"]:
        return jnp.zeros(self.dimension)

    def smoothness(self, rounds: int) -> Number:
        """L, exactly: ∇²F_t = L diag cos(λ − c_t)."""
        del rounds
        return self.curvature

    def objective_bound(self, rounds: int) -> Number:
        """Q = L·d, exactly."""
        del rounds
        return self.curvature * self.dimension

    @eqx.filter_jit
    def suprema(self, rounds: int) -> Float[Array, " changes"]:
        """sup_λ |F_{t+1}(λ) − F_t(λ)| = 2L Σ_j |sin((c_{t+1,j} − c_{t,j})/2)|, exactly, for t = 0, …, rounds−2.

        Each coordinate's difference is a cosine of that amplitude, and the coordinates can be chosen on their own.
        """
        centres = jax.vmap(self.centre)(jnp.arange(rounds))
        return 2 * self.curvature * jnp.sum(jnp.abs(jnp.sin(jnp.diff(centres, axis=0) / 2)), axis=1)

    def parameter_suprema(self, rounds: int) -> Float[Array, " changes"]:
        """0: there is no inner solution that could move."""
        return jnp.zeros(rounds - 1)
