"""Instrumental variables whose structural parameter drifts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer, PRNGKeyArray

from smoothfbo import checks
from smoothfbo.functions.linear import Linear
from smoothfbo.functions.network import Network
from smoothfbo.problem import Problem
from smoothfbo.samples import Data, Samples
from smoothfbo.source import FunctionSource
from smoothfbo.testbeds.base import AbstractTestbed, trained
from smoothfbo.testbeds.bases import circle, fourier, orthonormal
from smoothfbo.testbeds.drift import Drift, as_drift
from smoothfbo.types import Number


class Observed(NamedTuple):
    """What is observed beside the instrument: treatment and outcome."""

    treatment: Float[Array, "*n treatments"]
    outcome: Float[Array, "*n"]


class InstrumentalVariables(AbstractTestbed):
    """Two-stage least squares: how does a treatment x act on an outcome, if something unseen acts on both?

    With an instrument z uniform on [0, 1], its Fourier features ψ(z), and e ~ N(0, s²I), ξ ~ N(0, 1):

        x = Πψ(z) + e,     y = β_tᵀx + κ cᵀe + σξ,     ‖c‖ = 1.

    e is the confounder: a regression of y on x finds β_t and a part of κc. The instrument acts on y through x alone.
    The first stage predicts λᵀx from the instrument, the second compares this with the outcome (Petrulionytė, Mairal
    and Arbel, 2024):

        ℓ_in = (v − λᵀx)²,     ℓ_out = (v − y)²,     h*_λ(z) = E[λᵀx | z] = λᵀΠψ(z),

        F_t(λ) = (λ − β_t)ᵀ ΠΠᵀ (λ − β_t) + s²‖β_t + κc‖² + σ².

    λ*_t is β_t. λ enters through the inner problem alone, and an adjoint that is not a function of z is wrong: the
    point-wise one finds the biased regression.

    **Arguments:**

    - `treatments`, `features`: the sizes of x and of ψ(z). `batch`: inner samples and outer samples of a round.
    - `paired`: whether the inner and the outer samples are the same ones.
    - `strength`: the singular values of Π fall evenly from 1 to `strength`; a small one is a weak instrument.
    - `drift`, `period`, `amplitude`: β_t goes round a circle of this radius, whose centre has norm 1.
    - `noise`, `spread`, `confounding`: σ, s and κ.
    - `seed`: draws Π, c, the circle, and the position of round 0.
    """

    first_stage: Float[Array, "treatments features"]  # Π
    confounder: Float[Array, " treatments"]  # c
    circle: Float[Array, "3 treatments"]
    start: Float[Array, ""]
    drift: Drift
    amplitude: Number
    noise: Number
    spread: Number
    confounding: Number
    batch: int = eqx.field(static=True)
    paired: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        treatments: int = 4,
        features: int = 9,
        batch: int = 64,
        paired: bool = False,
        strength: Number = 0.5,
        drift: str | Drift = "smooth",
        period: Number = 600.0,
        amplitude: Number = 1.0,
        noise: Number = 0.3,
        spread: Number = 0.5,
        confounding: Number = 1.0,
        seed: int | Integer[Array, ""] = 0,
    ):
        checks.require_integer(treatments, "treatments", 3)
        checks.require_integer(features, "features", treatments)
        checks.require_integer(batch, "batch", 1)
        checks.require_range(strength, "strength", 0.0, 1.0, open_low=True)
        for name, value in {"amplitude": amplitude, "noise": noise, "spread": spread}.items():
            checks.require_range(value, name, 0.0)
        keys = jax.random.split(jax.random.key(seed), 5)
        values = 1 + (strength - 1) * jnp.linspace(0.0, 1.0, treatments)
        rotation = orthonormal(keys[0], treatments, treatments)
        self.first_stage = rotation @ (values[:, None] * orthonormal(keys[1], treatments, features))
        self.confounder = orthonormal(keys[2], 1, treatments)[0]
        self.circle = orthonormal(keys[3], 3, treatments)
        self.start = jax.random.uniform(keys[4])
        self.drift = as_drift(drift, period, seed)
        self.amplitude, self.noise, self.spread, self.confounding = amplitude, noise, spread, confounding
        self.batch, self.paired = batch, paired

    def parameter(self, round: Int[Array, ""]) -> Float[Array, " treatments"]:
        """β_t, the structural parameter."""
        return circle(self.circle, self.amplitude, self.start + self.drift(round))

    # The problem as methods see it.

    def problem(self) -> Problem:
        return Problem(
            inner_loss=lambda outer, v, x, y: (v - outer @ y.treatment) ** 2,  # noqa: ARG005
            outer_loss=lambda outer, v, x, y: (v - y.outcome) ** 2,  # noqa: ARG005
        )

    def phi(self, x: Float[Array, "1"]) -> Float[Array, " features"]:
        """ψ(z): the Fourier features of one instrument."""
        return fourier(x[0], self.first_stage.shape[1])

    def source(self) -> FunctionSource:
        return FunctionSource(self.draw)

    def draw(self, round: Int[Array, ""], key: PRNGKeyArray) -> Data:
        key_inner, key_outer = jax.random.split(key)
        return Data(self._samples(round, key_inner), self._samples(round, key_inner if self.paired else key_outer))

    def _samples(self, round: Int[Array, ""], key: PRNGKeyArray) -> Samples:
        key_z, key_e, key_noise = jax.random.split(key, 3)
        z = jax.random.uniform(key_z, (self.batch, 1))
        error = self.spread * jax.random.normal(key_e, (self.batch, len(self.confounder)))
        treatment = jax.vmap(self.phi)(z) @ self.first_stage.T + error
        noise = self.confounding * error @ self.confounder + self.noise * jax.random.normal(key_noise, (self.batch,))
        return Samples(z, Observed(treatment, treatment @ self.parameter(round) + noise))

    def initial(self) -> Float[Array, " treatments"]:
        return jnp.zeros(len(self.confounder))

    def linear(self) -> Linear:
        return Linear(self.phi, ridge=1e-3)

    def inner(self, *, rate: Number | None = None, steps: int | None = None, batch_size: int | None = None) -> Network:
        """`linear()` trained by gradient descent: the curvature of the inner problem is 2 in all directions."""
        rate = 0.2 if rate is None else rate
        return trained(self.linear(), rate=rate, steps=steps, batch_size=batch_size, adaptive=False)

    # The exact answer.

    def objective(self, round: Int[Array, ""], outer: Float[Array, " treatments"]) -> Float[Array, ""]:
        structural = self.parameter(round)
        error = self.first_stage.T @ (outer - structural)
        floor = self.spread**2 * jnp.sum((structural + self.confounding * self.confounder) ** 2) + self.noise**2
        return jnp.sum(error**2) + floor

    def best(self, round: Int[Array, ""]) -> Float[Array, " treatments"]:
        """β_t."""
        return self.parameter(round)

    def gap(self, round: Int[Array, ""], outer: Float[Array, " treatments"]) -> Float[Array, ""]:
        """‖Πᵀ(λ − β_t)‖², without the difference of two large numbers."""
        return jnp.sum((self.first_stage.T @ (outer - self.parameter(round))) ** 2)

    def smoothness(self, rounds: int) -> float:
        """2, exactly: ∇²F_t = 2ΠΠᵀ, and the largest singular value of Π is 1."""
        del rounds
        return 2.0
