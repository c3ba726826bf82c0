"""What the library asks of optax: any transformation, with the value and the gradient that some of them want."""

from typing import Any

import jax
import optax
from jaxtyping import PyTree


def as_optimiser(optimiser: Any, example: str) -> optax.GradientTransformation:
    """An optax transformation; `optax.MultiSteps` has one inside."""
    if isinstance(optimiser, optax.MultiSteps):
        optimiser = optimiser.gradient_transformation()
    if not isinstance(optimiser, optax.GradientTransformation):
        raise TypeError(f"optimiser must be an optax {example}, got {optimiser!r}.")
    return optimiser


def update(
    optimiser: optax.GradientTransformation, gradient: PyTree, state: PyTree, params: PyTree, **known: Any
) -> tuple[PyTree, PyTree]:
    """One update. `known` is for those that take more than the gradient: `value`, `grad`, `value_fn`."""
    with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
        try:
            return optax.with_extra_args_support(optimiser).update(gradient, state, params, **known)
        except TypeError as error:
            if "required keyword-only argument" not in str(error):
                raise
            what = str(error).split(":")[-1].strip()
            raise TypeError(
                f"optimiser asks for {what}, which is not known here (every value of an outer objective is another "
                "inner fit, so there is no line search): use one of gradients and values, such as optax.adam."
            ) from error
