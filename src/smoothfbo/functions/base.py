"""The one interface of inner and adjoint functions: parameters that can be fitted to a point-wise objective."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import norm, ratio
from smoothfbo.batching import batched
from smoothfbo.samples import Samples


class Term(NamedTuple):
    """mean over `samples` of loss(f(x), x, y): one expectation of an objective over functions f.

    The loss may have a method `batch` (see `smoothfbo.batched`).
    """

    loss: Callable[[PyTree, PyTree, PyTree], Float[Array, ""]]
    samples: Samples
    is_linear: bool = False  # linear in f(x): its Hessian need not be computed
    is_quadratic: bool = False  # quadratic in f(x): its Hessian is the same everywhere

    def mean(self, function: Callable[[PyTree], PyTree]) -> Float[Array, ""]:
        """The mean for a function of one input."""
        return self.mean_at(batched(function)(self.samples.x))

    def mean_at(self, predictions: PyTree) -> Float[Array, ""]:
        """The mean for given values of f at all samples."""
        return self.samples.mean(batched(self.loss)(predictions, self.samples.x, self.samples.y))


class FunctionState(NamedTuple):
    """What a function carries from round to round: its parameters and its optimiser's memory."""

    params: PyTree
    optimiser: PyTree


class AbstractFunction(eqx.Module):
    """A family of functions x ↦ v with parameters θ, and a way to fit θ."""

    @abstractmethod
    def init(self, x: PyTree, prediction: PyTree | None, key: PRNGKeyArray) -> FunctionState:
        """Initial parameters. `x` is one input; `prediction` is what f(x) must look like, None if free."""

    @abstractmethod
    def bind(self, params: PyTree) -> Callable[[PyTree], PyTree]:
        """The function x ↦ v of ONE input that these parameters stand for; `smoothfbo.batched` maps many."""

    @abstractmethod
    def regulariser(self, params: PyTree) -> Float[Array, ""]:
        """R(θ), added to every objective."""

    @abstractmethod
    def fit(self, state: FunctionState, objective: tuple[Term, ...], key: PRNGKeyArray) -> FunctionState:
        """Move θ towards the minimiser of Σ terms + R(θ), starting from `state`."""

    def prepared(self, objective: tuple[Term, ...]) -> tuple[Term, ...]:
        """The same objective with what does not depend on θ computed once, for a fit and what comes after it."""
        return objective

    @property
    def depends_on_outer(self) -> bool:
        """Whether R depends on the outer variable, R(θ, λ); `at` then fills it in."""
        return False

    def at(self, outer: PyTree) -> "AbstractFunction":
        """The same family with R(·, λ) at this λ: what estimators fit in a round. Itself, where R has no λ."""
        del outer
        return self

    @property
    def bind_all(self) -> NoReturn:
        raise AttributeError("bind_all(params) is written smoothfbo.batched(function.bind(params)) since version 1.0.")


def resolved(function: Any, inner: Callable[[PyTree], PyTree], name: str) -> AbstractFunction:
    """A function family: given as one, or as what makes one of the fitted inner module."""
    family = function if isinstance(function, AbstractFunction) else function(inner)
    if not isinstance(family, AbstractFunction):
        raise TypeError(f"{name}(module) must return a Network or a Linear, got {family!r}.")
    return family


def init_alike(
    function: AbstractFunction, name: str, x: PyTree, prediction: PyTree, key: PRNGKeyArray
) -> FunctionState:
    """The first state of a function that must return what the inner function returns."""
    state = function.init(x, prediction, key)
    value = checks.abstract_call(function.bind(state.params), f"the {name} function", x=x)
    if not checks.same_shapes(value, prediction):
        raise ValueError(
            f"The {name} function must return what the inner function returns, "
            f"{checks.describe(prediction)}, got {checks.describe(value)}."
        )
    return state


def objective_value(function: AbstractFunction, params: PyTree, objective: tuple[Term, ...]) -> Any:
    """Σ terms + R(θ) on all samples."""
    bound = function.bind(params)
    return sum((term.mean(bound) for term in objective), function.regulariser(params))


def relative_residual(function: AbstractFunction, params: PyTree, objective: tuple[Term, ...]) -> Float[Array, ""]:
    """How far θ is from a stationary point of L(θ) = Σ mean ℓ(f_θ(x), x, y) + R(θ), free of all scales:

        ‖∇_θ L(θ)‖ / ‖J_θᵀ ∂_v ℓ(0)‖,     J_θᵀ ∂_v ℓ(0) = ∂_θ Σ mean f_θ(x)ᵀ ∂_v ℓ(0, x, y).

    0 is solved, 1 is no better than the prediction 0. The denominator is the gradient that θ would see if the function
    were 0 everywhere, so it does not shrink as the fit improves. It is the right side of the linear system for a
    quadratic objective of a linear function without a penalty. NaN where the loss has no finite slope at v = 0.
    """

    def values(params: PyTree) -> list[PyTree]:
        bound = batched(function.bind(params))
        return [bound(term.samples.x) for term in objective]

    predictions, pull_back = jax.vjp(values, params)
    slopes, at_zero = (
        [jax.grad(term.mean_at)(value) for term, value in zip(objective, at, strict=True)]
        for at in (predictions, optax.tree.zeros_like(predictions))
    )
    remainder = norm(optax.tree.add(pull_back(slopes)[0], jax.grad(function.regulariser)(params)))
    scale = norm(pull_back(at_zero)[0])
    return jnp.where(jnp.isfinite(scale), ratio(remainder, scale), jnp.nan)
