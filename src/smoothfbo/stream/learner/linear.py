"""A linear predictor of many outputs that share their curvature: one small system in place of one large one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo.algebra import solve_positive, squared_norm
from smoothfbo.functions.base import AbstractFunction, FunctionState, Term
from smoothfbo.types import Number


class LinearOfOutputs(AbstractFunction):
    """f(x) = Wx for objectives whose Hessian in f(x) is s·I: (mean s xxᵀ + ρI) w_o = −mean c_o x for every output o.

    The fit is that of `Linear`, which does not know that the Hessian is a multiple of I and solves for all outputs at
    once: with p features and o outputs in time (p·o)³, here p³.
    """

    outputs: int
    ridge: Number

    def init(self, x: PyTree, prediction: PyTree | None, key: PRNGKeyArray) -> FunctionState:
        del key, prediction
        return FunctionState(jnp.zeros((self.outputs, x.shape[0]), x.dtype), optimiser=())

    def bind(self, params: PyTree) -> Callable[[PyTree], PyTree]:
        return lambda x: params @ x

    def regulariser(self, params: PyTree) -> Float[Array, ""]:
        return 0.5 * self.ridge * squared_norm(params)

    def fit(self, state: FunctionState, objective: tuple[Term, ...], key: PRNGKeyArray) -> FunctionState:
        del key
        params = state.params
        right = self.ridge * params
        curvature = self.ridge * jnp.eye(params.shape[1], dtype=params.dtype)
        for term in objective:
            x, count = term.samples.x, term.samples.total(params.dtype)
            predictions = x @ params.T
            slopes = term.samples.weighted(jax.vmap(jax.grad(term.loss))(predictions, x, term.samples.y))
            right += slopes.T @ x / count
            if not term.is_linear:
                curvature += (x * _curvatures(term, predictions)[:, None]).T @ x / count
        change = jax.vmap(lambda one: solve_positive(curvature, one))(right)
        return FunctionState(params - change, state.optimiser)


def _curvatures(term: Term, predictions: Float[Array, "samples outputs"]) -> Float[Array, " samples"]:
    """Weight times s of every sample: the first entry of the Hessian, by its product with the first unit vector."""
    direction = jnp.zeros(predictions.shape[1], predictions.dtype).at[0].set(1)

    def one(v: Array, x: PyTree, y: PyTree) -> Array:
        return jax.jvp(jax.grad(lambda v: term.loss(v, x, y)), (v,), (direction,))[1][0]

    return term.samples.weighted(jax.vmap(one)(predictions, term.samples.x, term.samples.y))
