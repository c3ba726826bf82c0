"""What an experiment hands to the runner: lanes that share one compiled program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Array, PyTree


@dataclass(frozen=True)
class Program:
    """A set of lanes (method × numbers × seed) that run in one compilation, chunk by chunk.

    - `name`: for the progress bar and the files; different programs of a run have different names.
    - `lanes`: one dictionary per lane with what tells it apart: method, window, seed, and so on. These become the
      first columns of the metrics.
    - `numbers`: a pytree whose arrays have a leading axis over lanes: all that differs between lanes in the program
      (seeds, windows, rates).
    - `start`: `numbers of one lane -> state`. The state is a pytree of arrays, and all that the lane needs to go on.
    - `advance`: `(numbers of one lane, state) -> (state, records)`: one chunk. `records` is a flat dictionary of
      arrays with the same leading axis over rows. Its entry `round` says which round a row belongs to.
    - `rounds`, `chunk`: rounds in all, and per call of `advance`. The last chunk may go beyond the end: rows with
      `round >= rounds` are dropped.

    `start` and `advance` are written for one lane; the runner vmaps them and spreads the lanes over all devices.
    """

    name: str
    lanes: tuple[dict[str, Any], ...]
    numbers: PyTree
    start: Callable[[PyTree], PyTree]
    advance: Callable[[PyTree, PyTree], tuple[PyTree, dict[str, Array]]]
    rounds: int
    chunk: int

    @property
    def chunks(self) -> int:
        return -(-self.rounds // self.chunk)


class Measured(NamedTuple):
    """What a program's records say, as two tables, and in arrays where a table does not fit."""

    rounds: pd.DataFrame  # tidy: the lane's columns, round, one column a metric
    lanes: pd.DataFrame  # one row per lane: the lane's columns, one column a headline metric
    arrays: Mapping[str, np.ndarray] = MappingProxyType({})  # under names that no other program of the study uses


@dataclass(frozen=True)
class Study:
    """An experiment, ready to run.

    - `experiment`: its name, as on the command line; `config`: its complete configuration, a dataclass.
    - `measure`: `(program, records) -> Measured`; the records of a program have axes (lane, row, …).
    - `summarise`: `(rounds, lanes) -> summary`, of all programs together, ready for JSON.
    - `inputs`: what was read from elsewhere; stored with the run, so that it can go on without it.
    """

    experiment: str
    config: Any
    programs: list[Program]
    measure: Callable[[Program, dict[str, np.ndarray]], Measured]
    summarise: Callable[[pd.DataFrame, pd.DataFrame], dict[str, Any]]
    inputs: Mapping[str, Any] = field(default_factory=dict)
