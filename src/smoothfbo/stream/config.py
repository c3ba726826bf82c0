"""Configuration of `smoothfbo stream`. No jax here: `--help` must be quick."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from smoothfbo.errors import UsageError
from smoothfbo.stream.learner.specification import default_block


@dataclass(frozen=True)
class StreamConfig:
    """Go through a table in time order, predict every row before its target is used, and learn how much past to trust.

    Rows are taken in blocks. The predictor is fitted to all earlier blocks, weighted by a mixture of forgetting rates;
    SmoothFBO tunes the mixture so that the newest block would have been predicted best. Every row is predicted by the
    predictor fitted to the blocks before its own, from its own features and the targets known by then.
    """

    data: str
    """CSV, CSV.gz or Parquet file; `-` reads CSV from standard input, line by line."""
    target: str
    """Column to predict."""
    task: Literal["regression", "classification"] | None = None
    """What to predict; inferred from the first block if not given."""
    time: str | None = None
    """Column with times (calendar features) or numbers, in rising order."""
    lags: int = 4
    """The newest targets that are known, as features: this many of them."""
    extra_lags: tuple[int, ...] = ()
    """Further lags, e.g. 48 for the same half-hour of the day before."""
    horizon: int = 1
    """When a row is predicted, the newest target known is that of this many rows before."""
    categorical: tuple[str, ...] = ()
    """Columns of numbers that are labels."""
    ignore: tuple[str, ...] = ()
    """Columns to leave out."""
    missing: Literal["impute", "error"] = "impute"
    """Missing values: take the last one of the column (and count them), or stop."""
    sort: bool = False
    """Sort a file by the time column first; needs memory for all of it."""
    block: int | None = None
    """Rows of a block. The predictor and the weights change from block to block. If not given: 16, for classes 8."""
    predictor: Literal["linear", "network"] = "linear"
    """Linear in standardised features (closed form), or a network with two hidden layers."""
    smoothing: int = 5
    """Window w of SmoothFBO: how many rounds of hypergradients are averaged."""
    step: float = 0.5
    """Outer step, of log-weights; stable for step·smoothing up to about 5."""
    rates: int = 10
    """Forgetting rates: memories of 1, 2, 4, … blocks and, as the last one, all of the past."""
    ridge: float = 1e-3
    """Penalty on the coefficients of standardised features."""
    references: bool = True
    """Also evaluate the reference predictors: fixed forgetting, windows, last block, last value, no smoothing."""
    windows: tuple[int, ...] = (4, 16, 64)
    """Uniform windows among the references, in blocks."""
    width: int = 32
    """Network: units of each hidden layer."""
    network_blocks: int = 64
    """Network: blocks whose rows are kept and fitted."""
    network_steps: int = 10
    """Network: optimiser steps per round for each fit."""
    network_rate: float = 3e-3
    """Network: learning rate."""
    seed: int = 0
    """Seed of the network's initialisation and mini-batches."""
    state: str | None = None
    """File to save the learner in; if it exists, resume from there with the rows of this table, as new rows."""

    def __post_init__(self) -> None:
        _require(self.data != "", "data", self.data, "a file or -")
        _require(self.target != "", "target", self.target, "the name of a column")
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            _require(value in allowed, name, value, "one of " + ", ".join(str(a) for a in allowed if a))
        _require(0 <= self.lags <= 1000, "lags", self.lags, "an integer between 0 and 1000")
        for lag in self.extra_lags:
            _require(lag > self.lags, "extra_lags", lag, f"integers above lags = {self.lags}")
        _require(list(self.extra_lags) == sorted(set(self.extra_lags)), "extra_lags", self.extra_lags, "rising")
        _require(self.horizon >= 1, "horizon", self.horizon, "an integer of at least 1")
        _require(
            self.block is None or 2 <= self.block <= 100_000, "block", self.block, "an integer between 2 and 100000"
        )
        _require(1 <= self.smoothing <= 10_000, "smoothing", self.smoothing, "an integer between 1 and 10000")
        _require(2 <= self.rates <= 20, "rates", self.rates, "an integer between 2 and 20")
        _require(list(self.windows) == sorted(set(self.windows)), "windows", self.windows, "rising")
        for window in self.windows:
            _require(2 <= window <= 4096, "windows", window, "integers between 2 and 4096")
        for name in ("step", "ridge", "network_rate"):
            value = getattr(self, name)
            _require(0 < value < float("inf"), name, value, "positive and finite")
        for name in ("width", "network_blocks", "network_steps"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "an integer of at least 1")
        _require(0 <= self.seed < 2**31, "seed", self.seed, "an integer between 0 and 2147483647")
        if self.time == self.target:
            raise UsageError(f"--time {self.time} is the target; they must be different columns.")

    @property
    def first_rows(self) -> int:
        """Rows from which the kinds of the columns, and the task, are inferred."""
        return self.block or default_block(is_classification=False)

    def for_task(self, is_classification: bool) -> "StreamConfig":
        """The configuration with its block, which may depend on the task."""
        return replace(self, block=self.block or default_block(is_classification))

    @property
    def rows_per_block(self) -> int:
        if self.block is None:
            raise ValueError("The rows of a block depend on the task; see `for_task`.")
        return self.block

    @property
    def all_lags(self) -> tuple[int, ...]:
        return (*range(1, self.lags + 1), *self.extra_lags)


_CHOICES: dict[str, tuple[Any, ...]] = {
    "task": (None, "regression", "classification"),
    "missing": ("impute", "error"),
    "predictor": ("linear", "network"),
}


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise UsageError(f"--{name.replace('_', '-')} must be {allowed}, got {value}.")
