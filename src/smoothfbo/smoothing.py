"""Smoothing over time: the last w hypergradients, averaged, as optax transformations.

    g̃_t = (1/W) Σ_{i<w} η^i ĝ_{t−i}(λ_{t−i})          (Algorithm 3; η = 1 in the paper)

Every gradient is stored where it was computed. An update costs O(d) whatever w is: a ring buffer of w
gradients, and two running sums. The ring is read as blocks of w rounds. `recent` sums the current block as it
fills; `older` is what the window still holds of the block before, from which one gradient leaves per round.
When a block is full, `recent` IS the sum of the window, and becomes `older`. So no rounding error outlives 2w
rounds, and within them compensated summation keeps it at the level of one addition.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree

from smoothfbo import checks
from smoothfbo.algebra import at_least_single
from smoothfbo.types import Number


class _Sum(NamedTuple):
    """A running sum and the rounding errors it has made so far (compensated summation)."""

    value: PyTree
    error: PyTree


class SmoothingState(NamedTuple):
    """State of `window_average` and `discounted_average`; `average` is the gradient last handed on.

    A window of one needs nothing else: the other parts are None.
    """

    rounds: Int[Array, ""]  # so far, and once the window is full, modulo its length
    history: PyTree  # the last w gradients, slot t mod w
    leaving: PyTree  # the gradient that leaves the window in the next round
    recent: _Sum | None
    older: _Sum | None
    average: PyTree


class MixState(NamedTuple):
    """State of `mixed_average`; `average` is the gradient last handed on."""

    smoother: PyTree
    average: PyTree


Normalise = Literal["window", "filled"]


def window_average(
    window: int | Int[Array, ""], *, normalise: Normalise = "window", capacity: int | None = None
) -> optax.GradientTransformation:
    """Average of the last `window` gradients: g̃_t = (1/w) Σ_{i<w} ĝ_{t−i}   (Algorithm 3).

    **Arguments:**

    - `window`: w ≥ 1. With w = 1 the gradient passes unchanged.
    - `normalise`: divide by w from the first round on, as the paper does ("window": missing gradients count
      as zero), or by the number of gradients stored so far ("filled").
    - `capacity`: give it to make the window itself a traced number, e.g. to vmap over windows: memory for
      `capacity` gradients is reserved and any window up to it can be used.
    """
    return discounted_average(window, 1.0, normalise=normalise, capacity=capacity)


def discounted_average(
    window: int | Int[Array, ""],
    discount: Number,
    *,
    normalise: Normalise = "window",
    capacity: int | None = None,
) -> optax.GradientTransformation:
    """Discounted average of the last `window` gradients: (1/W) Σ_{i<w} η^i ĝ_{t−i}, W = Σ_{i<w} η^i (SOBOW).

    `discount` is η in [0, 1] and may be traced; the other arguments are those of `window_average`.
    """
    slots = _check_window(window, capacity)
    checks.require_range(discount, "discount", 0.0, 1.0)
    if normalise not in ("window", "filled"):
        raise ValueError(f"normalise must be 'window' or 'filled', got normalise={normalise!r}.")

    def init(params: PyTree) -> SmoothingState:
        if jax.tree.leaves(params):  # none if optax.multi_transform sends everything elsewhere
            checks.require_floating(params, "params")

        # A buffer of its own for every part, so that a state can be donated.
        def zeros() -> PyTree:
            return jax.tree.map(lambda p: jnp.zeros(p.shape, p.dtype), params)

        def wide() -> PyTree:
            return jax.tree.map(lambda p: jnp.zeros(p.shape, at_least_single(p.dtype)), params)

        if slots == 1:
            return SmoothingState(jnp.zeros((), jnp.int32), None, None, None, None, average=zeros())
        return SmoothingState(
            rounds=jnp.zeros((), jnp.int32),
            history=jax.tree.map(lambda p: jnp.zeros((slots, *p.shape), p.dtype), params),
            leaving=zeros(),
            recent=_Sum(wide(), wide()),
            older=_Sum(wide(), wide()),
            average=zeros(),
        )

    def update(updates: PyTree, state: SmoothingState, params: PyTree | None = None) -> tuple[PyTree, SmoothingState]:
        del params
        if slots == 1:  # the gradient passes as it is, infinities included
            return updates, state._replace(average=updates)
        assert state.recent is not None
        assert state.older is not None
        length = jnp.asarray(window, jnp.int32)
        # The counter runs over [0, 2w): beyond w it only has to say "full" and where in the block we are.
        rounds = jnp.where(state.rounds + 1 == 2 * length, length, state.rounds + 1)
        slot, next_slot = (jnp.where(n >= length, n - length, n) for n in (state.rounds, rounds))
        history = jax.tree.map(lambda h, g: jax.lax.dynamic_update_index_in_dim(h, g, slot, 0), state.history, updates)
        # What leaves in the next round is read now, after the write: a read before it, of the buffer that is
        # about to change, makes XLA copy all of the buffer in every round.
        leaving = jax.tree.map(lambda h: jax.lax.dynamic_index_in_dim(h, next_slot, keepdims=False), history)
        starts_block = slot == 0
        older = _choose(starts_block, state.recent, state.older)
        recent = _choose(starts_block, jax.tree.map(jnp.zeros_like, state.recent), state.recent)
        older = _decay_and_add(older, discount, state.leaving, lambda eta: -(eta ** length.astype(eta.dtype)))
        recent = _decay_and_add(recent, discount, updates, jnp.ones_like)
        stored = jnp.minimum(state.rounds + 1, length) if normalise == "filled" else length

        def average(new: Array, new_error: Array, old: Array, old_error: Array, update: Array) -> Array:
            total = (new + old) + (new_error + old_error)
            return (total / _total_weight(discount, stored, total.dtype)).astype(update.dtype)

        averages = jax.tree.map(average, *recent, *older, updates)
        return averages, SmoothingState(rounds, history, leaving, recent, older, averages)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def mixed_average(mix: Number, smoother: optax.GradientTransformation) -> optax.GradientTransformation:
    """θ·ĝ_t + (1−θ)·g̃_t, where g̃_t comes from another smoother: part new gradient, part average.

    `mix` is θ in [0, 1] and may be traced: 0 is the smoother alone, 1 is no smoothing.
    """
    checks.require_range(mix, "mix", 0.0, 1.0)
    if not isinstance(smoother, optax.GradientTransformation):
        raise TypeError(f"smoother must be an optax transformation such as window_average(100), got {smoother!r}.")

    def init(params: PyTree) -> MixState:
        return MixState(smoother.init(params), jax.tree.map(lambda p: jnp.zeros(p.shape, p.dtype), params))

    def update(updates: PyTree, state: MixState, params: PyTree | None = None) -> tuple[PyTree, MixState]:
        smoothed, inner = smoother.update(updates, state.smoother, params)

        def blend(new: Array, average: Array) -> Array:
            theta = jnp.asarray(mix, new.dtype)
            return theta * new + (1 - theta) * average

        blended = jax.tree.map(blend, updates, smoothed)
        return blended, MixState(inner, blended)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def smoothed_gradient(optimiser_state: PyTree, gradient: PyTree) -> PyTree:
    """The gradient after smoothing, read from the state of any optax chain; `gradient` where nothing smooths.

    It finds smoothers inside `chain`, `multi_transform`, `inject_hyperparams` and the like. Of several in a
    row the last counts; parameters that a smoother does not see keep their raw gradient.
    """

    def is_smoother(node: Any) -> bool:
        return isinstance(node, (SmoothingState, MixState))

    def is_masked(node: Any) -> bool:
        return isinstance(node, optax.MaskedNode)

    for state in jax.tree.leaves(optimiser_state, is_leaf=is_smoother):
        if is_smoother(state):
            gradient = jax.tree.map(
                lambda average, raw: raw if is_masked(average) else average,
                state.average,
                gradient,
                is_leaf=is_masked,
            )
    return gradient


def _check_window(window: Any, capacity: int | None) -> int:
    """The number of slots to reserve."""
    if capacity is not None:
        checks.require_integer(capacity, "capacity", 1)
        if not isinstance(window, jax.Array):
            checks.require_integer(window, "window", 1)
        elif not jnp.issubdtype(window.dtype, jnp.integer):
            raise ValueError(f"window must be an integer >= 1, got an array of dtype {window.dtype}.")
        checks.require_range(window, "window", 1, capacity)
        return capacity
    if isinstance(window, jax.Array):
        raise ValueError(
            f"window must be a Python integer >= 1, got {window!r}. It decides how much memory is reserved: to "
            "trace it (vmap), give capacity=<largest window> as well; in optax.inject_hyperparams, name it in "
            "static_args."
        )
    checks.require_integer(window, "window", 1)
    return window


def _choose(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _decay_and_add(total: _Sum, discount: Number, terms: PyTree, factor: Callable[[Array], Array]) -> _Sum:
    """η·total + factor(η)·terms, with the rounding error of the addition kept (Knuth's two-sum)."""

    def add(value: Array, error: Array, term: Array) -> tuple[Array, Array]:
        eta = jnp.asarray(discount, value.dtype)
        old, new = eta * value, factor(eta) * term.astype(value.dtype)
        result = old + new
        virtual = result - old
        lost = (old - (result - virtual)) + (new - virtual)
        return result, eta * error + lost

    leaves, structure = jax.tree.flatten(terms)
    pairs = [
        add(*each) for each in zip(jax.tree.leaves(total.value), jax.tree.leaves(total.error), leaves, strict=True)
    ]
    return _Sum(*(jax.tree.unflatten(structure, [pair[part] for pair in pairs]) for part in (0, 1)))


def _total_weight(discount: Number, terms: Array, dtype: Any) -> Array:
    """Σ_{i<n} η^i = (1 − η^n)/(1 − η), n for η = 1; accurate for η close to 1."""
    number = terms.astype(dtype)
    eta = jnp.asarray(discount, dtype)
    is_one = eta == 1
    rate = jnp.log1p(jnp.where(is_one, 0.5, eta) - 1)  # log η
    return jnp.where(is_one, number, jnp.expm1(number * rate) / jnp.expm1(rate))
