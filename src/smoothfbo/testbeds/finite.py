"""A drifting functional bilevel problem on finitely many inputs, with every quantity in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from smoothfbo import checks
from smoothfbo.functions.linear import Linear
from smoothfbo.problem import Problem
from smoothfbo.samples import Data, Samples
from smoothfbo.source import FunctionSource
from smoothfbo.testbeds.angles import smallest_over_angles
from smoothfbo.testbeds.base import AbstractTestbed
from smoothfbo.testbeds.cosine import travelled
from smoothfbo.types import Number


class FiniteBilevel(AbstractTestbed):
    """Inputs are n points; the inner function is h(x) = Φ(x)θ; λ enters through s = sin λ.

        ℓ_in  = ½ (v − y − gain·(A s)(x))²,     y = b_t(x) + noise, gain = 1 + gain_noise·N(0, 1)
        ℓ_out = ½ (v − y − ρ(A s)(x))² + (κ/d) Σ_j (1 − cos λ_j),     y = c_t(x) + noise

    With Π the projection onto the span of Φ in L₂ of the points: h* = Π(b_t + A s), a* = −Π(h* − c_t − ρA s), and with
    M = ΠA − ρA, δ_t = Πb_t − c_t

        F_t(λ) = ½ mean (δ_t + M s)² + (κ/d) Σ_j (1 − cos λ_j) + ½σ².

    Φ = identity is the functional case (a value for every point); fewer features than points is the linear reduction.
    With ρ = `outer_coupling` = 0 (the default) ĥ enters the hypergradient through the adjoint alone; with ρ ≠ 0 the
    explicit term ∂_λ ℓ_out depends on v as well, so ĥ enters both terms.
    """

    features: Float[Array, "n p"]
    coupling: Float[Array, "n d"]
    inverse_gram: Float[Array, "p p"]  # (ΦᵀΦ/n)⁻¹
    offsets: Float[Array, " n"]
    explicit_weight: Number  # κ
    outer_coupling: Number  # ρ
    noise: Number  # σ
    gain_noise: Number
    speed: Number
    slowing: Number
    batch: int = eqx.field(static=True)

    def __init__(
        self,
        *,
        points: int = 4,
        features: int | None = None,
        seed: int = 0,
        explicit_weight: Number = 0.2,
        outer_coupling: Number = 0.0,
        noise: Number = 0.3,
        gain_noise: Number = 0.5,
        speed: Number = 0.02,
        slowing: Number = 0.0,
        batch: int = 8,
    ):
        for name, value in {"points": points, "batch": batch}.items():
            checks.require_integer(value, name, 1)
        if features is not None:
            checks.require_integer(features, "features", 1)
            checks.require_range(features, "features", 1, points)
        generator = np.random.default_rng(seed)
        identity = np.eye(points)
        phi = identity if features is None else generator.normal(size=(points, features))
        dtype = jnp.result_type(float)
        self.features = jnp.asarray(phi, dtype)
        self.coupling = jnp.asarray(identity if features is None else generator.normal(size=(points, points)), dtype)
        self.inverse_gram = jnp.asarray(np.linalg.inv(phi.T @ phi / points), dtype)
        self.offsets = jnp.asarray(generator.uniform(0, 2 * np.pi, points), dtype)
        self.explicit_weight, self.outer_coupling = explicit_weight, outer_coupling
        self.noise, self.gain_noise = noise, gain_noise
        self.speed, self.slowing, self.batch = speed, slowing, batch

    @property
    def points(self) -> int:
        return self.features.shape[0]

    @property
    def dimension(self) -> int:
        return self.coupling.shape[1]

    # What drifts.

    def inner_target(self, round: Int[Array, ""]) -> Float[Array, " n"]:
        """b_t."""
        return jnp.sin(self.offsets + travelled(round, self.speed, self.slowing))

    def outer_target(self, round: Int[Array, ""]) -> Float[Array, " n"]:
        """c_t."""
        return 0.5 * jnp.cos(2 * self.offsets - travelled(round, self.speed, self.slowing))

    # The problem as a user would write it.

    def problem(self) -> Problem:
        coupling, weight, share = self.coupling, self.explicit_weight, self.outer_coupling

        def squared(outer: Array, v: Array, x: Array, target: Array, gain: Number) -> Array:
            return 0.5 * (v - target - gain * coupling[x] @ jnp.sin(outer)) ** 2

        return Problem(
            inner_loss=lambda outer, v, x, y: squared(outer, v, x, y["target"], y["gain"]),
            outer_loss=lambda outer, v, x, y: (
                squared(outer, v, x, y["target"], share) + weight * jnp.mean(1 - jnp.cos(outer))
            ),
        )

    def phi(self, x: Int[Array, ""]) -> Float[Array, " p"]:
        return self.features[x]

    def linear(self) -> Linear:
        """It has a small ridge: a mini-batch need not hold every point."""
        return Linear(self.phi, ridge=1e-3)

    def source(self) -> FunctionSource:
        return FunctionSource(self.draw)

    def initial(self) -> Float[Array, " d"]:
        return jnp.zeros(self.dimension)

    def draw(self, round: Int[Array, ""], key: PRNGKeyArray) -> Data:
        """Batches for the fits, and fresh ones for the hypergradient."""
        key_fit, key_final = jax.random.split(key)
        return self._batch(round, key_fit)._replace(final=self._batch(round, key_final))

    def _batch(self, round: Array, key: PRNGKeyArray) -> Data:
        keys = jax.random.split(key, 5)
        x_in, x_out = (jax.random.randint(k, (self.batch,), 0, self.points) for k in keys[:2])
        noise_in, noise_out, gain = (jax.random.normal(k, (self.batch,)) for k in keys[2:])
        inner = {"target": self.inner_target(round)[x_in] + self.noise * noise_in, "gain": 1 + self.gain_noise * gain}
        outer = {"target": self.outer_target(round)[x_out] + self.noise * noise_out, "gain": jnp.ones(self.batch)}
        return Data(Samples(x_in, inner), Samples(x_out, outer))

    # The exact answers.

    def parameters(self, round: Int[Array, ""], outer: Float[Array, " d"]) -> Float[Array, " p"]:
        """θ*_{t,λ}."""
        target = self.inner_target(round) + self.coupling @ jnp.sin(outer)
        return self.inverse_gram @ (self.features.T @ target) / self.points

    def solution(self, round: Int[Array, ""], outer: Float[Array, " d"]) -> Float[Array, " n"]:
        """h*_{t,λ} at every point."""
        return self.features @ self.parameters(round, outer)

    def outer_error(
        self, round: Int[Array, ""], outer: Float[Array, " d"], inner: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """h − c_t − ρA s: what the outer loss squares, without the noise."""
        return inner - self.outer_target(round) - self.outer_coupling * self.coupling @ jnp.sin(outer)

    def adjoint_of(
        self, round: Int[Array, ""], outer: Float[Array, " d"], inner: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """The exact adjoint −Π(h − c_t − ρA s) that belongs to an inner function h; a* belongs to h*."""
        return -self._project(self.outer_error(round, outer, inner))

    def objective(self, round: Int[Array, ""], outer: Float[Array, " d"]) -> Float[Array, ""]:
        error = self.outer_error(round, outer, self.solution(round, outer))
        explicit = self.explicit_weight * jnp.mean(1 - jnp.cos(outer))
        return 0.5 * jnp.mean(error**2) + explicit + 0.5 * self.noise**2

    def gradient(self, round: Int[Array, ""], outer: Float[Array, " d"]) -> Float[Array, " d"]:
        inner = self.solution(round, outer)
        return self.expected_hypergradient(round, outer, inner, self.adjoint_of(round, outer, inner))

    def expected_hypergradient(
        self,
        round: Int[Array, ""],
        outer: Float[Array, " d"],
        inner: Float[Array, " n"],
        adjoint: Float[Array, " n"],
    ) -> Float[Array, " d"]:
        """G_t = E[ĝ_t | λ_t, ĥ_t, â_t]: the mean over the final mini-batch, given the values of both functions.

        (κ/d) sin λ − cos λ ∘ Aᵀ(ρ(ĥ − c_t − ρA s) + â)/n: ĥ in the explicit term, â in the implicit one.
        """
        explicit = self.explicit_weight * jnp.sin(outer) / self.dimension
        both = self.outer_coupling * self.outer_error(round, outer, inner) + adjoint
        return explicit - jnp.cos(outer) * (self.coupling.T @ both) / self.points

    def best(self, round: Int[Array, ""]) -> Float[Array, " d"]:
        """argmin F_t."""
        shift = self._project(self.inner_target(round)) - self.outer_target(round)
        return smallest_over_angles(shift, self._slope(), self.explicit_weight / self.dimension)

    def variance(
        self,
        round: Int[Array, ""],
        outer: Float[Array, " d"],
        inner: Float[Array, " n"],
        adjoint: Float[Array, " n"],
    ) -> Float[Array, ""]:
        """E[‖ζ_t‖² | λ_t, ĥ_t, â_t]: the variances of the implicit and of the explicit mean, whose samples differ."""
        rows = self.coupling * jnp.cos(outer)
        lengths = jnp.sum(rows**2, axis=1)

        def spread(mean: Array, second_moment: Array) -> Array:
            """The variance of the mean of a batch of z·row(x), from E[z | x] and E[z² | x]."""
            return (jnp.mean(second_moment * lengths) - jnp.sum((rows.T @ mean / self.points) ** 2)) / self.batch

        error = self.outer_error(round, outer, inner)
        explicit = self.outer_coupling**2 * spread(error, error**2 + self.noise**2)
        return explicit + spread(adjoint, (1 + self.gain_noise**2) * adjoint**2)

    # The constants of the theory, over the first `rounds` rounds.

    def objective_bound(self, rounds: int) -> float:
        """Q ≥ |F_t(λ)|: s runs over the cube [−1, 1]^d, on which |δ + M s| ≤ |δ| + Σ_j |M_j|."""
        shift, slope, _ = self._constants(rounds)
        largest = np.abs(shift) + np.abs(slope).sum(axis=1)
        return float(0.5 * np.max(np.mean(largest**2, axis=1)) + 2 * self.explicit_weight + 0.5 * self.noise**2)

    def smoothness(self, rounds: int) -> float:
        """L ≥ ‖∇²F_t(λ)‖ = ‖cos MᵀM/n cos − diag(sin·Mᵀ(δ + M s)/n) + (κ/d) diag cos‖."""
        shift, slope, square = self._constants(rounds)
        linear = np.abs(shift @ slope / self.points) + np.abs(square).sum(axis=1)
        return float(np.linalg.norm(square, 2) + linear.max() + self.explicit_weight / self.dimension)

    def suprema(self, rounds: int) -> Float[Array, " changes"]:
        """sup_λ |F_{t+1}(λ) − F_t(λ)|, exactly: the difference is linear in s ∈ [−1, 1]^d."""
        shift, slope, _ = self._constants(rounds)
        change, middle = np.diff(shift, axis=0), (shift[1:] + shift[:-1]) / 2
        constant, linear = np.mean(change * middle, axis=1), change @ slope / self.points
        return jnp.asarray(np.abs(constant) + np.abs(linear).sum(axis=1))

    @eqx.filter_jit
    def parameter_suprema(self, rounds: int) -> Float[Array, " changes"]:
        """sup_λ ‖θ*_{t+1,λ} − θ*_{t,λ}‖, exactly: the difference does not depend on λ."""
        zero = jnp.zeros(self.dimension)
        path = jax.vmap(lambda round: self.parameters(round, zero))(jnp.arange(rounds))
        return jnp.linalg.norm(jnp.diff(path, axis=0), axis=1)

    def bias_constant(self) -> float:
        """c with ‖b_t‖² ≤ c·(ε_in + ε_adj), ε the suboptimality of ĥ and of â in their own objectives.

        b_t = −cos λ · Aᵀu/n with u = ρ(ĥ − h*) + â − a*, so ‖b_t‖² ≤ (‖A‖²/n) mean u². With a the exact adjoint of ĥ,
        a − a* = −(ĥ − h*) within the span of Φ, so u = (ρ − 1)(ĥ − h*) + (â − a). Both objectives have curvature 1:
        mean(ĥ − h*)² = 2ε_in and mean(â − a)² = 2ε_adj, hence mean u² ≤ 4(1 − ρ)² ε_in + 4ε_adj.
        """
        largest = max(1.0, (1 - float(self.outer_coupling)) ** 2)
        return float(4 * largest * np.linalg.norm(np.asarray(self.coupling), 2) ** 2 / self.points)

    def _slope(self) -> Float[Array, "n d"]:
        """M = ΠA − ρA."""
        return jax.vmap(self._project, in_axes=1, out_axes=1)(self.coupling) - self.outer_coupling * self.coupling

    def _project(self, values: Float[Array, " n"]) -> Float[Array, " n"]:
        return self.features @ (self.inverse_gram @ (self.features.T @ values)) / self.points

    def _constants(self, rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """δ_t for all rounds, M, and MᵀM/n."""
        shift, slope = (np.asarray(each) for each in self._shifts_and_slope(rounds))
        return shift, slope, slope.T @ slope / self.points

    @eqx.filter_jit
    def _shifts_and_slope(self, rounds: int) -> tuple[Array, Array]:
        times = jnp.arange(rounds)
        inner, outer = jax.vmap(self.inner_target)(times), jax.vmap(self.outer_target)(times)
        return jax.vmap(self._project)(inner) - outer, self._slope()
