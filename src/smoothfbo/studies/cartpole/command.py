"""`smoothfbo cartpole`."""

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from smoothfbo.errors import UsageError
from smoothfbo.harness.options import RunOptions
from smoothfbo.studies.cartpole.config import GRID, LANE, PRESETS, CartPoleConfig


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
        for name in GRID:
            given = getattr(config, name) != getattr(PRESETS[self.preset], name)
            if given and config.settings != "none" and name not in config.vary:
                option = name.replace("_", "-")
                raise UsageError(
                    f"--{option} has no effect: --settings {config.settings} says what it is. Add --vary {name} to "
                    "vary it, or --settings none to take all numbers from the options."
                )
        return run_cartpole(config, self.folder("cartpole"), command, tensorboard=self.tensorboard)


def run_cartpole(config: CartPoleConfig, folder: Path, command: str, *, tensorboard: bool = False) -> int:
    from smoothfbo.harness.console import run_and_report

    def load() -> tuple[Any, Any]:
        from smoothfbo.studies.cartpole import report as cartpole
        from smoothfbo.studies.cartpole.measure import study

        return partial(study, stored=stored_settings(config, folder)), cartpole

    return run_and_report(
        load, config, folder, command, tensorboard=tensorboard, before_report=partial(summarise_tables, config)
    )


def stored_settings(config: CartPoleConfig, folder: Path) -> dict[str, Any] | None:
    """The settings that the run in the folder began with; None if there is none, or one of other settings."""
    from smoothfbo.harness.stored import read_description

    if not (folder / "config.json").exists():
        return None
    description = read_description(folder)
    return description.get("settings") if description["config"].get("settings") == config.settings else None


def summarise_tables(config: CartPoleConfig, folder: Path) -> None:
    """summary.json from the tables, as this version summarises them, and best.json, which --settings reads."""
    from smoothfbo.harness import store
    from smoothfbo.studies.cartpole.measure import summarise

    tables = read_tables(folder)
    summary = summarise(config, tables["metrics"], tables["lanes"])
    store.write_json(folder / "summary.json", summary)
    store.write_json(folder / "best.json", summary["best"])


def read_tables(folder: Path) -> dict[str, Any]:
    """The stored metrics and lanes, with the columns that this version needs."""
    from smoothfbo.harness import store
    from smoothfbo.studies.cartpole.measure import HEADLINES

    result = {}
    for name, columns in (("metrics", {"return_mean", "newest_return"}), ("lanes", {*HEADLINES, "frozen", "skipped"})):
        table = result[name] = store.read_table(folder / f"{name}.parquet")
        missing = {*LANE, *columns} - set(table.columns)
        if missing or table.empty:
            why = f"has no {', '.join(sorted(missing))}" if missing else "is empty"
            raise UsageError(f"{folder / name}.parquet is not what this version of smoothfbo writes: it {why}.")
    return result
