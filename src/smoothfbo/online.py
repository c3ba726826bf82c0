"""The one online loop: hypergradient, smoothing and optimiser, projection; round by round or in one scan."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt32

from smoothfbo import checks
from smoothfbo.algebra import norm, squared_norm
from smoothfbo.hypergradients.base import AbstractHypergradient
from smoothfbo.problem import Problem
from smoothfbo.smoothing import smoothed_gradient
from smoothfbo.source import AbstractStream, RecordedStream, as_stream


class State(NamedTuple):
    """All that the next round needs. Plain arrays only: save it with any tool, resume to the same bits."""

    round: Int[Array, ""]  # rounds done so far, i.e. the index t of the next one, from 0
    key: UInt32[Array, "words"]  # randomness of round t is fold_in(key, t)
    outer: PyTree  # λ_t
    hypergradient: PyTree  # the estimator's warm state
    optimiser: PyTree
    skipped: Int[Array, ""]  # rounds whose update was not finite


class Info(NamedTuple):
    """What one looks at after a round. A trace is the same with a first axis over rounds.

    - `round`: the index t, from 0.
    - `outer`: the λ_t that was played, before the update.
    - `hypergradient`, `used`: ĝ_t and g̃_t, before and after smoothing; None in a trace unless `record` keeps them.
    - `hypergradient_norm`, `used_norm`, `explicit_norm`, `implicit_norm`: Euclidean norms of ĝ_t, g̃_t and of the two
      terms of ĝ_t (NaN where the estimator does not separate them, as in unrolling).
    - `inner_loss`, `outer_loss`: means on the round's data after the inner fit.
    - `adjoint_residual`: ‖∇L_adj(â)‖ / ‖∇L_adj(0)‖; 0 is solved, 1 is no better than â = 0, NaN is no adjoint.
    - `converged`: False where a solver stopped short of its tolerance or gave nothing finite.
    - `finite`: False where the round was skipped; `skipped` counts these rounds so far.
    """

    round: Int[Array, "..."]
    outer: PyTree  # the λ_t that was played, before the update
    hypergradient: PyTree | None  # ĝ_t
    used: PyTree | None  # g̃_t, the gradient after smoothing
    hypergradient_norm: Float[Array, "..."]
    used_norm: Float[Array, "..."]
    explicit_norm: Float[Array, "..."]  # NaN where the estimator does not separate the two terms
    implicit_norm: Float[Array, "..."]
    inner_loss: Float[Array, "..."]
    outer_loss: Float[Array, "..."]
    adjoint_residual: Float[Array, "..."]
    converged: Bool[Array, "..."]
    finite: Bool[Array, "..."]  # False: the round was skipped
    skipped: Int[Array, "..."]  # how many were skipped so far, this one included


class Online(eqx.Module):
    """λ_{t+1} = Proj_Λ(λ_t − step(smooth(ĝ_t(λ_t))))   (Algorithms 1 and 3).

    **Arguments:**

    - `problem`: the two point-wise losses (None for an `Oracle`).
    - `hypergradient`: `Functional`, `Implicit`, `Unrolled`, `Explicit`, `Oracle`, or your own.
    - `optimiser`: any optax chain. SmoothFBO is `optax.chain(window_average(w), optax.sgd(α))`.
    - `project`: the projection onto Λ, e.g. `optax.projections.projection_non_negative`; None is no constraint.

    A round whose hypergradient or update is not finite is skipped and counted: λ stays as it was, and the
    optimiser sees a zero gradient (like the paper's zero padding). Each part of the estimator's warm state
    (inner, adjoint) that is no longer finite goes back to what it was before the round.
    """

    problem: Problem | None
    hypergradient: AbstractHypergradient
    optimiser: optax.GradientTransformation
    project: Callable[[PyTree], PyTree] | None

    def __init__(
        self,
        problem: Problem | None,
        hypergradient: AbstractHypergradient,
        optimiser: Any,
        project: Callable[[PyTree], PyTree] | None = None,
    ):
        if not isinstance(hypergradient, AbstractHypergradient):
            raise TypeError(f"hypergradient must be Functional, Implicit, Unrolled or Oracle, got {hypergradient!r}.")
        if not isinstance(optimiser, optax.GradientTransformation):
            raise TypeError(f"optimiser must be an optax transformation, got {optimiser!r}.")
        if project is not None and not callable(project):
            raise TypeError(f"project must be a function of the outer variable or None, got {project!r}.")
        self.problem, self.hypergradient = problem, hypergradient
        self.optimiser, self.project = optimiser, project

    def init(self, key: PRNGKeyArray, outer: PyTree, data: Any) -> State:
        """The state before the first round. `data` is one round of data: its shapes count, and it is checked."""
        checks.require_key(key, "key")
        outer = jax.tree.map(jnp.array, checks.as_arrays(outer))  # a copy: the state may be donated
        checks.require_floating(outer, "outer")
        checks.require_finite(outer, "outer")
        if self.project is not None:
            with jax.numpy_dtype_promotion("standard"):
                projected = checks.abstract_call(self.project, "project", outer=outer)
            if not checks.same_shapes(projected, outer):
                raise ValueError(
                    "project must keep structure, shapes and dtypes of outer, "
                    f"{checks.describe(outer)}, got {checks.describe(projected)}."
                )
            with jax.numpy_dtype_promotion("standard"):
                outer = self.project(outer)  # only points of Λ are played
        key_init, key_rounds = jax.random.split(key)
        return State(
            round=jnp.zeros((), jnp.int32),
            key=_key_data(key_rounds),
            outer=outer,
            hypergradient=self.hypergradient.init(self.problem, outer, checks.as_arrays(data), key_init),
            optimiser=self.optimiser.init(outer),
            skipped=jnp.zeros((), jnp.int32),
        )

    @eqx.filter_jit
    def step(self, state: State, data: Any, problem: Problem | None = None) -> tuple[State, Info]:
        """One round. `problem` replaces the problem in this round, where the losses themselves change.

        Compiled on the first call and whenever shapes change. To update a large window in place from a Python loop,
        use `jax.jit(lambda state, data: algorithm.step(state, data), donate_argnums=0)`; `run` does it by itself.
        """
        problem = self.problem if problem is None else problem
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.round)
        estimate, warm = self.hypergradient(problem, state.outer, state.hypergradient, data, key)
        gradient = estimate.gradient

        # Squares must be finite too, in the gradient's own dtype: optimisers that accumulate them overflow for ever.
        finite = jnp.isfinite(squared_norm(gradient)) & _all_finite(jax.tree.map(jnp.square, gradient))
        gradient = _where(finite, gradient, jax.tree.map(jnp.zeros_like, gradient))
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
            change, optimiser = self.optimiser.update(gradient, state.optimiser, state.outer)
            outer = optax.apply_updates(state.outer, change)
            outer = outer if self.project is None else self.project(outer)
        finite &= _all_finite(outer)

        following = State(
            round=state.round + 1,
            key=state.key,
            outer=_where(finite, outer, state.outer),
            hypergradient=_keep_finite(warm, state.hypergradient),
            optimiser=optimiser,
            skipped=state.skipped + jnp.where(finite, 0, 1).astype(jnp.int32),
        )
        used = smoothed_gradient(optimiser, gradient)
        info = Info(
            round=state.round,
            outer=state.outer,
            hypergradient=estimate.gradient,
            used=used,
            hypergradient_norm=norm(estimate.gradient),
            used_norm=norm(used),
            explicit_norm=_norm_or_nan(estimate.explicit),
            implicit_norm=_norm_or_nan(estimate.implicit),
            inner_loss=estimate.inner_loss,
            outer_loss=estimate.outer_loss,
            adjoint_residual=estimate.adjoint_residual,
            converged=estimate.converged,
            finite=finite,
            skipped=following.skipped,
        )
        return following, info


class RunState(NamedTuple):
    """All that is needed to continue a run: the learner's state, the stream's state and the stream's key."""

    learner: State
    stream: PyTree
    key: UInt32[Array, "words"]


def without_vectors(state: State, info: Info) -> Info:
    """What `run` records of a round by default: everything but the two gradient vectors."""
    del state
    return info._replace(hypergradient=None, used=None)


def start(algorithm: Online, stream: Any, outer: PyTree, key: PRNGKeyArray) -> RunState:
    """The state of a run before its first round."""
    checks.require_key(key, "key")
    key_learner, key_stream, key_first = jax.random.split(key, 3)
    stream_state, example = _init_stream(as_stream(stream), key_first)
    learner = algorithm.init(key_learner, outer, example)
    return RunState(learner, stream_state, _key_data(key_stream))


def run(
    algorithm: Online,
    stream: Any,
    outer: PyTree = None,
    *,
    rounds: int,
    key: PRNGKeyArray | None = None,
    state: RunState | None = None,
    record: Callable[[State, Info], Any] = without_vectors,
) -> tuple[RunState, Any]:
    """`rounds` rounds in one compiled scan; returns the final state and the trace (records stacked over rounds).

    Start with `outer` and `key`, or continue with the `state` that an earlier call returned: a run in pieces
    gives the same bits as one run, and a short run is a prefix of a long one. `record` takes the state after the
    round and its `Info` and returns what to keep of them; what it leaves out is not computed. `run` can be vmapped
    over keys and over every number of the algorithm, the stream and `outer`.
    """
    checks.require_integer(rounds, "rounds", 1)
    stream = as_stream(stream)
    if state is not None and not isinstance(state, RunState):
        raise TypeError(f"state must be the RunState that run or start returned, got a {type(state).__name__}.")
    if (state is None) == (key is None):
        raise ValueError("run needs either outer and key, to start, or state, to continue.")
    fresh = state is None
    if state is None:
        if outer is None:
            raise ValueError("run needs outer, the initial outer variable, to start.")
        state = start(algorithm, stream, outer, key)  # pyright: ignore[reportArgumentType]
    done = 0 if fresh else state.learner.round
    if isinstance(stream, RecordedStream) and checks.is_concrete(done):
        done = int(done)
        if done + rounds > stream.rounds:
            raise ValueError(f"rounds={rounds} after {done} rounds done, but the recorded stream has {stream.rounds}.")
    return _scan(algorithm, stream, state, rounds, record)


@eqx.filter_jit
def _init_stream(stream: AbstractStream, key: PRNGKeyArray) -> tuple[PyTree, Any]:
    return stream.init(key)


@eqx.filter_jit
def _scan(
    algorithm: Online, stream: AbstractStream, state: RunState, rounds: int, record: Callable[[State, Info], Any]
) -> tuple[RunState, Any]:
    def one_round(state: RunState, _: None) -> tuple[RunState, Any]:
        index = state.learner.round
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), index)
        stream_state, data, problem = stream(state.stream, index, key, state.learner)
        learner, info = algorithm.step(state.learner, data, problem)
        return RunState(learner, stream_state, state.key), record(learner, info)

    return jax.lax.scan(one_round, state, length=rounds)


def _key_data(key: PRNGKeyArray) -> UInt32[Array, "words"]:
    """The bits of a key of JAX's default generator; plain arrays can be stored by everything."""
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def _where(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _keep_finite(new: PyTree, old: PyTree) -> PyTree:
    """Part by part of the warm state: the new one if it is finite throughout, else the old one."""
    parts, structure = jax.tree.flatten(new, is_leaf=lambda node: node is not new)
    kept = [
        _where(_all_finite(part), part, former)
        for part, former in zip(parts, structure.flatten_up_to(old), strict=True)
    ]
    return jax.tree.unflatten(structure, kept)


def _all_finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)], bool))


def _norm_or_nan(tree: PyTree | None) -> Float[Array, ""]:
    return jnp.full((), jnp.nan) if tree is None else norm(tree)
