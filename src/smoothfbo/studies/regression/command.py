"""`smoothfbo regression`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from smoothfbo.harness.options import RunOptions
from smoothfbo.studies.regression.config import RegressionConfig


@dataclass(frozen=True)
class Regression(RegressionConfig, RunOptions):
    __doc__ = RegressionConfig.__doc__

    preset: str = "demo"
    """Where the other options have their defaults from: demo (a minute on 2 cores), paper (all of the paper's figures
    and tables; 20 minutes), ablation (the paper's ranges), tune (outer rates, on seeds that nothing else uses)."""

    def run(self, command: str) -> int:
        config = RegressionConfig(**{field.name: getattr(self, field.name) for field in fields(RegressionConfig)})
        return run_regression(config, self.folder("regression"), command, tensorboard=self.tensorboard)


def run_regression(config: RegressionConfig, folder: Path, command: str, *, tensorboard: bool = False) -> int:
    from smoothfbo.harness.console import run_and_report

    def load() -> tuple[Any, Any]:
        from smoothfbo.studies.regression import report as regression
        from smoothfbo.studies.regression.study import study

        return study, regression

    return run_and_report(load, config, folder, command, tensorboard=tensorboard)
