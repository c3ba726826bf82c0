"""The last w losses, evaluated again at the current λ (OAGD)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import all_finite, squared_norm
from smoothfbo.functions.base import AbstractFunction
from smoothfbo.functions.fixed import Fixed
from smoothfbo.hypergradients.base import AbstractEstimator, Estimate
from smoothfbo.hypergradients.explicit import Explicit
from smoothfbo.hypergradients.functional import Functional
from smoothfbo.hypergradients.implicit import Implicit
from smoothfbo.hypergradients.sameness import is_array, same_but_arrays
from smoothfbo.smoothing import Normalise, check_normalise, check_window
from smoothfbo.sums import total_weight
from smoothfbo.types import Number


class _Past(NamedTuple):
    """Earlier rounds, each with all that its hypergradient needs. Round t is in slot t mod the number of slots."""

    rounds: Int[Array, ""]  # stored so far
    usable: Bool[Array, " slots"]  # whether there is a round, and its hypergradient was always finite
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
    kept, and each round's hypergradient is formed again at λ_t. There is no delay, at up to w times the cost of a round
    and the memory of w rounds.

    This is the time-averaged hypergradient of OAGD (Tarzanagh, Nazari, Hou, Shen and Balzano, AISTATS 2024): K inner
    steps on the newest round, then the hypergradients of all w rounds at the newest inner function ĥ_t, each with a
    linear system of its own (`Implicit`). Choices of this library: with `Functional` each round has an adjoint of its
    own instead; systems and adjoints go on from where they were; and there is `refit`, because ∇F_{t−i}(λ_t) belongs to
    the inner solution of round t − i and not to that of round t.

    Losses, residuals and `converged` of the `Estimate` are those of the newest round. A round whose hypergradient is
    not finite, when it comes or later, at another λ, is never used again. Where the losses change from round to round
    (`Round.problem`), those of earlier rounds are kept by their arrays: what changes must be a leaf of the problem,
    such as a field of an Equinox module.

    **Arguments:**

    - `estimator`: what forms ĝ_{t−i}: `Implicit`, `Functional` or `Explicit`; any with `refit`.
    - `window`: w ≥ 1; 1 is the estimator alone.
    - `discount`: γ in [0, 1], 1 weighs all rounds alike.
    - `refit`: fit an inner function to each of the last w rounds, at λ_t. Each goes on from where it was, and that of
      a new round starts from that of the round before.
    - `normalise`: divide by Σ_{i<w} γ^i from the first round on ("window": losses before the first round are zero), or
      by the weights of the rounds that there are ("filled", as the authors' program does).
    - `capacity`: give it to make the window a traced number, e.g. to vmap over windows: data of `capacity` rounds are
      kept and all of them evaluated. A traced window that is below 1 or above it gives NaN.
    """

    estimator: AbstractEstimator
    window: int | Int[Array, ""]
    discount: Number
    refit: bool = eqx.field(static=True)
    normalise: str = eqx.field(static=True)
    slots: int = eqx.field(static=True)  # earlier rounds that are kept

    def __init__(
        self,
        estimator: Any,
        window: int | Int[Array, ""],
        discount: Number = 1.0,
        *,
        refit: bool = False,
        normalise: Normalise = "window",
        capacity: int | None = None,
    ):
        allowed = AbstractEstimator if refit else (Implicit, Functional, Explicit)
        if not isinstance(estimator, allowed):
            raise TypeError(
                "estimator must be Implicit, Functional or Explicit, or any with refit=True, got "
                f"a {type(estimator).__name__}."
            )
        slots = check_window(window, capacity)
        checks.require_range(discount, "discount", 0.0, 1.0)
        check_normalise(normalise)
        self.estimator, self.window, self.discount = estimator, window, discount
        self.refit, self.normalise, self.slots = refit, normalise, slots - 1

    @property
    def inner(self) -> AbstractFunction:
        """The inner function of the estimator."""
        return self.estimator.inner  # pyright: ignore[reportAttributeAccessIssue]

    def predictor(self, state: ReevaluatedState) -> Callable[[PyTree], PyTree]:
        return self.estimator.predictor(state.newest)

    def check_losses(self, usual: Any, of_round: Any) -> None:
        if self.slots and not same_but_arrays(usual, of_round):
            raise TypeError(
                "Reevaluated keeps the losses of earlier rounds by their arrays, so the problem of a round must be "
                "that of Online with other arrays in it: make what changes a field of an equinox.Module that is the "
                "loss, and not a variable that the loss closes over."
            )

    def init(self, problem: Any, outer: PyTree, data: Any, key: PRNGKeyArray) -> ReevaluatedState:
        newest = self.estimator.init(problem, outer, data, key)
        if not self.slots:
            return ReevaluatedState(newest, None)

        def empty(tree: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: jnp.zeros((self.slots, *jnp.shape(leaf)), jnp.result_type(leaf)), tree)

        past = _Past(
            rounds=jnp.zeros((), jnp.int32),
            usable=jnp.zeros(self.slots, bool),
            problem=empty(eqx.filter(problem, is_array)),
            data=empty(data),
            warm=empty(self._kept(newest)),
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
        arrays, static = eqx.partition(problem, is_array)

        estimator = self.estimator
        if not self.refit:
            estimator = eqx.tree_at(lambda estimator: estimator.inner, estimator, Fixed(self.inner))

        def again(problem: PyTree, data: PyTree, warm: PyTree, key: PRNGKeyArray) -> tuple[Any, PyTree]:
            warm = warm if self.refit else warm._replace(inner=newest.inner)
            earlier, warm = estimator(eqx.combine(problem, static), outer, warm, data, key)
            return _terms(earlier), self._kept(warm)

        earlier, warm = jax.vmap(again)(past.problem, past.data, past.warm, keys[:-1])
        length = jnp.asarray(self.window, jnp.int32)
        age = 1 + (past.rounds - 1 - jnp.arange(self.slots, dtype=jnp.int32)) % self.slots
        counts = (age < length) & past.usable
        # Where an earlier round is not finite at this λ, this round is skipped: λ stays, and so would its window.
        finite = jax.vmap(lambda terms, warm: jnp.isfinite(squared_norm(terms["gradient"])) & all_finite(warm))
        remain = past.usable & (finite(earlier, warm) | ~counts)
        warm = _where(counts & remain, warm, past.warm)

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
        entry = _Past(past.rounds + 1, usable, arrays, data, self._kept(newest))
        where = past.rounds % self.slots
        stored = jax.tree.map(
            lambda ring, new: jax.lax.dynamic_update_index_in_dim(ring, new, where, 0),
            past._replace(usable=remain, warm=warm)[1:],
            entry[1:],
        )
        return estimate._replace(**combined), ReevaluatedState(newest, _Past(entry.rounds, *stored))

    def _kept(self, warm: PyTree) -> PyTree:
        """What a round keeps of its warm state: no inner function where all share the newest one."""
        return warm if self.refit else warm._replace(inner=None)

    def _unless_outside(self, weight: Any) -> Array:
        """NaN where a traced window is not one of those that there is memory for."""
        outside = (jnp.asarray(self.window) < 1) | (jnp.asarray(self.window) > self.slots + 1)
        return jnp.where(outside, jnp.nan, jnp.asarray(weight, jnp.result_type(float)))


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
