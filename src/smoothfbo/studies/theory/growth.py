"""How the regret grows with the number of rounds."""

from collections.abc import Iterator
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
from smoothfbo.online import Online, run
from smoothfbo.smoothing import window_average
from smoothfbo.studies.theory.config import TheoryConfig
from smoothfbo.studies.theory.statements import Check
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


def _grow(
    problem: DriftingCosine, oracle: Oracle, window: Array, step: Array, key: Array, rounds: int, capacity: int
) -> Array:
    """BLR_w(T)/T of one lane, in O(T·d): window means of the cosine problem are those of cos c and sin c."""
    optimiser = optax.chain(window_average(window, capacity=capacity, constant=True), optax.sgd(step))
    _, outers = run(
        Online(None, oracle, optimiser, monitor=False),
        problem.source(),
        jnp.zeros(problem.dimension),
        rounds=rounds,
        key=key,
        record=lambda state, info: info.outer,  # noqa: ARG005
    )
    times = jnp.arange(rounds)
    centres = jax.vmap(problem.centre)(times)

    def window_average_of(values: Array) -> Array:
        sums = jnp.concatenate([jnp.zeros((1, problem.dimension)), jnp.cumsum(values, axis=0)])
        return (sums[times + 1] - sums[jnp.maximum(times + 1 - window, 0)]) / window.astype(values.dtype)

    cosine, sine = window_average_of(jnp.cos(centres)), window_average_of(jnp.sin(centres))
    gradients = problem.smoothness(rounds) * (jnp.sin(outers) * cosine - jnp.cos(outers) * sine)
    return jnp.mean(jnp.sum(gradients**2, axis=1))


class Numbers(NamedTuple):
    """What differs between the lanes of a horizon's program."""

    speed: Any
    slowing: Any
    wobble: Any
    bias: Any
    bias_decay: Any
    window: Any
    step: Any
    key: Any  # the bits of a lane's key


def _growth_settings() -> list[tuple[str, str, str]]:
    """Drift, step and bias."""
    unbiased = [(drift, rule, "none") for drift in GROWTH_DRIFTS for rule in ("1/L", "1/(2Lw)")]
    return unbiased + [("log T", "1/(2Lw)", bias) for bias in BIASES if bias != "none"]


def growth_program(config: TheoryConfig, horizon: int) -> Program:
    """Regret per round at one horizon, for windows w = ⌈T^e⌉ and two ways to choose the step."""
    lanes = tuple(
        {"drift": drift, "rounds": horizon, "exponent": exponent, "window": int(np.ceil(horizon**exponent)),
         "step": rule, "bias": bias, "lane": lane}
        for drift, rule, bias in _growth_settings()
        for exponent in config.exponents
        for lane in range(config.growth_lanes)
    )  # fmt: skip
    windows = np.array([lane["window"] for lane in lanes], np.int32)
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(config.seed + 2), config.growth_lanes)))
    speed, slowing, wobble = np.array([_speeds(lane["drift"], lane["window"]) for lane in lanes]).T
    bias, bias_decay = np.array([BIASES[lane["bias"]] for lane in lanes]).T

    def advance(numbers: Numbers, state: Array) -> tuple[Array, dict[str, Array]]:
        problem = DriftingCosine(speed=numbers.speed, slowing=numbers.slowing, wobble=numbers.wobble)
        key = jax.random.wrap_key_data(numbers.key)
        oracle = biased_oracle(problem, numbers.bias, numbers.bias_decay)
        value = _grow(problem, oracle, numbers.window, numbers.step, key, horizon, int(windows.max()))
        return state, {"round": jnp.full((1,), horizon - 1), "regret_per_round": value[None]}

    return Program(
        name=f"growth of the regret, T = {horizon:,}",
        lanes=lanes,
        numbers=Numbers(
            speed, slowing, wobble, bias, bias_decay, windows,
            np.array([1.0 if lane["step"] == "1/L" else 1 / (2 * lane["window"]) for lane in lanes]),
            keys[[lane["lane"] for lane in lanes]],
        ),
        start=lambda numbers: jnp.zeros((), numbers.window.dtype),
        advance=advance,
        rounds=horizon,
        chunk=horizon,
    )  # fmt: skip


def measure_growth(program: Program, records: dict[str, np.ndarray]) -> pd.DataFrame:
    frame = pd.DataFrame(program.lanes).assign(regret_per_round=records["regret_per_round"][:, 0])
    variations = {
        (drift, window): float(regret.variation(_growth_problem(drift, window).suprema(program.rounds)))
        for drift, window in frame[["drift", "window"]].drop_duplicates().itertuples(index=False)
    }
    pairs = zip(frame["drift"], frame["window"], strict=True)
    return frame.assign(variation=[variations[pair] for pair in pairs])


def growth_slopes(growth: Any) -> pd.DataFrame:
    """Slopes of log(BLR/T) over log T on the larger half of the horizons, one per lane, then mean and error."""
    largest = np.sort(growth["rounds"].unique())[len(growth["rounds"].unique()) // 2 :]
    rows = []
    names = ["drift", "step", "bias", "exponent"]
    for keys, group in growth[growth["rounds"].isin(largest)].groupby(names):
        table = group.pivot_table(index="rounds", columns="lane", values="regret_per_round")
        slopes = np.polyfit(np.log(table.index.to_numpy()), np.log(table.to_numpy()), 1)[0]
        error = slopes.std(ddof=1) / np.sqrt(len(slopes))
        rows.append({**dict(zip(names, keys, strict=True)), "slope": slopes.mean(), "error": error})
    return pd.DataFrame(rows)


def judge_growth(growth: Any) -> Iterator[Check]:
    """Sublinear means that the regret per round falls with T; with linear variation it must not.

    With a step of 1/(2Lw) the proof gives BLR ≤ 4Lw(2Q + V₁) + Γ, so a claim is made where w·V₁ grows clearly more
    slowly than T, and the bias falls. A bias that stays has B_T ~ T: the iterates settle where ∇F = −b, so the regret
    per round must stay above a share of ‖b‖². With a step of 1/L and a growing window, stored gradients feed back with
    a delay and the iteration oscillates: D_{T,w} is not o(T), the corollary does not apply, and nothing is claimed.
    """
    largest = int(growth["rounds"].max())
    for row in growth_slopes(growth).to_dict("records"):
        exponent, slope, error = float(row["exponent"]), float(row["slope"]), float(row["error"])
        biased = "" if row["bias"] == "none" else f", bias {row['bias']}"
        rule = f"V₁ ~ {row['drift']}, step {row['step']}, w = T^{exponent:g}{biased}"
        window = int(np.ceil(largest**exponent))
        setting: Any = {"problem": "growth", "window": window, "drift": 0.0, "step": 0.0, "standard_error": error}
        growth_of_variation = {"log T": 0.0, "T^1/4": 0.25}.get(row["drift"], 1.0)
        claimed = row["step"] == "1/(2Lw)" and exponent + growth_of_variation < 0.8
        claimed &= row["bias"] != "stays"
        if row["drift"] == "T":
            name = f"counter-example, slope > −0.05: {rule}"
            yield Check(name, "rate", lhs=-slope, rhs=0.05, holds=-slope <= 0.05 + 3 * error, **setting)
        else:
            name = f"{'sublinear, slope < 0' if claimed else 'no claim'}: {rule}"
            yield Check(name, "rate", lhs=slope, rhs=0.0, holds=slope < -3 * error if claimed else None, **setting)
    yield from _judge_bias_that_stays(growth[growth["rounds"] == largest])


def _judge_bias_that_stays(growth: Any) -> Iterator[Check]:
    """½‖b‖² ≤ E BLR_w(T)/T at the largest horizon: smoothing does not remove a bias."""
    length, _ = BIASES["stays"]
    for window, here in growth[growth["bias"] == "stays"].groupby("window"):
        error = float(here["regret_per_round"].std(ddof=1) / np.sqrt(len(here)))
        value = float(here["regret_per_round"].mean())
        yield Check(
            "a bias that stays keeps the regret up: ½‖b‖² ≤ E BLR/T", "expectation", "biased oracle", int(window), 0.0,
            0.0, lhs=length**2 / 2, rhs=value, standard_error=error, holds=length**2 / 2 <= value + 3 * error,
        )  # fmt: skip
