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
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.folder import StreamFolder
from smoothfbo.stream.groups.pipeline import run_series
from smoothfbo.stream.pipeline import StreamResults, run_stream

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


def run(config: StreamConfig, folder: Path) -> StreamResults:
    with StreamFolder(folder) as sink:
        results = run_series(config, sink)[0] if config.by else run_stream(config, sink)
    if results.fault is not None:
        raise results.fault
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=500, help="of each series")
    parser.add_argument("--one", type=int, default=200_000, help="rows of the single series")
    parser.add_argument("--turns", type=int, default=2, help="runs of the single series, before and after the many")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        generate(place / "many.csv", arguments.series, arguments.rows)
        generate(place / "one.csv", 1, arguments.one)
        one = {"data": str(place / "one.csv"), "target": "y", "time": "hour", "ignore": ("series",)}
        speeds: dict[str, list[float]] = {"one": [], "one, with references": []}
        many = None
        for turn in range(arguments.turns):
            for name, is_compared in (("one", False), ("one, with references", True)):
                results = run(StreamConfig(**one, references=is_compared), place / f"{turn}{is_compared}")
                speeds[name].append(results.rows_per_second)
                print(f"{name}: {results.rows:,} rows, {results.rows_per_second:,.0f} rows/s", flush=True)
            if many is None:
                many = run(StreamConfig(str(place / "many.csv"), "y", time="hour", by=("series",)), place / "many")
                assert many.series is not None
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
                print(
                    f"{many.series['count']:,} series: {many.rows:,} rows, {many.rows_per_second:,.0f} rows/s, "
                    f"{many.series['bytes_per_series'] / 1024:.0f} KiB per series, {memory:.2f} GiB resident",
                    flush=True,
                )
        assert many is not None
        ratios = {name: many.rows_per_second / float(np.mean(values)) for name, values in speeds.items()}
        for name, ratio in ratios.items():
            print(f"many / {name}: {ratio:.2f}")
        if arguments.out is not None:
            figures = vars(arguments) | {"out": None, "processors": os.cpu_count(), "rows_per_second": speeds}
            figures |= {"many": many.rows_per_second, "ratios": ratios, "GiB": memory, "summary": many.series}
            arguments.out.write_text(json.dumps(figures, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
