"""How the parameters of a problem move: functions of the round.

`Sinusoidal`, `Swinging` and `Jumps` give a level. The others give a position on a circle of length 1, whose one knob is
`period`: the rounds that it takes to go round once. `as_drift` makes one from its name.
"""

import difflib
from collections.abc import Callable
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer

from smoothfbo import checks
from smoothfbo.types import Number

Drift: TypeAlias = Callable[[Int[Array, ""]], Float[Array, ""]]

LEVELS = 20  # of the tree behind the random walk: it has 2²⁰ rounds


class Sinusoidal(eqx.Module):
    """t ↦ β sin(ωt)."""

    amplitude: Number = 2.0
    frequency: Number = 0.05

    def __call__(self, round: Int[Array, ""]) -> Float[Array, ""]:
        dtype = jnp.result_type(float)
        return jnp.asarray(self.amplitude, dtype) * jnp.sin(self.frequency * round.astype(dtype))


class Swinging(eqx.Module):
    """t ↦ β sin(2π s_t) for a position s_t on the circle: any kind of drift as a level."""

    position: Drift
    amplitude: Number = 2.0

    def __call__(self, round: Int[Array, ""]) -> Float[Array, ""]:
        place = self.position(round)
        return jnp.asarray(self.amplitude, place.dtype) * jnp.sin(2 * np.pi * place)


class Jumps(eqx.Module):
    """A new level, uniform in [−β, β], every `interval` rounds."""

    amplitude: Number = 2.0
    interval: int | Integer[Array, ""] = 100
    seed: int | Integer[Array, ""] = 0

    def __check_init__(self) -> None:
        if not isinstance(self.interval, jax.Array):
            checks.require_integer(self.interval, "interval", 1)

    def __call__(self, round: Int[Array, ""]) -> Float[Array, ""]:
        segment = jnp.floor_divide(round, jnp.asarray(self.interval, round.dtype))
        key = jax.random.fold_in(jax.random.key(self.seed), segment)
        return self.amplitude * jax.random.uniform(key, minval=-1.0, maxval=1.0)


class Steady(eqx.Module):
    """t ↦ t/period: the position moves at a constant speed."""

    period: Number = 600.0

    def __check_init__(self) -> None:
        checks.require_range(self.period, "period", 0.0, open_low=True)

    def __call__(self, round: Int[Array, ""]) -> Float[Array, ""]:
        dtype = jnp.result_type(float)
        return round.astype(dtype) / jnp.asarray(self.period, dtype)


class Bursts(eqx.Module):
    """Calm, then fast: the position rests, and then makes a quarter of the way at once, four times a period.

    Of every quarter of the period the share `calm` passes at rest, and the rest at 1/(1 − calm) times the mean speed.
    """

    period: Number = 600.0
    calm: Number = 0.8

    def __check_init__(self) -> None:
        checks.require_range(self.period, "period", 0.0, open_low=True)
        checks.require_range(self.calm, "calm", 0.0, 0.999)

    def __call__(self, round: Int[Array, ""]) -> Float[Array, ""]:
        dtype = jnp.result_type(float)
        quarters = 4 * round.astype(dtype) / jnp.asarray(self.period, dtype)
        done = jnp.floor(quarters)
        return (done + jnp.maximum(quarters - done - self.calm, 0) / (1 - self.calm)) / 4


class RandomWalk(eqx.Module):
    """A Gaussian random walk from 0 whose standard deviation after `period` rounds is 1; it has 2²⁰ rounds.

    It needs no history: W_0 and W_{2²⁰} are drawn, and then the middle of the interval that holds the round, given its
    ends, again and again (Lévy's construction). Before round 0 it is another walk.
    """

    period: Number = 600.0
    seed: int | Integer[Array, ""] = 0

    def __check_init__(self) -> None:
        checks.require_range(self.period, "period", 0.0, open_low=True)

    def __call__(self, round: Int[Array, ""]) -> Float[Array, ""]:
        dtype = jnp.result_type(float)
        key = jax.random.fold_in(jax.random.key(self.seed), round < 0)
        time = jnp.abs(round)

        def halve(level: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            left, right = ends
            level = level.astype(time.dtype)
            place = time >> (LEVELS - level)  # the interval of this level that holds the round
            draw = jax.random.normal(jax.random.fold_in(key, (1 << level) + place))
            half = jnp.exp2((LEVELS - 1 - level).astype(dtype))
            middle = (left + right) / 2 + jnp.sqrt(half / 2) * draw
            is_right = (time >> (LEVELS - 1 - level)) & 1 == 1
            return jnp.where(is_right, middle, left), jnp.where(is_right, right, middle)

        last = jnp.asarray(2.0 ** (LEVELS / 2), dtype) * jax.random.normal(jax.random.fold_in(key, 0))
        level, _ = jax.lax.fori_loop(0, LEVELS, halve, (jnp.zeros((), dtype), last))
        return level / jnp.sqrt(jnp.asarray(self.period, dtype))


def _jumps(period: Number, seed: int | Integer[Array, ""]) -> Jumps:
    """Jumps to anywhere on the circle, a quarter of it on average: four a period are as fast as a steady drift."""
    if isinstance(period, jax.Array):
        return Jumps(0.5, jnp.maximum(jnp.round(period / 4).astype(jnp.int32), 1), seed)
    return Jumps(0.5, max(1, round(period / 4)), seed)


KINDS: dict[str, Callable[[Number, int | Integer[Array, ""]], Drift]] = {
    "smooth": lambda period, seed: Steady(period),  # noqa: ARG005
    "jumps": _jumps,
    "bursts": lambda period, seed: Bursts(period),  # noqa: ARG005
    "walk": RandomWalk,
}


def as_drift(drift: str | Drift, period: Number = 600.0, seed: int | Integer[Array, ""] = 0) -> Drift:
    """A drift by its name, "smooth", "jumps", "bursts" or "walk", with this period; a function stays as it is."""
    checks.require_range(period, "period", 0.0, open_low=True)
    allowed = f"one of {', '.join(KINDS)} or a function of the round"
    if isinstance(drift, str):
        if drift not in KINDS:
            near = difflib.get_close_matches(drift, KINDS, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"drift must be {allowed}, got {drift!r}{hint}.")
        return KINDS[drift](period, seed)
    if not callable(drift):
        raise TypeError(f"drift must be {allowed}, got {drift!r}.")
    return drift


def rise_and_fall(position: Float[Array, "*shape"], low: Number) -> Float[Array, "*shape"]:
    """low + (1 − low)·sin²(π·position): once a period from `low` up to 1 and back."""
    return low + (1 - low) * jnp.sin(np.pi * position) ** 2
