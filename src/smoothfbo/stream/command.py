"""`smoothfbo stream`."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from smoothfbo.stream.config import StreamConfig

if TYPE_CHECKING:
    from rich.console import Console

    from smoothfbo.stream.pipeline import StreamProgress


@dataclass(frozen=True)
class Stream(StreamConfig):
    __doc__ = StreamConfig.__doc__

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """CSV, CSV.gz or Parquet file; `-` reads CSV from standard input, line by line."""
    out: Path | None = None
    """Folder of the run: config.json, predictions.parquet, blocks.parquet, summary.json, figures/, report.html.
    Default: out/stream-NAME, after the file."""
    state: Path | None = None
    """File to save the learner in; if it exists, go on from there with the rows of this file, as new rows."""

    def run(self, command: str) -> int:
        config = StreamConfig(**{field.name: getattr(self, field.name) for field in fields(StreamConfig)})
        return run_stream(config, self.out or default_folder(self.data), command, self.state)


def default_folder(data: str) -> Path:
    """out/stream-demand for demand.csv.gz."""
    name = "stdin" if data == "-" else Path(data).name.removesuffix(".gz")
    return Path(f"out/stream-{Path(name).stem or 'data'}")


def from_stored(config: dict[str, Any]) -> tuple[StreamConfig, Path | None]:
    """The configuration in a config.json, and the file of the learner."""
    from smoothfbo.harness.registry import configuration

    state = config.get("state")
    options = {name: value for name, value in config.items() if name != "state"}
    return configuration(StreamConfig, options), None if state is None else Path(state)


def run_stream(config: StreamConfig, folder: Path, command: str, state: Path | None = None) -> int:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # many small steps in float64; a GPU would only be kept from others
    from smoothfbo.harness.console import make_console, start_jax, warnings_as_lines

    start_jax()
    from smoothfbo.harness import store
    from smoothfbo.stream import report as report
    from smoothfbo.stream import run as stream_run

    console = make_console()
    finished = stream_run.is_finished(folder)
    try:
        with warnings_as_lines(), _progress(console) as tell:
            stream_run.execute(config, folder, command, state, tell)
    except stream_run.Stopped:
        print(f"smoothfbo: stopped; go on with: smoothfbo resume {shlex.quote(str(folder))}", file=sys.stderr)
        return 130
    if finished:
        console.print(f"{folder} holds a finished run.", markup=False)
    with console.status("drawing"):
        page = report.build(folder)
    for line in report.as_text(folder):
        console.print(line, markup=False)
    console.print(
        f"Page: {page} (numbers in predictions.parquet, blocks.parquet and summary.json beside it)", markup=False
    )
    summary = store.read_json(folder / "summary.json")
    if state is not None:
        console.print(f"Learner: {state}, after {summary['rows']:,} rows", markup=False)
    if summary["fault"] is not None:
        print(f"smoothfbo: {summary['fault']} The {summary['rows']:,} rows before are kept.", file=sys.stderr)
        return 2
    if summary["stopped"]:
        print("smoothfbo: stopped; standard input cannot be taken up again, so this is the end.", file=sys.stderr)
        return 130
    return 0


@contextmanager
def _progress(console: "Console") -> Iterator[Callable[["StreamProgress"], None]]:
    """Rows, rows per second and running errors; without a terminal, a line now and then. Notes are printed once."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)
        notes: set[str] = set()
        said = time.monotonic()

        def tell(progress: "StreamProgress") -> None:
            nonlocal said
            for note in progress.notes:
                if note not in notes:
                    console.print(note, markup=False, highlight=False)
                    notes.add(note)
            text = _line(progress)
            bar.update(task, description=text)
            if not console.is_terminal and time.monotonic() - said > 10:
                print(text, file=sys.stderr, flush=True)
                said = time.monotonic()

        yield tell


def _line(progress: "StreamProgress") -> str:
    """12,000 rows, 60,000 rows/s, error so far 0.0123 (best fixed forgetting 0.0125)."""
    from smoothfbo.stream.charts import label
    from smoothfbo.stream.pipeline import best_reference

    text = f"{progress.rows:,} rows, {progress.rows_per_second:,.0f} rows/s, "
    text += f"error so far {progress.errors['smoothfbo']:.4g}"
    best = best_reference(progress.errors)
    return text if best is None else f"{text} ({label(best)}: {progress.errors[best]:.4g})"
