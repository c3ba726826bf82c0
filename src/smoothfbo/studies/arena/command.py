"""`smoothfbo arena`. No jax here until something runs."""

from smoothfbo.harness.study import Entry, Report, Run
from smoothfbo.studies.arena.config import PRESETS, ArenaConfig


def _execute(run: Run) -> None:
    from smoothfbo.harness.runner import execute
    from smoothfbo.studies.arena.contestants import gather
    from smoothfbo.studies.arena.costs import timed
    from smoothfbo.studies.arena.measure import study

    execute(study(run.config, gather(run.config, run.folder)), timed(run))


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
