"""Ways to find the adjoint a* = −C⁻¹d: fit a function, or solve sample by sample."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import inner_product, norm, ratio, solve_positive
from smoothfbo.batching import batched
from smoothfbo.functions.base import AbstractFunction, Term, relative_residual
from smoothfbo.problem import Data, Problem, Samples


class AbstractAdjoint(eqx.Module):
    """Finds the values of the adjoint at the samples of the final inner mini-batch."""

    paired: ClassVar[bool]  # whether inner and outer samples are the same, row by row

    @abstractmethod
    def init(
        self, inner: Callable[[PyTree], PyTree], x: PyTree, prediction: PyTree, data: Data, key: PRNGKeyArray
    ) -> PyTree:
        """The warm state of the first round."""

    @abstractmethod
    def __call__(
        self,
        problem: Problem,
        outer: PyTree,
        inner: Callable[[PyTree], PyTree],
        state: PyTree,
        data: Data,
        final: Data,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        """â at `final.inner`, the warm state for the next round, and the relative residual."""


class FittedAdjoint(AbstractAdjoint):
    """An adjoint function fitted to the quadratic adjoint objective   (Algorithm AdjointOpt)

        L_adj(a) = ½ mean_in a(x)ᵀ [∂²_v ℓ_in(λ, ĥ(x), x, y)] a(x) + mean_out a(x)ᵀ ∂_v ℓ_out(λ, ĥ(x), x, y) + R(ξ),

    whose minimiser is −C⁻¹d. `function` is a `Network` or a `Linear`, or a function of the fitted inner
    module that returns one (features taken from the inner network).
    """

    function: Any
    paired: ClassVar[bool] = False

    def init(
        self, inner: Callable[[PyTree], PyTree], x: PyTree, prediction: PyTree, data: Data, key: PRNGKeyArray
    ) -> PyTree:
        del data
        function = self._resolve(inner)
        state = function.init(x, prediction, key)
        value = checks.abstract_call(function.bind(state.params), "the adjoint function", x=x)
        if not checks.same_shapes(value, prediction):
            raise ValueError(
                "The adjoint function must return what the inner function returns, "
                f"{checks.describe(prediction)}, got {checks.describe(value)}."
            )
        return state

    def __call__(
        self,
        problem: Problem,
        outer: PyTree,
        inner: Callable[[PyTree], PyTree],
        state: PyTree,
        data: Data,
        final: Data,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        function = self._resolve(inner).at(outer)
        objective = adjoint_objective(problem, outer, inner, data)
        state = function.fit(state, objective, key)
        values = batched(function.bind(state.params))(final.inner.x)
        return values, state, relative_residual(function, state.params, objective)

    def _resolve(self, inner: Callable[[PyTree], PyTree]) -> AbstractFunction:
        if isinstance(self.function, AbstractFunction):
            return self.function
        function = self.function(inner)
        if not isinstance(function, AbstractFunction):
            raise TypeError(f"adjoint(module) must return a Network or a Linear, got {function!r}.")
        return function


class PointwiseAdjoint(AbstractAdjoint):
    """â(x_i) = −[∂²_v ℓ_in]⁻¹ ∂_v ℓ_out at every sample: exact where inner and outer samples are the same.

    This is the reinforcement-learning case of the paper: both losses are squared errors of the same value
    at the same state and action, with different targets.
    """

    paired: ClassVar[bool] = True

    def init(
        self, inner: Callable[[PyTree], PyTree], x: PyTree, prediction: PyTree, data: Data, key: PRNGKeyArray
    ) -> PyTree:
        del inner, x, prediction, key
        if not all(_same_inputs(part) for part in (data, data.final) if part is not None):
            raise ValueError(
                "PointwiseAdjoint needs the same inputs in data.inner.x and data.outer.x (and so in data.final), "
                "row by row; for different samples use a fitted adjoint, e.g. adjoint=Network(...) or "
                "adjoint=Linear(...)."
            )
        return ()

    def __call__(
        self,
        problem: Problem,
        outer: PyTree,
        inner: Callable[[PyTree], PyTree],
        state: PyTree,
        data: Data,
        final: Data,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        del data, key
        predictions = batched(inner)(final.inner.x)
        slopes = problem.outer_slopes(outer, predictions, final.outer)

        def solve(prediction: PyTree, x: PyTree, y: PyTree, slope: PyTree) -> PyTree:
            v, unravel = ravel_pytree(prediction)
            hessian = jax.hessian(lambda v: problem.inner_loss(outer, unravel(v), x, y))(v)
            return unravel(-_solve_small(hessian, ravel_pytree(slope)[0]))

        values = jax.vmap(solve)(predictions, *final.inner, slopes)
        curvature = jax.vmap(problem.inner_curvature, in_axes=(None, 0, 0, 0, 0))
        remainder = optax.tree.add(curvature(outer, predictions, *final.inner, values), slopes)
        return values, state, ratio(norm(remainder), norm(slopes))


def adjoint_objective(
    problem: Problem, outer: PyTree, inner: Callable[[PyTree], PyTree], data: Data
) -> tuple[Term, Term]:
    """The two expectations of L_adj; ĥ and ∂_v ℓ_out are evaluated once, so every step of a fit is cheap."""
    predictions = batched(inner)(data.inner.x)
    slopes = problem.outer_slopes(outer, batched(inner)(data.outer.x), data.outer)

    def quadratic(a: PyTree, x: PyTree, known: tuple[PyTree, PyTree]) -> Float[Array, ""]:
        y, prediction = known
        return 0.5 * inner_product(a, problem.inner_curvature(outer, prediction, x, y, a))

    def linear(a: PyTree, x: PyTree, slope: PyTree) -> Float[Array, ""]:
        del x
        return inner_product(a, slope)

    return (
        Term(quadratic, Samples(data.inner.x, (data.inner.y, predictions))),
        Term(linear, Samples(data.outer.x, slopes), is_linear=True),
    )


def _same_inputs(data: Data) -> bool:
    """Whether inner and outer inputs agree; values count only where they can be seen."""
    if not checks.same_shapes(data.inner.x, data.outer.x):
        return False
    pairs = zip(jax.tree.leaves(data.inner.x), jax.tree.leaves(data.outer.x), strict=True)
    return not checks.is_concrete(data) or all(np.array_equal(a, b) for a, b in pairs)


def _solve_small(matrix: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, " n"]:
    return vector / matrix[0] if vector.shape == (1,) else solve_positive(matrix, vector)
