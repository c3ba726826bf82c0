"""Directions with recursive momentum for all three variables at once (STORM, SOGD)."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import norm, ratio, squared_norm
from smoothfbo.functions.base import FunctionState
from smoothfbo.functions.network import Network
from smoothfbo.hypergradients.base import (
    TOLERANCE,
    AbstractInnerEstimator,
    Estimate,
    check_round,
    final_data,
    init_inner,
)
from smoothfbo.hypergradients.parametric import Parametric
from smoothfbo.problem import Problem
from smoothfbo.samples import Data
from smoothfbo.types import Number


class Point(NamedTuple):
    """Where directions are evaluated: θ, v and λ. Also a direction: one for each of them, λ's as its two terms."""

    params: PyTree
    solution: PyTree
    outer: PyTree


class StormState(NamedTuple):
    inner: FunctionState
    solution: PyTree  # v
    previous: Point  # z_{t−1}
    direction: Point  # d_{t−1}
    rounds: Int[Array, ""]


class Storm(AbstractInnerEstimator):
    """With z = (θ, v, λ) and ĝ_t(z) the three directions of `SingleLoop` on the data of round t:

        d_t = ĝ_t(z_t) + (1 − γ)(d_{t−1} − ĝ_t(z_{t−1})),     d_0 = ĝ_0(z_0),
        θ_{t+1} = θ_t − β d_t^θ,   v_{t+1} = v_t − ρ d_t^v,   and d_t^λ is the gradient that is returned.

    Both points see the same samples, so what the data have in common cancels: a memory without a window, and without
    gradients that are out of date. γ = 1 is `SingleLoop`.

    The three simultaneous updates with this direction are SOGD (Nazari, Hou, Tarzanagh, Shen and Michailidis, NeurIPS
    2025, arXiv 2511.01126); the recursion is STORM (Cutkosky and Orabona, NeurIPS 2019). Choices of this library: one
    constant γ for the three variables, no ball around v, and, as in `Implicit`, v's direction on all data of the round
    and λ's on the final mini-batch.

    A round in which a direction at z_t is not finite leaves the whole warm state as it was, because d_{t−1} belongs to
    z_{t−1}. Where only one at z_{t−1} is not, the memory begins anew, d_t = ĝ_t(z_t). The residuals in the `Estimate`
    are those of θ_t and v_t; the losses are those of θ_{t+1}.

    **Arguments:**

    - `inner`: a `Network` with one step; its optimiser moves θ along d^θ (`optax.sgd(β)` is the paper's), and its
      `batch_size` is that of d^θ.
    - `rate`: ρ > 0 of the linear system; stable below 2/‖∇²_θθ L_in‖.
    - `forgetting`: γ in [0, 1].
    - `batch_size`: samples of each kind in the final mini-batch; None uses all of the round.
    """

    inner: Any  # a Network: its optimiser makes the step
    rate: Number
    forgetting: Number
    batch_size: int | None = eqx.field(static=True)

    def __init__(self, inner: Any, rate: Number, forgetting: Number, *, batch_size: int | None = None):
        if not isinstance(inner, Network):
            raise TypeError(f"inner must be a Network, whose optimiser makes the step, got a {type(inner).__name__}.")
        if inner.steps != 1:
            raise ValueError(f"Storm makes one inner step a round: inner must have steps=1, got steps={inner.steps}.")
        checks.require_range(rate, "rate", 0.0, open_low=True)
        checks.require_range(forgetting, "forgetting", 0.0, 1.0)
        checks.require_batch_size(batch_size)
        self.inner, self.rate, self.forgetting, self.batch_size = inner, rate, forgetting, batch_size

    def init(self, problem: Problem, outer: PyTree, data: Data, key: PRNGKeyArray) -> StormState:
        inner, _, _ = init_inner(self.inner, problem, outer, data, key)

        def zeros() -> PyTree:  # buffers of their own each time, so that a state can be donated
            return optax.tree.zeros_like(inner.params)

        def no_term() -> PyTree:
            return optax.tree.zeros_like(outer)

        return StormState(
            inner=inner,
            solution=zeros(),
            previous=Point(jax.tree.map(jnp.array, inner.params), zeros(), jax.tree.map(jnp.array, outer)),
            direction=Point(zeros(), zeros(), (no_term(), no_term())),
            rounds=jnp.zeros((), jnp.int32),
        )

    def __call__(
        self, problem: Problem, outer: PyTree, state: StormState, data: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, StormState]:
        check_round(self.inner, state.inner, problem, outer, data)
        key_inner, key_final = jax.random.split(key)
        final = final_data(data, self.batch_size, key_final)
        sample = data._replace(inner=data.inner.minibatch(self.inner.batch_size, key_inner))
        objectives = Parametric(self.inner, problem)

        def directions(at: Point) -> tuple[Point, PyTree]:
            operator, right_side = objectives.linear_system(at.params, at.outer, data)
            direction = Point(
                params=jax.grad(objectives.inner_loss)(at.params, at.outer, sample),
                solution=optax.tree.sub(operator(at.solution), right_side),
                outer=objectives.terms(at.params, at.solution, at.outer, final),
            )
            return direction, right_side

        here = Point(state.inner.params, state.solution, outer)
        new, right_side = directions(here)
        old, _ = directions(state.previous)
        # Without directions at z_{t−1} the memory begins anew. It would wait for them for ever otherwise.
        remembers = (state.rounds > 0) & jnp.isfinite(squared_norm(old))
        old = optax.tree.where(remembers, old, state.direction)
        keep = 1 - jnp.asarray(self.forgetting, jnp.result_type(float))
        direction = jax.tree.map(lambda n, d, o: n + keep.astype(n.dtype) * (d - o), new, state.direction, old)

        inner = self.inner.descend(state.inner, direction.params)
        solution = jax.tree.map(
            lambda v, d: v - jnp.asarray(self.rate, v.dtype) * d, state.solution, direction.solution
        )
        following = StormState(inner, solution, here, direction, state.rounds + 1)
        finite = jnp.isfinite(squared_norm(direction)) & jnp.isfinite(squared_norm((inner.params, solution)))
        following = optax.tree.where(finite, following, state)

        residual = ratio(norm(new.solution), norm(right_side))
        estimate = objectives.estimate(
            direction.outer,
            outer,
            data,
            formed_at=here.params,
            fitted=following.inner.params,
            residual=residual,
            solved=residual <= TOLERANCE,
        )
        return estimate, following
