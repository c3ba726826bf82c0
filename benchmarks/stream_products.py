"""What products of columns add, on generated tables on which they were chosen, and on development tables.

    python -m benchmarks.stream_products --electricity electricity.csv   # benchmarks/results/stream_products.json

The error with the two experts on products over that without them; all else is the same. Laws are linear functions of
six normal columns; a further column, or one of the six, says which law holds.
"""

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.stream import ROWS, encoded, geometric, losses
from benchmarks.stream_tables import Table, development
from smoothfbo.stream.learner.learner import Learner

GENERATED_ROWS, SEEDS = 3_000, (0, 1)


def _laws(x: np.ndarray, which: np.ndarray, laws: np.ndarray) -> np.ndarray:
    return (x * laws[which]).sum(axis=1)


def _target(name: str, x: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, dict[str, Any]]:
    """The target without noise, and further columns."""
    rows, laws = len(x), random.normal(size=(4, 6))
    time, bit = np.arange(rows) / rows, random.integers(0, 2, rows)
    four = random.integers(0, 4, rows)
    turn = np.cos(3 * time)[:, None], np.sin(3 * time)[:, None]
    turning = (x * (laws[0] * turn[0] + laws[1] * turn[1])).sum(axis=1)
    turned = (x * (laws[2] * turn[0] + laws[3] * turn[1])).sum(axis=1)
    targets: dict[str, Any] = {
        "chosen by a binary column": (_laws(x, bit, laws), {"bit": bit}),
        "chosen by text": (_laws(x, four, laws), {"text": np.array(["u", "v", "w", "x"])[four]}),
        "chosen by text, another text": (
            _laws(x, bit, laws),
            {"text": np.array(["no", "yes"])[bit], "other": random.choice(["p", "q", "r"], rows)},
        ),
        "chosen by a threshold": (_laws(x, (x[:, 0] > 0.3).astype(int), laws), {}),
        "chosen by two thresholds": (_laws(x, np.where(x[:, 0] > 0, (x[:, 1] > 0.5).astype(int), 2), laws), {}),
        "two turning laws": (np.where(bit > 0, turned, turning), {"bit": bit}),
        "two laws that jump": (_laws(x, bit + 2 * (time >= 0.5), laws), {"bit": bit}),
        "hinges": (2 * np.abs(x[:, 0]) + 2 * np.maximum(x[:, 1], 0) + x[:, 2], {}),
        "smooth": (np.sin(2 * x[:, 0]) + 2 * np.exp(-(x[:, 1] ** 2)) + x[:, 2], {}),
        "linear": (_laws(x, np.zeros(rows, int), laws), {}),
        "linear, turning": (turning, {}),
        "linear, jumping": (_laws(x, np.arange(rows) // 500 % 4, laws), {}),
        "random walk": (np.cumsum(random.normal(size=rows)), {}),
    }
    return targets[name]


NAMES = (
    "chosen by a binary column", "chosen by text", "chosen by text, another text", "chosen by a threshold",
    "chosen by two thresholds", "two turning laws", "two laws that jump", "hinges", "smooth", "linear",
    "linear, turning", "linear, jumping", "random walk",
)  # fmt: skip


def _frame(name: str, seed: int) -> Callable[[], Any]:
    def load() -> Any:
        import pandas as pd

        random = np.random.default_rng([seed, NAMES.index(name)])
        x = random.normal(size=(GENERATED_ROWS, 6))
        target, others = _target(name, x, random)
        columns = {f"x{j}": x[:, j] for j in range(6)} | others
        return pd.DataFrame(columns | {"y": target + 0.5 * random.normal(size=GENERATED_ROWS)})

    return load


def _errors(table: Table, folder: Path) -> tuple[float, float]:
    """With products and without them."""
    spec, rows = encoded(table, folder, ROWS)
    specs = [dataclasses.replace(spec, own=own, with_references=False, windows=()) for own in (spec.own, ())]
    one, other = (losses(Learner(each).process(rows).predictions, rows.target, spec).mean() for each in specs)
    return float(one), float(other)


def run(electricity: Path | None) -> measure.Result:
    tables = [(name, [Table(name, "y", _frame(name, seed)) for seed in SEEDS]) for name in NAMES]
    real = [(table.name, [table]) for table in development(electricity) if table.task == "regression"]
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, group in (("generated", tables), ("development", real)):
            for name, several in group:
                errors = [_errors(table, Path(folder)) for table in several]
                ratios = [one / other for one, other in errors]
                cases.append({"table": name, "kind": kind, "errors": errors, "ratio": geometric(ratios)})
                print(f"{name}: {cases[-1]['ratio']:.3f}", flush=True)
    lines = []
    for kind in ("generated", "development"):
        ratios = [case["ratio"] for case in cases if case["kind"] == kind]
        what = f"{len(ratios)} tables, {kind} (range over them)"
        value = geometric(ratios), min(ratios), max(ratios)
        lines.append(measure.Ratio(what, "with products", "without them", *value, "≤ 1.0"))
    return measure.Result(lines, cases)


def main() -> None:
    from benchmarks.__main__ import show

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--electricity", type=Path, help="the CSV file of the electricity table (Harries 1999)")
    begin, result = time.perf_counter(), run(parser.parse_args().electricity)
    command = "python -m benchmarks.stream_products --electricity electricity.csv"
    measure.write("stream_products", result, command=command, seconds=time.perf_counter() - begin)
    show("stream_products", result)


if __name__ == "__main__":
    main()
