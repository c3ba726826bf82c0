"""A functional bilevel problem: two point-wise losses, and the derivatives that estimators need of them."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from smoothfbo import checks
from smoothfbo.batching import batched
from smoothfbo.compiled import Static, run_once, split
from smoothfbo.samples import Data, Samples

Loss: TypeAlias = Callable[[PyTree, PyTree, PyTree, PyTree], Float[Array, ""]]


class Problem(eqx.Module):
    """min over λ of E ℓ_out(λ, h*(x), x, y), where h* minimises E ℓ_in(λ, h(x), x, y) over functions h.

    Both losses take `(outer, prediction, x, y)` of ONE sample and return a scalar. A loss may itself be a
    pytree, e.g. an Equinox module: what changes in it from round to round (a lagged target network, say) is
    then a leaf of the problem of that round. Where there is a faster way than `jax.vmap` it may have a method
    `batch(outer, predictions, x, y)`, which gives the losses of all samples at once (see `smoothfbo.batched`).
    """

    inner_loss: Loss
    outer_loss: Loss

    def inner_mean(self, outer: PyTree, predictions: PyTree, samples: Samples) -> Float[Array, ""]:
        return _mean(self.inner_loss, outer, predictions, samples)

    def outer_mean(self, outer: PyTree, predictions: PyTree, samples: Samples) -> Float[Array, ""]:
        return _mean(self.outer_loss, outer, predictions, samples)

    def inner_curvature(self, outer: PyTree, prediction: PyTree, x: PyTree, y: PyTree, direction: PyTree) -> PyTree:
        """∂²_v ℓ_in(λ, v, x, y) · direction at one sample, without forming the Hessian."""
        slope = jax.grad(self.inner_loss, argnums=1)
        return jax.jvp(lambda v: slope(outer, v, x, y), (prediction,), (direction,))[1]

    def outer_slopes(self, outer: PyTree, predictions: PyTree, samples: Samples) -> PyTree:
        """∂_v ℓ_out(λ, v, x, y) at every sample: the right side d of the adjoint problem."""
        slope = jax.grad(self.outer_loss, argnums=1)
        return jax.vmap(slope, in_axes=(None, 0, 0, 0))(outer, predictions, samples.x, samples.y)

    def explicit(self, outer: PyTree, predictions: PyTree, samples: Samples) -> PyTree:
        """g_Exp = mean ∂_λ ℓ_out(λ, v, x, y) with the predictions v held fixed   (Algorithm FuncGrad)."""
        return jax.grad(self.outer_mean)(outer, predictions, samples)

    def implicit(self, outer: PyTree, predictions: PyTree, adjoints: PyTree, samples: Samples) -> PyTree:
        """g_Imp = mean ∂_λ [∂_v ℓ_in(λ, v, x, y)ᵀ a] with v and a held fixed   (Algorithm FuncGrad)."""

        def coupling(outer: PyTree) -> Float[Array, ""]:
            def along_adjoint(predictions: PyTree) -> Float[Array, ""]:
                return self.inner_mean(outer, predictions, samples)

            return jax.jvp(along_adjoint, (predictions,), (adjoints,))[1]

        return jax.grad(coupling)(outer)


class LossAt(eqx.Module):
    """A loss of `(prediction, x, y)`: that of the problem, with the outer variable filled in."""

    loss: Loss
    outer: PyTree

    def __call__(self, prediction: PyTree, x: PyTree, y: PyTree) -> Float[Array, ""]:
        return self.loss(self.outer, prediction, x, y)

    def batch(self, predictions: PyTree, x: PyTree, y: PyTree) -> Float[Array, " samples"]:
        return batched(self.loss, in_axes=(None, 0, 0, 0))(self.outer, predictions, x, y)


def _mean(loss: Loss, outer: PyTree, predictions: PyTree, samples: Samples) -> Float[Array, ""]:
    return samples.mean(LossAt(loss, outer).batch(predictions, samples.x, samples.y))


def check_problem(problem: Problem, outer: PyTree, prediction: PyTree, data: Data) -> None:
    """Raise if the losses do not fit λ, the predictions and the data."""
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a smoothfbo.Problem, got {problem!r}.")
    checks.require_floating(prediction, "the inner function's prediction")
    for name, loss, samples in (
        ("inner_loss", problem.inner_loss, data.inner),
        ("outer_loss", problem.outer_loss, data.outer),
    ):
        checks.require_arguments(loss, name, "outer", "prediction", "x", "y")
        x, y = checks.one_of((samples.x, samples.y))
        value = checks.abstract_call(loss, name, outer=outer, prediction=prediction, x=x, y=y)
        if not isinstance(value, jax.ShapeDtypeStruct) or value.shape or not checks.is_floating(value):
            raise ValueError(
                f"{name} must return a floating-point scalar for one sample, got {checks.describe(value)} from a "
                f"prediction {checks.describe(prediction)} and y={checks.describe(y)}{_advice(prediction, y)}."
            )
        if hasattr(loss, "of_all"):
            raise TypeError(f"{name}.of_all is called {name}.batch since version 1.0.")
        _check_batch(name, loss, outer, prediction, samples)


def _advice(prediction: PyTree, y: PyTree) -> str:
    """What to write where the two differ by an axis of length 1."""
    predicted, given = ({jnp.shape(leaf) for leaf in jax.tree.leaves(tree)} for tree in (prediction, y))
    if predicted == {()} and (1,) in given:
        return ": drop the last axis of y, e.g. y[:, 0]"
    if predicted == {(1,)} and () in given:
        return ': let the function predict a scalar, e.g. an MLP with out_size="scalar"'
    return ""


def _check_batch(name: str, loss: Loss, outer: PyTree, prediction: PyTree, samples: Samples) -> None:
    """Raise if the loss has a method `batch` that does not give one number for each sample."""
    if not callable(getattr(loss, "batch", None)):
        return

    def repeated(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((samples.size, *leaf.shape), leaf.dtype)

    predictions = jax.tree.map(repeated, prediction)
    at_all = batched(loss, in_axes=(None, 0, 0, 0))
    values = checks.abstract_call(
        at_all, f"{name}.batch", outer=outer, predictions=predictions, x=samples.x, y=samples.y
    )
    if not isinstance(values, jax.ShapeDtypeStruct) or values.shape != (samples.size,):
        raise ValueError(
            f"{name}.batch must return one loss for each of the {samples.size} samples, got {checks.describe(values)}."
        )


def check_curvature(problem: Problem, outer: PyTree, prediction: PyTree, samples: Samples) -> None:
    """Raise if ∂²_v ℓ_in vanishes on all samples, where this can be seen now."""
    if not checks.is_concrete((outer, samples)):
        return

    # Random points over six decades and random directions: a loss such as v⁴ or Huber's is flat here and there, and
    # the softmax is flat along (1, …, 1); only a loss that is flat everywhere is refused. NumPy draws them: nothing is
    # compiled for it.
    repeats, generator = 1 + 2000 // samples.size, np.random.default_rng(0)

    def spread(scale: float) -> PyTree:
        shape = (repeats, samples.size)
        return jax.tree.map(
            lambda v: jnp.asarray(scale * generator.normal(size=(*shape, *v.shape)), v.dtype), prediction
        )

    for scale in (1.0, 0.01, 10.0, 100.0, 1000.0, 0.1):
        products = _curvatures(*split(problem), outer, spread(scale), samples, spread(1.0))
        if not checks.is_concrete(products) or any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(products)):
            break
    else:
        raise ValueError(
            "inner_loss has no curvature in the prediction: its second derivative is zero on all "
            f"{samples.size} samples of data.inner at the initial outer variable, so the inner problem has no "
            "unique solution. Use a loss that is strictly convex in the prediction, and an outer variable that "
            "does not switch it off (weights that are all zero do)."
        )


@partial(run_once, static_argnums=0)
def _curvatures(
    static: Static, arrays: list[Any], outer: PyTree, points: PyTree, samples: Samples, directions: PyTree
) -> PyTree:
    """The curvature at several points for every sample."""
    problem = static.join(arrays)
    of_samples = jax.vmap(problem.inner_curvature, in_axes=(None, 0, 0, 0, 0))
    return jax.vmap(of_samples, in_axes=(None, 0, None, None, 0))(outer, points, samples.x, samples.y, directions)
