"""What a round costs: the time between the chunks of a program, kept beside the run. No jax here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from smoothfbo.harness import store
from smoothfbo.harness.study import Program, Run

FILE = "costs.json"
BLOCKS = "costs"  # the folder of those that workers have measured, a file for each block


class Stopwatch:
    """Seconds per round and lane of every problem, method and window: those of the fastest chunk of its program on the
    fresh seeds, which has the same number of lanes for all methods. The first chunk, which compiles, does not count.

    Times differ from run to run, so they stay out of summary.json; a run that is resumed adds to what was measured.
    """

    def __init__(self, file: Path, clock: Callable[[], float]):
        self._file, self._clock = file, clock
        self._costs: dict[str, float] = store.read_json(self._file) if self._file.exists() else {}
        self._last: tuple[str, float] | None = None

    def on_records(self, program: Program, records: dict[str, np.ndarray]) -> None:
        """After a chunk."""
        del records
        now = self._clock()
        if self._last is not None and self._last[0] == program.name:
            cost = (now - self._last[1]) / (len(program.lanes) * program.chunk)
            for name in dict.fromkeys(key(**_parts(lane)) for lane in program.lanes):
                self._costs[name] = min(cost, self._costs.get(name, np.inf))
            store.prepare(self._file.parent)
            store.write_json(self._file, self._costs)
        self._last = program.name, self._clock()


def read(folder: Path) -> dict[str, float]:
    """The smallest that was measured, by key."""
    costs: dict[str, float] = {}
    for file in [path for path in (folder / FILE, *sorted((folder / BLOCKS).glob("*.json"))) if path.exists()]:
        for name, cost in store.read_json(file).items():
            costs[name] = min(cost, costs.get(name, np.inf))
    return costs


def key(problem: str, method: str, window: int) -> str:
    return f"{problem}/{method}/{window}"


def _parts(lane: dict[str, Any]) -> dict[str, Any]:
    return {name: lane[name] for name in ("problem", "method", "window")}


def timed(run: Run, clock: Callable[[], float]) -> Run:
    """The same run, with a stopwatch."""
    if run.workers is not None:
        return run  # each of them has a stopwatch of its own
    watch = Stopwatch(run.folder / (FILE if run.block is None else f"{BLOCKS}/{run.block}.json"), clock)

    def on_records(program: Program, records: dict[str, np.ndarray]) -> None:
        lane = program.lanes[0]
        if lane["seed"] in run.config.fresh and "noise" not in lane:  # not of the tuning seeds, and not of the map
            watch.on_records(program, records)
        run.on_records(program, records)

    return run._replace(on_records=on_records)
