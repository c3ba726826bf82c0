"""What `--workers` may say. Neither jax nor Ray is loaded here."""

from smoothfbo.harness.remote import Mirror
from smoothfbo.harness.requirements import require
from smoothfbo.harness.workers.base import Workers
from smoothfbo.harness.workers.cluster import ClusterWorkers
from smoothfbo.harness.workers.local import LocalWorkers

MOST_PROCESSES = 1_024  # local processes


def choose(request: str | None, block: int | None, mirror: Mirror | None = None) -> Workers | None:
    """Processes on this machine (a number), a Ray cluster (auto, ray://…), or none. `mirror`: of a folder far away."""
    require(block is None or block >= 1, "block", block, "an integer of at least 1")
    if request is None:
        require(block is None, "block", block, "used together with `workers`")
        return None
    if request == "auto" or request.startswith("ray://"):
        return ClusterWorkers(request, block, mirror)
    number = int(request) if request.isascii() and request.isdigit() else 0
    allowed = f"a number of local processes (1 to {MOST_PROCESSES:,}), auto (a running Ray cluster) or ray://HOST:PORT"
    require(1 <= number <= MOST_PROCESSES, "workers", request, allowed)
    return LocalWorkers(number, block)
