"""Do single coordinates of λ need longer or shorter steps than the others? A test for each of them finds out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from smoothfbo.algebra import norm

MEMORY = 0.98  # of the old sums: what counts are the last fifty rounds or so
SURE = 3.0  # in units of the root of the sum of squares: not chance
FACTOR = 2.0
MOST = 2.0**10  # a factor; the least is its inverse


class CoordinateState(NamedTuple):
    """What is known of each coordinate. All four have the form of λ."""

    factors: PyTree  # f_j
    sums: PyTree  # Σ p_j, of the coordinate's shares of the cosine
    excess: PyTree  # Σ (p_j − c |p_j|), of what goes beyond the cosine itself
    squares: PyTree  # Σ p_j²


def all_alike(params: PyTree) -> CoordinateState:
    """All factors are 1, and nothing is known."""
    return without_evidence(CoordinateState(*(jax.tree.map(jnp.ones_like, params),) * 4))


def without_evidence(state: CoordinateState) -> CoordinateState:
    """The same factors, and nothing known of the moves."""
    sums, excess, squares = (jax.tree.map(jnp.zeros_like, state.factors) for _ in range(3))
    return CoordinateState(state.factors, sums, excess, squares)


def shortened(state: CoordinateState) -> CoordinateState:
    """Without factors above 1, one of which may have led λ astray, and nothing known of the moves."""
    factors = jax.tree.map(lambda factor: jnp.minimum(factor, 1), state.factors)
    return without_evidence(state._replace(factors=factors))


def learn_factors(state: CoordinateState, judge: PyTree, moved: PyTree, faded: Float[Array, ""]) -> CoordinateState:
    """The factor f_j by which coordinate j moves farther than its gradient alone would have it:

        f_j ← 2 f_j  where S_j > 3 √Q_j and E_j > 3 √Q_j,     f_j ← f_j/2  where S_j < −3 √Q_j and E_j < −3 √Q_j,
        S_j = Σ_i 0.98^i p_{t−i,j},   Q_j = Σ_i 0.98^i p²_{t−i,j},   E_j = Σ_i 0.98^i (p_{t−i,j} − c_{t−i} |p_{t−i,j}|)
        c_{t,j} = −ĝ_{t,j} H_{t,j} / (‖ĝ_t‖ ‖H_t‖),   Σ_j c_{t,j} = c_t = cos(−ĝ_t, H_t)
        p_{t,j} = min(1, ‖ĝ_t‖/s_t) c_{t,j},   2^−10 ≤ f_j ≤ 2^10

    ĝ_t is the `judge`, H_t = Σ_k ρ_k h_{t,k} what the last moves have made of λ (`moved`), and the factor of c in p is
    `faded`. c_t says whether all moves were too short or too long, and c_{t,j} is the share of one coordinate in it.
    While a coordinate moves as far as it should, the signs of its shares are chance, and S_j is seldom beyond 3 √Q_j,
    whatever their size. So a coordinate with small gradients, which says nothing in c_t, has its say here. What all
    lengths learn together from c_t is not learnt twice: this is what E_j is for.

    After a verdict the sums of the coordinate begin again. A verdict takes ten rounds that agree, or more. Shares that
    are too small to be squared give none.
    """
    sizes = norm(judge), norm(moved)
    usable = jnp.all(jnp.stack([(size > 0) & jnp.isfinite(size) for size in sizes]))
    one, other = (jnp.where(usable, 1 / jnp.where(size > 0, size, 1), 0) for size in sizes)

    def share_of(gradient: Array, move: Array) -> Array:
        dtype = gradient.dtype
        return -(one.astype(dtype) * gradient) * (other.astype(dtype) * move)

    shares = jax.tree.map(share_of, judge, moved)
    cosine = jnp.sum(jnp.stack([jnp.sum(leaf).astype(faded.dtype) for leaf in jax.tree.leaves(shares)]))

    def learn(
        share: Array, factor: Array, total: Array, excess: Array, square: Array
    ) -> tuple[Array, Array, Array, Array]:
        counted, number = faded.astype(share.dtype) * share, jnp.finfo(share.dtype)
        beyond = counted - cosine.astype(share.dtype) * jnp.abs(counted)
        total, excess, square = (
            MEMORY * old + new for old, new in ((total, counted), (excess, beyond), (square, counted**2))
        )
        limit = jnp.where(square > number.tiny / number.eps, SURE * jnp.sqrt(square), jnp.inf)
        is_short, is_long = jnp.minimum(total, excess) > limit, jnp.maximum(total, excess) < -limit
        changed = jnp.where(is_short, FACTOR, jnp.where(is_long, 1 / FACTOR, 1)) * factor
        kept = 1 - (is_short | is_long).astype(share.dtype)
        return jnp.clip(changed, 1 / MOST, MOST), kept * total, kept * excess, kept * square

    structure = jax.tree.structure(shares)
    learned = [learn(*leaves) for leaves in zip(*map(jax.tree.leaves, (shares, *state)), strict=True)]
    return CoordinateState(*(jax.tree.unflatten(structure, part) for part in zip(*learned, strict=True)))
