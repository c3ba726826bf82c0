"""Runs a study in compiled chunks, with progress, records and checkpoints between them; killed, it goes on."""

import fcntl
import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from smoothfbo.errors import UsageError
from smoothfbo.harness import store
from smoothfbo.harness.checkpoints import Checkpoints
from smoothfbo.harness.interruption import Interruption
from smoothfbo.harness.lanes import SpreadProgram
from smoothfbo.harness.study import Program, Study

CHECKPOINT_SHARE = 0.05  # of the time may go into checkpoints


class Stopped(Exception):
    """The user asked to stop; everything is kept."""


class Progress(NamedTuple):
    """Where a run stands, in lane-rounds (a round of one lane)."""

    name: str  # what is being done
    done: int
    total: int
    records: dict[str, np.ndarray] | None  # of the chunk just finished, axes (lane, row, …)
    program: Program | None


Tell = Callable[[Progress], None]


def execute(study: Study, folder: Path, command: str, tell: Tell) -> None:
    """Run what is not done yet and write metrics.parquet, lanes.parquet, arrays.npz and summary.json."""
    description = store.describe_run(study.experiment, command, study.config, [str(d) for d in jax.devices()])
    store.claim(folder, study.experiment, description | dict(study.inputs))
    work = folder / "progress"
    if is_finished(folder):
        shutil.rmtree(work, ignore_errors=True)  # a kill may have left it
        return
    store.prepare(work)
    total = sum(len(program.lanes) * program.chunks * program.chunk for program in study.programs)
    done = 0
    with _alone(work), Interruption() as interruption:
        for index, program in enumerate(study.programs):
            place = work / f"{index:03d}"
            _claim_place(place, program)
            done = _run_program(program, place, tell, done, total, interruption)
        if interruption.was_asked:
            raise Stopped
    tell(Progress("measuring", total, total, None, None))
    measured = [
        study.measure(program, read_records(program, work / f"{index:03d}"))
        for index, program in enumerate(study.programs)
    ]
    rounds = pd.concat([part.rounds for part in measured], ignore_index=True)
    lanes = pd.concat([part.lanes for part in measured], ignore_index=True)
    store.write_table(folder / "metrics.parquet", rounds)
    store.write_table(folder / "lanes.parquet", lanes)
    arrays = {name: values for part in measured for name, values in part.arrays.items()}
    if arrays:
        store.write_arrays(folder / "arrays.npz", arrays)
    store.write_json(folder / "summary.json", study.summarise(rounds, lanes))
    shutil.rmtree(work, ignore_errors=True)


def _claim_place(place: Path, program: Program) -> None:
    """What is stored there must be of these lanes: another version of the software may order them otherwise."""
    store.prepare(place)
    content = json.loads(json.dumps({"name": program.name, "lanes": program.lanes}))
    path = place / "program.json"
    if path.exists() and store.read_json(path) != content:
        raise UsageError(f"{place} holds records of other lanes (of another version?); give another folder with --out.")
    if not path.exists():
        store.write_json(path, content)


def is_finished(folder: Path) -> bool:
    return (folder / "summary.json").exists()


def read_records(program: Program, place: Path) -> dict[str, np.ndarray]:
    """All records of a finished program, without the rounds beyond its end."""
    chunks = [store.read_arrays(_records_file(place, chunk)) for chunk in range(program.chunks)]
    records = {name: np.concatenate([chunk[name] for chunk in chunks], axis=1) for name in chunks[0]}
    keep = records["round"][0] < program.rounds
    return {name: values[:, keep] for name, values in records.items()}


def _run_program(program: Program, place: Path, tell: Tell, before: int, total: int, interruption: Interruption) -> int:
    """Returns the lane-rounds done so far, this program's included."""
    per_chunk = len(program.lanes) * program.chunk
    checkpoints = Checkpoints(place / "checkpoints")
    if _records_until(place, program.chunks) == program.chunks:
        return before + per_chunk * program.chunks
    tell(Progress(f"compiling {program.name}", before, total, None, program))
    spread = SpreadProgram(program)
    chunk, state = _resume(spread, checkpoints, place, program.chunks)
    saved, cost = time.monotonic(), 0.0
    while chunk < program.chunks:
        state, records = spread.advance(state)
        store.write_arrays(_records_file(place, chunk), records)
        chunk += 1
        tell(Progress(program.name, before + per_chunk * chunk, total, records, program))
        stopping = interruption.was_asked
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
    recorded = _records_until(place, chunks)
    for done, state in checkpoints.load(spread.shapes()):
        if done <= recorded:
            return done, spread.put(state)
    return 0, spread.start()


def _records_file(place: Path, chunk: int) -> Path:
    return place / f"records-{chunk:06d}.npz"


def _records_until(place: Path, chunks: int) -> int:
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


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """One process at a time in a folder."""
    with (work / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another process is running in {work.parent}; wait for it, or stop it first.") from None
        yield
