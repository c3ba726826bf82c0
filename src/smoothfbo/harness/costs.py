"""What a run with lanes costs: seconds, bytes in its folder, memory of its driver. A model with a few measured numbers.

With W workers on D devices and C cores, B blocks of n lanes and R rounds take

    T = a + ⌈B/W⌉ · s · (c·max(1, W/C) + R·t(n, max(1, W/D))) + B·n·R·m

seconds: a until the first worker is ready and for the page, c for a block (tracing, compiling or reading the compiled
program), m for measuring a round of a lane in the driver, s = 1 while a core is idle, W < C, and otherwise by how much
all cores together are slower than one alone, and t(n, P) for a round of a program that shares its device with P − 1
others:

    t(n, P) = ⌈n/w⌉ · max(p + q·n', P·(k + q·n')),     n' = n / ⌈n/w⌉ lanes at a time, at most w.

p + q·n' is a round by itself: p whatever the lanes (on a GPU the launch of its kernels), q for each lane. Where
programs share a device, only k + q·n' of a round keeps it from the others; on a CPU core that is all of it, k = p.
"""

import math
from typing import NamedTuple


class Device(NamedTuple):
    """What a round of some program takes on one device, in seconds; see the module for t(n, P)."""

    launch: float  # p
    lane: float  # q
    width: float = math.inf  # w: lanes side by side; on a CPU core 16
    busy: float | None = None  # k; None: p

    def round(self, lanes: float, programs: float = 1.0) -> float:
        """t(n, P)."""
        turns = math.ceil(lanes / self.width) if lanes > self.width else 1
        work = self.lane * lanes / turns
        busy = self.launch if self.busy is None else self.busy
        return turns * max(self.launch + work, programs * (busy + work))


class Costs(NamedTuple):
    """What a study costs on some machines, in seconds."""

    device: Device
    start: float = 0.0  # a
    block: float = 0.0  # c
    measuring: float = 0.0  # m
    all_busy: float = 1.0  # s where every core works: they share memory, and some of them a physical core


class Layout(NamedTuple):
    """Who runs what: `devices` and `cores` are those of all machines together."""

    lanes: int
    rounds: int
    blocks: int
    workers: int
    devices: int
    cores: int


def seconds(costs: Costs, layout: Layout) -> float:
    """T, from the start of a run to its tables."""
    workers = min(layout.workers, layout.blocks)
    compiling = costs.block * max(1.0, workers / layout.cores)
    a_round = costs.device.round(layout.lanes / layout.blocks, max(1.0, workers / layout.devices))
    turns = math.ceil(layout.blocks / workers)
    measuring = layout.lanes * layout.rounds * costs.measuring
    slower = costs.all_busy if workers >= layout.cores else 1.0
    return costs.start + turns * slower * (compiling + layout.rounds * a_round) + measuring


class Bytes(NamedTuple):
    """What a run holds, in bytes, and in how many files."""

    records: int
    checkpoints: int
    files: int
    driver: int  # memory of the driver: the records of the largest program, twice, while they are joined


def bytes_of(layout: Layout, *, record: int, state: int, chunks: int, programs: int = 1) -> Bytes:
    """`record`: bytes of a lane in a chunk's records; `state`: of a lane's state. The last two checkpoints are kept."""
    records = layout.lanes * chunks * record
    return Bytes(
        records=records,
        checkpoints=2 * layout.lanes * state,
        files=layout.blocks * (chunks + 3),
        driver=2 * records // programs,
    )
