"""The explicit term alone: for outer losses that do not depend on the inner function, or to ignore that they do."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.functions.base import AbstractFunction
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


class Explicit(AbstractInnerEstimator):
    """g_Exp = mean ∂_λ ℓ_out(λ, ĥ(x), x, y), and nothing else; the inner function is fitted all the same.

    It is the whole hypergradient where ℓ_out does not depend on the prediction: λ is then trained by itself, and the
    inner function after it (a world model fitted by maximum likelihood, and values learnt with it). Elsewhere it is
    the approximation that ignores how the inner solution answers to λ.

    **Arguments:**

    - `inner`: a `Network`, a `Linear`, or another `AbstractFunction`.
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
        inner = self.inner.at(outer).fit(state.inner, inner_objective(problem, outer, data.inner), key_inner)
        gradient = problem.explicit(outer, predict(self.inner, inner.params, final.outer), final.outer)
        estimate = without_adjoint(self.inner, inner.params, problem, outer, data, gradient, gradient)
        return estimate, InnerState(inner)
