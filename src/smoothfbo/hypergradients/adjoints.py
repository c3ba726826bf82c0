"""Ways to find the adjoint a* = −C⁻¹d: fit a function, or solve sample by sample."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo.algebra import inner_product, norm, ratio
from smoothfbo.batching import batched
from smoothfbo.functions.base import Term, init_alike, relative_residual, resolved
from smoothfbo.hypergradients.corrections import Corrected, Predictions
from smoothfbo.hypergradients.pairs import require_same_inputs, solve_small
from smoothfbo.problem import Problem
from smoothfbo.samples import Data


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
        inner: Corrected,
        state: PyTree,
        data: Data,
        final: Data,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        """â at `final.inner`, the warm state for the next round, and the relative residual; `inner` is ĥ, corrected."""


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
        return init_alike(resolved(self.function, inner, "adjoint"), "adjoint", x, prediction, key)

    def __call__(
        self,
        problem: Problem,
        outer: PyTree,
        inner: Corrected,
        state: PyTree,
        data: Data,
        final: Data,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        function = resolved(self.function, inner.module, "adjoint").at(outer)
        objective = function.prepared(adjoint_objective(problem, outer, inner.at(data), data))
        state = function.fit(state, objective, key)
        inputs = objective[0].samples.x if final.inner is data.inner else final.inner.x
        values = batched(function.bind(state.params))(inputs)
        return values, state, relative_residual(function, state.params, objective)


class PointwiseAdjoint(AbstractAdjoint):
    """â(x_i) = −[∂²_v ℓ_in]⁻¹ ∂_v ℓ_out at every sample: exact where inner and outer samples are the same.

    This is the reinforcement-learning case of the paper: both losses are squared errors of the same value
    at the same state and action, with different targets. Only the first round is looked at to see whether they are.
    """

    paired: ClassVar[bool] = True

    def init(
        self, inner: Callable[[PyTree], PyTree], x: PyTree, prediction: PyTree, data: Data, key: PRNGKeyArray
    ) -> PyTree:
        del inner, x, prediction, key
        require_same_inputs(
            data, "PointwiseAdjoint", "a fitted adjoint, e.g. adjoint=Network(...) or adjoint=Linear(...)"
        )
        return ()

    def __call__(
        self,
        problem: Problem,
        outer: PyTree,
        inner: Corrected,
        state: PyTree,
        data: Data,
        final: Data,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        del data, key
        predictions = inner.at(final).inner
        slopes = problem.outer_slopes(outer, predictions, final.outer)

        def solve(prediction: PyTree, x: PyTree, y: PyTree, slope: PyTree) -> PyTree:
            v, unravel = ravel_pytree(prediction)
            hessian = jax.hessian(lambda v: problem.inner_loss(outer, unravel(v), x, y))(v)
            return unravel(-solve_small(hessian, ravel_pytree(slope)[0]))

        x, y, _ = final.inner
        values = jax.vmap(solve)(predictions, x, y, slopes)
        curvature = jax.vmap(problem.inner_curvature, in_axes=(None, 0, 0, 0, 0))
        remainder = optax.tree.add(curvature(outer, predictions, x, y, values), slopes)
        return values, state, ratio(norm(final.inner.weighted(remainder)), norm(final.inner.weighted(slopes)))


def adjoint_objective(problem: Problem, outer: PyTree, predictions: Predictions, data: Data) -> tuple[Term, Term]:
    """The two expectations of L_adj; ĥ and ∂_v ℓ_out are evaluated once, so every step of a fit is cheap."""
    slopes = problem.outer_slopes(outer, predictions.outer, data.outer)

    def quadratic(a: PyTree, x: PyTree, known: tuple[PyTree, PyTree]) -> Float[Array, ""]:
        y, prediction = known
        return 0.5 * inner_product(a, problem.inner_curvature(outer, prediction, x, y, a))

    def linear(a: PyTree, x: PyTree, slope: PyTree) -> Float[Array, ""]:
        del x
        return inner_product(a, slope)

    return (
        Term(quadratic, data.inner._replace(y=(data.inner.y, predictions.inner)), is_quadratic=True),
        Term(linear, data.outer._replace(y=slopes), is_linear=True),
    )
