"""The files of a run: written whole or not at all."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        reason = "it is a file, not a folder" if folder.is_file() else error.strerror or error
        raise UsageError(f"--out {folder} cannot be written: {reason}.") from error
    return folder


def write(path: Path, save: Callable[[Path], Any]) -> None:
    """Write through a temporary file in the same folder, so that `path` is complete or absent."""
    temporary = path.with_name(f".partial-{path.name}")  # the suffix stays: writers choose the format by it
    try:
        save(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    write(path, lambda file: file.write_text(text + "\n", encoding="utf-8"))


def write_table(path: Path, table: pd.DataFrame) -> None:
    write(path, lambda file: table.to_parquet(file, index=False))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error


def describe_run(command: str, config: Any, devices: list[str]) -> dict[str, Any]:
    """All that is needed to repeat a run."""
    return {
        "command": command,
        "config": dataclasses.asdict(config),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "devices": devices,
        "processors": os.cpu_count(),
    }
