"""The one online loop: gradient estimate, smoothing and optimiser, projection."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, UInt32

from smoothfbo import checks
from smoothfbo.algebra import all_finite, norm, squared_norm
from smoothfbo.batching import batched
from smoothfbo.compiled import Static, one_step, parts_of, plain_method, run_once, split
from smoothfbo.errors import refuse_keywords
from smoothfbo.hypergradients.base import AbstractEstimator
from smoothfbo.monitor import first_monitor, observe
from smoothfbo.optimiser import as_optimiser, update
from smoothfbo.problem import Problem
from smoothfbo.samples import without_padding
from smoothfbo.smoothing import smoothed_gradient
from smoothfbo.states import Info, RunState, State, require_state


class Online(eqx.Module):
    """λ_{t+1} = Proj_Λ(λ_t − step(smooth(ĝ_t(λ_t))))   (Algorithms 1 and 3).

    **Arguments:**

    - `problem`: the two point-wise losses; an `Oracle` needs none: `Online(estimator=..., optimiser=...)`.
    - `estimator`: `Functional`, `Implicit`, `Unrolled`, `Storm`, `Oracle`, another one of the library, or your own.
    - `optimiser`: any optax chain. SmoothFBO is `optax.chain(window_average(w), optax.sgd(α))`. One that asks for
      `value` and `grad` (`optax.polyak_sgd`, `optax.contrib.reduce_on_plateau`) gets the round's outer loss and ĝ_t.
    - `project`: the projection onto Λ, e.g. `optax.projections.projection_non_negative`; None is no constraint.
    - `monitor`: whether to watch for oscillation (`Info.oscillating`). It costs two products of vectors like λ a round.

    A round whose hypergradient or update is not finite is skipped and counted: λ stays as it was, and the
    optimiser sees a zero gradient (like the paper's zero padding). Each part of the estimator's warm state
    (inner, adjoint) that is no longer finite goes back to what it was before the round.
    """

    problem: Problem | None
    estimator: AbstractEstimator
    optimiser: optax.GradientTransformation
    project: Callable[[PyTree], PyTree] | None
    monitor: bool = eqx.field(static=True)

    def __init__(
        self,
        problem: Problem | None = None,
        estimator: AbstractEstimator | None = None,
        optimiser: Any = None,
        project: Callable[[PyTree], PyTree] | None = None,
        monitor: bool = True,
        **old: Any,
    ):
        refuse_keywords("Online", old, {"hypergradient": "estimator"})
        if not isinstance(estimator, AbstractEstimator):
            raise TypeError(
                f"estimator must be an estimator such as Functional(...) or Implicit(...), got {estimator!r}."
            )
        if project is not None and not callable(project):
            raise TypeError(f"project must be a function of the outer variable or None, got {project!r}.")
        self.problem, self.estimator = problem, estimator
        self.optimiser, self.project = as_optimiser(optimiser, "transformation such as optax.sgd(0.1)"), project
        self.monitor = monitor

    def init(self, outer: PyTree, data: Any, key: PRNGKeyArray) -> State:
        """The state before the first round. `data` is one round of data: its shapes count, and it is checked."""
        if checks.is_key(outer):
            raise TypeError("Online.init takes (outer, data, key) since version 1.0: the key comes last.")
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
            outer = _projected(*split(self.project), outer)  # only points of Λ are played
        key_init, key_rounds = jax.random.split(key)
        estimator = self.estimator.init(self.problem, outer, without_padding(checks.as_arrays(data)), key_init)
        first = _counters(outer, key_rounds, self.monitor)
        return _unshared(first._replace(outer=outer, estimator=estimator, optimiser=self.optimiser.init(outer)))

    @plain_method
    def step(self, state: State, data: Any, problem: Problem | None = None) -> tuple[State, Info]:
        """One round. `problem` replaces the problem in this round, where the losses themselves change.

        Compiled on the first call and whenever shapes change. To update a large window in place from a Python loop,
        use `jax.jit(lambda state, data: algorithm.step(state, data), donate_argnums=0)`; `run` does it by itself.
        """
        static, arrays = parts_of(self) if problem is None else split((self, problem, None))
        return one_step(static, arrays, state, data)

    def round(self, state: State, data: Any, problem: Problem | None) -> tuple[State, Info]:
        """What `step` compiles."""
        require_state(state)
        if problem is None:
            problem = self.problem
        else:
            self.estimator.check_losses(self.problem, problem)
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.round)
        estimate, warm = self.estimator(problem, state.outer, state.estimator, without_padding(data), key)
        gradient = estimate.gradient

        # Squares must be finite too, in the gradient's own dtype: optimisers that accumulate them overflow for ever.
        finite = jnp.isfinite(squared_norm(gradient)) & all_finite(jax.tree.map(jnp.square, gradient))
        if estimate.candidates is not None:
            finite &= jnp.isfinite(squared_norm((estimate.candidates.directions, estimate.candidates.judge)))
        gradient = optax.tree.where(finite, gradient, optax.tree.zeros_like(gradient))
        value = jnp.where(finite, estimate.outer_loss, jnp.inf)
        known = {"value": value, "grad": gradient}
        if estimate.candidates is not None:
            zeros = optax.tree.zeros_like(estimate.candidates)
            known["candidates"] = optax.tree.where(finite, estimate.candidates, zeros)
        change, optimiser = update(self.optimiser, gradient, state.optimiser, state.outer, **known)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
            outer = optax.apply_updates(state.outer, change)
            outer = outer if self.project is None else self.project(outer)
        finite &= all_finite(outer)
        outer = optax.tree.where(finite, outer, state.outer)
        monitor, oscillating = observe(state.monitor, gradient, optax.tree.sub(outer, state.outer))

        following = State(
            round=state.round + 1,
            key=state.key,
            outer=outer,
            estimator=self.estimator.kept(warm, state.estimator),
            optimiser=optimiser,
            skipped=state.skipped + jnp.where(finite, 0, 1).astype(jnp.int32),
            monitor=monitor,
        )
        smoothed = smoothed_gradient(optimiser, gradient)
        info = Info(
            round=state.round,
            outer=state.outer,
            gradient=estimate.gradient,
            smoothed=smoothed,
            gradient_norm=norm(estimate.gradient),
            smoothed_norm=norm(smoothed),
            explicit_norm=_norm_or_nan(estimate.explicit),
            implicit_norm=_norm_or_nan(estimate.implicit),
            inner_loss=estimate.inner_loss,
            outer_loss=estimate.outer_loss,
            inner_residual=estimate.inner_residual,
            adjoint_residual=estimate.adjoint_residual,
            converged=estimate.converged & finite,
            finite=finite,
            skipped=following.skipped,
            oscillating=oscillating,
        )
        return following, info

    def predictor(self, state: State | RunState) -> Callable[[PyTree], PyTree]:
        """The inner function ĥ as it was last fitted, a function of ONE input."""
        learner = state.learner if isinstance(state, RunState) else state
        return self.estimator.predictor(require_state(learner).estimator)

    @eqx.filter_jit
    def predict(self, state: State | RunState, x: PyTree) -> PyTree:
        """ĥ(x) for all inputs of a batch, along their first axis."""
        predictor, x = self.predictor(state), checks.as_arrays(x)
        for path, leaf in checks.named_leaves(x, "x"):
            if not jnp.shape(leaf):
                raise ValueError(f"{path} is a scalar; its first axis must be the samples. For one input: predictor.")
        checks.abstract_call(predictor, "the inner function", x=checks.one_of(x))
        return batched(predictor)(x)


@partial(run_once, static_argnums=0)  # one program in place of one for each operation
def _projected(static: Static, arrays: list[Any], outer: PyTree) -> PyTree:
    with jax.numpy_dtype_promotion("standard"):
        return static.join(arrays)(outer)


@partial(run_once, static_argnums=2)
def _counters(outer: PyTree, key: PRNGKeyArray, is_monitored: bool) -> State:
    """The parts of a first state that are the same for every algorithm."""
    return State(
        round=jnp.zeros((), jnp.int32),
        key=key_data(key),
        outer=None,
        estimator=None,
        optimiser=None,
        skipped=jnp.zeros((), jnp.int32),
        monitor=first_monitor(outer) if is_monitored else None,
    )


def _unshared(state: State) -> State:
    """The same with a copy of every array that stands in two places: JAX donates a buffer only once."""
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        is_shared = id(leaf) in seen
        seen.add(id(leaf))
        return jnp.array(leaf) if is_shared else leaf

    return jax.tree.map(own, state)


def key_data(key: PRNGKeyArray) -> UInt32[Array, "words"]:
    """The bits of a key of JAX's default generator; plain arrays can be stored by everything."""
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def _norm_or_nan(tree: PyTree | None) -> Float[Array, ""]:
    return jnp.full((), jnp.nan) if tree is None else norm(tree)
