"""Runs a study: its programs in this process, or blocks of their lanes in others; then tables and summary."""

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import jax

from smoothfbo.errors import UsageError
from smoothfbo.harness import chunks, folders, results, store
from smoothfbo.harness.folders import Stopped
from smoothfbo.harness.interruption import Interruption
from smoothfbo.harness.study import Progress, Run, Study
from smoothfbo.harness.workers.base import Team
from smoothfbo.harness.workers.blocks import Block, cut, size_for
from smoothfbo.harness.workers.driver import ORPHAN_SECONDS, StopFile, run_blocks

CHOICE = "choice.json"  # in `progress`: what the first programs decided for the second stage


def execute(study: Study, run: Run) -> None:
    """Run what is not done yet and write the study's tables, arrays.npz and, last, summary.json."""
    work = run.folder / "progress"
    precision = jax.enable_x64(True) if study.double else contextlib.nullcontext()
    if run.block is not None:
        with precision:
            _run_block(study, run, run.block, work)
        return
    with _team(run) as team:
        size = _block_size(study, run, team)
        description = folders.describe(study.name, run.command, study.config, _devices(run, team))
        if run.workers is not None:
            description["workers"] = {"request": run.workers.request, "block": size}
        folders.claim(run.folder, description | dict(study.inputs))
        if folders.is_complete(run.folder):
            shutil.rmtree(work, ignore_errors=True)  # a kill may have left it
            return
        with folders.exclusive(work), precision:
            blocks, missing = _run_all(study, size, run, work, team)
            total = _lane_rounds(blocks)
            run.on_progress(Progress("measuring", total, total, "rounds", compiling=True))
            results.write(study, run.folder, blocks, missing)
    if not missing:
        shutil.rmtree(work, ignore_errors=True)


def _team(run: Run) -> contextlib.AbstractContextManager[Team | None]:
    """The workers, where there are any and something is left for them."""
    if run.workers is None or folders.is_complete(run.folder):
        return contextlib.nullcontext()
    return run.workers.open(run.folder)


def _devices(run: Run, team: Team | None) -> list[str]:
    if team is not None:
        return team.devices
    if run.workers is not None:  # the run is complete: nothing more is computed on anything
        return folders.read_description(run.folder)["devices"]
    return [f"{device} ({device.device_kind})" for device in jax.devices()]


def _block_size(study: Study, run: Run, team: Team | None) -> int | None:
    """Lanes of a block, as the run in the folder began; None: whole programs."""
    if run.workers is None:
        return None
    if not (run.folder / "config.json").exists():
        assert team is not None
        return run.workers.block or size_for(study.programs, team.blocks)
    size = folders.stored_block_size(run.folder)
    if run.workers.block not in (None, size):
        what = "whole programs" if size is None else f"blocks of {size} lanes"
        raise UsageError(
            f"`block` {run.workers.block} does not fit: {run.folder} holds a run in {what}; leave the option out, or "
            "give another folder."
        )
    return size


def _run_all(
    study: Study, size: int | None, run: Run, work: Path, team: Team | None
) -> tuple[list[Block], dict[str, str]]:
    """The programs of both stages. Returns all blocks, and those that are missing, and why."""
    first = cut(study.programs, size)
    done = _lane_rounds(first)
    total = done + (0 if study.second_stage is None else study.second_stage.rounds)

    def stage(blocks: list[Block], before: int) -> dict[str, str]:
        if team is None:
            return _run_here(blocks, run, work, before, total)
        return _run_elsewhere(blocks, run, work, team, before, total)

    missing = stage(first, 0)
    if study.second_stage is None or missing:  # nothing can be chosen yet; the next attempt will
        return first, missing
    if not (work / CHOICE).exists():
        run.on_progress(Progress("choosing", done, total, "rounds", compiling=True))
        tables = results.tables_of(results.measured(study, run.folder, first))
        store.write_json(work / CHOICE, study.second_stage.choose(tables))
    second = _second_stage(study, size, work)
    return [*first, *second], stage(second, done)


def _second_stage(study: Study, size: int | None, work: Path) -> list[Block]:
    """The blocks of the second stage, once its choice is made."""
    if study.second_stage is None or not (work / CHOICE).exists():
        return []
    return cut(study.second_stage.programs(store.read_json(work / CHOICE)), size, len(study.programs))


def _lane_rounds(blocks: Sequence[Block]) -> int:
    """Rounds of all lanes together."""
    return sum(block.rounds * block.chunks for block in blocks)


def _run_here(blocks: Sequence[Block], run: Run, work: Path, done: int, total: int) -> dict[str, str]:
    """All blocks in this process, one after the other. None can be missing: an error ends the run."""
    with Interruption() as interruption:
        for block in blocks:
            place = work / block.name
            chunks.claim_lanes(place, block.program)
            done = chunks.run_program(block.program, place, run, done, total, interruption)
        if interruption.is_requested:
            raise Stopped
    return {}


def _run_elsewhere(
    blocks: Sequence[Block], run: Run, work: Path, team: Team, before: int, total: int
) -> dict[str, str]:
    """All blocks by workers; records are handed on once a program has all of them. Returns what is missing, and why."""

    def is_left(block: Block) -> bool:
        return chunks.records_until(work / block.name, block.program.chunks) < block.program.chunks

    def show(progress: Progress) -> None:
        run.on_progress(progress._replace(done=before + progress.done, total=total))

    left = [block for block in blocks if is_left(block)]
    missing = run_blocks(blocks, left, work, team, lambda block: chunks.records_count(work / block.name), show)
    for index in dict.fromkeys(block.index for block in left):
        for program, records in results.joined([each for each in blocks if each.index == index], work, missing):
            number = records["round"][0] // program.chunk
            for chunk in range(program.chunks):
                run.on_records(program, {name: values[:, number == chunk] for name, values in records.items()})
    return missing


def _run_block(study: Study, run: Run, name: str, work: Path) -> None:
    """One block, as a worker runs it."""
    size = folders.stored_block_size(run.folder)
    blocks = {block.name: block for block in (*cut(study.programs, size), *_second_stage(study, size, work))}
    if name not in blocks:
        raise UsageError(f"{run.folder} has no block {name} (is it of another version?).")
    block, place, stop = blocks[name], work / name, StopFile(work)
    if stop.is_requested:
        raise Stopped
    with folders.exclusive(place, ORPHAN_SECONDS):
        chunks.claim_lanes(place, block.program)
        chunks.run_program(block.program, place, run, 0, _lane_rounds([block]), stop)
