"""SmoothFBO's stream learner on real tables, against its own experts, aggregation by BOA and eight models of river.

    python -m benchmarks.stream --electricity electricity.csv            # all of it; benchmarks/results/stream.json
    python -m benchmarks.stream --electricity electricity.csv --resume cases.jsonl    # may be stopped and run again
    python -m benchmarks.stream --quick                                  # four tables, one jump, one event

Every method predicts a row before its target is used, from the same features. Tables are cut to their first `ROWS`
rows; bands are judged on all of them. River's models, which are slow, meet the first `RIVER_ROWS` rows of the held-out
tables. The tables, and which were held out, are in `stream_tables`; those of `stream_classes` are generated, and were
used for development, too.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, stream_rivals
from benchmarks.stream_classes import generated
from benchmarks.stream_generated import EVENTS, JUMPS, NOISES, measure_alarms, measure_event, measure_jump
from benchmarks.stream_tables import Table, development, held_out
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.specification import LEVELS, Specification
from smoothfbo.stream.passes import best_reference
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.session import new_session

ROWS, RIVER_ROWS = 6_000, 2_000
LARGE = 1_000  # rows from which the worst ratio counts
LONG = 5_000  # rows from which the bands count
RESAMPLES = 500


def encoded(table: Table, folder: Path, rows: int | None = None) -> tuple[Specification, Rows]:
    """The features that `smoothfbo stream` makes of a table."""
    path = folder / "table.csv"
    table.load().iloc[:rows].to_csv(path, index=False)
    task: Any = table.task
    config = StreamConfig(str(path), table.target, task=task, extra_lags=table.extra_lags, ignore=table.ignore)
    opened, session = new_session(config)
    parts = [session.encoder.encode(portion)[0] for portion in opened]
    return session.learner.spec, Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def losses(predictions: np.ndarray, target: np.ndarray, spec: Specification) -> np.ndarray:
    """Squared errors, or 1 where the class is wrong; methods × rows that count."""
    counts = ~np.isnan(target) & ~np.isnan(predictions).any(axis=0)
    predictions, target = predictions[:, counts], target[counts]
    return (predictions != target).astype(float) if spec.is_classification else (predictions - target) ** 2


def resampled(ours: np.ndarray, other: np.ndarray, length: int = 50) -> list[float]:
    """Ratios of mean losses by the circular block bootstrap (Politis & Romano 1992)."""
    random, rows = np.random.default_rng(0), len(ours)
    length = max(min(length, rows // 10), 1)
    starts = random.integers(0, rows, (RESAMPLES, -(-rows // length)))
    index = ((starts[:, :, None] + np.arange(length)) % rows).reshape(RESAMPLES, -1)
    return (ours[index].mean(axis=1) / np.maximum(other[index].mean(axis=1), 1e-300)).tolist()


def interval(ratios: Any) -> tuple[float, float]:
    """95 % of resampled ratios."""
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)


def measure_table(table: Table, kind: str, rows: int, folder: Path) -> dict[str, Any]:
    """Errors on the first `rows` rows, and how many targets lie in the bands on all of them."""
    is_short = table.task == "classification" or rows < ROWS
    spec, data = encoded(table, folder, rows if is_short else None)
    begin = time.perf_counter()
    outcome = Learner(spec).process(data)
    seconds = time.perf_counter() - begin
    predictions, target = outcome.predictions[:, :rows], data.target[:rows]
    names = ("smoothfbo", *spec.reference_names)
    all_losses = losses(predictions, target, spec)
    errors = dict(zip(names, all_losses.mean(axis=1).tolist(), strict=True))
    best = best_reference(errors) or ""
    case: dict[str, Any] = {
        "table": table.name, "kind": kind, "task": table.task, "rows": len(target), "features": spec.features,
        "seconds": seconds, "best": best, "errors": errors, "ratio": errors["smoothfbo"] / errors[best],
    }  # fmt: skip
    case["error_of_first_rows"] = float(losses(predictions[:1, :RIVER_ROWS], target[:RIVER_ROWS], spec).mean())
    case["resampled"] = resampled(all_losses[0], all_losses[names.index(best)])
    case["low"], case["high"] = interval(case["resampled"])
    if not spec.is_classification:  # the scores of the experts, which BOA needs for classes, are not kept
        experts = predictions[1 : len(spec.expert_names) + 1]
        mixed, without = stream_rivals.bernstein(experts, target), stream_rivals.bernstein(experts[1:], target)
        boa = losses(np.stack([predictions[0], mixed, without]), target, spec)
        case["boa"], case["boa_without_learned_memory"] = boa[1:].mean(axis=1).tolist()
        case["ratio_to_boa"] = errors["smoothfbo"] / case["boa"]
        case["boa_resampled"] = resampled(boa[0], boa[1])
        case["boa_low"], case["boa_high"] = interval(case["boa_resampled"])
    if outcome.bands is not None:
        case |= covered(outcome.bands, data.target)
    return case


def covered(bands: np.ndarray, target: np.ndarray) -> dict[str, Any]:
    """Per cent of the targets in every band, among the rows whose bands have a width.

    A target that is the same in every row is met exactly, and its band is one number: what covers it at all covers it
    always, and no band could cover it half of the time.
    """
    counts = ~np.isnan(target) & ~np.isnan(bands).any(axis=(1, 2))
    has_width = counts & (bands[:, -1, 1] > bands[:, -1, 0])
    inside = (bands[:, :, 0] <= target[:, None]) & (target[:, None] <= bands[:, :, 1])
    return {
        "covered": (100 * inside[has_width].mean(axis=0)).tolist(),
        "covered_rows": int(has_width.sum()),
        "rows_without_width": int((counts & ~has_width).sum()),
    }


def measure_river(table: Table, folder: Path) -> dict[str, Any]:
    spec, data = encoded(table, folder, RIVER_ROWS)
    return {"errors": stream_rivals.river_errors(data.features, data.target, spec.is_classification)}


def with_river(case: dict[str, Any], river: dict[str, float]) -> dict[str, Any]:
    best = min(river, key=river.__getitem__)
    ratio = case["error_of_first_rows"] / max(river[best], 1e-300)
    return case | {"river": river, "river_best": best, "ratio_to_river": ratio}


def only_river(electricity: Path | None, resume: Path) -> None:
    """Of the held-out tables, the cheap ones first."""
    resumed = Resumed(resume)
    with tempfile.TemporaryDirectory() as folder:
        for table in sorted(held_out(electricity), key=lambda table: table.task != "regression"):
            resumed.get(f"river: {table.name}", lambda t=table: measure_river(t, Path(folder)))


def geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-12)))))


def ratios_of(cases: list[dict[str, Any]], title: str) -> list[measure.Ratio]:
    """The lines of a set of tables; ranges are 95 % intervals over resampled rows."""
    what, lines = f"{title}: {len(cases)} tables", []
    low, high = interval([geometric(values) for values in zip(*(case["resampled"] for case in cases), strict=True)])
    mean = geometric([case["ratio"] for case in cases])
    lines.append(measure.Ratio(what, "SmoothFBO", "best fixed expert", mean, low, high, "≤ 0.97"))
    large = [case for case in cases if case["rows"] >= LARGE]
    if large:
        worst = max(large, key=lambda case: case["ratio"])
        what = f"{title}: worst of {len(large)} with 1,000 rows ({worst['table']})"
        values = worst["ratio"], worst["low"], worst["high"]
        lines.append(measure.Ratio(what, "SmoothFBO", "best fixed expert", *values, "≤ 1.03"))
    mixed = [case for case in cases if "boa" in case]
    if mixed:
        every = zip(*(case["boa_resampled"] for case in mixed), strict=True)
        low, high = interval([geometric(values) for values in every])
        mean, what = geometric([case["ratio_to_boa"] for case in mixed]), f"{title}: {len(mixed)} tables"
        lines.append(measure.Ratio(what, "SmoothFBO", "BOA on the same experts", mean, low, high, "≤ 0.99"))
    found = [case["ratio_to_river"] for case in cases if "ratio_to_river" in case]
    if found:
        what, mean = f"{title}: {len(found)} tables (range over tables)", geometric(found)
        name = "best of eight river models"
        lines.append(measure.Ratio(what, "SmoothFBO", name, mean, min(found), max(found), "≤ 1.0"))
    long = [case for case in cases if case.get("covered_rows", 0) >= LONG]
    if long:
        off = [max(abs(a - 100 * b) for a, b in zip(case["covered"], LEVELS, strict=True)) for case in long]
        what = f"{title}: bands of {len(long)} tables with 5,000 rows, points off"
        lines.append(measure.Ratio(what, "SmoothFBO", "", max(off), min(off), max(off), "≤ 1.0"))
    return lines


class Resumed:
    """Cases that are done, one a line of a file. Those of the learner count only for the source that made them."""

    def __init__(self, path: Path | None):
        self.path, self.done = path, {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self.done |= json.loads(line)

    def __contains__(self, key: str) -> bool:
        return key in self.done

    def get(self, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if key not in self.done:
            begin = time.perf_counter()
            self.done[key] = compute() | {"measured_in": time.perf_counter() - begin}
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({key: self.done[key]}) + "\n")
        print(key.rpartition(": ")[2], _line(self.done[key]), flush=True)
        return self.done[key]


def source_of_learner() -> str:
    """What made a case: the tree of the learner's folder, and what was changed in it since."""
    folder = "src/smoothfbo/stream/learner"
    commands = ["git", "rev-parse", f"HEAD:{folder}"], ["git", "status", "--porcelain", "--", folder]
    return "".join(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in commands
    ).strip()


def run(
    quick: bool,
    electricity: Path | None = None,
    resume: Path | None = None,
    rivals: bool = True,
    only_finished: bool = False,
) -> measure.Result:
    tables = [(table, "development") for table in development(electricity)]
    tables += [(table, "held out") for table in held_out(electricity)]
    tables += [(table, "generated classes") for table in generated()]
    if quick:
        tables = [pair for pair in tables if pair[0].name in ("trump approval", "sunspots", "Nile", "breast cancer")]
    resumed, rows = Resumed(resume), 800 if quick else ROWS
    source = source_of_learner()
    cases: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def add(to: list[dict[str, Any]], key: str, compute: Callable[[], dict[str, Any]]) -> None:
            if not only_finished or key in resumed:
                to.append(resumed.get(key, compute))

        for table, kind in tables:
            key = f"{source}, {rows} rows: {kind}, {table.name}"
            add(cases, key, lambda t=table, k=kind: measure_table(t, k, rows, folder))
        for jump in JUMPS[:1] if quick else JUMPS:
            every, size, horizon = jump
            add(others, f"{source}: jumps every {every} of {size}, horizon {horizon}", lambda j=jump: measure_jump(*j))
        for event in EVENTS[:1] if quick else EVENTS:
            add(others, f"{source}: {event}", lambda e=event: measure_event(e))
        stationary = 5_000 if quick else 50_000
        for noise in NOISES[:1] if quick else NOISES:
            add(others, f"{source}: {stationary} rows, {noise}", lambda n=noise: measure_alarms(n, stationary))
        by_name = {table.name: table for table, _ in tables}
        for number, case in enumerate(cases if rivals and not quick else []):
            if case["kind"] == "held out":
                river: list[dict[str, Any]] = []
                add(river, f"river: {case['table']}", lambda c=case: measure_river(by_name[c["table"]], folder))
                cases[number] = with_river(case, river[0]["errors"]) if river else case
    return summarise(cases, others)


def summarise(cases: list[dict[str, Any]], others: list[dict[str, Any]]) -> measure.Result:
    """The lines of the table: held-out tables, development tables, and generated streams."""
    lines = []
    for kind in ("held out", "development", "generated classes"):
        found = [case for case in cases if case["kind"] == kind]
        lines += ratios_of(found, kind) if found else []
    for case in others:
        if "jumps every" in case:
            horizon = case["horizon"]
            what = f"jumps every {case['jumps every']} rows, size {case['size']:g}"
            what += f", horizon {horizon}" if horizon > 1 else ""
            values = case["ratio"], min(case["ratios"]), max(case["ratios"])
            lines.append(measure.Ratio(what, "SmoothFBO", "best fixed expert", *values, "≤ 1.0"))
            lines.append(_single(f"{what}: rows until recovered", case["recovered_after"], f"≤ {63 + horizon}"))
        if "event" in case:
            excess = case["excess of rows 500 to 1200 after"]
            lines.append(_single(f"{case['event']}: excess after 500 rows", excess, "≤ 0.1"))
        if "noise" in case:
            what = f"false alarms, {case['rows']:,} rows, {case['noise']}"
            lines.append(_single(what, float(case["alarms"]), "≤ 1"))
    kept = [{key: value for key, value in case.items() if "resampled" not in key} for case in (*cases, *others)]
    return measure.Result(lines, kept)


def _single(what: str, value: float, goal: str) -> measure.Ratio:
    return measure.Ratio(what, "SmoothFBO", "", value, value, value, goal)


def charts(result: measure.Result) -> list[Any]:
    del result
    return []


def _line(case: dict[str, Any]) -> str:
    shown = ("ratio", "low", "high", "best", "ratio_to_boa", "covered", "recovered_after", "alarms", "measured_in")
    parts = {key: case[key] for key in shown if key in case} or case
    parts |= {key: value for key, value in case.items() if key.startswith("excess")}
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in parts.items()}
    return ", ".join(f"{key}: {value}" for key, value in rounded.items())


def generate(path: Path, rows: int) -> None:
    """Ten columns; the coefficients jump every 100,000 rows."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    random = np.random.default_rng(1)
    weights = random.normal(size=9)
    with open(path, "wb") as file:
        for start in range(0, rows, 100_000):
            size = min(100_000, rows - start)
            x = random.normal(size=(size, 9)).round(4)
            weights = weights + 0.3 * random.normal(size=9)
            columns = {f"x{i}": x[:, i] for i in range(9)} | {"y": (x @ weights + random.normal(size=size)).round(4)}
            pa_csv.write_csv(pa.table(columns), file, pa_csv.WriteOptions(include_header=start == 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--electricity", type=Path, help="the CSV file of the electricity table (Harries 1999)")
    parser.add_argument("--resume", type=Path, help="a file of finished cases, which is read and continued")
    parser.add_argument("--only-finished", action="store_true", help="sum up what the file of --resume holds")
    parser.add_argument("--quick", action="store_true", help="few and short tables; nothing is written")
    parser.add_argument("--without-river", action="store_true", help="without river's models; nothing is written")
    parser.add_argument("--only-river", action="store_true", help="river's models alone, into the file of --resume")
    arguments = parser.parse_args()
    if arguments.only_river:
        only_river(arguments.electricity, arguments.resume)
        return
    from benchmarks.__main__ import show

    begin = time.perf_counter()
    rivals, only_finished = not arguments.without_river, arguments.only_finished
    result = run(arguments.quick, arguments.electricity, arguments.resume, rivals, only_finished)
    if not arguments.quick and not arguments.without_river:
        command = "python -m benchmarks.stream --electricity electricity.csv"
        seconds = sum(case.get("measured_in", 0) for case in result.cases) or time.perf_counter() - begin
        measure.write("stream", result, command=command, seconds=seconds)
    show("stream", result)


if __name__ == "__main__":
    main()
