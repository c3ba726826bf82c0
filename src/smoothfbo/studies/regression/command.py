"""`smoothfbo regression`. No jax here until something runs."""

from smoothfbo.harness.study import Entry, Report, Run
from smoothfbo.studies.regression.config import RegressionConfig
from smoothfbo.studies.regression.presets import PRESETS


def _execute(run: Run) -> None:
    from smoothfbo.harness.runner import execute
    from smoothfbo.studies.regression.measure import study

    execute(study(run.config), run)


def _report() -> Report:
    from smoothfbo.studies.regression import report

    return Report(report.build, report.as_text, combine=report.compare)


ENTRY = Entry(
    name="regression",
    config=RegressionConfig,
    execute=_execute,
    report=_report,
    presets=PRESETS,
    preset_help=(
        "demo (a minute on 2 cores), paper (all of the paper's figures and tables; 20 minutes), ablation (the paper's "
        "ranges), tune (outer rates, on seeds that nothing else uses)."
    ),
)
