"""`smoothfbo cartpole`."""

from dataclasses import dataclass, fields
from pathlib import Path

from smoothfbo.experiments.cartpole_config import CartPoleConfig


@dataclass(frozen=True)
class CartPole(CartPoleConfig):
    __doc__ = CartPoleConfig.__doc__

    preset: str = "quick"
    """Where the other options have their defaults from: quick (100,000 steps; minutes on 2 cores), paper (1,000,000
    steps, all methods, tuned settings; for a GPU), tune (the grid, on seeds that nothing else uses)."""
    out: Path | None = None
    """Folder of the run: config.json, metrics.parquet, lanes.parquet, summary.json, figures/, report.html.
    Default: out/cartpole-PRESET."""
    tensorboard: bool = False
    """Also write TensorBoard files, into the folder's tensorboard/."""

    def run(self, command: str) -> int:
        config = CartPoleConfig(**{field.name: getattr(self, field.name) for field in fields(CartPoleConfig)})
        folder = self.out or Path(f"out/cartpole-{self.preset}")
        return run_cartpole(config, folder, command, tensorboard=self.tensorboard)


def run_cartpole(config: CartPoleConfig, folder: Path, command: str, *, tensorboard: bool = False) -> int:
    from smoothfbo.commands.running import make_console, run_study, say, start_jax

    start_jax()
    from smoothfbo.experiments.cartpole_study import study
    from smoothfbo.report import cartpole as report
    from smoothfbo.runs import store

    console = make_console()
    if not run_study(study(config), folder, command, console, tensorboard=tensorboard):
        return 130
    with console.status("drawing"):
        page = report.build(folder)
    store.write_json(folder / "best.json", store.read_json(folder / "summary.json")["best"])
    for line in report.as_text(folder):
        console.print(line)
    say(console, f"Page: {page} (figures in {folder}/figures, numbers in summary.json and metrics.parquet)")
    return 0
