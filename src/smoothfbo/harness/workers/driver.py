"""Sees that every block is run: one bar for all, another attempt where one failed, and what is missing in the end."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from smoothfbo.errors import UsageError
from smoothfbo.harness.folders import Stopped
from smoothfbo.harness.interruption import Interruption
from smoothfbo.harness.study import Progress
from smoothfbo.harness.workers.base import Team

ATTEMPTS = 3  # in a row that got no further than the one before
POLL = 0.3  # seconds
COUNTING_SHARE = 0.05  # of the time may go into counting what is done
ORPHAN_SECONDS = 120.0  # that a worker waits for one that had its block before, and has not ended yet
STOP = "stop"  # a file in a run's `progress`: workers end, with a checkpoint, once it is there


class Task(Protocol):
    """What a worker runs at once: a block of lanes, or a share of the series of a table.

    `rounds` counts, for the bar, what one of its `chunks` comes to.
    """

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def rounds(self) -> int: ...

    @property
    def chunks(self) -> int: ...


class StopFile:
    """Asks a worker to stop, as `Interruption` does a process with a terminal."""

    def __init__(self, work: Path):
        self.path = work / STOP

    @property
    def is_requested(self) -> bool:
        return self.path.exists()


class BlockCounts:
    """How far the blocks have come, for the bar and for attempts that got further. `count(block)` looks at the disk."""

    def __init__(self, blocks: Sequence[Task], count: Callable[[Any], int]):
        self._count, self._last, self._cost = count, 0.0, 0.0
        self.chunks = {block.name: count(block) for block in blocks}
        self._rounds = {block.name: block.rounds for block in blocks}
        self.total = sum(block.rounds * block.chunks for block in blocks)

    def update(self, block: Task) -> int:
        """The chunks of a block."""
        self.chunks[block.name] = self._count(block)
        return self.chunks[block.name]

    def update_all(self, blocks: Iterable[Task]) -> None:
        """Look at all blocks, unless that was done just now: a folder far away takes time."""
        begin = time.monotonic()
        if begin - self._last > self._cost / COUNTING_SHARE:
            for block in blocks:
                self.update(block)
            self._last = time.monotonic()
            self._cost = self._last - begin

    @property
    def done(self) -> int:
        """Rounds of all lanes."""
        return sum(self._rounds[name] * chunks for name, chunks in self.chunks.items())


def run_blocks(
    blocks: Sequence[Task],
    left: Sequence[Task],
    work: Path,
    team: Team,
    count: Callable[[Any], int],
    on_progress: Callable[[Progress], None],
) -> dict[str, str]:
    """Run those of the blocks that are left. Returns those that failed too often, by name, and why.

    `count(block)` says how many chunks have their records. A block whose worker dies is tried again and resumes
    from its checkpoint. It is given up after three attempts that got no further. Raises `Stopped` on Ctrl-C.
    """
    stop, counts = StopFile(work), BlockCounts(blocks, count)
    stop.path.unlink(missing_ok=True)
    missing: dict[str, str] = {}
    failures = {block.name: 0 for block in blocks}
    reached = dict(counts.chunks)  # when it failed last

    def show(text: str, notes: Sequence[str] = (), *, compiling: bool = False) -> None:
        on_progress(Progress(text, counts.done, counts.total, "rounds", compiling, tuple(notes)))

    show(f"starting {len(blocks)} blocks", team.notes, compiling=True)
    pending = {team.submit(block.name): block for block in left}
    with Interruption() as interruption:
        while pending:
            if interruption.is_requested:
                stop.path.touch()
            notes: list[str] = []
            for handle, ended in team.wait(list(pending), POLL):
                block = pending.pop(handle)
                chunks = counts.update(block)
                notes += ended.notes
                if ended.error is None or interruption.is_requested:
                    continue
                if ended.is_final:
                    raise UsageError(f"{ended.error}.")
                failures[block.name] = 1 if chunks > reached[block.name] else failures[block.name] + 1
                reached[block.name] = chunks
                if failures[block.name] < ATTEMPTS:
                    notes.append(f"block {block.text} failed and is tried again: {ended.error}.")
                    pending[team.submit(block.name)] = block
                else:
                    notes.append(f"block {block.text} failed {ATTEMPTS} times and is left out: {ended.error}.")
                    missing[block.name] = ended.error
            counts.update_all(pending.values())
            show(f"{len(blocks) - len(pending)} of {len(blocks)} blocks", notes)
        if interruption.is_requested:
            raise Stopped
    return missing
