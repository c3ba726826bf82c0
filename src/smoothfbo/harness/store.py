"""The files of a run: written whole or not at all."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from smoothfbo.errors import UsageError


def prepare(folder: Path) -> Path:
    """Make the folder and see that it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = "it is a file, not a folder" if folder.is_file() else reason(error)
        raise UsageError(f"{folder} cannot be written: {why}.") from error
    return folder


def reason(error: BaseException) -> str:
    """What went wrong, on one line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def write(path: Path, save: Callable[[Path], Any]) -> None:
    """Write through a temporary file in the same folder, so that `path` is complete or absent."""
    temporary = partial_path(path)
    try:
        save(temporary)
        publish(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {reason(error)}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """Where a file is written before it gets its name. The suffix stays: writers choose the format by it."""
    return path.with_name(f".partial-{path.name}")


def publish(temporary: Path, path: Path) -> None:
    """Give a complete file its name, once it is on the disk: a power cut must not keep the name and lose the rest."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    write(path, lambda file: file.write_text(text + "\n", encoding="utf-8"))


def write_table(path: Path, table: pd.DataFrame) -> None:
    write(path, lambda file: table.to_parquet(file, index=False))


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    write(path, lambda file: np.savez(file, **arrays))  # pyright: ignore[reportArgumentType]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
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
