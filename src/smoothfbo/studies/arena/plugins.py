"""Methods and problems of users' own: read from files, tried out in a process of their own, kept with the run.

What goes wrong with a plug-in is a `Failure`, one line that names the file and the part; the others still run.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from smoothfbo.errors import UsageError
from smoothfbo.harness import store
from smoothfbo.studies.arena.entries import ArenaMethod, ArenaProblem

NAMES = {"METHOD": ArenaMethod, "PROBLEM": ArenaProblem}
MARK = "smoothfbo arena trial: "  # in front of what a trial says, among whatever else it prints
PATIENCE = 5
Entry = ArenaMethod | ArenaProblem


@dataclass(frozen=True)
class Plugin:
    """A file with its content, as it was when the run began."""

    file: str
    text: str


@dataclass(frozen=True)
class Failure:
    """What a plug-in could not do: nothing at all, a problem whatever the method, or one method on one problem."""

    file: str
    part: str  # "import", "METHOD name" or "PROBLEM name"
    why: str
    problem: str | None = None
    method: str | None = None

    @property
    def line(self) -> str:
        where = f" on {self.problem}" if self.problem and self.method else ""
        return f"{self.file}, {self.part}{where}: {self.why}"


def read(files: Iterable[str]) -> list[Plugin]:
    plugins = []
    for file in files:
        try:
            plugins.append(Plugin(file, Path(file).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise UsageError(f"`add` {file} cannot be read: {store.reason(error)}.") from error
    return plugins


def load(plugin: Plugin) -> list[Entry]:
    """The file's METHOD and PROBLEM, each one entry or a list of them."""
    module = ModuleType(f"smoothfbo_arena_{Path(plugin.file).stem}")
    module.__file__ = plugin.file
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(plugin.text, plugin.file, "exec"), module.__dict__)
    entries: list[Entry] = []
    for name, kind in NAMES.items():
        value = getattr(module, name, [])
        for entry in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(entry, kind):
                raise UsageError(f"{name} must be an {kind.__name__} or a list of them, got a {type(entry).__name__}")
            entries.append(entry)
    if not entries:
        raise UsageError("it defines neither METHOD nor PROBLEM")
    return entries


def reason(error: BaseException) -> str:
    """One line. The library's own sentences need no name of an error in front."""
    text = str(error).strip().splitlines()
    line = text[0].rstrip(".") if text else ""
    if isinstance(error, UsageError):
        return line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def part_of(entry: Entry) -> str:
    return f"{'METHOD' if isinstance(entry, ArenaMethod) else 'PROBLEM'} {entry.name}"


def trial(task: dict[str, Any], limit: float) -> str | None:
    """Do the task (see `trials.run_task`) in a process of its own; what went wrong, or None.

    A process can be ended when its time is up, whatever it does: a loop in Python, or in compiled code. The limit is
    one of processor time, so that nothing fails because other programs are busy; who sleeps has `PATIENCE` times that.
    """
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "smoothfbo.studies.arena.trials"]
    late = f"it did not end within {limit:g} s"
    try:
        done = subprocess.run(
            command, input=json.dumps(task | {"limit": limit}), capture_output=True, text=True,
            timeout=PATIENCE * limit, env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return late
    if done.returncode == -getattr(signal, "SIGXCPU", 0):
        return late
    marked = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not marked:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return f"its process died ({last})"
    return json.loads(marked[-1])
