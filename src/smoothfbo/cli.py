"""The command line: `smoothfbo COMMAND …`. Errors are one line on standard error, and exit status 2."""

import dataclasses
import inspect
import io
import os
import shlex
import signal
import sys
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Annotated, Any, Union

from smoothfbo import __version__
from smoothfbo.errors import UsageError, as_flags

if TYPE_CHECKING:
    from smoothfbo.harness.study import Entry

DESCRIPTION = (
    "Non-stationary functional bilevel optimisation: the paper's studies, predictions for drifting tables.\n\n"
    "smoothfbo --version prints the version."
)


def main(arguments: list[str] | None = None) -> int:
    try:
        import tyro  # noqa: F401
    except ImportError:
        print("smoothfbo: the command line needs more packages: pip install 'smoothfbo[experiments]'", file=sys.stderr)
        return 2
    is_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"smoothfbo {__version__}")
        return 0
    from smoothfbo.harness import registry

    entries = registry.entries()
    try:
        return run(arguments, entries)
    except KeyboardInterrupt:
        if is_process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more would only interrupt what cleans up
        print("smoothfbo: stopped before the end; files that are there are complete", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `smoothfbo … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it ends
        return 141
    except UsageError as error:
        options = {field.name for entry in entries.values() for field in dataclasses.fields(entry.config)}
        options |= {"out", "preset", "tensorboard", "workers", "block"}
        print(f"smoothfbo: {as_flags(str(error), options)}", file=sys.stderr)
        return 2


def run(arguments: list[str], entries: "dict[str, Entry]") -> int:
    from smoothfbo.harness import commands

    parsed = parse(arguments, entries)
    if isinstance(parsed, (commands.Resume, commands.Report)):
        return parsed.run(entries)
    return commands.run_parsed(entries[arguments[0]], parsed, shlex.join(["smoothfbo", *arguments]))


def parse(arguments: list[str], entries: "dict[str, Entry]") -> Any:
    """The command with its options. tyro's boxed messages become one line."""
    import tyro
    from tyro.conf import subcommand

    from smoothfbo.harness import commands
    from smoothfbo.harness.requirements import did_you_mean
    from smoothfbo.harness.texts import described

    kinds: list[Any] = []
    for name, entry in entries.items():
        is_chosen = arguments[:1] == [name]
        kind, defaults = commands.arguments_of(entry, _preset(arguments, name), with_help=is_chosen)
        text = _description(entry.config, is_whole=is_chosen)
        kinds.append(Annotated[kind, subcommand(name, description=text, **defaults)])
    others = {"report": commands.Report, "resume": commands.Resume}
    for name, kind in others.items():
        is_chosen = arguments[:1] == [name]
        text = _description(kind, is_whole=is_chosen)
        kinds.append(Annotated[described(kind) if is_chosen else kind, subcommand(name, description=text)])
    names = (*entries, *others)
    if arguments and arguments[0] not in (*names, "-h", "--help"):
        allowed = f"must be one of {', '.join(names)}"
        question = did_you_mean(arguments[0], names)
        raise UsageError(f"the command {allowed}, got {arguments[0]}{question}.")
    message = io.StringIO()
    try:
        with redirect_stderr(message):
            return tyro.cli(Union[*kinds], prog="smoothfbo", description=DESCRIPTION, args=arguments)  # pyright: ignore[reportCallIssue, reportArgumentType]
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        command = arguments[0] + " " if arguments and arguments[0] in names else ""
        raise UsageError(_one_line(message.getvalue(), f"smoothfbo {command}--help")) from None


def _description(kind: type, *, is_whole: bool) -> str:
    """What a command does: all of it in its own help, a line in the list of commands."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return text if is_whole else text.splitlines()[0]


def _preset(arguments: list[str], command: str) -> str | None:
    """The value of --preset, which decides the defaults of all other options of the command."""
    if arguments[:1] != [command]:
        return None
    for index, argument in enumerate(arguments):
        if argument == "--preset" and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith("--preset="):
            return argument.removeprefix("--preset=")
    return None


def _one_line(text: str, help_command: str) -> str:
    """A boxed message of tyro's as one sentence: what is wrong, with which arguments, and where to look.

    The frame is drawn with spaces and hyphens where the terminal has no other characters.
    """
    paragraphs: list[list[str]] = [[]]
    for line in text.splitlines()[1:]:  # the first line is the title of the box
        words = line.strip("│╭╮╰╯").rstrip()
        if not words.strip("─- "):
            paragraphs.append([])
        else:
            paragraphs[-1].append(words)
    message, *hints = [each for each in paragraphs if each] or [[""]]
    margin = _indentation(message[0])

    def arguments(lines: list[str]) -> list[str]:
        """They are indented once, and their explanations twice."""
        return [line.strip() for line in lines if _indentation(line) == margin + 4]

    sentence = " ".join(line.strip() for line in message if _indentation(line) == margin).rstrip(".")
    meant = [each for hint in hints if "Perhaps you meant" in hint[0] for each in arguments(hint)]
    question = f"did you mean {meant[0].split()[0]}? " if meant else ""
    return f"{' '.join([sentence, ', '.join(arguments(message))]).strip()} ({question}see {help_command})."


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
