"""Who runs the blocks of a run. No jax here, and no Ray."""

from collections.abc import Collection, Hashable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable


class AttemptResult(NamedTuple):
    """How a worker's attempt at a block ended."""

    error: str | None = None  # None: all its records are written
    is_final: bool = False  # another attempt would end the same way: a full disk, a folder that is not there
    notes: tuple[str, ...] = ()  # warnings, for the user


@runtime_checkable
class Team(Protocol):
    """Workers that are ready. `blocks` is how many blocks keep them busy, `devices` says what they compute on."""

    blocks: int
    devices: list[str]
    notes: tuple[str, ...]

    def submit(self, block: str) -> Hashable:
        """Have the block of this name run as soon as a worker is free; returns what stands for it in `wait`."""
        ...

    def wait(self, pending: Collection[Hashable], seconds: float) -> list[tuple[Hashable, AttemptResult]]:
        """The blocks that have ended, after so many seconds at most."""
        ...


@runtime_checkable
class Workers(Protocol):
    """What `--workers` asked for (`request`), and the lanes of a block, where the user chose them."""

    @property
    def request(self) -> str: ...

    @property
    def block(self) -> int | None: ...

    def open(self, folder: Path) -> AbstractContextManager[Team]:
        """Start them, or connect to them, for the run in a folder; afterwards none is left."""
        ...
