"""A stream's run in its folder: begun, resumed where it was killed, finished."""

import shutil
from pathlib import Path
from typing import Any

import jax

from smoothfbo.errors import UsageError
from smoothfbo.harness import folders, store
from smoothfbo.harness.folders import Stopped
from smoothfbo.harness.interruption import Interruption
from smoothfbo.harness.study import Progress, Run
from smoothfbo.stream import pipeline
from smoothfbo.stream.charts import label
from smoothfbo.stream.config import StreamConfig, with_flags
from smoothfbo.stream.folder import TABLES, StreamFolder
from smoothfbo.stream.groups import pipeline as series_pipeline
from smoothfbo.stream.groups import shares
from smoothfbo.stream.groups.files import save_session as save_series
from smoothfbo.stream.groups.summary import write_series
from smoothfbo.stream.passes import StreamProgress, best_reference, finish
from smoothfbo.stream.reading.reader import can_be_read_again
from smoothfbo.stream.session import save_session


def execute(run: Run) -> None:
    """Run what is not done yet and write predictions.parquet, blocks.parquet and, last, summary.json.

    What ended the run before the end of the table, if anything did, is in the summary. A file can be resumed after
    `Stopped`, or after a crash; standard input cannot, so there Ctrl-C is the end of the table.
    """
    config, folder = run.config, run.folder
    if run.block is not None:
        shares.run_share(run)
        return
    state = None if config.state is None else Path(config.state)
    check_state(state)
    description = describe(config, run.command)
    is_begun = _holds_this_run(folder, config, description)
    if is_begun and folders.is_complete(folder):
        return
    if run.workers is not None:
        shares.run_shares(run, description)
        return
    how: Any = series_pipeline if config.by else pipeline
    save_to: Any = save_series if config.by else save_session
    opened = how.open_stream(config, state, StreamFolder(folder).snapshot if is_begun else None)
    if not is_begun:
        folders.claim(folder, description)
    is_file = can_be_read_again(config.data)
    run.on_progress(Progress("compiling", opened.session.rows, None, "rows", compiling=True))

    def save(session: Any) -> None:
        sink.save_when_due(lambda path: save_to(session, path))

    def save_last(session: Any) -> None:
        sink.save(lambda path: save_to(session, path))

    def on_progress(progress: StreamProgress) -> None:
        notes = tuple(map(with_flags, progress.notes))
        run.on_progress(Progress(_line(progress), progress.rows, None, "rows", notes=notes))

    with folders.exclusive(folder / "progress"), Interruption() as interruption, StreamFolder(folder) as sink:
        pieces = interruption.watch(opened.pieces())
        # After `save_last` everything can be done again, as it is, by a run that resumes its snapshot.
        results = how.process_pieces(opened.session, pieces, sink, on_progress, save if is_file else None, save_last)
        is_stopped = interruption.is_requested and results.fault is None
        if is_stopped and is_file:
            raise Stopped
        results = finish(results, opened.session)
        if state is not None and not config.predict_only:
            save_to(opened.session, state)
        sink.join()
        if config.by:
            write_series(opened.session, folder)
        folders.write_summary(folder, {"summary": results.summary() | {"stopped": is_stopped}})


def describe(config: StreamConfig, command: str) -> dict[str, Any]:
    """All that is needed to repeat the run, and by what its data can be told from other data."""
    description = folders.describe("stream", command, config, [str(jax.devices("cpu")[0])])
    if can_be_read_again(config.data):
        status = Path(config.data).stat()
        description["data"] = {"bytes": status.st_size, "modified": status.st_mtime_ns}
    return description


def _line(progress: StreamProgress) -> str:
    """12,000 rows, error so far 0.0123 (best fixed expert: 0.0125)."""
    text = f"{progress.rows:,} rows, error so far {progress.errors['smoothfbo']:.4g}"
    best = best_reference(progress.errors)
    return text if best is None else f"{text} ({label(best, progress.block)}: {progress.errors[best]:.4g})"


def check_state(state: Path | None) -> None:
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
    folders.claim(folder, description)
    if "data" not in description:
        if not Path(config.data).exists() and config.data != "-":
            raise UsageError(f"{config.data} does not exist.")
        raise UsageError(f"{folder} holds a run over rows that cannot be read again; give another folder with `out`.")
    if store.read_json(folder / "config.json").get("data") == description["data"]:
        return True
    is_finished = folders.is_finished(folder)
    nothing_to_lose = StreamFolder(folder).snapshot is None and not is_finished
    had_fault = is_finished and store.read_json(folder / "summary.json").get("fault") is not None
    if not nothing_to_lose and (not had_fault or config.state is not None):
        raise UsageError(f"{config.data} has changed since the run in {folder}; give another folder with `out`.")
    for name in ("summary.json", "config.json", *(f"{name}.parquet" for name in TABLES)):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "progress", ignore_errors=True)
    return False
