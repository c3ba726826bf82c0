"""What every command that runs a study shares: devices, the progress bar, Ctrl-C, TensorBoard."""

import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothfbo.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from smoothfbo.harness.runner import Progress
    from smoothfbo.harness.study import Study


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_jax() -> None:
    """One host device per processor core, so that lanes fill all of them; must come before jax is imported."""
    flag = "xla_force_host_platform_device_count"
    flags = os.environ.get("XLA_FLAGS", "")
    if flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{flag}={cores()}".strip()
    from smoothfbo.harness.lanes import use_compilation_cache

    use_compilation_cache()


def make_console() -> "Console":
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    return console


def run_study(study: "Study", folder: Path, command: str, console: "Console", *, tensorboard: bool = False) -> bool:
    """Run it or go on with it, with a progress bar. False if it was stopped; then how to go on has been said."""
    from smoothfbo.harness import runner

    finished = runner.is_finished(folder)
    try:
        with warnings_as_lines(), _bar(console) as tell, _tensorboard(folder if tensorboard else None) as log:

            def both(progress: "Progress") -> None:
                tell(progress)
                log(progress)

            runner.execute(study, folder, command, both)
    except (runner.Stopped, KeyboardInterrupt):
        print(f"smoothfbo: stopped; go on with: smoothfbo resume {shlex.quote(str(folder))}", file=sys.stderr)
        return False
    if finished:
        say(console, f"{folder} holds the finished run of this configuration; nothing was left to run.")
    return True


def run_and_report(
    load: Callable[[], tuple[Callable[[Any], "Study"], Any]],
    config: Any,
    folder: Path,
    command: str,
    *,
    tensorboard: bool,
    before_report: Callable[[Path], None] | None = None,
) -> int:
    """Run a study and show what came out. `load` imports its `study` and its report, after jax has been set up."""
    start_jax()
    make_study, report = load()
    console = make_console()
    if not run_study(make_study(config), folder, command, console, tensorboard=tensorboard):
        return 130
    with console.status("drawing"):
        if before_report is not None:
            before_report(folder)
        page = report.build(folder)
    for line in report.as_text(folder):
        console.print(line)
    say(console, f"Page: {page} (figures in {folder}/figures, numbers in summary.json and metrics.parquet)")
    return 0


def say(console: "Console", text: str) -> None:
    """A line as it is: names of folders are no markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _bar(console: "Console") -> Iterator[Callable[["Progress"], None]]:
    """A bar with lane-rounds per second and the remaining time; without a terminal, a line now and then."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[speed]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None, speed="")
        seconds, rounds, said = 0.0, 0, 0.0
        before: tuple[float, Progress] | None = None

        def tell(progress: "Progress") -> None:
            nonlocal seconds, rounds, said, before
            now = time.monotonic()
            if before is not None and before[1].records is not None and progress.records is not None:
                seconds, rounds = seconds + now - before[0], rounds + progress.done - before[1].done  # no compilation
            before = now, progress
            rate = rounds / seconds if seconds > 0 else 0.0
            speed = f"{rate:,.0f} rounds/s (all lanes)" if rate > 0 else ""
            bar.update(task, description=progress.name, completed=progress.done, total=progress.total, speed=speed)
            if not console.is_terminal and (progress.records is None or now - said > 10):
                share = progress.done / progress.total
                left = f", about {(progress.total - progress.done) / rate:,.0f} s left" if rate > 0 else ""
                print(f"{100 * share:3.0f} % {progress.name} {speed}{left}".rstrip(), file=sys.stderr, flush=True)
                said = now

        yield tell


@contextmanager
def _tensorboard(folder: Path | None) -> Iterator[Callable[["Progress"], None]]:
    """Scalars per method and window, mean over seeds, at the last round of every chunk."""
    if folder is None:
        yield lambda progress: None  # noqa: ARG005
        return
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard needs one more package: pip install 'smoothfbo[tensorboard]'.") from None
    import numpy as np

    writers: dict[str, Any] = {}

    def log(progress: "Progress") -> None:
        if progress.records is None or progress.program is None:
            return
        groups: dict[str, list[int]] = {}
        for index, keys in enumerate(progress.program.lanes):
            name = " ".join(f"{key}={value}" for key, value in keys.items() if key != "seed")
            groups.setdefault(name, []).append(index)
        step = int(progress.records["round"][0, -1])
        for name, members in groups.items():
            if name not in writers:
                writers[name] = SummaryWriter(str(folder / "tensorboard" / name.replace("/", "_")))
            for metric, values in progress.records.items():
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
