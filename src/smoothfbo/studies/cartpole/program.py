"""The paper's reinforcement-learning study: every method on the core's problem, hypergradients, smoothing and loop."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from smoothfbo.environments.cartpole import CartPole, Linear
from smoothfbo.functions import Network
from smoothfbo.harness.methods import Method
from smoothfbo.harness.study import Program, Study
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
from smoothfbo.online import Info, Online, RunState, State
from smoothfbo.runs import run, start
from smoothfbo.smoothing import mixed_average, window_average
from smoothfbo.studies.cartpole.config import GRID, CartPoleConfig, Settings
from smoothfbo.studies.cartpole.evaluation import Evaluation, averaged_networks, evaluate, greedy
from smoothfbo.studies.cartpole.measure import measure, summarise
from smoothfbo.studies.cartpole.methods import find
from smoothfbo.studies.cartpole.replay import Replay, inner_parameters
from smoothfbo.studies.cartpole.settings import checked, read_settings, tried
from smoothfbo.studies.cartpole.soft_q import QNetworks, WorldModel, soft_q_problem

CART_POSITION, POLE_ANGLE = 0, 2  # their places in an observation
ONCE_DIFFERENTIATED = ("mle", "vep", "fbo", "corrected-fbo")  # the others differentiate the gradient of the Q networks
LARGEST_FUSED = 64  # layer whose weights a program of a kernel holds in registers
# Kernels that do not depend on each other run side by side.
GPU_OPTIONS = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
SHOWN_STEPS, SHOWN_EVERY = 200, 4  # of an evaluation's first episode are kept, for pictures


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


class Lane(NamedTuple):
    """All that a lane needs to go on."""

    run: RunState
    networks: Float[Array, "kept critics parameters"]  # the Q networks at the last evaluations, in turn


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


def record(state: State, info: Info) -> Float[Array, " 5"]:
    """What is kept of a round, in one row: a store of its own for every number would be a kernel each."""
    del state
    finite = info.finite.astype(info.inner_loss.dtype)
    return jnp.stack([info.inner_loss, info.outer_loss, info.gradient_norm, info.smoothed_norm, finite])


def programs(config: CartPoleConfig, settings: Settings | None = None) -> list[Program]:
    """One program per method; its lanes are environments × grid × seeds.

    `settings` fixes the numbers of some methods: `{"fbo": [{"inner_rate": 1e-3, …}, …], …}`, in place of the grid's.
    """
    return [_program(config, find(name), (settings or {}).get(name, [{}])) for name in config.methods]


def study(config: CartPoleConfig, stored: dict[str, Any] | None = None) -> Study:
    """`stored` are the settings of a run that resumes: their file may have changed or be gone."""
    settings = checked(config, read_settings(config.settings) if stored is None else stored)
    lanes = programs(config, tried(config, settings))
    return Study("cartpole", config, lanes, measure, partial(summarise, config), inputs={"settings": settings})


def _grid(config: CartPoleConfig, method: Method, setting: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Every combination of the numbers that the setting leaves open."""
    choices = {name: (setting[name],) if name in setting else getattr(config, name) for name in GRID}
    if not method.is_smoothed:
        choices |= {"window": (1,), "mix": (1.0,)}
    for values in product(*choices.values()):
        numbers = dict(zip(GRID, values, strict=True))
        yield numbers | {"window": int(numbers["window"])}


def _program(config: CartPoleConfig, method: Method, settings: Sequence[Mapping[str, float]]) -> Program:
    grid = [numbers for setting in settings for numbers in _grid(config, method, setting)]
    lanes = tuple(
        {"method": method.name, "environment": environment, **numbers, "seed": seed}
        for environment, numbers in product(config.environment, grid)
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    )
    capacity = max(numbers["window"] for numbers in grid)
    averaged = averaged_networks(config)
    kept = max(averaged)

    def parts(numbers: Numbers) -> tuple[Online, Replay]:
        source = replay(config, method, numbers)
        algorithm = learner(
            method,
            source,
            numbers,
            clip=config.clip,
            capacity=capacity,
            rounds=config.steps,
            inner_steps=config.inner_steps,
        )
        return algorithm, source

    def begin(numbers: Numbers) -> Lane:
        algorithm, source = parts(numbers)
        key_model, key_run = jax.random.split(jax.random.key(numbers.seed))
        state = start(algorithm, source, source.model.init(key_model), key_run)
        return Lane(state, jnp.zeros((kept, source.q.critics, source.q.network.parameters)))

    def advance(numbers: Numbers, lane: Lane) -> tuple[Lane, dict[str, Array]]:
        algorithm, source = parts(numbers)
        state = lane.run
        state = state._replace(source=state.source._replace(tally=jax.tree.map(jnp.zeros_like, state.source.tally)))
        state, trace = run(algorithm, source, rounds=config.evaluate_every, state=state, record=record)
        number = state.learner.round // config.evaluate_every - 1  # of this evaluation
        lane = Lane(state, lane.networks.at[number % kept].set(inner_parameters(state.learner.estimator)))
        age = (number - jnp.arange(kept, dtype=number.dtype)) % kept
        counted = age < jnp.asarray(averaged, number.dtype)[number]
        return lane, _row(source, numbers, lane, counted, trace, config)

    return Program(
        name=method.name,
        lanes=lanes,
        numbers=_numbers(config, lanes),
        start=begin,
        advance=advance,
        rounds=config.steps,
        chunk=config.evaluate_every,
        gpu_options=GPU_OPTIONS,
    )


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


def _row(
    source: Replay,
    numbers: Numbers,
    lane: Lane,
    counted: Bool[Array, " kept"],
    trace: Float[Array, "rounds 5"],
    config: CartPoleConfig,
) -> dict[str, Array]:
    """The metrics of a chunk: one row, with means over its rounds, and evaluations at its end, of the averaged networks
    and of the newest, in the same episodes."""
    environment, state = source.environment, lane.run
    assert isinstance(environment, CartPole)
    last = state.learner.round - 1
    # A key with a number of its own for every evaluation, far beyond those that the first splits of a run amount to.
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(numbers.seed), 1), last)

    def evaluated(
        networks: Float[Array, "networks critics parameters"], counted: Bool[Array, " networks"]
    ) -> Evaluation:
        return evaluate(environment, greedy(source.q, networks, counted, config.vote), last, key, config.episodes)

    evaluation = evaluated(lane.networks, counted)
    newest = evaluated(inner_parameters(state.learner.estimator)[None], jnp.ones(1, bool))
    now = environment.parameters(last)
    tally = state.source.tally
    inner_loss, outer_loss, raw, smoothed, finite = trace.T
    row = {
        "round": last,
        "return_mean": jnp.mean(evaluation.returns),
        "return_min": jnp.min(evaluation.returns),
        "return_max": jnp.max(evaluation.returns),
        "newest_return": jnp.mean(newest.returns),
        "episode_length": jnp.mean(evaluation.lengths),
        "pole_angle": evaluation.observation[POLE_ANGLE],
        "training_return": tally.returns / tally.episodes,  # NaN where no episode ended
        "training_episodes": tally.episodes,
        "training_pole_angle": tally.observations[POLE_ANGLE] / tally.steps,
        "inner_loss": jnp.mean(inner_loss),
        "outer_loss": jnp.mean(outer_loss),
        "hypergradient_norm": jnp.mean(raw),
        "used_norm": jnp.mean(smoothed),
        "hypergradient_squares": jnp.sum(raw**2),
        "used_squares": jnp.sum(smoothed**2),  # summed over chunks it is the paper's proxy of the regret
        # The share of the steps whose length the clip set.
        "clipped": jnp.mean((smoothed > config.clip) & (config.clip > 0)),
        "reward_low": now.reward_low,
        "reward_high": now.reward_high,
        "skipped": state.learner.skipped,
        "finite": finite[-1] > 0,
        "shown": evaluation.first[:SHOWN_STEPS:SHOWN_EVERY, jnp.array([CART_POSITION, POLE_ANGLE])],
    }
    return {name: value[None] for name, value in row.items()}


def _numbers(config: CartPoleConfig, lanes: tuple[dict[str, Any], ...]) -> Numbers:
    last = {"stationary": config.first_interval, "drifting": config.last_interval}
    dtype = jnp.result_type(float)

    def column(name: str) -> Array:
        kind = jnp.int32 if name in ("seed", "window") else dtype
        factors = [
            config.itd_factor if name == "inner_rate" and find(lane["method"]).estimator == "itd" else 1
            for lane in lanes
        ]
        return jnp.asarray([lane[name] * factor for lane, factor in zip(lanes, factors, strict=True)], kind)

    intervals = jnp.asarray([(config.first_interval, last[lane["environment"]]) for lane in lanes], dtype)
    return Numbers(seed=column("seed"), interval=intervals, **{name: column(name) for name in GRID})
