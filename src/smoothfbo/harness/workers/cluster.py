"""`--workers auto` and `--workers ray://HOST:PORT`: blocks as tasks of a Ray cluster. Ray is loaded when they start."""

import os
import socket
import warnings
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothfbo.errors import UsageError
from smoothfbo.harness import remote, store
from smoothfbo.harness.workers import gpus
from smoothfbo.harness.workers.base import AttemptResult
from smoothfbo.harness.workers.process import Worker

BLOCKS_PER_GPU = (
    9  # small networks leave a GPU idle: nine programs at once did 1.4 times the rounds of the best single one
)
BLOCKS_PER_CORE = 2  # so that a core that is done early has something left to do


def run_block(folder: str, block: str, shared: int) -> AttemptResult:
    """Run a block by a process on this node, which ends when this one does. `shared`: blocks on its GPU, if any."""
    with remote.block_folder(folder, block) if remote.is_address(folder) else nullcontext(Path(folder)) as place:
        if not (place / "config.json").exists():
            node = socket.gethostname()
            return AttemptResult(
                f"{folder} is not there on node {node}; `out` must be a folder that all nodes share", True
            )
        worker = Worker(place, gpus.environment(None, shared) if shared else None)
        try:
            return worker.ask(block)
        finally:
            worker.close()


class ClusterTeam:
    """Ray queues the blocks and finds a place for each; what it does not finish is the driver's to try again."""

    def __init__(self, ray: Any, folder: Path, mirror: remote.Mirror | None):
        self._ray, self._mirror, self._pending = ray, mirror, 0
        self._folder = str(folder.absolute()) if mirror is None else mirror.address
        resources = ray.cluster_resources()
        number, cores = (int(resources.get(name, 0)) for name in ("GPU", "CPU"))
        self._shared = BLOCKS_PER_GPU if number else 0
        share = {"num_gpus": 1 / BLOCKS_PER_GPU} if number else {}
        # max_retries: the driver counts attempts itself.
        self._task = ray.remote(num_cpus=1, max_retries=0, **share)(run_block)
        nodes = sum(node["Alive"] for node in ray.nodes())
        self.notes = (f"Ray: {nodes} node(s), {cores} core(s), {number} GPU(s).",)
        if number:
            kinds = {name.split(":")[1] for name in resources if name.startswith("accelerator_type:")}
            self.blocks = BLOCKS_PER_GPU * number
            self.devices = [f"Ray, {BLOCKS_PER_GPU} blocks on a GPU", *sorted(kinds)]
            self.notes += tuple(self._start_mps())
        else:
            self.blocks, self.devices = BLOCKS_PER_CORE * max(1, cores), ["Ray, a core for each block"]

    def _start_mps(self) -> list[str]:
        """Start MPS on every node that has GPUs."""
        from ray.util.scheduling_strategies import (  # pyright: ignore[reportMissingImports]
            NodeAffinitySchedulingStrategy,
        )

        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]
        start = self._ray.remote(num_cpus=0)(gpus.start_mps)
        places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
        answers = self._ray.get([start.options(scheduling_strategy=place).remote() for place in places])
        return [f"{node['NodeManagerHostname']}: {text}" for node, text in zip(nodes, answers, strict=True)]

    def submit(self, block: str) -> Hashable:
        if self._mirror is not None and self._pending == 0:
            self._mirror.push(is_last=True)  # the configuration, or what the first programs decided
        self._pending += 1
        return self._task.remote(self._folder, block, self._shared)

    def wait(self, pending: Collection[Hashable], seconds: float) -> list[tuple[Hashable, AttemptResult]]:
        done, _ = self._ray.wait(list(pending), num_returns=len(pending), timeout=seconds)
        self._pending -= len(done)
        if self._mirror is not None:
            self._mirror.pull_records(at_once=bool(done))
        return [(each, self._result(each)) for each in done]

    def _result(self, task: Any) -> AttemptResult:
        try:
            return AttemptResult(*self._ray.get(task))
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            lost = f"its worker or its node is lost ({type(error).__name__})"
            return AttemptResult(f"{type(cause).__name__}: {store.reason(cause)}" if cause else lost)


@dataclass(frozen=True)
class ClusterWorkers:
    """A cluster that runs here or elsewhere; with auto and none running, Ray is started on this machine."""

    request: str
    block: int | None = None
    mirror: remote.Mirror | None = None

    @contextmanager
    def open(self, folder: Path) -> Iterator[ClusterTeam]:
        try:
            import ray  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise UsageError(
                f"`workers` {self.request} needs one more package: pip install 'smoothfbo[ray]'."
            ) from None
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            address = None if self.request == "auto" else self.request
            with warnings.catch_warnings():
                # One sentence says it all; and jax warns of a fork, by which Ray only starts its own programs.
                warnings.simplefilter("ignore")
                ray.init(address, log_to_driver=False, logging_level="ERROR", namespace="smoothfbo")
        except Exception as error:  # whatever Ray raises, there is no cluster
            why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise UsageError(f"`workers` {self.request}: there is no connection to a Ray cluster ({why}).") from error
        try:
            yield ClusterTeam(ray, folder, self.mirror)
        finally:
            ray.shutdown()  # which ends the tasks that are left
