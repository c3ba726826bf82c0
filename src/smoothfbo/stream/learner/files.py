"""A learner in one file: plain arrays and text, no code; with its version, checked when it is read."""

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.harness import store
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.precision import double_precision
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.rows import Rows

FORMAT, SERIES_FORMAT = "smoothfbo learner", "smoothfbo learners of many series"
VERSION = 10


def save(path: Path, learner: Learner, content: dict[str, Any]) -> None:
    """Write the learner, and `content` (anything JSON can hold) beside it; the file is complete or absent."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "specification": dataclasses.asdict(learner.spec),
        "silent": learner.silent,
        "learnt": learner.learnt,
        "content": content,
    }
    arrays: dict[str, Any] = {_name(key): np.asarray(leaf) for key, leaf in _leaves(_carried(learner))}
    arrays |= {f"pending.{name}": column for name, column in learner.pending._asdict().items()}
    arrays |= {} if learner.weight is None else {"weight": learner.weight}
    write(path, header, arrays)


def load(path: Path) -> tuple[Learner, dict[str, Any]]:
    """The learner as it was saved, and what was saved beside it."""
    header, arrays = read(path, FORMAT, VERSION)
    try:
        chosen: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header["specification"].items()}
        learner = Learner(Specification(**chosen))
        learner.state, learner.intervals = _filled(_carried(learner), arrays)
        learner.pending = Rows(**{name: arrays[f"pending.{name}"] for name in Rows._fields})
        learner.silent, learner.learnt, learner.weight = header["silent"], header["learnt"], arrays.get("weight")
        _check_pending(learner)
        return learner, header["content"]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} has another shape than this program expects: {error}.") from error


def read(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file of this kind and version."""
    if not path.exists():
        raise UsageError(f"{path} does not exist.")
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(bytes(arrays.pop("header")).decode())
        if header["format"] not in (FORMAT, SERIES_FORMAT):
            raise ValueError(header["format"])
        found, other = header["format"], header["version"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise UsageError(f"{path} is not the state of a learner, or it is damaged.") from error
    if found != kind:
        held = (
            "one learner, but `by` asks for one per series" if found == FORMAT else "many series, but `by` is not given"
        )
        raise UsageError(f"{path} is the state of {held}.")
    if other != version:
        raise UsageError(f"{path} has version {other}; this program reads version {version}. Start a new state.")
    return header, arrays


def write(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """A file of this header and these arrays, complete or absent."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    store.write(path, lambda partial: _write_arrays(partial, header=text, **arrays))


def _write_arrays(path: Path, **arrays: Any) -> None:
    with open(path, "wb") as file:  # NumPy adds a suffix to the name of a path, not of a file
        np.savez(file, allow_pickle=False, **arrays)


def _carried(learner: Learner) -> tuple[Any, Any]:
    """All that the compiled programs carry along."""
    return learner.state, learner.intervals


def _name(key: Any) -> str:
    return f"state{jax.tree_util.keystr(key)}"


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_leaves_with_path(tree)


def _filled(state: Any, arrays: dict[str, np.ndarray]) -> Any:
    leaves = []
    for key, leaf in _leaves(state):
        name = _name(key)
        if name not in arrays:
            raise ValueError(f"{name} is missing")
        value = arrays[name]
        if value.shape != leaf.shape or value.dtype != leaf.dtype:
            raise ValueError(f"{name} is {value.dtype}{list(value.shape)}, not {leaf.dtype}{list(leaf.shape)}")
        leaves.append(value)
    with double_precision():
        return jax.device_put(jax.tree.unflatten(jax.tree.structure(state), leaves))


def _check_pending(learner: Learner) -> None:
    rows = {column.shape[0] for column in learner.pending}
    if (
        len(rows) != 1
        or rows.pop() >= learner.spec.rows * (learner.spec.delay + 1)
        or learner.pending.features.shape[1:] != (learner.spec.features,)
    ):
        raise ValueError("the rows that wait do not fit")
