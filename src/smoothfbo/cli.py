"""The command line: `smoothfbo COMMAND …`. Errors are one line on standard error, and exit status 2."""

import io
import os
import shlex
import signal
import sys
from contextlib import redirect_stderr
from typing import Annotated, Any, Union

from smoothfbo import __version__
from smoothfbo.errors import UsageError

DESCRIPTION = "Non-stationary functional bilevel optimisation: the paper's experiments and checks."


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
    try:
        return parse(arguments).run(shlex.join(["smoothfbo", *arguments]))
    except KeyboardInterrupt:
        if is_process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more would only interrupt what cleans up
        print("smoothfbo: stopped before the end; files that are there are complete", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `smoothfbo … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it ends
        return 141
    except UsageError as error:
        print(f"smoothfbo: {error}", file=sys.stderr)
        return 2


def parse(arguments: list[str]) -> Any:
    """The command with its options. tyro's boxed messages become one line."""
    import tyro
    from tyro.conf import subcommand

    from smoothfbo.harness.registry import STUDIES, from_preset
    from smoothfbo.harness.stored import Report, Resume
    from smoothfbo.stream.command import Stream
    from smoothfbo.studies.theory.command import Theory

    studies = [
        Annotated[study[0], subcommand(name, default=from_preset(name, _preset(arguments, name)))]
        for name, study in STUDIES.items()
    ]
    others = {"stream": Stream, "theory": Theory, "report": Report, "resume": Resume}
    commands = Union[*studies, *(Annotated[kind, subcommand(name)] for name, kind in others.items())]
    message = io.StringIO()
    try:
        with redirect_stderr(message):
            return tyro.cli(commands, prog="smoothfbo", description=DESCRIPTION, args=arguments)  # pyright: ignore[reportCallIssue, reportArgumentType]
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        command = arguments[0] + " " if arguments and arguments[0] in (*STUDIES, *others) else ""
        raise UsageError(f"{_one_line(message.getvalue())} (see smoothfbo {command}--help).") from None


def _preset(arguments: list[str], experiment: str) -> str | None:
    """The value of --preset, which decides the defaults of all other options of the experiment."""
    if arguments[:1] != [experiment]:
        return None
    for index, argument in enumerate(arguments):
        if argument == "--preset" and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith("--preset="):
            return argument.removeprefix("--preset=")
    return None


def _one_line(text: str) -> str:
    """The first paragraph of a boxed message, without the box."""
    lines = [line.strip(" │╭╮╰╯─-") for line in text.splitlines()[1:]]
    lines = [line for line in lines if line and not line.startswith(("For full helptext", "Argument helptext"))]
    return " ".join(lines[:2]).rstrip(".")
