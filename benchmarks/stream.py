"""SmoothFBO on a table, side by side with river on the same features; and speed and memory on a large generated file.

    python benchmarks/stream.py electricity.csv --target nswdemand --extra-lags 48
    python benchmarks/stream.py electricity.csv --target class --extra-lags 48
    python benchmarks/stream.py --generate 5000000
    python benchmarks/stream.py --jumps 1      # or 5: how far the coefficients jump, in units of the noise
    python benchmarks/stream.py --event thousandth   # a wrong value, or another unit, at row 3,000

River learns after every row, SmoothFBO after every block; all predict a row before its target is used.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.folder import StreamFolder
from smoothfbo.stream.pipeline import StreamResults, run_stream
from smoothfbo.stream.reading import Encoder, open_table


def generate(path: Path, rows: int) -> None:
    """Ten columns; the coefficients jump every 100,000 rows."""
    random = np.random.default_rng(1)
    weights = random.normal(size=9)
    with open(path, "wb") as file:
        for start in range(0, rows, 100_000):
            size = min(100_000, rows - start)
            x = random.normal(size=(size, 9)).round(4)
            weights = weights + 0.3 * random.normal(size=9)
            columns = {f"x{i}": x[:, i] for i in range(9)} | {"y": (x @ weights + random.normal(size=size)).round(4)}
            pa.csv.write_csv(pa.table(columns), file, pa.csv.WriteOptions(include_header=start == 0))


def generate_jumps(path: Path, size: float, rows: int = 16_000) -> None:
    """Five features; the coefficients are drawn anew every 4,000 rows, `size` times as large as the noise."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 5))
    weights = np.repeat(size * random.normal(size=(rows // 4_000, 5)), 4_000, axis=0)
    columns = {f"x{i}": x[:, i] for i in range(5)} | {"y": (x * weights).sum(axis=1) + random.normal(size=rows)}
    pa.csv.write_csv(pa.table(columns), path)


EVENT = 3_000
EVENTS = ("wrong-value", "thousandth", "fahrenheit", "wrong-target")


def generate_event(path: Path, event: str, rows: int = 8_000) -> None:
    """Three features, of which the first has an excess error of 4 if it is lost; the noise has variance 0.01."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 3)) * [1, 5, 1] + [10, 20, 0]
    y = 2 * (x[:, 0] - 10) + 0.2 * (x[:, 1] - 20) + 0.5 * x[:, 2] + 0.1 * random.normal(size=rows)
    if event == "wrong-value":
        x[EVENT, 0] = -9999
    elif event == "wrong-target":
        y[EVENT] = -9999
    else:
        x[EVENT:, 0] = x[EVENT:, 0] / 1000 if event == "thousandth" else 32 + 1.8 * x[EVENT:, 0]
    columns = {f"x{i}": x[:, i] for i in range(3)} | {"y": y}
    pa.csv.write_csv(pa.table(columns), path)


def measure_event(config: StreamConfig, folder: Path) -> None:
    with StreamFolder(folder) as sink:
        run_stream(config, sink)
    table = pa.parquet.read_table(folder / "predictions.parquet")
    target = table["target"].to_numpy()
    for name in ("prediction", "all_past", "window_16", "rolling_ridge"):
        squares = (table[name].to_numpy() - target) ** 2
        shown = [
            f"rows {a} to {b} after: {np.mean(squares[EVENT + a : EVENT + b]) - 0.01:.4f}"
            for a, b in ((1, 100), (100, 500), (500, 1_000), (4_000, 5_000))
        ]
        print(f"  {name}: excess {', '.join(shown)}")


def measure(config: StreamConfig, folder: Path) -> StreamResults:
    with StreamFolder(folder) as sink:
        results = run_stream(config, sink)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    speed = f"{results.rows_per_second:,.0f} rows/s"
    print(f"{results.rows:,} rows, block {results.block}: {speed}, {memory:.2f} GiB resident")
    best = results.best_reference
    for name, error in sorted(results.errors.items(), key=lambda item: item[1]):
        mark = " (best fixed forgetting, in hindsight)" if name == best else ""
        print(f"  {error:.6g}  {error / results.errors[best or name]:.4f}  {name}{mark}")
    print(f"  changes at rows {[change['row'] for change in results.changes]}")
    return results


def compare_with_river(config: StreamConfig) -> None:
    from river import linear_model, preprocessing, tree

    table = open_table(config.data, target=config.target, block=config.first_rows, task=config.task)
    encoder = Encoder(table.schema, config.all_lags, config.horizon)
    portions = [encoder.encode(portion)[0] for portion in table]
    x = np.nan_to_num(np.concatenate([portion.features for portion in portions]))
    y = np.concatenate([portion.target for portion in portions])
    is_classification = table.schema.is_classification
    scaler = preprocessing.StandardScaler()
    if is_classification:
        models = {
            "river LogisticRegression, standardised": preprocessing.StandardScaler()
            | linear_model.LogisticRegression(),
            "river LogisticRegression, as it is": linear_model.LogisticRegression(),
            "river HoeffdingAdaptiveTreeClassifier": tree.HoeffdingAdaptiveTreeClassifier(seed=0),
        }
        y = y.astype(int)
    else:
        models = {
            "river LinearRegression, standardised": scaler | linear_model.LinearRegression(),
            "river LinearRegression, as it is": linear_model.LinearRegression(),
            "river HoeffdingAdaptiveTreeRegressor": tree.HoeffdingAdaptiveTreeRegressor(seed=0),
        }
    rows = [dict(zip(map(str, range(encoder.width)), row, strict=True)) for row in x.tolist()]
    for name, model in models.items():
        started, total = time.perf_counter(), 0.0
        for row, target in zip(rows, y.tolist(), strict=True):
            guess = model.predict_one(row)
            total += float(guess != target) if is_classification else ((guess or 0.0) - target) ** 2
            model.learn_one(row, target)
        seconds = time.perf_counter() - started
        print(f"  {total / len(y):.6g}  {name} ({len(y) / seconds:,.0f} rows/s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--target", default="y")
    parser.add_argument("--extra-lags", type=int, nargs="*", default=[])
    parser.add_argument("--block", type=int)
    parser.add_argument("--generate", type=int, help="rows of a generated table of ten columns")
    parser.add_argument("--jumps", type=float, help="a generated table whose coefficients jump, this far")
    parser.add_argument("--event", choices=EVENTS, help="a generated table with a wrong value or another unit")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if arguments.generate:
            generate(folder / "generated.csv", arguments.generate)
            arguments.data = str(folder / "generated.csv")
        if arguments.jumps:
            generate_jumps(folder / "jumps.csv", arguments.jumps)
            arguments.data = str(folder / "jumps.csv")
        if arguments.event:
            generate_event(folder / "event.csv", arguments.event)
            measure_event(StreamConfig(str(folder / "event.csv"), "y", lags=0), folder)
            return
        extra = tuple(arguments.extra_lags)
        config = StreamConfig(arguments.data, arguments.target, extra_lags=extra, block=arguments.block)
        measure(config, folder)
        if not arguments.generate and not arguments.jumps:
            compare_with_river(config)


if __name__ == "__main__":
    main()
