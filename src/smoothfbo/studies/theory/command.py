"""`smoothfbo theory`. No jax here until something runs."""

from smoothfbo.harness.study import Entry, Report, Run
from smoothfbo.studies.theory.config import PRESETS, TheoryConfig


def _execute(run: Run) -> None:
    from smoothfbo.harness.runner import execute
    from smoothfbo.studies.theory.program import study

    execute(study(run.config), run)


def _report() -> Report:
    from smoothfbo.studies.theory import report

    return Report(report.build, report.as_text, report.outcome)


ENTRY = Entry(
    name="theory",
    config=TheoryConfig,
    execute=_execute,
    report=_report,
    presets=PRESETS,
    preset_help="full, all statements and the growth of the regret up to 100,000 rounds (a few minutes on 2 cores).",
)
