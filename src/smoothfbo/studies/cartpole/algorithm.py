"""The online loop of a lane: the estimator of its method, smoothing, optimiser, and the source of its data."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from smoothfbo.environments.cartpole import CartPole, Linear
from smoothfbo.functions import Network
from smoothfbo.harness.methods import Method
from smoothfbo.hypergradients import (
    AbstractEstimator,
    ConjugateGradient,
    Explicit,
    Functional,
    IdentityInverse,
    Implicit,
    PointwiseAdjoint,
    PointwiseCorrection,
    Unrolled,
)
from smoothfbo.online import Online
from smoothfbo.smoothing import mixed_average, window_average
from smoothfbo.studies.cartpole.config import CartPoleConfig
from smoothfbo.studies.cartpole.networks import QNetworks, WorldModel
from smoothfbo.studies.cartpole.replay import Replay
from smoothfbo.studies.cartpole.soft_q import soft_q_problem

ONCE_DIFFERENTIATED = ("mle", "vep", "fbo", "corrected-fbo")  # the others differentiate the gradient of the Q networks
LARGEST_FUSED = 64  # layer whose weights a program of a kernel holds in registers


class Numbers(NamedTuple):
    """All that differs between the lanes of a program, so a whole grid is one compilation."""

    seed: Int[Array, "..."]
    interval: Float[Array, "... 2 2"]  # rewarded angles: (low, high) at the beginning, (low, high) at the end
    inner_rate: Float[Array, "..."]
    outer_rate: Float[Array, "..."]
    target_rate: Float[Array, "..."]
    temperature: Float[Array, "..."]
    final_rate: Float[Array, "..."]
    window: Int[Array, "..."]
    mix: Float[Array, "..."]


def estimator_of(method: Method, q: QNetworks, rate: Any, steps: int = 1) -> AbstractEstimator:
    """How a method finds the gradient of the world model; all take the same number of inner steps a round."""
    # Differentiating through Adam gives hypergradients that cannot be used: itd takes plain gradient steps.
    optimiser = optax.sgd(rate) if method.estimator == "itd" else optax.adam(rate)
    q = q if method.estimator in ONCE_DIFFERENTIATED else q.plain
    inner = Network.from_pair(q.init, q, optimiser, steps)
    return {
        "mle": lambda: Explicit(inner),
        "vep": lambda: Explicit(inner),
        "fbo": lambda: Functional(inner, PointwiseAdjoint()),
        # The model's target is a function of x and λ, so that v⁺ is the solution of the inner problem. The gradient is
        # then that of value equivalence, once for each of the two Q networks.
        "corrected-fbo": lambda: Functional(inner, PointwiseAdjoint(), correction=PointwiseCorrection()),
        "omd": lambda: Implicit(inner, IdentityInverse()),
        "omd-cg": lambda: Implicit(inner, ConjugateGradient(ridge=1e-5, max_steps=100)),
        "itd": lambda: Unrolled(inner),
    }[method.estimator]()


def learner(
    method: Method,
    source: Replay,
    numbers: Numbers,
    *,
    clip: float,
    capacity: int,
    rounds: int,
    inner_steps: int = 1,
) -> Online:
    """The online loop of a method: hypergradient, smoothing if it has it, clipping, Adam.

    `capacity` is the largest window among the lanes; after `rounds` the rates have fallen to their final share.
    """

    def rate(first: Any, updates: int) -> Any:
        return optax.linear_schedule(first, numbers.final_rate * first, rounds * updates)

    smooth = window_average(numbers.window, capacity=capacity, constant=True)
    parts = [mixed_average(numbers.mix, smooth)] if method.is_smoothed else []
    parts += [optax.clip_by_global_norm(clip)] if clip > 0 else []
    problem = soft_q_problem(
        source.model_target(jnp.zeros((source.q.critics, source.q.network.parameters))), method.estimator
    )
    estimator = estimator_of(method, source.q, rate(numbers.inner_rate, inner_steps), inner_steps)
    return Online(problem, estimator, optax.chain(*parts, optax.adam(rate(numbers.outer_rate, 1))), monitor=False)


def replay(config: CartPoleConfig, method: Method, numbers: Numbers) -> Replay:
    """The source of a lane: its environment, memory and target networks."""
    (first_low, first_high), (last_low, last_high) = numbers.interval
    environment = CartPole(
        reward_low=Linear(first_low, last_low, config.steps), reward_high=Linear(first_high, last_high, config.steps)
    )
    sizes = environment.observation_size, environment.actions
    fused = _can_fuse(*sizes, *config.q_hidden, *config.model_hidden)
    return Replay(
        environment=environment,
        q=QNetworks(*sizes, config.q_hidden, config.critics, fused),
        model=WorldModel(
            *sizes,
            config.model_hidden,
            environment.observation_limits if config.bounded else None,
            config.model_leak,
            fused,
        ),
        method=method.estimator,
        discount=config.discount,
        temperature=numbers.temperature,
        target_rate=numbers.target_rate,
        exploration=config.exploration,
        largest_value=largest_value(config.discount, numbers.temperature, environment.actions)
        if config.bounded_values
        else None,
        random_steps=config.random_steps,
        capacity=config.capacity,
        batch=config.batch,
        independent_final=config.independent_final,
    )


def _can_fuse(*sizes: int) -> bool:
    """Whether passes through networks with these layers are better single kernels: on GPUs that Triton knows."""
    device = jax.devices()[0]
    is_known = device.device_kind.startswith("NVIDIA") and float(device.compute_capability) >= 8  # that of the A100
    return is_known and jnp.result_type(float) == jnp.float32 and max(sizes) <= LARGEST_FUSED


def largest_value(discount: float, temperature: Any, actions: int) -> Any:
    """(1 + α log(actions)) / (1 − γ): rewards of at most 1, and the policy's entropy, for ever."""
    return (1 + temperature * math.log(actions)) / (1 - discount)
