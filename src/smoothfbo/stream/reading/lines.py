"""The lines of a text file in portions, with the faults that only bytes show: NUL, endless lines, broken gzip."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoothfbo.errors import UsageError

PORTION = 1 << 22  # bytes
LONGEST_LINE = 1 << 20  # bytes


def open_bytes(path: str) -> Any:
    """A binary file; `-` is standard input, `.gz` is unpacked."""
    if path == "-":
        return sys.stdin.buffer
    if not Path(path).exists():
        raise UsageError(f"{path} does not exist.")
    if Path(path).is_dir():
        raise UsageError(f"{path} is a folder, not a file.")
    try:
        return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error


def whole_lines(file: Any, name: str) -> Iterator[bytes]:
    """Portions of whole lines, as they come in; an error is raised after everything before it was delivered."""
    rest, lines, fault = b"", 0, None
    while fault is None:
        try:
            # read1 returns what has arrived and does not wait for more: standard input is read line by line.
            portion = file.read1(PORTION)
        except (EOFError, OSError, zlib.error) as error:
            raise UsageError(f"{name} cannot be read after line {lines}: {_reason(error)}.") from error
        if not portion:
            break
        text = rest + portion
        end = text.rfind(b"\n") + 1
        whole, fault = _before_fault(text[:end], text[end:], name, lines)
        rest = text[end:]
        lines += whole.count(b"\n")
        if whole:
            yield whole
    if fault is not None:
        raise fault
    if rest:
        yield rest + b"\n"


def _before_fault(whole: bytes, rest: bytes, name: str, lines: int) -> tuple[bytes, UsageError | None]:
    """The lines before the first NUL byte or overlong line, and the error."""
    nul = (whole + rest).find(b"\0") if b"\0" in whole or b"\0" in rest else -1
    if nul >= 0:
        before = whole[: whole.rfind(b"\n", 0, min(nul, len(whole))) + 1]
        line = lines + before.count(b"\n") + 1
        return before, UsageError(f"{name}, line {line}: a NUL byte; the file is damaged or not text.")
    if len(rest) > LONGEST_LINE:
        line = lines + whole.count(b"\n") + 1
        return whole, UsageError(f"{name}, line {line}: longer than {LONGEST_LINE:,} bytes; is it a table?")
    start = 0
    while len(whole) - start > LONGEST_LINE:  # hop from line end to line end, at most LONGEST_LINE at a time
        end = whole.rfind(b"\n", start, start + LONGEST_LINE) + 1
        if end <= start:
            line = lines + whole.count(b"\n", 0, start) + 1
            return whole[:start], UsageError(f"{name}, line {line}: longer than {LONGEST_LINE:,} bytes; is it a table?")
        start = end
    return whole, None


def _reason(error: BaseException) -> str:
    if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)):
        return "the gzip file is truncated or damaged"
    return str(error)
