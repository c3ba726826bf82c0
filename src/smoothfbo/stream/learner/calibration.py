"""From scores to probabilities, fitted online to what was predicted and then seen.

The predictor's outputs v (one per class but the first) are fitted to the classes' indicators by squares. Two experts
make probabilities of them; `scores` are (1 − Σv, v):

    sharpness   softmax(τ · scores)          one number: good from the start, and where the scores are good
    regression  softmax(W (1, v))            a multinomial logistic regression on the outputs. The outputs span the
                                             directions of linear discriminant analysis (Hastie, Tibshirani and Buja
                                             1994), so it finds classes that lie between others, which squares hide.

τ moves by AdaGrad, W by Newton steps with a curvature that all classes share (Hazan, Agarwal and Kale 2007):

    G ← ρG + (1 − ρ)εI + Σ_rows ½ (1 − Σ_k p_k²)/K · φφᵀ,      W ← W − Σ_rows (p − y) φᵀ G⁻¹,      φ = (1, v).

The experts are mixed by their likelihood, which forgets: p = Σ_i w_i p_i with w_i ∝ exp(−Σ_s 0.99^(t−s) loss_is). So
are the probabilities of several predictors, each of which has both experts.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from smoothfbo.algebra import solve_positive
from smoothfbo.stream.learner.problem import SHARPNESS

STEP = 0.5
RETENTION = 0.999  # of the squared slopes and the curvature, per block: steps do not vanish, and follow a drift
RETENTION_OF_LOSSES = 0.99
LEAST, MOST = -1.0, 5.0  # of log τ
RIDGE = 0.1  # ε
LEAST_CURVATURE = 0.02  # of 1 − Σ p²


class Calibration(NamedTuple):
    """log τ and the sum of its squared slopes, which sets the step; W and G; the discounted losses of both experts."""

    log_sharpness: Float[Array, ""]
    squares: Float[Array, ""]
    matrix: Float[Array, "classes classes"]
    curvature: Float[Array, "classes classes"]
    losses: Float[Array, " 2"]


def uncalibrated(classes: int) -> Calibration:
    """Both experts say softmax(SHARPNESS · scores)."""
    none = jnp.zeros(())
    matrix = jnp.eye(classes).at[0].set(-1).at[0, 0].set(1)
    squares = none + 0.0
    return Calibration(none + math.log(SHARPNESS), squares, SHARPNESS * matrix, RIDGE * jnp.eye(classes), jnp.zeros(2))


class Calibrations(NamedTuple):
    """A calibration for every predictor (first axis), and their discounted losses."""

    each: Calibration
    losses: Float[Array, " predictors"]


def all_uncalibrated(predictors: int, classes: int) -> Calibrations:
    each = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], predictors, axis=0), uncalibrated(classes))
    return Calibrations(each, jnp.zeros(predictors))


def mixed_probabilities(
    calibrations: Calibrations, outputs: Float[Array, "predictors rows outputs"], seen: Bool[Array, " classes"]
) -> Float[Array, "rows classes"]:
    """Those of all predictors, by their likelihood."""
    weights = jax.nn.softmax(-calibrations.losses)
    return jnp.einsum("p,prc->rc", weights, _of_each(calibrations, outputs, seen))


def calibrate_all(
    calibrations: Calibrations,
    outputs: Float[Array, "predictors rows outputs"],
    truth: Float[Array, "rows classes"],
    known: Float[Array, " rows"],
    seen: Bool[Array, " classes"],
) -> Calibrations:
    """A step of every calibration, and the losses of what they had predicted."""
    counts = known * (truth @ seen.astype(truth.dtype)) > 0
    right = jnp.sum(truth * _of_each(calibrations, outputs, seen), axis=2)
    logs = jnp.where(counts & (right > 0), jnp.log(jnp.where(right > 0, right, 1)), 0)
    losses = RETENTION_OF_LOSSES * calibrations.losses - jnp.sum(logs, axis=1)
    each = jax.vmap(lambda one, output: calibrate(one, output, truth, known, seen))(calibrations.each, outputs)
    return Calibrations(each, losses - jnp.min(losses))


def _of_each(calibrations: Calibrations, outputs: Array, seen: Array) -> Float[Array, "predictors rows classes"]:
    return jax.vmap(lambda one, output: probabilities(one, output, seen))(calibrations.each, outputs)


def probabilities(
    calibration: Calibration, outputs: Float[Array, "rows outputs"], seen: Bool[Array, " classes"]
) -> Float[Array, "rows classes"]:
    """The mixture of both experts, over the classes that were seen."""
    weights = jax.nn.softmax(-calibration.losses)
    return jnp.einsum("e,erc->rc", weights, jnp.exp(_log_experts(calibration, outputs, seen)))


def with_unseen(
    shares: Float[Array, "rows classes"], seen: Bool[Array, " classes"], rows: Float[Array, ""]
) -> Float[Array, "rows classes"]:
    """Classes not seen in n rows get 1/(n + K) each (Laplace's rule)."""
    each = 1 / (rows + shares.shape[1])
    return jnp.where(seen, (1 - each * jnp.sum((~seen).astype(shares.dtype))) * shares, each)


def calibrate(
    calibration: Calibration,
    outputs: Float[Array, "rows outputs"],
    truth: Float[Array, "rows classes"],
    known: Float[Array, " rows"],
    seen: Bool[Array, " classes"],
) -> Calibration:
    """A step of both experts, after a block that was predicted before it was seen.

    `seen` are the classes that were learnt before; rows of other classes say nothing about them.
    """
    known = known * (truth @ seen.astype(truth.dtype))
    logs = jnp.where((truth > 0) & (known > 0)[:, None], _log_experts(calibration, outputs, seen), 0)
    losses = RETENTION_OF_LOSSES * calibration.losses - jnp.sum(logs, axis=(1, 2))
    new = _regressed(_sharpened(calibration, outputs, truth, known, seen), outputs, truth, known, seen)
    new = new._replace(losses=losses - jnp.min(losses))
    is_finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in new]))
    return optax.tree.where(is_finite, new, calibration)


def _log_experts(calibration: Calibration, outputs: Array, seen: Array) -> Float[Array, "2 rows classes"]:
    logits = [jnp.exp(calibration.log_sharpness) * with_first(outputs), _regressors(outputs) @ calibration.matrix.T]
    return jax.nn.log_softmax(jnp.where(seen, jnp.stack(logits), -1e30), axis=2)


def _sharpened(calibration: Calibration, outputs: Array, truth: Array, known: Array, seen: Array) -> Calibration:
    """One step down the mean cross-entropy in log τ."""

    def loss(log_sharpness: Array) -> Array:
        logs = _log_experts(calibration._replace(log_sharpness=log_sharpness), outputs, seen)[0]
        losses = -jnp.sum(jnp.where(truth > 0, logs, 0), axis=1)
        total = jnp.sum(known)
        return jnp.sum(jnp.where(known > 0, known * losses, 0)) / jnp.where(total > 0, total, 1)

    slope = jax.grad(loss)(calibration.log_sharpness)
    squares = RETENTION * calibration.squares + slope**2
    step = STEP * slope / jnp.sqrt(jnp.where(squares > 0, squares, 1))
    return calibration._replace(log_sharpness=jnp.clip(calibration.log_sharpness - step, LEAST, MOST), squares=squares)


def _regressed(calibration: Calibration, outputs: Array, truth: Array, known: Array, seen: Array) -> Calibration:
    """One Newton step of the regression."""
    inputs = _regressors(outputs)
    shares = jnp.exp(_log_experts(calibration, outputs, seen)[1])
    classes = truth.shape[1]
    weight = known * jnp.maximum(1 - jnp.sum(shares**2, axis=1), LEAST_CURVATURE) / (2 * classes)
    fresh = (inputs * weight[:, None]).T @ inputs + (1 - RETENTION) * RIDGE * jnp.eye(classes)
    curvature = RETENTION * calibration.curvature + fresh
    slopes = ((shares - truth) * known[:, None]).T @ inputs
    change = jax.vmap(lambda one: solve_positive(curvature, one))(slopes)
    return calibration._replace(matrix=calibration.matrix - change, curvature=curvature)


def _regressors(outputs: Float[Array, "rows outputs"]) -> Float[Array, "rows classes"]:
    return jnp.concatenate([jnp.ones((outputs.shape[0], 1), outputs.dtype), outputs], axis=1)


def with_first(outputs: Float[Array, "*rows outputs"]) -> Float[Array, "*rows classes"]:
    """The first class has no output of its own: its score is 1 − Σ of the others."""
    return jnp.concatenate([1 - jnp.sum(outputs, axis=-1, keepdims=True), outputs], axis=-1)
