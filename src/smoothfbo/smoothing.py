"""Smoothing over time: the last w hypergradients, averaged, as optax transformations.

    g̃_t = (1/W) Σ_{i<w} η^i ĝ_{t−i}(λ_{t−i})          (Algorithm 3; η = 1 in the paper)

Every gradient is stored where it was computed. An update costs O(d) whatever w is: a ring buffer of
gradients, slot t mod its size, and two running sums. Rounds are read as blocks of w. `recent` sums the current
block as it fills; `older` is what the window still holds of the block before, from which one gradient leaves per
round. When a block is full, `recent` IS the sum of the window, and becomes `older`. So no rounding error outlives
2w rounds, and within them compensated summation keeps it at the level of one addition.

Where w or η may change while it runs, a round in which they do starts a new block, and sums `older` from the ring:
O(w·d) in that round alone. Whoever promises that they are `constant` saves the loop for it.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from smoothfbo import checks
from smoothfbo.algebra import at_least_single
from smoothfbo.sums import RunningSum, decay_and_add, gradient_at, sum_of_past, total_weight
from smoothfbo.types import Number


class _Setting(NamedTuple):
    """The window and the discount that the sums were made with."""

    window: Int[Array, ""]
    discount: Float[Array, ""]


class SmoothingState(NamedTuple):
    """State of `window_average` and `discounted_average`; `average` is the gradient last handed on.

    A ring of one slot needs nothing else: the other parts are None. `setting` is None where it cannot change.
    """

    rounds: Int[Array, ""]  # so far, and once the ring of n slots is full, n + (rounds mod n)
    position: Int[Array, ""]  # of the next gradient in its block, from 0
    setting: _Setting | None
    history: PyTree  # the last n gradients, slot t mod n
    leaving: PyTree  # the gradient that leaves the window in the next round
    recent: RunningSum | None
    older: RunningSum | None
    average: PyTree


class MixState(NamedTuple):
    """State of `mixed_average`; `average` is the gradient last handed on."""

    smoother: PyTree
    average: PyTree


Normalise = Literal["window", "filled"]


def window_average(
    window: int | Int[Array, ""],
    *,
    normalise: Normalise = "window",
    capacity: int | None = None,
    constant: bool = False,
) -> optax.GradientTransformation:
    """Average of the last `window` gradients: g̃_t = (1/w) Σ_{i<w} ĝ_{t−i}   (Algorithm 3).

    **Arguments:**

    - `window`: w ≥ 1. With w = 1 the gradient passes unchanged.
    - `normalise`: divide by w from the first round on, as the paper does ("window": missing gradients count
      as zero), or by the number of gradients stored so far ("filled").
    - `capacity`: give it to make the window itself a traced number, e.g. to vmap over windows: memory for
      `capacity` gradients is reserved and any window up to it can be used. It may change from round to round, e.g. by
      `optax.inject_hyperparams`: the average is that of the last w_t gradients in every round t. A traced window that
      is below 1 or above `capacity` gives NaN, so that the round is skipped.
    - `constant`: a promise that a traced window stays the same during a run, as in a vmap over windows. No loop is
      compiled for a change, which saves a GPU some microseconds a round; in rounds where it has changed all the same,
      the average is NaN.

    Stored gradients feed back with a delay: with plain steps α and an L-smooth objective the iteration oscillates
    once α·L·w exceeds about π²/2 ≈ 4.9, and diverges beyond. Shrink the step when you lengthen the window.
    """
    return discounted_average(window, 1.0, normalise=normalise, capacity=capacity, constant=constant)


def discounted_average(
    window: int | Int[Array, ""],
    discount: Number,
    *,
    normalise: Normalise = "window",
    capacity: int | None = None,
    constant: bool = False,
) -> optax.GradientTransformation:
    """Discounted average of the last `window` gradients: (1/W) Σ_{i<w} η^i ĝ_{t−i}, W = Σ_{i<w} η^i (SOBOW).

    `discount` is η in [0, 1]. It may be traced, and change from round to round as the window may: η is then that of
    round t for all of the window. The other arguments are those of `window_average`.
    """
    slots = check_window(window, capacity)
    checks.require_range(discount, "discount", 0.0, 1.0)
    check_normalise(normalise)

    is_fixed = capacity is None and isinstance(discount, (int, float))

    def init(params: PyTree) -> SmoothingState:
        if jax.tree.leaves(params):  # none if optax.multi_transform sends everything elsewhere
            checks.require_floating(params, "params")

        # A buffer of its own for every part, so that a state can be donated.
        def count() -> Array:
            return jnp.zeros((), jnp.int32)

        def zeros() -> PyTree:
            return jax.tree.map(lambda p: jnp.zeros(p.shape, p.dtype), params)

        def wide() -> PyTree:
            return jax.tree.map(lambda p: jnp.zeros(p.shape, at_least_single(p.dtype)), params)

        if slots == 1:
            return SmoothingState(count(), count(), None, None, None, None, None, average=zeros())
        return SmoothingState(
            rounds=count(),
            position=count(),
            setting=None if is_fixed else _setting(window, discount) if constant else _setting(0, 0.0),
            history=jax.tree.map(lambda p: jnp.zeros((slots, *p.shape), p.dtype), params),
            leaving=zeros(),
            recent=RunningSum(wide(), wide()),
            older=RunningSum(wide(), wide()),
            average=zeros(),
        )

    def update(updates: PyTree, state: SmoothingState, params: PyTree | None = None) -> tuple[PyTree, SmoothingState]:
        del params
        if slots == 1:  # the gradient passes as it is, infinities included
            averages = _unless_outside(updates, window, slots)
            return averages, state._replace(average=averages)
        assert state.recent is not None
        assert state.older is not None
        setting, changes = None, jnp.asarray(False)
        if state.setting is not None:
            setting = _setting(window, discount)
            changes = (setting.window != state.setting.window) | (setting.discount != state.setting.discount)
            setting = state.setting if constant else setting  # what the sums are made with
        length = jnp.clip(jnp.asarray(window if setting is None else setting.window, jnp.int32), 1, slots)
        eta = discount if setting is None or isinstance(discount, (int, float)) else setting.discount

        # The counter runs over [0, 2n): beyond n it only has to say "full" and where in the ring we are.
        slot, stored = state.rounds % slots, jnp.minimum(state.rounds, slots)
        rounds = jnp.where(state.rounds + 1 == 2 * slots, slots, state.rounds + 1)
        history = jax.tree.map(lambda h, g: jax.lax.dynamic_update_index_in_dim(h, g, slot, 0), state.history, updates)
        # What leaves in the next round is read now, after the write: a read before it, of the buffer that is
        # about to change, makes XLA copy all of the buffer in every round.
        leaving = gradient_at(history, slots, slot + 1 - length)

        position = state.position if constant else jnp.where(changes, 0, state.position)
        starts_block = position == 0
        older = optax.tree.where(starts_block, state.recent, state.older)
        recent = optax.tree.where(starts_block, optax.tree.zeros_like(state.recent), state.recent)
        older = decay_and_add(older, eta, state.leaving, lambda factor: -(factor ** length.astype(factor.dtype)))
        if setting is not None and not constant:
            past = jnp.where(changes, jnp.minimum(stored, length - 1), 0)
            anew = sum_of_past(history, slots, slot, past, eta, like=older)
            older = optax.tree.where(changes, anew, older)
        recent = decay_and_add(recent, eta, updates, jnp.ones_like)
        terms = jnp.minimum(stored + 1, length) if normalise == "filled" else length

        def average(new: Array, new_error: Array, old: Array, old_error: Array, update: Array) -> Array:
            total = (new + old) + (new_error + old_error)
            return (total / total_weight(eta, terms, total.dtype)).astype(update.dtype)

        averages = _unless_outside(jax.tree.map(average, *recent, *older, updates), window, slots)
        averages = _nan_where(changes, averages) if constant else averages  # a broken promise
        position = jnp.where(position + 1 == length, 0, position + 1)
        return averages, SmoothingState(rounds, position, setting, history, leaving, recent, older, averages)

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

    def update(updates: PyTree, state: MixState, params: PyTree | None = None, **extra: Any) -> tuple[PyTree, MixState]:
        smoothed, inner = optax.with_extra_args_support(smoother).update(updates, state.smoother, params, **extra)

        def blend(new: Array, average: Array) -> Array:
            theta = jnp.asarray(mix, new.dtype)
            return theta * new + (1 - theta) * average

        blended = jax.tree.map(blend, updates, smoothed)
        return blended, MixState(inner, blended)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def smoothed_gradient(optimiser_state: PyTree, gradient: PyTree) -> PyTree:
    """The gradient after smoothing, read from the state of any optax chain; `gradient` where nothing smooths.

    A state that has an `average` is one of a smoother, whoever wrote it; it must have the structure of the gradient.
    Smoothers are found inside `chain`, `multi_transform`, `inject_hyperparams` and the like. Of several in a row the
    last counts; parameters that a smoother does not see keep their raw gradient.
    """

    def is_smoother(node: Any) -> bool:
        return hasattr(node, "average")

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


def check_window(window: Any, capacity: int | None) -> int:
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


def check_normalise(normalise: str) -> None:
    if normalise not in ("window", "filled"):
        raise ValueError(f"normalise must be 'window' or 'filled', got normalise={normalise!r}.")


def _setting(window: Any, discount: Number) -> _Setting:
    return _Setting(jnp.asarray(window, jnp.int32), jnp.asarray(discount, jnp.result_type(float)))


def _unless_outside(averages: PyTree, window: Any, slots: int) -> PyTree:
    """NaN where a window that could not be checked before is not one of 1, …, slots."""
    if not isinstance(window, jax.Array):
        return averages
    return _nan_where((window < 1) | (window > slots), averages)


def _nan_where(condition: Array, averages: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.where(condition, jnp.nan, leaf), averages)
