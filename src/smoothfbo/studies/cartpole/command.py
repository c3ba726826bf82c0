"""`smoothfbo cartpole`. No jax here until something runs."""

from typing import Any

from smoothfbo.errors import UsageError
from smoothfbo.harness.study import Entry, Report, Run
from smoothfbo.studies.cartpole.config import GRID, CartPoleConfig
from smoothfbo.studies.cartpole.presets import PRESETS


def _check(config: CartPoleConfig, preset: Any) -> None:
    """Numbers that the settings would override are refused."""
    for name in GRID:
        is_given = getattr(config, name) != getattr(preset, name)
        if is_given and config.settings != "none" and name not in config.vary:
            raise UsageError(
                f"`{name}` has no effect: `settings` {config.settings} says what it is. Add `vary` {name} to vary it, "
                "or `settings` none to take all numbers from the options."
            )


def _execute(run: Run) -> None:
    from smoothfbo.harness.runner import execute
    from smoothfbo.studies.cartpole.program import study
    from smoothfbo.studies.cartpole.settings import stored_settings

    execute(study(run.config, stored_settings(run.config, run.folder)), run)


def _report() -> Report:
    from smoothfbo.studies.cartpole import report, stored

    return Report(report.build, report.as_text, refresh=stored.refresh, combine=stored.combine)


ENTRY = Entry(
    name="cartpole",
    config=CartPoleConfig,
    execute=_execute,
    report=_report,
    presets=PRESETS,
    check=_check,
    preset_help=(
        "quick (100,000 steps; minutes on 2 cores), paper (1,000,000 steps, all methods, tuned settings; for a GPU), "
        "appendix (100,000 steps, several windows); and three that find settings on seeds that nothing else uses: tune "
        "(the grid), retune (the best of tune, longer, with other final rates and windows), choose (the best of retune "
        "on more seeds). faithful is the paper's algorithm as written, and faithful-tune finds its settings; "
        "faithful-REMEDY adds one remedy to it, paper-no-REMEDY takes one away from ours (twin, clip, bounds, leak, "
        "falling, averaged)."
    ),
)
