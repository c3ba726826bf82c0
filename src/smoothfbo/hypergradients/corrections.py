"""Ways to correct an inner function that lags behind its solution, before the hypergradient is formed at it."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import PRNGKeyArray, PyTree

from smoothfbo.batching import batched
from smoothfbo.functions.base import Term, init_alike, resolved
from smoothfbo.hypergradients.pairs import require_same_inputs, solve_small
from smoothfbo.problem import LossAt, Problem
from smoothfbo.samples import Data, Samples

Function = Callable[[PyTree], PyTree]


class Predictions(NamedTuple):
    """Values of the inner function at the inner and at the outer samples of some data."""

    inner: PyTree
    outer: PyTree


class Corrected(NamedTuple):
    """What a correction makes of ĥ: the function to predict with, and its values wherever there are data."""

    module: Function  # ĥ itself, whose last hidden layer may serve as features
    function: Function
    at: Callable[[Data], Predictions]
    is_function: bool  # whether `at` has the values of `function`

    def known_at(self, data: Data) -> "Corrected":
        """The same function, with its values at `data` computed now and not again."""
        known = self.at(data)

        def at(other: Data) -> Predictions:
            return known if other.inner is data.inner and other.outer is data.outer else self.at(other)

        return self._replace(at=at)

    def values(self, data: Data) -> Predictions:
        """Values of the function to predict with."""
        return self.at(data) if self.is_function else _values(self.function, data)


class AbstractCorrection(eqx.Module):
    """One Newton step in function space from v = ĥ(x) towards the inner solution at the current λ:

        v⁺ = v − [E ∂²_v ℓ_in(λ, v, x, y) | x]⁻¹ E[∂_v ℓ_in(λ, v, x, y) | x].

    A few optimiser steps a round leave ĥ behind h*_λ while λ moves; the hypergradient formed at v⁺ is that of the
    solution. For a loss that is quadratic in v one step is exact.
    """

    paired: ClassVar[bool]  # whether inner and outer samples must be the same, row by row

    @abstractmethod
    def init(self, inner: Function, x: PyTree, prediction: PyTree, data: Data, key: PRNGKeyArray) -> PyTree:
        """The warm state of the first round."""

    @abstractmethod
    def __call__(
        self, problem: Problem, outer: PyTree, inner: Function, state: PyTree, data: Data, key: PRNGKeyArray
    ) -> tuple[Corrected, PyTree]:
        """The corrected function, fitted on `data` where it has to be, and the warm state for the next round."""

    def predictor(self, inner: Function, state: PyTree) -> Function:
        """What to predict with, given ĥ and a warm state."""
        del state
        return inner


class NoCorrection(AbstractCorrection):
    """v⁺ = v: the hypergradient is formed at ĥ as it is (Algorithm FuncGrad)."""

    paired: ClassVar[bool] = False

    def init(self, inner: Function, x: PyTree, prediction: PyTree, data: Data, key: PRNGKeyArray) -> PyTree:
        del inner, x, prediction, data, key
        return ()

    def __call__(
        self, problem: Problem, outer: PyTree, inner: Function, state: PyTree, data: Data, key: PRNGKeyArray
    ) -> tuple[Corrected, PyTree]:
        del problem, outer, data, key
        return of_function(inner, inner), state


class PointwiseCorrection(AbstractCorrection):
    """v⁺_i = v_i − [∂²_v ℓ_in]⁻¹ ∂_v ℓ_in at every sample i, for inner targets without noise.

    Exact where the loss is quadratic in v and its target a function of x and λ, as in the paper's reinforcement
    learning: v⁺ is then h*_λ(x). With noisy targets v⁺ would be the noise; use a `FittedCorrection` there. Inner and
    outer samples must be the same, row by row. Predictions are still those of ĥ.
    """

    paired: ClassVar[bool] = True

    def init(self, inner: Function, x: PyTree, prediction: PyTree, data: Data, key: PRNGKeyArray) -> PyTree:
        del inner, x, prediction, key
        require_same_inputs(data, "PointwiseCorrection", "a FittedCorrection(Network(...) or Linear(...))")
        return ()

    def __call__(
        self, problem: Problem, outer: PyTree, inner: Function, state: PyTree, data: Data, key: PRNGKeyArray
    ) -> tuple[Corrected, PyTree]:
        del data, key

        def moved(prediction: PyTree, x: PyTree, y: PyTree) -> PyTree:
            v, unravel = ravel_pytree(prediction)

            def loss(v: jax.Array) -> jax.Array:
                return problem.inner_loss(outer, unravel(v), x, y)

            return unravel(v - solve_small(jax.hessian(loss)(v), jax.grad(loss)(v)))

        def at(data: Data) -> Predictions:
            values = jax.vmap(moved)(batched(inner)(data.inner.x), data.inner.x, data.inner.y)
            # The values are constants: only ∂_λ at fixed v belongs to the hypergradient.
            return Predictions(*jax.lax.stop_gradient((values, values)))

        return Corrected(inner, inner, at, is_function=False), state


class FittedCorrection(AbstractCorrection):
    """v⁺ = ĥ(x) + c(x), where c minimises the quadratic model of the inner objective around ĥ,

        ½ mean_in c(x)ᵀ [∂²_v ℓ_in(λ, ĥ(x), x, y)] c(x) + mean_in c(x)ᵀ ∂_v ℓ_in(λ, ĥ(x), x, y) + R(c).

    The fit takes the conditional mean, so inner targets may be noisy. `function` is a `Network` or a `Linear`, or a
    function of the fitted inner module that returns one: `lambda module: Linear(last_hidden(module), bias=True)`
    solves for the last layer of the inner network exactly. Predictions are those of ĥ + c.

    R is the penalty of `function`, and acts on c alone. A penalty of the inner function acts on ĥ alone, so the
    correction undoes a part of it: leave it out, or take no correction.
    """

    function: Any
    paired: ClassVar[bool] = False

    def init(self, inner: Function, x: PyTree, prediction: PyTree, data: Data, key: PRNGKeyArray) -> PyTree:
        del data
        return init_alike(resolved(self.function, inner, "correction"), "correction", x, prediction, key)

    def __call__(
        self, problem: Problem, outer: PyTree, inner: Function, state: PyTree, data: Data, key: PRNGKeyArray
    ) -> tuple[Corrected, PyTree]:
        function = resolved(self.function, inner, "correction").at(outer)
        (model,) = function.prepared((newton_model(problem, outer, inner, data.inner),))
        state = function.fit(state, (model,), key)
        bound = function.bind(state.params)
        corrected = of_function(inner, _Sum(inner, bound))

        def at(other: Data) -> Predictions:
            if other.inner is not data.inner:
                return corrected.at(other)
            known = optax.tree.add(model.samples.y[1], batched(bound)(model.samples.x))
            return Predictions(known, batched(corrected.function)(other.outer.x))

        return corrected._replace(at=at), state

    def predictor(self, inner: Function, state: PyTree) -> Function:
        return _Sum(inner, resolved(self.function, inner, "correction").bind(state.params))


def newton_model(problem: Problem, outer: PyTree, inner: Function, samples: Samples) -> Term:
    """The second-order model of the inner objective around ĥ, as an objective over corrections c."""
    predictions = batched(inner)(samples.x)
    loss = LossAt(problem.inner_loss, outer)

    def model(c: PyTree, x: PyTree, known: tuple[PyTree, PyTree]) -> jax.Array:
        y, prediction = known

        def along(length: jax.Array) -> jax.Array:
            return loss(jax.tree.map(lambda v, c: v + length.astype(v.dtype) * c, prediction, c), x, y)

        slope = jax.grad(along)
        zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(prediction)))
        first, second = jax.jvp(slope, (zero,), (jnp.ones_like(zero),))
        return first + 0.5 * second

    return Term(model, samples._replace(y=(samples.y, predictions)))


def of_function(module: Function, function: Function) -> Corrected:
    """A function whose values are those that it has."""

    return Corrected(module, function, lambda data: _values(function, data), is_function=True)


def _values(function: Function, data: Data) -> Predictions:
    return Predictions(batched(function)(data.inner.x), batched(function)(data.outer.x))


class _Sum(eqx.Module):
    """x ↦ ĥ(x) + c(x)."""

    inner: Function
    correction: Function

    def __call__(self, x: PyTree) -> PyTree:
        return optax.tree.add(self.inner(x), self.correction(x))

    def batch(self, xs: PyTree) -> PyTree:
        return optax.tree.add(batched(self.inner)(xs), batched(self.correction)(xs))
