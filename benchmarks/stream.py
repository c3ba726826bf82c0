"""SmoothFBO's stream learner on real tables, against its own experts, aggregation by BOA and eight models of river.

    python -m benchmarks.stream --electricity electricity.csv            # all of it; benchmarks/results/stream.json
    python -m benchmarks.stream --quick                                  # four tables, one jump, one event
    python -m benchmarks.stream --generate 5000000                       # speed and memory on a large generated file

Every method predicts a row before its target is used, from the same features. Tables are cut to their first `ROWS`
rows, for river's models to `RIVER_ROWS`: they are slow. The tables, and which were held out, are in `stream_tables`.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, stream_rivals
from benchmarks.stream_tables import Table, development, held_out
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner.changes import ChangeDetector, effective_memory
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.pipeline import best_reference, run_stream
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.session import new_session

ROWS, RIVER_ROWS = 6_000, 2_000
LARGE = 1_000  # rows from which the worst ratio counts
RESAMPLES = 500
JUMPS = tuple((every, size) for every in (500, 2_000, 10_000) for size in (1.0, 5.0))
EVENT = 3_000
EVENTS = ("wrong value", "thousandth", "fahrenheit", "wrong target", "target jumps 500 spreads")
NOISES = ("gaussian", "student", "lognormal")


def encoded(table: Table, rows: int, folder: Path) -> tuple[Specification, Rows]:
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


def interval(ours: np.ndarray, other: np.ndarray, length: int = 50) -> tuple[float, float]:
    """95 % of the ratio of mean losses, by the circular block bootstrap (Politis & Romano 1992)."""
    random, rows = np.random.default_rng(0), len(ours)
    length = max(min(length, rows // 10), 1)
    starts = random.integers(0, rows, (RESAMPLES, -(-rows // length)))
    index = ((starts[:, :, None] + np.arange(length)) % rows).reshape(RESAMPLES, -1)
    ratios = ours[index].mean(axis=1) / np.maximum(other[index].mean(axis=1), 1e-300)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)


def measure_table(table: Table, kind: str, rows: int, river_rows: int, folder: Path) -> dict[str, Any]:
    spec, data = encoded(table, rows, folder)
    begin = time.perf_counter()
    outcome = Learner(spec).process(data)
    seconds = time.perf_counter() - begin
    names = ("smoothfbo", *spec.reference_names)
    all_losses = losses(outcome.predictions, data.target, spec)
    errors = dict(zip(names, all_losses.mean(axis=1).tolist(), strict=True))
    best = best_reference(errors) or ""
    case: dict[str, Any] = {
        "table": table.name, "kind": kind, "task": table.task, "rows": len(data.target), "features": spec.features,
        "seconds": seconds, "best": best, "errors": errors, "ratio": errors["smoothfbo"] / errors[best],
    }  # fmt: skip
    case["low"], case["high"] = interval(all_losses[0], all_losses[names.index(best)])
    count = len(spec.expert_names)
    outputs = outcome.predictions[1 : count + 1]
    if not spec.is_classification:  # the scores of the experts, which BOA needs for classes, are not kept
        mixed = stream_rivals.bernstein(outputs, data.target)
        boa = losses(np.concatenate([outcome.predictions[:1], mixed[None]]), data.target, spec)
        case["boa"] = float(boa[1].mean())
        case["ratio_to_boa"] = errors["smoothfbo"] / case["boa"]
        case["boa_low"], case["boa_high"] = interval(boa[0], boa[1])
        without = stream_rivals.bernstein(outputs[1:], data.target)
        case["boa_without_learned_memory"] = float(losses(without[None], data.target, spec)[0].mean())
    if river_rows:
        here = slice(0, min(river_rows, len(data.target)))
        ours = losses(outcome.predictions[:1, here], data.target[here], spec)[0].mean()
        case["river"] = stream_rivals.river_errors(data.features[here], data.target[here], spec.is_classification)
        case["river_best"] = min(case["river"], key=case["river"].__getitem__)
        case["ratio_to_river"] = float(ours) / max(case["river"][case["river_best"]], 1e-300)
        case["river_rows"] = len(data.target[here])
    return case


def generated(features: np.ndarray, target: np.ndarray, **options: Any) -> tuple[tuple[str, ...], Any]:
    """The learner's outcome on numbers alone, without lags."""
    spec = Specification(features=features.shape[1], outputs=1, is_classification=False, windows=(4, 16, 64), **options)
    outcome = Learner(spec).process(Rows(features, target, np.r_[np.nan, target[:-1]]))
    return ("smoothfbo", *spec.reference_names), outcome


def measure_jump(every: int, size: float) -> dict[str, Any]:
    """Five coefficients are drawn anew, `size` times as large as the noise."""
    random, rows = np.random.default_rng(0), max(4 * every, 8_000)
    x = random.normal(size=(rows, 5))
    weights = np.repeat(size * random.normal(size=(rows // every, 5)), every, axis=0)
    y = (x * weights).sum(axis=1) + random.normal(size=rows)
    names, outcome = generated(x, y)
    squares = (outcome.predictions - y) ** 2
    errors = dict(zip(names, np.nanmean(squares, axis=1).tolist(), strict=True))
    best = best_reference(errors) or ""
    after = np.mean([squares[0, at + 64 : at + 128].mean() for at in range(every, rows, every)])
    return {
        "jumps every": every, "size": size, "best": best, "ratio": errors["smoothfbo"] / errors[best],
        "learned_memory": errors["learned_memory"] / errors[best], "error_64_to_128_rows_after": float(after),
    }  # fmt: skip


def measure_event(event: str) -> dict[str, Any]:
    """Three features, of which the first has an excess error of 4 if it is lost; the noise has variance 0.01."""
    random, rows = np.random.default_rng(0), 6_000
    x = random.normal(size=(rows, 3)) * [1, 5, 1] + [10, 20, 0]
    y = 2 * (x[:, 0] - 10) + 0.2 * (x[:, 1] - 20) + 0.5 * x[:, 2] + 0.1 * random.normal(size=rows)
    scored = np.ones(rows, bool)
    if event == "wrong value":
        x[EVENT, 0] = -9999
    elif event == "wrong target":
        y[EVENT], scored[EVENT] = -9999, False
    elif event == "thousandth":
        x[EVENT:, 0] /= 1000
    elif event == "fahrenheit":
        x[EVENT:, 0] = 32 + 1.8 * x[EVENT:, 0]
    else:
        y[EVENT:] += 500 * y[:EVENT].std()
    _, outcome = generated(x, y)
    excess = (outcome.predictions[0] - y) ** 2 - 0.01
    spans = {"2 to 64": (2, 64), "64 to 500": (64, 500), "500 to 1200": (500, 1_200), "1200 to 3000": (1_200, 3_000)}
    return {"event": event} | {
        f"excess of rows {name} after": float(excess[EVENT + a : EVENT + b].mean()) for name, (a, b) in spans.items()
    }


def measure_alarms(noise: str, rows: int) -> dict[str, Any]:
    """Changes that are reported where there are none."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 3))
    draws = {
        "gaussian": random.normal(size=rows), "student": random.standard_t(3, rows),
        "lognormal": random.lognormal(size=rows),
    }  # fmt: skip
    y = x @ [1.0, 0.5, 0.0] + draws[noise]
    _, outcome = generated(x, y)
    squares = np.nan_to_num((outcome.predictions[0] - y) ** 2)
    detector, alarms = ChangeDetector(), []
    for number, weights in enumerate(outcome.weights):
        memory = effective_memory(weights, number)
        place = detector.update(memory, float(squares[16 * number : 16 * number + 16].mean()))
        if place is not None:
            alarms.append(16 * place + 1)
    return {"noise": noise, "rows": rows, "alarms": len(alarms), "at": alarms}


def geometric(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-12)))))


def ratios_of(cases: list[dict[str, Any]], title: str) -> list[measure.Ratio]:
    """The lines of a set of tables."""
    lines = []
    values = [case["ratio"] for case in cases]
    what = f"{title}: {len(cases)} tables"
    lines.append(
        measure.Ratio(what, "SmoothFBO", "best fixed expert", geometric(values), min(values), max(values), "≤ 0.97")
    )
    large = [case["ratio"] for case in cases if case["rows"] >= LARGE]
    if large:
        lines.append(
            measure.Ratio(
                f"{title}: worst of {len(large)} with 1,000 rows",
                "SmoothFBO",
                "best fixed expert",
                max(large),
                min(large),
                max(large),
                "≤ 1.03",
            )
        )
    for key, name, goal in (
        ("ratio_to_boa", "BOA on the same experts", "≤ 0.99"),
        ("ratio_to_river", "best of eight river models", "≤ 1.0"),
    ):
        found = [case[key] for case in cases if key in case]
        if found:
            lines.append(
                measure.Ratio(
                    f"{title}: {len(found)} tables", "SmoothFBO", name, geometric(found), min(found), max(found), goal
                )
            )
    return lines


def run(quick: bool, electricity: Path | None = None) -> measure.Result:
    cases: list[dict[str, Any]] = []
    tables = [(table, "development") for table in development(electricity)]
    tables += [(table, "held out") for table in held_out(electricity)]
    if quick:
        tables = [pair for pair in tables if pair[0].name in ("trump approval", "sunspots", "Nile", "breast cancer")]
    with tempfile.TemporaryDirectory() as folder:
        for table, kind in tables:
            rows, river_rows = (800, 0) if quick else (ROWS, RIVER_ROWS)
            cases.append(measure_table(table, kind, rows, river_rows, Path(folder)))
            print(_line(cases[-1]), flush=True)
    others: list[dict[str, Any]] = []
    for every, size in JUMPS[:1] if quick else JUMPS:
        others.append(measure_jump(every, size))
        print(others[-1], flush=True)
    for event in EVENTS[:1] if quick else EVENTS:
        others.append(measure_event(event))
        print(others[-1], flush=True)
    for noise in NOISES[:1] if quick else NOISES:
        others.append(measure_alarms(noise, 5_000 if quick else 50_000))
        print(others[-1], flush=True)
    return summarise(cases, others)


def summarise(cases: list[dict[str, Any]], others: list[dict[str, Any]]) -> measure.Result:
    """The lines of the table: held-out tables, development tables, and generated streams."""
    lines = []
    for kind in ("held out", "development"):
        lines += ratios_of([case for case in cases if case["kind"] == kind], kind)
    for case in others:
        if "jumps every" in case:
            what = f"jumps every {case['jumps every']} rows, size {case['size']:g}"
            lines.append(_single(what, case["ratio"], "≤ 1.0", "best fixed expert"))
        if "event" in case:
            excess = case["excess of rows 500 to 1200 after"]
            lines.append(_single(f"{case['event']}: excess after 500 rows", excess, "≤ 0.1"))
        if "noise" in case:
            what = f"false alarms, {case['rows']:,} rows, {case['noise']}"
            lines.append(_single(what, float(case["alarms"]), "≤ 1"))
    return measure.Result(lines, [*cases, *others])


def _single(what: str, value: float, goal: str, reference: str = "") -> measure.Ratio:
    return measure.Ratio(what, "SmoothFBO", reference, value, value, value, goal)


def charts(result: measure.Result) -> list[Any]:
    del result
    return []


def _line(case: dict[str, Any]) -> str:
    text = f"{case['table']} ({case['kind']}, {case['rows']} rows): {case['ratio']:.3f}"
    text += f" [{case['low']:.3f}, {case['high']:.3f}] of {case['best']}"
    for key, name in (("ratio_to_boa", "BOA"), ("ratio_to_river", f"river {case.get('river_best')}")):
        text += f", {case[key]:.3f} of {name}" if key in case else ""
    return text


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


def speed(rows: int) -> None:
    from smoothfbo.stream.folder import StreamFolder

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        generate(folder / "generated.csv", rows)
        with StreamFolder(folder) as sink:
            results = run_stream(StreamConfig(str(folder / "generated.csv"), "y"), sink)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"{results.rows:,} rows: {results.rows_per_second:,.0f} rows/s, {memory:.2f} GiB resident")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--electricity", type=Path, help="the CSV file of the electricity table (Harries 1999)")
    parser.add_argument("--quick", action="store_true", help="few and short tables; nothing is written")
    parser.add_argument("--generate", type=int, help="only the speed, on a generated table of so many rows")
    arguments = parser.parse_args()
    if arguments.generate:
        speed(arguments.generate)
        return
    from benchmarks.__main__ import show

    begin = time.perf_counter()
    result = run(arguments.quick, arguments.electricity)
    if not arguments.quick:
        command = "python -m benchmarks.stream --electricity electricity.csv"
        measure.write("stream", result, command=command, seconds=time.perf_counter() - begin)
    show("stream", result)


if __name__ == "__main__":
    main()
