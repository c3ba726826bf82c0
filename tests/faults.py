"""Thirty runs on a Ray cluster of three nodes; in each a worker, a node or the driver is killed at a random moment.

kill −9 every time, and the same command again where the driver is gone. Each run must end with the tables of one that
nobody disturbed, bit for bit: `make faults`.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pandas as pd

LIMIT = 400  # seconds that a run may take
VICTIMS = ("worker", "node", "driver")
NODES = 3


def drive(folder: Path) -> None:
    """The command without its page: a lane without networks, three times, each a block of 500 chunks."""
    from smoothfbo.harness.console import start_jax

    start_jax(is_driver=True)
    from smoothfbo.harness.study import Run
    from smoothfbo.harness.workers.cluster import ClusterWorkers
    from smoothfbo.studies.regression.command import ENTRY
    from smoothfbo.studies.regression.config import RegressionConfig

    config = RegressionConfig(
        methods=("exact",), rounds=2_000, chunk=4, seeds=3, probe_draws=0, lags=3, inputs=2, batch=(4,),
        minibatch=("4",),
    )  # fmt: skip

    def show(progress) -> None:
        for note in progress.notes:
            print(note, flush=True)

    ENTRY.execute(Run(config, folder, "tests/faults.py", show, workers=ClusterWorkers("auto", 1)))


def start(folder: Path, address: str) -> subprocess.Popen:
    with Path(f"{folder}.log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, __file__, "--drive", str(folder)], stdout=log, stderr=log,
            env=os.environ | {"RAY_ADDRESS": address}, start_new_session=True,
        )  # fmt: skip


def workers_of(folder: Path) -> list[int]:
    """Processes that run blocks of this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        if "smoothfbo.harness.workers.process" in words and str(folder) in words:
            found.append(int(path.parent.name))
    return found


def disturb(victim: str, cluster, driver: subprocess.Popen, folder: Path, rng: random.Random) -> str:
    """Kill it; says what was killed."""
    done = len(list(folder.glob("progress/*/records-*.npz")))
    if victim == "driver":
        driver.kill()
        driver.wait()
    elif victim == "node":
        others = [node for node in cluster.list_all_nodes() if node is not cluster.head_node]
        cluster.remove_node(rng.choice(others), allow_graceful=False)
        cluster.add_node(num_cpus=1)
    else:
        while not (running := workers_of(folder)):
            if driver.poll() is not None:
                return "it ended before a worker was killed"
            time.sleep(0.1)
        os.kill(rng.choice(running), signal.SIGKILL)
    return f"{victim} killed, {done} chunks done"


def finish(driver: subprocess.Popen, folder: Path, address: str) -> int:
    """Wait for the end; the same command again where the driver has died. Returns how often."""
    deadline, again = time.monotonic() + LIMIT, 0
    while (status := driver.wait(max(1.0, deadline - time.monotonic()))) != 0:
        if again == 3:
            sys.exit(f"the driver ended with status {status}:\n{Path(f'{folder}.log').read_text()}")
        driver, again = start(folder, address), again + 1
    return again


def same(first: Path, second: Path) -> bool:
    names = {path.name for path in first.glob("*.parquet")} | {"summary.json"}
    assert len(names) == 3
    return all(
        (first / name).read_bytes() == (second / name).read_bytes()
        if name.endswith("json")
        else pd.read_parquet(first / name).equals(pd.read_parquet(second / name))
        for name in names
    )


def main(runs: int, seed: int) -> None:
    from ray.cluster_utils import Cluster

    rng = random.Random(seed)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(NODES - 1):
        cluster.add_node(num_cpus=1)
    failed = Counter()
    try:
        with tempfile.TemporaryDirectory() as parent:
            whole = Path(parent, "whole")
            for _ in range(2):  # the second one finds its programs compiled
                begin = time.monotonic()
                subprocess.run(["rm", "-rf", str(whole)], check=True)
                finish(start(whole, cluster.address), whole, cluster.address)
            usual = time.monotonic() - begin
            print(f"undisturbed: {usual:.0f} s", flush=True)
            for index in range(runs):
                folder, begin = Path(parent, f"run-{index}"), time.monotonic()
                victim = VICTIMS[index % len(VICTIMS)]
                driver = start(folder, cluster.address)
                time.sleep(rng.uniform(0, 0.8 * usual))
                what = disturb(victim, cluster, driver, folder, rng)
                again = finish(driver, folder, cluster.address)
                is_same = same(whole, folder)
                failed[victim] += not is_same
                verdict = "the same bits" if is_same else "THE TABLES DIFFER"
                seconds = time.monotonic() - begin
                print(f"run {index + 1:2d}: {what}; {again} × resumed; {seconds:4.0f} s; {verdict}", flush=True)
    finally:
        cluster.shutdown()
    print(f"{runs - failed.total()} of {runs} runs ended with the tables of an undisturbed run, bit for bit")
    sys.exit(bool(failed.total()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", type=Path)
    options = parser.parse_args()
    if options.drive:
        drive(options.drive)
    else:
        main(options.runs, options.seed)
