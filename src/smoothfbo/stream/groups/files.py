"""A run over many series in one file: begun, saved and resumed."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.groups.learners import SeriesLearners
from smoothfbo.stream.groups.session import SeriesSession
from smoothfbo.stream.learner import files
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.reading.reader import OpenTable
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.session import open_configured, options_and_schema, reopen_table

VERSION = 6


def new_session(config: StreamConfig) -> tuple[OpenTable, SeriesSession]:
    table = open_configured(config)
    try:
        return table, SeriesSession(config, table.schema)
    except UsageError:
        table.close()
        raise


def save_session(session: SeriesSession, path: Path) -> None:
    content = options_and_schema(session.config, session.schema) | {
        "encoder": session.encoder.shared_state(),
        "series": session.keys.names[: session.series],
        "changes": session.changes,
        "skipped": session.skipped,
        "read": session.read,
        "before": session.before,
        "left_out": [session.left_out.count, session.left_out.first],
    }
    header = {
        "format": files.SERIES_FORMAT,
        "version": VERSION,
        "specification": dataclasses.asdict(session.learners.spec),
        "content": content,
    }
    files.write(path, header, session.arrays())


def open_session(config: StreamConfig, path: Path) -> tuple[OpenTable, SeriesSession]:
    """Take up a saved run with the next rows; its options must be the same."""
    header, arrays = files.read(path, files.SERIES_FORMAT, VERSION)
    try:
        content = header["content"]
        table = reopen_table(config, content, path)
        session = SeriesSession(config, table.schema)
        session.keys.add([tuple(name) for name in content["series"]])
        session.changes, session.skipped = content["changes"], content["skipped"]
        session.read, session.before = content["read"], content["before"]
        session.left_out.count, session.left_out.first = content["left_out"]
        chosen: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header["specification"].items()}
        session.learners = learners_of(Specification(**chosen), arrays)
        session.waiting = arrays["waiting"]
        session.encoder.restore_series(content["encoder"], _named("encoder", arrays))
        for name, part in (("sums", session.sums), ("detectors", session.detectors)):
            for field, values in _named(name, arrays).items():
                setattr(part, field, values)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} has another shape than this program expects: {error}.") from error
    return table, session


def learners_of(spec: Specification, arrays: dict[str, np.ndarray]) -> SeriesLearners:
    """The learners that `SeriesLearners.arrays` holds."""
    learners = SeriesLearners(spec)
    pending = Rows(**{name: arrays[f"pending.{name}"] for name in Rows._fields})
    learners.states.make_room_for_classes(int(arrays["outputs"].max(initial=0)) + 1)
    for name, old in (("states", learners.states.numbers), ("pending.features", learners.pending.features)):
        if arrays[name].shape[1:] != old.shape[1:]:
            raise ValueError(f"{name} has {list(arrays[name].shape[1:])} numbers, not {list(old.shape[1:])}")
    learners.states.numbers, learners.states.outputs = arrays["states"], arrays["outputs"]
    learners.pending, learners.kept = pending, arrays["kept"]
    learners.series = len(learners.kept)
    if learners.bands is not None:
        learners.bands.states = arrays["bands"]
    return learners


def _named(part: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(f"{part}."): values for name, values in arrays.items() if name.startswith(f"{part}.")}
