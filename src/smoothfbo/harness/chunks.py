"""One program in one folder: compiled chunks, with records and checkpoints between them; a killed one resumes."""

import json
import shutil
import time
import warnings
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.harness import store
from smoothfbo.harness.checkpoints import Checkpoints
from smoothfbo.harness.folders import Stopped
from smoothfbo.harness.lanes import SpreadProgram
from smoothfbo.harness.study import Program, Progress, Run

CHECKPOINT_SHARE = 0.05  # of the time may go into checkpoints


@runtime_checkable
class Stop(Protocol):
    """Whether somebody asked to stop."""

    @property
    def is_requested(self) -> bool: ...


def claim_lanes(place: Path, program: Program) -> None:
    """Take the place for these lanes. Raise if it holds others: another version may order them otherwise."""
    store.prepare(place)
    content = json.loads(json.dumps({"name": program.name, "lanes": program.lanes}))
    path = place / "program.json"
    if path.exists() and store.read_json(path) != content:
        raise UsageError(f"{place} holds records of other lanes (of another version?); give another folder.")
    if not path.exists():
        store.write_json(path, content)


def run_program(program: Program, place: Path, run: Run, before: int, total: int, stop: Stop) -> int:
    """Returns the lane-rounds done so far, this program's included."""
    per_chunk = len(program.lanes) * program.chunk
    checkpoints = Checkpoints(place / "checkpoints")
    if records_until(place, program.chunks) == program.chunks:
        return before + per_chunk * program.chunks
    run.on_progress(Progress(f"compiling {program.name}", before, total, "rounds", compiling=True))
    spread = SpreadProgram(program)
    chunk, state = _resume(spread, checkpoints, place, program.chunks)
    saved, cost = time.monotonic(), 0.0
    while chunk < program.chunks:
        state, records = spread.advance(state)
        store.write_arrays(_records_file(place, chunk), records)
        chunk += 1
        run.on_records(program, records)
        run.on_progress(Progress(program.name, before + per_chunk * chunk, total, "rounds"))
        stopping = stop.is_requested
        if chunk < program.chunks and (stopping or time.monotonic() - saved > cost / CHECKPOINT_SHARE):
            begin = time.monotonic()
            checkpoints.save(chunk, spread.fetch(state))
            saved = time.monotonic()
            cost = saved - begin
        if stopping:
            raise Stopped
    shutil.rmtree(checkpoints.folder, ignore_errors=True)
    return before + per_chunk * program.chunks


def _resume(spread: SpreadProgram, checkpoints: Checkpoints, place: Path, chunks: int) -> tuple[int, Any]:
    """The newest intact checkpoint whose records are all there, or the start."""
    recorded = records_until(place, chunks)
    for done, state in checkpoints.load(spread.shapes()):
        if done <= recorded:
            return done, spread.put(state)
    return 0, spread.start()


def _records_file(place: Path, chunk: int) -> Path:
    return place / f"records-{chunk:06d}.npz"


def records_count(place: Path) -> int:
    """How many chunks have a file; what is in them is not looked at."""
    return len(list(place.glob("records-*.npz")))


def records_until(place: Path, chunks: int) -> int:
    """How many chunks, from the first on, have their records; a file that cannot be read counts as missing."""
    for chunk in range(chunks):
        path = _records_file(place, chunk)
        if not path.exists():
            return chunk
        try:
            store.read_arrays(path)
        except Exception as error:
            why = store.reason(error.__cause__ or error)
            warnings.warn(f"{path} is damaged ({why}); its rounds are run again", stacklevel=2)
            return chunk
    return chunks


def read_records(program: Program, place: Path) -> dict[str, np.ndarray]:
    """All records of a finished program, without the rounds beyond its end."""
    chunks = [store.read_arrays(_records_file(place, chunk)) for chunk in range(program.chunks)]
    records = {name: np.concatenate([chunk[name] for chunk in chunks], axis=1) for name in chunks[0]}
    keep = records["round"][0] < program.rounds
    return {name: values[:, keep] for name, values in records.items()}
