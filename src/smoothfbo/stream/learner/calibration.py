"""From scores to probabilities: softmax(τ · scores), with τ fitted to what was predicted and then seen."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from smoothfbo.stream.learner.problem import SHARPNESS

STEP = 0.5
RETENTION = 0.999  # of the squared slopes, per block: the step does not vanish, and follows a drift
LEAST, MOST = -1.0, 5.0  # of log τ


class Calibration(NamedTuple):
    """log τ, and the sum of its squared slopes, which sets the step (AdaGrad)."""

    log_sharpness: Float[Array, ""]
    squares: Float[Array, ""]


def uncalibrated() -> Calibration:
    return Calibration(jnp.zeros(()) + math.log(SHARPNESS), jnp.zeros(()))


def calibrate(
    calibration: Calibration,
    scores: Float[Array, "rows classes"],
    truth: Float[Array, "rows classes"],
    known: Float[Array, " rows"],
    seen: Bool[Array, " classes"],
) -> Calibration:
    """One step down the cross-entropy of a block that was predicted before it was seen.

    `seen` are the classes that were learnt before; rows of other classes say nothing about the sharpness.
    """
    known = known * (truth @ seen.astype(truth.dtype))

    def loss(log_sharpness: Array) -> Array:
        logits = jnp.where(seen, jnp.exp(log_sharpness) * scores, -1e30)
        losses = -jnp.sum(jnp.where(truth > 0, jax.nn.log_softmax(logits, axis=1), 0), axis=1)
        return jnp.sum(jnp.where(known > 0, losses, 0)) / jnp.maximum(jnp.sum(known), 1)

    slope = jax.grad(loss)(calibration.log_sharpness)
    slope = jnp.where(jnp.isfinite(slope), slope, 0)
    squares = RETENTION * calibration.squares + slope**2
    step = STEP * slope / jnp.sqrt(jnp.where(squares > 0, squares, 1))
    return Calibration(jnp.clip(calibration.log_sharpness - step, LEAST, MOST), squares)
