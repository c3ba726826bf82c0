"""How much faster several workers are, and whether a small model of the cost knew it before.

    python -m benchmarks --only workers            # about 2 minutes on two cores that do nothing else
    python -m benchmarks.workers                   # the stored result as the table of docs/how-to/scaling.md

FBO on the regression, in blocks of four lanes, by one, two and three local processes. Three short runs with one worker
give the constants of the model in `smoothfbo.harness.costs`: a until the first worker is ready, c for each block, q for
a round of a lane (p = 0), and m for measuring afterwards, in the driver. One with as many workers as cores gives s, by
how much all cores together are slower. The long runs are then predicted.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import measure
from smoothfbo.harness.charts import PALETTE, Chart, Series
from smoothfbo.harness.console import cores, start_jax
from smoothfbo.harness.costs import Costs, Device, Layout
from smoothfbo.harness.costs import seconds as predict
from smoothfbo.harness.study import Progress, Run

BLOCK = 4  # lanes
SHORT = ((1, 100), (1, 2_000), (3, 100))  # blocks and rounds of the runs that give the constants
LONG = (6, 2_000)
QUICK = (2, 500)
WORKERS = (1, 2, 3)


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
    rows, parallel, serial = [], [], []
    for blocks, rounds in SHORT:
        timed(blocks, rounds, 1)  # compiles, also what measures so many lanes and rounds in this process
        before, after = timed(blocks, rounds, 1)
        rows.append([1.0, blocks, blocks * BLOCK * rounds])
        parallel.append(before)
        serial.append(after)
    start, block, lane = map(float, np.linalg.solve(np.array(rows), np.array(parallel)))
    blocks, rounds = cores(), SHORT[1][1]
    timed(blocks, rounds, cores())
    all_busy = (timed(blocks, rounds, cores())[0] - start) / (block + rounds * BLOCK * lane)
    costs = Costs(Device(0.0, lane), start, block, max(serial) / (BLOCK * max(rounds for _, rounds in SHORT)))
    return costs._replace(all_busy=all_busy)


def run(quick: bool) -> measure.Result:
    start_jax(is_driver=True)
    costs = calibrate()
    blocks, rounds = QUICK if quick else LONG
    constants = {"start": costs.start, "block": costs.block, "round": costs.device.lane, "measuring": costs.measuring,
                 "all_busy": costs.all_busy}  # fmt: skip
    timed(blocks, rounds, max(WORKERS))  # compiles
    lanes, lines, cases = BLOCK * blocks, [], [{"part": "constants", **constants}]
    for workers in WORKERS:
        seconds = sum(timed(blocks, rounds, workers))
        said = predict(costs, Layout(lanes, rounds, blocks, workers, devices=cores(), cores=cores()))
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


def table(result: measure.Result) -> list[str]:
    """Lines of Markdown."""
    cases = [case for case in result.cases if case["part"] == "workers"]
    lines = ["| workers | seconds | predicted | speed over one worker |", "|---:|---:|---:|---:|"]
    for case in cases:
        speed = cases[0]["seconds"] / case["seconds"]
        lines.append(f"| {case['workers']} | {case['seconds']:.0f} | {case['predicted']:.0f} | {speed:.2f} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table(measure.read("workers"))))
