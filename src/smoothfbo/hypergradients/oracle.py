"""A hypergradient that the user supplies (the stochastic oracle of Algorithm 1)."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.hypergradients.base import AbstractEstimator, Estimate


class Oracle(AbstractEstimator):
    """ĝ_t = gradient(λ_t, data_t, key), an unbiased draw of ∇F_t(λ_t)   (Definition 4.1, Algorithm 1).

    **Arguments:**

    - `gradient`: a function `(outer, data, key)` whose result has the structure of `outer`.
    - `objective`: optionally F_t(λ), a function `(outer, data)`; it is reported as the outer loss.

    The data may be any pytree; `Online` needs no problem: `Online(estimator=Oracle(...), optimiser=...)`.
    """

    gradient: Callable[[PyTree, Any, PRNGKeyArray], PyTree]
    objective: Callable[[PyTree, Any], Float[Array, ""]] | None = None

    def init(self, problem: Any, outer: PyTree, data: Any, key: PRNGKeyArray) -> tuple[()]:
        del problem
        checks.require_arguments(self.gradient, "gradient", "outer", "data", "key")
        value = checks.abstract_call(
            lambda outer, data: self.gradient(outer, data, key), "gradient", outer=outer, data=data
        )
        if not checks.same_shapes(value, outer):
            raise ValueError(
                "gradient must return a hypergradient with the structure, shapes and dtypes of outer, "
                f"{checks.describe(outer)}, got {checks.describe(value)}."
            )
        return ()

    def __call__(
        self, problem: Any, outer: PyTree, state: tuple[()], data: Any, key: PRNGKeyArray
    ) -> tuple[Estimate, tuple[()]]:
        del problem
        unknown = jnp.full((), jnp.nan)
        estimate = Estimate(
            gradient=self.gradient(outer, data, key),
            explicit=None,
            implicit=None,
            inner_loss=unknown,
            outer_loss=unknown if self.objective is None else self.objective(outer, data),
            inner_residual=unknown,
            adjoint_residual=unknown,
            converged=jnp.asarray(True),
        )
        return estimate, state
