"""The folder of a run: claimed once, used by one process at a time, finished when its summary is there."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothfbo import __version__
from smoothfbo.errors import UsageError
from smoothfbo.harness import store

MISSING = "missing.json"
PACKAGES = ("smoothfbo", "jax", "jaxlib", "optax", "equinox", "numpy")


class FolderInUse(UsageError):
    """Another process is at work in a folder."""


class Stopped(Exception):
    """The user asked to stop; everything is kept."""


def describe(name: str, command: str, config: Any, devices: list[str]) -> dict[str, Any]:
    """All that is needed to repeat a run, as config.json holds it."""
    return {
        "experiment": name,
        "command": command,
        "config": json.loads(json.dumps(dataclasses.asdict(config), default=str)),
        "versions": {package: _version(package) for package in PACKAGES},
        "commit": commit_of_source(),
        "python": platform.python_version(),
        "devices": devices,
        "processors": os.cpu_count(),
        "machine": platform.machine(),
    }


def claim(folder: Path, description: dict[str, Any]) -> None:
    """Take the folder for a run, or resume the run of the same configuration that is in it."""
    store.prepare(folder)
    path = folder / "config.json"
    if not path.exists():
        left = [name for name in ("summary.json", "metrics.parquet", "progress") if (folder / name).exists()]
        if left:
            raise UsageError(f"{folder} holds {left[0]} of a run but no config.json; give another folder.")
        store.write_json(path, description)
        return
    stored = store.read_json(path)
    if not isinstance(stored, dict) or "config" not in stored:
        raise UsageError(f"{path} is not the configuration of a run; give another folder.")
    if stored.get("experiment") != description["experiment"]:
        raise UsageError(f"{folder} holds a run of {stored.get('experiment')!r}; give another folder.")
    here, there = description["config"], stored["config"]
    different = [
        f"{name} = {there.get(name)!r} there, {here.get(name)!r} here"
        for name in dict.fromkeys([*here, *there])
        if here.get(name) != there.get(name)
    ]
    if different:
        raise UsageError(
            f"{folder} holds a run of another configuration ({'; '.join(different)}); give another folder."
        )
    for name in ("versions", "commit", "devices"):
        if stored.get(name) != description[name]:
            text = f"{folder} was begun with other {name}; the last bits of its figures may differ"
            warnings.warn(text, stacklevel=2)


def stored_block_size(folder: Path) -> int | None:
    """Lanes of a block of the run in a folder; None where its programs are whole."""
    return (read_description(folder).get("workers") or {}).get("block")


def stored_workers(folder: Path) -> str | None:
    """What the option `workers` was when the run in a folder began."""
    if not (folder / "config.json").exists():
        return None
    stored = store.read_json(folder / "config.json")
    return (stored.get("workers") or {}).get("request") if isinstance(stored, dict) else None


def is_finished(folder: Path) -> bool:
    """The summary is written last."""
    return (folder / "summary.json").exists()


def is_complete(folder: Path) -> bool:
    """Finished, with all its lanes."""
    return is_finished(folder) and not (folder / MISSING).exists()


def read_missing(folder: Path) -> list[str]:
    """A sentence for every block of lanes that is not in the results, and why."""
    path = folder / MISSING
    return store.read_json(path)["missing"] if path.exists() else []


def write_missing(folder: Path, missing: list[str]) -> None:
    store.write_json(folder / MISSING, {"missing": missing})


def write_summary(folder: Path, files: dict[str, Any]) -> None:
    """What a study's `summarise` returned; summary.json comes last."""
    for name in sorted(files, key=lambda name: name == "summary"):
        store.write_json(folder / f"{name}.json", files[name])


@contextmanager
def exclusive(folder: Path, wait: float = 0) -> Iterator[None]:
    """One process at a time in a folder; others wait so many seconds for it."""
    with locked(store.prepare(folder) / "lock", str(folder.parent), wait):
        yield


@contextmanager
def locked(path: Path, where: str, wait: float = 0) -> Iterator[None]:
    """One process at a time holds the lock in this file; the error says `where` another one is running."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=wait):
            yield
    except Timeout:
        raise FolderInUse(f"another process is running in {where}; wait for it, or stop it first.") from None


def read_description(folder: Path, known: tuple[str, ...] | None = None) -> dict[str, Any]:
    """What config.json says of the run in a folder; `known` are the names of all commands."""
    if not (folder / "config.json").exists():
        raise UsageError(f"{folder} is not the folder of a run: it has no config.json.")
    stored = store.read_json(folder / "config.json")
    complete = isinstance(stored, dict) and {"experiment", "config", "command"} <= set(stored)
    if not complete or not isinstance(stored["config"], dict):
        raise UsageError(f"{folder / 'config.json'} is not the description of a run.")
    if known is not None and stored["experiment"] not in known:
        raise UsageError(f"{folder} is a run of {stored['experiment']!r}, which this version does not know.")
    return stored


def configuration(kind: type, stored: dict[str, Any]) -> Any:
    """A configuration from what JSON made of it."""
    known = {field.name for field in dataclasses.fields(kind)}
    if set(stored) != known:
        unknown = ", ".join(sorted(known ^ set(stored)))
        raise UsageError(f"the stored configuration is of another version of smoothfbo (it differs in {unknown}).")
    try:
        return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in stored.items()})
    except TypeError as error:  # words where numbers belong
        raise UsageError(f"the stored configuration cannot be read: {error}.") from error


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # this package may run from its source, without being installed
        return __version__ if package == "smoothfbo" else None


def commit_of_source(*, ignoring: str | None = None) -> str | None:
    """The commit of the source: what SMOOTHFBO_COMMIT says, for copies without their history, or what git says.

    It is marked as dirty where files have changed since, but for those in the folder `ignoring`.
    """
    if stated := os.environ.get("SMOOTHFBO_COMMIT"):
        return stated
    source = Path(__file__).parents[3]
    if not (source / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(source)]
        places = [".", *([] if ignoring is None else [f":(exclude){ignoring}"])]
        asked = ([*git, "rev-parse", "HEAD"], [*git, "status", "--porcelain", "--untracked-files=no", "--", *places])
        head, changes = (
            subprocess.run(call, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for call in asked
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changes else head or None
