"""Replay: the data of the last w rounds, used again at the current λ."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.hypergradients.base import AbstractEstimator, Estimate
from smoothfbo.problem import Data, Problem


class ReplayState(NamedTuple):
    """The warm state of the estimator that sees the replayed data, and the rounds that are kept."""

    estimator: PyTree
    history: Data  # the last n rounds, slot t mod n
    rounds: Int[Array, ""]  # stored so far, and once the ring of n slots is full, n + (rounds mod n)

    @property
    def inner(self) -> Any:
        return self.estimator.inner


class Replayed(AbstractEstimator):
    """Hands the data of the last w rounds, newest first, to another estimator as those of one large round.

        g̃_t = mean over i < w of ĝ(λ_t; ĥ_t, â_t, s_{t−i}),     s_i the data of round i

    A functional hypergradient needs no new solution to be evaluated on old samples: ĥ and â are fitted on all w rounds,
    and both terms are formed on them *at the current λ*. The noise is averaged over w rounds, as `window_average` does
    it, but without the delay of stored gradients, so that the step need not shrink as the window grows.

    **Arguments:**

    - `estimator`: any estimator that takes `Data`: `Functional`, `Implicit`, `Unrolled`, …
    - `window`: w ≥ 1. With w = 1 the estimator sees what it would see without replay.
    - `capacity`: give it to make the window a traced number, which may change from round to round: memory for
      `capacity` rounds is reserved. Every round then costs what w = `capacity` costs: rounds are repeated to fill it,
      the newest first.

    Memory: w times the data of a round. Before w rounds have been seen, those that have been are repeated. Where the
    losses change from round to round (`Round.problem`), old data are judged by the newest ones.
    """

    estimator: AbstractEstimator
    window: int | Int[Array, ""]
    capacity: int = eqx.field(static=True)

    def __init__(self, estimator: AbstractEstimator, window: int | Int[Array, ""], *, capacity: int | None = None):
        if not isinstance(estimator, AbstractEstimator):
            raise TypeError(f"estimator must be Functional, Implicit, Unrolled or Explicit, got {estimator!r}.")
        if capacity is None:
            checks.require_integer(window, "window", 1)
            capacity = int(window)
        checks.require_integer(capacity, "capacity", 1)
        checks.require_range(window, "window", 1, capacity)
        self.estimator, self.window, self.capacity = estimator, window, capacity

    def init(self, problem: Problem | None, outer: PyTree, data: Data, key: PRNGKeyArray) -> ReplayState:
        if not isinstance(data, Data):
            raise TypeError(f"Replayed keeps the samples of a smoothfbo.Data, got a {type(data).__name__}.")
        state = self.estimator.init(problem, outer, data, key)
        history = jax.tree.map(lambda leaf: jnp.zeros((self.capacity, *leaf.shape), leaf.dtype), data)
        return ReplayState(state, history, jnp.zeros((), jnp.int32))

    def __call__(
        self, problem: Problem | None, outer: PyTree, state: ReplayState, data: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, ReplayState]:
        slot = state.rounds % self.capacity
        history = jax.tree.map(
            lambda kept, new: jax.lax.dynamic_update_index_in_dim(kept, new, slot, 0), state.history, data
        )
        available = jnp.minimum(state.rounds + 1, jnp.clip(self.window, 1, self.capacity)).astype(jnp.int32)
        ages = jnp.arange(self.capacity, dtype=jnp.int32) % available
        slots = (slot - ages) % self.capacity
        replayed = jax.tree.map(lambda kept: kept[slots].reshape(-1, *kept.shape[2:]), history)
        estimate, warm = self.estimator(problem, outer, state.estimator, replayed, key)
        rounds = jnp.where(state.rounds + 1 == 2 * self.capacity, self.capacity, state.rounds + 1)
        return estimate, ReplayState(warm, history, rounds)

    def predictor(self, state: ReplayState) -> Callable[[PyTree], PyTree]:
        return self.estimator.predictor(state.estimator)
