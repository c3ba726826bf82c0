"""Steps per second of the CartPole study on the CPU, evaluation included: FBO and SmoothFBO in turns, in one process.

    python -m benchmarks.cartpole                  # prints a table and writes benchmarks/results/cartpole.json
    python -m benchmarks.cartpole --lanes 20 --chunks 3

A chunk is 10,000 steps and an evaluation of 30 pairs of networks and of the newest, as in the study; lanes are spread
over all cores.
"""

import argparse
import time
from collections.abc import Callable

from benchmarks import measure
from smoothfbo.harness.console import start_jax
from smoothfbo.studies.cartpole.config import CartPoleConfig

WINDOW = 1_000


def configuration(method: str, lanes: int, window: int, steps: int) -> CartPoleConfig:
    """The study with an evaluation after every `steps` steps."""
    return CartPoleConfig(
        methods=(method,), environment=("drifting",), seeds=lanes, window=(window,), evaluate_every=steps,
        steps=100 * steps,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10_000, help="of a chunk")
    parser.add_argument("--chunks", type=int, default=5, help="that are timed of each method")
    options = parser.parse_args()
    start_jax()
    from smoothfbo.harness.lanes import SpreadProgram
    from smoothfbo.studies.cartpole.program import programs

    begin = time.perf_counter()

    def chunk_of(method: str) -> Callable[[], None]:
        program = SpreadProgram(programs(configuration(method, options.lanes, WINDOW, options.steps))[0])
        state = program.start()

        def chunk() -> None:
            nonlocal state
            state, _ = program.advance(state)

        return chunk

    seconds = measure.in_turns({method: chunk_of(method) for method in ("fbo", "smooth-fbo")}, options.chunks)
    total = options.lanes * options.steps
    cases = []
    for method, times in seconds.items():
        cases.append(
            {"method": method, "lanes": options.lanes, "steps": options.steps, **measure.summary(times),
             "steps_per_second": [total / each for each in times]}
        )  # fmt: skip
        low, high = total / max(times), total / min(times)
        print(f"{method:>10}, {options.lanes} lanes: {low:,.0f} to {high:,.0f} steps per second in all")
    ratio = measure.ratio(
        f"a step with w = {WINDOW:,}", "SmoothFBO", "FBO", seconds["smooth-fbo"], seconds["fbo"], "≤ 1.05"
    )
    print(f"SmoothFBO takes {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) times as long as FBO")
    measure.write(
        "cartpole", measure.Result([ratio], cases), command="python -m benchmarks.cartpole",
        seconds=time.perf_counter() - begin,
    )  # fmt: skip


if __name__ == "__main__":
    main()
