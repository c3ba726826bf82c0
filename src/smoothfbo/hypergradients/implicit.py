"""Parametric implicit differentiation: AID with conjugate gradients or a Neumann series, and OMD."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import conjugate_gradient, norm, ratio
from smoothfbo.functions.base import AbstractFunction, FunctionState
from smoothfbo.hypergradients.base import (
    TOLERANCE,
    AbstractInnerEstimator,
    Estimate,
    check_round,
    final_data,
    init_inner,
    inner_objective,
)
from smoothfbo.hypergradients.parametric import Operator, Parametric
from smoothfbo.problem import Problem
from smoothfbo.samples import Data
from smoothfbo.types import Number


class AbstractInverse(eqx.Module):
    """An approximate solution v of A v = b, for the Hessian A of the inner objective."""

    @abstractmethod
    def __call__(self, operator: Operator, right_side: PyTree, guess: PyTree) -> tuple[PyTree, Bool[Array, ""] | None]:
        """v, and whether the solver reached a tolerance of its own; None if it has none: its residual then decides."""


class ConjugateGradient(AbstractInverse):
    """(A + ρI) v = b by conjugate gradients, to ‖residual‖ ≤ tolerance·‖b‖ or at most `max_steps` iterations.

    It starts from the solution of the previous round if `warm_start`, or from zero where that has the smaller residual.
    With `tolerance=None` every round makes `max_steps` iterations, always from the previous solution, as SOBOW does
    (Lin, Sow, Ji, Liang and Shroff, NeurIPS 2023). The residual then decides whether the system counts as solved.

    The Hessian of a network need not be positive: where a direction turns up along which A curves down, the solve ends
    with what it has and is reported as not converged. Give networks a ridge (1e-2 is a start) and look at `converged`
    and `adjoint_residual` in the trace: a residual above 1 is worse than no implicit term at all. A right side that is
    not finite gives a solution that is not finite, so that the round is skipped.
    """

    ridge: Number
    tolerance: Number | None
    max_steps: int = eqx.field(static=True)
    warm_start: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        ridge: Number = 0.0,
        tolerance: Number | None = 1e-5,
        max_steps: int = 100,
        warm_start: bool = True,
    ):
        checks.require_range(ridge, "ridge", 0.0)
        if tolerance is not None:
            checks.require_range(tolerance, "tolerance", 0.0, open_low=True)
        checks.require_integer(max_steps, "max_steps", 1)
        self.ridge, self.tolerance, self.max_steps, self.warm_start = ridge, tolerance, max_steps, warm_start

    def __call__(self, operator: Operator, right_side: PyTree, guess: PyTree) -> tuple[PyTree, Bool[Array, ""] | None]:
        start = guess if self.warm_start else optax.tree.zeros_like(guess)
        solution, residual = conjugate_gradient(
            operator,
            right_side,
            start,
            tolerance=0.0 if self.tolerance is None else self.tolerance,
            max_steps=self.max_steps,
            ridge=self.ridge,
            keep_start=self.tolerance is None,
        )
        if self.tolerance is None:
            return solution, None
        return solution, residual <= jnp.asarray(self.tolerance, residual.dtype) * norm(right_side)


class NeumannSeries(AbstractInverse):
    """A⁻¹b ≈ η Σ_{k<terms} (I − ηA)^k b, which converges for a step 0 < η < 2/‖A‖."""

    terms: int = eqx.field(static=True)
    step: Number

    def __init__(self, *, terms: int, step: Number):
        checks.require_integer(terms, "terms", 1)
        checks.require_range(step, "step", 0.0, open_low=True)
        self.terms, self.step = terms, step

    def __call__(self, operator: Operator, right_side: PyTree, guess: PyTree) -> tuple[PyTree, Bool[Array, ""] | None]:
        del guess

        def add_term(carry: tuple[PyTree, PyTree], _: None) -> tuple[tuple[PyTree, PyTree], None]:
            total, power = carry
            power = jax.tree.map(lambda p, ap: p - jnp.asarray(self.step, p.dtype) * ap, power, operator(power))
            return (optax.tree.add(total, power), power), None

        start = (right_side, right_side)
        total = jax.lax.scan(add_term, start, length=self.terms - 1)[0][0]
        return jax.tree.map(lambda leaf: leaf * jnp.asarray(self.step, leaf.dtype), total), None


class IdentityInverse(AbstractInverse):
    """v = b: the inverse Hessian replaced by the identity, as optimal model design (OMD) runs it."""

    def __call__(self, operator: Operator, right_side: PyTree, guess: PyTree) -> tuple[PyTree, Bool[Array, ""] | None]:
        del operator, guess
        return right_side, None


class ImplicitState(NamedTuple):
    inner: FunctionState
    solution: PyTree  # v of the last round, where the next solve starts


class Implicit(AbstractInnerEstimator):
    """∂_λ L_out − ∂_λ⟨∇_θ L_in(θ̂, λ), v⟩ with v ≈ (∇²_θθ L_in)⁻¹ ∇_θ L_out: implicit differentiation in θ (AID).

    L_in contains the inner function's penalty. The linear system is formed on the round's data, the two
    λ-derivatives on the final mini-batch.

    **Arguments:**

    - `inner`: a `Network` or a `Linear`.
    - `inverse`: `ConjugateGradient()` (AID), `NeumannSeries(...)`, or `IdentityInverse()` (OMD).
    - `batch_size`: samples of each kind in the final mini-batch; None uses all of the round.
    """

    inner: AbstractFunction
    inverse: AbstractInverse
    batch_size: int | None = eqx.field(static=True)

    def __init__(self, inner: Any, inverse: AbstractInverse | None = None, *, batch_size: int | None = None):
        if inverse is not None and not isinstance(inverse, AbstractInverse):
            raise TypeError(f"inverse must be ConjugateGradient, NeumannSeries or IdentityInverse, got {inverse!r}.")
        checks.require_batch_size(batch_size)
        self.inner, self.batch_size = inner, batch_size
        self.inverse = ConjugateGradient() if inverse is None else inverse

    def init(self, problem: Problem, outer: PyTree, data: Data, key: PRNGKeyArray) -> ImplicitState:
        inner, _, _ = init_inner(self.inner, problem, outer, data, key)
        return ImplicitState(inner, optax.tree.zeros_like(inner.params))

    def __call__(
        self, problem: Problem, outer: PyTree, state: ImplicitState, data: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, ImplicitState]:
        check_round(self.inner, state.inner, problem, outer, data)
        key_inner, key_final = jax.random.split(key)
        final = final_data(data, self.batch_size, key_final)
        inner = self.inner.at(outer).fit(state.inner, inner_objective(problem, outer, data.inner), key_inner)
        params = inner.params

        objectives = Parametric(self.inner, problem)
        operator, right_side = objectives.linear_system(params, outer, data)
        solution, reached = self.inverse(operator, right_side, state.solution)
        remainder = optax.tree.sub(operator(solution), right_side)
        residual = ratio(norm(remainder), norm(right_side))
        solved = residual <= TOLERANCE if reached is None else reached & jnp.isfinite(residual)
        terms = objectives.terms(params, solution, outer, final)
        estimate = objectives.estimate(
            terms, outer, data, formed_at=params, fitted=params, residual=residual, solved=solved
        )
        return estimate, ImplicitState(inner, solution)
