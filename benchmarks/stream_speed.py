"""Speed and memory of `smoothfbo stream` on a large generated table, references, bands and writing included.

    python -m benchmarks.stream_speed --rows 5000000 --out benchmarks/results/stream_speed.json

Rows per second, and per second of processor time, which other work on the machine hardly changes. What is compiled is
compiled before the first mark.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.stream import generate
from smoothfbo.harness.console import start_jax
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.folder import StreamFolder
from smoothfbo.stream.passes import StreamProgress
from smoothfbo.stream.pipeline import run_stream


def speed(rows: int) -> dict[str, Any]:
    marks: list[tuple[int, float]] = []

    def on_progress(progress: StreamProgress) -> None:
        marks.append((progress.rows, time.process_time()))

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        generate(folder / "generated.csv", rows)
        with StreamFolder(folder) as sink:
            results = run_stream(StreamConfig(str(folder / "generated.csv"), "y"), sink, on_progress)
    if results.fault is not None:
        raise results.fault
    (first, start), (last, end) = marks[0], marks[-1]
    return {
        "rows": results.rows,
        "rows_per_second": results.rows_per_second,
        "rows_per_processor_second": (last - first) / (end - start),
        "GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
        "load": os.getloadavg(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    start_jax(cpu_only=True)  # as the command does
    figures = speed(arguments.rows)
    print(json.dumps(figures, indent=2))
    if arguments.out is not None:
        command = f"python -m benchmarks.stream_speed --rows {arguments.rows}"
        head = {"command": command, "commit": measure.commit(), "machine": measure.machine()}
        arguments.out.write_text(json.dumps(head | figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
