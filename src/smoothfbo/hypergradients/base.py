"""The contract of every hypergradient estimator, and what they share."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.functions.base import AbstractFunction, FunctionState, Term
from smoothfbo.problem import Data, Problem, Samples, check_curvature, check_data, check_problem, losses


class Estimate(NamedTuple):
    """A hypergradient ĝ_t and what one wants to know about how it came about."""

    gradient: PyTree  # ĝ_t = explicit + implicit, with the structure of the outer variable
    explicit: PyTree | None  # g_Exp, None where the estimator does not separate the two
    implicit: PyTree | None  # g_Imp
    inner_loss: Float[Array, ""]  # mean ℓ_in(λ, ĥ(x), x, y) on the round's inner data, after the fit
    outer_loss: Float[Array, ""]  # mean ℓ_out(λ, ĥ(x), x, y) on the round's outer data, after the fit
    # ‖∇L_adj(â)‖ / ‖∇L_adj(0)‖: 0 is an adjoint that solves its equation, 1 one no better than zero; NaN: no adjoint
    adjoint_residual: Float[Array, ""]
    converged: Bool[Array, ""]  # False where a solver stopped short of its tolerance or gave nothing finite


class AbstractHypergradient(eqx.Module):
    """Maps (problem, λ_t, warm state, data of round t) to an estimate of ∇F_t(λ_t) and the next warm state."""

    @abstractmethod
    def init(self, problem: Any, outer: PyTree, data: Any, key: PRNGKeyArray) -> PyTree:
        """Check that problem, λ and data fit together, and return the warm state of the first round."""

    @abstractmethod
    def __call__(
        self, problem: Any, outer: PyTree, state: PyTree, data: Any, key: PRNGKeyArray
    ) -> tuple[Estimate, PyTree]:
        """The estimate and the warm state for the next round."""


def init_inner(
    inner: AbstractFunction, problem: Problem, outer: PyTree, data: Data, key: PRNGKeyArray
) -> tuple[FunctionState, PyTree, PyTree]:
    """Check everything that can be checked; return the inner state, one input, and a prediction's shape."""
    if not isinstance(inner, AbstractFunction):
        raise TypeError(f"inner must be a Network, a Linear or another AbstractFunction, got a {type(inner).__name__}.")
    if not isinstance(data, Data) or not all(isinstance(part, Samples) for part in (data.inner, data.outer)):
        raise TypeError(
            "data must be a smoothfbo.Data(inner=Samples(x, y), outer=Samples(x, y)), got "
            + (
                f"{type(data.inner).__name__} and {type(data.outer).__name__} in it."
                if isinstance(data, Data)
                else f"a {type(data).__name__}."
            )
        )
    check_data(data)
    x = jax.tree.map(lambda leaf: leaf[0], data.inner.x)
    state = inner.init(key, x, None)
    prediction = check_round(inner, state, problem, outer, data)
    check_curvature(problem, outer, prediction, data.inner)
    return state, x, prediction


def check_round(inner: AbstractFunction, state: FunctionState, problem: Problem, outer: PyTree, data: Data) -> PyTree:
    """Raise if the data of a round do not fit; return the shape of a prediction. Costs nothing once compiled."""
    check_data(data)
    x, x_outer = (jax.tree.map(lambda leaf: leaf[0], samples.x) for samples in (data.inner, data.outer))
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

    def of_all(v: PyTree, x: PyTree, y: PyTree) -> Float[Array, " samples"]:
        return losses(problem.inner_loss, outer, v, Samples(x, y))

    return (Term(lambda v, x, y: problem.inner_loss(outer, v, x, y), samples, of_all=of_all),)


def predict(function: AbstractFunction, params: PyTree, samples: Samples) -> PyTree:
    return jax.vmap(function.bind(params))(samples.x)


def final_data(data: Data, batch_size: int | None, key: PRNGKeyArray, *, paired: bool = False) -> Data:
    """The final mini-batch (B_in, B_out), drawn independently of all earlier draws (step 3 of FuncGrad).

    `paired` draws the same rows of both, for problems whose inner and outer samples are the same.
    """
    source = data if data.final is None else data.final
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
    return Estimate(
        gradient=gradient,
        explicit=explicit,
        implicit=None,
        inner_loss=problem.inner_mean(outer, predict(function, params, data.inner), data.inner),
        outer_loss=problem.outer_mean(outer, predict(function, params, data.outer), data.outer),
        adjoint_residual=jnp.full((), jnp.nan),
        converged=jnp.asarray(True),
    )


def add(explicit: PyTree, implicit: PyTree) -> PyTree:
    return jax.tree.map(jnp.add, explicit, implicit)
