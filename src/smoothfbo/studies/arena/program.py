"""The arena's programs, lanes over settings and seeds: first every setting on the tuning seeds, one program for each
problem and structure of a method, then each method's chosen setting on the fresh seeds."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from smoothfbo.algebra import norm, squared_norm
from smoothfbo.errors import UsageError
from smoothfbo.harness.study import Program
from smoothfbo.hypergradients import Oracle
from smoothfbo.online import Info, Online, RunState, State
from smoothfbo.runs import run, start
from smoothfbo.source import AbstractSource, RoundNumbers
from smoothfbo.studies.arena.config import CHUNKS, ArenaConfig
from smoothfbo.studies.arena.entries import ArenaMethod, ArenaProblem
from smoothfbo.studies.arena.grid import SETTING, Lane, Setting, tuning_lanes, with_seeds
from smoothfbo.types import Number

Knobs = Mapping[str, float]
# Compiling takes a third less time, and small programs run as fast.
COMPILER = {"xla_backend_optimization_level": 1}
FEWEST_LANES = 16  # lanes of a compiled call


class Numbers(NamedTuple):
    """What differs between the lanes of a program."""

    seed: Any
    rate: Any
    window: Any
    normalised: Any  # 1 or 0
    options: dict[str, Any]
    knobs: dict[str, Any]


class LaneState(NamedTuple):
    """The arrays of the testbed, drawn once, and the run on it."""

    testbed: Any
    run: RunState


@dataclass(frozen=True)
class Structure:
    """What lanes must share to be in one program."""

    problem: str
    build: Callable[..., Online]
    options: tuple[str, ...]
    window: int | None  # None: it is one of the lane's numbers

    @classmethod
    def of(cls, problem: ArenaProblem, method: ArenaMethod, window: int) -> "Structure":
        return cls(problem.name, method.build, tuple(sorted(method.options)), window if method.static_window else None)


class Part(NamedTuple):
    """A lane with its method, and with the knobs of its problem."""

    lane: Lane
    method: ArenaMethod
    knobs: Knobs

    def keys(self) -> dict[str, Any]:
        return self.lane.keys() | dict(self.knobs)


Pairs = Iterable[tuple[ArenaProblem, ArenaMethod]]


def programs(config: ArenaConfig, pairs: Pairs) -> list[Program]:
    """All settings on the tuning seeds. Methods of one structure are lanes of one program: FBO is SmoothFBO with a
    window of 1."""
    result = []
    for problem, group in groupby(pairs, key=itemgetter(0)):
        parts = [Part(lane, method, {}) for _, method in group for lane in tuning_lanes(method, problem, config)]
        result += grouped(config, problem, parts, problem.name)
    return result


def fresh_programs(config: ArenaConfig, pairs: Pairs, choice: list[dict[str, Any]]) -> list[Program]:
    """The chosen settings on the fresh seeds, a program for each method and problem: the same number of lanes for all,
    so that their times can be compared. The compilation is that of the tuning seeds."""
    chosen = {(row["problem"], row["method"]): Setting(*(row[name] for name in SETTING)) for row in choice}
    result = []
    for problem, method in pairs:
        setting = chosen[problem.name, method.name]
        parts = [Part(lane, method, {}) for lane in with_seeds(method, problem, setting, config.fresh)]
        result += grouped(config, problem, parts, f"fresh seeds, {problem.name}")
    return result


def grouped(config: ArenaConfig, problem: ArenaProblem, parts: list[Part], prefix: str) -> list[Program]:
    """One program for each structure among the parts."""
    groups: dict[Structure, list[Part]] = {}
    for part in parts:
        groups.setdefault(Structure.of(problem, part.method, part.lane.window), []).append(part)
    return [_program(config, problem, structure, group, prefix) for structure, group in groups.items()]


def _program(
    config: ArenaConfig, problem: ArenaProblem, structure: Structure, parts: list[Part], prefix: str
) -> Program:
    rounds = config.record_every * problem.stride
    if config.chunk % rounds:
        step = CHUNKS * rounds
        raise UsageError(f"`rounds` must be a multiple of {step} for the problem {problem.name}, got {config.rounds}.")

    def build(numbers: Numbers) -> Any:
        return problem.testbed(numbers.seed, **numbers.knobs)

    def begin(numbers: Numbers) -> LaneState:
        testbed = build(numbers)
        algorithm, source = method_and_source(structure, testbed, numbers)
        first = start(algorithm, source, testbed.initial(), run_key(numbers.seed))
        return LaneState(eqx.filter(testbed, eqx.is_array), first)

    def advance(numbers: Numbers, state: LaneState) -> tuple[LaneState, dict[str, Array]]:
        testbed = eqx.combine(state.testbed, without_arrays(build, numbers))
        algorithm, source = method_and_source(structure, testbed, numbers)

        def one(state: RunState, _: None) -> tuple[RunState, dict[str, Array]]:
            return block(testbed, algorithm, source, state, rounds)

        following, records = jax.lax.scan(one, state.run, length=config.chunk // rounds)
        return LaneState(state.testbed, following), records

    names = dict.fromkeys(part.method.name for part in parts)
    window = "" if structure.window is None else f", w = {structure.window}"
    return Program(
        name=f"{prefix}: {', '.join(names)}{window}",
        lanes=tuple(part.keys() for part in parts),
        numbers=numbers_of(parts),
        start=begin,
        advance=advance,
        rounds=config.rounds,
        chunk=config.chunk,
        cpu_options=COMPILER,
        width=max(FEWEST_LANES, config.seeds),
    )


def without_arrays(build: Callable[[Numbers], Any], numbers: Numbers) -> Any:
    """What is no array in a testbed; the draws of its seed are not computed."""
    shapes = eqx.filter_eval_shape(build, numbers)
    return eqx.filter(shapes, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))


def method_and_source(structure: Structure, testbed: Any, numbers: Numbers) -> tuple[Online, AbstractSource]:
    """The method on a testbed, and the data. An oracle sees the number of the round and no data."""
    window = numbers.window if structure.window is None else structure.window
    algorithm = structure.build(testbed, numbers.rate, window, **numbers.options)
    algorithm = Online(
        algorithm.problem,
        algorithm.estimator,
        optax.chain(algorithm.optimiser, with_length(numbers.rate, numbers.normalised)),
        algorithm.project,
    )
    source = RoundNumbers() if isinstance(algorithm.estimator, Oracle) else testbed.source()
    return algorithm, source


def with_length(length: Number, flag: Number) -> optax.GradientTransformation:
    """Changes u become length·u/‖u‖ where the flag is 1, and stay as they are where it is 0. A zero stays zero."""

    def update(change: PyTree, params: Any) -> PyTree:
        del params
        size = norm(change)
        factor = jnp.where((flag > 0) & (size > 0), length / jnp.where(size > 0, size, 1), 1)
        return jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), change)

    return optax.stateless(update)  # pyright: ignore[reportReturnType]


def block(
    testbed: Any, algorithm: Online, source: AbstractSource, state: RunState, rounds: int
) -> tuple[RunState, dict[str, Array]]:
    """Some rounds; the exact objective and its gradient are those of the first of them, squares are sums over all."""
    before = state.learner
    value = testbed.objective(before.round, before.outer)
    gradient = testbed.gradient(before.round, before.outer)

    def record(state: State, info: Info) -> tuple[Array, Array]:
        del state
        return info.gradient_norm, info.smoothed_norm

    state, (raw, smoothed) = run(algorithm, source, rounds=rounds, state=state, record=record)
    return state, {
        "round": before.round,
        "objective": value,
        "exact_squared": squared_norm(gradient),
        "raw_squared": jnp.sum(raw**2),
        "used_squared": jnp.sum(smoothed**2),
        "skipped": state.learner.skipped,
    }


def numbers_of(parts: list[Part]) -> Numbers:
    def column(values: Iterable[Any], dtype: Any) -> np.ndarray:
        return np.asarray(list(values), dtype)

    first = parts[0]
    return Numbers(
        seed=column((part.lane.seed for part in parts), np.uint32),
        rate=column((part.lane.rate for part in parts), np.float32),
        window=column((part.lane.window for part in parts), np.int32),
        normalised=column((part.lane.rule == "normalised" for part in parts), np.float32),
        options={name: column((p.method.options[name] for p in parts), np.float32) for name in first.method.options},
        knobs={name: column((part.knobs[name] for part in parts), np.float32) for name in first.knobs},
    )


def run_key(seed: Any) -> Array:
    """The key of a lane's data and initialisation: methods on the same seed see the same data."""
    return jax.random.fold_in(jax.random.key(seed), 1)
