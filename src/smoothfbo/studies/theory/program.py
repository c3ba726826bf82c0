"""The paper's statements, left side against right side, on problems where both are known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jaxtyping import Array

from smoothfbo import regret
from smoothfbo.functions import Linear, Network
from smoothfbo.hypergradients import ConjugateGradient, Functional, Implicit
from smoothfbo.online import Online, run
from smoothfbo.smoothing import window_average
from smoothfbo.studies.theory.config import TheoryConfig
from smoothfbo.studies.theory.growth import grow, judge_growth
from smoothfbo.studies.theory.statements import (
    TELESCOPING,
    Check,
    Columns,
    Judge,
    judge_statements,
    judge_trade_off,
)
from smoothfbo.testbeds import AbstractTestbed, DriftingCosine, FiniteBilevel

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Results:
    checks: list[Check]
    lanes: pd.DataFrame  # one row per problem, setting and lane
    decomposition: pd.DataFrame  # one run over time
    growth: pd.DataFrame  # regret per round over horizons, one row per lane


def _oracle_lane(
    problem: DriftingCosine, window: Array, step: Array, key: Array, rounds: int, capacity: int
) -> Columns:
    """Algorithm 1: a stochastic oracle, smoothed."""
    optimiser = optax.chain(window_average(window, capacity=capacity), optax.sgd(step))
    final, trace = run(
        Online(None, problem.oracle(), optimiser),
        problem.source(),
        jnp.zeros(problem.dimension),
        rounds=rounds,
        key=key,
        record=lambda state, info: (info.outer, info.gradient, info.smoothed),  # noqa: ARG005
    )
    outers, hypergradients, used = trace
    return _measure(problem, outers, final.learner.outer, hypergradients, used, window, capacity, None)


def _estimated_lane(
    problem: FiniteBilevel, window: Array, step: Array, key: Array, rounds: int, capacity: int
) -> Columns:
    """Algorithm 3: FuncGrad with a few steps of inner and adjoint optimisation, so that the bias is real."""
    features = problem.features.shape[1]
    curvature = jnp.trace(problem.features.T @ problem.features / problem.points)
    family = Network.from_pair(
        lambda key, x: jnp.zeros(features),  # noqa: ARG005
        lambda params, x: params @ problem.phi(x),
        optax.sgd(1 / curvature),
        steps=3,
    )
    final, trace = run(
        Online(
            problem.problem(),
            Functional(family, family),
            optax.chain(window_average(window, capacity=capacity), optax.sgd(step)),
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
    (outers, hypergradients, used), inners, adjoints = trace
    expected = jax.vmap(problem.expected_hypergradient)(outers, adjoints)
    columns = _measure(problem, outers, final.learner.outer, hypergradients, used, window, capacity, expected)
    times = jnp.arange(rounds)
    solutions = jax.vmap(problem.solution)(times, outers)
    exact = jax.vmap(problem.gradient)(times, outers)
    return columns | {
        "conditional_variance": jax.vmap(problem.variance)(outers, adjoints),
        "inner_error": 0.5 * jnp.mean((inners - solutions) ** 2, axis=1),
        "adjoint_error": 0.5 * jnp.mean((adjoints - jax.vmap(problem.adjoint_of)(times, inners)) ** 2, axis=1),
        "bias_now": regret.squared_norms(expected - exact),
        "noise_now": regret.squared_norms(hypergradients - expected),
    }


def _measure(
    problem: Any,
    outers: Array,
    last: Array,
    hypergradients: Array,
    used: Array,
    window: Array,
    capacity: int,
    expected: Array | None,
) -> Columns:
    """Everything the statements need of one run: squares per round, and sums that are not sums over rounds."""
    terms = regret.decompose(
        problem.gradient, outers, hypergradients, used, window, expected=expected, capacity=capacity
    )
    target = used - terms.error
    everything = jnp.concatenate([outers, last[None]])
    return {
        "regret": regret.squared_norms(target),
        "proxy": regret.squared_norms(used),
        "error": regret.squared_norms(terms.error),
        "noise": regret.squared_norms(terms.noise),
        "bias": regret.squared_norms(terms.bias),
        "tracking": regret.squared_norms(terms.tracking),
        "historical": regret.squared_norms(target + terms.tracking),
        "inner_product": jnp.sum(terms.error * used, axis=1),
        "mismatch": regret.squared_norms(terms.error - terms.noise - terms.bias - terms.tracking),
        "movement": regret.movement(outers, window, capacity=capacity),
        "telescoping": regret.telescoping(problem.objective, everything, window, capacity=capacity),
    }


@eqx.filter_jit
def _all_lanes(
    lane: Callable[..., Columns], problem: Any, windows: Array, steps: Array, keys: Array, rounds: int, capacity: int
) -> Columns:
    """Every window × step × lane of one problem in one program."""
    over_lanes = jax.vmap(lambda w, s, k: lane(problem, w, s, k, rounds, capacity), in_axes=(None, None, 0))
    return jax.vmap(jax.vmap(over_lanes, in_axes=(None, 0, None)), in_axes=(0, None, None))(windows, steps, keys)


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
    for hypergradient in estimators:
        state = hypergradient.init(problem.problem(), outer, data._replace(final=None), key)
        estimate, _ = eqx.filter_jit(hypergradient)(problem.problem(), outer, state, data._replace(final=None), key)
        gradients.append(np.asarray(estimate.gradient))
    difference = np.linalg.norm(gradients[0] - gradients[1]) / np.linalg.norm(gradients[1])
    name = "linear reduction: functional = parametric hypergradient"
    return Check(
        name, "identity", "linear predictor", 1, 0.0, 0.0, float(difference), 1e-9, 0.0, bool(difference <= 1e-9)
    )


def _problems(drift: float) -> Iterator[tuple[str, Any, Callable[..., Columns], float, bool]]:
    """Name, problem, lane, the largest step of its theorem as a fraction of 1/L, and whether it is estimated."""
    speed = jnp.asarray(drift)
    yield "oracle", DriftingCosine(speed=speed), _oracle_lane, 1.0, False
    yield "functional", FiniteBilevel(points=4, speed=speed), _estimated_lane, 0.8, True
    yield "linear predictor", FiniteBilevel(points=6, features=3, speed=speed), _estimated_lane, 0.8, True


def _constants(problem: AbstractTestbed, rounds: int) -> dict[str, Any]:
    return {
        "smoothness": float(problem.smoothness(rounds)),
        "objective_bound": float(problem.objective_bound(rounds)),
        "variation": float(regret.variation(problem.suprema(rounds))),
        "variation_squared": float(regret.variation(problem.suprema(rounds), order=2)),
        "path_variation": float(regret.variation(problem.parameter_suprema(rounds), order=2)),
    }


SUMS = ("regret", "proxy", "error", "noise", "tracking")


def run_theory(config: TheoryConfig, progress: Progress) -> Results:
    """Run everything. `progress` is told what is being done and which fraction of the whole is finished."""
    with jax.enable_x64(True):
        return _run(config, progress)


def _run(config: TheoryConfig, progress: Progress) -> Results:
    checks: list[Check] = []
    frames, decomposition = [], pd.DataFrame()
    fractions = sorted({config.step, config.small_step}, reverse=True)
    capacity = max(config.windows)
    keys = jax.random.split(jax.random.key(config.seed), config.lanes)
    units = len(config.drifts) * 3 + len(config.horizons) + 1
    done = 0
    for drift in config.drifts:
        for name, problem, lane, largest, estimated in _problems(drift):
            progress(f"{name} problem, drift {drift:g}", done / units)
            constants = _constants(problem, config.rounds)
            steps = [fraction * largest / constants["smoothness"] for fraction in fractions]
            columns = _all_lanes(
                lane, problem, jnp.asarray(config.windows), jnp.asarray(steps), keys, config.rounds, capacity
            )
            columns = {key: np.asarray(values) for key, values in columns.items()}
            for (i, window), (j, step) in _product(config.windows, steps):
                here = {key: values[i, j] for key, values in columns.items()}
                fraction = fractions[j] * largest  # of 1/L, as configured: also a key of the tables
                judge = Judge(name, window, drift, fraction, within=fraction <= 1 + 1e-12)
                checks += judge_statements(judge, problem, here, constants, step, window, estimated)
                sums = {key: here[key].sum(axis=1) for key in SUMS}
                sums["bias"] = here["bias_now"].sum(axis=1) if "bias_now" in here else np.zeros(config.lanes)  # B_T
                setting = {"problem": name, "drift": drift, "step": fraction, "window": window}
                bound = next(c.rhs for c in reversed(judge.checks) if c.name.startswith("theorem"))
                frames.append(
                    pd.DataFrame({**setting, "lane": np.arange(config.lanes), **sums, "bound": bound, **constants})
                )
            if name == "functional" and drift == config.drifts[-1]:
                decomposition = _over_time(columns, config, fractions)
            done += 1
    progress("arbitrary sequences", done / units)
    checks += list(_arbitrary_sequences(config))
    checks.append(_reduction(config))
    lanes = pd.concat(frames, ignore_index=True)
    checks += list(judge_trade_off(lanes, config))
    growth = []
    for horizon in config.horizons:
        progress(f"growth of the regret, T = {horizon:,}", (done + 1) / units)
        growth.append(grow(config, horizon))
        done += 1
    grown = pd.concat(growth, ignore_index=True)
    checks += list(judge_growth(grown))
    progress("done", 1.0)
    return Results(checks, lanes, decomposition, grown)


def _product(windows: tuple[int, ...], steps: list[float]) -> Iterator[tuple[tuple[int, int], tuple[int, float]]]:
    for first in enumerate(windows):
        for second in enumerate(steps):
            yield first, second


def _over_time(columns: Columns, config: TheoryConfig, fractions: list[float]) -> pd.DataFrame:
    """The terms of the error over time, for one lane, at a middle window and the smaller step."""
    i, j = len(config.windows) // 2, len(fractions) - 1
    names = ("error", "noise", "bias", "tracking", "regret")
    frame = pd.DataFrame({name: np.sqrt(columns[name][i, j, 0]) for name in names})
    return frame.assign(round=np.arange(config.rounds), window=config.windows[i])
