"""A plug-in's first rounds, in a process of their own: `python -m smoothfbo.studies.arena.trials`."""

import json
import math
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

from smoothfbo import checks
from smoothfbo.errors import NotAvailable, UsageError
from smoothfbo.runs import start
from smoothfbo.studies.arena import plugins
from smoothfbo.studies.arena.config import ArenaConfig
from smoothfbo.studies.arena.entries import ArenaMethod, ArenaProblem
from smoothfbo.studies.arena.grid import tuning_lanes
from smoothfbo.studies.arena.methods import METHODS
from smoothfbo.studies.arena.plugins import Plugin
from smoothfbo.studies.arena.problems import PROBLEMS
from smoothfbo.studies.arena.program import Part, Structure, block, method_and_source, numbers_of, run_key
from smoothfbo.testbeds import AbstractTestbed

ROUNDS = 10


def run_task(task: dict[str, Any]) -> str | None:
    """Load the file; with a method and a problem, also play a few rounds. What went wrong, or None."""
    try:
        entries = [entry for plugin in task["plugins"] for entry in plugins.load(Plugin(**plugin))]
        if "method" in task:
            method = _named((*METHODS, *entries), task["method"], ArenaMethod)
            problem = _named((*PROBLEMS, *entries), task["problem"], ArenaProblem)
            run_rounds(method, problem)
    except NotAvailable:
        return None  # the method does not apply there, and says so
    except (Exception, SystemExit) as error:
        return plugins.reason(error)
    return None


def _named(entries: Any, name: str, kind: type) -> Any:
    return next(entry for entry in entries if isinstance(entry, kind) and entry.name == name)


def run_rounds(method: ArenaMethod, problem: ArenaProblem) -> None:
    """A few rounds of one lane; raises where something is not as it must be."""
    testbed = problem.testbed(jnp.uint32(0))
    check_testbed(testbed)
    lane = next(tuning_lanes(method, problem, ArenaConfig()))
    numbers = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], numbers_of([Part(lane, method, {})]))
    algorithm, source = method_and_source(Structure.of(problem, method, lane.window), testbed, numbers)
    state = start(algorithm, source, testbed.initial(), run_key(numbers.seed))
    state, records = jax.jit(lambda state: block(testbed, algorithm, source, state, ROUNDS))(state)
    if int(records["skipped"]) == ROUNDS:
        raise UsageError(f"its hypergradient is not finite in any of the first {ROUNDS} rounds")


def check_testbed(testbed: Any) -> None:
    """The parts of the protocol that every method needs: shapes, and finite values at the start."""
    if not isinstance(testbed, AbstractTestbed):
        raise UsageError(f"build must return an AbstractTestbed, got a {type(testbed).__name__}")
    round, initial = jnp.zeros((), jnp.int32), testbed.initial()
    checks.require_floating(initial, "initial")
    for name, value in {
        "best": testbed.best(round),
        "project": testbed.project(initial),
        "gradient": testbed.gradient(round, initial),
    }.items():
        if not checks.same_shapes(value, initial):
            what = f"the structure, shapes and dtypes of initial, {checks.describe(initial)}"
            raise UsageError(f"{name} must return {what}, got {checks.describe(value)}")
        checks.require_finite(value, name)
    value = testbed.objective(round, initial)
    if jnp.shape(value) != () or not jnp.isfinite(value):
        raise UsageError(f"objective must return a finite scalar, got {value}")


def main() -> None:
    task = json.load(sys.stdin)
    limit_time(task["limit"])
    print(plugins.MARK + json.dumps(run_task(task)), flush=True)


def limit_time(seconds: float) -> None:
    """Allow so many seconds of processor time; then the system ends this process. Windows has no such limit."""
    try:
        import resource
    except ImportError:
        return
    soft = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
