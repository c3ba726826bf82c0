"""Implicit and unrolled hypergradients against jaxopt, TorchOpt and higher: time, memory, error over dimensions.

The problem is that of benchmarks/ridge.py. All start from the same θ with the same tolerance and number of steps, in
single precision.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from benchmarks import measure
from benchmarks.ridge import (
    DRAWS,
    FAMILIES,
    LARGE,
    MAX_STEPS,
    RIDGE,
    SAMPLES,
    STEP,
    STEPS,
    TERMS,
    TOLERANCE,
    Draw,
    Ridge,
    load,
    make,
    save,
)

if TYPE_CHECKING:
    from smoothfbo.harness.charts import Chart

IMPLEMENTATIONS = ("SmoothFBO", "jaxopt", "TorchOpt", "higher")
ROUNDING = 1e-6  # errors below it are those of single precision
NOTES = (
    f"Errors: against exact values in double precision, of the series of {TERMS} terms and of the {STEPS} steps where "
    f"these are computed; root mean square over {DRAWS} draws, {DRAWS // 4} beyond d = {LARGE:,}. No line where both "
    f"are below {ROUNDING:g}, which is rounding.",
    "jaxopt has no Neumann series. TorchOpt and higher run with one thread or all, whichever is faster in a case.",
    "jaxopt unrolled: its update in a scan; its own run with unroll=True takes several times as long.",
    "Memory: the peak of a process during its second hypergradient, less what it had when that began.",
)
CAPTIONS = {
    "seconds": "One hypergradient after compilation, median and range over repetitions, in single precision.",
    "error": "Relative error against the exact value in double precision, root mean square over draws.",
    "memory": "Peak memory of one hypergradient in a process of its own, less what the process had before.",
}

Prepared: TypeAlias = Callable[[int], np.ndarray]  # the hypergradient of a draw, done when it returns


def smoothfbo(family: str, ridge: Ridge) -> Prepared:
    """The estimator as it is called in a round, its gradient alone: what is not asked for is not computed."""
    import jax
    import jax.numpy as jnp
    import optax

    import smoothfbo as sf
    from smoothfbo.functions.base import FunctionState
    from smoothfbo.hypergradients import ImplicitState, InnerState

    class InnerLoss:
        """With a form for all samples at once, which are those of the weights, in order: the peers have no other."""

        def __call__(self, log_weights: Any, v: Any, x: Any, y: tuple[Any, Any]) -> Any:
            del x
            target, number = y
            return 0.5 * jnp.exp(log_weights[number]) * (v - target) ** 2

        def batch(self, log_weights: Any, v: Any, x: Any, y: tuple[Any, Any]) -> Any:
            del x
            return 0.5 * jnp.exp(log_weights) * (v - y[0]) ** 2

    def outer_loss(log_weights: Any, v: Any, x: Any, y: Any) -> Any:
        del log_weights, x
        return 0.5 * (v - y) ** 2

    problem = sf.Problem(InnerLoss(), outer_loss)
    optimiser, steps = optax.sgd(STEP), STEPS if family == "unrolled" else 0
    inner = sf.Network.from_pair(
        lambda _, x: jnp.zeros_like(x), lambda parameters, x: x @ parameters, optimiser, steps,
        penalty=lambda parameters: 0.5 * RIDGE * jnp.sum(parameters**2),
    )  # fmt: skip
    estimator = {
        "conjugate gradients": lambda: sf.Implicit(
            inner, sf.ConjugateGradient(tolerance=TOLERANCE, max_steps=MAX_STEPS)
        ),
        "Neumann series": lambda: sf.Implicit(inner, sf.NeumannSeries(terms=TERMS, step=STEP)),
        "unrolled": lambda: sf.Unrolled(inner),
    }[family]()
    key = jax.random.key(0)  # nothing is drawn; passed in every call, it would take as long as all other arguments
    hypergradient = jax.jit(lambda *arguments: estimator(problem, *arguments, key)[0].gradient)
    ridge, numbers = jax.block_until_ready(jax.device_put(ridge)), jnp.arange(SAMPLES)

    def arguments(draw: Draw) -> tuple[Any, ...]:
        zero = jnp.zeros_like(draw.solution)
        data = sf.Data(sf.Samples(ridge.x, (draw.y, numbers)), sf.Samples(ridge.x_outer, draw.y_outer))
        memory = optimiser.init(zero)
        implicit = ImplicitState(FunctionState(draw.solution, memory), zero)
        return draw.log_weights, InnerState(FunctionState(zero, memory)) if steps else implicit, data

    every = list(map(arguments, ridge.draws))
    return lambda draw: np.asarray(hypergradient(*every[draw]))


def jaxopt(family: str, ridge: Ridge) -> Prepared:
    """Implicit differentiation of a given root, or steps of gradient descent in a scan."""
    import jax
    import jax.numpy as jnp
    import jaxopt

    def inner_loss(parameters: Any, log_weights: Any, x: Any, y: Any) -> Any:
        errors = jnp.exp(log_weights) * (x @ parameters - y) ** 2
        return 0.5 * jnp.mean(errors) + 0.5 * RIDGE * jnp.sum(parameters**2)

    def descend(start: Any, *arguments: Any) -> Any:
        # Not descent.run: its loop may end early, and keeps a copy of the data for every step to go back through.
        descent = jaxopt.GradientDescent(inner_loss, stepsize=STEP, acceleration=False, implicit_diff=False)
        first = jnp.zeros_like(start)
        first = jaxopt.OptStep(first, descent.init_state(first, *arguments))
        return jax.lax.scan(lambda step, _: (descent.update(*step, *arguments), None), first, length=STEPS)[0].params

    solve = partial(jaxopt.linear_solve.solve_cg, tol=TOLERANCE, maxiter=MAX_STEPS)
    root = jaxopt.implicit_diff.custom_root(jax.grad(inner_loss), solve=solve)
    solution = descend if family == "unrolled" else root(lambda parameters, log_weights, x, y: parameters)  # noqa: ARG005

    @jax.jit
    def hypergradient(x: Any, x_outer: Any, draw: Draw) -> Any:
        def outer_loss(log_weights: Any) -> Any:
            parameters = solution(draw.solution, log_weights, x, draw.y)
            return 0.5 * jnp.mean((x_outer @ parameters - draw.y_outer) ** 2)

        return jax.grad(outer_loss)(draw.log_weights)

    ridge = jax.block_until_ready(jax.device_put(ridge))
    return lambda draw: np.asarray(hypergradient(ridge.x, ridge.x_outer, ridge.draws[draw]))


def candidates() -> dict[tuple[str, str], Callable[[Ridge], Prepared]]:
    """By family and implementation."""
    from benchmarks import torch_peers

    ours = {(family, "SmoothFBO"): partial(smoothfbo, family) for family in FAMILIES}
    theirs = {(family, "jaxopt"): partial(jaxopt, family) for family in ("conjugate gradients", "unrolled")}
    return ours | theirs | torch_peers.CANDIDATES


def run(quick: bool) -> measure.Result:
    import jax

    from benchmarks.torch_peers import with_best_threads

    ratios, cases = [], []
    for dimension in (100, 10_000) if quick else (100, 1_000, 10_000, 100_000, 1_000_000):
        ridge, values = make(dimension)
        on_device = jax.device_put(ridge)  # one copy for all that run in JAX
        memory = {} if quick or dimension < LARGE else memory_of_all(ridge)
        for family in FAMILIES:
            prepared = {
                name: with_best_threads(prepare(ridge)) if name in ("TorchOpt", "higher") else prepare(on_device)
                for (each, name), prepare in candidates().items()
                if each == family
            }
            errors = {name: error(hypergradient, family, values) for name, hypergradient in prepared.items()}
            seconds = timed(prepared, 3 if quick or dimension > 100_000 else 7 if dimension > 1_000 else 21)
            ratios += compare(f"{family}, d = {dimension:,}", seconds, errors)
            cases += [
                {
                    "family": family, "implementation": name, "dimension": dimension, **measure.summary(seconds[name]),
                    "error": errors[name], "memory": memory.get((family, name)),
                    "error_ratio": errors[name] / min(value for other, value in errors.items() if other != name),
                }
                for name in prepared
            ]  # fmt: skip
    return measure.Result(ratios, cases, NOTES)


def error(hypergradient: Prepared, family: str, values: Sequence[dict[str, np.ndarray]]) -> float:
    """√ of the mean over draws of the squared relative error."""
    relative = [
        np.linalg.norm(hypergradient(number) - value[family]) / np.linalg.norm(value[family])
        for number, value in enumerate(values)
    ]
    return float(np.sqrt(np.mean(np.square(relative))))


def timed(prepared: Mapping[str, Prepared], repetitions: int) -> dict[str, list[float]]:
    """Seconds of one hypergradient; quick ones are repeated within a measurement."""
    calls, runs = {}, {}
    for name, hypergradient in prepared.items():
        begin = time.perf_counter()
        hypergradient(0)
        calls[name] = max(1, int(0.05 / (time.perf_counter() - begin)))

        def several(hypergradient: Prepared = hypergradient, times: int = calls[name]) -> None:
            for _ in range(times):
                hypergradient(0)

        runs[name] = several
    seconds = measure.in_turns(runs, repetitions)
    return {name: [each / calls[name] for each in seconds[name]] for name in prepared}


def compare(case: str, seconds: Mapping[str, Sequence[float]], errors: Mapping[str, float]) -> list[measure.Ratio]:
    """Our time and error against those of the peer that is best at it."""
    peers = [name for name in seconds if name != "SmoothFBO"]
    fastest = min(peers, key=lambda name: statistics.median(seconds[name]))
    best = min(peers, key=lambda name: errors[name])
    lines = [measure.ratio(f"time, {case}", "SmoothFBO", fastest, seconds["SmoothFBO"], seconds[fastest], "≤ 1.1")]
    if max(errors["SmoothFBO"], errors[best]) > ROUNDING:
        pair = [errors["SmoothFBO"]], [errors[best]]
        lines.append(measure.ratio(f"error, {case}", "SmoothFBO", best, *pair, "≤ 1.1"))
    return lines


def memory_of_all(ridge: Ridge) -> dict[tuple[str, str], int]:
    """Bytes that each candidate takes beyond what it is given, measured in processes of their own, two at a time."""
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed goes back to the system, and is not used again

    def one(name: tuple[str, str]) -> int:
        return measure.in_own_process(__spec__.name, *name, str(path), environment=environment)["memory"]

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        path = Path(folder) / "ridge.npz"
        save(path, ridge)
        names = list(candidates())
        return dict(zip(names, pool.map(one, names), strict=True))


def memory_of_one(family: str, implementation: str, path: Path) -> int:
    """The peak during a hypergradient, less what the process had when it began; compilation came before."""
    hypergradient = candidates()[family, implementation](load(path))
    hypergradient(0)
    time.sleep(0.3)  # XLA frees in the background
    begin = measure.peak_memory(anew=True)
    hypergradient(0)
    return max(0, measure.peak_memory() - begin)


def charts(result: measure.Result) -> list["Chart"]:
    from smoothfbo.harness.charts import PALETTE, Chart, Series

    def lines(family: str, what: str, factor: float) -> Iterator[Series]:
        for colour, name in zip(PALETTE, IMPLEMENTATIONS, strict=False):
            cases = [c for c in result.cases if (c["family"], c["implementation"]) == (family, name) and c[what]]
            x, *values = (
                [case["dimension"] for case in cases],
                *([factor * case.get(f"{what}{end}", case[what]) for case in cases] for end in ("", "_low", "_high")),
            )
            if cases:  # those that are dashed often lie upon the line before
                yield Series(name, x, *values, colour=colour, dashed=name in ("jaxopt", "higher"), markers=True)

    kinds = (("seconds", "time in ms", 1e3), ("error", "relative error", 1), ("memory", "memory in MB", 1e-6))
    return [
        Chart(
            f"hypergradients-{family.split()[0].lower()}-{what}",
            f"Hypergradient, {family}: {label.split(' in ')[0]}",
            CAPTIONS[what], "inner dimension d", label, list(lines(family, what, factor)), log_x=True, log_y=True,
        )
        for family in FAMILIES
        for what, label, factor in kinds
    ]  # fmt: skip


if __name__ == "__main__":
    print(json.dumps({"memory": memory_of_one(sys.argv[1], sys.argv[2], Path(sys.argv[3]))}))
