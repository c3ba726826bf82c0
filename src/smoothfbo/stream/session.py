"""What a run over a table carries along: encoder, learner, sums of errors; and how it is saved and resumed."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner import files
from smoothfbo.stream.learner.changes import ChangeDetector
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.outcome import Outcome
from smoothfbo.stream.learner.specification import LEVELS, Specification, blocks_until_known
from smoothfbo.stream.odd_values import OddValues
from smoothfbo.stream.reading import Column, Encoder, Schema, open_table
from smoothfbo.stream.reading.faults import LeftOut
from smoothfbo.stream.reading.features import MOST_CLASSES
from smoothfbo.stream.reading.reader import OpenTable
from smoothfbo.stream.rows import Rows

# What may differ between a run and the one that continues it.
MAY_DIFFER = ("data", "sort", "missing", "state", "live", "save_every", "predict_only", "on_error")


class Session:
    """The state of a run between two portions."""

    def __init__(self, config: StreamConfig, schema: Schema, learner: Learner | None = None):
        self.config, self.schema = config.for_task(schema.is_classification), schema
        source = "standard input" if config.data == "-" else config.data
        self.encoder = Encoder(schema, config.all_lags, config.horizon, source)
        self.learner = Learner(specification(self.config, self.encoder)) if learner is None else learner
        methods = len(self.methods)
        self.squared, self.absolute, self.known = np.zeros(methods), np.zeros(methods), 0
        # Of the rows that have a band and a target: how many there are, and how many lie in each band.
        self.banded, self.covered = 0, np.zeros(len(LEVELS))
        self.blocks, self.skipped = 0, 0
        self.changes: list[dict[str, int]] = []
        self.detector = ChangeDetector()
        self.left_out = LeftOut(config.on_error == "skip")  # rows that could be read, but not used
        self.unread = LeftOut()  # those that could not be read; the table's own count
        self.odd_values = OddValues()
        # Of the block that is not yet full: the sum of losses per method, and last the number of rows that count.
        self.pending_loss: list[float] = [0.0] * (methods + 1)
        self.rows = 0

    @property
    def methods(self) -> tuple[str, ...]:
        return ("smoothfbo", *self.learner.spec.reference_names)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.schema.notes, *self.odd_values.notes())

    @property
    def first_notes(self) -> tuple[str, ...]:
        """The same as they are when they are first shown; they do not change when more rows come."""
        return (*self.schema.notes, *self.odd_values.notes(with_counts=False))

    def look_for_odd_values(self, rows: Rows) -> None:
        """A note, once for every column and the target, on a value far from all near it: it may stand for no value."""
        numeric = {column.name for column in self.schema.features if column.kind == "numeric"}
        columns = {name: rows.features[:, i] for i, name in enumerate(self.encoder.names) if name in numeric}
        if not self.schema.is_classification:
            columns[self.schema.target] = rows.target
        self.odd_values.look(columns, self.rows)

    def add(self, target: np.ndarray, outcome: Outcome) -> None:
        """Add the errors of new rows to the sums."""
        losses, scored = self.losses(target, outcome.predictions)
        self.squared += losses.sum(axis=1)
        if not self.schema.is_classification:
            self.absolute += np.abs(outcome.predictions[:, scored] - target[scored]).sum(axis=1)
        if outcome.bands is not None:
            evaluated = ~np.isnan(target) & ~np.isnan(outcome.bands[:, 0, 0])
            low, high = outcome.bands[evaluated].transpose(2, 0, 1)
            inside = (low <= target[evaluated, None]) & (target[evaluated, None] <= high)
            self.banded, self.covered = self.banded + int(evaluated.sum()), self.covered + inside.sum(axis=0)
        self.known += int(scored.sum())
        self.rows += len(target)
        self.skipped += int((~outcome.finite).sum())

    def losses(self, target: np.ndarray, predictions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Squared errors, or 1 where the class is wrong (methods × rows), and which rows count.

        Rows without a target do not, nor those of the very beginning, which cannot be predicted; their loss is 0.
        """
        scored = ~np.isnan(target) & ~np.isnan(predictions).any(axis=0)
        with np.errstate(invalid="ignore"):
            raw = predictions != target if self.schema.is_classification else (predictions - target) ** 2
        return np.where(scored, raw, 0.0), scored

    def errors(self, absolute: bool = False) -> dict[str, float]:
        sums = self.absolute if absolute else self.squared
        return dict(zip(self.methods, (sums / max(self.known, 1)).tolist(), strict=True))

    def coverage(self) -> dict[str, float]:
        """The part of the targets that lay in each band, by the part that should; empty for classes."""
        if not self.banded:
            return {}
        return {str(level): float(part) for level, part in zip(LEVELS, self.covered / self.banded, strict=True)}


def specification(config: StreamConfig, encoder: Encoder) -> Specification:
    """The learner that a configuration asks for, with room for the classes of the first rows."""
    schema, with_references = encoder.schema, config.references and not config.by
    if not encoder.width:
        raise UsageError(
            f"{encoder.source}: there is nothing to predict column {schema.target!r} from; give it a column of "
            "features, or choose `lags` of at least 1."
        )
    return Specification(
        features=encoder.width,
        outputs=min(max(schema.classes, 2), MOST_CLASSES) - 1 if schema.is_classification else 1,
        is_classification=schema.is_classification,
        with_references=with_references,
        lags=encoder.lag_columns if encoder.lags else (0, 0),  # as for an estimator: equal ones share a program
        own=encoder.places,
        delay=blocks_until_known(config.horizon, config.rows_per_block),
        horizon=config.horizon,
        windows=tuple(config.windows) if with_references else (),
        seasons=() if schema.is_classification else config.extra_lags,
        **config.learner_options,
    )


def new_session(config: StreamConfig) -> tuple[OpenTable, Session]:
    table = open_configured(config)
    try:
        return table, Session(config, table.schema)
    except UsageError:
        table.close()
        raise


def open_session(config: StreamConfig, path: Path) -> tuple[OpenTable, Session]:
    """Take up a saved run with the next rows; its options must be the same."""
    learner, content = files.load(path)
    try:
        table = reopen_table(config, content, path)
        session = Session(config, table.schema, learner)
        session.encoder.restore(content["encoder"])
        session.detector.restore(content["detector"])
        session.squared, session.absolute = np.array(content["squared"]), np.array(content["absolute"])
        session.known, session.blocks, session.skipped = content["known"], content["blocks"], content["skipped"]
        session.banded, session.covered = content["banded"], np.array(content["covered"])
        session.changes, session.pending_loss = content["changes"], content["pending_loss"]
        session.left_out.count, session.left_out.first = content["left_out"]
        session.rows, session.odd_values = content["rows"], OddValues.restored(content.get("far_values", {}))
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path} has another shape than this program expects: {error}.") from error
    return table, session


def reopen_table(config: StreamConfig, content: dict[str, Any], path: Path) -> OpenTable:
    """The table with the next rows, read as the ones before, whose `options_and_schema` are in `content`."""
    now, before = _options(config.for_task(content["schema"]["is_classification"])), content["options"]
    for name, value in now.items():
        if before[name] != value:
            raise UsageError(f"`{name}` is {value}, but {path} was learnt with {before[name]}.")
    saved = content["schema"]
    columns = tuple(Column(c["name"], c["kind"], c["slots"]) for c in saved["columns"])
    rest: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in saved.items() if name != "columns"
    }
    return open_configured(config, Schema(columns, **rest))


def options_and_schema(config: StreamConfig, schema: Schema) -> dict[str, Any]:
    """Options and columns, as JSON can hold them."""
    return {"options": _options(config), "schema": dataclasses.asdict(schema)}


def save_session(session: Session, path: Path) -> None:
    content = options_and_schema(session.config, session.schema) | {
        "encoder": session.encoder.state(),
        "detector": session.detector.state(),
        "squared": session.squared.tolist(),
        "absolute": session.absolute.tolist(),
        "known": session.known,
        "banded": session.banded,
        "covered": session.covered.tolist(),
        "blocks": session.blocks,
        "skipped": session.skipped,
        "changes": session.changes,
        "pending_loss": session.pending_loss,
        "rows": session.rows,
        "left_out": [session.left_out.count, session.left_out.first],
        "far_values": session.odd_values.state(),
    }
    files.save(path, session.learner, content)


def _options(config: StreamConfig) -> dict[str, Any]:
    values = dataclasses.asdict(config)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if k not in MAY_DIFFER}


def open_configured(config: StreamConfig, schema: Schema | None = None) -> OpenTable:
    """The table of a configuration, with its schema, if that is known already."""
    return open_table(
        config.data,
        target=config.target,
        block=config.first_rows,
        time=config.time,
        task=config.task,
        categorical=config.categorical,
        ignore=config.ignore,
        missing=config.missing,
        sort=config.sort,
        by=config.by,
        schema=schema,
        skip=config.on_error == "skip",
    )
