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
from smoothfbo.online import Online
from smoothfbo.runs import run
from smoothfbo.smoothing import window_average
from smoothfbo.studies.theory.config import TheoryConfig
from smoothfbo.studies.theory.replay import ReplayedSamples, replay
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


class _Setting(NamedTuple):
    """What the regret grows under."""

    drift: str
    step: str
    bias: str
    smoothing: str


STORED, REPLAYED, SHIFTED = "stored", "replayed", "replayed, shifted samples"


def _growth_settings(replayed: bool) -> list[_Setting]:
    if replayed:
        return [*(_Setting(drift, "1/L", "none", REPLAYED) for drift in GROWTH_DRIFTS),
                _Setting("log T", "1/L", "none", SHIFTED)]  # fmt: skip
    unbiased = [_Setting(drift, rule, "none", STORED) for drift in GROWTH_DRIFTS for rule in ("1/L", "1/(2Lw)")]
    return unbiased + [_Setting("log T", "1/(2Lw)", bias, STORED) for bias in BIASES if bias != "none"]


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


def growth_slopes(growth: Any) -> pd.DataFrame:
    """Slopes of log(BLR/T) over log T on the larger half of the horizons, one per lane, then mean and error.

    `slope` is that of BLR_w, `slope_one` that of BLR_1, in which every round counts with its own objective.
    """
    largest = np.sort(growth["rounds"].unique())[len(growth["rounds"].unique()) // 2 :]
    rows = []
    names = [*_Setting._fields, "exponent"]
    for keys, group in growth[growth["rounds"].isin(largest)].groupby(names, sort=False):
        row = dict(zip(names, keys, strict=True))
        for suffix, values in (("", "regret_per_round"), ("_one", "regret_one_per_round")):
            table = group.pivot_table(index="rounds", columns="lane", values=values)
            slopes = np.polyfit(np.log(table.index.to_numpy()), np.log(table.to_numpy()), 1)[0]
            row |= {f"slope{suffix}": slopes.mean(), f"error{suffix}": slopes.std(ddof=1) / np.sqrt(len(slopes))}
        rows.append(row)
    return pd.DataFrame(rows)


def judge_growth(growth: Any) -> Iterator[Check]:
    """Sublinear means that the regret per round falls with T; where it must not fall, that is judged, too."""
    largest = int(growth["rounds"].max())
    for row in growth_slopes(growth).to_dict("records"):
        exponent = float(row["exponent"])
        biased = "" if row["bias"] == "none" else f", bias {row['bias']}"
        rule = f"V₁ ~ {row['drift']}, step {row['step']}, w = T^{exponent:g}{biased}"
        setting: Any = {"problem": "growth", "window": int(np.ceil(largest**exponent)), "drift": 0.0, "step": 0.0}
        yield from (_judge_stored if row["smoothing"] == STORED else _judge_replayed)(row, rule, setting)
    yield from _judge_bias_that_stays(growth[growth["rounds"] == largest])


def _judge_stored(row: dict[str, Any], rule: str, setting: Any) -> Iterator[Check]:
    """With linear variation BLR_w must not fall.

    With a step of 1/(2Lw) the proof gives BLR ≤ 4Lw(2Q + V₁) + Γ, so a claim is made where w·V₁ grows clearly more
    slowly than T, and the bias falls. A bias that stays has B_T ~ T: the iterates settle where ∇F = −b, so the regret
    per round must stay above a share of ‖b‖². With a step of 1/L and a growing window, stored gradients feed back with
    a delay and the iteration oscillates: D_{T,w} is not o(T), the corollary does not apply, and nothing is claimed.
    """
    growth_of_variation = {"log T": 0.0, "T^1/4": 0.25}.get(row["drift"], 1.0)
    claimed = row["step"] == "1/(2Lw)" and row["exponent"] + growth_of_variation < 0.8 and row["bias"] != "stays"
    if row["drift"] == "T":
        yield _stays("counter-example", rule, row["slope"], row["error"], setting)
    else:
        yield _falls("sublinear" if claimed else None, rule, row["slope"], row["error"], 0.0, setting)


def _judge_replayed(row: dict[str, Any], rule: str, setting: Any) -> Iterator[Check]:
    """Replay at the theorems' own step: BLR_w ≤ 2L(2Q + min(V₁, 2TQ/w)) + Tσ²/w must fall whatever V₁ does.

    With V₁ ~ log T a slope of −0.3 is asked for. BLR_1 ≤ 2 BLR_w + 2A falls where the ageing A within a window is
    o(T): w for V₁ ~ log T, w^1.5 for T^1/4. With a turn by a right angle in every window it must stay.
    """
    name = row["smoothing"]
    goal = -0.3 if row["drift"] == "log T" else 0.0
    yield _falls(name, rule, row["slope"], row["error"], goal, setting)
    own, one = f"{name}, BLR_1", (row["slope_one"], row["error_one"])
    if row["drift"] in ("T", "T/w, turn alone"):
        yield _stays(own, rule, *one, setting)
    else:
        power = {"log T": 1.0, "T^1/4": 1.5}.get(row["drift"], np.inf)
        claimed = power * row["exponent"] < 0.8
        yield _falls(own if claimed else None, rule if claimed else f"{own}, {rule}", *one, goal, setting)


def _falls(name: str | None, rule: str, slope: float, error: float, goal: float, setting: Any) -> Check:
    """A slope below `goal`: by three standard errors where that is 0, else up to them. Without a name, no claim."""
    holds = None if name is None else bool(slope < -3 * error if goal == 0 else slope <= goal + 3 * error)
    asked = "slope < 0" if goal == 0 else f"slope ≤ {goal:g}".replace("-", "−")
    title = f"no claim: {rule}" if name is None else f"{name}, {asked}: {rule}"
    return Check(title, "rate", lhs=slope, rhs=goal, standard_error=error, holds=holds, **setting)


def _stays(name: str, rule: str, slope: float, error: float, setting: Any) -> Check:
    title = f"{name}, slope > −0.05: {rule}"
    holds = bool(-slope <= 0.05 + 3 * error)
    return Check(title, "rate", lhs=-slope, rhs=0.05, standard_error=error, holds=holds, **setting)


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
