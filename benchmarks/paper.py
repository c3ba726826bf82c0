"""The paper's CartPole study, all of it, by one command: seconds from its start to its page.

    python -m benchmarks.paper                     # prints the seconds and writes benchmarks/results/paper.json
    python -m benchmarks.paper --workers 9 --out out/paper --first-seed 400

Nine methods × 2 environments × 10 seeds × 1,000,000 steps, for one GPU. Options that are not known here go to
`smoothfbo cartpole`.
"""

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import measure
from smoothfbo.harness import folders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="9")
    parser.add_argument("--out", type=Path, default=Path("out/paper"))
    options, others = parser.parse_known_args()
    if (options.out / "config.json").exists():
        raise SystemExit(f"{options.out} holds a run already: what it takes is measured in an empty folder")
    arguments = ["cartpole", "--preset", "paper", "--workers", options.workers, "--out", str(options.out), *others]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "smoothfbo", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = []
    for line in process.stdout or ():
        lines.append((time.perf_counter() - begin, line.rstrip()))
        print(f"{lines[-1][0]:6.1f} s  {lines[-1][1]}", flush=True)
    seconds = time.perf_counter() - begin
    if process.wait() or not (options.out / "report.html").exists():
        raise SystemExit(f"the command ended with status {process.returncode}")
    run = folders.read_description(options.out)
    config = run["config"]
    lanes = len(config["methods"]) * len(config["environment"]) * config["seeds"]
    measured = next(at for at, line in lines if "measuring" in line)
    case = {
        "commit": run["commit"],
        "versions": run["versions"],
        "devices": run["devices"],
        "lanes": lanes,
        "steps": lanes * config["steps"],
        "seconds_to_page": round(seconds, 1),
        "seconds_of_blocks": round(measured, 1),
        "steps_per_second": round(lanes * config["steps"] / seconds),
    }
    command = shlex.join(["smoothfbo", *arguments])
    notes = [line for _, line in lines if "MPS" in line]
    measure.write("paper", measure.Result([], [case], notes), command=command, seconds=seconds)
    print(f"{seconds:.1f} s from start to page")


if __name__ == "__main__":
    main()
