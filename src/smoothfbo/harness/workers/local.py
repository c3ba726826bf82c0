"""`--workers N`: processes on this machine, a core each, or a share of a GPU each."""

import queue
from collections.abc import Collection, Hashable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from smoothfbo.harness.workers import gpus
from smoothfbo.harness.workers.base import AttemptResult
from smoothfbo.harness.workers.process import Worker

BLOCKS_PER_CORE = 2  # so that a worker that is done early has something left to do


class LocalTeam:
    """A thread for each process, which waits for its answers."""

    def __init__(self, workers: list[Worker], devices: list[str], notes: tuple[str, ...], blocks: int):
        self.blocks, self.devices, self.notes = blocks, devices, notes
        self._workers = workers
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(len(workers))

    def submit(self, block: str) -> Future[AttemptResult]:
        return self._threads.submit(self._ask, block)

    def _ask(self, block: str) -> AttemptResult:
        worker = self._idle.get()
        try:
            return worker.ask(block)
        finally:
            self._idle.put(worker)

    def wait(self, pending: Collection[Hashable], seconds: float) -> list[tuple[Hashable, AttemptResult]]:
        futures: list[Future[AttemptResult]] = list(pending)  # pyright: ignore[reportAssignmentType]
        done, _ = wait(futures, seconds, FIRST_COMPLETED)
        return [(each, each.result()) for each in futures if each in done]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown()
        for worker in self._workers:
            worker.close()


@dataclass(frozen=True)
class LocalWorkers:
    """A number of processes on this machine."""

    number: int
    block: int | None = None

    @property
    def request(self) -> str:
        return str(self.number)

    @contextmanager
    def open(self, folder: Path) -> Iterator[LocalTeam]:
        found = gpus.visible()
        shared = -(-self.number // len(found)) if found else 0
        workers = [
            Worker(folder, gpus.environment(found[index % len(found)], shared) if found else None)
            for index in range(self.number)
        ]
        notes = (gpus.start_mps(),) if shared > 1 else ()
        if found:
            devices = [f"local processes, {shared} for each of {len(found)} GPU(s)", *gpus.models()]
            blocks = self.number
        else:
            devices, blocks = ["local processes, a core each"], BLOCKS_PER_CORE * self.number
        team = LocalTeam(workers, devices, tuple(filter(None, notes)), blocks)
        try:
            yield team
        finally:
            team.close()
