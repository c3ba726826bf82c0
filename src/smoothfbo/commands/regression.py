"""`smoothfbo regression`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from smoothfbo.experiments.regression_config import RegressionConfig


@dataclass(frozen=True)
class Regression(RegressionConfig):
    __doc__ = RegressionConfig.__doc__

    preset: str = "demo"
    """Where the other options have their defaults from: demo (a minute on 2 cores), paper (all of the paper's figures
    and tables; 20 minutes), ablation (the paper's ranges), tune (outer rates, on seeds that nothing else uses)."""
    out: Path | None = None
    """Folder of the run: config.json, metrics.parquet, lanes.parquet, summary.json, figures/, report.html.
    Default: out/regression-PRESET."""
    tensorboard: bool = False
    """Also write TensorBoard files, into the folder's tensorboard/."""

    def run(self, command: str) -> int:
        config = RegressionConfig(**{field.name: getattr(self, field.name) for field in fields(RegressionConfig)})
        folder = self.out or Path(f"out/regression-{self.preset}")
        return run_regression(config, folder, command, tensorboard=self.tensorboard)


def run_regression(config: RegressionConfig, folder: Path, command: str, *, tensorboard: bool = False) -> int:
    from smoothfbo.commands.running import run_and_report

    def load() -> tuple[Any, Any]:
        from smoothfbo.experiments.regression_study import study
        from smoothfbo.report import regression

        return study, regression

    return run_and_report(load, config, folder, command, tensorboard=tensorboard)
