"""Bias and noise of a hypergradient, told apart by drawing data again; given the past, and given the fits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.hypergradients import FittedAdjoint, Functional, Replayed
from smoothfbo.online import Online, RunState
from smoothfbo.source import AbstractSource
from smoothfbo.testbeds import DriftingRegression

PROBE = 2**31 - 1  # what sets the probes' randomness apart from the round's own


def probe(
    algorithm: Online, source: AbstractSource, testbed: DriftingRegression, state: RunState, draws: int
) -> dict[str, Float[Array, ""]]:
    """Bias and noise of ĝ_t *given the past*: ‖E[ĝ_t | past] − ∇F_t‖² and the variance, over draws of the round's data.

    The past ends before the round's data: what the stored batches and the warm-started networks carry from earlier
    rounds counts as bias, although most of it averages out over time. The paper's b_t and ζ_t are conditional on the
    fitted functions as well: `probe_given_fits`. A replayed estimator has no single ĝ_t: its steps weigh several.
    """
    if draws < 2 or isinstance(algorithm.estimator, Replayed):
        return {}
    learner, round = state.learner, state.learner.round

    def draw(key: Array) -> Array:
        key_data, key_estimate = jax.random.split(key)
        _, (data, _) = source(state.source, round, learner, key_data)
        warm = learner.estimator
        estimate, _ = algorithm.estimator(algorithm.problem, learner.outer, warm, data, key_estimate)
        return estimate.gradient

    key = jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(state.key), round), PROBE)
    gradients = jax.vmap(draw)(jax.random.split(key, draws))
    bias, noise = _bias_and_noise(gradients, testbed.gradient(round, learner.outer))
    return {"bias_given_past": bias, "noise_given_past": noise}


def probe_given_fits(
    algorithm: Online, source: AbstractSource, testbed: DriftingRegression, state: RunState, draws: int
) -> dict[str, Float[Array, ""]]:
    """The paper's ‖b_t‖² and E‖ζ_t‖² (Lemma 5.1): G_t = E[ĝ_t | λ_t, ĥ_t, â_t], b_t = G_t − ∇F_t(λ_t), ζ_t = ĝ_t − G_t.

    ĥ and â are fitted once, on the data that the round would have. Then only the final mini-batch is drawn anew, as
    large as the round's data and of the same rounds. Only the functional estimator has an â.
    """
    estimator = algorithm.estimator
    if draws < 2 or not isinstance(estimator, Functional) or not isinstance(estimator.adjoint, FittedAdjoint):
        return {}
    problem = testbed.problem()
    learner, round = state.learner, state.learner.round
    key = jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(state.key), round), PROBE - 1)
    key_data, key_fit, key_final = jax.random.split(key, 3)
    _, (data, _) = source(state.source, round, learner, key_data)
    _, fitted = estimator(problem, learner.outer, learner.estimator, data, key_fit)
    inner, adjoint = estimator.inner.bind(fitted.inner.params), estimator.adjoint.function.bind(fitted.adjoint.params)

    def draw(key: Array) -> Array:
        final = testbed.fresh(round, key)
        explicit = problem.explicit(learner.outer, jax.vmap(inner)(final.outer.x), final.outer)
        at_inner, adjoints = (jax.vmap(function)(final.inner.x) for function in (inner, adjoint))
        return explicit + problem.implicit(learner.outer, at_inner, adjoints, final.inner)

    gradients = jax.vmap(draw)(jax.random.split(key_final, draws))
    bias, noise = _bias_and_noise(gradients, testbed.gradient(round, learner.outer))
    return {"bias_given_fits": bias, "noise_given_fits": noise}


def _bias_and_noise(gradients: Float[Array, "draws *outer"], exact: Array) -> tuple[Array, Array]:
    """‖b‖² and E‖ζ‖² of n draws: their mean ḡ has E‖ḡ − ∇F‖² = ‖b‖² + E‖ζ‖²/n, so the second term is taken off."""
    draws = len(gradients)
    mean = jnp.mean(gradients, axis=0)
    noise = jnp.sum((gradients - mean) ** 2) / (draws - 1)
    return jnp.sum((mean - exact) ** 2) - noise / draws, noise
