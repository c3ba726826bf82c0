"""Runs a study in compiled chunks, with progress, records and checkpoints between them; a killed run resumes."""

import contextlib
import json
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from smoothfbo.errors import UsageError
from smoothfbo.harness import folders, store
from smoothfbo.harness.checkpoints import Checkpoints
from smoothfbo.harness.folders import Stopped
from smoothfbo.harness.interruption import Interruption
from smoothfbo.harness.lanes import SpreadProgram
from smoothfbo.harness.study import Measured, Program, Progress, Run, Study

CHECKPOINT_SHARE = 0.05  # of the time may go into checkpoints


def execute(study: Study, run: Run) -> None:
    """Run what is not done yet and write the study's tables, arrays.npz and, last, summary.json."""
    devices = [f"{device} ({device.device_kind})" for device in jax.devices()]
    description = folders.describe(study.name, run.command, study.config, devices)
    folders.claim(run.folder, description | dict(study.inputs))
    work = run.folder / "progress"
    if folders.is_finished(run.folder):
        shutil.rmtree(work, ignore_errors=True)  # a kill may have left it
        return
    precision = jax.enable_x64(True) if study.double else contextlib.nullcontext()
    with folders.alone(work), precision:
        _run_programs(study, run, work)
        total = _lane_rounds(study)
        run.on_progress(Progress("measuring", total, total, "rounds", compiling=True))
        measured = [
            study.measure(program, read_records(program, work / f"{index:03d}"))
            for index, program in enumerate(study.programs)
        ]
        _write_results(study, run.folder, measured)
    shutil.rmtree(work, ignore_errors=True)


def _lane_rounds(study: Study) -> int:
    """Rounds of all lanes together."""
    return sum(len(program.lanes) * program.chunks * program.chunk for program in study.programs)


def _run_programs(study: Study, run: Run, work: Path) -> None:
    done, total = 0, _lane_rounds(study)
    with Interruption() as interruption:
        for index, program in enumerate(study.programs):
            place = work / f"{index:03d}"
            _claim_place(place, program)
            done = _run_program(program, place, run, done, total, interruption)
        if interruption.is_requested:
            raise Stopped


def _write_results(study: Study, folder: Path, measured: list[Measured]) -> None:
    names = dict.fromkeys(name for part in measured for name in part.tables)
    tables = {
        name: pd.concat([part.tables[name] for part in measured if name in part.tables], ignore_index=True)
        for name in names
    }
    for name, table in tables.items():
        store.write_table(folder / f"{name}.parquet", table)
    arrays = {name: values for part in measured for name, values in part.arrays.items()}
    if arrays:
        store.write_arrays(folder / "arrays.npz", arrays)
    folders.write_summary(folder, study.summarise(tables))


def _claim_place(place: Path, program: Program) -> None:
    """What is stored there must be of these lanes: another version of the software may order them otherwise."""
    store.prepare(place)
    content = json.loads(json.dumps({"name": program.name, "lanes": program.lanes}))
    path = place / "program.json"
    if path.exists() and store.read_json(path) != content:
        raise UsageError(f"{place} holds records of other lanes (of another version?); give another folder.")
    if not path.exists():
        store.write_json(path, content)


def read_records(program: Program, place: Path) -> dict[str, np.ndarray]:
    """All records of a finished program, without the rounds beyond its end."""
    chunks = [store.read_arrays(_records_file(place, chunk)) for chunk in range(program.chunks)]
    records = {name: np.concatenate([chunk[name] for chunk in chunks], axis=1) for name in chunks[0]}
    keep = records["round"][0] < program.rounds
    return {name: values[:, keep] for name, values in records.items()}


def _run_program(program: Program, place: Path, run: Run, before: int, total: int, interruption: Interruption) -> int:
    """Returns the lane-rounds done so far, this program's included."""
    per_chunk = len(program.lanes) * program.chunk
    checkpoints = Checkpoints(place / "checkpoints")
    if _records_until(place, program.chunks) == program.chunks:
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
        stopping = interruption.is_requested
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
