"""Checkpoints of a program's lanes: complete or absent, checked when they are read, the last two kept."""

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from smoothfbo.harness import store

KEPT = 2
DIGEST = "digest"


class Checkpoints:
    """The checkpoints of one program in one folder, named by the number of chunks done.

    Each is one file of plain arrays, the leaves of the state by number (the structure is the program's), with the
    SHA-256 of their content. The file gets its name when it is complete, so a checkpoint that can be seen is whole,
    and one that was damaged later is noticed.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, chunks: int, state: PyTree) -> None:
        arrays = {f"{index:06d}": np.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(state))}
        store.prepare(self.folder)
        store.write_arrays(self.folder / f"{chunks:06d}.npz", arrays | {DIGEST: _digest(arrays)})
        for old in self._found()[KEPT:]:
            old.unlink(missing_ok=True)

    def load(self, shapes: PyTree) -> Iterator[tuple[int, PyTree]]:
        """(chunks done, state) of every intact checkpoint, the newest first; a damaged one gives a warning."""
        leaves, structure = jax.tree.flatten(shapes)
        for path in self._found():
            try:
                arrays = store.read_arrays(path)
                stored = arrays.pop(DIGEST)
                if not np.array_equal(stored, _digest(arrays)):
                    raise ValueError("its content has changed since it was written")
                values = [_as_stored_leaf(arrays.get(f"{index:06d}"), leaf) for index, leaf in enumerate(leaves)]
            except Exception as error:  # whatever is wrong with it, the one before it may be intact
                why = store.reason(error.__cause__ or error)
                warnings.warn(f"checkpoint {path} is damaged ({why}); trying the one before it", stacklevel=2)
                path.unlink(missing_ok=True)  # else it would count among the two that are kept
                continue
            yield int(path.stem), jax.tree.unflatten(structure, values)

    def _found(self) -> list[Path]:
        return sorted((path for path in self.folder.glob("*.npz") if path.stem.isdigit()), reverse=True)


def _as_stored_leaf(value: np.ndarray | None, leaf: Any) -> np.ndarray:
    if value is not None and value.dtype.kind == "V":  # NumPy's files know bfloat16 only as two bytes
        value = value.view(leaf.dtype)
    if value is None or value.shape != leaf.shape or value.dtype != leaf.dtype:
        raise ValueError("its arrays have other shapes than this program")
    return value


def _digest(arrays: dict[str, np.ndarray]) -> np.ndarray:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.itemsize} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
