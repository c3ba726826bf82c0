"""One pass over a table, of one series or of many: predict and learn piece by piece, and what it comes to."""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from smoothfbo.errors import UsageError
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.reading.faults import MOST_NAMED


@runtime_checkable
class StreamSink(Protocol):
    """Takes what a run produces, portion by portion: one row per input row, and one row per block."""

    def predictions(self, table: pa.Table) -> None: ...

    def blocks(self, table: pa.Table) -> None: ...


@dataclass(frozen=True)
class StreamProgress:
    """Told after every piece. `errors` are the running errors of SmoothFBO ("smoothfbo") and of the references."""

    rows: int
    rows_per_second: float
    """After the first block, which compiles."""
    errors: dict[str, float]
    notes: tuple[str, ...]
    block: int
    """Rows of a block."""


@dataclass
class StreamResults:
    """What a run comes to. `fault` is what ended it before the end of the table; everything before it is kept."""

    rows: int
    table_rows: int
    """Of this table: `rows`, and the errors, are of all since the learner began."""
    block: int
    """Rows of a block."""
    blocks: int
    is_classification: bool
    error_name: str
    """"mean squared error" or "error rate"."""
    evaluated: int
    """Rows with a target and a prediction; the errors are means over them, and 0 if there are none."""
    errors: dict[str, float]
    absolute_errors: dict[str, float]
    """Mean absolute errors; empty in classification."""
    coverage: dict[str, float]
    """The part of the targets that lay in the bands of 0.5, 0.8 and 0.95; empty in classification."""
    changes: list[dict[str, int]]
    """Detected changes: `row` and `block` where the data changed, and `seen_in_block`, where it showed."""
    notes: list[str]
    missing: dict[str, int]
    constant_features: list[str]
    features: list[str]
    effects: list[str | None]
    """The features whose effects are in the columns effect_0, effect_1, … of the blocks; None for room."""
    classes: list[str]
    skipped_rounds: int
    seconds: float
    rows_per_second: float
    """After the first block, which compiles."""
    forecasts: int = 0
    """The last rows, which have no target; they are predicted, and no part of the learner that is saved."""
    left_out: int = 0
    """Rows of this table that could not be read or used, where `on_error` is skip."""
    left_out_first: list[str] = field(default_factory=list)
    """What was wrong with the first of them."""
    fault: UsageError | None = field(default=None)
    series: dict[str, Any] | None = None
    """Of many series (`by`): their number, quantiles of their errors, the worst, the changes."""

    @property
    def best_reference(self) -> str | None:
        """The fixed expert with the least error, chosen in hindsight; persistence is one of them."""
        return best_reference(self.errors)

    def summary(self) -> dict[str, Any]:
        """All of it as JSON."""
        best = self.best_reference or ""
        content = {name: value for name, value in vars(self).items() if name != "fault"}
        return content | {
            "best_reference": best or None,
            "ratio_to_best_reference": self.errors["smoothfbo"] / self.errors[best] if self.errors.get(best) else None,
            "fault": None if self.fault is None else str(self.fault),
        }


def best_reference(errors: dict[str, float]) -> str | None:
    """The fixed expert with the least error so far: forgetting, window or persistence; none that adapts."""
    fixed = {k: v for k, v in errors.items() if k not in ("smoothfbo", "learned_memory", "unsmoothed")}
    return min(fixed, key=fixed.__getitem__) if fixed else None


class Steps(NamedTuple):
    """What a pass over one series does in another way than one over many; sessions are of the kind that fits."""

    hold_back: Callable[[Any, pa.Table, pa.Table | None], tuple[pa.Table, pa.Table | None]]
    """Of the rows that waited and the new ones: those that can be processed, and those that wait for a target."""
    process: Callable[[Any, pa.Table, StreamSink | None], UsageError | None]
    """Predict and learn rows; what is wrong with them, if anything is and nothing may be left out."""
    results: Callable[[Any, "Clock", UsageError | None], StreamResults]


def process_pieces(
    steps: Steps,
    session: Any,
    pieces: Iterator[pa.Table],
    sink: StreamSink | None = None,
    progress: Callable[[StreamProgress], None] | None = None,
    after_piece: Callable[[Any], None] | None = None,
    before_forecasts: Callable[[Any], None] | None = None,
) -> StreamResults:
    """Predict and learn piece by piece. A run can be resumed from the session as `after_piece` is given it.

    The last rows of a series may have no target yet. They are predicted, but `session` stays where it was before them:
    they come again, with their targets. So rows without a target wait until a row with one follows, or the end.
    """
    clock, block = Clock(session.rows), session.config.rows_per_block
    fault: UsageError | None = None
    waiting: pa.Table | None = None
    while fault is None:
        try:
            piece = next(pieces, None)
        except UsageError as error:
            fault = error
            break
        if piece is None:
            break
        piece, waiting = steps.hold_back(session, piece, waiting)
        fault = steps.process(session, piece, sink)
        if fault is not None:
            waiting = None
        if after_piece is not None:
            after_piece(session)
        clock.add(session.rows)
        if progress is not None:
            progress(StreamProgress(session.rows, clock.rows_per_second, session.errors(), session.first_notes, block))
    if before_forecasts is not None:
        before_forecasts(session)
    if waiting is None:
        return steps.results(session, clock, fault)
    ahead = copy.deepcopy(session)
    fault = steps.process(ahead, waiting, sink) or fault
    return replace(steps.results(ahead, clock, fault), forecasts=ahead.rows - session.rows)


def require_learner(config: StreamConfig, state: Path | None) -> None:
    """Who only predicts needs what was learnt before."""
    if config.predict_only and not (state is not None and state.exists()):
        raise UsageError(f"`predict_only` needs a learner, but {state} does not exist.")


def finish(results: StreamResults, session: Any) -> StreamResults:
    """The results of a whole table, of one series or of many; if no row of it could be evaluated, that is a fault."""
    if session.known or results.fault is not None:
        return results
    column = f"column {session.schema.target!r}"
    what = f"{session.encoder.source}: {column} has no value that could be predicted, so there is no error to report."
    return replace(results, fault=UsageError(what))


class Clock:
    """Rows per second after the first piece, which compiles."""

    def __init__(self, rows: int):
        self._started = time.perf_counter()
        self._now = self._started
        self._begin: tuple[int, float] = (rows, self._started)
        self._rows, self._pieces = rows, 0

    def add(self, rows: int) -> None:
        self._rows, self._now, self._pieces = rows, time.perf_counter(), self._pieces + 1
        if self._pieces == 1:
            self._first = rows, self._now

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    @property
    def rows_per_second(self) -> float:
        rows, since = self._first if self._pieces > 1 else self._begin
        return (self._rows - rows) / max(self._now - since, 1e-9)


def results_of(
    session: Any,
    clock: Clock,
    fault: UsageError | None,
    *,
    spec: Specification,
    blocks: int,
    changes: list[dict[str, int]],
    series: dict[str, Any] | None = None,
) -> StreamResults:
    """The results as the session has them."""
    is_classification = session.schema.is_classification
    return StreamResults(
        rows=session.rows,
        table_rows=session.encoder.rows - session.left_out.count,
        block=session.config.rows_per_block,
        blocks=blocks,
        is_classification=is_classification,
        error_name="error rate" if is_classification else "mean squared error",
        evaluated=session.known,
        errors=session.errors(),
        absolute_errors={} if is_classification else session.errors(absolute=True),
        coverage=session.coverage(),
        changes=changes,
        notes=list(session.notes),
        missing={name: count for name, count in session.encoder.missing.items() if count},
        constant_features=session.encoder.constant_columns,
        features=session.encoder.used_names,
        effects=[] if spec.is_network else session.encoder.names,
        classes=session.encoder.classes,
        skipped_rounds=session.skipped,
        seconds=clock.seconds,
        rows_per_second=clock.rows_per_second,
        left_out=session.unread.count + session.left_out.count,
        left_out_first=[*session.unread.first, *session.left_out.first][:MOST_NAMED],
        fault=fault,
        series=series,
    )
