"""What λ stands for in a drifting regression: weights of the lags, and the objective as a function of them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Weighting = Callable[[Array, Int[Array, ""]], Float[Array, ""]]


def per_lag(outer: Float[Array, " lags"], lag: Int[Array, ""]) -> Float[Array, ""]:
    """λ_lag: one weight for each lag."""
    return outer[lag]


def decay(outer: Float[Array, ""], lag: Int[Array, ""]) -> Float[Array, ""]:
    """exp(−λ·lag): a scalar rate λ ≥ 0 at which the past is forgotten."""
    return jnp.exp(-outer * lag.astype(outer.dtype))


def log_weights(outer: Float[Array, " lags"], lag: Int[Array, ""]) -> Float[Array, ""]:
    """exp(λ_lag): λ holds the logarithms of the weights, so that their shares are a softmax and λ is unconstrained."""
    return jnp.exp(outer[lag])


def shares(weighting: Weighting, outer: Array, lags: int) -> Float[Array, " lags"]:
    """π = λ / Σλ: the weights of the lags as shares of their sum."""
    weights = jax.vmap(weighting, in_axes=(None, 0))(jnp.asarray(outer), jnp.arange(lags))
    return weights / jnp.sum(weights)


def excess(weighting: Weighting, discrepancy: Float[Array, "lags lags"], outer: Array) -> Float[Array, ""]:
    """E‖f_t(x) − h*_λ(x)‖² = πᵀ K_t π, the exact objective without the noise; linear in K_t."""
    share = shares(weighting, outer, len(discrepancy))
    return share @ discrepancy @ share
