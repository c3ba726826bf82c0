"""The paper's drifting regression, whose exact functional solution is known."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from smoothfbo import checks
from smoothfbo.problem import Data, Problem, Samples
from smoothfbo.stream import AbstractStream
from smoothfbo.types import Number


class Window(NamedTuple):
    """The last L batches, newest first."""

    x: Float[Array, "lags batch inputs"]
    y: Float[Array, "lags batch outputs"]


class DriftingRegression(AbstractStream):
    """y = σ(W_tᵀx + b_t) + noise with x ~ N(0, I) and (W_t, b_t) = (W, b) + drift(t)   (Section 6.1).

    Round t brings one batch of time t as outer data, and the batches of times t−L, …, t−1 as inner data, each
    sample marked with its lag (0 is the newest). The outer variable is one weight per lag.

    The exact answer is known. In L₂ the inner solution is h*_λ = Σ_s λ_s f_s / Σ_s λ_s, hence
    F_t(λ) = E‖f_t(x) − h*_λ(x)‖² + σ²·outputs; `objective` evaluates it on a fixed sample of inputs.
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]
    drift: Callable[[Int[Array, ""]], Float[Array, ""]]
    noise: Number
    lags: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        drift: Callable[[Int[Array, ""]], Float[Array, ""]],
        *,
        inputs: int = 5,
        outputs: int = 1,
        lags: int = 10,
        batch: int = 32,
        noise: Number = 0.3,
    ):
        for name, value in {"inputs": inputs, "outputs": outputs, "lags": lags, "batch": batch}.items():
            checks.require_integer(value, name, 1)
        checks.require_range(noise, "noise", 0.0)
        key_weight, key_bias = jax.random.split(key)
        self.weight = jax.random.normal(key_weight, (inputs, outputs))
        self.bias = jax.random.normal(key_bias, (outputs,))
        self.drift, self.noise, self.lags, self.batch = drift, noise, lags, batch

    @staticmethod
    def problem() -> Problem:
        """ℓ_in = λ_lag ‖v − y‖² and ℓ_out = ‖v − y‖², for a vector λ of one weight per lag."""
        return Problem(
            inner_loss=lambda outer, v, x, y: outer[y["lag"]] * jnp.sum((v - y["target"]) ** 2),  # noqa: ARG005
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

    def init(self, key: PRNGKeyArray) -> tuple[Window, Data]:
        """The batches of times −1, …, −L: the window is full in the first round."""
        keys = jax.random.split(key, self.lags)
        window = Window(*jax.vmap(self.draw)(-1 - jnp.arange(self.lags), keys))
        return window, self._data(window, *self.draw(jnp.zeros((), jnp.int32), key))

    def __call__(
        self, state: Window, round: Int[Array, ""], key: PRNGKeyArray, learner: Any
    ) -> tuple[Window, Data, None]:
        del learner
        x, y = self.draw(round, key)
        data = self._data(state, x, y)
        following = Window(*(jnp.concatenate([new[None], old[:-1]]) for new, old in zip((x, y), state, strict=True)))
        return following, data, None

    def objective(
        self, outer: Float[Array, " lags"], round: Int[Array, ""], x: Float[Array, "samples inputs"]
    ) -> Float[Array, ""]:
        """The exact F_t(λ), with the expectation over inputs taken as the mean over `x`."""
        times = round - 1 - jnp.arange(self.lags)
        past = jax.vmap(lambda time: self.truth(time, x))(times)
        solution = jnp.einsum("s,sno->no", outer, past) / jnp.sum(outer)
        error = jnp.mean(jnp.sum((self.truth(round, x) - solution) ** 2, axis=-1))
        return error + self.noise**2 * self.bias.size

    def _data(self, window: Window, x: Array, y: Array) -> Data:
        lag = jnp.repeat(jnp.arange(self.lags), self.batch)
        flat: Any = jax.tree.map(lambda leaf: leaf.reshape(-1, leaf.shape[-1]), window)
        # Outer samples carry a lag as well, so that both kinds of data have the same form; it is not used.
        return Data(
            inner=Samples(flat.x, {"target": flat.y, "lag": lag}),
            outer=Samples(x, {"target": y, "lag": jnp.zeros(self.batch, lag.dtype)}),
        )
