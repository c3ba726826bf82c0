"""Steps of λ that follow the geometry of its set, as optax transformations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from smoothfbo import checks
from smoothfbo.types import Number


class Potential(NamedTuple):
    """A strictly convex function φ of λ, by the gradient ∇φ (`mirror`) and its inverse (`inverse`), on pytrees.

    - `mirror(outer)`: ∇φ(λ).
    - `inverse(mirrored, outer)`: the λ' with ∇φ(λ') = `mirrored`, or, where φ lives on a set such as the simplex, the
      point of the set that is nearest in the divergence. `outer` is the λ of before.
    """

    mirror: Callable[[PyTree], PyTree]
    inverse: Callable[[PyTree, PyTree], PyTree]


def bregman_descent(rate: Number, potential: str | Potential) -> optax.GradientTransformation:
    """λ' = argmin_u ⟨g, u⟩ + D_φ(u, λ)/α, i.e. ∇φ(λ') = ∇φ(λ) − α g, for the Bregman divergence D_φ (mirror descent).

    After a window it is the outer step of OBBO and SOBBO (Bohne, Rosenberg, Kazantsev and Polak, 2024, arXiv
    2409.10470): `optax.chain(window_average(w), bregman_descent(α, "entropy"))`. The paper lets φ change from round to
    round, as a quadratic ½λᵀH_tλ with diagonal H_t: optax has such steps (`optax.adagrad`, `optax.rmsprop`). The fixed
    potentials here are choices of this library:

    | `potential` | φ(λ) | step | where |
    |---|---|---|---|
    | `"squares"` | ½‖λ‖² | λ − αg, exactly `optax.sgd(α)` | everywhere |
    | `"entropy"` | Σ λ log λ − λ | λ exp(−αg), multiplicative | λ > 0 |
    | `"simplex"` | Σ λ log λ | the same, scaled to the Σλ of before | λ > 0 with a given sum over the pytree |

    Like every optax transformation it returns λ' − λ. It ends a chain: the rate and the sign are in it. With both
    entropies an entry that is 0 stays 0, and a negative one gives NaN, so that the round is skipped. No entry is
    rounded to 0, from where it would never come back: one step divides it by at most 1/(2ε), ε the machine precision.

    **Arguments:**

    - `rate`: α ≥ 0; it may be traced.
    - `potential`: one of the names above, or a `Potential`.
    """
    checks.require_range(rate, "rate", 0.0)
    if not isinstance(potential, Potential):
        if potential not in POTENTIALS:
            names = ", ".join(map(repr, POTENTIALS))
            raise ValueError(f"potential must be a Potential or one of {names}, got potential={potential!r}.")
        potential = POTENTIALS[potential]
    mirror, inverse = potential

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        if params is None:
            raise ValueError("bregman_descent needs params: call update(updates, state, params), as Online does.")
        moved = jax.tree.map(lambda m, g: m - jnp.asarray(rate, m.dtype) * g, mirror(params), updates)
        return optax.tree.sub(inverse(moved, params), params), state

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def _unchanged(mirrored: PyTree, outer: PyTree) -> PyTree:
    del outer
    return mirrored


def _logarithms(outer: PyTree) -> PyTree:
    return jax.tree.map(jnp.log, outer)


def _exponentials(mirrored: PyTree, outer: PyTree) -> PyTree:
    return _above_rounding(jax.tree.map(jnp.exp, mirrored), outer)


def _shares(mirrored: PyTree, outer: PyTree) -> PyTree:
    """exp(mirrored), scaled to the sum of `outer` over the whole pytree. Relative to the largest: none overflows."""
    largest = jnp.max(jnp.stack([jnp.max(leaf) for leaf in jax.tree.leaves(mirrored)]))
    powers = jax.tree.map(lambda leaf: jnp.exp(leaf - largest), mirrored)
    scale = _total(outer) / _total(powers)
    return _above_rounding(jax.tree.map(lambda leaf: scale.astype(leaf.dtype) * leaf, powers), outer)


def _above_rounding(new: PyTree, outer: PyTree) -> PyTree:
    """λ + (λ' − λ) is 0 for every λ' < ελ/2, so λ' is at least 2ελ, for which the sum is exact."""
    return jax.tree.map(lambda leaf, old: jnp.maximum(leaf, 2 * jnp.finfo(leaf.dtype).eps * old), new, outer)


def _total(tree: PyTree) -> Float[Array, ""]:
    return jnp.sum(jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(tree)]))


POTENTIALS = {
    "squares": Potential(lambda outer: outer, _unchanged),
    "entropy": Potential(_logarithms, _exponentials),
    "simplex": Potential(_logarithms, _shares),
}
