"""One simultaneous step of the inner function, of the linear system and of λ (SOBA)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import norm, ratio
from smoothfbo.functions.base import AbstractFunction
from smoothfbo.hypergradients.base import (
    TOLERANCE,
    AbstractInnerEstimator,
    Estimate,
    check_round,
    final_data,
    init_inner,
    inner_objective,
)
from smoothfbo.hypergradients.implicit import ImplicitState
from smoothfbo.hypergradients.parametric import Parametric
from smoothfbo.problem import Problem
from smoothfbo.samples import Data
from smoothfbo.types import Number


class SingleLoop(AbstractInnerEstimator):
    """Three directions at the same point (θ_t, v_t, λ_t), none of which waits for another one:

        θ_{t+1} = θ_t − ρ ∇_θ L_in(θ_t, λ_t),
        v_{t+1} = v_t − ρ [∇²_θθ L_in(θ_t, λ_t) v_t − ∇_θ L_out(θ_t, λ_t)],
        ĝ_t     = ∂_λ L_out(θ_t, λ_t) − ∂_λ⟨∇_θ L_in(θ_t, λ_t), v_t⟩.

    This is SOBA (Dagréou, Ablin, Vaiter and Moreau, NeurIPS 2022), whose v has the other sign. The paper draws one
    mini-batch for all three. Here, as in `Implicit`, the system is formed on the round's data and ĝ_t on the final
    mini-batch; where a round has no more data than the mini-batch, the two agree. Also a choice of this library: θ is
    moved by the inner function's own fit, so a `Network` with `optax.sgd(rate)` and one step is the paper's.

    The residuals in the `Estimate` are those of θ_t and v_t, at which ĝ_t was formed; the losses are those of θ_{t+1}.

    **Arguments:**

    - `inner`: a `Network` (one step a round is the paper's), or another `AbstractFunction`.
    - `rate`: ρ > 0 of the linear system; stable below 2/‖∇²_θθ L_in‖.
    - `batch_size`: samples of each kind in the final mini-batch; None uses all of the round.
    """

    inner: AbstractFunction
    rate: Number
    batch_size: int | None = eqx.field(static=True)

    def __init__(self, inner: Any, rate: Number, *, batch_size: int | None = None):
        checks.require_range(rate, "rate", 0.0, open_low=True)
        checks.require_batch_size(batch_size)
        self.inner, self.rate, self.batch_size = inner, rate, batch_size

    def init(self, problem: Problem, outer: PyTree, data: Data, key: PRNGKeyArray) -> ImplicitState:
        inner, _, _ = init_inner(self.inner, problem, outer, data, key)
        return ImplicitState(inner, optax.tree.zeros_like(inner.params))

    def __call__(
        self, problem: Problem, outer: PyTree, state: ImplicitState, data: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, ImplicitState]:
        check_round(self.inner, state.inner, problem, outer, data)
        key_inner, key_final = jax.random.split(key)
        final = final_data(data, self.batch_size, key_final)
        objectives = Parametric(self.inner, problem)
        params = state.inner.params

        terms = objectives.terms(params, state.solution, outer, final)
        operator, right_side = objectives.linear_system(params, outer, data)
        remainder = optax.tree.sub(operator(state.solution), right_side)
        solution = jax.tree.map(lambda v, r: v - jnp.asarray(self.rate, v.dtype) * r, state.solution, remainder)
        inner = self.inner.at(outer).fit(state.inner, inner_objective(problem, outer, data.inner), key_inner)

        residual = ratio(norm(remainder), norm(right_side))
        solved = residual <= TOLERANCE
        estimate = objectives.estimate(
            terms, outer, data, formed_at=params, fitted=inner.params, residual=residual, solved=solved
        )
        return estimate, ImplicitState(inner, solution)
