"""The two objectives of a round as functions of the inner parameters θ, for estimators that differentiate in θ."""

from collections.abc import Callable
from typing import TypeAlias

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Bool, Float, PyTree

from smoothfbo.algebra import inner_product
from smoothfbo.functions.base import AbstractFunction, objective_value
from smoothfbo.hypergradients.base import TOLERANCE, Estimate, inner_objective, inner_residual, predict
from smoothfbo.problem import Problem
from smoothfbo.samples import Data

Operator: TypeAlias = Callable[[PyTree], PyTree]


class Parametric(eqx.Module):
    """L_in(θ, λ), which contains the function's penalty, and L_out(θ, λ); v stands for (∇²_θθ L_in)⁻¹ ∇_θ L_out."""

    function: AbstractFunction
    problem: Problem

    def inner_loss(self, params: PyTree, outer: PyTree, data: Data) -> Float[Array, ""]:
        return objective_value(self.function.at(outer), params, inner_objective(self.problem, outer, data.inner))

    def outer_loss(self, params: PyTree, outer: PyTree, data: Data) -> Float[Array, ""]:
        return self.problem.outer_mean(outer, predict(self.function, params, data.outer), data.outer)

    def linear_system(self, params: PyTree, outer: PyTree, data: Data) -> tuple[Operator, PyTree]:
        """A = ∇²_θθ L_in as a map of vectors, and b = ∇_θ L_out."""
        operator = jax.linearize(lambda params: jax.grad(self.inner_loss)(params, outer, data), params)[1]
        return operator, jax.grad(self.outer_loss)(params, outer, data)

    def terms(self, params: PyTree, solution: PyTree, outer: PyTree, data: Data) -> tuple[PyTree, PyTree]:
        """The explicit term ∂_λ L_out(θ, λ) and the implicit term −∂_λ⟨∇_θ L_in(θ, λ), v⟩."""

        def coupling(outer: PyTree) -> Float[Array, ""]:
            return inner_product(jax.grad(self.inner_loss)(params, outer, data), solution)

        explicit = jax.grad(self.outer_loss, argnums=1)(params, outer, data)
        return explicit, optax.tree.scale(-1, jax.grad(coupling)(outer))

    def estimate(
        self,
        terms: tuple[PyTree, PyTree],
        outer: PyTree,
        data: Data,
        *,
        formed_at: PyTree,
        fitted: PyTree,
        residual: Float[Array, ""],
        solved: Bool[Array, ""],
    ) -> Estimate:
        """The sum of the terms, with the losses of the `fitted` θ and the residual of the θ that ĝ was `formed_at`."""
        explicit, implicit = terms
        of_inner = inner_residual(self.function, formed_at, self.problem, outer, data)
        predictions = predict(self.function, fitted, data.inner)
        return Estimate(
            gradient=optax.tree.add(explicit, implicit),
            explicit=explicit,
            implicit=implicit,
            inner_loss=self.problem.inner_mean(outer, predictions, data.inner),
            outer_loss=self.outer_loss(fitted, outer, data),
            inner_residual=of_inner,
            adjoint_residual=residual,
            converged=solved & (of_inner <= TOLERANCE),
        )
