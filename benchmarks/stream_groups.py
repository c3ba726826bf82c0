"""Many series against one: rows per second of `smoothfbo stream --by`, and of the same learner on one series.

    python benchmarks/stream_groups.py                            # 10,000 series of 500 rows
    python benchmarks/stream_groups.py --series 1000 --rows 500

Both tables have the same columns: four features, the target, and its last four values as further features. The series
come mixed, one row of each at a time. Both runs write all predictions; reading and writing count, compiling does not.
The single series is run without references, too, because many series have none. The runs take turns, so that other
work on the machine slows both.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.folder import StreamFolder
from smoothfbo.stream.groups.pipeline import run_series
from smoothfbo.stream.passes import StreamProgress, StreamResults
from smoothfbo.stream.pipeline import run_stream

FEATURES = 4


def generate(path: Path, series: int, rows: int, seed: int = 0) -> None:
    """Each series has its own scale and its own coefficients, which drift."""
    random = np.random.default_rng(seed)
    weights = random.normal(size=(series, FEATURES))
    scale = 10.0 ** random.uniform(0, 3, size=series)
    names = np.array([f"s{number:06d}" for number in range(series)])
    step = max(100_000 // series, 1)  # hours that are written at once
    with open(path, "wb") as file:
        for start in range(0, rows, step):
            hours = min(step, rows - start)
            x = random.normal(size=(hours, series, FEATURES))
            moved = weights + np.cumsum(0.02 * random.normal(size=x.shape), axis=0)
            weights = moved[-1]
            y = scale * (np.sum(x * moved, axis=2) + random.normal(size=(hours, series)))
            columns = {"hour": np.repeat(np.arange(start, start + hours), series), "series": np.tile(names, hours)}
            columns |= {f"x{i}": x[:, :, i].ravel().round(4) for i in range(FEATURES)} | {"y": y.ravel().round(4)}
            pa.csv.write_csv(pa.table(columns), file, pa.csv.WriteOptions(include_header=start == 0))


class Run(NamedTuple):
    results: StreamResults
    rows_per_processor_second: float
    """As the results' rows per second, but of the time that all threads together worked."""

    @property
    def line(self) -> str:
        rows, speed = self.results.rows, self.results.rows_per_second
        return f"{rows:,} rows, {speed:,.0f} rows/s, {self.rows_per_processor_second:,.0f} rows per processor second"


def run(config: StreamConfig, folder: Path) -> Run:
    marks: list[tuple[int, float]] = []

    def on_progress(progress: StreamProgress) -> None:
        marks.append((progress.rows, time.process_time()))

    with StreamFolder(folder) as sink:
        ran = run_series(config, sink, on_progress)[0] if config.by else run_stream(config, sink, on_progress)
    if ran.fault is not None:
        raise ran.fault
    (first, start), (last, end) = marks[0], marks[-1]
    return Run(ran, (last - first) / (end - start))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=500, help="of each series")
    parser.add_argument("--one", type=int, default=200_000, help="rows of the single series")
    parser.add_argument(
        "--turns", type=int, default=1, help="runs of the many; the single series is run before and after each"
    )
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        generate(place / "many.csv", arguments.series, arguments.rows)
        generate(place / "one.csv", 1, arguments.one)
        one = {"data": str(place / "one.csv"), "target": "y", "time": "hour", "ignore": ("series",)}
        runs: dict[str, list[Run]] = {"one": [], "one, with references": [], "many": []}

        def add(name: str, config: StreamConfig) -> None:
            runs[name].append(run(config, place / f"{name} {len(runs[name])}"))
            print(f"{name}: {runs[name][-1].line}", flush=True)

        for turn in range(arguments.turns + 1):
            if turn:
                add("many", StreamConfig(str(place / "many.csv"), "y", time="hour", by=("series",)))
            add("one", StreamConfig(**one, references=False))
            add("one, with references", StreamConfig(**one))
    many, memory = runs["many"][0].results, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    assert many.series is not None
    print(f"{many.series['bytes_per_series'] / 1024:.0f} KiB per series, {memory:.2f} GiB resident")
    speeds = {name: [each.results.rows_per_second for each in some] for name, some in runs.items()}
    efforts = {name: [each.rows_per_processor_second for each in some] for name, some in runs.items()}
    means = {name: (float(np.mean(speeds[name])), float(np.mean(efforts[name]))) for name in runs}
    for name in ("one", "one, with references"):
        ratio, effort = (ours / theirs for ours, theirs in zip(means["many"], means[name], strict=True))
        print(f"many / {name}: {ratio:.2f} times the rows per second, {effort:.2f} per processor second")
    if arguments.out is not None:
        figures = vars(arguments) | {"out": None, "processors": os.cpu_count(), "load": os.getloadavg()}
        figures |= {"rows_per_second": speeds, "rows_per_processor_second": efforts, "GiB": memory}
        arguments.out.write_text(json.dumps(figures | {"series": many.series}, indent=2) + "\n")


if __name__ == "__main__":
    main()
