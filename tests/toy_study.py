"""A study that costs nothing, for tests of the harness."""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from smoothfbo.harness import runner
from smoothfbo.harness.study import Measured, Program, Run, SecondStage, Study


@dataclasses.dataclass(frozen=True)
class Config:
    rounds: int = 15
    speed: float = 1.0


def begin(numbers):
    return {"place": numbers["start"], "round": jnp.zeros((), jnp.int32)}


@functools.cache  # one function for all runs, so that it is compiled once
def walking(speed):
    def advance(numbers, state):
        def step(state, _):
            key = jax.random.fold_in(jax.random.key(numbers["seed"]), state["round"])
            place = state["place"] + speed * jax.random.normal(key, dtype=jnp.float32)
            return {"place": place, "round": state["round"] + 1}, {"round": state["round"], "place": place}

        return jax.lax.scan(step, state, length=4)

    return advance


def toy(speed: float = 1.0, *, with_second_stage: bool = False) -> Study:
    """Three lanes of a random walk and one more, in two programs: cheap, with a state and with randomness.

    With a second stage, the seed of the lane that came furthest walks again, and so does the next.
    """
    config = Config(speed=speed)
    advance = walking(speed)

    def program(name, seeds):
        return Program(
            name=name,
            lanes=tuple({"method": name, "window": 1, "seed": seed} for seed in seeds),
            numbers={"seed": np.asarray(seeds, np.uint32), "start": np.asarray(seeds, np.float32) * 100},
            start=begin,
            advance=advance,
            rounds=config.rounds,
            chunk=4,
        )

    def measure(program, records):
        frames = [
            pd.DataFrame({**lane, **{name: values[index] for name, values in records.items()}})
            for index, lane in enumerate(program.lanes)
        ]
        rounds = pd.concat(frames, ignore_index=True)
        return Measured({"metrics": rounds, "lanes": rounds.groupby("seed", as_index=False)["place"].last()})

    def summarise(tables):
        return {"summary": {"rows": len(tables["metrics"]), "lanes": len(tables["lanes"])}}

    def choose(tables: Mapping[str, pd.DataFrame]) -> int:
        lanes = tables["lanes"]
        return int(lanes["seed"][lanes["place"].idxmax()])

    def later(choice: int) -> list[Program]:
        return [program("c", [choice, choice + 1])]

    second_stage = SecondStage(choose, later, 2 * 16) if with_second_stage else None
    return Study("toy", config, [program("a", [1, 2, 3]), program("b", [4])], measure, summarise, second_stage)


def execute(study, folder, on_records=lambda program, records: None, on_progress=lambda progress: None):
    runner.execute(study, Run(study.config, folder, "smoothfbo toy", on_progress, on_records))


class Kill(Exception):
    pass


def stop_after(chunks):
    """What watches the runner; it raises like a crash after some chunks."""
    seen = 0

    def on_records(program, records):
        nonlocal seen
        seen += 1
        if seen == chunks:
            raise Kill

    return on_records


def same_results(first, second):
    for name in ("metrics.parquet", "lanes.parquet"):
        pd.testing.assert_frame_equal(pd.read_parquet(first / name), pd.read_parquet(second / name), check_exact=True)
    assert (first / "summary.json").read_bytes() == (second / "summary.json").read_bytes()
