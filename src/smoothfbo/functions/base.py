"""The one interface of inner and adjoint functions: parameters that can be fitted to a point-wise objective."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo.problem import Samples


class Term(NamedTuple):
    """mean over `samples` of loss(f(x), x, y): one expectation of an objective over functions f."""

    loss: Callable[[PyTree, PyTree, PyTree], Float[Array, ""]]
    samples: Samples
    is_linear: bool = False  # linear in f(x): its Hessian need not be computed
    of_all: Callable[[PyTree, PyTree, PyTree], Float[Array, " samples"]] | None = None  # if faster than vmap of `loss`

    def mean(self, function: Callable[[PyTree], PyTree]) -> Float[Array, ""]:
        """`function` maps all inputs at once."""
        return jnp.mean((self.of_all or jax.vmap(self.loss))(function(self.samples.x), *self.samples))


class FunctionState(NamedTuple):
    """What a function carries from round to round: its parameters and its optimiser's memory."""

    params: PyTree
    optimiser: PyTree


class AbstractFunction(eqx.Module):
    """A family of functions x ↦ v with parameters θ, and a way to fit θ."""

    @abstractmethod
    def init(self, key: PRNGKeyArray, x: PyTree, prediction: PyTree | None) -> FunctionState:
        """Initial parameters. `x` is one input; `prediction` is what f(x) must look like, None if free."""

    @abstractmethod
    def bind(self, params: PyTree) -> Callable[[PyTree], PyTree]:
        """The function x ↦ v of ONE input that these parameters stand for."""

    @abstractmethod
    def bind_all(self, params: PyTree) -> Callable[[PyTree], PyTree]:
        """The same function of ALL inputs of a batch, along their first axis."""

    @abstractmethod
    def regulariser(self, params: PyTree) -> Float[Array, ""]:
        """R(θ), added to every objective."""

    @abstractmethod
    def fit(self, state: FunctionState, objective: tuple[Term, ...], key: PRNGKeyArray) -> FunctionState:
        """Move θ towards the minimiser of Σ terms + R(θ), starting from `state`."""


def objective_value(function: AbstractFunction, params: PyTree, objective: tuple[Term, ...]) -> Any:
    """Σ terms + R(θ) on all samples."""
    bound = function.bind_all(params)
    return sum((term.mean(bound) for term in objective), function.regulariser(params))
