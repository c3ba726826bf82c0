"""A progress bar with speed and remaining time: rich's where it is installed, else a line of text."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def progress_bar(total: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yields a function that is told how many rounds were done since the last call; `total` is None if unknown."""
    if not shown:
        yield lambda _: None
    elif find_spec("rich") is None:
        with _line(total) as advance:
            yield advance
    else:
        with _bar(total) as advance:
            yield advance


@contextmanager
def _bar(total: int | None) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    speed = TextColumn("{task.fields[speed]:,.0f} rounds/s")
    columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), speed, TimeRemainingColumn())
    begin = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, speed=0.0)

        def advance(rounds: int) -> None:
            done = bar.tasks[task].completed + rounds
            bar.update(task, completed=done, speed=done / (time.perf_counter() - begin))

        yield advance


@contextmanager
def _line(total: int | None) -> Iterator[Callable[[int], None]]:
    begin, done = time.perf_counter(), 0

    def advance(rounds: int) -> None:
        nonlocal done
        done += rounds
        speed = done / (time.perf_counter() - begin)
        rest = "" if total is None else f" of {total:,}, {(total - done) / speed:,.0f} s left"
        sys.stderr.write(f"\r{done:,} rounds{rest}, {speed:,.0f} rounds/s   ")
        sys.stderr.flush()

    yield advance
    sys.stderr.write("\n")
