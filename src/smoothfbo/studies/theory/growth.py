"""How the regret grows with the number of rounds: programs and measures."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jaxtyping import Array

from smoothfbo import regret
from smoothfbo.harness.study import Program
from smoothfbo.hypergradients import Oracle
from smoothfbo.online import Online
from smoothfbo.runs import run
from smoothfbo.smoothing import window_average
from smoothfbo.studies.theory.config import TheoryConfig
from smoothfbo.studies.theory.replay import ReplayedSamples, replay
from smoothfbo.testbeds import DriftingCosine

# How the variation V₁ grows. The counter-example, V₁ ~ T, wobbles in every round and turns by a right angle in every
# window. Its two parts alone show which does what: the wobble has V₁ ~ T but averages out within a window; the turn has
# only V₁ ~ T/w but moves the windowed objective itself as fast as a step of 1/(2Lw) can follow.
GROWTH_DRIFTS = ("log T", "T^1/4", "T", "T, wobble alone", "T/w, turn alone")

# Estimated gradients (Theorem 5.3, Corollary 5.4): the bias of round t has the length of the first number times
# (t + 1) to the minus second. Without drift to speak of, V₁ ~ log T, and with the step of 1/(2Lw).
BIASES = {"none": (0.0, 0.0), "falls": (0.8, 0.25), "stays": (0.8, 0.0)}


def _speeds(drift: str, window: int) -> tuple[float, float, float]:
    """Speed, slowing and wobble of the problem."""
    return {
        "log T": (1.0, 1.0, 0.0),
        "T^1/4": (1.0, 0.75, 0.0),
        "T": (np.pi / 2 / window, 0.0, 0.5),
        "T, wobble alone": (0.0, 0.0, 0.5),
        "T/w, turn alone": (np.pi / 2 / window, 0.0, 0.0),
    }[drift]


def _growth_problem(drift: str, window: int) -> DriftingCosine:
    speed, slowing, wobble = _speeds(drift, window)
    return DriftingCosine(speed=speed, slowing=slowing, wobble=wobble)


def biased_oracle(problem: DriftingCosine, bias: Array, decay: Array) -> Oracle:
    """∇F_t(λ) plus noise plus a bias b_t with ‖b_t‖ = bias·(t + 1)^(−decay), always in the same direction.

    So B_T = Σ‖b_t‖² grows like T^(1 − 2·decay): it is o(T), as Corollary 5.4 asks, exactly if the bias falls.
    """
    unbiased = problem.oracle().gradient

    def draw(outer: Array, round: Array, key: Array) -> Array:
        length = bias * (round + 1).astype(outer.dtype) ** -decay
        return unbiased(outer, round, key) + length / jnp.sqrt(jnp.asarray(problem.dimension, outer.dtype))

    return Oracle(draw)


def _stored(
    problem: DriftingCosine, oracle: Oracle, window: Array, step: Array, key: Array, rounds: int, capacity: int
) -> Array:
    """λ_0, …, λ_{T−1} with a window of stored gradients."""
    optimiser = optax.chain(window_average(window, capacity=capacity, constant=True), optax.sgd(step))
    _, outers = run(
        Online(None, oracle, optimiser, monitor=False),
        problem.source(),
        jnp.zeros(problem.dimension),
        rounds=rounds,
        key=key,
        record=lambda state, info: info.outer,  # noqa: ARG005
    )
    return outers


def _per_round(problem: DriftingCosine, outers: Array, window: Array) -> dict[str, Array]:
    """BLR_w(T)/T and BLR_1(T)/T, in O(T·d): window means of the cosine problem are those of cos c and sin c."""
    times = jnp.arange(len(outers))
    centres = jax.vmap(problem.centre)(times)

    def window_average_of(values: Array) -> Array:
        sums = jnp.concatenate([jnp.zeros((1, problem.dimension)), jnp.cumsum(values, axis=0)])
        return (sums[times + 1] - sums[jnp.maximum(times + 1 - window, 0)]) / window.astype(values.dtype)

    cosine, sine = window_average_of(jnp.cos(centres)), window_average_of(jnp.sin(centres))
    of_window = problem.curvature * (jnp.sin(outers) * cosine - jnp.cos(outers) * sine)
    own = problem.curvature * jnp.sin(outers - centres)
    return {
        "regret_per_round": jnp.mean(regret.squared_norms(of_window)),
        "regret_one_per_round": jnp.mean(regret.squared_norms(own)),
    }


class Numbers(NamedTuple):
    """What differs between the lanes of a horizon's program."""

    speed: Any
    slowing: Any
    wobble: Any
    bias: Any
    bias_decay: Any
    shifted: Any  # whether replayed samples are shifted, or have noise added
    window: Any
    step: Any
    key: Any  # the bits of a lane's key


class GrowthSetting(NamedTuple):
    """What the regret grows under."""

    drift: str
    step: str
    bias: str
    smoothing: str


STORED, REPLAYED, SHIFTED = "stored", "replayed", "replayed, shifted samples"


def _growth_settings(replayed: bool) -> list[GrowthSetting]:
    if replayed:
        return [*(GrowthSetting(drift, "1/L", "none", REPLAYED) for drift in GROWTH_DRIFTS),
                GrowthSetting("log T", "1/L", "none", SHIFTED)]  # fmt: skip
    unbiased = [GrowthSetting(drift, rule, "none", STORED) for drift in GROWTH_DRIFTS for rule in ("1/L", "1/(2Lw)")]
    return unbiased + [GrowthSetting("log T", "1/(2Lw)", bias, STORED) for bias in BIASES if bias != "none"]


def growth_program(config: TheoryConfig, horizon: int, *, replayed: bool = False) -> Program:
    """Regret per round at one horizon, for windows w = ⌈T^e⌉: stored with two ways to choose the step, or replayed."""
    lanes = tuple(
        {**setting._asdict(), "rounds": horizon, "exponent": exponent, "window": int(np.ceil(horizon**exponent)),
         "lane": lane}
        for setting in _growth_settings(replayed)
        for exponent in config.exponents
        for lane in range(config.growth_lanes)
    )  # fmt: skip
    windows = np.array([lane["window"] for lane in lanes], np.int32)
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(config.seed + 2), config.growth_lanes)))
    speed, slowing, wobble = np.array([_speeds(lane["drift"], lane["window"]) for lane in lanes]).T
    bias, bias_decay = np.array([BIASES[lane["bias"]] for lane in lanes]).T
    capacity = int(windows.max())

    def advance(numbers: Numbers, state: Array) -> tuple[Array, dict[str, Array]]:
        problem = DriftingCosine(speed=numbers.speed, slowing=numbers.slowing, wobble=numbers.wobble)
        key = jax.random.wrap_key_data(numbers.key)
        if replayed:
            source = ReplayedSamples(problem, numbers.shifted, numbers.window, key, capacity)
            outers = replay(source, numbers.step, horizon)[0][:-1]
        else:
            oracle = biased_oracle(problem, numbers.bias, numbers.bias_decay)
            outers = _stored(problem, oracle, numbers.window, numbers.step, key, horizon, capacity)
        values = {name: value[None] for name, value in _per_round(problem, outers, numbers.window).items()}
        return state, {"round": jnp.full((1,), horizon - 1), **values}

    return Program(
        name=f"growth of the regret{' with replay' if replayed else ''}, T = {horizon:,}",
        lanes=lanes,
        numbers=Numbers(
            speed, slowing, wobble, bias, bias_decay,
            np.array([float(lane["smoothing"] == SHIFTED) for lane in lanes]), windows,
            np.array([1.0 if lane["step"] == "1/L" else 1 / (2 * lane["window"]) for lane in lanes]),
            keys[[lane["lane"] for lane in lanes]],
        ),
        start=lambda numbers: jnp.zeros((), numbers.window.dtype),
        advance=advance,
        rounds=horizon,
        chunk=horizon,
    )  # fmt: skip


def measure_growth(program: Program, records: dict[str, np.ndarray]) -> pd.DataFrame:
    values = {name: records[name][:, 0] for name in ("regret_per_round", "regret_one_per_round")}
    frame = pd.DataFrame(program.lanes).assign(**values)
    variations = {
        (drift, window): float(regret.variation(_growth_problem(drift, window).suprema(program.rounds)))
        for drift, window in frame[["drift", "window"]].drop_duplicates().itertuples(index=False)
    }
    pairs = zip(frame["drift"], frame["window"], strict=True)
    return frame.assign(variation=[variations[pair] for pair in pairs])
