"""Replay: the data of the last w rounds, used again at the current λ."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import all_finite
from smoothfbo.batching import batched
from smoothfbo.hypergradients.base import AbstractEstimator, Estimate, keep_finite
from smoothfbo.hypergradients.oracle import Oracle
from smoothfbo.samples import Data

MEMORY = 0.9  # share of the old mean in the running mean of outer losses


class ReplayState(NamedTuple):
    """A warm state for each window, and the rounds that are kept."""

    estimators: tuple[PyTree, ...]
    history: Data  # the last n rounds, slot t mod n
    rounds: Int[Array, ""]  # stored so far, and once the ring of n slots is full, n + (rounds mod n)
    losses: Float[Array, " windows"] | None  # running means of the outer loss on data not yet seen; None: one window

    @property
    def inner(self) -> Any:
        """The inner function of the longest window."""
        return self.estimators[-1].inner


class Replayed(AbstractEstimator):
    """Hands the data of the last w rounds to an estimator as those of one large round.

        g̃_t = mean over i < w of ĝ(λ_t; ĥ_t, â_t, s_{t−i}),     s_i the data of round i

    A functional hypergradient needs no new solution to be evaluated on old samples: ĥ and â are fitted on all w rounds,
    and both terms are formed on them *at the current λ*. Noise is averaged over w rounds, as by `window_average`, but
    without the delay of stored gradients, so the step need not shrink as the window grows.

    Several windows, e.g. (1, 4, 16), give one estimate each, with warm states of their own. `gradient` is that of the
    longest window; all of them are the `candidates` of the `Estimate`, from which `adaptive_steps` learns what to use.
    Beside longer ones, a window of 1 means the *outer* samples of the round alone, which judge λ; its inner samples are
    those of the longest window, because a single round may not determine ĥ. (Where inner and outer samples are the same
    rows, as for `PointwiseAdjoint`, it means both.) Predictions are those of the inner function that had the smallest
    outer loss in the last ten rounds or so, each time on outer samples that it had not seen.

    **Arguments:**

    - `estimator`: any estimator that takes `Data`: `Functional`, `Implicit`, `Unrolled`, …
    - `window`: w ≥ 1, or several, in increasing order and from 1 on. With w = 1 the estimator sees what it sees
      without replay.

    All rounds must have the same shapes: `pad` ragged ones to one size. Losses in the trace are those of the function
    that predicts, on the data of the round alone.

    Memory: the data of the longest window. The features of a `Linear` are kept with them, where `Functional` has the
    same ones for inner and adjoint function, and are not computed again. Time: a call of the estimator for each window,
    on w times the data. Before w rounds have been seen, those that have been are repeated. A round with values that are
    not finite is skipped and not kept. Where the losses change from round to round (`Round.problem`), old data are
    judged by the newest ones.
    """

    estimator: AbstractEstimator
    windows: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, estimator: AbstractEstimator, window: int | Sequence[int]):
        if not isinstance(estimator, AbstractEstimator) or isinstance(estimator, (Oracle, Replayed)):
            raise TypeError(f"estimator must be one such as Functional(...), got {type(estimator).__name__}.")
        windows = tuple(window) if isinstance(window, Sequence) else (window,)
        for each in windows:
            checks.require_integer(each, "window", 1)
        if not windows or list(windows) != sorted(set(windows)):
            raise ValueError(f"window must be an integer or several in increasing order, got window={window!r}.")
        if len(windows) > 1 and windows[0] != 1:
            raise ValueError(
                f"Of several windows the first must be 1, got window={window!r}: what is new judges the others."
            )
        self.estimator, self.windows = estimator, windows

    @property
    def inner(self) -> Any:
        """That of the estimator."""
        return self.estimator.inner  # pyright: ignore[reportAttributeAccessIssue]

    def init(self, problem: Any, outer: PyTree, data: Data, key: PRNGKeyArray) -> ReplayState:
        if not isinstance(data, Data):
            raise TypeError(f"Replayed keeps the samples of a smoothfbo.Data, got a {type(data).__name__}.")
        keys = (key, *(jax.random.fold_in(key, index) for index in range(1, len(self.windows))))
        return ReplayState(
            tuple(self.estimator.init(problem, outer, data, each) for each in keys),
            jax.tree.map(
                lambda leaf: jnp.zeros((self.windows[-1], *leaf.shape), leaf.dtype),
                jax.eval_shape(self.estimator.prepared, data),
            ),
            jnp.zeros((), jnp.int32),
            jnp.zeros(len(self.windows)) if len(self.windows) > 1 else None,
        )

    def __call__(
        self, problem: Any, outer: PyTree, state: ReplayState, data: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, ReplayState]:
        kept, prepared = jax.tree.map(lambda leaf: leaf[0], state.history), self.estimator.prepared(data)
        if not checks.same_shapes(prepared, kept):
            raise ValueError(
                "Replayed needs rounds of one form, because it joins them: pad all to one size (smoothfbo.pad). The "
                f"first had {checks.describe(kept)}, this one has {checks.describe(data)}."
            )
        slots = self.windows[-1]
        slot = state.rounds % slots
        # One bad value would spoil the next w rounds, so none is stored; this round sees its own data as they are.
        history = jax.tree.map(
            lambda kept, new: jax.lax.dynamic_update_index_in_dim(kept, _finite(new), slot, 0), state.history, prepared
        )
        keys = (key, *(jax.random.fold_in(key, index) for index in range(1, len(self.windows))))
        estimates, warm = [], []
        for window, each, key_of_window in zip(self.windows, state.estimators, keys, strict=True):
            replayed = prepared
            if window > 1:
                replayed = _last(history, prepared, window, slot, state.rounds)
            elif slots > 1 and not self.estimator.paired:
                replayed = Data(_last(history.inner, prepared.inner, slots, slot, state.rounds), prepared.outer)
            estimate, following = self.estimator(problem, outer, each, replayed, key_of_window)
            estimates.append(estimate)
            warm.append(following)
        rounds = jnp.where(state.rounds + 1 == 2 * slots, slots, state.rounds + 1)
        usable = all_finite(prepared)
        rounds = jnp.where(usable, rounds, state.rounds)  # else the next round takes the same slot
        losses = None
        if state.losses is not None:
            losses = jnp.where(usable, self._new_losses(problem, outer, state, data), state.losses)
        following = ReplayState(tuple(warm), history, rounds, losses)
        # The losses are those on the data of this round alone, as with every other estimator.
        predict = batched(self.predictor(following))
        estimate = estimates[-1]._replace(
            inner_loss=problem.inner_mean(outer, predict(data.inner.x), data.inner),
            outer_loss=problem.outer_mean(outer, predict(data.outer.x), data.outer),
            candidates=tuple(each.gradient for each in estimates) if len(estimates) > 1 else None,
        )
        return estimate, following

    def kept(self, new: ReplayState, old: ReplayState) -> ReplayState:
        """The data are finite and need not be looked at again, which would cost as much as a fit."""
        estimators, losses = keep_finite((new.estimators, new.losses), (old.estimators, old.losses))
        return new._replace(estimators=estimators, losses=losses)

    def _new_losses(self, problem: Any, outer: PyTree, state: ReplayState, data: Data) -> Float[Array, " windows"]:
        """With what the inner functions of before say about the outer samples of this round."""
        assert state.losses is not None

        def loss(warm: PyTree) -> Array:
            return problem.outer_mean(outer, batched(self.estimator.predictor(warm))(data.outer.x), data.outer)

        new = jnp.stack([loss(warm) for warm in state.estimators]).astype(jnp.result_type(float))
        # What is not finite counts as ten times the worst of the others: bad, and forgotten some time.
        new = jnp.where(jnp.isfinite(new), new, 10 * jnp.max(jnp.where(jnp.isfinite(new), jnp.abs(new), 0)))
        return jnp.where(state.rounds == 0, new, MEMORY * state.losses + (1 - MEMORY) * new)

    def predictor(self, state: ReplayState) -> Callable[[PyTree], PyTree]:
        functions = tuple(self.estimator.predictor(each) for each in state.estimators)
        return functions[0] if state.losses is None else _Chosen(functions, jnp.argmin(state.losses))


class _Chosen(eqx.Module):
    """One of several functions."""

    functions: tuple[Callable[[PyTree], PyTree], ...]
    index: Int[Array, ""]

    def __call__(self, x: PyTree) -> PyTree:
        return self._pick([function(x) for function in self.functions])

    def batch(self, xs: PyTree) -> PyTree:
        return self._pick([batched(function)(xs) for function in self.functions])

    def _pick(self, values: list[PyTree]) -> PyTree:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[self.index], *values)


def _finite(values: Array) -> Array:
    """With zeros for what is not."""
    return jnp.where(jnp.isfinite(values), values, jnp.zeros_like(values))


def _last(history: PyTree, newest: PyTree, window: int, slot: Int[Array, ""], rounds: Int[Array, ""]) -> PyTree:
    """The samples of the last rounds along one axis: `slot` has the newest one's, before which there were `rounds`."""
    ages = jnp.arange(window, dtype=jnp.int32) % jnp.minimum(rounds + 1, window)

    def joined(kept: Array, newest: Array) -> Array:
        others = kept[(slot - ages[1:]) % len(kept)]
        return jnp.concatenate([newest, others.reshape(-1, *newest.shape[1:])])

    return jax.tree.map(joined, history, newest)
