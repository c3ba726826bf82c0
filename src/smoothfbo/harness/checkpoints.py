"""Checkpoints of a program's lanes: complete or absent, checked when they are read, the last two kept."""

import hashlib
import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from smoothfbo.errors import UsageError
from smoothfbo.harness import store

KEPT = 2


class Checkpoints:
    """The checkpoints of one program in one folder, named by the number of chunks done.

    Orbax writes the arrays; `digests.json`, written last, holds the SHA-256 of every file. The folder gets its name
    when all is there, so a checkpoint that can be seen is complete, and one that was damaged later is noticed.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, chunks: int, state: PyTree) -> None:
        import orbax.checkpoint as orbax

        target, temporary = self.folder / f"{chunks:06d}", self.folder / f".partial-{chunks:06d}"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            with orbax.PyTreeCheckpointer() as writer:
                writer.save((temporary / "state").absolute(), _numbered(state))
            digests = json.dumps(_digests(temporary / "state"), indent=1)
            (temporary / "digests.json").write_text(digests, encoding="utf-8")
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
        except Exception as error:  # orbax passes on a full disk as errors of several types
            raise UsageError(f"{target} cannot be written: {store.reason(error)}.") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for old in self._found()[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)

    def load(self, shapes: PyTree) -> Iterator[tuple[int, PyTree]]:
        """(chunks done, state) of every intact checkpoint, the newest first; a damaged one gives a warning."""
        import orbax.checkpoint as orbax

        leaves, structure = jax.tree.flatten(shapes)
        for path in self._found():
            try:
                stored = json.loads((path / "digests.json").read_text(encoding="utf-8"))
                if stored != _digests(path / "state"):
                    raise ValueError("its files have changed since it was written")
                with orbax.PyTreeCheckpointer() as reader:
                    arrays = reader.restore((path / "state").absolute())
                values = [
                    np.asarray(arrays[f"{index:06d}"]) if leaf.size else np.zeros(leaf.shape, leaf.dtype)
                    for index, leaf in enumerate(leaves)
                ]
                for value, leaf in zip(values, leaves, strict=True):
                    if value.shape != leaf.shape or value.dtype != leaf.dtype:
                        raise ValueError("its arrays have other shapes than this program")
            except Exception as error:  # whatever is wrong with it, the one before it may be intact
                text = f"checkpoint {path} is damaged ({store.reason(error)}); trying the one before it"
                warnings.warn(text, stacklevel=2)
                shutil.rmtree(path, ignore_errors=True)  # else it would count among the two that are kept
                continue
            yield int(path.name), jax.tree.unflatten(structure, values)

    def _found(self) -> list[Path]:
        names = [path for path in self.folder.glob("[0-9]*") if path.name.isdigit()]
        return sorted(names, reverse=True)


def _numbered(state: PyTree) -> dict[str, Any]:
    """The leaves by number (the structure is the program's, not the file's), without empty ones."""
    return {f"{index:06d}": np.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(state)) if leaf.size}


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


logging.getLogger("absl").setLevel(logging.ERROR)  # orbax announces every file it writes
