"""`smoothfbo arena`. No jax here until something runs."""

from functools import lru_cache
from pathlib import Path

from smoothfbo.harness.study import Entry, Report, Run, Study
from smoothfbo.studies.arena.config import PRESETS, ArenaConfig


def _study(config: ArenaConfig, folder: Path) -> Study:
    from smoothfbo.studies.arena.contestants import gather
    from smoothfbo.studies.arena.measure import study

    return study(config, gather(config, folder))


_study_of_worker = lru_cache(maxsize=1)(_study)  # it runs one block after the other of the same run


def _execute(run: Run) -> None:
    import time

    import jax

    from smoothfbo.harness.runner import execute
    from smoothfbo.studies.arena.costs import timed

    # The time of the process's own threads, where they do the work: other programs on the machine do not count.
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    make = _study if run.block is None else _study_of_worker
    execute(make(run.config, run.folder), timed(run, clock))


def _report() -> Report:
    from smoothfbo.studies.arena import report

    return Report(report.build, report.as_text)


ENTRY = Entry(
    name="arena",
    config=ArenaConfig,
    execute=_execute,
    report=_report,
    presets=PRESETS,
    preset_help=(
        "quick (some methods and problems; at most five minutes on 2 cores), full (all of them, 20 fresh seeds; 40 "
        "minutes on 2 cores, or a GPU)."
    ),
)
