"""A worker is a process that is told names of blocks, one a line, and answers each with one line of JSON.

    python -m smoothfbo.harness.workers.process FOLDER

It ends when its input does, at whatever moment: whoever started it is then gone, and somebody else resumes the block.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

from smoothfbo.errors import UsageError
from smoothfbo.harness import console, folders, registry, store
from smoothfbo.harness.study import Run
from smoothfbo.harness.workers.base import AttemptResult
from smoothfbo.harness.workers.driver import StopFile

COMMAND = (sys.executable, "-m", "smoothfbo.harness.workers.process")
STOPPED = AttemptResult("stopped")
# One core for each: no threads of its own beside those of others, and the same bits on however many cores.
FLAGS = "--xla_force_host_platform_device_count=1 --xla_cpu_multi_thread_eigen=false"


class Worker:
    """The side that asks. A worker that has died is started again by the next question."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None):
        self._folder = folder
        former = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "host_platform_device_count" not in flag]
        self._environment = os.environ | {"XLA_FLAGS": " ".join([*former, FLAGS])} | (environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._is_closed = False

    def ask(self, block: str) -> AttemptResult:
        """Have a block run, and wait for it."""
        if self._is_closed or StopFile(self._folder / "progress").is_requested:
            return STOPPED
        process = self._process = self._process or self._start()
        answer = ""
        with contextlib.suppress(OSError, ValueError):  # it has died, or was closed meanwhile
            print(block, file=process.stdin, flush=True)
            answer = process.stdout.readline()  # pyright: ignore[reportOptionalMemberAccess]
        if not answer.endswith("\n"):  # nothing, or the beginning of a line
            return AttemptResult(f"its process {self._exit_reason(process)}")
        error, is_final, notes = json.loads(answer)
        return AttemptResult(error, is_final, tuple(notes))

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115
        # A session of its own: Ctrl-C in the terminal is for the driver, which asks workers to stop.
        return subprocess.Popen(
            [*COMMAND, str(self._folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=self._environment,
            start_new_session=True,
        )  # fmt: skip

    def _exit_reason(self, process: subprocess.Popen[str]) -> str:
        """How it ended."""
        with contextlib.suppress(OSError, ValueError), process:  # which waits for it, and closes its pipes
            pass
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        self._errors.close()
        self._process = None
        if process.returncode < 0:
            return f"was killed ({signal.Signals(-process.returncode).name})"
        return f"ended with status {process.returncode}" + (f" ({lines[-1].rstrip('.')})" if lines else "")

    def kill(self) -> None:
        """End it at once: whoever waits for its answer gets none."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """The same, where nobody waits."""
        self.kill()
        if self._process is not None:
            self._exit_reason(self._process)


def execute_block(folder: Path, block: str) -> None:
    """Run one block of the run in the folder, from its last checkpoint on."""
    entries = registry.entries()
    stored = folders.read_description(folder, tuple(entries))
    entry = entries[stored["experiment"]]
    config = folders.configuration(entry.config, stored["config"])
    entry.execute(Run(config, folder, stored["command"], lambda progress: None, block=block))  # noqa: ARG005


def run_attempt(action: Callable[[], None]) -> AttemptResult:
    """Do it, and say how it ended."""
    error, is_final = None, False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            action()
        except folders.Stopped:
            error = STOPPED.error
        except UsageError as wrong:
            error, is_final = str(wrong).rstrip("."), not isinstance(wrong, folders.FolderInUse)
        except Exception as wrong:
            error = f"{type(wrong).__name__}: {store.reason(wrong)}"
    notes = dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, UserWarning))
    return AttemptResult(error, is_final, tuple(f"{note}." for note in notes))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a study or a library prints is no answer
    names: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            names.put(line.strip())
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    console.start_jax()
    folder = Path(sys.argv[1])
    while True:
        block = names.get()
        print(json.dumps(run_attempt(lambda: execute_block(folder, block))), file=answers, flush=True)  # noqa: B023


if __name__ == "__main__":
    main()
