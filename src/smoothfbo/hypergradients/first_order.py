"""The hypergradient from first derivatives alone: a penalty in place of the Hessian (F2SA, BOME)."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.functions.base import AbstractFunction, FunctionState, Term, relative_residual
from smoothfbo.hypergradients.base import (
    TOLERANCE,
    AbstractInnerEstimator,
    Estimate,
    check_round,
    final_data,
    init_inner,
    inner_objective,
    predict,
    without_adjoint,
)
from smoothfbo.problem import LossAt, Problem
from smoothfbo.samples import Data
from smoothfbo.types import Number


class FirstOrderState(NamedTuple):
    inner: FunctionState  # z
    penalised: FunctionState  # y
    rounds: Int[Array, ""]


class FirstOrder(AbstractInnerEstimator):
    """∂_λ f(λ, y) + σ [∂_λ g(λ, y) − ∂_λ g(λ, z)], where f and g are the outer and the inner objective,

        z ≈ argmin g(λ, ·)     and     y ≈ argmin g(λ, ·) + f(λ, ·)/σ.

    It is the λ-derivative of min_y f + σ (g − min_z g). The inner function z is pulled towards a smaller outer loss,
    and the difference to it, times σ, stands for the implicit term: no Hessian, no linear system. With y and z
    exact, its error is O(1/σ); what is left of a fit that is not exact counts σ times, and so does rounding.

    This is F2SA (Kwon, Kwon, Wright and Nowak, ICML 2023); the same penalty is in BOME (Liu, Ye, Wright, Stone and Liu,
    NeurIPS 2022), and online in arXiv 2602.11665. As there, y and z are warm-started and take the same few gradient
    steps before ĝ_t is formed. Choices of this library: y's objective is divided by σ, so that one step size serves
    both; and σ_t = σ (1 + t)^growth, where the papers have their own sequences.

    There is no adjoint equation: `adjoint_residual` is NaN. `converged` says that y and z solve their problems, and
    nothing about the error of a small σ.

    **Arguments:**

    - `inner`: a `Network`, a `Linear`, or another `AbstractFunction`, fitted twice. `predict` uses z.
    - `penalty`: σ > 0.
    - `growth`: exponent ≥ 0 of (1 + t); 0 keeps σ constant.
    - `batch_size`: samples of each kind in the final mini-batch; None uses all of the round.
    """

    inner: AbstractFunction
    penalty: Number
    growth: Number
    batch_size: int | None = eqx.field(static=True)

    def __init__(self, inner: Any, penalty: Number, *, growth: Number = 0.0, batch_size: int | None = None):
        checks.require_range(penalty, "penalty", 0.0, open_low=True)
        checks.require_range(growth, "growth", 0.0)
        checks.require_batch_size(batch_size)
        self.inner, self.penalty, self.growth, self.batch_size = inner, penalty, growth, batch_size

    def init(self, problem: Problem, outer: PyTree, data: Data, key: PRNGKeyArray) -> FirstOrderState:
        inner, _, _ = init_inner(self.inner, problem, outer, data, key)
        return FirstOrderState(inner, jax.tree.map(jnp.array, inner), jnp.zeros((), jnp.int32))

    def __call__(
        self, problem: Problem, outer: PyTree, state: FirstOrderState, data: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, FirstOrderState]:
        check_round(self.inner, state.inner, problem, outer, data)
        key_inner, key_penalised, key_final = jax.random.split(key, 3)
        final = final_data(data, self.batch_size, key_final)
        number = jnp.result_type(float)
        time = 1 + state.rounds.astype(number)
        sigma = jnp.asarray(self.penalty, number) * time ** jnp.asarray(self.growth, number)

        objective = inner_objective(problem, outer, data.inner)
        pulled = (*objective, Term(_Scaled(LossAt(problem.outer_loss, outer), 1 / sigma), data.outer))
        function = self.inner.at(outer)
        inner = function.fit(state.inner, objective, key_inner)
        penalised = function.fit(state.penalised, pulled, key_penalised)

        def gap(outer: PyTree) -> Float[Array, ""]:
            """g(λ, y) − g(λ, z)."""
            y, z = (predict(self.inner, fitted.params, final.inner) for fitted in (penalised, inner))
            penalty = self.inner.at(outer).regulariser
            in_loss = problem.inner_mean(outer, y, final.inner) - problem.inner_mean(outer, z, final.inner)
            return in_loss + penalty(penalised.params) - penalty(inner.params)

        explicit = problem.explicit(outer, predict(self.inner, penalised.params, final.outer), final.outer)
        implicit = jax.tree.map(lambda leaf: sigma.astype(leaf.dtype) * leaf, jax.grad(gap)(outer))
        estimate = without_adjoint(
            self.inner, inner.params, problem, outer, data, optax.tree.add(explicit, implicit), explicit
        )
        solved = relative_residual(function, penalised.params, pulled) <= TOLERANCE
        estimate = estimate._replace(implicit=implicit, converged=estimate.converged & solved)
        return estimate, FirstOrderState(inner, penalised, state.rounds + 1)


class _Scaled(eqx.Module):
    """A loss of `(prediction, x, y)`, times a number."""

    loss: LossAt
    factor: Float[Array, ""]

    def __call__(self, prediction: PyTree, x: PyTree, y: PyTree) -> Float[Array, ""]:
        return self._times(self.loss(prediction, x, y))

    def batch(self, predictions: PyTree, x: PyTree, y: PyTree) -> Float[Array, " samples"]:
        return self._times(self.loss.batch(predictions, x, y))

    def _times(self, value: Array) -> Array:
        return self.factor.astype(value.dtype) * value
