"""What the command line can do with every entry: run it, resume it, report it. No jax until something runs."""

import shlex
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from smoothfbo.errors import UsageError
from smoothfbo.harness import console as screen
from smoothfbo.harness import folders, remote
from smoothfbo.harness.requirements import require_known
from smoothfbo.harness.study import Entry, Run
from smoothfbo.harness.study import Report as StudyReport
from smoothfbo.harness.texts import described
from smoothfbo.harness.workers.choice import choose
from smoothfbo.harness.workers.cluster import ClusterWorkers

FLAT = tyro.conf.arg(name="", prefix_name=False)  # options of a part without the part's name in front
MOST_PRESETS = 6  # that stand in front of the text of --preset


@dataclass(frozen=True)
class RunOptions:
    """Where the results go."""

    out: str | None = None
    """Folder of the run: config.json, tables, summary.json, figures/, report.html. It may be an address in an object
    store, such as s3://bucket/run. If not given: a folder in out/, named after the command and its preset or data."""

    workers: str | None = None
    """Where the lanes, or the series of a table, are computed: a number of local processes, auto (a running Ray
    cluster, or Ray on this machine) or ray://HOST:PORT. If not given: as when the run was started, or in this
    process."""


@dataclass(frozen=True)
class LaneOptions(RunOptions):
    """Where the results go."""

    tensorboard: bool = False
    """Also write TensorBoard files, into the folder's tensorboard/."""
    block: int | None = None
    """With `workers`: the most lanes that a worker runs at once. If not given: as many as keep all workers busy."""


def arguments_of(entry: Entry, preset: str | None, *, with_help: bool) -> tuple[type, dict[str, Any]]:
    """The dataclass that tyro parses for an entry, and its default, where a preset supplies it.

    Reading the texts of all options takes a while, so they are there only `with_help`.
    """
    config, options = entry.arguments or entry.config, LaneOptions if entry.has_lanes else RunOptions
    if with_help:
        config, options = described(config), described(options)
    parts: list[Any] = [
        ("config", Annotated[config, FLAT]),
        ("options", Annotated[options, FLAT], field(default_factory=options)),
    ]
    if not entry.presets:
        return make_dataclass("Invocation", parts), {}
    names = tuple(entry.presets)
    chosen = names[0] if preset is None else preset
    require_known("preset", (chosen,), names, "one")
    help_text = f"Preset that supplies the defaults: {entry.preset_help}"
    metavar = "|".join(names) if len(names) <= MOST_PRESETS else "NAME"  # the help text has them all
    parts.append(("preset", Annotated[str, tyro.conf.arg(help=help_text, metavar=metavar)], field(default=chosen)))
    kind = make_dataclass("Invocation", parts)
    preset_config = config(**{each.name: getattr(entry.presets[chosen], each.name) for each in fields(entry.config)})
    return kind, {"default": kind(config=preset_config, options=options(), preset=chosen)}


def run_parsed(entry: Entry, parsed: Any, command: str) -> int:
    """Run what was asked for on the command line."""
    preset = getattr(parsed, "preset", "")
    config = entry.config(**{each.name: getattr(parsed.config, each.name) for each in fields(entry.config)})
    if entry.check is not None:
        entry.check(config, entry.presets.get(preset))
    if entry.without_folder is not None and parsed.options.out is None:
        status = entry.without_folder(config)
        if status is not None:
            return status
    place = parsed.options.out or entry.default_folder(config, preset)
    choices = {each.name: getattr(parsed.options, each.name) for each in fields(parsed.options) if each.name != "out"}
    return run(entry, config, place, command, **choices)


def run(
    entry: Entry,
    config: Any,
    place: str | Path,
    command: str,
    *,
    tensorboard: bool = False,
    workers: str | None = None,
    block: int | None = None,
) -> int:
    """Run or resume, with a progress bar, and show what came out; returns the exit status."""
    console = screen.make_console()
    with remote.working_folder(place) as (folder, mirror):
        chosen = choose(workers or folders.stored_workers(folder), block, mirror)
        screen.start_jax(cpu_only=entry.cpu_only, side_by_side=entry.side_by_side(config), is_driver=chosen is not None)
        if mirror is not None:
            mirror.pull_progress(with_checkpoints=not isinstance(chosen, ClusterWorkers))
        was_complete = folders.is_complete(folder)
        with nullcontext() if mirror is None else mirror.uploading():
            try:
                with (
                    screen.warnings_as_lines(),
                    screen.progress_bar(console) as show,
                    screen.tensorboard(folder if tensorboard else None) as log,
                ):
                    entry.execute(Run(config, folder, command, show, log, chosen))
            except (folders.Stopped, KeyboardInterrupt):
                print(f"smoothfbo: stopped; resume with: smoothfbo resume {shlex.quote(str(place))}", file=sys.stderr)
                return 130
            if was_complete:
                text = f"{place} holds the finished run of this configuration; nothing was left to run."
                screen.say(console, text)
            return _show(entry.report(), folder, place, console)


def _show(report: StudyReport, folder: Path, place: str | Path, console: Any) -> int:
    """Draw the page and print what came out."""
    with console.status("drawing"):
        page = f"{place}/{_draw(report, folder).relative_to(folder)}"
    for line in report.as_text(folder):
        console.print(line, markup=not isinstance(line, str))  # words may hold anything, tables have colours
    screen.say(console, f"Page: {page} (figures in {place}/figures, numbers in summary.json and the tables beside it)")
    status, line = report.outcome(folder)
    if line is not None:
        print(f"smoothfbo: {line}", file=sys.stderr)
    return max(status, _print_missing(folder, place))


def _draw(report: StudyReport, folder: Path) -> Path:
    try:
        return report.build(folder)
    except Exception as error:
        missing = folders.read_missing(folder)
        if not missing:
            raise
        what = f"{folder} has no page: too much is missing"
        raise UsageError(f"{what} ({missing[0]}); to try again: smoothfbo resume {folder}.") from error


def _print_missing(folder: Path, place: str | Path) -> int:
    """Lines on what the results do not have, because it failed; 1 if there is anything."""
    missing = folders.read_missing(folder)
    for line in missing:
        print(f"smoothfbo: missing in {place}: {line}.", file=sys.stderr)
    if missing:
        print(f"smoothfbo: to try again: smoothfbo resume {shlex.quote(str(place))}", file=sys.stderr)
    return int(bool(missing))


@dataclass(frozen=True)
class Resume:
    """Resume a run that was stopped or killed. The results are, to the bit, those of an uninterrupted run."""

    folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FOLDER")]
    """The folder of the run (what was given as --out)."""
    workers: str | None = None
    """Other workers than those the run was started with."""

    def run(self, entries: dict[str, Entry]) -> int:
        with remote.working_folder(self.folder) as (folder, _):
            stored = folders.read_description(folder, tuple(entries))
            was_watched = (folder / "tensorboard").exists()
        entry = entries[stored["experiment"]]
        config = folders.configuration(entry.config, stored["config"])
        return run(entry, config, self.folder, stored["command"], tensorboard=was_watched, workers=self.workers)


@dataclass(frozen=True)
class Report:
    """Rebuild the figures and the page of a run from its stored files.

    Several runs of one command are compared on one page, in the folder --out, where the command can do that; otherwise
    the page of each run is rebuilt.
    """

    folders: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FOLDER [FOLDER ...]", help_behavior_hint="(required)"),
    ]
    """One folder or several."""
    out: str = "out/comparison"
    """Folder of the comparison, where several runs are given."""

    def run(self, entries: dict[str, Entry]) -> int:
        if not self.folders:
            raise UsageError("report needs the folder of a run, or several.")
        with ExitStack() as stack:
            places = dict.fromkeys(self.folders)
            here = {place: stack.enter_context(remote.working_folder(place)) for place in places}
            names = {folders.read_description(folder, tuple(entries))["experiment"] for folder, _ in here.values()}
            for place, (folder, _) in here.items():
                if not folders.is_finished(folder):
                    raise UsageError(f"{place} is not finished: resume it with `smoothfbo resume {place}`.")
            if len(names) > 1:
                raise UsageError(f"only runs of one command can be compared, got {', '.join(sorted(names))}.")
            report = entries[names.pop()].report()
            if len(here) > 1 and report.combine is not None:
                here = here | {self.out: stack.enter_context(remote.working_folder(self.out))}
                runs = tuple(here[place][0] for place in places)
                pages = {self.out: report.combine(runs, here[self.out][0])}
            else:
                for folder, _ in here.values() if report.refresh is not None else ():
                    report.refresh(folder)  # pyright: ignore[reportOptionalCall]
                pages = {place: _draw(report, folder) for place, (folder, _) in here.items()}
            console = screen.make_console()
            for place, page in pages.items():
                folder, mirror = here[place]
                if mirror is not None:
                    mirror.push(is_last=True)
                screen.say(console, f"Written: {place}/{page.relative_to(folder)}")
            return max(_print_missing(here[place][0], place) for place in places)
