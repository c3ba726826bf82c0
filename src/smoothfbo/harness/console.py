"""What a person sees of a run: the progress bar, lines on standard error, TensorBoard. jax is set up here, too."""

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.harness.study import Program, Progress

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_BETWEEN_LINES = 10  # where there is no terminal
# XLA's CPU makes one piece of machine code of a loop that touches fewer bytes than this; 1,024 unless it is told. In
# larger ones every step is a task of its own, and to start it takes longer than the small steps of a stream's learner.
WHOLE_LOOPS, BYTES_OF_A_LOOP = "xla_cpu_small_while_loop_byte_threshold", 1_000_000


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_jax(*, cpu_only: bool = False, side_by_side: bool = False, is_driver: bool = False) -> None:
    """One host device per processor core, so that lanes fill all of them; must come before jax is imported.

    What needs a CPU only has no lanes, but many small steps one after the other: one device and one thread. It needs a
    thread for each core where several of its compiled programs run `side_by_side`.
    The driver of workers leaves GPUs to them: all that it computes are the tables.
    """
    flag, devices = "xla_force_host_platform_device_count", 1 if cpu_only else cores()
    if cpu_only:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        # Threads of compiled programs, all together. The steps of one are so small that a second thread only waits for
        # work, at full speed.
        os.environ.setdefault("NPROC", str(cores() if side_by_side else 1))
    flags = os.environ.get("XLA_FLAGS", "")
    if flag not in flags:
        flags = f"{flags} --{flag}={devices}"
    if cpu_only and not side_by_side and WHOLE_LOOPS not in flags:
        flags = f"{flags} --xla_backend_extra_options={WHOLE_LOOPS}={BYTES_OF_A_LOOP}"
    os.environ["XLA_FLAGS"] = flags.strip()
    from smoothfbo.harness.lanes import use_compilation_cache

    use_compilation_cache()
    if is_driver:
        import jax

        jax.config.update("jax_platforms", "cpu")  # for this process alone: workers inherit the environment


def make_console() -> "Console":
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    return console


def say(console: "Console", text: str) -> None:
    """A line as it is: names of folders are not markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(console: "Console") -> Iterator[Callable[[Progress], None]]:
    """A bar with speed and remaining time; without a terminal, a line now and then. Notes are printed once each."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[share]}"),
        TextColumn("{task.fields[speed]}"), TimeElapsedColumn(), TextColumn("{task.fields[left]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None, speed="", share="", left="")
        speed, notes, last_line = Speed(), set[str](), time.monotonic()

        def show(progress: Progress) -> None:
            nonlocal last_line
            for note in progress.notes:
                if note not in notes:
                    say(console, note)
                    notes.add(note)
            speed.update(progress)
            share = "" if progress.total is None else f"{100 * progress.done / max(progress.total, 1):3.0f} %"
            left = "" if progress.total is None else "left"
            shown: dict[str, Any] = {"speed": speed.text(progress), "share": share, "left": left}
            bar.update(task, description=progress.text, completed=progress.done, total=progress.total, **shown)
            if console.is_terminal:
                return
            now = time.monotonic()
            starts_program = progress.compiling and progress.total is not None
            if starts_program or now - last_line > SECONDS_BETWEEN_LINES:
                parts = [f"{share} {progress.text}".strip(), speed.text(progress), speed.left(progress)]
                print(", ".join(part for part in parts if part), file=sys.stderr, flush=True)
                last_line = now

        yield show


class Speed:
    """How fast a run goes, without the time of compilation.

    What is left counts compilation, too, once there was more than one: the others will take their share of the rounds.
    """

    def __init__(self) -> None:
        self._seconds, self._done = 0.0, 0
        self._compiling, self._compilations = 0.0, 0
        self._first = 0
        self._before: tuple[float, Progress] | None = None

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._before is None:
            self._first = progress.done
        elif self._before[1].compiling:
            self._compiling += now - self._before[0]
            self._compilations += 1
        elif not progress.compiling:
            self._seconds += now - self._before[0]
            self._done += progress.done - self._before[1].done
        self._before = now, progress

    @property
    def rate(self) -> float:
        return self._done / self._seconds if self._seconds > 0 else 0.0

    def text(self, progress: Progress) -> str:
        return f"{self.rate:,.0f} {progress.unit}/s" if self.rate > 0 else ""

    def left(self, progress: Progress) -> str:
        if progress.total is None or self.rate <= 0:
            return ""
        left = progress.total - progress.done
        more = self._compiling * left / (progress.done - self._first) if self._compilations > 1 else 0.0
        return f"about {left / self.rate + more:,.0f} s left"


Watch = Callable[[Program, dict[str, np.ndarray]], None]


@contextmanager
def tensorboard(folder: Path | None) -> Iterator[Watch]:
    """Scalars per method and window, mean over seeds, at the last round of every chunk."""
    if folder is None:
        yield lambda program, records: None  # noqa: ARG005
        return
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise UsageError("`tensorboard` needs one more package: pip install 'smoothfbo[tensorboard]'.") from None

    writers: dict[str, Any] = {}

    def log(program: Program, records: dict[str, np.ndarray]) -> None:
        groups: dict[str, list[int]] = {}
        for index, keys in enumerate(program.lanes):
            name = " ".join(f"{key}={value}" for key, value in keys.items() if key != "seed")
            groups.setdefault(name, []).append(index)
        step = int(records["round"][0, -1])
        for name, members in groups.items():
            if name not in writers:
                writers[name] = SummaryWriter(str(folder / "tensorboard" / name.replace("/", "_")))
            for metric, values in records.items():
                if values.ndim == 2 and metric != "round" and np.isfinite(mean := float(np.mean(values[members, -1]))):
                    writers[name].add_scalar(metric, mean, step)

    try:
        yield log
    finally:
        for writer in writers.values():
            writer.close()


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(f"smoothfbo: warning: {message}.", file=sys.stderr)
        yield
