"""One lane of each problem, and what the statements need of it."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from smoothfbo import regret
from smoothfbo.functions import Network
from smoothfbo.hypergradients import Functional, Replayed
from smoothfbo.online import Online
from smoothfbo.runs import run
from smoothfbo.smoothing import window_average
from smoothfbo.studies.theory.statements import Columns
from smoothfbo.testbeds import DriftingCosine, FiniteBilevel


def cosine(speed: Any) -> DriftingCosine:
    """The oracle problem."""
    return DriftingCosine(speed=speed)


def finite(speed: Any, **options: Any) -> FiniteBilevel:
    """The functional problem, or with `features` the linear one."""
    return FiniteBilevel(speed=speed, **options)


def oracle_lane(problem: DriftingCosine, window: Array, step: Array, key: Array, rounds: int, capacity: int) -> Columns:
    """Algorithm 1: a stochastic oracle, smoothed."""
    optimiser = optax.chain(window_average(window, capacity=capacity, constant=True), optax.sgd(step))
    final, trace = run(
        Online(None, problem.oracle(), optimiser, monitor=False),
        problem.source(),
        jnp.zeros(problem.dimension),
        rounds=rounds,
        key=key,
        record=lambda state, info: (info.outer, info.gradient, info.smoothed),  # noqa: ARG005
    )
    outers, gradients, smoothed = trace
    return _measure(problem, outers, final.learner.outer, gradients, smoothed, window, capacity, None)


def estimated_lane(
    problem: FiniteBilevel, window: Array, step: Array, key: Array, rounds: int, capacity: int
) -> Columns:
    """Algorithm 3: FuncGrad with a few steps of inner and adjoint optimisation, so that the bias is real."""
    family = _family(problem)
    final, trace = run(
        Online(
            problem.problem(),
            Functional(family, family),
            optax.chain(window_average(window, capacity=capacity, constant=True), optax.sgd(step)),
        ),
        problem.source(),
        jnp.zeros(problem.dimension),
        rounds=rounds,
        key=key,
        record=lambda state, info: (
            (info.outer, info.gradient, info.smoothed),
            problem.features @ state.estimator.inner.params,
            problem.features @ state.estimator.adjoint.params,
        ),
    )
    (outers, gradients, smoothed), inners, adjoints = trace
    times = jnp.arange(rounds)
    expected = jax.vmap(problem.expected_hypergradient)(times, outers, inners, adjoints)
    columns = _measure(problem, outers, final.learner.outer, gradients, smoothed, window, capacity, expected)
    solutions = jax.vmap(problem.solution)(times, outers)
    exact = jax.vmap(problem.gradient)(times, outers)
    return columns | {
        "conditional_variance": jax.vmap(problem.variance)(times, outers, inners, adjoints),
        "inner_error": 0.5 * jnp.mean((inners - solutions) ** 2, axis=1),
        "adjoint_error": 0.5 * jnp.mean((adjoints - jax.vmap(problem.adjoint_of)(times, outers, inners)) ** 2, axis=1),
        "bias_now": regret.squared_norms(expected - exact),
        "noise_now": regret.squared_norms(gradients - expected),
    }


def _family(problem: FiniteBilevel) -> Network:
    """Functions that a few steps a round do not fit exactly."""
    features = problem.features.shape[1]
    curvature = jnp.trace(problem.features.T @ problem.features / problem.points)
    return Network.from_pair(
        lambda key, x: jnp.zeros(features),  # noqa: ARG005
        lambda params, x: params @ problem.phi(x),
        optax.sgd(1 / curvature),
        steps=3,
    )


def replayed_estimates_lane(
    problem: FiniteBilevel, window: Array, step: Array, key: Array, rounds: int, capacity: int, *, replayed: int
) -> Columns:
    """The same fits and step on the data of the last w rounds, at the current λ."""
    family = _family(problem)
    final, (outers, gradients) = run(
        Online(problem.problem(), Replayed(Functional(family, family), replayed), optax.sgd(step)),
        problem.source(),
        jnp.zeros(problem.dimension),
        rounds=rounds,
        key=key,
        record=lambda state, info: (info.outer, info.gradient),  # noqa: ARG005
    )
    target = regret.window_gradients(problem.gradient, outers, window, capacity=capacity)
    everything = jnp.concatenate([outers, final.learner.outer[None]])
    return {
        "regret": regret.squared_norms(target),
        "proxy": regret.squared_norms(gradients),
        "error": regret.squared_norms(gradients - target),
        "telescoping": regret.telescoping(problem.objective, everything, window, capacity=capacity),
    }


def _measure(
    problem: Any,
    outers: Array,
    last: Array,
    gradients: Array,
    smoothed: Array,
    window: Array,
    capacity: int,
    expected: Array | None,
) -> Columns:
    """Everything the statements need of one run: squares per round, and two sums that are not sums over rounds."""
    terms = regret.decompose(
        problem.gradient, outers, gradients, smoothed, window, expected=expected, capacity=capacity
    )
    target = smoothed - terms.error
    everything = jnp.concatenate([outers, last[None]])
    return {
        "regret": regret.squared_norms(target),
        "proxy": regret.squared_norms(smoothed),
        "error": regret.squared_norms(terms.error),
        "noise": regret.squared_norms(terms.noise),
        "bias": regret.squared_norms(terms.bias),
        "tracking": regret.squared_norms(terms.tracking),
        "historical": regret.squared_norms(target + terms.tracking),
        "inner_product": jnp.sum(terms.error * smoothed, axis=1),
        "mismatch": regret.squared_norms(terms.error - terms.noise - terms.bias - terms.tracking),
        "movement": regret.movement(outers, window, capacity=capacity),
        "telescoping": regret.telescoping(problem.objective, everything, window, capacity=capacity),
    }
