"""The paper's statements, left side against right side, on problems where both are known: programs and measures."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from smoothfbo import regret
from smoothfbo.functions import Linear
from smoothfbo.harness.study import Measured, Program, Study
from smoothfbo.hypergradients import ConjugateGradient, Functional, Implicit
from smoothfbo.studies.theory.config import TheoryConfig
from smoothfbo.studies.theory.growth import growth_program, measure_growth
from smoothfbo.studies.theory.growth_verdicts import growth_slopes, judge_growth
from smoothfbo.studies.theory.lanes import cosine, estimated_lane, finite, oracle_lane, replayed_estimates_lane
from smoothfbo.studies.theory.replay import DESCENT, compare_with_stored, judge_descent, judge_replay, replayed_lane
from smoothfbo.studies.theory.statements import (
    TELESCOPING,
    Check,
    Columns,
    Judge,
    as_records,
    from_records,
    judge_statements,
    judge_trade_off,
)
from smoothfbo.testbeds import AbstractTestbed, DriftingCosine, FiniteBilevel

REPLAYED_ESTIMATES = "functional, replayed"
SUMS = ("regret", "proxy", "error", "noise", "tracking")


class Numbers(NamedTuple):
    """What differs between the lanes of a program."""

    speed: Any
    window: Any
    step: Any
    key: Any  # the bits of a lane's key


@dataclass(frozen=True)
class Setting:
    """A problem at one speed of drift: its program's name, how a lane runs, and what the theorems need to know."""

    name: str
    drift: float
    make: Callable[[Any], Any]
    lane: Callable[..., Columns]
    largest: float  # step of its theorem, as a fraction of 1/L
    judge: Callable[..., list[Check]]
    windows: tuple[int, ...]

    @property
    def program(self) -> str:
        return f"{self.name} problem, drift {self.drift:g}"

    def constants(self, rounds: int) -> dict[str, Any]:
        return _constants(self.make(self.drift), rounds)


def settings(config: TheoryConfig) -> list[Setting]:
    """Every problem at every speed; the speed is a number of the lane, so that all of them compile to one program."""
    estimated = partial(judge_statements, estimated=True)
    middle = config.windows[len(config.windows) // 2]  # a replayed window is a shape: one is compiled
    return [
        Setting(name, drift, make, lane, largest, judge, (middle,) if name == REPLAYED_ESTIMATES else config.windows)
        for drift in config.drifts
        for name, make, lane, largest, judge in (
            ("oracle", cosine, oracle_lane, 1.0, partial(judge_statements, estimated=False)),
            ("replayed", cosine, partial(replayed_lane, shifted=0.0), 1.0, judge_replay),
            ("replayed, shifted", cosine, partial(replayed_lane, shifted=1.0), 1.0, judge_replay),
            ("functional", partial(finite, points=4), estimated_lane, 0.8, estimated),
            (
                REPLAYED_ESTIMATES,
                partial(finite, points=4),
                partial(replayed_estimates_lane, replayed=middle),
                0.8,
                judge_descent,
            ),
            ("both terms", partial(finite, points=4, outer_coupling=0.5), estimated_lane, 0.8, estimated),
            ("linear predictor", partial(finite, points=6, features=3), estimated_lane, 0.8, estimated),
        )
    ]


def study(config: TheoryConfig) -> Study:
    with jax.enable_x64(True):
        programs = [_program(config, setting) for setting in settings(config)]
        programs += [
            growth_program(config, horizon, replayed=replayed)
            for replayed in (False, True)
            for horizon in config.horizons
        ]
    return Study("theory", config, programs, partial(measure, config), partial(summarise, config), double=True)


def _program(config: TheoryConfig, setting: Setting) -> Program:
    smoothness = setting.constants(config.rounds)["smoothness"]
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(config.seed), config.lanes)))
    lanes = tuple(
        {"problem": setting.name, "drift": setting.drift, "step": fraction * setting.largest, "window": window,
         "lane": lane}
        for window in setting.windows
        for fraction in fractions(config)
        for lane in range(config.lanes)
    )  # fmt: skip

    def column(name: str, dtype: Any) -> np.ndarray:
        return np.array([lane[name] for lane in lanes], dtype)

    def advance(numbers: Numbers, state: Array) -> tuple[Array, dict[str, Array]]:
        key = jax.random.wrap_key_data(numbers.key)
        problem = setting.make(numbers.speed)
        columns = setting.lane(problem, numbers.window, numbers.step, key, config.rounds, max(config.windows))
        rows = {name: jnp.broadcast_to(values, (config.rounds,)) for name, values in columns.items()}
        return state, rows | {"round": jnp.arange(config.rounds)}

    return Program(
        name=setting.program,
        lanes=lanes,
        numbers=Numbers(
            speed=column("drift", float),
            window=column("window", np.int32),
            step=column("step", float) / smoothness,
            key=keys[column("lane", int)],
        ),
        start=lambda numbers: jnp.zeros((), numbers.window.dtype),
        advance=advance,
        rounds=config.rounds,
        chunk=config.rounds,
    )  # fmt: skip


def fractions(config: TheoryConfig) -> list[float]:
    """Steps, as fractions of the largest one of the theorem."""
    return sorted({config.step, config.small_step}, reverse=True)


def _constants(problem: AbstractTestbed, rounds: int) -> dict[str, Any]:
    return {
        "smoothness": float(problem.smoothness(rounds)),
        "objective_bound": float(problem.objective_bound(rounds)),
        "variation": float(regret.variation(problem.suprema(rounds))),
        "variation_squared": float(regret.variation(problem.suprema(rounds), order=2)),
        "path_variation": float(regret.variation(problem.parameter_suprema(rounds), order=2)),
    }


def measure(config: TheoryConfig, program: Program, records: dict[str, np.ndarray]) -> Measured:
    """The sums of every lane, and the statements at every setting."""
    by_name = {setting.program: setting for setting in settings(config)}
    if program.name not in by_name:
        return Measured({"growth": measure_growth(program, records)})
    setting = by_name[program.name]
    problem, constants = setting.make(setting.drift), setting.constants(config.rounds)
    columns = {
        name: values[:, 0] if name in ("movement", "telescoping") else values
        for name, values in records.items()
        if name != "round"
    }
    frames, checks = [], []
    keys: Any = pd.DataFrame(program.lanes)
    for (window, step), group in keys.groupby(["window", "step"], sort=False):
        here = {name: values[group.index] for name, values in columns.items()}
        judge = Judge(setting.name, int(window), setting.drift, float(step), within=step <= 1 + 1e-12)
        alpha = step / constants["smoothness"]
        checks += setting.judge(judge, problem, here, constants, alpha, int(window))
        sums = {name: here[name].sum(axis=1) for name in SUMS if name in here}
        sums["bias"] = here["bias_now"].sum(axis=1) if "bias_now" in here else np.zeros(len(group))  # B_T
        bound = next(check.rhs for check in reversed(judge.checks) if check.name.startswith(("theorem", DESCENT)))
        frames.append(group.assign(**sums, bound=bound, **constants))
    tables = {"metrics": pd.concat(frames, ignore_index=True), "statements": pd.DataFrame(as_records(checks))}
    if setting.name == "functional" and setting.drift == config.drifts[-1]:
        tables["decomposition"] = _over_time(config, keys, columns)
    return Measured(tables)


def _over_time(config: TheoryConfig, keys: Any, columns: Columns) -> pd.DataFrame:
    """The terms of the error over time, for one lane, at a middle window and the smallest step."""
    window = config.windows[len(config.windows) // 2]
    (lane,) = keys.index[(keys["window"] == window) & (keys["step"] == keys["step"].min()) & (keys["lane"] == 0)]
    names = ("error", "noise", "bias", "tracking", "regret")
    frame = pd.DataFrame({name: np.sqrt(columns[name][lane]) for name in names})
    return frame.assign(round=np.arange(config.rounds), window=window)


def summarise(config: TheoryConfig, tables: Mapping[str, Any]) -> dict[str, Any]:
    checks = [
        *from_records(tables["statements"].to_dict("records")),
        *_arbitrary_sequences(config),
        _reduction(config),
        *judge_trade_off(_of_the_paper(tables["metrics"]), config),
        *compare_with_stored(tables["metrics"], {"replayed": "oracle", REPLAYED_ESTIMATES: "functional"}),
        *judge_growth(tables["growth"]),
    ]
    slopes = growth_slopes(tables["growth"]).to_dict("records")
    return {"summary": {"checks": as_records(checks), "growth_slopes": slopes}}


def _of_the_paper(lanes: Any) -> Any:
    """Without replay, where there is no trade-off: no tracking term grows."""
    return lanes[~lanes["problem"].str.contains("replayed")]


def _arbitrary_sequences(config: TheoryConfig) -> Iterator[Check]:
    """The telescoping lemma for sequences that no algorithm made: jumps all over the place."""
    windows, capacity = jnp.asarray(config.windows), max(config.windows)

    @jax.jit
    def sums(speed: Array, key: Array) -> Array:
        problem = DriftingCosine(speed=speed)
        points = 3 * jax.random.normal(key, (config.lanes, config.rounds + 1, problem.dimension))
        one = jax.vmap(lambda w, p: regret.telescoping(problem.objective, p, w, capacity=capacity), in_axes=(None, 0))
        return jax.vmap(one, in_axes=(0, None))(windows, points)

    for drift in config.drifts:
        problem = DriftingCosine(speed=drift)
        variation = float(regret.variation(problem.suprema(config.rounds)))
        bound = float(problem.objective_bound(config.rounds))
        values = np.asarray(sums(jnp.asarray(drift), jax.random.key(config.seed + 1)))
        for window, row in zip(config.windows, values, strict=True):
            judge = Judge("arbitrary sequences", window, drift, 0.0, within=True)
            judge.pathwise(TELESCOPING, row, 2 * config.rounds * bound / window + variation)
            yield from judge.checks


def _reduction(config: TheoryConfig) -> Check:
    """A linear inner predictor: the functional hypergradient is the parametric one (AID), to rounding."""
    problem = FiniteBilevel(points=6, features=3)
    family = Linear(problem.phi, ridge=1e-6)
    key = jax.random.key(config.seed)
    data, outer = problem.draw(jnp.asarray(0), key), jnp.linspace(-1.0, 1.0, problem.dimension)
    gradients = []
    estimators: list[Any] = [Functional(family, family), Implicit(family, ConjugateGradient(tolerance=1e-14))]
    for estimator in estimators:
        state = estimator.init(problem.problem(), outer, data._replace(final=None), key)
        estimate, _ = eqx.filter_jit(estimator)(problem.problem(), outer, state, data._replace(final=None), key)
        gradients.append(np.asarray(estimate.gradient))
    difference = np.linalg.norm(gradients[0] - gradients[1]) / np.linalg.norm(gradients[1])
    name = "linear reduction: functional = parametric hypergradient"
    return Check(
        name, "identity", "linear predictor", 1, 0.0, 0.0, float(difference), 1e-9, 0.0, bool(difference <= 1e-9)
    )
