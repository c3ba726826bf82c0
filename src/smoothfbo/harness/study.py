"""The contract between studies and the harness: what a study is, and what its folder exports.

A study hands over *programs*, sets of lanes that share one compilation, and says how their records are measured and
summarised. Its `command.py` exports one `Entry`; nothing else in the project knows its name. No jax at module level.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Array, PyTree

    from smoothfbo.harness.workers.base import Workers


@dataclass(frozen=True)
class Program:
    """A set of lanes (method × numbers × seed) that run in one compilation, chunk by chunk.

    - `name`: for the progress bar and the files; different programs of a run have different names.
    - `lanes`: one dictionary per lane with what tells it apart: method, window, seed, and so on. These become the
      first columns of the tables.
    - `numbers`: a pytree whose arrays have a leading axis over lanes: all that differs between lanes in the program
      (seeds, windows, rates).
    - `start`: `numbers of one lane -> state`. The state is a pytree of arrays, and all that the lane needs to resume.
    - `advance`: `(numbers of one lane, state) -> (state, records)`: one chunk. `records` is a flat dictionary of
      arrays with the same leading axis over rows. Its entry `round` says which round a row belongs to.
    - `rounds`, `chunk`: rounds in all, and per call of `advance`. The last chunk may go beyond the end: rows with
      `round >= rounds` are dropped.
    - `cpu_options`: options of XLA for a CPU, where a study has many short programs and compiling is most of the time.
    - `gpu_options`: the same for a GPU.
    - `width`: lanes of a compiled call on a CPU; None: all of them. Programs that differ in their lanes alone can then
      share a compilation.

    `start` and `advance` are written for one lane; the runner vmaps them and spreads the lanes over all devices.
    """

    name: str
    lanes: tuple[dict[str, Any], ...]
    numbers: "PyTree"
    start: Callable[["PyTree"], "PyTree"]
    advance: Callable[["PyTree", "PyTree"], tuple["PyTree", dict[str, "Array"]]]
    rounds: int
    chunk: int
    cpu_options: Mapping[str, Any] = field(default_factory=dict)
    gpu_options: Mapping[str, Any] = field(default_factory=dict)
    width: int | None = None

    @property
    def chunks(self) -> int:
        return -(-self.rounds // self.chunk)


class Measured(NamedTuple):
    """What a program's records say: tables by the name of their file, and arrays where a table does not fit.

    Tables of one name are joined over all programs. Names of arrays are those of no other program.
    """

    tables: Mapping[str, "pd.DataFrame"]
    arrays: Mapping[str, np.ndarray] = MappingProxyType({})


@dataclass(frozen=True)
class SecondStage:
    """Programs that depend on what the first ones of a study have achieved, and run after them.

    - `choose`: `tables of the first programs -> choice`, ready for JSON. It is stored with the run, so that whoever
      resumes it, and every worker, has the same.
    - `programs`: `choice -> programs`. Their names are those of no first one.
    - `rounds`: of all their lanes together, for the progress bar.
    """

    choose: Callable[[Mapping[str, Any]], Any]
    programs: Callable[[Any], list[Program]]
    rounds: int


@dataclass(frozen=True)
class Study:
    """A study, ready to run.

    - `name`: as on the command line; `config`: its complete configuration, a dataclass.
    - `measure`: `(program, records) -> Measured`; the records of a program have axes (lane, row, …).
    - `summarise`: `tables -> {file: content}`, of all programs together, ready for JSON; one of the files is "summary".
    - `second_stage`: more programs, chosen by the results of the first; all are measured and summarised together.
    - `inputs`: what was read from elsewhere; stored with the run, so that it can resume without it.
    - `double`: whether its programs run in float64.
    """

    name: str
    config: Any
    programs: list[Program]
    measure: Callable[[Program, dict[str, np.ndarray]], Measured]
    summarise: Callable[[Mapping[str, Any]], dict[str, Any]]
    second_stage: SecondStage | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    double: bool = False


class Progress(NamedTuple):
    """Where a run stands."""

    text: str  # what is being done
    done: int
    total: int | None  # None where the end is not known
    unit: str  # what `done` counts
    compiling: bool = False  # the time until the next report says nothing about the speed
    notes: tuple[str, ...] = ()  # shown once each


class Run(NamedTuple):
    """One run of an entry: what to run, where, and who is told how it goes.

    - `on_records` takes the records of every chunk of a program, for TensorBoard.
    - `workers` run it in blocks of lanes, in other processes; None: all of it in this process.
    - `block`: this process is one of those workers, and runs this block alone.
    """

    config: Any
    folder: Path
    command: str
    on_progress: Callable[[Progress], None]
    on_records: Callable[[Program, dict[str, np.ndarray]], None] = lambda program, records: None  # noqa: ARG005
    workers: "Workers | None" = None
    block: str | None = None


class Outcome(NamedTuple):
    """How a finished run ends the command: its exit status, and a line that says why it is not 0."""

    status: int = 0
    line: str | None = None


@dataclass(frozen=True)
class Report:
    """What can be shown of the folder of a finished run; nothing is computed anew.

    - `build` draws all figures and the page, and returns the page; `as_text` is what the command prints.
    - `outcome`: how the command ends.
    - `refresh`: brings the stored summary up to this version's before `smoothfbo report` draws it.
    - `combine`: puts several runs on one page, in a folder of its own; None draws each run by itself.
    """

    build: Callable[[Path], Path]
    as_text: Callable[[Path], list[Any]]
    outcome: Callable[[Path], Outcome] = lambda folder: Outcome()  # noqa: ARG005
    refresh: Callable[[Path], None] | None = None
    combine: Callable[[tuple[Path, ...], Path], Path] | None = None


@dataclass(frozen=True)
class Entry:
    """A command of `smoothfbo` that runs something in a folder: what `command.py` exports as ENTRY.

    - `config`: the frozen dataclass whose fields are the options; its docstring is the help.
    - `execute`: runs what is not done yet. It is called after jax was set up, and imports what it needs.
    - `report`: imports and returns the report; it must not import jax.
    - `presets`: configurations by name, the first one is the default; `preset_help` says what they are for.
    - `arguments`: the dataclass that the command line parses, where it is not `config` itself.
    - `check`: refuses a configuration that makes no sense beside its preset.
    - `folder`: the default folder of a run, from the configuration and the preset.
    - `without_folder`: runs a configuration that writes no folder and returns the exit status; None for all others.
    - `has_lanes`: whether there are records for TensorBoard; `cpu_only`: whether a GPU would be of no use, and then
      `side_by_side`: whether a configuration runs several compiled programs at once.
    """

    name: str
    config: type
    execute: Callable[[Run], None]
    report: Callable[[], Report]
    presets: Mapping[str, Any] = field(default_factory=dict)
    preset_help: str = ""
    arguments: type | None = None
    check: Callable[[Any, Any], None] | None = None
    folder: Callable[[Any, str], Path] | None = None
    without_folder: Callable[[Any], int | None] | None = None
    has_lanes: bool = True
    cpu_only: bool = False
    side_by_side: Callable[[Any], bool] = lambda _: False

    def default_folder(self, config: Any, preset: str) -> Path:
        """out/NAME-PRESET; out/NAME where there is nothing to choose."""
        if self.folder is not None:
            return self.folder(config, preset)
        return Path(f"out/{self.name}-{preset}" if len(self.presets) > 1 else f"out/{self.name}")
