"""Thousands of broken tables for `smoothfbo stream`: each gives results, or one sentence that says what is wrong.

    python tests/fuzz_stream.py                          # 2,000 files; `make fuzz`
    python tests/fuzz_stream.py --files 1 --first 1234   # one of them again

Every file comes from its number. The first ones are known troublemakers; all others are a good table with one to three
mutations of its bytes or values. Nothing may raise anything but a `UsageError` of one line, warn, or take longer than a
minute; predictions are finite where there are any; and a table that is read from standard input gives the same bits.

Every table of another shape would be compiled anew, which takes seconds. So one file in twenty, and the known ones,
meet the learner; the others meet one that repeats the newest target: most faults are met before anything is learnt.
"""

import argparse
import contextlib
import gzip
import io
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Most of the time goes into compiling, once for every shape of a table: quickly, and kept for the next time.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smoothfbo.errors import UsageError
from smoothfbo.stream import session
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.outcome import Outcome
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.pipeline import run_stream

REAL = 20  # one file in so many meets the learner
SMALL = {"block": 8, "rates": 3, "windows": (2,), "smoothing": 2, "lags": 1, "references": False}
CELLS = (
    "", " ", "\t", "NA", "nan", "inf", "-inf", "1e308", "-1e308", "1e400", "1e-320", "-0", "+1", "1.", ".5", "1_000",
    "1 000", "0x10", "1,5", "1;5", "١٢", "true", "False", "None", "null", "?", "oops", "1\u00a0", "1\x1e", "1\u2028",
    "\ufeff1", '"1"', '"1', '1"', "''", '"a""b"', "é", "🙂", "9" * 400, "a" * 70_000, "-9999", "1e100", "1e101",
    "2024-01-01", "2024-02-30", "2024-01-01 12:00:00.123456789", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00+05:00",
    "1677-01-01", "9999-12-31", "#", "=1+1", "\\N", "\x7f", "\x01",
)  # fmt: skip
LINES = (
    b"\n", b" \n", b"\t\n", b"\r\n", b"\r", b",\n", b",,\n", b",,,\n", b"# comment\n", b"\xff\xfe\n", b"\xc3\x28,1,1\n",
    b"\0\n", b"x,z,y\n", b'"\n', b'""\n', b"1,2,3\x1a\n", "\u2028\n".encode(), "\u00a0\n".encode(), b"\x0b\x0c\n",
    b"1\n",
)  # fmt: skip


def good_table(random: np.random.Generator) -> list[list[str]]:
    """A header and rows: two numbers, or a number and text, and a target of numbers or classes; perhaps with times."""
    rows = int(random.integers(8, 120))
    x, z = random.normal(size=(2, rows))
    first = [f"{value:.4g}" for value in x]
    second = [f"{value:.4g}" for value in z]
    if random.random() < 0.2:
        second = random.choice(["red", "blue", "green"], rows).tolist()
    target = [f"{value:.4g}" for value in x - 2 * z]
    if random.random() < 0.3:
        target = random.choice(["up", "down"], rows).tolist()
    columns = {"x": first, "z": second, "y": target}
    if random.random() < 0.2:
        start = np.datetime64("2024-01-01") + np.arange(rows) * np.timedelta64(30, "m")
        columns = {"t": [str(value).replace("T", " ") for value in start], **columns}
    return [list(columns), *map(list, zip(*columns.values(), strict=True))]


def as_bytes(table: list[list[str]]) -> bytes:
    return "".join(",".join(row) + "\n" for row in table).encode("utf-8", "surrogatepass")


def change_cell(table: list[list[str]], random: np.random.Generator) -> None:
    row = int(random.integers(len(table)))
    column = int(random.integers(len(table[0])))
    if column < len(table[row]):
        table[row][column] = str(random.choice(CELLS))


def change_column(table: list[list[str]], random: np.random.Generator) -> None:
    """A whole column, or its end, is one value, or many different ones."""
    column, begin = int(random.integers(len(table[0]))), int(random.integers(1, len(table)))
    cell = str(random.choice(CELLS))
    for row in table[begin if random.random() < 0.5 else 1 :]:
        row[column : column + 1] = [cell if random.random() < 0.9 else f"level {random.integers(100)}"]


def change_shape(table: list[list[str]], random: np.random.Generator) -> None:
    """Rows come twice, change places or go; values are missing at the end of a row, or too many."""
    row = int(random.integers(1, len(table)))
    choice = random.integers(5)
    if choice == 0:
        table.insert(row, list(table[row]))
    elif choice == 1:
        table[row], table[-1] = table[-1], table[row]
    elif choice == 2:
        del table[row]
    elif choice == 3:
        table[row] = table[row][:-1]
    else:
        table[row] = [*table[row], "7"]


def change_bytes(content: bytes, random: np.random.Generator) -> bytes:
    place = int(random.integers(len(content) + 1))
    choice = random.integers(8)
    if choice == 0:
        return content[:place] + bytes([int(random.integers(256))]) + content[place:]
    if choice == 1:
        return content[:place] + content[place + int(random.integers(1, 20)) :]
    if choice == 2:
        return content[:place]
    if choice == 3:
        return content.replace(b"\n", b"\r\n")
    if choice == 4:
        return b"\xef\xbb\xbf" + content
    if choice == 5:
        return content.replace(b",", [b";", b"\t", b", ", b" ,"][int(random.integers(4))])
    at = content.rfind(b"\n", 0, place) + 1
    return content[:at] + LINES[int(random.integers(len(LINES)))] + content[at:]


def mutated(random: np.random.Generator) -> bytes:
    table = good_table(random)
    content = None
    for _ in range(int(random.integers(1, 4))):
        choice = random.integers(4)
        if choice < 3 and content is None and len(table) > 1:
            (change_cell, change_column, change_shape)[choice](table, random)
        else:
            content = change_bytes(as_bytes(table) if content is None else content, random)
    return as_bytes(table) if content is None else content


def parquet_file(path: Path, random: np.random.Generator) -> None:
    """Columns of any type that Parquet has."""
    rows = int(random.integers(1, 60))
    numbers = random.normal(size=rows)
    texts = [str(value) for value in random.integers(0, 4, rows)]
    kinds: list[Any] = [
        pa.array(numbers), pa.array(numbers.astype(np.float32)), pa.array(random.integers(-5, 5, rows)),
        pa.array(random.integers(0, 2, rows).astype(bool)), pa.array(texts), pa.array(texts).dictionary_encode(),
        pa.array(texts, pa.large_string()), pa.array([None] * rows), pa.array([None] * rows, pa.float64()),
        pa.array(np.full(rows, 2**63, np.uint64)), pa.array(numbers.round(2)).cast(pa.decimal128(20, 12), safe=False),
        pa.array(np.arange(rows), pa.timestamp("ns")), pa.array(np.arange(rows), pa.timestamp("s", "Europe/Paris")),
        pa.array(np.arange(rows, dtype=np.int32), pa.date32()), pa.array(np.arange(rows), pa.duration("s")),
        pa.array([[1.0]] * rows), pa.array([b"a"] * rows), pa.array([{"a": 1}] * rows),
        pa.array(np.where(random.random(rows) < 0.1, np.inf, numbers)),
        pa.array(np.where(random.random(rows) < 0.1, np.nan, numbers)), pa.array(np.full(rows, 1e308)),
    ]  # fmt: skip
    chosen = {name: kinds[int(random.integers(len(kinds)))] for name in ("x", "z")}
    target = kinds[int(random.integers(len(kinds)))] if random.random() < 0.4 else pa.array(numbers)
    pq.write_table(pa.table({**chosen, "y": target}), path)
    if random.random() < 0.2:
        content = path.read_bytes()
        path.write_bytes(content[: int(random.integers(len(content)))])


def lines(rows: Iterator[str] | list[str], header: str = "x,y") -> bytes:
    return "\n".join([header, *rows, ""]).encode()


def known() -> list[tuple[bytes, dict[str, Any]]]:
    """What once made it crash or hang."""
    plain = [f"{i}.5,{i % 7}" for i in range(60)]
    names = [f"class {i}" for i in range(60)]
    late = [f"{i},{'ab'[i % 2] if i < 50 else 'new'}" for i in range(64)]
    network = {"predictor": "network", "width": 4, "network_blocks": 2, "network_steps": 1}
    number = {"task": "regression"}
    times = [f"2024-01-01 00:00:{i:02d}.123456789,{i}" for i in range(60)]
    return [
        (lines([*plain[:30], " ", *plain[30:]]), number),
        (lines([*plain, "1\u00a0,2"]), number),
        (lines([*plain, "1\x1e,2"]), number),
        (lines([*plain, "1\u2028,2"]), number),
        (lines(times, "t,y"), number),
        (lines([*plain, "1,1e308", *plain]), number),
        (lines([f"{i},{name}" for i, name in enumerate(names)]), {}),
        (lines([f"{i % 9},{chr(97 + i % 26)}" for i in range(2_000)]), {}),
        (lines(late), network),
        (lines([f"{i},{i}" for i in range(8)]), number),
        (lines([f"{i % 2 == 0},{i % 3}" for i in range(60)]), {}),
    ]


def write_file(number: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file with this number, and the options it is read with."""
    fixed = known()
    if number < len(fixed):
        content, options = fixed[number]
        path = folder / "known.csv"
        path.write_bytes(content)
        return path, options
    random = np.random.default_rng(number)
    options: dict[str, Any] = {"on_error": "skip" if random.random() < 0.4 else "stop"}
    options |= {"missing": "error"} if random.random() < 0.1 else {}
    options |= {"task": str(random.choice(["regression", "classification"]))} if random.random() < 0.3 else {}
    if random.random() < 0.1:
        parquet_file(folder / "table.parquet", random)
        return folder / "table.parquet", options
    content = mutated(random)
    if random.random() < 0.05:
        packed = gzip.compress(content)
        path = folder / "table.csv.gz"
        path.write_bytes(packed if random.random() < 0.5 else packed[: int(random.integers(len(packed)))])
        return path, options
    (folder / "table.csv").write_bytes(content)
    return folder / "table.csv", options


class LastValue:
    """Stands for the learner where only its rows matter."""

    def __init__(self, spec: Specification):
        self.spec, self._rows = spec, 0

    def process(self, rows: Any) -> Outcome:
        if not np.isfinite(rows.features[~np.isnan(rows.features)]).all():
            raise AssertionError("a feature is infinite")
        before, self._rows = self._rows, self._rows + len(rows.target)
        blocks = self._rows // self.spec.rows - before // self.spec.rows
        classes = self.spec.is_classification
        scores = np.full((len(rows.target), self.spec.outputs + 1 if classes else 1), 0.5)
        bands = None if classes else np.stack([np.stack([rows.previous] * 2, axis=1)] * 3, axis=1)
        weights = np.full((blocks, self.spec.rates), 1 / self.spec.rates)
        none = np.zeros((blocks, self.spec.features)), np.ones(blocks, bool)
        return Outcome(rows.previous[None], scores, weights, *none, bands)


class Predictions:
    """What came out, in pieces."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def predictions(self, table: pa.Table) -> None:
        self.tables.append(table)

    def blocks(self, table: pa.Table) -> None:
        """Not looked at."""


def outcome(data: str, options: dict[str, Any]) -> tuple[pa.Table | None, str | None]:
    """All predictions, and what was said; anything but a result or a sentence is raised."""
    sink, fault = Predictions(), None
    try:
        fault = run_stream(StreamConfig(data, "y", **SMALL | options), sink).fault
    except UsageError as error:
        fault = error
    table = pa.concat_tables(sink.tables) if sink.tables else None
    if fault is None and table is None:
        raise AssertionError("neither a result nor a sentence")
    text = None if fault is None else str(fault)
    if text is not None and (len(text.splitlines()) != 1 or not text.endswith((".", "?", "…"))):
        raise AssertionError(f"not one sentence: {text!r}")
    if table is not None:
        for name in table.column_names:
            if pa.types.is_floating(table[name].type) and not np.isfinite(table[name].drop_null().to_numpy()).all():
                raise AssertionError(f"{name} is not finite")
    return table, text


def from_standard_input(content: bytes, options: dict[str, Any]) -> tuple[pa.Table | None, str | None]:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(content))
    try:
        return outcome("-", options)
    finally:
        sys.stdin = before


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"longer than {seconds} seconds")

    former = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def check(number: int, folder: Path, seconds: int) -> str:
    """One file; says what became of it."""
    path, options = write_file(number, folder)
    is_real = number < len(known()) or number % REAL == 0
    session.Learner = Learner if is_real else LastValue  # pyright: ignore[reportAttributeAccessIssue]
    with time_limit(seconds), warnings.catch_warnings():
        warnings.simplefilter("error")
        table, text = outcome(str(path), options)
        if path.suffix == ".csv" and number % 10 == 0 and path.stat().st_size:
            same, said = from_standard_input(path.read_bytes(), options)
            is_same = same is None if table is None else same is not None and table.equals(same)
            # NaN is not equal to NaN, but missing is null here.
            if not is_same or (text or "").replace(str(path), "standard input") != (said or ""):
                raise AssertionError(f"standard input says otherwise: {text!r}, {said!r}")
    return "results" if text is None else "some rows" if table is not None else "a sentence"


def run(first: int, count: int, seconds: int, say: Callable[[str], None]) -> int:
    """How many files gave something else."""
    found: dict[str, int] = {}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, first + count):
            try:
                what = check(number, Path(folder), seconds)
            except Exception as error:
                what = "FAILED"
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(last.filename).name}:{last.lineno}"
                say(f"file {number}: {type(error).__name__}: {str(error).splitlines()[0][:200]} ({place})")
            found[what] = found.get(what, 0) + 1
            if (number - first + 1) % 200 == 0:
                say(f"{number - first + 1} files, {time.monotonic() - begin:.0f} s: {found}")
    say(f"{count} files, {time.monotonic() - begin:.0f} s: {found}")
    return found.get("FAILED", 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first file")
    parser.add_argument("--seconds", type=int, default=60, help="for a file, with compilation")
    chosen = parser.parse_args()
    return 1 if run(chosen.first, chosen.files, chosen.seconds, lambda line: print(line, flush=True)) else 0


if __name__ == "__main__":
    sys.exit(main())
