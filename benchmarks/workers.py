"""How much faster several workers are, and whether a small model of the cost knew it before.

    python -m benchmarks --only workers

FBO on the regression, in blocks of four lanes, by one, two and three local processes. On K cores, with W workers and B
blocks of n lanes each, R rounds take

    T(W) = a + ⌈B/W⌉ · max(1, W/K) · (c + n·R·e) + B·n·R·m

seconds: a until the first worker is ready, c for each block (tracing, a compiled program from the cache), e for a round
of a lane on one core, and m for measuring it afterwards, in the driver. Three short runs with one worker give a, c, e
and m; the long runs are then predicted.
"""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import measure
from smoothfbo.harness.charts import PALETTE, Chart, Series
from smoothfbo.harness.console import cores, start_jax
from smoothfbo.harness.study import Progress, Run

BLOCK = 4  # lanes
SHORT = ((1, 100), (1, 2_000), (3, 100))  # blocks and rounds of the runs that give the constants
LONG = (6, 4_000)
QUICK = (2, 500)
WORKERS = (1, 2, 3)


class Costs(NamedTuple):
    """The constants of the model, in seconds."""

    start: float  # a
    block: float  # c
    round: float  # e
    measuring: float  # m


def predict(costs: Costs, *, lanes: int, rounds: int, blocks: int, workers: int, slots: int) -> float:
    """Seconds of a run; `slots` is how many workers the machines run at full speed."""
    turns, slower = -(-blocks // workers), max(1.0, workers / slots)
    work = costs.block + lanes / blocks * rounds * costs.round
    return costs.start + turns * slower * work + lanes * rounds * costs.measuring


def timed(blocks: int, rounds: int, workers: int) -> tuple[float, float]:
    """Seconds until all records are there, and of what follows."""
    from smoothfbo.harness.workers.local import LocalWorkers
    from smoothfbo.studies.regression.command import ENTRY
    from smoothfbo.studies.regression.config import RegressionConfig

    config = RegressionConfig(
        methods=("fbo",), windows=(1,), rounds=rounds, seeds=BLOCK * blocks, first_seed=5_000, probe_draws=0
    )
    moments = [time.perf_counter()]

    def on_progress(progress: Progress) -> None:
        if progress.text == "measuring":
            moments.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        ENTRY.execute(Run(config, Path(folder), "", on_progress, workers=LocalWorkers(workers, BLOCK)))
    return moments[1] - moments[0], time.perf_counter() - moments[1]


def calibrate() -> Costs:
    timed(1, 50, 1)  # compiles
    rows, parallel, serial = [], [], []
    for blocks, rounds in SHORT:
        before, after = timed(blocks, rounds, 1)
        rows.append([1.0, blocks, blocks * BLOCK * rounds])
        parallel.append(before)
        serial.append(after)
    constants = np.linalg.solve(np.array(rows), np.array(parallel))
    return Costs(*map(float, constants), measuring=max(serial) / (BLOCK * max(rounds for _, rounds in SHORT)))


def run(quick: bool) -> measure.Result:
    start_jax(is_driver=True)
    costs = calibrate()
    blocks, rounds = QUICK if quick else LONG
    lanes, lines, cases = BLOCK * blocks, [], [{"part": "constants", **costs._asdict()}]
    for workers in WORKERS:
        seconds = sum(timed(blocks, rounds, workers))
        said = predict(costs, lanes=lanes, rounds=rounds, blocks=blocks, workers=workers, slots=cores())
        cases.append({"part": "workers", "workers": workers, "blocks": blocks, "lanes": lanes, "rounds": rounds,
                      "seconds": seconds, "predicted": said})  # fmt: skip
        off = max(said / seconds, seconds / said)
        name = f"{workers} worker(s)"
        lines.append(measure.ratio("prediction, off by a factor of", name, "measured", [off], [1.0], "≤ 1.25"))
        if workers > 1:
            alone = cases[1]["seconds"]
            lines.append(measure.ratio("speed", name, "1 worker", [alone], [seconds]))
    note = f"{cores()} cores: more than {cores()} workers cannot be faster."
    return measure.Result(lines, cases, [note])


def charts(result: measure.Result) -> list[Chart]:
    cases = [case for case in result.cases if case["part"] == "workers"]
    number = [case["workers"] for case in cases]
    lines = [
        Series(name, number, [case[name_of] for case in cases], colour=colour, markers=True)
        for name, name_of, colour in (("measured", "seconds", PALETTE[0]), ("predicted", "predicted", PALETTE[1]))
    ]
    return [Chart("workers", "Workers", "FBO on the regression.", "workers", "seconds", lines)]
