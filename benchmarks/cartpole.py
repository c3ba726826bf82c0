"""Steps per second of the CartPole study, evaluation included, after compilation.

    python benchmarks/cartpole.py --method fbo --lanes 20 --chunks 3
    python benchmarks/cartpole.py --method smooth-fbo --window 1000 --lanes 20 --chunks 3

On a CPU the lanes are spread over all cores. A chunk is 10,000 steps and one evaluation.
"""

import argparse
import time

from smoothfbo.commands.running import start_jax
from smoothfbo.experiments.cartpole_config import CartPoleConfig


def configuration(method: str, lanes: int, window: int, steps: int) -> CartPoleConfig:
    """The study with an evaluation after every `steps` steps."""
    return CartPoleConfig(
        methods=(method,), environment=("drifting",), seeds=lanes, window=(window,), evaluate_every=steps,
        steps=100 * steps,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--method", default="fbo")
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10_000, help="of a chunk")
    parser.add_argument("--chunks", type=int, default=3)
    options = parser.parse_args()
    start_jax()
    import jax

    from smoothfbo.experiments.cartpole import programs
    from smoothfbo.runs.lanes import SpreadProgram

    config = configuration(options.method, options.lanes, options.window, options.steps)
    begin = time.perf_counter()
    program = SpreadProgram(programs(config)[0])
    state, _ = program.advance(program.start())
    compiled = time.perf_counter()
    rates = []
    for _ in range(options.chunks):
        before = time.perf_counter()
        state, _ = program.advance(state)
        rates.append(options.steps / (time.perf_counter() - before))
    print(
        f"{options.method}, {options.lanes} lanes, window {options.window}, {jax.devices()}: compilation and first "
        f"chunk {compiled - begin:.1f} s; then {min(rates):,.0f} to {max(rates):,.0f} steps per second and lane, "
        f"{options.lanes * min(rates):,.0f} to {options.lanes * max(rates):,.0f} in all"
    )


if __name__ == "__main__":
    main()
