"""The files of a run: written whole or not at all."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from smoothfbo.errors import UsageError

PACKAGES = ("smoothfbo", "jax", "jaxlib", "optax", "equinox", "numpy")


def prepare(folder: Path) -> Path:
    """Make the folder and see that it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = "it is a file, not a folder" if folder.is_file() else reason(error)
        raise UsageError(f"--out {folder} cannot be written: {why}.") from error
    return folder


def reason(error: BaseException) -> str:
    """What went wrong, on one line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def write(path: Path, save: Callable[[Path], Any]) -> None:
    """Write through a temporary file in the same folder, so that `path` is complete or absent."""
    temporary = path.with_name(f".partial-{path.name}")  # the suffix stays: writers choose the format by it
    try:
        save(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())  # else a power cut may keep the name and lose the content
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {reason(error)}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    write(path, lambda file: file.write_text(text + "\n", encoding="utf-8"))


def write_table(path: Path, table: pd.DataFrame) -> None:
    write(path, lambda file: table.to_parquet(file, index=False))


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    write(path, lambda file: np.savez(file, **arrays))  # pyright: ignore[reportArgumentType]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise UsageError(f"{path} cannot be read: {reason(error)}.") from error


def read_table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise UsageError(f"{path} cannot be read: {reason(error)}.") from error


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error


def describe_run(experiment: str, command: str, config: Any, devices: list[str]) -> dict[str, Any]:
    """All that is needed to repeat a run."""
    return {
        "experiment": experiment,
        "command": command,
        "config": dataclasses.asdict(config),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "python": platform.python_version(),
        "devices": devices,
        "processors": os.cpu_count(),
        "machine": platform.machine(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # run from its source, not installed
        return None


def _commit() -> str | None:
    """The commit of the source, where it is a git checkout of this project."""
    source = Path(__file__).parents[3]
    if not (source / ".git").exists():
        return None
    try:
        call = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        result = subprocess.run(call, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None


def claim(folder: Path, experiment: str, description: dict[str, Any]) -> None:
    """Take the folder for a run, or go on with the run of the same configuration that is in it."""
    prepare(folder)
    path = folder / "config.json"
    if not path.exists():
        left = [name for name in ("summary.json", "metrics.parquet", "progress") if (folder / name).exists()]
        if left:
            raise UsageError(f"--out {folder} holds {left[0]} of a run but no config.json; give another folder.")
        write_json(path, description)
        return
    stored = read_json(path)
    if not isinstance(stored, dict) or "config" not in stored:
        raise UsageError(f"{path} is not the configuration of a run; give another folder with --out.")
    if stored.get("experiment") != experiment:
        raise UsageError(f"--out {folder} holds a run of {stored.get('experiment')!r}; give another folder.")
    config = json.loads(json.dumps(description["config"]))
    different = [
        f"{name} = {stored['config'].get(name)!r} there, {config.get(name)!r} here"
        for name in dict.fromkeys([*config, *stored["config"]])
        if config.get(name) != stored["config"].get(name)
    ]
    if different:
        raise UsageError(
            f"--out {folder} holds a run of another configuration ({'; '.join(different)}); give another folder."
        )
    for name in ("versions", "commit", "devices"):
        if stored.get(name) != description[name]:
            warnings.warn(
                f"{folder} was begun with other {name}; the last bits of its figures may differ", stacklevel=2
            )
