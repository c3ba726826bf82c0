"""The contract of every hypergradient estimator, and what they share."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from smoothfbo import checks, traps
from smoothfbo.algebra import all_finite
from smoothfbo.batching import batched
from smoothfbo.functions.base import AbstractFunction, FunctionState, Term, relative_residual
from smoothfbo.functions.linear import Linear
from smoothfbo.problem import LossAt, Problem, check_curvature, check_problem
from smoothfbo.samples import Data, Samples, check_data

# A round counts as converged where its residuals are at most this: the bias of ĝ is of the order of the residuals.
TOLERANCE = 1e-2


class Candidates(NamedTuple):
    """Gradients of one round, each of which λ may follow, and the one that judges the moves of earlier rounds: it is
    made of samples that had no part in them. `changed` says whether the problem changed at once since these moves,
    `lost` by how much the last of them has made the outer loss larger, on samples of this round."""

    directions: tuple[PyTree, ...]
    judge: PyTree
    changed: Bool[Array, ""] | None = None
    lost: Float[Array, ""] | None = None


class Estimate(NamedTuple):
    """A hypergradient ĝ_t and what one wants to know about how it came about.

    - `gradient`: ĝ_t = explicit + implicit, with the structure of the outer variable.
    - `explicit`, `implicit`: g_Exp and g_Imp; None where the estimator does not separate the two.
    - `inner_loss`, `outer_loss`: means of ℓ(λ, ĥ(x), x, y) on the round's data, after the fit.
    - `inner_residual`: ‖∇_θ L_in(θ̂)‖ / ‖J_θ̂ᵀ ∂_v ℓ_in(λ, 0)‖ on the round's inner data, L_in with the penalty (see
      `relative_residual`): 0 is an inner function that solves its problem, 1 one no better than h = 0; NaN: none.
    - `adjoint_residual`: ‖∇L_adj(â)‖ / ‖∇L_adj(0)‖: 0 is an adjoint that solves its equation, 1 one no better than
      a = 0; NaN: no adjoint.
    - `converged`: whether every residual that there is is at most `TOLERANCE`, and `ConjugateGradient` reached its
      own tolerance. An `Oracle` has none, and says True.
    - `candidates`: gradients of the round made in several ways, for optimisers that choose among them
      (`adaptive_steps`); None: there is only `gradient`.
    """

    gradient: PyTree
    explicit: PyTree | None
    implicit: PyTree | None
    inner_loss: Float[Array, ""]
    outer_loss: Float[Array, ""]
    inner_residual: Float[Array, ""]
    adjoint_residual: Float[Array, ""]
    converged: Bool[Array, ""]
    candidates: Candidates | None = None


def keep_finite(new: PyTree, old: PyTree) -> PyTree:
    """Part by part of the warm state: the new one if it is finite throughout, else the old one."""
    parts, structure = jax.tree.flatten(new, is_leaf=lambda node: node is not new)
    kept = [
        optax.tree.where(all_finite(part), part, former)
        for part, former in zip(parts, structure.flatten_up_to(old), strict=True)
    ]
    return jax.tree.unflatten(structure, kept)


class AbstractEstimator(eqx.Module):
    """Maps (problem, λ_t, warm state, data of round t) to an estimate of ∇F_t(λ_t) and the next warm state."""

    @property
    def paired(self) -> bool:
        """Whether inner and outer samples must be the same, row by row."""
        return False

    @abstractmethod
    def init(self, problem: Any, outer: PyTree, data: Any, key: PRNGKeyArray) -> PyTree:
        """Check that problem, λ and data fit together, and return the warm state of the first round."""

    @abstractmethod
    def __call__(
        self, problem: Any, outer: PyTree, state: PyTree, data: Any, key: PRNGKeyArray
    ) -> tuple[Estimate, PyTree]:
        """The estimate and the warm state for the next round."""

    def check_losses(self, usual: Any, of_round: Any) -> None:
        """Raise if the problem of a round cannot take the place of the usual one. Mostly any can."""
        del usual, of_round

    def call_and_judge(
        self, problem: Any, outer: PyTree, state: PyTree, data: Any, fresh: Any, key: PRNGKeyArray
    ) -> tuple[Estimate, PyTree, PyTree]:
        """What a call with `data` returns, and the gradient of a call with `fresh` in their place."""
        judge, _ = self(problem, outer, state, fresh, key)
        return *self(problem, outer, state, data, key), judge.gradient

    def kept(self, new: PyTree, old: PyTree) -> PyTree:
        """The warm state after a round: each part of the new one if it is finite throughout, else the old one."""
        return keep_finite(new, old)

    def prepared(self, data: Any) -> Any:
        """The data with what can be computed once and for all, for rounds that are used again (`Replayed`)."""
        return data

    def predictor(self, state: PyTree) -> Callable[[PyTree], PyTree]:
        """The inner function ĥ of a warm state, as a function of one input."""
        del state
        raise TypeError(f"{type(self).__name__} has no inner function, so there is nothing to predict with.")


class AbstractInnerEstimator(AbstractEstimator):
    """An estimator that fits an inner function. Its warm state carries it as `inner`, a `FunctionState`."""

    inner: eqx.AbstractVar[AbstractFunction]

    def predictor(self, state: PyTree) -> Callable[[PyTree], PyTree]:
        return self.inner.bind(state.inner.params)


class InnerState(NamedTuple):
    """The warm state of an estimator that has nothing but an inner function."""

    inner: FunctionState


def init_inner(
    inner: AbstractFunction, problem: Problem, outer: PyTree, data: Data, key: PRNGKeyArray
) -> tuple[FunctionState, PyTree, PyTree]:
    """Check everything that can be checked; return the inner state, one input, and a prediction's shape."""
    if not isinstance(inner, AbstractFunction):
        hint = " A module goes into a Network(lambda key: module, optimiser, steps)." if callable(inner) else ""
        raise TypeError(
            f"inner must be a Network, a Linear or another AbstractFunction, got {type(inner).__name__}.{hint}"
        )
    require_data(data)
    check_data(data)
    x = checks.first_of(data.inner.x)
    function = inner.at(outer)
    state = function.init(x, None, key)
    penalty = checks.abstract_call(function.regulariser, "penalty", params=state.params)
    if not isinstance(penalty, jax.ShapeDtypeStruct) or penalty.shape or not checks.is_floating(penalty):
        raise ValueError(f"penalty must return a floating-point scalar, got {checks.describe(penalty)}.")
    prediction = check_round(inner, state, problem, outer, data)
    check_curvature(problem, outer, prediction, data.inner)
    _check_traps(inner, problem, outer, prediction, data)
    return state, x, prediction


def require_data(data: Any) -> None:
    """Raise if a round is anything else than inner and outer samples."""
    if not isinstance(data, Data) or not all(isinstance(part, Samples) for part in (data.inner, data.outer)):
        raise TypeError(
            "data must be a smoothfbo.Data(inner=Samples(x, y), outer=Samples(x, y)), got "
            + (
                f"{type(data.inner).__name__} and {type(data.outer).__name__} in it."
                if isinstance(data, Data)
                else f"a {type(data).__name__}."
            )
        )


def _check_traps(inner: AbstractFunction, problem: Problem, outer: PyTree, prediction: PyTree, data: Data) -> None:
    """Raise for losses that would be evaluated without an error, and wrongly."""
    is_default = isinstance(inner, Linear) and inner.prediction is None
    for name, loss, samples in (
        ("inner_loss", problem.inner_loss, data.inner),
        ("outer_loss", problem.outer_loss, data.outer),
    ):
        if is_default:
            x, y = checks.one_of((samples.x, samples.y))
            traps.check_broadcast(loss, name, outer, prediction, x, y)
        if checks.is_concrete((outer, samples, problem)):
            traps.check_indices(loss, name, outer, prediction, samples.x, samples.y)


def check_round(inner: AbstractFunction, state: FunctionState, problem: Problem, outer: PyTree, data: Data) -> PyTree:
    """Raise if the data of a round do not fit; return the shape of a prediction. Costs nothing once compiled."""
    require_data(data)
    check_data(data)
    x, x_outer = checks.one_of((data.inner.x, data.outer.x))
    if not checks.same_shapes(x, x_outer):
        raise ValueError(
            "data.inner.x and data.outer.x must hold inputs of the same form, because the inner function is "
            f"evaluated on both; got {checks.describe(data.inner.x)} and {checks.describe(data.outer.x)}."
        )
    prediction = checks.abstract_call(inner.bind(state.params), "the inner function", x=x)
    check_problem(problem, outer, prediction, data)
    if data.final is not None:
        if jax.tree.structure(data.final) != jax.tree.structure(data._replace(final=None)):
            raise ValueError("data.final must have the structure of data: inner and outer samples, and no final.")
        check_round(inner, state, problem, outer, data.final)
    return prediction


def inner_objective(problem: Problem, outer: PyTree, samples: Samples) -> tuple[Term, ...]:
    """mean ℓ_in(λ, h(x), x, y) as an objective over h (the penalty belongs to the function)."""
    return (Term(LossAt(problem.inner_loss, outer), samples),)


def inner_residual(
    function: AbstractFunction, params: PyTree, problem: Problem, outer: PyTree, data: Data
) -> Float[Array, ""]:
    """‖∇_θ L_in(θ̂)‖ / ‖J_θ̂ᵀ ∂_v ℓ_in(λ, 0)‖ on all inner data of the round. It costs two gradients, if anyone asks."""
    return relative_residual(function.at(outer), params, inner_objective(problem, outer, data.inner))


def predict(function: AbstractFunction, params: PyTree, samples: Samples) -> PyTree:
    """The function with these parameters at all inputs of `samples`."""
    return batched(function.bind(params))(samples.x)


def final_data(data: Data, batch_size: int | None, key: PRNGKeyArray, *, paired: bool = False) -> Data:
    """The final mini-batch (B_in, B_out), drawn independently of all earlier draws (step 3 of FuncGrad).

    `paired` draws the same rows of both, for problems whose inner and outer samples are the same.
    """
    source = data if data.final is None else data.final
    if batch_size is None:
        return Data(source.inner, source.outer)
    key_inner, key_outer = jax.random.split(key)
    return Data(
        inner=source.inner.minibatch(batch_size, key_inner),
        outer=source.outer.minibatch(batch_size, key_inner if paired else key_outer),
    )


def without_adjoint(
    function: AbstractFunction,
    params: PyTree,
    problem: Problem,
    outer: PyTree,
    data: Data,
    gradient: PyTree,
    explicit: PyTree | None,
) -> Estimate:
    """The estimate of a method that has no adjoint equation to solve."""
    residual = inner_residual(function, params, problem, outer, data)
    return Estimate(
        gradient=gradient,
        explicit=explicit,
        implicit=None,
        inner_loss=problem.inner_mean(outer, predict(function, params, data.inner), data.inner),
        outer_loss=problem.outer_mean(outer, predict(function, params, data.outer), data.outer),
        inner_residual=residual,
        adjoint_residual=jnp.full((), jnp.nan),
        converged=residual <= TOLERANCE,
    )
