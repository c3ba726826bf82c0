"""Data sources that are wrong in turn: the best mixture of them moves, and lies inside the simplex."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Integer, PRNGKeyArray

from smoothfbo import checks
from smoothfbo.functions.linear import Linear
from smoothfbo.functions.network import Network
from smoothfbo.problem import Problem
from smoothfbo.samples import Data, Samples
from smoothfbo.source import FunctionSource
from smoothfbo.testbeds.base import AbstractTestbed, trained
from smoothfbo.testbeds.bases import circle, fourier, orthonormal
from smoothfbo.testbeds.drift import Drift, as_drift, rise_and_fall
from smoothfbo.testbeds.simplex import smallest_on_simplex
from smoothfbo.types import Number

LIMIT = 6.0  # of a log-weight
STEPS = 200  # of the quadratic programme: they solve it to 1e-14 for twelve sources


class MovingSources(AbstractTestbed):
    """K sources of one target function; which of them can be trusted changes all the time.

    Source k gives samples of f_t(x) + c_{t,k} e_k(x) + noise, with x uniform on [0, 1] and a direction e_k of its own,
    ‖e_k‖ = 1. The amounts c_{t,k} rise and fall in turn, source k a K-th of a period after source k − 1. The outer data
    are samples of f_t(x) + noise. λ weighs the sources by shares p, p ≥ 0 and Σp = 1:

        ℓ_in = K p_source (v − y)²,     ℓ_out = (v − y)².

    The inner solution is the mixture h*_λ = f_t + Σ_k p_k c_{t,k} e_k, hence exactly

        F_t(λ) = pᵀ K_t p + σ²,     K_t[k, l] = c_{t,k} c_{t,l} ⟨e_k, e_l⟩.

    For orthogonal directions the best shares are p_k ∝ 1/c_{t,k}²: they move, and none is zero.

    **Arguments:**

    - `sources`, `samples`, `batch`: K, the inner samples of each source in a round, and the outer samples.
    - `features`: all functions are linear in so many Fourier features; at least K + 1.
    - `weights`: "softmax": λ are K log-weights in [−6, 6] and p = softmax(λ). "shares": p = λ/Σλ, λ on the simplex.
    - `drift`, `period`: "smooth", "jumps", "bursts" (calm, then fast), "walk", or a function from the round to a
      position; one source is as wrong as can be at a time, and all of them once a period.
    - `noise`: σ, of inner and outer targets. `amplitude`, `low`: c runs from `low`·`amplitude` to `amplitude`.
    - `correlation`: ⟨e_k, e_l⟩ for k ≠ l; above 0 the best shares of some sources become zero.
    - `target_drift`: how far the target function moves, too (its own norm is 1). F_t does not depend on it.
    - `seed`: draws directions, target and the position of round 0.
    """

    directions: Float[Array, "sources features"]
    targets: Float[Array, "3 features"]
    start: Float[Array, ""]
    drift: Drift
    noise: Number
    amplitude: Number
    low: Number
    target_drift: Number
    weights: Literal["softmax", "shares"] = eqx.field(static=True)
    samples: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)

    def __init__(
        self,
        *,
        sources: int = 6,
        samples: int = 16,
        batch: int = 32,
        features: int = 9,
        weights: Literal["softmax", "shares"] = "softmax",
        drift: str | Drift = "smooth",
        period: Number = 600.0,
        noise: Number = 0.3,
        amplitude: Number = 1.0,
        low: Number = 0.2,
        correlation: Number = 0.0,
        target_drift: Number = 0.0,
        seed: int | Integer[Array, ""] = 0,
    ):
        for name, value in {"samples": samples, "batch": batch}.items():
            checks.require_integer(value, name, 1)
        checks.require_integer(sources, "sources", 2)
        checks.require_integer(features, "features", sources + 1)
        if weights not in ("softmax", "shares"):
            raise ValueError(f"weights must be 'softmax' or 'shares', got weights={weights!r}.")
        for name, value in {"noise": noise, "amplitude": amplitude, "target_drift": target_drift}.items():
            checks.require_range(value, name, 0.0)
        checks.require_range(low, "low", 0.0, 1.0)
        checks.require_range(correlation, "correlation", 0.0, 1.0)
        keys = jax.random.split(jax.random.key(seed), 3)
        common, *own = orthonormal(keys[0], sources + 1, features)
        share = jnp.asarray(correlation, common.dtype)
        self.directions = jnp.sqrt(1 - share) * jnp.stack(own) + jnp.sqrt(share) * common
        self.targets = orthonormal(keys[1], 3, features)
        self.start = jax.random.uniform(keys[2])
        self.drift = as_drift(drift, period, seed)
        self.noise, self.amplitude, self.low, self.target_drift = noise, amplitude, low, target_drift
        self.weights, self.samples, self.batch = weights, samples, batch

    @property
    def sources(self) -> int:
        return self.directions.shape[0]

    def shares(self, outer: Float[Array, " sources"]) -> Float[Array, " sources"]:
        """p."""
        return jax.nn.softmax(outer) if self.weights == "softmax" else outer / jnp.sum(outer)

    # What drifts.

    def position(self, round: Int[Array, ""]) -> Float[Array, ""]:
        return self.start + self.drift(round)

    def amounts(self, round: Int[Array, ""]) -> Float[Array, " sources"]:
        """c_t: how wrong each source is."""
        lead = jnp.arange(self.sources, dtype=self.start.dtype) / self.sources
        return self.amplitude * rise_and_fall(self.position(round) - lead, self.low)

    def target(self, round: Int[Array, ""]) -> Float[Array, " features"]:
        """The coefficients of f_t."""
        return circle(self.targets, self.target_drift, self.position(round))

    # The problem as methods see it.

    def problem(self) -> Problem:
        shares, sources = self.shares, self.sources
        return Problem(
            inner_loss=lambda outer, v, x, y: (  # noqa: ARG005
                sources * shares(outer)[y["source"]] * (v - y["target"]) ** 2
            ),
            outer_loss=lambda outer, v, x, y: (v - y["target"]) ** 2,  # noqa: ARG005
        )

    def phi(self, x: Float[Array, "1"]) -> Float[Array, " features"]:
        """The Fourier features of one input."""
        return fourier(x[0], self.directions.shape[1])

    def source(self) -> FunctionSource:
        return FunctionSource(self.draw)

    def draw(self, round: Int[Array, ""], key: PRNGKeyArray) -> Data:
        """`samples` samples of each source, and `batch` samples of the target function."""
        key_inner, key_outer = jax.random.split(key)
        source = jnp.repeat(jnp.arange(self.sources), self.samples)
        wrong = (self.amounts(round)[:, None] * self.directions)[source]
        truth = self.target(round)
        # Outer samples carry a source as well, so that both kinds of data have the same form; it is not used.
        return Data(
            inner=self._samples(truth + wrong, source, key_inner),
            outer=self._samples(jnp.tile(truth, (self.batch, 1)), jnp.zeros(self.batch, source.dtype), key_outer),
        )

    def _samples(self, function: Float[Array, "n features"], source: Int[Array, " n"], key: PRNGKeyArray) -> Samples:
        key_x, key_noise = jax.random.split(key)
        x = jax.random.uniform(key_x, (len(source), 1))
        clean = jnp.sum(function * jax.vmap(self.phi)(x), axis=1)
        return Samples(x, {"target": clean + self.noise * jax.random.normal(key_noise, clean.shape), "source": source})

    def initial(self) -> Float[Array, " sources"]:
        """Equal shares."""
        return jnp.zeros(self.sources) if self.weights == "softmax" else jnp.full(self.sources, 1 / self.sources)

    def project(self, outer: Float[Array, " sources"]) -> Float[Array, " sources"]:
        """Onto [−6, 6]^K, or onto the simplex."""
        if self.weights == "softmax":
            return jnp.clip(outer, -LIMIT, LIMIT)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
            return optax.projections.projection_simplex(outer)

    def linear(self) -> Linear:
        """It has a small ridge: when all weight is on one source, its few samples have to do."""
        return Linear(self.phi, ridge=1e-3)

    def inner(self, *, rate: Number | None = None, steps: int | None = None, batch_size: int | None = None) -> Network:
        """`linear()` trained by gradient descent: the curvature of the inner problem is 2 in all directions."""
        rate = 0.2 if rate is None else rate
        return trained(self.linear(), rate=rate, steps=steps, batch_size=batch_size, adaptive=False)

    # The exact answer.

    def discrepancy(self, round: Int[Array, ""]) -> Float[Array, "sources sources"]:
        """K_t."""
        wrong = self.amounts(round)[:, None] * self.directions
        return wrong @ wrong.T

    def objective(self, round: Int[Array, ""], outer: Float[Array, " sources"]) -> Float[Array, ""]:
        share = self.shares(outer)
        return share @ self.discrepancy(round) @ share + self.noise**2

    def best(self, round: Int[Array, ""]) -> Float[Array, " sources"]:
        """The shares with the smallest pᵀK_t p, or their logarithms.

        Log-weights cannot make a share zero, so if a best share is, F_t(λ) is larger than the infimum, by about e⁻¹².
        """
        share = smallest_on_simplex(self.discrepancy(round), STEPS)
        if self.weights == "shares":
            return share
        logs = jnp.log(jnp.maximum(share, jnp.exp(-2 * LIMIT) * jnp.max(share)))
        return logs - (jnp.max(logs) + jnp.min(logs)) / 2
