"""`smoothfbo stream`: a table in one pass, predictions before targets, references on the same rows."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from smoothfbo.errors import UsageError
from smoothfbo.experiments.stream_config import StreamConfig
from smoothfbo.experiments.stream_records import BlockRecords, prediction_table
from smoothfbo.experiments.stream_state import new_session, open_session, save_session
from smoothfbo.forgetting.learner import Rows


@runtime_checkable
class StreamSink(Protocol):
    """Takes what a run produces, portion by portion: one row per input row, and one row per block."""

    def predictions(self, table: pa.Table) -> None: ...

    def blocks(self, table: pa.Table) -> None: ...


@dataclass(frozen=True)
class StreamProgress:
    """Told after every portion. `errors` are the running errors of SmoothFBO ("smoothfbo") and of the references."""

    rows: int
    rows_per_second: float
    errors: dict[str, float]
    notes: tuple[str, ...]


@dataclass
class StreamResults:
    """What a run comes to. `fault` is what ended it before the end of the table; everything before it is kept."""

    rows: int
    blocks: int
    is_classification: bool
    error_name: str
    """"mean squared error" or "error rate"."""
    errors: dict[str, float]
    absolute_errors: dict[str, float]
    """Mean absolute errors; empty in classification."""
    changes: list[dict[str, int]]
    """Detected changes: `row` and `block` where the data changed, and `seen_in_block`, where it showed."""
    notes: list[str]
    missing: dict[str, int]
    constant_features: list[str]
    features: list[str]
    classes: list[str]
    skipped_rounds: int
    seconds: float
    rows_per_second: float
    """After the first block, which compiles."""
    fault: UsageError | None = field(default=None)

    @property
    def best_reference(self) -> str | None:
        """The fixed-forgetting reference with the least error, chosen in hindsight."""
        fixed = {k: v for k, v in self.errors.items() if k not in ("smoothfbo", "unsmoothed", "last_value")}
        return min(fixed, key=fixed.__getitem__) if fixed else None

    def summary(self) -> dict[str, Any]:
        """All of it as JSON."""
        best = self.best_reference or ""
        content = {name: value for name, value in vars(self).items() if name != "fault"}
        return content | {
            "best_reference": best or None,
            "ratio_to_best_reference": self.errors["smoothfbo"] / self.errors[best] if self.errors.get(best) else None,
            "fault": None if self.fault is None else str(self.fault),
        }


def run_stream(
    config: StreamConfig,
    sink: StreamSink | None = None,
    progress: Callable[[StreamProgress], None] | None = None,
    state: Path | None = None,
) -> StreamResults:
    """Go through the table once; memory does not grow with it.

    `state` is a file that the learner is read from, if it exists, and written to at the end: the next call goes on with
    the next rows and gives the predictions of an uninterrupted run. A fault in the table ends the run and is returned
    in the results; mistakes that show before the first row are raised.
    """
    started = time.perf_counter()
    if state is not None and state.exists():
        table, session = open_session(config, state)
    else:
        table, session = new_session(config)
    records = BlockRecords(session)
    fault: UsageError | None = None
    first_rows, first_seconds, before = 0, 0.0, session.rows
    portions = _first_block_alone(iter(table), config.block)
    while fault is None:
        try:
            portion = next(portions, None)
        except UsageError as error:
            fault = error
            break
        if portion is None:
            break
        encoded, fault = session.encoder.encode(portion)
        too_many = session.too_many_classes()
        if too_many is not None:
            fault = too_many
            break
        start = session.rows
        outcome = session.learner.process(Rows(encoded.features, encoded.target, encoded.previous))
        session.add(encoded.target, outcome)
        if sink is not None:
            sink.predictions(prediction_table(session, start, encoded, outcome))
        blocks = records.add(start, encoded.target, outcome)
        if sink is not None and blocks is not None:
            sink.blocks(blocks)
        now = time.perf_counter() - started
        if not first_rows:
            first_rows, first_seconds = session.rows - before, now
        if progress is not None:
            progress(StreamProgress(session.rows, (session.rows - before) / now, session.errors(), session.notes))
    if state is not None:
        save_session(session, state)
    seconds = time.perf_counter() - started
    later = session.rows - before - first_rows
    return StreamResults(
        rows=session.rows,
        blocks=session.blocks,
        is_classification=session.schema.is_classification,
        error_name="error rate" if session.schema.is_classification else "mean squared error",
        errors=session.errors(),
        absolute_errors={} if session.schema.is_classification else session.errors(absolute=True),
        changes=session.changes,
        notes=list(session.notes),
        missing={name: count for name, count in session.encoder.missing.items() if count},
        constant_features=session.encoder.constant_columns,
        features=session.encoder.names,
        classes=session.encoder.classes,
        skipped_rounds=session.skipped,
        seconds=seconds,
        rows_per_second=later / max(seconds - first_seconds, 1e-9) if later else (session.rows - before) / seconds,
        fault=fault,
    )


def _first_block_alone(portions: Iterator[pa.Table], block: int) -> Iterator[pa.Table]:
    """So that the time of compilation shows by itself."""
    first = next(portions, None)
    if first is not None:
        yield first.slice(0, block)
        if first.num_rows > block:
            yield first.slice(block)
        yield from portions
