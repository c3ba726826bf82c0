"""From the records of all blocks to the tables of the run, as if one process had run all lanes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np
import pandas as pd

from smoothfbo.errors import UsageError
from smoothfbo.harness import chunks, folders, store
from smoothfbo.harness.study import Measured, Program, Study
from smoothfbo.harness.workers.blocks import Block

Records = dict[str, np.ndarray]


def write(study: Study, folder: Path, blocks: Sequence[Block], missing: Mapping[str, str]) -> None:
    """Tables, arrays and, last, summary.json. Lanes that are missing are named in missing.json, and are in no table."""
    lost = [f"block {block.text}: {missing[block.name]}" for block in blocks if block.name in missing]
    if not lost:
        _write(study, folder, measured(study, folder, blocks))
        (folder / folders.MISSING).unlink(missing_ok=True)
        return
    folders.write_missing(folder, lost)
    try:
        _write(study, folder, measured(study, folder, blocks, missing))
    except Exception as error:  # a study may need what is missing
        raise UsageError(
            f"{len(lost)} of {len(blocks)} blocks failed, and there is no summary without them; the same command tries "
            f"them again. The first was {lost[0]}."
        ) from error


def measured(
    study: Study, folder: Path, blocks: Sequence[Block], missing: Mapping[str, str] = MappingProxyType({})
) -> list[Measured]:
    return [study.measure(*each) for each in joined(blocks, folder / "progress", missing)]


def tables_of(parts: Sequence[Measured]) -> dict[str, pd.DataFrame]:
    """Tables of one name, joined over all programs."""
    names = dict.fromkeys(name for part in parts for name in part.tables)
    return {
        name: pd.concat([part.tables[name] for part in parts if name in part.tables], ignore_index=True)
        for name in names
    }


def joined(blocks: Sequence[Block], work: Path, missing: Mapping[str, str]) -> Iterator[tuple[Program, Records]]:
    """Every program with all its lanes, or with those that are there, and their records."""
    for _, group in groupby(blocks, key=lambda block: block.index):
        parts = [block for block in group if block.name not in missing]
        if not parts:
            continue
        records = [chunks.read_records(block.program, work / block.name) for block in parts]
        yield (
            _joined_program([block.program for block in parts]),
            {name: np.concatenate([part[name] for part in records]) for name in records[0]},
        )


def _joined_program(programs: Sequence[Program]) -> Program:
    """One program from its parts."""
    if len(programs) == 1:
        return programs[0]
    numbers = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(program.numbers for program in programs))
    return replace(programs[0], lanes=tuple(lane for program in programs for lane in program.lanes), numbers=numbers)


def _write(study: Study, folder: Path, parts: list[Measured]) -> None:
    tables = tables_of(parts)
    for name, table in tables.items():
        store.write_table(folder / f"{name}.parquet", table)
    arrays = {name: values for part in parts for name, values in part.arrays.items()}
    if arrays:
        store.write_arrays(folder / "arrays.npz", arrays)
    folders.write_summary(folder, study.summarise(tables))
