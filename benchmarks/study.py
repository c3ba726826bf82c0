"""Steps per second of the CartPole study, against the same algorithm in PyTorch; and what smoothing adds.

A step is one step of the environment, one Adam step of the Q networks and one of the world model. Evaluation is left
out on both sides, and so is compilation. Ten lanes are ten seeds: here one program over all cores, there a loop in one
process or a process for each core, whichever is faster.
"""

import multiprocessing
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import measure
from smoothfbo.harness.console import start_jax
from smoothfbo.studies.cartpole.config import CartPoleConfig

if TYPE_CHECKING:
    from smoothfbo.harness.charts import Chart

CONFIG = CartPoleConfig(environment=("drifting",), final_rate=(1.0,))
LANES, WINDOW = 10, 1_000
EAGER, COMPILED = "PyTorch, eager", "PyTorch, torch.compile"


class Candidate(NamedTuple):
    implementation: str
    how: str
    lanes: int
    steps: int  # of each lane in one measurement
    run: Callable[[], None]


class Workers:
    """Processes that share the lanes among them and wait for orders."""

    def __init__(self, processes: int, compiled: bool):
        from benchmarks import torch_study

        context = multiprocessing.get_context("spawn")
        self.connections, self.processes = [], []
        for index in range(processes):
            ours, theirs = context.Pipe()
            arguments = (theirs, CONFIG, range(index, LANES, processes), compiled)
            self.connections.append(ours)
            self.processes.append(context.Process(target=torch_study.work, args=arguments, daemon=True))
            self.processes[-1].start()

    def run(self, steps: int) -> None:
        for connection in self.connections:
            connection.send(steps)
        for connection in self.connections:
            connection.recv()

    def close(self) -> None:
        for connection, process in zip(self.connections, self.processes, strict=True):
            with suppress(BrokenPipeError):  # one that has failed is gone
                connection.send(0)
            process.join()


def run(quick: bool) -> measure.Result:
    start_jax()
    notes = ["PyTorch runs with one thread a process: with two a step takes as long, and longer on a busy machine."]
    with ExitStack() as stack:
        candidates = [
            smoothfbo("fbo", 1, 2_000),
            smoothfbo("fbo", LANES, 400 if quick else 1_500),
            smoothfbo("smooth-fbo", LANES, 400 if quick else 1_500, WINDOW),
            *pytorch(EAGER, stack, steps=50 if quick else 200),
        ]
        if quick:
            notes.append("torch.compile is left out of a quick run: compiling takes longer than all the rest.")
        else:
            try:
                candidates += pytorch(COMPILED, stack, steps=500)
            except Exception as error:
                notes.append(f"torch.compile does not work here: {str(error).strip().splitlines()[0]}")
        names = [f"{candidate.implementation}, {candidate.how}" for candidate in candidates]
        runs = {name: candidate.run for name, candidate in zip(names, candidates, strict=True)}
        seconds = measure.in_turns(runs, 3 if quick else 9)
    rates = [[c.lanes * c.steps / s for s in seconds[name]] for name, c in zip(names, candidates, strict=True)]
    return measure.Result(_ratios(candidates, rates), _cases(candidates, rates), notes)


def smoothfbo(method: str, lanes: int, steps: int, window: int = 1) -> Candidate:
    """The study's own program, its chunk without the evaluation."""
    import jax
    import jax.numpy as jnp

    from smoothfbo import runs
    from smoothfbo.harness.lanes import SpreadProgram
    from smoothfbo.studies.cartpole.algorithm import learner, replay
    from smoothfbo.studies.cartpole.methods import find
    from smoothfbo.studies.cartpole.program import programs, record

    config = replace(CONFIG, methods=(method,), seeds=lanes, window=(window,))

    def advance(numbers: Any, lane: Any) -> tuple[Any, dict[str, Any]]:
        source = replay(config, find(method), numbers)
        algorithm = learner(find(method), source, numbers, clip=config.clip, capacity=window, rounds=config.steps)
        state, trace = runs.run(algorithm, source, rounds=steps, state=lane.run, record=record)
        return lane._replace(run=state), {"means": jnp.mean(trace, axis=0)}

    program = replace(programs(config)[0], advance=advance, chunk=steps)
    if lanes == 1:  # on one device: spread over several, the others would run copies of it
        numbers = jax.tree.map(lambda leaf: leaf[0], program.numbers)
        state, compiled = jax.jit(program.start)(numbers), jax.jit(program.advance, donate_argnums=1)
        go_on = partial(compiled, numbers)
    else:
        spread = SpreadProgram(program)
        state, go_on = spread.start(), spread.advance

    def chunk() -> None:
        nonlocal state
        state, means = go_on(state)
        jax.block_until_ready(means)

    how = f"{method}, {lanes} lane{'s' * (lanes > 1)}" + f", w = {window}" * (window > 1)
    return Candidate("SmoothFBO", how, lanes, steps, chunk)


def pytorch(implementation: str, stack: ExitStack, *, steps: int) -> list[Candidate]:
    """One lane; ten lanes in a loop; ten lanes in a process for each core. `steps` are a core's in one measurement."""
    import torch

    from benchmarks import torch_study

    torch.set_num_threads(1)
    compiled = implementation == COMPILED
    lanes = [torch_study.Lane(CONFIG, seed, compiled) for seed in range(LANES)]
    lanes[0].run(2)  # compiled here, so that the processes find it in the cache
    processes = min(LANES, measure.machine()["cores"])
    workers = Workers(processes, compiled)
    stack.callback(workers.close)
    few, share = steps // LANES, steps * processes // LANES

    def loop() -> None:
        for lane in lanes:
            lane.run(few)

    return [
        Candidate(implementation, "1 lane", 1, steps, lambda: lanes[0].run(steps)),
        Candidate(implementation, f"{LANES} lanes, 1 process", LANES, few, loop),
        Candidate(implementation, f"{LANES} lanes, {processes} processes", LANES, share, lambda: workers.run(share)),
    ]


def _ratios(candidates: Sequence[Candidate], rates: Sequence[Sequence[float]]) -> list[measure.Ratio]:
    def fastest(implementation: str, lanes: int) -> int | None:
        """Which of the candidates it is, by the median."""
        chosen = [i for i, c in enumerate(candidates) if (c.implementation, c.lanes) == (implementation, lanes)]
        return max(chosen, key=lambda i: statistics.median(rates[i])) if chosen else None

    lines = []
    for peer, goals in ((EAGER, {1: "≥ 10", LANES: "≥ 25"}), (COMPILED, {1: "", LANES: ""})):
        for subject, lanes in enumerate(goals):  # the first two candidates
            if (reference := fastest(peer, lanes)) is None:
                continue
            name = f"{peer}, {candidates[reference].how}"
            what = "steps per second" + ", all lanes" * (lanes > 1)
            subject_name = f"SmoothFBO, {candidates[subject].how}"
            lines.append(measure.ratio(what, subject_name, name, rates[subject], rates[reference], goals[lanes]))
    plain, smooth = candidates[1].how, candidates[2].how
    lines.append(measure.ratio("seconds per step", smooth, plain, rates[1], rates[2], "≤ 1.05"))
    return lines


def _cases(candidates: Sequence[Candidate], rates: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    return [
        {
            "implementation": candidate.implementation,
            "how": candidate.how,
            "lanes": candidate.lanes,
            "steps_per_second": statistics.median(values),
            "steps_per_second_low": min(values),
            "steps_per_second_high": max(values),
        }
        for candidate, values in zip(candidates, rates, strict=True)
    ]


def charts(result: measure.Result) -> list["Chart"]:
    from smoothfbo.harness.charts import PALETTE, Chart, Series

    series = []
    for colour, implementation in zip(PALETTE, ("SmoothFBO", EAGER, COMPILED), strict=False):
        best: dict[int, float] = {}
        for case in result.cases:
            if case["implementation"] == implementation and "smooth" not in case["how"]:
                best[case["lanes"]] = max(best.get(case["lanes"], 0), case["steps_per_second"])
        if best:
            series.append(Series(implementation, [*best], [*best.values()], colour=colour, markers=True))
    return [
        Chart(
            "study", "CartPole study with FBO: steps per second, all lanes together",
            "Steps of environment, Q networks and world model, after compilation and without evaluation, over the "
            "number of lanes. Ten lanes of PyTorch run in one process or in one for each core, whichever is faster.",
            "lanes", "steps per second", series, log_x=True, log_y=True,
        )
    ]  # fmt: skip
