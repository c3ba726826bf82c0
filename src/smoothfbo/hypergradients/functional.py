"""The functional hypergradient of the paper (Algorithm FuncGrad)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.functions.base import AbstractFunction, FunctionState
from smoothfbo.functions.features import Featured, LossOfInput, identical
from smoothfbo.functions.linear import Linear
from smoothfbo.hypergradients.adjoints import AbstractAdjoint, FittedAdjoint
from smoothfbo.hypergradients.base import (
    TOLERANCE,
    AbstractInnerEstimator,
    Estimate,
    check_round,
    final_data,
    init_inner,
    inner_objective,
    inner_residual,
    require_data,
)
from smoothfbo.hypergradients.corrections import AbstractCorrection, Corrected, NoCorrection
from smoothfbo.problem import Problem
from smoothfbo.samples import Data, map_samples


class FunctionalState(NamedTuple):
    inner: FunctionState
    adjoint: PyTree
    correction: PyTree = ()


class Functional(AbstractInnerEstimator):
    """∇F_t(λ) = ∂_λ L_out(λ, h*) + B a*, estimated with ĥ and â   (Eq. 2 and Algorithm FuncGrad).

    1. InnerOpt: fit ĥ to mean ℓ_in on D_in, starting from the previous round.
    2. AdjointOpt: find â, the minimiser of L_adj, starting from the previous round.
    3. On an independent final mini-batch: mean ∂_λ ℓ_out(λ, ĥ(x), x, y) + mean ∂_λ [∂_v ℓ_in(λ, ĥ(x), x, y)ᵀ â(x)].

    Nothing differentiates through 1 or 2.

    A penalty of the inner function that depends on λ acts on parameters θ and not on values h(x), so the functional
    hypergradient has no term for it. Where h(x) = Φ(x)θ is a `Linear` whose `ridge` is a function of λ, and the adjoint
    a(x) = Φ(x)w has the same features and ridge, the parametric term is known and added: with
    (mean H ⊗ φφᵀ + diag ρ(λ)) w = −mean d ⊗ φ, the hypergradient is exact for

        ∇F(λ) = ∂_λ L_out + mean ∂_λ [∂_v ℓ_in(λ, h(x), x, y)ᵀ a(x)] + ∂_λ [∇_θ R(θ, λ)ᵀ w].

    Elsewhere w would have to solve the linear system of `Implicit`, so `Functional` refuses: use `Implicit` or
    `Unrolled`, or write the penalty as a part of ℓ_in that depends on the prediction.

    **Arguments:**

    - `inner`: a `Network`, a `Linear`, or another `AbstractFunction`.
    - `adjoint`: the same choices (fitted to L_adj); a function of the fitted inner module that returns one;
      or `PointwiseAdjoint()`, the closed form where inner and outer samples are the same. To a `Linear` with a ridge
      give the same `Linear` as adjoint: the hypergradient is then exact for the penalised fit. With another ridge it
      is biased, and no residual shows it.
    - `batch_size`: samples of each kind in the final mini-batch; None uses all of the round.
    - `correction`: None forms the hypergradient at ĥ, as the paper does. A `PointwiseCorrection` or a
      `FittedCorrection` takes one Newton step in function space first, v⁺ in place of ĥ(x) in 2 and 3: where ĥ lags
      behind the solution, the hypergradient follows a change of λ at once.
    """

    inner: AbstractFunction
    adjoint: AbstractAdjoint
    correction: AbstractCorrection
    batch_size: int | None = eqx.field(static=True)
    shares_features: bool = eqx.field(static=True)  # inner and adjoint function are linear in the same features

    def __init__(
        self, inner: Any, adjoint: Any, *, batch_size: int | None = None, correction: AbstractCorrection | None = None
    ):
        checks.require_batch_size(batch_size)
        if not isinstance(adjoint, (AbstractAdjoint, AbstractFunction)) and not callable(adjoint):
            raise TypeError(
                f"adjoint must be a Network, a Linear or PointwiseAdjoint(), got a {type(adjoint).__name__}."
            )
        if isinstance(inner, AbstractFunction) and inner.depends_on_outer and not _shares_parameters(inner, adjoint):
            raise TypeError(
                "The inner function's penalty depends on the outer variable: it acts on parameters and not on values "
                "h(x), so Functional can differentiate it only for a Linear with the same Linear as adjoint, "
                "Functional(linear, linear). Use Implicit or Unrolled, or a penalty on the prediction in inner_loss."
            )
        self.inner = inner
        self.adjoint = adjoint if isinstance(adjoint, AbstractAdjoint) else FittedAdjoint(function=adjoint)
        if correction is not None and not isinstance(correction, AbstractCorrection):
            raise TypeError(
                "correction must be a PointwiseCorrection(), a FittedCorrection(...) or None, got a "
                f"{type(correction).__name__}."
            )
        if correction is not None and isinstance(inner, AbstractFunction) and inner.depends_on_outer:
            raise TypeError("correction must be None where the inner function's penalty depends on the outer variable.")
        self.correction = NoCorrection() if correction is None else correction
        self.batch_size = batch_size
        self.shares_features = correction is None and _shares_features(inner, self.adjoint)

    def init(self, problem: Problem, outer: PyTree, data: Data, key: PRNGKeyArray) -> FunctionalState:
        key_inner, key_adjoint = jax.random.split(key)
        inner, x, prediction = init_inner(self.inner, problem, outer, data, key_inner)
        module = self.inner.bind(inner.params)
        return FunctionalState(
            inner,
            self.adjoint.init(module, x, prediction, data, key_adjoint),
            self.correction.init(module, x, prediction, data, jax.random.fold_in(key_adjoint, 1)),
        )

    @property
    def paired(self) -> bool:
        return self.adjoint.paired or self.correction.paired

    def prepared(self, data: Data) -> Data:
        """The data with the features of a `Linear`, where its adjoint has the same ones."""
        if not self.shares_features or not isinstance(self.inner, Linear):
            return data
        return map_samples(self.inner.featured, data)

    def parameters(self, state: FunctionalState) -> int:
        """How many numbers are fitted in a round: those of the correction, where it has any, else of ĥ."""
        fitted = jax.tree.leaves(getattr(state.correction, "params", state.correction))
        return sum(leaf.size for leaf in fitted or jax.tree.leaves(state.inner.params))

    def predictor(self, state: FunctionalState) -> Callable[[PyTree], PyTree]:
        return self.correction.predictor(self.inner.bind(state.inner.params), state.correction)

    def __call__(
        self, problem: Problem, outer: PyTree, state: FunctionalState, data: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, FunctionalState]:
        problem, keys = _of_inputs(problem, data), _Keys(*jax.random.split(key, 3))
        fitted = self._fitted(problem, outer, state, data, keys)
        return self._estimate(problem, outer, state, fitted, data, keys)

    def call_and_judge(
        self, problem: Problem, outer: PyTree, state: FunctionalState, data: Data, fresh: Data, key: PRNGKeyArray
    ) -> tuple[Estimate, FunctionalState, PyTree]:
        """One inner fit serves both where `fresh` has the same inner samples. All samples have the form of `data`."""
        problem, keys = _of_inputs(problem, data), _Keys(*jax.random.split(key, 3))
        fitted = self._fitted(problem, outer, state, data, keys)
        estimate, following = self._estimate(problem, outer, state, fitted, data, keys)
        if fresh.inner is not data.inner:
            fitted = self._fitted(problem, outer, state, fresh, keys)
        terms = self._terms(problem, outer, state, fitted, fitted.corrected.known_at(fresh), fresh, keys)
        return estimate, following, optax.tree.add(terms.explicit, terms.implicit)

    def _fitted(self, problem: Problem, outer: PyTree, state: FunctionalState, data: Data, keys: "_Keys") -> "_Fitted":
        """Step 1, and the correction."""
        check_round(self.inner, state.inner, problem, outer, data)
        inner = self.inner.at(outer).fit(state.inner, inner_objective(problem, outer, data.inner), keys.inner)
        module, key_correction = self.inner.bind(inner.params), jax.random.fold_in(keys.adjoint, 1)
        return _Fitted(inner, *self.correction(problem, outer, module, state.correction, data, key_correction))

    def _terms(
        self,
        problem: Problem,
        outer: PyTree,
        state: FunctionalState,
        fitted: "_Fitted",
        corrected: Corrected,
        data: Data,
        keys: "_Keys",
    ) -> "_Terms":
        """Steps 2 and 3."""
        final = final_data(data, self.batch_size, keys.final, paired=self.paired)
        adjoints, adjoint, residual = self.adjoint(problem, outer, corrected, state.adjoint, data, final, keys.adjoint)
        at_final = corrected.at(final)
        explicit = problem.explicit(outer, at_final.outer, final.outer)
        implicit = problem.implicit(outer, at_final.inner, adjoints, final.inner)
        if self.inner.depends_on_outer:
            implicit = optax.tree.add(implicit, _penalty_term(self.inner, outer, fitted.inner.params, adjoint.params))
        return _Terms(explicit, implicit, adjoint, residual)

    def _estimate(
        self,
        problem: Problem,
        outer: PyTree,
        state: FunctionalState,
        fitted: "_Fitted",
        data: Data,
        keys: "_Keys",
    ) -> tuple[Estimate, FunctionalState]:
        corrected = fitted.corrected.known_at(data)
        terms = self._terms(problem, outer, state, fitted, corrected, data, keys)
        values = corrected.values(data)
        residual = inner_residual(self.inner, fitted.inner.params, problem, outer, data)
        estimate = Estimate(
            gradient=optax.tree.add(terms.explicit, terms.implicit),
            explicit=terms.explicit,
            implicit=terms.implicit,
            inner_loss=problem.inner_mean(outer, values.inner, data.inner),
            outer_loss=problem.outer_mean(outer, values.outer, data.outer),
            inner_residual=residual,
            adjoint_residual=terms.residual,
            converged=(residual <= TOLERANCE) & (terms.residual <= TOLERANCE),
        )
        return estimate, FunctionalState(fitted.inner, terms.adjoint, fitted.correction)


class _Keys(NamedTuple):
    """The keys of the three steps."""

    inner: PRNGKeyArray
    adjoint: PRNGKeyArray
    final: PRNGKeyArray


class _Fitted(NamedTuple):
    """The inner function of a round."""

    inner: FunctionState
    corrected: Corrected
    correction: PyTree


class _Terms(NamedTuple):
    """The two parts of a hypergradient, and the adjoint."""

    explicit: PyTree
    implicit: PyTree
    adjoint: PyTree
    residual: Float[Array, ""]


def _of_inputs(problem: Problem, data: Data) -> Problem:
    """Losses that see inputs without the features that may be beside them."""
    require_data(data)
    if not isinstance(data.inner.x, Featured):
        return problem
    inner, outer = (LossOfInput(loss, (None, 0, 0, 0)) for loss in (problem.inner_loss, problem.outer_loss))
    return Problem(inner, outer)


def _penalty_term(inner: AbstractFunction, outer: PyTree, params: PyTree, adjoint: PyTree) -> PyTree:
    """∂_λ [∇_θ R(θ, λ)ᵀ w] for the parameters w of an adjoint in the same features."""

    def coupling(outer: PyTree) -> Float[Array, ""]:
        return jax.jvp(inner.at(outer).regulariser, (params,), (adjoint,))[1]

    return jax.grad(coupling)(outer)


def _shares_features(inner: Any, adjoint: Any) -> bool:
    """Whether inner and adjoint function are linear in the same features. They are code, so it means one object, and
    can be seen only here: arrays in them are traced later."""
    function = adjoint.function if isinstance(adjoint, FittedAdjoint) else adjoint
    return isinstance(inner, Linear) and isinstance(function, Linear) and identical(inner.features, function.features)


def _shares_parameters(inner: AbstractFunction, adjoint: Any) -> bool:
    """Whether the adjoint's parameters w stand for Φw in the inner function's features Φ, with its ridge."""
    function = adjoint.function if isinstance(adjoint, FittedAdjoint) else adjoint
    return _shares_features(inner, function) and identical(
        *((each.ridge, each.bias) for each in (inner, function))  # pyright: ignore[reportAttributeAccessIssue]
    )
