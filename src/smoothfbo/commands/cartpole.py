"""`smoothfbo cartpole`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from smoothfbo.commands.options import RunOptions
from smoothfbo.experiments.cartpole_config import CartPoleConfig


@dataclass(frozen=True)
class CartPole(CartPoleConfig, RunOptions):
    __doc__ = CartPoleConfig.__doc__

    preset: str = "quick"
    """Where the other options have their defaults from: quick (100,000 steps; minutes on 2 cores), paper (1,000,000
    steps, all methods, tuned settings; for a GPU), appendix (100,000 steps, several windows); and three that find
    settings on seeds that nothing else uses: tune (the grid), retune (the best of tune, longer, with other final rates
    and windows), choose (the best of retune on more seeds)."""

    def run(self, command: str) -> int:
        config = CartPoleConfig(**{field.name: getattr(self, field.name) for field in fields(CartPoleConfig)})
        return run_cartpole(config, self.folder("cartpole"), command, tensorboard=self.tensorboard)


def run_cartpole(config: CartPoleConfig, folder: Path, command: str, *, tensorboard: bool = False) -> int:
    from smoothfbo.commands.running import run_and_report

    def load() -> tuple[Any, Any]:
        from smoothfbo.experiments.cartpole_study import study
        from smoothfbo.report import cartpole

        return study, cartpole

    status = run_and_report(load, config, folder, command, tensorboard=tensorboard)
    if status == 0:
        keep_best(folder)
    return status


def keep_best(folder: Path) -> None:
    """The best settings of a run as a file that --settings reads."""
    from smoothfbo.runs import store

    store.write_json(folder / "best.json", store.read_json(folder / "summary.json")["best"])
