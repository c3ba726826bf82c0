"""The CartPole study on one GPU: speed over lanes, kernels per step, and how far that is from what must be done.

    python -m benchmarks.gpu                       # prints a table and writes benchmarks/results/gpu.json
    python -m benchmarks.gpu --lanes 10 100

A chunk is 10,000 steps and an evaluation of 20 episodes, as in the study. Programs compile side by side.
"""

import argparse
import re
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from benchmarks import measure
from benchmarks.cartpole import configuration

STEPS = 10_000  # of a chunk
CASES = (("fbo", 1), ("fbo", 10), ("fbo", 100), ("fbo", 1_000), ("smooth-fbo", 10), ("smooth-fbo", 100))
WINDOW = 1_000


def operations_per_step(batch: int = 256, hidden: int = 32, model: int = 3) -> float:
    """Floating-point operations of the matrix products of one step of FBO, as in the compiled program.

    A pass of n inputs through a network with m weights is 2nm operations; a gradient in the weights takes two more
    such passes but for the first layer's inputs, one in the inputs takes one. Passes of the two Q networks: inner loss
    1 + 2, values after the inner step 1, targets at s' and at s_λ 1 + 1, hypergradient 1, and the action, of one input.
    Of the two models: 1 + 2.
    """
    q = 4 * hidden + hidden * hidden + hidden * 2
    world = 6 * model + model * model + model * 4
    return 2 * 2 * (batch * (7 * q - 4 * hidden + 3 * world - 6 * model) + q)


def bytes_per_step(batch: int = 256, hidden: int = 32, model: int = 3, smooth: bool = False) -> float:
    """What one step must read and write: networks, targets and Adam's two memories, and the mini-batch."""
    q = 2 * (5 * hidden + (hidden + 1) * hidden + (hidden + 1) * 2)
    world = 2 * (7 * model + (model + 1) * model + (model + 1) * 4)
    smoothing = 8 * world if smooth else 0  # the entering and the leaving gradient, two compensated sums
    return 4 * (2 * 4 * q + 2 * 3 * world + smoothing + 12 * batch)


def kernels_per_step(text: str) -> int:
    """Instructions that run a kernel, in the body of the loop over steps: the largest loop of the program."""
    bodies = re.findall(r"while\(.*?body=%?([\w.\-]+)", text)
    free = ("parameter(", "get-tuple-element(", "tuple(", "constant(", "bitcast(", "after-all(")
    counts = []
    for name in set(bodies):
        block = re.search(rf"^%?{re.escape(name)} .*?^}}", text, re.S | re.M)
        if block:
            lines = [line for line in block.group().splitlines()[1:] if " = " in line]
            counts.append(sum(not any(f" {word}" in line for word in free) for line in lines))
    return max(counts, default=0)


class Prepared(NamedTuple):
    """A compiled program, ready to be timed."""

    facts: dict[str, Any]
    start: Callable[[], Any]
    advance: Callable[[Any], tuple[Any, Any]]


def prepare(method: str, lanes: int) -> Prepared:
    import jax

    from smoothfbo.studies.cartpole.program import programs

    (program,) = programs(configuration(method, lanes, WINDOW, STEPS))
    begin = time.perf_counter()
    options = dict(program.gpu_options)
    first = jax.jit(jax.vmap(program.start), compiler_options=options)
    start = first.lower(program.numbers).compile()
    state = jax.eval_shape(first, program.numbers)
    following = jax.jit(jax.vmap(program.advance), donate_argnums=1, compiler_options=options)
    advance = following.lower(program.numbers, state).compile()
    facts = {
        "method": method,
        "lanes": lanes,
        "window": WINDOW if method.startswith("smooth") else 1,
        "device": jax.devices()[0].device_kind,
        "kernels": kernels_per_step(advance.as_text()),
        "compile_seconds": time.perf_counter() - begin,  # side by side with the others
    }
    return Prepared(facts, lambda: start(program.numbers), lambda state: advance(program.numbers, state))


def timed(prepared: Prepared, chunks: int) -> dict[str, Any]:
    import jax

    state, _ = prepared.advance(prepared.start())
    seconds = []
    for _ in range(chunks):
        jax.block_until_ready(state)
        before = time.perf_counter()
        state, row = prepared.advance(state)
        jax.block_until_ready(row)
        seconds.append(time.perf_counter() - before)
    step = statistics.median(seconds) / STEPS
    speed = {"microseconds_per_step": 1e6 * step, "steps_per_second": prepared.facts["lanes"] / step}
    return prepared.facts | measure.summary(seconds) | speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, nargs="+", help="only these numbers of lanes")
    parser.add_argument("--chunks", type=int, default=3)
    parser.add_argument("--operations", type=float, default=67e12, help="of the device, per second (H200, float32)")
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="of the device, bytes per second (H200)")
    options = parser.parse_args()
    chosen = [each for each in CASES if options.lanes is None or each[1] in options.lanes]
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(chosen)) as pool:
        ready = list(pool.map(lambda each: prepare(*each), chosen))
    cases = []
    for prepared in ready:
        lanes, smooth = prepared.facts["lanes"], prepared.facts["window"] > 1
        entry = timed(prepared, 1 if lanes >= 1_000 else options.chunks)
        compute = lanes * operations_per_step() / options.operations
        traffic = lanes * bytes_per_step(smooth=smooth) / options.bandwidth
        entry["floor_microseconds"] = 1e6 * max(compute, traffic)
        entry["gap"] = entry["microseconds_per_step"] / entry["floor_microseconds"]
        cases.append(entry)
        print(
            f"{entry['method']:>10} {lanes:5,} lanes: {entry['steps_per_second']:10,.0f} steps/s, "
            f"{entry['microseconds_per_step']:7.1f} µs and {entry['kernels']} kernels per step, "
            f"{entry['gap']:8,.0f} × the floor",
            flush=True,
        )
    measure.write(
        "gpu", measure.Result([], cases), command="python -m benchmarks.gpu", seconds=time.perf_counter() - begin
    )


if __name__ == "__main__":
    main()
