"""Does a run that is killed half-way end with the same bits as one that is not? On whatever device jax finds.

python -m benchmarks.resume
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from smoothfbo.harness.console import start_jax
from smoothfbo.studies.cartpole.config import CartPoleConfig

CONFIG = CartPoleConfig(
    methods=("smooth-fbo",), environment=("drifting",), steps=10_000, evaluate_every=1_000, seeds=10, capacity=3_000
)
KILLED = 9  # the exit status of a process that ends itself without a word


def run(folder: Path, how: str) -> None:
    """The study, from its last checkpoint on: "whole", "kill" to end without a word half-way, "resume" to insist on a
    checkpoint."""
    start_jax()
    from smoothfbo.harness import chunks, runner
    from smoothfbo.harness.study import Progress, Run
    from smoothfbo.studies.cartpole.program import study

    def on_progress(progress: Progress) -> None:
        nonlocal seen
        total = progress.total or 0
        if how == "resume" and not progress.compiling and seen is None:
            seen = progress.done
            if seen <= total / 10:
                sys.exit("began anew: there was no checkpoint")
        if how == "kill" and progress.done >= total / 2:
            os._exit(KILLED)

    seen: int | None = None
    chunks.CHECKPOINT_SHARE = 1.0  # as often as they take no more time than the rest
    runner.execute(study(CONFIG), Run(CONFIG, folder, "python -m benchmarks.resume", on_progress))


def main() -> None:
    if len(sys.argv) > 1:
        run(Path(sys.argv[1]), sys.argv[2])
        return

    def child(folder: Path, how: str) -> int:
        return subprocess.run([sys.executable, "-m", "benchmarks.resume", str(folder), how], check=False).returncode

    with tempfile.TemporaryDirectory() as parent:
        whole, parts = Path(parent, "whole"), Path(parent, "parts")
        statuses = [child(whole, "whole"), child(parts, "kill"), child(parts, "resume")]
        if statuses != [0, KILLED, 0]:
            sys.exit(f"exit statuses {statuses} in place of {[0, KILLED, 0]}")
        tables = [pd.read_parquet(folder / "metrics.parquet") for folder in (whole, parts)]
    rows, columns = tables[0].shape
    same = tables[0].equals(tables[1])
    print(f"{rows} rows × {columns} columns: {'the same bits' if same else 'they differ'}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
