"""Penalties, one per feature, of a regression whose support changes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer, PRNGKeyArray

from smoothfbo import checks
from smoothfbo.functions.linear import Linear
from smoothfbo.functions.network import Network
from smoothfbo.problem import Problem
from smoothfbo.samples import Data, Samples
from smoothfbo.source import FunctionSource
from smoothfbo.testbeds.base import AbstractTestbed, trained
from smoothfbo.testbeds.drift import Drift, as_drift
from smoothfbo.types import Number

LIMIT = 4.0  # of a log-penalty
SHARPNESS = 3.0  # with which a feature enters and leaves the support


class ChangingSupport(AbstractTestbed):
    """Ridge regression with a penalty e^{λ_j} for each feature; which features matter changes all the time.

    The inner data come from a pool in which all features matter, y = wᵀx + noise, the outer data from today's
    population, y = β_tᵀx + noise; x ~ N(0, Σ) in both, with unit variances and correlations ρ. The inner function is
    h(x) = θᵀx:

        inner objective  E(y − θᵀx)² + Σ_j e^{λ_j} θ_j²,     θ_λ = (Σ + diag e^λ)⁻¹ Σw.

    Today's coefficients are those of the pool, shrunk by penalties λ*_t that move: β_t = θ_{λ*_t}, with λ*_{t,j} low
    while feature j belongs to the support and high while it does not, one feature after the other. Hence

        F_t(λ) = (θ_λ − β_t)ᵀ Σ (θ_λ − β_t) + σ²,

    and λ*_t is the best answer, inside of Λ = [−4, 4]^d.

    The penalty is written as a point-wise loss: a pseudo-sample at √d times the j-th unit vector, with target 0 and
    weight e^{λ_j}, costs d·e^{λ_j}θ_j², and there are as many of them as samples of the pool. This is exact for
    functions that are linear in x, and for these only: another function could be 0 at the pseudo-samples at no cost.

    **Arguments:**

    - `features`: d. `batch`: samples of the pool, and of today's population, in a round; at least d.
    - `correlation`: ρ. `noise`: σ.
    - `drift`, `period`: a feature enters the support and leaves it again once a period.
    - `active`: the share of the features in the support. `depth`: λ* runs from −`depth` to `depth`.
    - `seed`: draws w and the position of round 0.
    """

    pool: Float[Array, " d"]  # w
    start: Float[Array, ""]
    drift: Drift
    correlation: Number
    noise: Number
    active: Number
    depth: Number
    batch: int = eqx.field(static=True)

    def __init__(
        self,
        *,
        features: int = 8,
        batch: int = 32,
        correlation: Number = 0.3,
        drift: str | Drift = "smooth",
        period: Number = 600.0,
        noise: Number = 0.3,
        active: Number = 0.5,
        depth: Number = 2.5,
        seed: int | Integer[Array, ""] = 0,
    ):
        checks.require_integer(features, "features", 1)
        checks.require_integer(batch, "batch", features)
        checks.require_range(correlation, "correlation", 0.0, 0.99)
        checks.require_range(noise, "noise", 0.0)
        checks.require_range(active, "active", 0.0, 1.0)
        checks.require_range(depth, "depth", 0.0, LIMIT)
        key_size, key_sign, key_start = jax.random.split(jax.random.key(seed), 3)
        size = jax.random.uniform(key_size, (features,), minval=0.75, maxval=1.25)
        self.pool = size * jax.random.rademacher(key_sign, (features,), size.dtype)
        self.start = jax.random.uniform(key_start)
        self.drift = as_drift(drift, period, seed)
        self.correlation, self.noise, self.active, self.depth = correlation, noise, active, depth
        self.batch = batch

    @property
    def features(self) -> int:
        return self.pool.size

    # The problem as methods see it.

    def problem(self) -> Problem:
        """A sample (of feature −1) costs its squared error, a pseudo-sample the penalty of its feature."""
        return Problem(
            inner_loss=lambda outer, v, x, y: (  # noqa: ARG005
                jnp.where(y["feature"] < 0, 1, jnp.exp(outer[y["feature"]])) * (v - y["target"]) ** 2
            ),
            outer_loss=lambda outer, v, x, y: (v - y["target"]) ** 2,  # noqa: ARG005
        )

    def source(self) -> FunctionSource:
        return FunctionSource(self.draw)

    def draw(self, round: Int[Array, ""], key: PRNGKeyArray) -> Data:
        key_inner, key_outer = jax.random.split(key)
        inner, pseudo = self._samples(self.pool, key_inner), self._pseudo_samples()
        both = jax.tree.map(lambda *parts: jnp.concatenate(parts), inner, pseudo)
        return Data(both, self._samples(self.coefficients(self.best(round)), key_outer))

    def _samples(self, coefficients: Float[Array, " d"], key: PRNGKeyArray) -> Samples:
        key_own, key_common, key_noise = jax.random.split(key, 3)
        own = jax.random.normal(key_own, (self.batch, self.features))
        common = jax.random.normal(key_common, (self.batch, 1))
        share = jnp.asarray(self.correlation, own.dtype)
        x = jnp.sqrt(1 - share) * own + jnp.sqrt(share) * common
        target = x @ coefficients + self.noise * jax.random.normal(key_noise, (self.batch,))
        return Samples(x, {"target": target, "feature": jnp.full(self.batch, -1, jnp.int32)})

    def _pseudo_samples(self) -> Samples:
        """`batch` of them, one feature after the other; if d does not divide `batch`, the rarer ones are longer."""
        feature = np.arange(self.batch) % self.features
        length = np.sqrt(self.batch / np.bincount(feature))[feature]
        x = jnp.asarray(np.eye(self.features)[feature] * length[:, None], self.pool.dtype)
        return Samples(x, {"target": jnp.zeros(self.batch, x.dtype), "feature": jnp.asarray(feature.astype(np.int32))})

    def initial(self) -> Float[Array, " d"]:
        return jnp.zeros(self.features)

    def project(self, outer: Float[Array, " d"]) -> Float[Array, " d"]:
        """Onto [−4, 4]^d."""
        return jnp.clip(outer, -LIMIT, LIMIT)

    def linear(self) -> Linear:
        """θᵀx: the penalties are in the data."""
        return Linear(lambda x: x)

    def inner(self, *, rate: Number | None = None, steps: int | None = None, batch_size: int | None = None) -> Network:
        """`linear()` trained by gradient descent, slow enough for the curvature e⁴ of the largest penalty."""
        rate = 0.02 if rate is None else rate
        return trained(self.linear(), rate=rate, steps=steps, batch_size=batch_size, adaptive=False)

    @property
    def system_rate(self) -> float:
        """0.01: a penalty adds a curvature of up to e⁴."""
        return 0.01

    # The exact answer.

    def coefficients(self, outer: Float[Array, " d"]) -> Float[Array, " d"]:
        """θ_λ, where Σ + diag e^λ = diag a + ρ11ᵀ is inverted by the formula of Sherman and Morrison."""
        rho = jnp.asarray(self.correlation, outer.dtype)
        right = self._times_covariance(self.pool)
        inverse = 1 / (1 - rho + jnp.exp(outer))
        correction = rho * jnp.sum(inverse * right) / (1 + rho * jnp.sum(inverse))
        return inverse * (right - correction)

    def _times_covariance(self, vector: Float[Array, " d"]) -> Float[Array, " d"]:
        rho = jnp.asarray(self.correlation, vector.dtype)
        return (1 - rho) * vector + rho * jnp.sum(vector)

    def objective(self, round: Int[Array, ""], outer: Float[Array, " d"]) -> Float[Array, ""]:
        return self.gap(round, outer) + self.noise**2

    def best(self, round: Int[Array, ""]) -> Float[Array, " d"]:
        """λ*_t."""
        lead = jnp.arange(self.features, dtype=self.start.dtype) / self.features
        phase = 2 * np.pi * (self.start + self.drift(round) - lead)
        border = jnp.cos(np.pi * jnp.asarray(self.active, phase.dtype))
        return self.depth * jnp.tanh(SHARPNESS * (border - jnp.cos(phase)))

    def gap(self, round: Int[Array, ""], outer: Float[Array, " d"]) -> Float[Array, ""]:
        """(θ_λ − β_t)ᵀ Σ (θ_λ − β_t), without the difference of two large numbers."""
        error = self.coefficients(outer) - self.coefficients(self.best(round))
        return error @ self._times_covariance(error)
