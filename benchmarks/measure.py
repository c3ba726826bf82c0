"""What the benchmarks share: timing in turns, memory of a process of its own, and the form of a result."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from smoothfbo import __version__
from smoothfbo.harness.console import cores
from smoothfbo.harness.folders import commit_of_source

FOLDER = Path(__file__).parent / "results"
PACKAGES = ("jax", "jaxlib", "river", "statsmodels", "scikit-learn", "optax", "jaxopt", "torch", "torchopt", "higher")


@dataclass(frozen=True)
class Ratio:
    """A line of the table: how `subject` compares with `reference`. `low` and `high` are the smallest and largest of
    the repetitions; `goal` is a bound on the ratio, such as "≥ 10"."""

    what: str
    subject: str
    reference: str
    value: float
    low: float
    high: float
    goal: str = ""

    @property
    def met(self) -> bool | None:
        """None without a goal."""
        if not self.goal:
            return None
        sign, bound = self.goal.split()
        return self.value >= float(bound) if sign == "≥" else self.value <= float(bound)


@dataclass(frozen=True)
class Result:
    """What a benchmark found: lines of the table, and all that was measured, one dictionary a case."""

    ratios: Sequence[Ratio]
    cases: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = field(default=())


def in_turns(candidates: Mapping[str, Callable[[], Any]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of every candidate: once unmeasured (compilation, caches), then in turns, so that whatever else the
    machine does meets all of them alike. A candidate must return only when its work is done."""
    for run in candidates.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(repetitions):
        # Every other turn backwards: no candidate always comes after the same one.
        for name, run in list(candidates.items())[:: 1 if turn % 2 == 0 else -1]:
            before = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - before)
    return seconds


def ratio(what: str, subject: str, reference: str, numerators: Any, denominators: Any, goal: str = "") -> Ratio:
    """The median of the ratios of paired measurements, with their range."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return Ratio(what, subject, reference, statistics.median(ratios), min(ratios), max(ratios), goal)


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median and range, under the names that all results use."""
    return {"seconds": statistics.median(seconds), "seconds_low": min(seconds), "seconds_high": max(seconds)}


def in_own_process(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m module arguments` and return the JSON object on its last line."""
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *arguments],
        env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if outcome.returncode != 0:
        raise RuntimeError(f"{module} {' '.join(arguments)} failed:\n{outcome.stderr[-2000:]}")
    return json.loads(outcome.stdout.splitlines()[-1])


def peak_memory(*, anew: bool = False) -> int:
    """The largest size this process has had, in bytes; with `anew` the count begins again, at its present size.

    By Linux's own count, where there is one: `ru_maxrss` of a child process begins with its parent's.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if anew:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    lines = status.read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"processor": model, "cores": cores(), "python": platform.python_version(), "packages": versions}


def commit() -> str | None:
    """Of the code that was measured: results that were stored just before do not make it another."""
    return commit_of_source(ignoring="benchmarks/results")


def write(name: str, result: Result, *, command: str, seconds: float) -> Path:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    content = {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(seconds, 1),
        "version": __version__,
        "commit": commit(),
        "machine": machine(),
        "ratios": [{**asdict(line), "met": line.met} for line in result.ratios],
        "cases": list(result.cases),
        "notes": list(result.notes),
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def read(name: str) -> Result:
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    ratios = [Ratio(**{key: value for key, value in line.items() if key != "met"}) for line in content["ratios"]]
    return Result(ratios, content["cases"], content["notes"])
