"""How long a newcomer waits: the README's first example in a fresh process, without and with compiled programs at hand.

python -m benchmarks --only readme
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import measure

GOALS = {"nothing compiled": 8.0, "compiled before": 3.0}  # seconds


def example() -> str:
    """The first block of Python in the README."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def seconds(code: str, cache: Path) -> tuple[float, float]:
    """Of a process, and of its processors: on a busy machine only the second says much."""
    settings = {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    before, begin = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=os.environ | settings, check=True, capture_output=True)
    wall, after = time.perf_counter() - begin, os.times()
    user, system = after.children_user - before.children_user, after.children_system - before.children_system
    return wall, user + system


def run(quick: bool) -> measure.Result:
    code, found = example(), {name: [] for name in GOALS}
    for _ in range(1 if quick else 5):
        with tempfile.TemporaryDirectory() as cache:
            for name in GOALS:
                found[name].append(seconds(code, Path(cache)))
    lines, cases = [], []
    for name, goal in GOALS.items():
        walls, processors = zip(*found[name], strict=True)
        lines.append(measure.ratio("README's example", name, f"{goal:g} s", walls, [goal] * len(walls), "≤ 1"))
        cases.append({"case": name, **measure.summary(walls), "processor_seconds": min(processors)})
    return measure.Result(lines, cases)


def charts(result: measure.Result) -> list[Any]:
    del result
    return []
