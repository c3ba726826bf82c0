"""How the parameters of a stream move: functions of the round."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer

from smoothfbo import checks
from smoothfbo.types import Number


class Sinusoidal(eqx.Module):
    """t ↦ β sin(ωt)."""

    amplitude: Number = 2.0
    frequency: Number = 0.05

    def __call__(self, round: Int[Array, ""]) -> Float[Array, ""]:
        dtype = jnp.result_type(float)
        return jnp.asarray(self.amplitude, dtype) * jnp.sin(self.frequency * round.astype(dtype))


class Jumps(eqx.Module):
    """A new level, uniform in [−β, β], every `interval` rounds."""

    amplitude: Number = 2.0
    interval: int = eqx.field(default=100, static=True)
    seed: int | Integer[Array, ""] = 0

    def __check_init__(self) -> None:
        checks.require_integer(self.interval, "interval", 1)

    def __call__(self, round: Int[Array, ""]) -> Float[Array, ""]:
        segment = jnp.floor_divide(round, self.interval)
        key = jax.random.fold_in(jax.random.key(self.seed), segment)
        return self.amplitude * jax.random.uniform(key, minval=-1.0, maxval=1.0)
