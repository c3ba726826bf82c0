"""`smoothfbo stream`. No jax here until something runs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from smoothfbo.harness.study import Entry, Report, Run
from smoothfbo.stream.config import StreamConfig, with_flags


@dataclass(frozen=True)
class Arguments(StreamConfig):
    """The options as the command line has them: the table is not a flag."""

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """CSV, CSV.gz or Parquet file; `-` reads CSV from standard input, line by line."""


def default_folder(config: Any, preset: str = "") -> Path:
    """out/stream-demand for demand.csv.gz."""
    del preset
    name = "stdin" if config.data == "-" else Path(config.data).name.removesuffix(".gz")
    return Path(f"out/stream-{Path(name).stem or 'data'}")


def _live(config: Any) -> int | None:
    """Rows answered on standard output, which then is for nothing else."""
    if config.live is None:
        return None
    from smoothfbo.harness.console import start_jax

    start_jax(cpu_only=True)
    from smoothfbo.stream.live import run_live

    return run_live(config, lambda line: print(f"smoothfbo: {with_flags(line)}", file=sys.stderr, flush=True))


def _execute(run: Run) -> None:
    from smoothfbo.stream.run import execute

    execute(run)


def _report() -> Report:
    from smoothfbo.stream import report

    return Report(report.build, report.as_text, report.outcome)


ENTRY = Entry(
    name="stream",
    config=StreamConfig,
    execute=_execute,
    report=_report,
    without_folder=_live,
    arguments=Arguments,
    folder=default_folder,
    has_lanes=False,
    cpu_only=True,  # many small steps in float64; a GPU would only be kept from others
    side_by_side=lambda config: bool(config.by),  # batches of series
)
