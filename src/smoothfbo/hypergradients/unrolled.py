"""Differentiation through the inner optimiser's steps (iterative differentiation, ITD)."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.functions.base import AbstractFunction, FunctionState
from smoothfbo.hypergradients.base import (
    AbstractInnerEstimator,
    Estimate,
    InnerState,
    check_round,
    final_data,
    init_inner,
    inner_objective,
    predict,
    without_adjoint,
)
from smoothfbo.problem import Problem
from smoothfbo.samples import Data


class Unrolled(AbstractInnerEstimator):
    """d/dλ L_out(λ, θ_M(λ)), where θ_M(λ) is the result of this round's M inner steps from a constant θ_0.

    Truncated: the dependence of θ_0 on earlier outer variables is not followed. Choose an inner optimiser
    that is differentiable where gradients vanish: `optax.adam` takes √0 for parameters that never had a
    gradient (inactive ReLU units) and gives NaN unless `eps_root > 0`.

    **Arguments:**

    - `inner`: a `Network` (or a `Linear`, whose exact fit is differentiated).
    - `batch_size`: samples of the outer loss; None uses all of the round.
    """

    inner: AbstractFunction
    batch_size: int | None = eqx.field(static=True)

    def __init__(self, inner: Any, *, batch_size: int | None = None):
        checks.require_batch_size(batch_size)
        self.inner, self.batch_size = inner, batch_size

    def init(self, problem: Problem, outer: PyTree, data: Data, key: PRNGKeyArray) -> InnerState:
        return InnerState(init_inner(self.inner, problem, outer, data, key)[0])

    def __call__(
        self, problem: Problem, outer: PyTree, state: InnerState, data: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, InnerState]:
        check_round(self.inner, state.inner, problem, outer, data)
        key_inner, key_final = jax.random.split(key)
        final = final_data(data, self.batch_size, key_final)

        def outer_loss(outer: PyTree) -> tuple[Float[Array, ""], FunctionState]:
            inner = self.inner.at(outer).fit(state.inner, inner_objective(problem, outer, data.inner), key_inner)
            predictions = predict(self.inner, inner.params, final.outer)
            return problem.outer_mean(outer, predictions, final.outer), inner

        gradient, inner = jax.grad(outer_loss, has_aux=True)(outer)
        estimate = without_adjoint(self.inner, inner.params, problem, outer, data, gradient, None)
        return estimate, InnerState(inner)
