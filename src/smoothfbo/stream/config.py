"""Configuration of `smoothfbo stream`. No jax here: `--help` must be quick."""

from dataclasses import dataclass, fields, replace
from typing import Literal

from smoothfbo.errors import UsageError, as_flags
from smoothfbo.harness.requirements import require
from smoothfbo.stream.options import LearnerOptions, default_block, is_number, require_choice, require_integer


@dataclass(frozen=True)
class TableOptions:
    """Which table is read, and what becomes of its columns."""

    data: str
    """CSV, CSV.gz or Parquet file; `-` reads CSV from standard input, line by line."""
    target: str
    """Column to predict."""
    task: Literal["regression", "classification"] | None = None
    """What to predict; inferred from the first rows if not given."""
    by: tuple[str, ...] = ()
    """Columns that tell the series of a table apart, e.g. store, or store product: one learner for each series. Series
    may come mixed, and new ones at any time; rows must be in time order within each. The last value is then the only
    reference."""
    time: str | None = None
    """Column with times (calendar features) or numbers, in rising order."""
    lags: int = 4
    """How many of the newest known targets are features."""
    extra_lags: tuple[int, ...] = ()
    """Further lags, e.g. 48 for the same half-hour of the day before."""
    horizon: int = 1
    """How many rows late a target becomes known; 1: before the next row is predicted."""
    categorical: tuple[str, ...] = ()
    """Columns of numbers that are labels."""
    ignore: tuple[str, ...] = ()
    """Columns to leave out."""
    missing: Literal["impute", "error"] = "impute"
    """Missing values: take the last one of the column (and count them), or stop."""
    sort: bool = False
    """Sort a file by the time column first; needs memory for all of it."""
    references: bool = True
    """Also evaluate the reference predictors: fixed forgetting, windows, last block, last value, no smoothing."""
    windows: tuple[int, ...] = (4, 16, 64)
    """Uniform windows among the references, in blocks."""
    state: str | None = None
    """File to save the learner in. If it exists, the learner in it continues with the rows of this table."""


@dataclass(frozen=True)
class LiveOptions:
    """How rows are answered that arrive one after the other, and what becomes of those that cannot be read."""

    live: Literal["json", "csv"] | None = None
    """Print each prediction as its row arrives, a line each; no folder is written. A row without a target is answered
    at once and learnt when it comes again with its target."""
    save_every: float = 5.0
    """With `live`: seconds between two saves of the state."""
    predict_only: bool = False
    """Predict with the saved learner and learn nothing; the state file is not changed."""
    on_error: Literal["stop", "skip"] = "stop"
    """A row that cannot be read: stop, or leave it out and count it."""


@dataclass(frozen=True)
class StreamConfig(LearnerOptions, LiveOptions, TableOptions):
    """Go through a table in time order, predict every row before its target is used, and learn how much past to trust.

    A row is predicted from its own features and the targets known by then, by a mixture of experts: ridge regressions
    with memories of different lengths, the last value, random features, products of columns, for classes the nearest
    rows. One of them is SmoothFBO's own: it tunes its mixture of forgetting rates so that the newest block of rows
    would have been predicted best. Experts and mixture change after every target.
    """

    def __post_init__(self) -> None:
        self.check()
        require(self.data != "", "data", self.data, "a file or -")
        require(self.target != "", "target", self.target, "the name of a column")
        if self.task is not None:
            require_choice("task", self.task, ("regression", "classification"))
        require_choice("missing", self.missing, ("impute", "error"))
        require_choice("on_error", self.on_error, ("stop", "skip"))
        if self.live is not None:
            require_choice("live", self.live, ("json", "csv"))
            require(not self.sort, "live", self.live, "left out where a file is sorted")
        require(is_number(self.save_every) and self.save_every > 0, "save_every", self.save_every, "positive")
        if self.predict_only and self.state is None:
            raise UsageError("`predict_only` needs a learner: give its file as `state`.")
        require_integer("lags", self.lags, 0, 1000)
        for lag in self.extra_lags:
            require(lag > self.lags, "extra_lags", lag, f"integers above lags = {self.lags}")
        require(list(self.extra_lags) == sorted(set(self.extra_lags)), "extra_lags", self.extra_lags, "rising")
        require_integer("horizon", self.horizon, 1)
        require(list(self.windows) == sorted(set(self.windows)), "windows", self.windows, "rising")
        for window in self.windows:
            require(2 <= window <= 4096, "windows", window, "integers between 2 and 4096")
        if self.by and self.live is not None:
            raise UsageError("`live` answers one series; many (`by`) are read from a file or from standard input.")
        for name in self.by:
            if name in (self.target, self.time):
                what = "target" if name == self.target else "time"
                raise UsageError(f"`by` {name} is the {what}; they must be different columns.")
            if name in self.ignore:
                raise UsageError(f"`ignore` {name} is a column of `by`, which cannot be left out.")
        require(len(set(self.by)) == len(self.by), "by", " ".join(self.by), "different columns")
        if self.time == self.target:
            raise UsageError(f"`time` {self.time} is the target; they must be different columns.")

    def for_task(self, is_classification: bool) -> "StreamConfig":
        """The configuration with its block, which may depend on the task."""
        return replace(self, block=self.block or default_block(is_classification))

    @property
    def rows_per_block(self) -> int:
        if self.block is None:
            raise ValueError("The rows of a block depend on the task; see `for_task`.")
        return self.block

    @property
    def first_rows(self) -> int:
        """Rows that must be there before anything is inferred."""
        return self.block or default_block(is_classification=False)

    @property
    def all_lags(self) -> tuple[int, ...]:
        return (*range(1, self.lags + 1), *self.extra_lags)


def with_flags(message: str) -> str:
    """A fault or a note as the command line says it."""
    return as_flags(message, {field.name for field in fields(StreamConfig)})
