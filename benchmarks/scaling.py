"""How throughput grows with lanes and rounds, what compilation costs, and how long a user waits for the first answer.

    python -m benchmarks.scaling 5 regression cartpole

prints what compilation costs in that process alone: repetitions for the small programs, and experiments besides.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks import measure
from smoothfbo.harness.charts import PALETTE, Chart, Series
from smoothfbo.harness.console import start_jax

LANES = {1: 50, 10: 50, 100: 10, 1_000: 2}  # and rounds of a timed call
ROUNDS = (100, 1_000, 10_000, 100_000, 1_000_000)
COMPILED = {"rounds": (100, 10_000, 1_000_000), "window": (1, 100, 10_000)}
USUAL = {"rounds": 10_000, "window": 100}
HELP_SECONDS, DEMO_SECONDS = 0.5, 30.0


def run(quick: bool) -> measure.Result:
    start_jax()
    repetitions = 3 if quick else 5
    parts = [
        start_up(5),
        compilation(repetitions, [] if quick else ["regression", "cartpole"]),
        over_rounds(ROUNDS[:-1] if quick else ROUNDS, repetitions),
        over_lanes({10: 50} if quick else LANES, repetitions),
    ]
    if not quick:
        parts.append(first_result())
    return measure.Result(*([each for part in parts for each in part[kind]] for kind in (0, 1)))


Part = tuple[list[measure.Ratio], list[dict[str, Any]]]


def over_lanes(lanes: Mapping[int, int], repetitions: int) -> Part:
    """FBO as in the demo of the regression, lanes spread over all cores."""
    from smoothfbo.harness.lanes import SpreadProgram
    from smoothfbo.studies.regression.presets import PRESETS
    from smoothfbo.studies.regression.program import programs

    def advance(number: int, rounds: int) -> Callable[[], None]:
        config = replace(PRESETS["demo"], methods=("fbo",), seeds=number, first_seed=5_000, probe_draws=0, chunk=rounds)
        program = SpreadProgram(programs(config)[0])
        state = program.start()

        def once() -> None:
            nonlocal state
            state, _ = program.advance(state)  # which waits for the records

        return once

    seconds = measure.in_turns({str(n): advance(n, rounds) for n, rounds in lanes.items()}, repetitions)
    rates = {n: [n * rounds / each for each in seconds[str(n)]] for n, rounds in lanes.items()}
    return _throughput("lanes", rates, "rounds of all lanes per second")


def over_rounds(numbers: Sequence[int], repetitions: int) -> Part:
    """One lane of the theory's cosine problem; short runs several times in a timed call."""
    import jax

    times = {rounds: max(1, 10_000 // rounds) for rounds in numbers}

    def whole(rounds: int) -> Callable[[], Any]:
        begin, go_on = tiny(rounds, USUAL["window"])
        state, go_on = begin(), jax.jit(go_on)
        return lambda: [jax.block_until_ready(go_on(state)) for _ in range(times[rounds])]

    seconds = measure.in_turns({str(n): whole(n) for n in numbers}, repetitions)
    rates = {n: [n * times[n] / each for each in seconds[str(n)]] for n in numbers}
    return _throughput("rounds", rates, "rounds per second")


def _throughput(over: str, rates: Mapping[int, Sequence[float]], unit: str) -> Part:
    cases = [
        {"part": f"throughput over {over}", over: number, "unit": unit, **_range(values)}
        for number, values in rates.items()
    ]
    first, *others = rates
    lines = [
        measure.ratio(f"throughput, {unit}", f"{n:,} {over}", f"{first:,}", rates[n], rates[first]) for n in others
    ]
    return lines, cases


def _range(rates: Sequence[float]) -> dict[str, float]:
    return {name.replace("seconds", "rate"): value for name, value in measure.summary(rates).items()}


def tiny(rounds: int, window: int) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """A lane of the theory's cosine problem: how it begins, and all of its rounds in one scan."""
    import jax
    import jax.numpy as jnp
    import optax

    from smoothfbo.online import Online
    from smoothfbo.runs import run as run_online
    from smoothfbo.runs import start
    from smoothfbo.smoothing import window_average
    from smoothfbo.testbeds import DriftingCosine

    problem = DriftingCosine()
    algorithm = Online(None, problem.oracle(), optax.chain(window_average(window), optax.sgd(1 / (2 * window))))

    def begin() -> Any:
        return start(algorithm, problem.source(), jnp.zeros(problem.dimension), jax.random.key(5_000))

    def go_on(state: Any) -> Any:
        record = lambda state, info: info.outer  # noqa: ARG005, E731
        return run_online(algorithm, problem.source(), rounds=rounds, state=state, record=record)

    return begin, go_on


def compilation(repetitions: int, experiments: Sequence[str]) -> Part:
    """In a process without a cache of compiled programs."""
    environment = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    found = measure.in_own_process("benchmarks.scaling", str(repetitions), *experiments, environment=environment)
    lines: list[measure.Ratio] = []
    cases = [
        {"part": "compilation", "program": name, **measure.summary(turns)} for name, turns in found["tiny"].items()
    ]
    for over, numbers in COMPILED.items():
        turns = {n: found["tiny"][_name(**{**USUAL, over: n})] for n in numbers}
        slowest, quickest = (end(turns, key=lambda n: sorted(turns[n])[repetitions // 2]) for end in (max, min))
        names = f"{over} {slowest:,}, slowest", f"{over} {quickest:,}, quickest"
        lines.append(measure.ratio(f"compile time over {over}", *names, turns[slowest], turns[quickest], "≤ 1.2"))
    cases += [{"part": "compilation", "program": name, "seconds": found[name]} for name in experiments]
    return lines, cases


def compile_all(repetitions: int, experiments: Sequence[str]) -> dict[str, Any]:
    """Seconds of tracing, lowering and compiling: many small programs in turns, and each experiment once."""
    import jax

    def once(function: Any, *arguments: Any) -> None:
        jax.clear_caches()
        jax.jit(function).lower(*arguments).compile()

    settings = [{**USUAL, over: number} for over, numbers in COMPILED.items() for number in numbers]
    candidates = {}
    for setting in settings:
        begin, go_on = tiny(**setting)
        state = jax.eval_shape(begin)
        candidates[_name(**setting)] = lambda go_on=go_on, state=state: once(go_on, state)
    seconds: dict[str, Any] = {"tiny": measure.in_turns(candidates, repetitions)}
    for name in experiments:
        program = experiment(name)
        start, advance = jax.vmap(program.start), jax.vmap(program.advance)
        state = jax.eval_shape(start, program.numbers)
        before = time.perf_counter()
        once(advance, program.numbers, state)
        seconds[name] = time.perf_counter() - before
    return seconds


def experiment(name: str) -> Any:
    """The program of FBO, as a preset has it."""
    from smoothfbo.studies.cartpole import presets as cartpole_presets
    from smoothfbo.studies.cartpole import program as cartpole
    from smoothfbo.studies.regression import presets as regression_presets
    from smoothfbo.studies.regression import program as regression

    if name == "regression":
        return regression.programs(replace(regression_presets.PRESETS["demo"], methods=("fbo",)))[0]
    return cartpole.programs(replace(cartpole_presets.PRESETS["quick"], methods=("fbo",), settings="none"))[0]


def _name(rounds: int, window: int) -> str:
    return f"cosine problem, {rounds} rounds, window {window}"


def start_up(repetitions: int) -> Part:
    """Help in a fresh process, and whether it imports jax."""
    commands = {"smoothfbo --help": ["--help"], "smoothfbo regression --help": ["regression", "--help"]}
    turns = measure.in_turns(
        {name: lambda arguments=a: _smoothfbo(*arguments) for name, a in commands.items()}, repetitions
    )
    lines, cases = [], []
    for name, arguments in commands.items():
        limit = [HELP_SECONDS] * repetitions
        lines.append(measure.ratio("time to the end", name, f"{HELP_SECONDS} s", turns[name], limit, "≤ 1"))
        imported = _smoothfbo(*arguments, options=("-X", "importtime")).stderr
        number = sum(line.split("|")[-1].strip().split(".")[0] in ("jax", "jaxlib") for line in imported.splitlines())
        lines.append(measure.Ratio("modules of jax imported", name, "none", number, number, number, "≤ 0"))
        cases.append({"part": "start-up", "command": name, **measure.summary(turns[name]), "jax_modules": number})
    return lines, cases


def first_result() -> Part:
    """The demo in a fresh process, after a run that has filled the cache of compiled programs."""
    seconds = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            before = time.perf_counter()
            _smoothfbo("regression", "--preset", "demo", "--out", f"{folder}/demo")
            seconds.append(time.perf_counter() - before)
    name = "smoothfbo regression --preset demo"
    line = measure.ratio("time to the end", name, f"{DEMO_SECONDS:g} s", seconds[1:], [DEMO_SECONDS], "≤ 1")
    case = {"part": "first result", "command": name, "seconds": seconds[1], "seconds_before": seconds[0]}
    return [line], [case]


def _smoothfbo(*arguments: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    # Without this process's own flags: how many devices there are is up to the command.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, *options, "-m", "smoothfbo", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def charts(result: measure.Result) -> list[Chart]:
    titles = {"lanes": "Lanes of one program", "rounds": "Rounds in one scan"}
    captions = {
        "lanes": "FBO on the regression, lanes spread over all cores. Median and range.",
        "rounds": "One lane of the cosine problem, window 100. Median and range.",
    }
    drawn = []
    for over, title in titles.items():
        cases = [case for case in result.cases if case["part"] == f"throughput over {over}"]
        middle, low, high = ([case[f"rate{end}"] for case in cases] for end in ("", "_low", "_high"))
        line = Series("FBO", [case[over] for case in cases], middle, low, high, PALETTE[0], markers=True)
        axes = over, cases[0]["unit"]
        drawn.append(Chart(f"scaling-{over}", title, captions[over], *axes, [line], log_x=True))
    return drawn


if __name__ == "__main__":
    print(json.dumps(compile_all(int(sys.argv[1]), sys.argv[2:])))
