"""Has a move gone too far, up a steep wall or to where gradients vanish? Then λ goes back."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

FLAT = 0.1  # of the long-run size: gradients below it for three rounds are those of a flat place
INFORMATIVE = 0.3, 3.0  # of the long-run size: λ with gradients between these is a place to return to
GONE = 1 / 30  # of the long-run size, in one of the first rounds: the first moves were too long
FIRST = 10  # rounds
RECENT = 0.7  # of the old mean, in the running mean of the loss
SCATTER = 0.9  # of the old mean, in that of the squared differences of successive losses
SURE = 2.0  # standard errors by which the loss must have grown


class RetreatState(NamedTuple):
    place: PyTree  # the last λ with informative gradients
    usual: Float[Array, " directions"]  # what their usual sizes were there
    loss: Float[Array, ""]  # running mean of the outer loss when λ was there
    now: Float[Array, ""]  # running mean of the outer loss
    last: Float[Array, ""]  # outer loss of the last round
    scatter: Float[Array, ""]  # variance of the outer loss, from differences


def at_start(params: PyTree, usual: Float[Array, " directions"]) -> RetreatState:
    zero = jnp.zeros((), usual.dtype)
    return RetreatState(jax.tree.map(jnp.array, params), usual, zero, zero, zero, zero)


def has_overshot(
    move: PyTree, before: tuple[PyTree, ...], now: tuple[PyTree, ...], lost: Float[Array, ""] | None
) -> Bool[Array, ""]:
    """Whether the last move m = λ_t − λ_{t−1} must be undone:

        lost_t > |⟨g_{t−1}, m⟩|   and   ⟨g_t, m⟩ > 2 lost_t,

    for the gradients of the rounds `before` and `now`. lost_t is what m has added to the outer loss of round t, beyond
    chance (`hypergradients.paired`), and ⟨g_{t−1}, m⟩ what it should have taken away. On a parabola the first says that
    m was more than four times too long. The second says that the direction was right: a parabola with this difference
    and this slope at λ_t falls where m began. After a jump, say, it does not, and m is not to blame for its length.
    """
    if lost is None:
        return jnp.asarray(False)
    promised, slopes = (
        jnp.stack([jnp.asarray(optax.tree.vdot(gradient, move), lost.dtype) for gradient in gradients])
        for gradients in (before, now)
    )
    return (lost > jnp.max(jnp.abs(promised))) & (jnp.min(slopes) > 2 * lost)


def judge_place(
    state: RetreatState,
    params: PyTree,
    usual: Float[Array, " directions"],
    sizes: tuple[Float[Array, ""], Float[Array, ""]],
    value: Any,
    age: Float[Array, ""],
) -> tuple[Bool[Array, ""], Bool[Array, ""], RetreatState]:
    """Whether λ must return to `state.place`, whether because the first moves were too long, and the next state.

    `sizes` are those of the gradients relative to their long-run size: of this round, and the largest of this round and
    the last two. λ returns where

    - the sizes of three rounds were below 0.1, and the mean outer loss of the last rounds is larger than it was at
      `place`, by two standard errors. Where gradients fade because λ does well, it is not;
    - or in one of the first ten rounds the size is below 1/30: gradients do not vanish so fast on the way to an answer.
      (A size of 0 may also mean that a round has no samples.)

    A place to return to is one with gradients between 0.3 and 3 times their long-run size: beyond, they are as little
    worth, where a few samples with nearly all of the weight are left, say.

    `value` is the outer loss of the round, or None: then only the second rule is left.
    """
    dtype, (size, largest) = state.now.dtype, sizes
    value = jnp.asarray(jnp.nan if value is None else value, dtype)
    is_first, is_known = age == 0, jnp.isfinite(value)
    now = jnp.where(is_first, value, RECENT * state.now + (1 - RECENT) * value)
    scatter = SCATTER * state.scatter + (1 - SCATTER) * (value - state.last) ** 2 / 2
    now, last, scatter = (
        jnp.where(is_known, new, old)
        for new, old in ((now, state.now), (value, state.last), (jnp.where(is_first, 0, scatter), state.scatter))
    )
    # The variance of a running mean is (1 − a)/(1 + a) of that of its terms; there are two means.
    error = jnp.sqrt(2 * scatter * (1 - RECENT) / (1 + RECENT))
    is_flat = largest < FLAT
    is_worse = is_known & (now - state.loss > SURE * error)
    was_too_long = ~is_first & (age < FIRST) & (size > 0) & (size < GONE)
    returns = was_too_long | (is_flat & is_worse)

    is_informative = (size >= INFORMATIVE[0]) & (size <= INFORMATIVE[1])
    following = RetreatState(
        place=jax.tree.map(lambda new, old: jnp.where(is_informative, new, old), params, state.place),
        usual=jnp.where(is_informative, usual, state.usual),
        loss=jnp.where(is_informative, now, state.loss),
        now=jnp.where(returns, state.loss, now),
        last=last,
        scatter=scatter,
    )
    return returns, was_too_long, following
