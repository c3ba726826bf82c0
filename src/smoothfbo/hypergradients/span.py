"""How many of the kept rounds should a window use? Learnt from which of two windows agrees with data of their own."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from smoothfbo.algebra import cosine, squared_norm
from smoothfbo.problem import Problem
from smoothfbo.samples import Samples

MEMORY = 0.9  # share of the old mean in the running means of the lead and of its square
SURE = 1.5  # standard errors by which the mean lead has to lie above 0
SHORTER = 0.2  # of log n in a round, for a mean lead of 1
LONGER = 0.005  # of log n in a round, where there is no lead
ENOUGH = 1.25  # predictions for every fitted parameter, in a round that is to judge


class SpanState(NamedTuple):
    """How many rounds the window uses, and the gradients of the last round by half of them and by all."""

    span: Float[Array, ""]
    lead: Float[Array, ""]  # running mean
    square: Float[Array, ""]  # running mean of its square
    half: PyTree
    whole: PyTree

    def rounds(self, available: Int[Array, ""]) -> Int[Array, ""]:
        """The newest so many of those that there are."""
        return jnp.minimum(available, jnp.round(self.span).astype(available.dtype))


def whole_window(window: int, outer: PyTree) -> SpanState:
    """All rounds, and no gradients yet."""
    number, none = jnp.result_type(float), jax.tree.map(jnp.zeros_like, outer)
    return SpanState(jnp.asarray(window, number), jnp.zeros((), number), jnp.zeros((), number), none, none)


def learn_span(
    state: SpanState, window: int, alone: PyTree, half: PyTree, whole: PyTree, counts: Bool[Array, ""]
) -> SpanState:
    """n rounds are used in the next round, at least one and at most the whole window. With the lead of the newer half,

        ℓ_t = cos(ĝ_t, g_{t−1}^{n/2}) − cos(ĝ_t, g_{t−1}^n),

    ℓ̄ its mean over the last ten rounds or so and s the standard error of that,

        log n ← log n − 0.2 ℓ̄   where ℓ̄ > 1.5 s,     log n + 0.005   elsewhere.

    ĝ_t is the gradient of round t `alone`, which owes nothing to the rounds before. Where the problem moves within
    the window, the gradient of the newer half of it is closer to that of the next round; where it does not, that of
    the whole window has less noise. A round that does not count, or whose gradients are not finite, leaves n and ℓ̄.
    """
    number = state.span.dtype
    new = (cosine(alone, state.half) - cosine(alone, state.whole)).astype(number)
    # The cosine of what is not finite, or too large to be squared, would be 0, which is a verdict, too.
    usable = counts & jnp.isfinite(squared_norm((alone, state.half, state.whole)))
    lead, square = (MEMORY * old + (1 - MEMORY) * each for old, each in ((state.lead, new), (state.square, new**2)))
    error = jnp.sqrt(square * (1 - MEMORY) / (1 + MEMORY))  # of a running mean of independent numbers
    change = jnp.where(lead > SURE * error, -SHORTER * lead, LONGER)
    span = jnp.clip(state.span * jnp.exp(change), 1, window)
    span, lead, square = (
        jnp.where(usable, *pair) for pair in ((span, state.span), (lead, state.lead), (square, state.square))
    )
    return SpanState(span, lead, square, half, whole)


def determines_fit(
    problem: Problem, outer: PyTree, predictions: PyTree, samples: Samples, parameters: int
) -> Bool[Array, ""]:
    """Whether inner samples can say something about `parameters` fitted ones: (Σ tr H)² / Σ tr H² ≥ 1.25 `parameters`.

    H_i is the curvature of the inner loss of sample i in its prediction. The left side is the number of predictions
    that count: d for each sample of a squared loss with d outputs, fewer where samples differ in weight, and few where
    a class is nearly certain, since such a label says next to nothing. With fewer, the fit follows the noise, and its
    residuals, of which the hypergradient is made, vanish.
    """

    def curvature(prediction: PyTree, x: PyTree, y: PyTree) -> Float[Array, "d d"]:
        v, unravel = ravel_pytree(prediction)

        def column(direction: Array) -> Array:
            return ravel_pytree(problem.inner_curvature(outer, prediction, x, y, unravel(direction)))[0]

        return jax.vmap(column)(jnp.eye(v.size, dtype=v.dtype))

    curvatures = samples.weighted(jax.vmap(curvature)(predictions, samples.x, samples.y))
    traces, squares = jnp.sum(jnp.trace(curvatures, axis1=1, axis2=2)), jnp.sum(curvatures**2)
    counted = traces**2 / jnp.where(squares > 0, squares, 1)
    return (squares > 0) & (counted >= ENOUGH * parameters)
