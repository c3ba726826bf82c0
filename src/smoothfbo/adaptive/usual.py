"""How large are gradients usually? By that measure steps have no units, and unusual rounds count less."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from smoothfbo.algebra import squared_norm

SPEED = 0.02  # η: share of a round in u²
AT_MOST = 3.0  # times u²: what a round counts in it
FEW = 10  # rounds, which count fully: u may have begun with one that is too small
FLOOR = 1 / 6  # u, as a share of the long-run root mean square
LARGE = 3.0  # times the usual size: a gradient beyond it, larger than those around it, counts less
SCATTERED = 10.0  # times the usual size: successive gradients that differ by more count less


class UsualState(NamedTuple):
    """What is known of the sizes of gradients. A size is the root mean square of the entries; squares are kept."""

    usual: Float[Array, " directions"]  # u² of each direction; 0 before the first
    long: Float[Array, " directions"]  # s²
    sizes: Float[Array, "2"]  # of the gradients of the last two rounds, relative to u
    long_sizes: Float[Array, "2"]  # the same, relative to s
    last: tuple[PyTree, ...]  # the candidates of the last round
    before: tuple[PyTree, ...]  # those of the round before


def nothing_known(params: PyTree, candidates: int, directions: int, dtype: Any) -> UsualState:
    zeros = jnp.zeros(directions, dtype)
    last, before = (tuple(optax.tree.zeros_like(params) for _ in range(candidates)) for _ in range(2))
    return UsualState(zeros, zeros, jnp.ones(2, dtype), jnp.ones(2, dtype), last, before)


def weigh(state: UsualState, gradients: tuple[PyTree, ...]) -> tuple[Float[Array, ""], UsualState]:
    """How much a round counts:  min(1, max(3, m)/r)² · min(1, max(3, n)/max(3, m)) · min(1, 10/q)².

    r is the size of the round's gradients relative to their usual one u, that of the largest; m is the value in the
    middle of this round's and the last two, and n the same relative to the long-run size s; q, again relative to u, is
    the distance from the gradients of the last round, or of the one before where that is smaller, over √2. So a single
    round with a huge gradient counts next to nothing. Gradients that grow large and agree, after a jump, count from the
    second round on, in units of s. Those that grow large and do not agree are noise, and count by the inverse of its
    variance for as long as it lasts.
    """
    count, squares = len(gradients), _mean_squares(gradients, state.usual)
    known = state.usual[:count]
    size, long = _relative(squares, known), _relative(squares, state.long[:count])
    apart = jnp.minimum(*(_relative(_distances(gradients, old, known), known) for old in (state.last, state.before)))
    among = jnp.maximum(LARGE, _middle(size, state.sizes))
    weight = jnp.minimum(1, among / size) ** 2 * jnp.minimum(1, SCATTERED / apart) ** 2
    weight *= jnp.minimum(1, jnp.maximum(LARGE, _middle(long, state.long_sizes)) / among)
    following = state._replace(
        sizes=jnp.stack([size, state.sizes[0]]),
        long_sizes=jnp.stack([long, state.long_sizes[0]]),
        last=gradients,
        before=state.last,
    )
    return weight, following


def learn(
    state: UsualState, gradients: tuple[PyTree, ...], age: Float[Array, ""], memory: Float[Array, ""]
) -> UsualState:
    """The usual sizes u and the long-run sizes s after one more round. m is the mean square of the entries:

        s² ← s² + max(1 − memory, 1/(t + 1)) (min(m, 9s²) − s²),
        u² ← u² + max(0.02, 1/(t + 1)) (min(m, 3u²) − u²),     u ≥ s/6

    In the first ten rounds m is not bounded in u². So u is the root mean square of the last fifty rounds or so, and a
    burst of noise changes it little. Where gradients fade away it falls, by a factor of six at most: else λ would go on
    by steps of the usual length to where no gradient leads back.
    """
    squares, first = _mean_squares(gradients, state.usual), state.usual == 0

    def following(old: Float[Array, " directions"], share: Any, counted: Any) -> Float[Array, " directions"]:
        return jnp.where(first, squares, old + jnp.maximum(share, 1 / (age + 1)) * (counted - old))

    long = following(state.long, 1 - memory, jnp.minimum(squares, LARGE**2 * state.long))
    bounded = jnp.where(age < FEW, squares, jnp.minimum(squares, AT_MOST * state.usual))
    usual = jnp.maximum(following(state.usual, SPEED, bounded), FLOOR**2 * long)
    return state._replace(usual=usual, long=long)


def inverse_sizes(state: UsualState) -> Float[Array, " directions"]:
    """1/u; 0 where a gradient was always 0."""
    return jnp.where(state.usual > 0, 1 / jnp.sqrt(jnp.where(state.usual > 0, state.usual, 1)), 0)


def entries(tree: PyTree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def _mean_squares(gradients: Sequence[PyTree], like: Array) -> Float[Array, " gradients"]:
    return jnp.stack([squared_norm(gradient).astype(like.dtype) / entries(gradient) for gradient in gradients])


def _distances(gradients: Sequence[PyTree], others: Sequence[PyTree], like: Array) -> Float[Array, " gradients"]:
    """Mean squares of differences, over 2."""
    return _mean_squares([optax.tree.sub(*each) for each in zip(gradients, others, strict=True)], like) / 2


def _relative(squares: Float[Array, " n"], usual: Float[Array, " n"]) -> Float[Array, ""]:
    """The root of the largest ratio; 1 before anything is known."""
    return jnp.sqrt(jnp.max(jnp.where(usual > 0, squares / jnp.where(usual > 0, usual, 1), 1)))


def _middle(new: Float[Array, ""], old: Float[Array, "2"]) -> Float[Array, ""]:
    return jnp.maximum(jnp.min(old), jnp.minimum(jnp.max(old), new))
