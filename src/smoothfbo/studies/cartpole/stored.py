"""Stored runs of CartPole: summarised anew, and several put together. No jax here."""

from pathlib import Path
from typing import Any

import pandas as pd

from smoothfbo.errors import UsageError
from smoothfbo.harness import store
from smoothfbo.harness.folders import configuration, read_description, write_summary
from smoothfbo.studies.cartpole.config import LANE, WHICH_LANES, CartPoleConfig
from smoothfbo.studies.cartpole.measure import HEADLINES, summarise
from smoothfbo.studies.cartpole.report import build


def refresh(folder: Path) -> None:
    """summary.json and best.json from the tables, as this version summarises them."""
    config = configuration(CartPoleConfig, read_description(folder)["config"])
    write_summary(folder, summarise(config, read_tables(folder)))


def combine(folders: tuple[Path, ...], out: Path) -> Path:
    """One folder and one page with the lanes of several runs: of other methods, settings, environments or seeds."""
    descriptions = [read_description(folder) for folder in folders]
    for description in descriptions:
        configuration(CartPoleConfig, description["config"])  # its tables have a column for every number
    merge(folders, descriptions, out)
    refresh(out)
    return build(out)


def merge(folders: tuple[Path, ...], descriptions: list[dict[str, Any]], out: Path) -> None:
    if (out / "config.json").exists() and "parts" not in read_description(out):
        raise UsageError(f"{out} is the folder of a run, which would be lost; give another one with `out`.")
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
    joined = {
        name: "; ".join(dict.fromkeys(str(description.get(name)) for description in descriptions))
        for name in ("command", "commit")
    }
    joined |= {"config": configs[0] | chosen, "parts": list(map(str, folders))}
    first_run = {name: value for name, value in descriptions[0].items() if name != "settings"}  # others have others
    store.write_json(out / "config.json", first_run | joined)
    if arrays:
        # Of a policy that several runs have shown, the first run's, as a run shows its first lane's.
        store.write_arrays(
            out / "arrays.npz", {name: values for part in reversed(arrays) for name, values in part.items()}
        )
    for name, table in tables.items():
        store.write_table(out / f"{name}.parquet", table)


def read_tables(folder: Path) -> dict[str, Any]:
    """The stored metrics and lanes, with the columns that this version needs."""
    result = {}
    for name, columns in (("metrics", {"return_mean", "newest_return"}), ("lanes", {*HEADLINES, "frozen", "skipped"})):
        table = result[name] = store.read_table(folder / f"{name}.parquet")
        missing = {*LANE, *columns} - set(table.columns)
        if missing or table.empty:
            why = f"has no {', '.join(sorted(missing))}" if missing else "is empty"
            raise UsageError(f"{folder / name}.parquet is not what this version of smoothfbo writes: it {why}.")
    return result
