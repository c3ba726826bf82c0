"""Thirty runs on a Ray cluster of three nodes; in each a worker, a node or the driver is killed at a random moment.

kill −9 every time, and the same command again where the driver is gone. Each run must end with the tables of one that
nobody disturbed, bit for bit: `make faults`.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

LIMIT = 400  # seconds that a run may take
VICTIMS = ("worker", "node", "driver")
NODES = 3
SOURCE = Path(__file__).parent.parent / "src" / "smoothfbo"

# A study whose chunks take time but no work: three random walks.
STUDY = """
import time
from dataclasses import dataclass

from smoothfbo.harness.study import Entry, Measured, Program, Run, Study


@dataclass(frozen=True)
class Config:
    chunks: int = 150


def execute(run: Run) -> None:
    import jax
    import jax.numpy as jnp
    import pandas as pd

    from smoothfbo.harness import runner

    def advance(seed, state):
        place, round = state
        place = place + jax.random.normal(jax.random.fold_in(jax.random.key(seed), round))
        return (place, round + 1), {"round": round[None], "place": place[None]}

    def measure(program, records):
        seeds = [lane["seed"] for lane in program.lanes]
        table = pd.DataFrame(records["place"], index=seeds, columns=map(str, records["round"][0]))
        return Measured({"metrics": table.reset_index()})

    def summarise(tables):
        return {"summary": {"sum": float(tables["metrics"].to_numpy().sum())}}

    lanes = tuple({"method": "walk", "seed": seed} for seed in range(3))
    begin = lambda seed: (jnp.zeros(()), jnp.zeros((), int))
    program = Program("walk", lanes, jnp.arange(3), begin, advance, run.config.chunks, 1)
    wait = lambda program, records: time.sleep(0.03 if run.block else 0)
    runner.execute(Study("walk", run.config, [program], measure, summarise), run._replace(on_records=wait))


ENTRY = Entry(name="walk", config=Config, execute=execute, report=lambda: None)
"""


def package(parent: Path) -> Path:
    """A copy of the package that has the study, for the path."""
    copy = parent / "package"
    shutil.copytree(SOURCE, copy / "smoothfbo", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "smoothfbo" / "studies" / "walk").mkdir()
    (copy / "smoothfbo" / "studies" / "walk" / "__init__.py").touch()
    (copy / "smoothfbo" / "studies" / "walk" / "command.py").write_text(STUDY)
    return copy


def drive(folder: Path) -> None:
    """The command, without a page."""
    from smoothfbo.harness.console import start_jax

    start_jax(is_driver=True)
    from smoothfbo.harness.registry import entries
    from smoothfbo.harness.study import Run
    from smoothfbo.harness.workers.cluster import ClusterWorkers

    def show(progress) -> None:
        for note in progress.notes:
            print(note, flush=True)

    entry = entries()["walk"]
    entry.execute(Run(entry.config(), folder, "tests/faults.py", show, workers=ClusterWorkers("auto", 1)))


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


def chunks(folder: Path) -> int:
    return len(list(folder.glob("progress/*/records-*.npz")))


def wait_for_moment(driver: subprocess.Popen, folder: Path, usual: float, rng: random.Random) -> None:
    """A moment of the start in every third run, else one between two chunks."""
    if rng.random() < 1 / 3:
        time.sleep(rng.uniform(0, 0.5 * usual))
        return
    moment = rng.randrange(1, 450)
    while chunks(folder) < moment and driver.poll() is None:
        time.sleep(0.01)


def disturb(victim: str, cluster, driver: subprocess.Popen, folder: Path, rng: random.Random) -> str:
    """Kill it; says what was killed."""
    done = chunks(folder)
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
    tables = [pd.read_parquet(folder / "metrics.parquet") for folder in (first, second)]
    summaries = [(folder / "summary.json").read_bytes() for folder in (first, second)]
    return tables[0].equals(tables[1]) and tables[0].shape == (3, 151) and summaries[0] == summaries[1]


def main(runs: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as parent:
        path = [str(package(Path(parent))), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))  # which nodes, workers and drivers inherit
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            for _ in range(NODES - 1):
                cluster.add_node(num_cpus=1)
            lost = compare(cluster, Path(parent), runs, random.Random(seed))
        finally:
            cluster.shutdown()
    print(f"{runs - lost} of {runs} runs ended with the tables of an undisturbed run, bit for bit")
    sys.exit(bool(lost))


def compare(cluster, parent: Path, runs: int, rng: random.Random) -> int:
    """How many runs ended with other tables than one that nobody disturbed."""
    for whole in (parent / "cold", parent / "whole"):  # the second one finds its programs compiled
        begin = time.monotonic()
        finish(start(whole, cluster.address), whole, cluster.address)
    usual, lost = time.monotonic() - begin, 0
    print(f"undisturbed: {usual:.0f} s", flush=True)
    for index in range(runs):
        folder, begin = parent / f"run-{index}", time.monotonic()
        driver = start(folder, cluster.address)
        wait_for_moment(driver, folder, usual, rng)
        what = disturb(VICTIMS[index % len(VICTIMS)], cluster, driver, folder, rng)
        again = finish(driver, folder, cluster.address)
        is_same = same(parent / "whole", folder)
        lost += not is_same
        verdict = "the same bits" if is_same else "THE TABLES DIFFER"
        seconds = time.monotonic() - begin
        print(f"run {index + 1:2d}: {what}; {again} × resumed; {seconds:4.0f} s; {verdict}", flush=True)
    return lost


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
