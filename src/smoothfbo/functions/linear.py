"""Functions that are linear in given features, fitted in closed form (the paper's parametric reduction)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import inner_product, solve_positive, squared_norm
from smoothfbo.batching import batched
from smoothfbo.functions.base import AbstractFunction, FunctionState, Term, objective_value
from smoothfbo.functions.features import Featured, LossOfInput
from smoothfbo.samples import Samples
from smoothfbo.types import Number

SHARES = (0.5, 0.25, 0.0625)  # of a Newton step, where the whole step leads up


class Linear(AbstractFunction):
    """f(x) = W φ(x), fitted exactly: (mean H ⊗ φφᵀ + diag ρ) w = −mean c ⊗ φ for a quadratic objective ½vᵀHv + cᵀv.

    With several `steps` it is Newton's method, for losses that are convex but not quadratic in v (logistic
    regression): from the last parameters, or from 0 where these are worse, by the whole step or the share of it that
    lowers the objective most. One step, the default, is the exact solution of a quadratic. For any other loss one step
    is not enough: `inner_residual` in the trace shows it, and `converged` is False. The prediction may be any pytree;
    its Hessian H in v is formed per sample, so it should be small.

    **Arguments:**

    - `features`: φ, from one input to a vector. For the last hidden layer of the fitted inner network as
      features of the adjoint, pass `adjoint=lambda module: Linear(last_hidden(module))` to `Functional`.
    - `prediction`: an example of what f(x) is (a scalar by default). As an adjoint it may be left out: the
      adjoint takes the form of the inner prediction.
    - `ridge`: ρ ≥ 0, i.e. the penalty ½ Σ_j ρ_j ‖W_j‖²: a number for all features, a vector with one for each feature
      (the bias comes last), or a function of the outer variable that returns either. With 0, features that depend on
      each other (or fewer samples than features) leave the system singular: the round is skipped as not finite, or,
      where rounding hides it, the fit is one of many. Give a small ρ there.
    - `bias`: whether to append a constant 1 to the features.
    - `steps`: Newton steps per round.
    - `damping`: δ ≥ 0 holds a fit near the parameters w₀ where it starts, those of the last round: the objective has
      the further term ½ δ m ‖w − w₀‖², with m the mean curvature, trace(mean H ⊗ φφᵀ + diag ρ)/dim w, at the first
      step. With 0 the start does not matter; with 1 what a round says about an average direction counts half.
    """

    features: Callable[[PyTree], Float[Array, " p"]]
    prediction: PyTree | None
    ridge: Number | Float[Array, " p"] | Callable[[PyTree], Any]
    damping: Number
    bias: bool = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    def __init__(
        self,
        features: Callable[[PyTree], Array],
        *,
        prediction: PyTree | None = None,
        ridge: Any = 0.0,
        bias: bool = False,
        steps: int = 1,
        damping: Number = 0.0,
    ):
        checks.require_range(damping, "damping", 0.0)
        ridge = ridge if callable(ridge) else _ridge(ridge, "ridge")
        checks.require_integer(steps, "steps", 1)
        if not callable(features):
            raise TypeError(f"features must be a function from one input to a vector, got {features!r}.")
        self.features, self.ridge, self.bias, self.steps, self.damping = features, ridge, bias, steps, damping
        self.prediction = prediction if prediction is None else checks.as_arrays(prediction)

    def init(self, x: PyTree, prediction: PyTree | None, key: PRNGKeyArray) -> FunctionState:
        del key  # the fit is exact: where it starts does not matter
        if prediction is None:
            prediction = jnp.zeros(()) if self.prediction is None else self.prediction
        checks.require_floating(prediction, "prediction")
        phi = checks.abstract_call(self._phi, "features", x=x)
        if not isinstance(phi, jax.ShapeDtypeStruct) or len(phi.shape) != 1:
            raise ValueError(f"features must map one input to a vector, got {checks.describe(phi)}.")
        if not callable(self.ridge) and jnp.shape(self.ridge) not in ((), phi.shape):
            raise ValueError(
                f"ridge must be a number or a vector of {phi.shape[0]} numbers, one for each feature"
                f"{' and the last for the bias' if self.bias else ''}, got one of shape {jnp.shape(self.ridge)}."
            )
        return FunctionState(
            jax.tree.map(lambda v: jnp.zeros((*v.shape, *phi.shape), v.dtype), prediction), optimiser=()
        )

    def bind(self, params: PyTree) -> Callable[[PyTree], PyTree]:
        def function(x: PyTree) -> PyTree:
            phi = self._phi(x)
            return jax.tree.map(lambda weight: weight @ phi.astype(weight.dtype), params)

        return function

    def regulariser(self, params: PyTree) -> Float[Array, ""]:
        if not jnp.shape(self._filled_ridge()):
            square = squared_norm(params)
            return 0.5 * jnp.asarray(self._filled_ridge(), square.dtype) * square
        return 0.5 * inner_product(params, jax.tree.map(jnp.multiply, self._ridges(params), params))

    def damped(self, damping: Number) -> "Linear":
        """The same function with another damping."""
        checks.require_range(damping, "damping", 0.0)
        return eqx.tree_at(lambda linear: linear.damping, self, damping)

    @property
    def depends_on_outer(self) -> bool:
        return callable(self.ridge)

    def at(self, outer: PyTree) -> "Linear":
        if not callable(self.ridge):
            return self
        return eqx.tree_at(lambda linear: linear.ridge, self, _ridge(self.ridge(outer), "ridge(outer)"))

    def fit(self, state: FunctionState, objective: tuple[Term, ...], key: PRNGKeyArray) -> FunctionState:
        del key
        objective = self.prepared(objective)
        if self.steps == 1 or all(term.is_linear or term.is_quadratic for term in objective):
            return state._replace(params=self._newton(state.params, state.params, objective, None)[0])
        # Far from the solution of a loss that is not quadratic, a whole Newton step may lead farther away.
        params = self._best([state.params, optax.tree.zeros_like(state.params)], state.params, objective, 0.0)
        damping = None
        for _ in range(self.steps):
            end, damping = self._newton(params, state.params, objective, damping)
            shares = [jax.tree.map(lambda now, then, s=s: now + s * (then - now), params, end) for s in SHARES]
            best = self._best([end, *shares, params], state.params, objective, damping)
            # The derivative is that of the whole step, which is exact at the solution. There rounding decides which is
            # best, and the parameters where a fit starts are constants.
            params = jax.tree.map(_with_derivative_of, best, end)
        return state._replace(params=params)

    def _best(
        self, choices: list[PyTree], start: PyTree, objective: tuple[Term, ...], damping: Array | float
    ) -> PyTree:
        """The first of those with the smallest objective."""

        def value(params: PyTree) -> Float[Array, ""]:
            held = squared_norm(optax.tree.sub(params, start))
            return objective_value(self, params, objective) + 0.5 * jnp.asarray(damping, held.dtype) * held

        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *choices)
        values = jax.vmap(value)(stacked)
        values = jnp.where(jnp.isnan(values), jnp.inf, values)
        least = jnp.min(values)
        best = jnp.argmax(values <= least + 10 * jnp.finfo(values.dtype).eps * jnp.abs(least))
        return jax.tree.map(lambda leaf: leaf[best], stacked)

    def _newton(
        self, params: PyTree, start: PyTree, objective: tuple[Term, ...], damping: Array | None
    ) -> tuple[PyTree, Array]:
        """One step, and the weight of ½‖w − w₀‖²: δ times the mean curvature at the first step."""
        flat, unravel = ravel_pytree(params)
        size = flat.size
        ridge = ravel_pytree(self._ridges(params))[0]
        gradient = ridge * flat
        curvature = jnp.diag(ridge)
        for term in objective:
            phi = jax.vmap(self._phi)(term.samples.x).astype(flat.dtype)
            slopes, hessians = self._derivatives(params, term)
            count = term.samples.total(flat.dtype)
            gradient += jnp.einsum("ni,np->ip", slopes, phi).ravel() / count
            if not term.is_linear:
                # rows (i, p) and columns (j, q) in the order in which W is flattened
                block = jnp.einsum("nij,np,nq->ipjq", hessians, phi, phi) / count
                curvature += block.reshape(size, size)
        if damping is None:
            damping = jnp.asarray(self.damping, flat.dtype) * jnp.trace(curvature) / size
        gradient += damping * (flat - ravel_pytree(start)[0])
        return unravel(flat - solve_positive(curvature + damping * jnp.eye(size, dtype=flat.dtype), gradient)), damping

    def _derivatives(self, params: PyTree, term: Term) -> tuple[Array, Array]:
        """Slope and Hessian of the term's loss in the flattened prediction, at every sample, times its weight."""
        predictions = batched(self.bind(params))(term.samples.x)

        def one(prediction: PyTree, x: PyTree, y: PyTree) -> tuple[Array, Array]:
            v, unravel = ravel_pytree(prediction)

            def loss(v: Array) -> Array:
                return term.loss(unravel(v), x, y)

            def slope(v: Array) -> tuple[Array, Array]:
                gradient = jax.grad(loss)(v)
                return gradient, gradient

            if term.is_linear:
                return slope(v)[0], jnp.zeros((v.size, v.size), v.dtype)
            hessian, gradient = jax.jacfwd(slope, has_aux=True)(v)
            return gradient, hessian

        return term.samples.weighted(jax.vmap(one)(predictions, term.samples.x, term.samples.y))

    def _ridges(self, params: PyTree) -> PyTree:
        """ρ for every weight."""
        ridge = self._filled_ridge()
        return jax.tree.map(lambda weight: jnp.broadcast_to(jnp.asarray(ridge, weight.dtype), weight.shape), params)

    def _filled_ridge(self) -> Any:
        if callable(self.ridge):
            raise TypeError("ridge is a function of the outer variable: fit and penalise with linear.at(outer).")
        return self.ridge

    def featured(self, samples: Samples) -> Samples:
        """The same samples with their features, for fits that see them again and again."""
        return samples._replace(x=Featured(samples.x, batched(self.features)(samples.x)))

    def prepared(self, objective: tuple[Term, ...]) -> tuple[Term, ...]:
        """The same objective, with the features of all samples computed."""
        return tuple(
            term
            if isinstance(term.samples.x, Featured)
            else term._replace(loss=LossOfInput(term.loss), samples=self.featured(term.samples))
            for term in objective
        )

    def _phi(self, x: PyTree) -> Float[Array, " p"]:
        phi = x.features if isinstance(x, Featured) else self.features(x)
        return jnp.append(phi, jnp.ones((), phi.dtype)) if self.bias else phi


def _with_derivative_of(value: Array, other: Array) -> Array:
    constant = jax.lax.stop_gradient(other)
    return jax.lax.stop_gradient(value) + jnp.where(jnp.isfinite(constant), other - constant, 0)


def _ridge(value: Any, name: str) -> Any:
    """A number, or a vector as a JAX array; not negative where that can be seen."""
    if isinstance(value, (list, tuple, np.ndarray)):
        value = jnp.asarray(value)
    if jnp.ndim(value) > 1:
        raise ValueError(f"{name} must be a number or a vector with one number a feature, got {jnp.shape(value)}.")
    checks.require_range(value, name, 0.0)
    return value


def last_hidden(module: eqx.nn.MLP) -> Callable[[Array], Float[Array, " p"]]:
    """The last hidden layer of an Equinox MLP as features: the network without its final linear map."""
    if not isinstance(module, eqx.nn.MLP):
        raise TypeError(f"last_hidden needs an equinox.nn.MLP, got {type(module).__name__}.")
    return eqx.tree_at(
        lambda mlp: (mlp.layers[-1], mlp.final_activation), module, (eqx.nn.Identity(), eqx.nn.Identity())
    )
