"""The last w losses, evaluated again at the current λ (OAGD)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import squared_norm
from smoothfbo.functions.base import AbstractFunction
from smoothfbo.hypergradients.base import AbstractEstimator, Estimate
from smoothfbo.smoothing import Normalise, check_normalise, check_window
from smoothfbo.sums import total_weight
from smoothfbo.types import Number


class _Past(NamedTuple):
    """Earlier rounds, each with all that its hypergradient needs. Round t is in slot t mod the number of slots."""

    rounds: Int[Array, ""]  # stored so far
    usable: Bool[Array, " slots"]  # whether the round's own hypergradient was finite when it came
    problem: PyTree  # the arrays of the problem: losses may change, too
    data: PyTree
    warm: PyTree


class ReevaluatedState(NamedTuple):
    newest: PyTree  # the estimator's warm state after the last round
    past: _Past | None  # None where the window is 1

    @property
    def inner(self) -> PyTree:
        return self.newest.inner


class Reevaluated(AbstractEstimator):
    """g̃_t = (1/W) Σ_{i<w} γ^i ĝ_{t−i}(λ_t), W = Σ_{i<w} γ^i: the losses of the last w rounds at the *current* λ.

    `window_average` keeps gradients ĝ_{t−i}(λ_{t−i}), which are i rounds old. Here the data of the last w rounds are
    kept, and each round's hypergradient is formed again at λ_t. There is no delay, at w times the cost of a round and
    the memory of w rounds.

    This is the time-averaged hypergradient of OAGD (Tarzanagh, Nazari, Hou, Shen and Balzano, AISTATS 2024), where ĝ
    is `Implicit` after K inner steps. Choices of this library: ĝ is any estimator, and every round that is kept has a
    warm state of its own, which goes on from where it was. So ĝ_{t−i} is formed with an inner function fitted to
    round t − i, as ∇F_{t−i}(λ_t) asks for. A new round starts from the warm state of the round before it.

    Losses, residuals and `converged` of the `Estimate` are those of the newest round. A round whose hypergradient is
    not finite is never used again.

    **Arguments:**

    - `estimator`: what forms ĝ_{t−i}, e.g. `Implicit(Network(...))`.
    - `window`: w ≥ 1; 1 is the estimator alone.
    - `discount`: γ in [0, 1], 1 weighs all rounds alike.
    - `normalise`: divide by Σ_{i<w} γ^i from the first round on, as the paper does ("window": losses before the first
      round are zero), or by the weights of the rounds that there are ("filled").
    - `capacity`: give it to make the window a traced number, e.g. to vmap over windows: data of `capacity` rounds are
      kept and all of them evaluated. A traced window that is below 1 or above it gives NaN.
    """

    estimator: AbstractEstimator
    window: int | Int[Array, ""]
    discount: Number
    normalise: str = eqx.field(static=True)
    slots: int = eqx.field(static=True)  # earlier rounds that are kept

    def __init__(
        self,
        estimator: Any,
        window: int | Int[Array, ""],
        discount: Number = 1.0,
        *,
        normalise: Normalise = "window",
        capacity: int | None = None,
    ):
        if not isinstance(estimator, AbstractEstimator):
            raise TypeError(f"estimator must be one such as Implicit(...), got {estimator!r}.")
        slots = check_window(window, capacity)
        checks.require_range(discount, "discount", 0.0, 1.0)
        check_normalise(normalise)
        self.estimator, self.window, self.discount = estimator, window, discount
        self.normalise, self.slots = normalise, slots - 1

    @property
    def inner(self) -> AbstractFunction:
        """That of the estimator."""
        return self.estimator.inner  # pyright: ignore[reportAttributeAccessIssue]

    def predictor(self, state: ReevaluatedState) -> Callable[[PyTree], PyTree]:
        return self.estimator.predictor(state.newest)

    def init(self, problem: Any, outer: PyTree, data: Any, key: PRNGKeyArray) -> ReevaluatedState:
        newest = self.estimator.init(problem, outer, data, key)
        if not self.slots:
            return ReevaluatedState(newest, None)

        def empty(tree: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: jnp.zeros((self.slots, *jnp.shape(leaf)), jnp.result_type(leaf)), tree)

        past = _Past(
            rounds=jnp.zeros((), jnp.int32),
            usable=jnp.zeros(self.slots, bool),
            problem=empty(eqx.filter(problem, _is_array)),
            data=empty(data),
            warm=empty(newest),
        )
        return ReevaluatedState(newest, past)

    def __call__(
        self, problem: Any, outer: PyTree, state: ReevaluatedState, data: Any, key: PRNGKeyArray
    ) -> tuple[Estimate, ReevaluatedState]:
        past = state.past
        if past is None:
            estimate, newest = self.estimator(problem, outer, state.newest, data, key)
            return _scaled(estimate, self._unless_outside(1.0)), ReevaluatedState(newest, None)
        keys = jax.random.split(key, self.slots + 1)
        estimate, newest = self.estimator(problem, outer, state.newest, data, keys[-1])
        arrays, static = eqx.partition(problem, _is_array)

        def again(problem: PyTree, data: PyTree, warm: PyTree, key: PRNGKeyArray) -> tuple[Any, PyTree]:
            earlier, warm = self.estimator(eqx.combine(problem, static), outer, warm, data, key)
            return _terms(earlier), warm

        earlier, warm = jax.vmap(again)(past.problem, past.data, past.warm, keys[:-1])
        length = jnp.asarray(self.window, jnp.int32)
        age = 1 + (past.rounds - 1 - jnp.arange(self.slots, dtype=jnp.int32)) % self.slots
        counts = (age <= past.rounds) & (age < length) & past.usable
        warm = _where(counts, warm, past.warm)

        number = jnp.result_type(float)
        discount = jnp.asarray(self.discount, number)
        terms = jnp.minimum(past.rounds + 1, length) if self.normalise == "filled" else length
        total = total_weight(discount, terms, number)
        weights = jnp.where(counts, discount ** age.astype(number), 0) / total
        newest_weight = self._unless_outside(1 / total)

        def combine(new: Array, old: Array) -> Array:
            shares = weights.astype(new.dtype).reshape(-1, *(1,) * new.ndim)
            return newest_weight.astype(new.dtype) * new + jnp.sum(jnp.where(shares > 0, shares * old, 0), axis=0)

        combined = jax.tree.map(combine, _terms(estimate), earlier)
        usable = jnp.isfinite(squared_norm(estimate.gradient))
        entry = _Past(past.rounds + 1, usable, arrays, data, newest)
        where = past.rounds % self.slots
        stored = jax.tree.map(
            lambda ring, new: jax.lax.dynamic_update_index_in_dim(ring, new, where, 0),
            past._replace(warm=warm)[1:],
            entry[1:],
        )
        return estimate._replace(**combined), ReevaluatedState(newest, _Past(entry.rounds, *stored))

    def _unless_outside(self, weight: Any) -> Array:
        """NaN where a traced window is not one of those that there is memory for."""
        outside = (jnp.asarray(self.window) < 1) | (jnp.asarray(self.window) > self.slots + 1)
        return jnp.where(outside, jnp.nan, jnp.asarray(weight, jnp.result_type(float)))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


def _terms(estimate: Estimate) -> dict[str, PyTree]:
    """What is averaged."""
    return {name: getattr(estimate, name) for name in ("gradient", "explicit", "implicit")}


def _scaled(estimate: Estimate, weight: Array) -> Estimate:
    terms = jax.tree.map(lambda leaf: weight.astype(leaf.dtype) * leaf, _terms(estimate))
    return estimate._replace(**terms)


def _where(condition: Bool[Array, " slots"], new: PyTree, old: PyTree) -> PyTree:
    """Slot by slot."""
    return jax.tree.map(
        lambda n, o: jnp.where(condition.reshape(-1, *(1,) * (n.ndim - 1)), n, o),
        new,
        old,
    )
