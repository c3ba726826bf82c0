"""The paper's drifting regression, whose exact functional solution is known."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Integer, PRNGKeyArray

from smoothfbo import checks
from smoothfbo.errors import NotAvailable
from smoothfbo.functions.network import Network
from smoothfbo.problem import Problem
from smoothfbo.samples import Data, Samples
from smoothfbo.source import AbstractSource, Round
from smoothfbo.testbeds.base import AbstractTestbed
from smoothfbo.testbeds.drift import Drift, Swinging, as_drift
from smoothfbo.testbeds.line import smallest_on_line
from smoothfbo.testbeds.simplex import smallest_on_simplex
from smoothfbo.testbeds.weighting import Weighting, decay, excess, log_weights, per_lag, shares
from smoothfbo.types import Number

PERIOD = 2 * np.pi / 0.05  # of the paper's drift, 2 sin(0.05 t)
SMALLEST = 1e-2  # sum of weights per lag


class Window(NamedTuple):
    """The last L batches, newest first."""

    x: Float[Array, "lags batch inputs"]
    y: Float[Array, "lags batch outputs"]


class DriftingRegression(AbstractTestbed):
    """y = σ(W_tᵀx + b_t) + noise with x ~ N(0, I) and (W_t, b_t) = (W, b) + drift(t)   (Section 6.1).

    Round t brings one batch of time t as outer data, and the batches of times t−L, …, t−1 as inner data, each
    sample marked with its lag (0 is the newest). The outer variable is one weight per lag.

    The exact answer is known. In L₂ the inner solution is h*_λ = Σ_s λ_s f_s / Σ_s λ_s, hence
    F_t(λ) = E‖f_t(x) − h*_λ(x)‖² + σ²·outputs; `objective` evaluates it by quadrature.

    `drift` is a function from the round to a level, or a name: "smooth", "jumps", "bursts" (calm, then fast) or "walk".
    By name the level is `amplitude`·sin(2π·position), the position goes round once in `period` rounds, and `seed` draws
    the jumps and the walk; "smooth" is then the paper's drift.

    `weighting` makes the weights of the lags out of the outer variable: `per_lag` (the default) takes it as they are,
    `decay` takes a scalar rate, `log_weights` their logarithms. `width` is that of the network that `inner` trains.
    `key` draws W and b.
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]
    drift: Drift
    noise: Number
    weighting: Weighting = eqx.field(static=True)
    lags: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(
        self,
        drift: str | Drift = "smooth",
        *,
        period: Number = PERIOD,
        amplitude: Number = 2.0,
        seed: int | Integer[Array, ""] = 0,
        inputs: int = 5,
        outputs: int = 1,
        lags: int = 10,
        batch: int = 32,
        noise: Number = 0.3,
        weighting: Weighting = per_lag,
        width: int = 32,
        key: PRNGKeyArray,
    ):
        sizes = {"inputs": inputs, "outputs": outputs, "lags": lags, "batch": batch, "width": width}
        for name, value in sizes.items():
            checks.require_integer(value, name, 1)
        checks.require_range(noise, "noise", 0.0)
        key_weight, key_bias = jax.random.split(key)
        self.weight = jax.random.normal(key_weight, (inputs, outputs))
        self.bias = jax.random.normal(key_bias, (outputs,))
        position = as_drift(drift, period, seed)
        self.drift = Swinging(position, amplitude) if isinstance(drift, str) else position
        self.noise, self.weighting = noise, weighting
        self.lags, self.batch, self.width = lags, batch, width

    def problem(self) -> Problem:
        """ℓ_in = λ_lag ‖v − y‖² and ℓ_out = ‖v − y‖², where λ_lag is the weight of the sample's lag."""
        weighting = self.weighting
        return Problem(
            inner_loss=lambda outer, v, x, y: (  # noqa: ARG005
                weighting(outer, y["lag"]) * jnp.sum((v - y["target"]) ** 2)
            ),
            outer_loss=lambda outer, v, x, y: jnp.sum((v - y["target"]) ** 2),  # noqa: ARG005
        )

    def truth(self, round: Int[Array, ""], x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """f_t(x)."""
        shift = self.drift(round)
        return jax.nn.sigmoid(x @ (self.weight + shift) + self.bias + shift)

    def draw(self, round: Int[Array, ""], key: PRNGKeyArray) -> tuple[Array, Array]:
        """One batch of time `round`."""
        key_x, key_noise = jax.random.split(key)
        x = jax.random.normal(key_x, (self.batch, self.weight.shape[0]))
        y = self.truth(round, x)
        return x, y + self.noise * jax.random.normal(key_noise, y.shape)

    def source(self, *, fresh_final: bool = False) -> "RegressionSource":
        """A batch a round, and the batches of the last L rounds beside it.

        With `fresh_final` a round also has `Data.final`, new samples of the same rounds: the hypergradient is then
        independent of all that the fits have seen.
        """
        return RegressionSource(self, fresh_final)

    def fresh(self, round: Int[Array, ""], key: PRNGKeyArray) -> Data:
        """New samples of the rounds t−L, …, t: as many as the data of round t, and independent of them."""
        times = round - 1 - jnp.arange(self.lags)
        keys = jax.random.split(key, self.lags + 1)
        return self.data(Window(*jax.vmap(self.draw)(times, keys[1:])), *self.draw(round, keys[0]))

    def data(self, window: "Window", x: Array, y: Array) -> Data:
        """The samples of a window as inner data, and of one batch as outer data."""
        lag = jnp.repeat(jnp.arange(self.lags), self.batch)
        flat: Any = jax.tree.map(lambda leaf: leaf.reshape(-1, leaf.shape[-1]), window)
        # Outer samples carry a lag as well, so that both kinds of data have the same form; it is not used.
        return Data(
            inner=Samples(flat.x, {"target": flat.y, "lag": lag}),
            outer=Samples(x, {"target": y, "lag": jnp.zeros(self.batch, lag.dtype)}),
        )

    def initial(self) -> Array:
        """All weights one; the decay starts at a small rate (at 0, weights are one, too, but on the border of Λ)."""
        if self.weighting is per_lag:
            return jnp.ones(self.lags)
        if self.weighting is decay:
            return jnp.asarray(0.05)
        if self.weighting is log_weights:
            return jnp.zeros(self.lags)
        raise self._unknown("a λ to start from")

    def project(self, outer: Array) -> Array:
        """Onto λ ≥ 0, and for weights per lag Σλ ≥ 0.01: where all are 0, they have no shares, and F_t no value.
        Logarithms of weights are free.
        """
        if self.weighting is log_weights:
            return outer
        kept = jnp.maximum(outer, 0)
        if self.weighting is not per_lag:
            return kept
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
            nearest = optax.projections.projection_simplex(outer, SMALLEST)
        return jnp.where(jnp.sum(kept) < SMALLEST, nearest, kept)

    def inner(self, *, rate: Number | None = None, steps: int | None = None, batch_size: int | None = None) -> Network:
        """The paper's three-layer network with GELU, trained by Adam; h* is not linear in known features."""
        (inputs, outputs), width = self.weight.shape, self.width
        return Network(
            lambda key: eqx.nn.MLP(inputs, outputs, width, 2, jax.nn.gelu, key=key),
            # eps_root: the derivative of Adam's step is not finite at a gradient of zero without it (unrolling).
            optax.adam(1e-3 if rate is None else rate, eps_root=1e-12),
            5 if steps is None else steps,
            batch_size=batch_size,
        )

    def solution(
        self, round: Int[Array, ""], outer: Array, x: Float[Array, "*batch inputs"]
    ) -> Float[Array, "*batch outputs"]:
        """h*_{t,λ}(x) = Σ_s λ_s f_s(x) / Σ_s λ_s, the exact inner solution."""
        past = jax.vmap(lambda lag: self.truth(round - 1 - lag, x))(jnp.arange(self.lags))
        return jnp.tensordot(shares(self.weighting, outer, self.lags), past, axes=1)

    def discrepancy(self, round: Int[Array, ""]) -> Float[Array, "lags lags"]:
        """K_t[s, r] = E⟨f_{t−1−s}(x) − f_t(x), f_{t−1−r}(x) − f_t(x)⟩, all that F_t depends on.

        f_t(x) is a function of two normal variables, Wᵀx and 1ᵀx, for each output: the trapezoid rule on a grid
        integrates it to about six digits.
        """
        grid = jnp.linspace(-6.0, 6.0, 61)
        first, second = (axis.ravel() for axis in jnp.meshgrid(grid, grid))
        density = jnp.exp(-(first**2 + second**2) / 2)
        length = jnp.linalg.norm(self.weight, axis=0)[:, None]
        along = jnp.sum(self.weight, axis=0)[:, None] / length  # of the vector of ones, and across:
        across = jnp.sqrt(jnp.maximum(self.weight.shape[0] - along**2, 0))
        shifts = jax.vmap(self.drift)(round - jnp.arange(self.lags + 1))[:, None, None]
        summed = along * first + across * second  # 1ᵀx
        values = jax.nn.sigmoid(length * first + self.bias[:, None] + shifts * (1 + summed))
        difference = values[1:] - values[:1]
        return jnp.einsum("son,ron,n->sr", difference, difference, density / jnp.sum(density))

    def objective(self, round: Int[Array, ""], outer: Array) -> Float[Array, ""]:
        """The exact F_t(λ) = E‖f_t(x) − h*_λ(x)‖² + σ²·outputs."""
        return excess(self.weighting, self.discrepancy(round), outer) + self.noise**2 * self.bias.size

    def best(self, round: Int[Array, ""]) -> Array:
        """The weights per lag with the smallest F_t: the shares π ≥ 0, Σπ = 1, that minimise πᵀ K_t π.

        Every positive multiple is as good. All weight on the newest batch is best only where no mixture of older
        truths comes closer to f_t; a drift that comes back has such mixtures. The best decay is found on a grid up to
        λ = 30, which stands for all weight on the newest batch, and refined.
        """
        discrepancy = self.discrepancy(round)
        if self.weighting is per_lag:
            return smallest_on_simplex(discrepancy)
        if self.weighting is decay:
            rates = jnp.append(jnp.zeros(1, discrepancy.dtype), jnp.geomspace(1e-3, 30.0, 100, dtype=discrepancy.dtype))
            return smallest_on_line(lambda rate: excess(decay, discrepancy, rate), rates)
        raise self._unknown("the best λ")

    def smoothness(self, rounds: int) -> float:
        """There is none: F_t(λ) = F_t(cλ) for all c > 0, so its curvature grows like 1/‖λ‖² towards λ = 0."""
        del rounds
        raise NotAvailable(
            "DriftingRegression has no smoothness constant: F_t depends on the shares of the weights alone, so its "
            "curvature grows without bound towards λ = 0."
        )

    @eqx.filter_jit
    def objective_bound(self, rounds: int) -> Float[Array, ""]:
        """Q = max_t max_s K_t[s, s] + σ²·outputs: a convex function of the shares is largest at a corner.

        Exactly for weights per lag; a bound for the decay, whose shares are only some of these.
        """
        diagonals = jax.vmap(lambda round: jnp.diagonal(self.discrepancy(round)))(jnp.arange(rounds))
        return jnp.max(diagonals) + self.noise**2 * self.bias.size

    @eqx.filter_jit
    def suprema(self, rounds: int) -> Float[Array, " changes"]:
        """max_{s,r} |K_{t+1}[s, r] − K_t[s, r]| ≥ sup_λ |F_{t+1}(λ) − F_t(λ)|, because shares sum to one: a bound."""
        matrices = jax.vmap(self.discrepancy)(jnp.arange(rounds))
        return jnp.max(jnp.abs(jnp.diff(matrices, axis=0)), axis=(1, 2))

    @eqx.filter_jit
    def parameter_suprema(self, rounds: int) -> Float[Array, " changes"]:
        """sup_λ ‖h*_{t+1,λ} − h*_{t,λ}‖ in L₂, at a corner again: max_s ‖f_{t−s} − f_{t−1−s}‖ over the lags s.

        ‖f_t − f_{t−1}‖² is K_t[0, 0]. Exactly for weights per lag; for the decay at λ → ∞ or below.
        """
        times = jnp.arange(1 - self.lags, rounds - 1)
        moved = jnp.sqrt(jax.vmap(lambda round: self.discrepancy(round)[0, 0])(times))
        return jax.vmap(lambda t: jnp.max(jax.lax.dynamic_slice(moved, (t,), (self.lags,))))(jnp.arange(rounds - 1))

    def _unknown(self, what: str) -> NotAvailable:
        return NotAvailable(f"DriftingRegression does not know {what} for weighting={self.weighting!r}.")


class RegressionSource(AbstractSource):
    """The data of a `DriftingRegression`: the state is the window of the last L batches."""

    testbed: DriftingRegression
    fresh_final: bool = eqx.field(static=True, default=False)

    def init(self, key: PRNGKeyArray) -> tuple[Window, Data]:
        """The batches of times −1, …, −L: the window is full in the first round."""
        keys = jax.random.split(key, self.testbed.lags)
        window = Window(*jax.vmap(self.testbed.draw)(-1 - jnp.arange(self.testbed.lags), keys))
        first = jnp.zeros((), jnp.int32)
        return window, self._with_final(self.testbed.data(window, *self.testbed.draw(first, key)), first, key)

    def __call__(self, state: Window, round: Int[Array, ""], learner: Any, key: PRNGKeyArray) -> tuple[Window, Round]:
        del learner
        x, y = self.testbed.draw(round, key)
        data = self._with_final(self.testbed.data(state, x, y), round, key)
        following = Window(*(jnp.concatenate([new[None], old[:-1]]) for new, old in zip((x, y), state, strict=True)))
        return following, Round(data)

    def _with_final(self, data: Data, round: Int[Array, ""], key: PRNGKeyArray) -> Data:
        """The data, with fresh samples where they are wanted; their key is used for nothing else."""
        if not self.fresh_final:
            return data
        return data._replace(final=self.testbed.fresh(round, jax.random.fold_in(key, 1)))
