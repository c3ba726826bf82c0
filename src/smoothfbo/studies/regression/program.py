"""The paper's non-stationary regression: which past batches to trust, learned online, with the truth known.

A lane is one method with its numbers and its seed. Methods that share an estimator are lanes of one program: FBO is
SmoothFBO with a window of 1, and uniform weights are FBO with an outer rate of 0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, UInt32

from smoothfbo.functions import Network
from smoothfbo.harness.methods import RECOMMENDED
from smoothfbo.harness.study import Program
from smoothfbo.hypergradients import (
    AbstractEstimator,
    ConjugateGradient,
    Functional,
    Implicit,
    Oracle,
    Unrolled,
)
from smoothfbo.online import Info, Online, RunState, State
from smoothfbo.recommended import smooth_fbo
from smoothfbo.runs import run, start
from smoothfbo.smoothing import window_average
from smoothfbo.source import AbstractSource, RoundNumbers
from smoothfbo.studies.regression.config import TEST_POINTS, RegressionConfig
from smoothfbo.studies.regression.lanes import Lane, Shape
from smoothfbo.studies.regression.probe import probe, probe_given_fits
from smoothfbo.testbeds import DriftingRegression, Jumps, Sinusoidal
from smoothfbo.testbeds.weighting import decay, log_weights, per_lag

WEIGHTINGS = {"per-lag": per_lag, "decay": decay, "log": log_weights}


class Numbers(NamedTuple):
    """What differs between the lanes of a program."""

    seed: UInt32[Array, "*lanes"]
    window: Int[Array, "*lanes"]
    outer_rate: Float[Array, "*lanes"]
    normalised: Float[Array, "*lanes"]  # 1 or 0
    inner_rate: Float[Array, "*lanes"]
    adjoint_rate: Float[Array, "*lanes"]
    noise: Float[Array, "*lanes"]
    amplitude: Float[Array, "*lanes"]
    frequency: Float[Array, "*lanes"]


def numbers_of(lanes: list[Lane]) -> Numbers:
    def column(name: str, dtype: Any) -> Array:
        return jnp.asarray([getattr(lane, name) for lane in lanes], dtype)

    rates = {name: column(name, jnp.float32) for name in Numbers._fields if name not in ("seed", "window")}
    return Numbers(seed=column("seed", jnp.uint32), window=column("window", jnp.int32), **rates)


def make_testbed(config: RegressionConfig, shape: Shape, numbers: Numbers) -> DriftingRegression:
    """The seed draws the truth, too: a mean over seeds is a mean over problems."""
    drifts: dict[str, Callable[..., Any]] = {
        "sinusoidal": lambda: Sinusoidal(numbers.amplitude, numbers.frequency),
        # A number of its own, so that no level of the drift is drawn with a key that is used elsewhere.
        "jumps": lambda: Jumps(numbers.amplitude, config.jump_interval, numbers.seed + jnp.uint32(2**31)),
    }
    return DriftingRegression(
        drifts[shape.drift](),
        inputs=config.inputs,
        lags=shape.lags,
        batch=shape.batch,
        noise=numbers.noise,
        weighting=WEIGHTINGS[shape.weights],
        key=_key(numbers, 0),
    )


def testbed_of_lane(config: RegressionConfig, lane: Lane) -> DriftingRegression:
    return make_testbed(config, lane.shape, jax.tree.map(lambda leaf: leaf[0], numbers_of([lane])))


def make_algorithm(
    config: RegressionConfig, shape: Shape, numbers: Numbers, testbed: DriftingRegression, capacity: int
) -> Online:
    if shape.estimator == RECOMMENDED:
        inner = make_network(config, shape, numbers.inner_rate, shape.inner_steps)
        return smooth_fbo(testbed.problem(), inner, project=testbed.project)
    optimiser = optax.chain(
        window_average(numbers.window, capacity=capacity, constant=True),
        normalise_if(numbers.normalised),
        optax.sgd(numbers.outer_rate),
    )
    return Online(
        testbed.problem(),
        make_estimator(config, shape, numbers, testbed),
        optimiser,
        project=testbed.project,
    )


def normalise_if(flag: Float[Array, ""]) -> optax.GradientTransformation:
    """g/‖g‖ where the flag is 1, g where it is 0."""

    def update(gradient: Any, params: Any) -> Any:
        del params
        length = jnp.sqrt(jnp.sum(gradient**2))
        return gradient / jnp.where((flag > 0) & (length > 0), length, 1.0)

    return optax.stateless(update)  # pyright: ignore[reportReturnType]


def make_network(config: RegressionConfig, shape: Shape, rate: Array, steps: int) -> Network:
    # eps_root: the derivative of Adam's step is not finite at a gradient of zero without it (unrolling).
    return Network(
        lambda key: eqx.nn.MLP(config.inputs, 1, config.width, 2, jax.nn.gelu, key=key),
        optax.adam(rate, eps_root=1e-12),
        steps,
        batch_size=shape.samples_per_step,
    )


def make_estimator(
    config: RegressionConfig, shape: Shape, numbers: Numbers, testbed: DriftingRegression
) -> AbstractEstimator:
    inner = make_network(config, shape, numbers.inner_rate, shape.inner_steps)
    final = shape.batch if config.final == "drawn" else None
    match shape.estimator:
        case "fbo":
            adjoint = make_network(config, shape, numbers.adjoint_rate, config.adjoint_steps)
            return Functional(inner, adjoint, batch_size=final)
        case "aid":
            solver = ConjugateGradient(ridge=config.aid_ridge, max_steps=config.aid_steps)
            return Implicit(inner, solver, batch_size=final)
        case "unrolled":
            return Unrolled(inner, batch_size=final)
        case _:
            return Oracle(lambda outer, round, key: testbed.gradient(round, outer))  # noqa: ARG005


def programs(config: RegressionConfig) -> list[Program]:
    """One program for each estimator, drift, kind of weights, batch size and number of inner steps."""
    groups: dict[Shape, list[Lane]] = {}
    for lane in config.lanes():
        groups.setdefault(lane.shape, []).append(lane)
    return [_program(config, shape, lanes) for shape, lanes in groups.items()]


def _program(config: RegressionConfig, shape: Shape, lanes: list[Lane]) -> Program:
    capacity = max(lane.window for lane in lanes)

    def parts(numbers: Numbers) -> tuple[Online, AbstractSource, DriftingRegression]:
        testbed = make_testbed(config, shape, numbers)
        algorithm = make_algorithm(config, shape, numbers, testbed, capacity)
        return algorithm, (RoundNumbers() if shape.estimator == "exact" else make_source(config, testbed)), testbed

    def begin(numbers: Numbers) -> RunState:
        algorithm, source, testbed = parts(numbers)
        return start(algorithm, source, testbed.initial(), _key(numbers, 1))

    def advance(numbers: Numbers, state: RunState) -> tuple[RunState, dict[str, Array]]:
        algorithm, source, testbed = parts(numbers)
        probed = probe(algorithm, source, testbed, state, config.probe_draws)
        probed |= probe_given_fits(algorithm, source, testbed, state, config.probe_draws)
        record = partial(_record, algorithm, testbed, _test_inputs(config, numbers))
        state, records = run(algorithm, source, rounds=config.chunk, state=state, record=record)
        gaps = jnp.full((config.chunk,), jnp.nan)
        return state, records | {name: gaps.at[0].set(value) for name, value in probed.items()}

    return Program(
        name=shape.name,
        lanes=tuple(lane.keys() for lane in lanes),
        numbers=numbers_of(lanes),
        start=begin,
        advance=advance,
        rounds=config.rounds,
        chunk=config.chunk,
    )


def make_source(config: RegressionConfig, testbed: DriftingRegression) -> AbstractSource:
    return testbed.source(fresh_final=config.final == "fresh")


def _record(algorithm: Online, testbed: DriftingRegression, x: Array, state: State, info: Info) -> dict[str, Array]:
    """What is kept of a round. What follows from λ, ĝ and g̃ and the truth is computed afterwards."""
    records = {
        "round": info.round,
        "outer": info.outer,
        "raw": info.gradient,
        "used": info.smoothed,
        "outer_loss": info.outer_loss,
        "inner_loss": info.inner_loss,
        "skipped": info.skipped,
    }
    if isinstance(algorithm.estimator, Oracle):
        return records  # the exact hypergradient needs no inner function
    predictions = algorithm.predict(state, x)
    now, best = testbed.truth(info.round, x), testbed.solution(info.round, info.outer, x)
    return records | {
        "inner_error": jnp.mean(jnp.sum((predictions - best) ** 2, axis=-1)),
        "truth_error": jnp.mean(jnp.sum((predictions - now) ** 2, axis=-1)),
    }


def _test_inputs(config: RegressionConfig, numbers: Numbers) -> Float[Array, "points inputs"]:
    return jax.random.normal(_key(numbers, 2), (TEST_POINTS, config.inputs))


def _key(numbers: Numbers, use: int) -> Array:
    """A key of its own for each use of a seed: 0 the truth, 1 data and initialisation, 2 test inputs."""
    return jax.random.fold_in(jax.random.key(numbers.seed), use)
