"""The bilevel problem: a predictor fitted to a weighted past, and weights judged by the newest block.

    inner   h_λ = argmin_h Σ_k w_k(λ) · ½ mean_{s ~ ρ_k} ‖y_s − h(x_s)‖² + ½ridge‖h‖²,   w(λ) = softmax(λ)
    outer   F_t(λ) = log mean over block t of ‖y − h_λ(x)‖², or of the cross-entropy in classification

The mean under the forgetting rate ρ_k gives the block of lag s the weight ρ_k^s; the weight of a lag is thus
Σ_k w_k ρ_k^s / Σ_s ρ_k^s. ρ = 0 is the newest block alone, ρ = 1 is all of the past.

The logarithm makes the outer problem free of the target's scale. Its gradient is that of the loss divided by the loss
of the block, which is known before the round; so it stays a point-wise loss.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from smoothfbo.functions import Linear, Network
from smoothfbo.hypergradients import Functional
from smoothfbo.online import Online
from smoothfbo.problem import Problem
from smoothfbo.smoothing import window_average
from smoothfbo.stream.learner.linear import LinearOfOutputs
from smoothfbo.types import Number

# Chosen on the first fifth of the electricity stream among 4, 8, 16, with the squared error and the expected error.
SHARPNESS = 8.0
# A block's loss below this counts as this when the outer loss is divided by it.
SMALLEST_SCALE = {"regression": 1e-12, "classification": 0.05}


def retention_rates(count: int) -> list[float]:
    """ρ_k = 1 − 2^−k for k = 0 … count − 2, a memory of 2^k blocks; and ρ = 1, all of the past."""
    return [1 - 2.0**-k for k in range(count - 1)] + [1.0]


def weights(outer: Float[Array, " rates"]) -> Float[Array, " rates"]:
    """w(λ) = softmax(λ)."""
    return jax.nn.softmax(outer)


def _inner_loss(outer: PyTree, v: PyTree, x: PyTree, y: PyTree) -> Float[Array, ""]:
    """½ Σ_k w_k share_k · ‖v − y‖²; `share` is the sample's part in the mean under each rate, times the samples."""
    del x
    return 0.5 * (weights(outer) @ y["share"]) * jnp.sum((v - y["target"]) ** 2)


def _outer_loss(outer: PyTree, v: PyTree, x: PyTree, y: PyTree) -> Float[Array, ""]:
    del outer, x
    return y["factor"] * jnp.sum((v - y["target"]) ** 2)


def _outer_loss_classes(outer: PyTree, v: PyTree, x: PyTree, y: PyTree) -> Float[Array, ""]:
    del outer, x
    return y["factor"] * score_loss(v, y["target"])


def score_loss(v: Float[Array, " outputs"], target: Float[Array, " outputs"]) -> Float[Array, ""]:
    """Cross-entropy of softmax(SHARPNESS · scores). The first class has no output of its own: its score is 1 − Σ v.

    The inner fit is by squared errors, whose scores lie about [0, 1]; what counts is on which side of ½ they fall.
    """
    scores, truth = (jnp.concatenate([1 - jnp.sum(part, keepdims=True), part]) for part in (v, target))
    return -jnp.sum(truth * jax.nn.log_softmax(SHARPNESS * scores))


def bilevel_problem(is_classification: bool) -> Problem:
    return Problem(_inner_loss, _outer_loss_classes if is_classification else _outer_loss)


def multiplicative() -> optax.GradientTransformation:
    """∂F/∂λ_k divided by w_k(λ): a step is then the multiplicative update w_k ← w_k·exp(−α(g_k − Σ_j w_j g_j))/Z.

    g_k is the derivative in the weight itself. Without the division a weight near zero could hardly grow again.
    """

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        return jax.tree.map(lambda gradient, outer: gradient / weights(outer), updates, params), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)  # pyright: ignore[reportArgumentType]


def bounded(limit: float) -> optax.GradientTransformation:
    """g / (1 + max|g|/limit): small gradients pass, no entry exceeds the limit."""

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        del params
        return jax.tree.map(lambda gradient: gradient / (1 + jnp.max(jnp.abs(gradient)) / limit), updates), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)  # pyright: ignore[reportArgumentType]


def keep_in_range(outer: Float[Array, " rates"], depth: float) -> Float[Array, " rates"]:
    """The largest log-weight is 0 (softmax does not care) and none is below −depth: every rate can come back."""
    return jnp.clip(outer - jnp.max(outer), -depth, 0)


def linear(outputs: int, ridge: float) -> Linear | LinearOfOutputs:
    """h(x) = Wx in the standardised features and a constant, fitted in closed form."""
    if outputs > 1:
        return LinearOfOutputs(outputs, ridge)
    return Linear(lambda x: x, prediction=jnp.zeros(outputs), ridge=ridge)


def network(features: int, outputs: int, width: int, rate: float, steps: int) -> Network:
    """A GELU network with two hidden layers, `steps` Adam updates a round on mini-batches of 256 rows."""
    return Network(
        lambda key: eqx.nn.MLP(features, outputs, width, 2, jax.nn.gelu, key=key),
        optax.adam(rate),
        steps,
        batch_size=256,
    )


def learning_algorithm(
    problem: Problem,
    predictor: Linear | LinearOfOutputs | Network,
    window: Number,
    capacity: int,
    step: float,
    limit: float,
    depth: float,
) -> Online:
    """SmoothFBO with a window that may be traced: window 1 is FBO without smoothing."""
    return Online(
        problem,
        Functional(predictor, predictor),
        optax.chain(
            multiplicative(),
            window_average(window, capacity=capacity, constant=True),  # pyright: ignore[reportArgumentType]
            bounded(limit),
            optax.sgd(step),
        ),
        project=lambda outer: keep_in_range(outer, depth),
    )
