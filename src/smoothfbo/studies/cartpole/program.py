"""The paper's reinforcement-learning study: every method on the core's problem, hypergradients, smoothing and loop."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from smoothfbo.environments.cartpole import CartPole
from smoothfbo.harness.methods import Method
from smoothfbo.harness.study import Program, Study
from smoothfbo.online import Info, Online, RunState, State
from smoothfbo.runs import run, start
from smoothfbo.studies.cartpole.algorithm import Numbers, learner, replay
from smoothfbo.studies.cartpole.config import GRID, CartPoleConfig, Settings
from smoothfbo.studies.cartpole.evaluation import Evaluation, averaged_networks, evaluate, greedy
from smoothfbo.studies.cartpole.measure import measure, summarise
from smoothfbo.studies.cartpole.methods import find
from smoothfbo.studies.cartpole.replay import Replay, inner_parameters
from smoothfbo.studies.cartpole.settings import checked, read_settings, settings_to_try

CART_POSITION, POLE_ANGLE = 0, 2  # their places in an observation
# Kernels that do not depend on each other run side by side.
GPU_OPTIONS = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
SHOWN_STEPS, SHOWN_EVERY = 200, 4  # of an evaluation's first episode are kept, for pictures


class Lane(NamedTuple):
    """All that a lane needs for its next chunk."""

    run: RunState
    networks: Float[Array, "kept critics parameters"]  # the Q networks at the last evaluations, in turn


def record(state: State, info: Info) -> Float[Array, " 5"]:
    """What is kept of a round, in one row: stored one by one, every number would need a kernel of its own."""
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
    lanes = programs(config, settings_to_try(config, settings))
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
    # A key of its own for every evaluation, which the run itself never uses.
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
