"""A stream's run in its folder: begun, taken up where it was killed, finished."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from smoothfbo.errors import UsageError
from smoothfbo.harness import store
from smoothfbo.harness.interruption import Interruption
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.folder import TABLES, StreamFolder
from smoothfbo.stream.pipeline import StreamProgress, finish, open_stream, process_pieces
from smoothfbo.stream.reading.reader import can_be_read_again
from smoothfbo.stream.session import Session, save_session

EXPERIMENT = "stream"


class Stopped(Exception):
    """The user asked to stop; everything is kept."""


def execute(
    config: StreamConfig, folder: Path, command: str, state: Path | None, tell: Callable[[StreamProgress], None]
) -> None:
    """Run what is not done yet and write predictions.parquet, blocks.parquet and, last, summary.json.

    What ended the run before the end of the table, if anything did, is in the summary. A file can be taken up again
    after `Stopped`, or after a crash; standard input cannot, so there Ctrl-C is the end of the table.
    """
    _check_state(state)
    description = describe(config, command, state)
    is_begun = _holds_this_run(folder, config, description)
    if is_begun and is_finished(folder):
        return
    opened = open_stream(config, state, StreamFolder(folder).snapshot if is_begun else None)
    if not is_begun:
        store.claim(folder, EXPERIMENT, description)
    is_file = can_be_read_again(config.data)

    def save(session: Session) -> None:
        sink.save_when_due(lambda path: save_session(session, path))

    def save_last(session: Session) -> None:
        sink.save(lambda path: save_session(session, path))

    with Interruption() as interruption, StreamFolder(folder) as sink:
        pieces = interruption.watch(opened.pieces())
        # After `save_last` everything can be done again, as it is, by a run that takes up its snapshot.
        results = process_pieces(opened.session, pieces, sink, tell, save if is_file else None, save_last)
        is_stopped = interruption.was_asked and results.fault is None
        if is_stopped and is_file:
            raise Stopped
        results = finish(results, opened.session)
        if state is not None:
            save_session(opened.session, state)
        sink.join()
        store.write_json(folder / "summary.json", results.summary() | {"stopped": is_stopped})


def describe(config: StreamConfig, command: str, state: Path | None) -> dict[str, Any]:
    """All that is needed to repeat the run, and by what its data can be told from other data."""
    description = store.describe_run(EXPERIMENT, command, config, [str(jax.devices("cpu")[0])])
    description["config"]["state"] = None if state is None else str(state)
    if can_be_read_again(config.data):
        status = Path(config.data).stat()
        description["data"] = {"bytes": status.st_size, "modified": status.st_mtime_ns}
    return description


def is_finished(folder: Path) -> bool:
    return (folder / "summary.json").exists()


def _check_state(state: Path | None) -> None:
    """What would go wrong when it is written, before anything is done."""
    if state is None:
        return
    if state.is_dir():
        raise UsageError(f"`state` {state} is a folder, not a file.")
    if not state.parent.is_dir():
        raise UsageError(f"`state` {state}: the folder {state.parent} does not exist.")


def _holds_this_run(folder: Path, config: StreamConfig, description: dict[str, Any]) -> bool:
    """Whether the folder holds this run already; another run in it, or one over other rows, is refused."""
    if not (folder / "config.json").exists():
        return False
    store.claim(folder, EXPERIMENT, description)
    if "data" not in description:
        if not Path(config.data).exists() and config.data != "-":
            raise UsageError(f"{config.data} does not exist.")
        raise UsageError(f"{folder} holds a run over rows that cannot be read again; give another folder with `out`.")
    if store.read_json(folder / "config.json").get("data") == description["data"]:
        return True
    nothing_to_lose = StreamFolder(folder).snapshot is None and not is_finished(folder)
    had_fault = is_finished(folder) and store.read_json(folder / "summary.json").get("fault") is not None
    if not nothing_to_lose and (not had_fault or description["config"]["state"] is not None):
        raise UsageError(f"{config.data} has changed since the run in {folder}; give another folder with `out`.")
    for name in ("summary.json", "config.json", *(f"{name}.parquet" for name in TABLES)):
        (folder / name).unlink(missing_ok=True)
    return False
