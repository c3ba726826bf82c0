"""`smoothfbo resume` and `smoothfbo report`: what can be done with the folder of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from smoothfbo.errors import UsageError


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped or killed; it ends with the same bits as one that was not."""

    folder: tyro.conf.Positional[Path]
    """The folder of the run (what was given as --out)."""

    def run(self, command: str) -> int:
        del command
        from smoothfbo.harness.registry import STUDIES, from_stored

        stored = read_description(self.folder)
        if stored["experiment"] == "stream":
            from smoothfbo.stream import command as stream

            config, state = stream.from_stored(stored["config"])
            return stream.run_stream(config, self.folder, stored["command"], state)
        if stored["experiment"] not in STUDIES:
            raise UsageError(f"{self.folder} is a run of {stored['experiment']}, which starts anew: run it again.")
        config, run = from_stored(stored["experiment"], stored["config"])
        return run(config, self.folder, stored["command"], tensorboard=(self.folder / "tensorboard").exists())


@dataclass(frozen=True)
class Report:
    """Draw figures and page again from the stored files of a run.

    Several runs of regression are compared on one page, and several of cartpole are put together, in the folder --out;
    of other commands every run gets its own page again. Of CartPole runs the summary and the best settings are made
    again, too.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """One folder or several."""
    out: Path = Path("out/comparison")
    """Folder of the comparison, where several runs are given."""

    def run(self, command: str) -> int:
        del command
        from smoothfbo.harness.console import make_console, say

        if not self.folders:
            raise UsageError("report needs the folder of a run, or several.")
        descriptions = [read_description(folder) for folder in self.folders]
        for folder in self.folders:
            if not (folder / "summary.json").exists():
                raise UsageError(f"{folder} is not finished: go on with `smoothfbo resume {folder}`.")
        console = make_console()
        for page in pages(self.folders, descriptions, self.out):
            say(console, f"Written: {page}")
        return 0


def pages(folders: tuple[Path, ...], descriptions: list[dict[str, Any]], out: Path) -> list[Path]:
    from smoothfbo.harness.registry import from_stored
    from smoothfbo.stream import report as stream
    from smoothfbo.studies.cartpole import report as cartpole
    from smoothfbo.studies.cartpole.command import summarise_tables
    from smoothfbo.studies.regression import report as regression
    from smoothfbo.studies.theory import report as theory

    kinds = {description["experiment"] for description in descriptions}
    if len(kinds) > 1:
        raise UsageError(f"only runs of one experiment can be compared, got {', '.join(sorted(kinds))}.")
    if kinds == {"theory"}:
        return [path for folder in folders for path in theory.draw(folder)]
    if kinds == {"cartpole"}:
        for description in descriptions:
            from_stored("cartpole", description["config"])  # its tables have a column for every number
        folder = folders[0] if len(folders) == 1 else merge_cartpole(folders, descriptions, out)
        config, _ = from_stored("cartpole", read_description(folder)["config"])
        summarise_tables(config, folder)
        return [cartpole.build(folder)]
    if kinds == {"stream"}:
        return [stream.build(folder) for folder in folders]
    if len(folders) == 1:
        return [regression.build(folders[0])]
    return [regression.compare(list(folders), out)]


def merge_cartpole(folders: tuple[Path, ...], descriptions: list[dict[str, Any]], out: Path) -> Path:
    """One folder with the lanes of several runs: of other methods, settings, environments or seeds."""
    import pandas as pd

    from smoothfbo.harness import store
    from smoothfbo.studies.cartpole.command import read_tables
    from smoothfbo.studies.cartpole.config import LANE, WHICH_LANES

    if (out / "config.json").exists() and "parts" not in read_description(out):
        raise UsageError(f"--out {out} is the folder of a run, which would be lost; give another one.")
    configs = [description["config"] for description in descriptions]
    differing = sorted(
        name for name in configs[0] if name not in WHICH_LANES and len({str(each.get(name)) for each in configs}) > 1
    )
    if differing:
        raise UsageError(f"these runs cannot be put together: they differ in {', '.join(differing)}.")
    parts = [read_tables(folder) for folder in folders]
    tables = {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
    lanes = tables["lanes"]
    twice = lanes[lanes.duplicated(list(LANE))]
    if len(twice):
        lane = ", ".join(f"{name} {twice.iloc[0][name]}" for name in ("method", "environment", "seed"))
        raise UsageError(f"these runs cannot be put together: a lane is in two of them ({lane}).")
    arrays = [store.read_arrays(path) for folder in folders if (path := folder / "arrays.npz").exists()]
    # The numbers that the lanes really have: where settings are used, those of the options are not.
    chosen = {name: lanes[name].unique().tolist() for name in LANE}
    seeds = chosen.pop("seed")
    chosen |= {"methods": chosen.pop("method"), "first_seed": min(seeds), "seeds": len(seeds)}
    store.prepare(out)
    together = {
        name: "; ".join(dict.fromkeys(str(description.get(name)) for description in descriptions))
        for name in ("command", "commit")
    }
    together |= {
        "config": configs[0] | chosen,
        "parts": list(map(str, folders)),
    }
    first_run = {name: value for name, value in descriptions[0].items() if name != "settings"}  # others have others
    store.write_json(out / "config.json", first_run | together)
    if arrays:
        # Of a policy that several runs have shown, the first run's, as a run shows its first lane's.
        store.write_arrays(
            out / "arrays.npz", {name: values for part in reversed(arrays) for name, values in part.items()}
        )
    for name, table in tables.items():
        store.write_table(out / f"{name}.parquet", table)
    return out


def read_description(folder: Path) -> dict[str, Any]:
    from smoothfbo.harness import store

    if not (folder / "config.json").exists():
        raise UsageError(f"{folder} is not the folder of a run: it has no config.json.")
    stored = store.read_json(folder / "config.json")
    complete = isinstance(stored, dict) and {"experiment", "config", "command"} <= set(stored)
    if not complete or not isinstance(stored["config"], dict):
        raise UsageError(f"{folder / 'config.json'} is not the description of a run.")
    if stored["experiment"] not in ("regression", "cartpole", "stream", "theory"):
        raise UsageError(f"{folder} is a run of {stored['experiment']!r}, which this version does not know.")
    return stored
