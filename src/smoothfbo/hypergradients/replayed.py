"""Replay: the data of the last w rounds, used again at the current λ."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import all_finite
from smoothfbo.batching import batched
from smoothfbo.hypergradients.base import AbstractEstimator, Candidates, Estimate, keep_finite
from smoothfbo.hypergradients.change import ChangeState, fits_since_change, no_change
from smoothfbo.hypergradients.choice import Chosen, outer_losses, running_mean
from smoothfbo.hypergradients.functional import Functional
from smoothfbo.hypergradients.oracle import Oracle
from smoothfbo.hypergradients.paired import surely_lost
from smoothfbo.hypergradients.ring import empty_ring, last_rounds, with_round
from smoothfbo.hypergradients.span import SpanState, determines_fit, learn_span, whole_window
from smoothfbo.hypergradients.wild import WildState, judge_round, nothing_wild
from smoothfbo.samples import Data

OF_OWN, OF_ROUND = 2**32 - 1, 2**32 - 2  # folded into the key: fold_in(key, i) is also the i-th key of a split


class ReplayState(NamedTuple):
    """The warm state of the window, that of the round's own estimator, and the rounds that are kept."""

    window: PyTree
    own: PyTree | None
    history: Data  # a ring of w rounds
    slot: Int[Array, ""]  # of the ring, for the next round
    rounds: Int[Array, ""]  # that the window has: at most w, and fewer after a change
    losses: Float[Array, "2"] | None  # running means of the outer loss of window and own on data not yet seen
    change: ChangeState | None
    span: SpanState | None  # how many of the rounds are used
    wild: WildState | None
    outer: PyTree | None  # λ of the last round

    @property
    def inner(self) -> Any:
        """The inner function of the window."""
        return self.window.inner


class Replayed(AbstractEstimator):
    """Hands the data of the last w rounds to an estimator as those of one large round.

        g̃_t = mean over i < w of ĝ(λ_t; ĥ_t, â_t, s_{t−i}),     s_i the data of round i

    A functional hypergradient needs no new solution to be evaluated on old samples: ĥ and â are fitted on all w rounds,
    and both terms are formed on them *at the current λ*. Noise is averaged over w rounds, as by `window_average`, but
    without the delay of stored gradients, so the step need not shrink as the window grows.

    **With `own`**, a second estimator, the w rounds serve as a prior for the newest one. There are two gradients then,
    the `candidates` of the `Estimate`, from which `adaptive_steps` learns what to use:

    1. that of the *outer* samples of the round alone, with ĥ from the inner samples of all w rounds. (Where inner and
       outer samples are the same rows, as for `PointwiseAdjoint`, it is that of the round's samples of both kinds.)
    2. that of `own` on the data of the round alone, whose fits begin at those of the window and stay near them: with
       `Linear(..., damping=δ)` they minimise the round's objective plus ½ δ m ‖w − w_window‖². It is `gradient`.

    The first of them is the judge of earlier moves, because its outer samples have had no part in these. With
    `learns_span` (below) it is the second, whose inner samples have had none either, wherever the round determines its
    fit.

    **Where the inner problem changes at once**, the window would go on to answer for what is over. So it is watched how
    much `own` gains on the inner samples of the round, G_t = L_in(ĥ_window) − L_in(ĥ_own). Where G_t lies far above its
    running mean (Page's test of √G_t, in standard deviations: S_t = max(0, S_{t−1} + z_t − 2.25) > 3), the window keeps
    the rounds since S left 0, and grows again. The round of the alarm is fitted again with these, so it is the first
    that answers for what is new. A steady drift is no change: the mean of G_t has it.

    **With `learns_span`**, too, the window learns how many rounds to use (`hypergradients.span`). The estimator then
    also forms the hypergradient of each round from that round alone, ĝ_t; it owes nothing to the rounds before. Where
    the newer half of the n rounds in use agrees better with it than all of them, clearly and over ten rounds or so, n
    falls; else it grows slowly, up to w. With ℓ̄ the mean of ℓ_t = cos(ĝ_t, g_{t−1}^{n/2}) − cos(ĝ_t, g_{t−1}^n) and s
    its error,

        log n ← log n − 0.2 ℓ̄   where ℓ̄ > 1.5 s,     log n + 0.005   elsewhere.

    So a relation that moves within the window is no longer averaged. A round with hardly more predictions than fitted
    parameters cannot tell, and leaves n as it is.

    A single round whose outer loss is more than ten times the usual one does not enter the window: its samples would
    spoil the adjoint for w rounds. Two in a row are a change, and the second one enters; so does a round in
    which a change is seen (`hypergradients.wild`).

    **Was λ better where it was?** The windows' functions of this round and of the last one, each with its own λ, are
    compared on the outer samples of the round, which neither has seen. What λ's last move has added to the outer loss
    is in the `candidates`, so that `adaptive_steps` can undo it (`hypergradients.paired`).

    Predictions are those of the inner function, the window's or `own`'s, that had the smaller outer loss in the last
    ten rounds or so, each time on outer samples that it had not seen.

    **Arguments:**

    - `estimator`: any estimator that takes `Data`: `Functional`, `Implicit`, `Unrolled`, …
    - `window`: w ≥ 1. With w = 1 and without `own` the estimator sees what it sees without replay.
    - `own`: None, or an estimator with the same warm state as `estimator`, for the newest round.
    - `learns_span`: whether the window learns how many of its rounds to use; with `own`, and for a `Functional`.

    All rounds must have the same shapes: `pad` ragged ones to one size. Losses in the trace are those of the function
    that predicts, on the data of the round alone; residuals are the window's.

    Memory: the data of w rounds. The features of a `Linear` are kept with them, where `Functional` has the same ones
    for inner and adjoint function, and are not computed again. Time: a call of the estimator on w times the data; with
    `own` another adjoint, and a call on the data of one round; with `learns_span` a call on those of one round, and one
    on the newer half. A round in which a change is seen costs the fits of window and `own` twice. Where fewer than w
    rounds are used, they are repeated up to w: shapes stay, and so does the time. A round with values that are not
    finite is skipped and not kept. Where the losses change from round to round (`Round.problem`), old data are judged
    by the newest ones.
    """

    estimator: AbstractEstimator
    own: AbstractEstimator | None
    window: int = eqx.field(static=True)
    learns_span: bool = eqx.field(static=True)

    def __init__(
        self,
        estimator: AbstractEstimator,
        window: int,
        *,
        own: AbstractEstimator | None = None,
        learns_span: bool = False,
    ):
        checks.require_integer(window, "window", 1)
        for name, each in {"estimator": estimator, "own": own}.items():
            if each is None and name == "own":
                continue
            if not isinstance(each, AbstractEstimator) or isinstance(each, (Oracle, Replayed)):
                raise TypeError(f"{name} must be one such as Functional(...), got {type(each).__name__}.")
        if learns_span and (own is None or not isinstance(estimator, Functional)):
            raise TypeError(
                f"learns_span needs a Functional(...) as estimator and own, got {type(estimator).__name__} and "
                f"{type(own).__name__}."
            )
        self.estimator, self.window, self.own, self.learns_span = estimator, window, own, learns_span

    @property
    def inner(self) -> Any:
        """That of the estimator."""
        return self.estimator.inner  # pyright: ignore[reportAttributeAccessIssue]

    def init(self, problem: Any, outer: PyTree, data: Data, key: PRNGKeyArray) -> ReplayState:
        if not isinstance(data, Data):
            raise TypeError(f"Replayed keeps the samples of a smoothfbo.Data, got a {type(data).__name__}.")
        first = self.estimator.init(problem, outer, data, key)
        own = self._same(first, "own", self.own, problem, outer, data, key)
        history = empty_ring(self.estimator, data, self.window)
        losses, change, wild = (None,) * 3 if own is None else (jnp.zeros(2), no_change(), nothing_wild())
        span = whole_window(self.window, outer) if self.learns_span else None
        none = jnp.zeros((), jnp.int32)
        last = None if own is None else jax.tree.map(jnp.array, outer)
        return ReplayState(first, own, history, none, none, losses, change, span, wild, last)

    def _same(self, first: PyTree, name: str, estimator: AbstractEstimator | None, *arguments: Any) -> PyTree | None:
        """The first state of another estimator, which must have the form of that of the window's."""
        if estimator is None or estimator is self.estimator:
            return None if estimator is None else first
        state = estimator.init(*arguments)
        if not checks.same_shapes(state, first):
            raise ValueError(
                f"{name} begins where the estimator ends, so it needs the same functions with the same parameters: "
                f"the estimator has {checks.describe(first)}, {name} has {checks.describe(state)}."
            )
        return state

    def __call__(
        self, problem: Any, outer: PyTree, state: ReplayState, data: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, ReplayState]:
        prepared = self._prepared(state, data)
        slot, history = state.slot, with_round(state.history, prepared, state.slot)
        recent = partial(last_rounds, history, prepared, self.window, slot)
        if self.own is None:
            rounds = jnp.minimum(state.rounds + 1, self.window)
            estimate, window = self.estimator(problem, outer, state.window, recent(rounds), key)
            found = _Found(window, None, rounds, None, None, None, None)
        else:
            estimate, found = self._with_own(problem, outer, state, recent, prepared, data, key)
        usable, losses, wild = self._judged(problem, outer, state, data, all_finite(prepared), found.has_changed)
        # After a round that is not usable the next one takes the same slot.
        slot, rounds, change, span = jax.tree.map(
            lambda new, old: jnp.where(usable, new, old),
            ((slot + 1) % self.window, found.rounds, found.change, found.span),
            (slot, state.rounds, state.change, state.span),
        )
        following = ReplayState(found.window, found.own, history, slot, rounds, losses, change, span, wild, found.outer)
        # The losses are those on the data of this round alone, as with every other estimator.
        predict = batched(self.predictor(following))
        estimate = estimate._replace(
            inner_loss=problem.inner_mean(outer, predict(data.inner.x), data.inner),
            outer_loss=problem.outer_mean(outer, predict(data.outer.x), data.outer),
        )
        return estimate, following

    def _prepared(self, state: ReplayState, data: Data) -> Data:
        """The round as it is kept. All of them must have one form."""
        kept, prepared = jax.tree.map(lambda leaf: leaf[0], state.history), self.estimator.prepared(data)
        if not checks.same_shapes(prepared, kept):
            raise ValueError(
                "Replayed needs rounds of one form, because it joins them: pad all to one size (smoothfbo.pad). The "
                f"first had {checks.describe(kept)}, this one has {checks.describe(data)}."
            )
        return prepared

    def _with_own(
        self,
        problem: Any,
        outer: PyTree,
        state: ReplayState,
        recent: Callable[[Int[Array, ""]], Data],
        prepared: Data,
        data: Data,
        key: PRNGKeyArray,
    ) -> tuple[Estimate, "_Found"]:
        """Both candidates, from the rounds since the last change; with `learns_span` the newest of these."""
        assert state.change is not None

        def fit(rounds: Int[Array, ""]) -> _Fits:
            used = rounds if state.span is None else state.span.rounds(rounds)
            return self._fits(problem, outer, state, recent(used), prepared, data, key)

        available, span = jnp.minimum(state.rounds + 1, self.window), None
        fits, change, rounds = fits_since_change(fit, state.change, available, self.window)
        has_changed = rounds < available
        estimate, window, judge, refined, own, _ = fits
        now, before = (outer, window), (state.outer, state.window)
        new, old = ((each, self.estimator.predictor(warm)) for each, warm in (now, before))
        lost = surely_lost(problem, new, old, data.outer)
        candidates = Candidates((judge, refined.gradient), judge, has_changed, lost)
        if state.span is not None:
            assert isinstance(self.estimator, Functional)
            used = state.span.rounds(rounds)
            newer = recent(jnp.maximum(used // 2, 1))
            half, _ = self.estimator(problem, outer, window, self._fresh(newer, prepared), key)
            single, fitted = self.estimator(problem, outer, window, prepared, jax.random.fold_in(key, OF_ROUND))
            values = batched(self.estimator.predictor(window))(data.inner.x)
            counts = determines_fit(problem, outer, values, data.inner, self.estimator.parameters(fitted))
            candidates = candidates._replace(judge=optax.tree.where(counts, refined.gradient, judge))
            span = learn_span(state.span, self.window, single.gradient, half.gradient, judge, counts)
        estimate = estimate._replace(
            gradient=refined.gradient,
            explicit=refined.explicit,
            implicit=refined.implicit,
            candidates=candidates,
        )
        return estimate, _Found(window, own, rounds, change, span, has_changed, outer)

    def _judged(
        self, problem: Any, outer: PyTree, state: ReplayState, data: Data, usable: Array, has_changed: Array | None
    ) -> tuple[Array, Array | None, WildState | None]:
        """Whether the round is kept, by the outer losses of what was fitted before; with their running means."""
        if state.losses is None or state.wild is None or has_changed is None:
            return usable, None, None
        losses = outer_losses(problem, outer, self._functions(state), data)
        # Where the inner samples say that the problem has changed, the outer ones are not to blame.
        judged = judge_round(state.wild, jnp.where(has_changed, jnp.nan, jnp.min(losses)))
        is_wild, wild = optax.tree.where(usable, judged, (~usable, state.wild))
        usable &= ~is_wild
        mean = running_mean(state.losses, losses, state.rounds == 0)
        return usable, jnp.where(usable, mean, state.losses), wild

    def _fits(
        self, problem: Any, outer: PyTree, state: ReplayState, replayed: Data, prepared: Data, data: Data, key: Any
    ) -> "_Fits":
        """Of the window and of `own`."""
        assert self.own is not None
        # The judge begins where the window's fits begin, with the same key: what they share is done once.
        fresh = self._fresh(replayed, prepared)
        estimate, window, judge = self.estimator.call_and_judge(problem, outer, state.window, replayed, fresh, key)
        refined, own = self.own(problem, outer, window, self.own.prepared(data), jax.random.fold_in(key, OF_OWN))
        gain = self._gain(problem, outer, ReplayState(window, own, *state[2:]), data)
        return _Fits(estimate, window, judge, refined, own, gain)

    def _fresh(self, window: Data, newest: Data) -> Data:
        """The inner samples of a window beside the outer samples of the newest round; final ones, too."""
        if self.estimator.paired:
            return newest
        final = None if newest.final is None or window.final is None else self._fresh(window.final, newest.final)
        return Data(window.inner, newest.outer, final)

    def kept(self, new: ReplayState, old: ReplayState) -> ReplayState:
        """The data are finite and need not be looked at again, which would cost as much as a fit."""
        window, own, losses, span = keep_finite(
            (new.window, new.own, new.losses, new.span), (old.window, old.own, old.losses, old.span)
        )
        return new._replace(window=window, own=own, losses=losses, span=span)

    def _gain(self, problem: Any, outer: PyTree, state: ReplayState, data: Data) -> Float[Array, ""]:
        """How much smaller the inner loss of the round is with `own`'s function than with the window's."""
        of_window, of_own = (
            problem.inner_mean(outer, batched(function)(data.inner.x), data.inner)
            for function in self._functions(state)
        )
        return of_window - of_own

    def predictor(self, state: ReplayState) -> Callable[[PyTree], PyTree]:
        functions = self._functions(state)
        return functions[0] if state.losses is None else Chosen(functions, jnp.argmin(state.losses))

    def _functions(self, state: ReplayState) -> tuple[Callable[[PyTree], PyTree], ...]:
        """The inner function of the window, and that of the round's own estimator."""
        first = self.estimator.predictor(state.window)
        return (first,) if self.own is None else (first, self.own.predictor(state.own))


class _Found(NamedTuple):
    """What a round leaves, but for the data."""

    window: PyTree
    own: PyTree | None
    rounds: Int[Array, ""]
    change: ChangeState | None
    span: SpanState | None
    has_changed: Array | None
    outer: PyTree | None


class _Fits(NamedTuple):
    """What a round says with the window, and with its own data."""

    estimate: Estimate
    window: PyTree
    judge: PyTree
    refined: Estimate
    own: PyTree
    gain: Float[Array, ""]
