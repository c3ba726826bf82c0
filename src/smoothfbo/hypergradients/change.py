"""When has the inner problem changed? Page's cumulative sum, on what a fit to the newest round alone gains."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

MEMORY = 50  # rounds, of the running mean and variance of the gain
FIRST = 20  # rounds before which nothing is an alarm: mean and variance are not known yet
FAR = 3.0  # standard deviations: what lies beyond does not move mean and variance
ALLOWED = 2.25  # standard deviations that a round may lie above the mean for nothing
ALARM = 3.0  # the sum at which it is a change


class ChangeState(NamedTuple):
    mean: Float[Array, ""]  # of the root of the gain
    variance: Float[Array, ""]
    rounds: Int[Array, ""]  # that mean and variance are made of
    total: Float[Array, ""]  # the cumulative sum
    since: Int[Array, ""]  # rounds since it was 0


class Verdict(NamedTuple):
    changed: Bool[Array, ""]
    since: Int[Array, ""]  # rounds since the change, the newest one included


def no_change() -> ChangeState:
    zero, none = jnp.zeros(()), jnp.zeros((), jnp.int32)
    return ChangeState(zero, zero, none, zero, none)


def watch(state: ChangeState, gain: Float[Array, ""], counts: Bool[Array, ""]) -> tuple[Verdict, ChangeState]:
    """Page's test (1954) of √G_t (of −√−G_t, where G_t < 0), in standard deviations z_t from its running mean:

        S_t = max(0, S_{t−1} + z_t − 2.25),     a change where S_t > 3.

    One round that lies 5.25 deviations above the mean is a change, or some that lie less far above. The root, because
    a gain is a sum of squares, of a few numbers at times: without it the upper tail of G_t is long, and rounds in which
    nothing changes lie six deviations above the mean. S leaves 0 when the change came, so it is known how many rounds
    belong to what is new. Rounds that do not `counts` are judged, but leave mean and variance as they are. What is not
    finite says nothing.
    """
    gain = gain.astype(state.mean.dtype)
    usable = jnp.isfinite(gain)
    gain = jnp.sign(gain) * jnp.sqrt(jnp.abs(gain))
    deviation = jnp.sqrt(state.variance)
    is_known = (state.rounds >= FIRST) & (deviation > 0)
    z = jnp.where(is_known & usable, (gain - state.mean) / jnp.where(deviation > 0, deviation, 1), 0)
    total = jnp.maximum(0, state.total + z - ALLOWED)
    since = jnp.where(total > 0, state.since + 1, 0)
    changed = total > ALARM

    # Without what may be a change already.
    value = jnp.where(is_known, jnp.minimum(gain, state.mean + FAR * deviation), gain)
    share = 1 / jnp.minimum(state.rounds + 1, MEMORY).astype(state.mean.dtype)
    mean = state.mean + share * (value - state.mean)
    variance = (1 - share) * state.variance + share * (value - state.mean) * (value - mean)
    learns = usable & counts
    following = ChangeState(
        mean=jnp.where(learns, mean, state.mean),
        variance=jnp.where(learns, variance, state.variance),
        rounds=jnp.where(learns, jnp.minimum(state.rounds + 1, MEMORY), state.rounds),
        total=jnp.where(changed, 0, total),
        since=jnp.where(changed, 0, since),
    )
    return Verdict(changed, since), following


def fits_since_change(
    fit: Callable[[Int[Array, ""]], Any], before: ChangeState, rounds: Int[Array, ""], window: int
) -> tuple[Any, ChangeState, Int[Array, ""]]:
    """`fit` of the last `rounds`, which has a `gain`; where that shows a change, of the rounds since then.

    Returns it with the new state and with the number of these rounds.
    """

    def attempt(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        _, is_first, rounds, change, _ = carry
        fits = fit(rounds)
        verdict, watched = watch(before, fits.gain, rounds == window)
        since = jnp.where(is_first & verdict.changed, jnp.minimum(rounds, verdict.since), rounds)
        return since < rounds, jnp.asarray(False), since, optax.tree.where(is_first, watched, change), fits

    yes, nothing = jnp.asarray(True), optax.tree.zeros_like(jax.eval_shape(fit, rounds))
    first = yes, yes, rounds, before, nothing
    _, _, rounds, change, fits = jax.lax.while_loop(lambda carry: carry[0], attempt, first)
    return fits, change, rounds
