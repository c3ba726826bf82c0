"""What the stored predictions say beyond one error: bands that hold, residuals, probabilities, hours and days."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from smoothfbo.harness.charts import Chart, Series
from smoothfbo.harness.methods import SMOOTH_FBO, find
from smoothfbo.harness.page import Part, Table
from smoothfbo.stream.learner.specification import LEVELS

compute: Any = pyarrow.compute  # its functions are made when it is imported

COVERAGE_POINTS = 60  # parts of the run over which coverage is averaged
TAIL = 100_000  # the last rows, from which the residuals are described
BINS = 10  # of probabilities
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
OURS = find(SMOOTH_FBO).colour
COLOURS = ("#56b4e9", OURS, "#0072b2")  # of the bands
NAMES = [f"{100 * level:.0f}" for level in LEVELS]


@dataclass
class Diagnostics:
    """Sums over all rows with a target and a prediction; `tail` are residuals of the last of them.

    - `covered`: parts of the run × levels, rows in the band; `banded`: rows with a band; `row`: the last row of a part.
    - `hours`, `days`: (sum of losses, rows) by hour of the day and day of the week; None without times.
    - `bins`: (sum of probabilities, right predictions, rows) by the probability of the predicted class.
    """

    row: np.ndarray
    covered: np.ndarray
    banded: np.ndarray
    bins: np.ndarray
    hours: np.ndarray | None = None
    days: np.ndarray | None = None
    spacing: float | None = None
    tail: list[np.ndarray] = field(default_factory=list)


def read_diagnostics(path: Path, is_classification: bool) -> Diagnostics:
    """predictions.parquet in one pass, portion by portion."""
    with pq.ParquetFile(path) as file:
        total = file.metadata.num_rows
        length = max(-(-total // COVERAGE_POINTS), 1)
        count = -(-total // length)
        found = Diagnostics(np.zeros(count), np.zeros((count, len(LEVELS))), np.zeros(count), np.zeros((3, BINS)))
        kind = file.schema_arrow.field("time").type if "time" in file.schema_arrow.names else None
        if kind is not None and pa.types.is_timestamp(kind):
            found.hours, found.days = np.zeros((2, 24)), np.zeros((2, 7))
        bands = [f"{side}_{name}" for name in NAMES for side in ("low", "high")]
        wanted = ["row", "time", "target", "prediction", "probability", *bands]
        columns = [name for name in wanted if name in file.schema_arrow.names]
        done = 0
        for batch in file.iter_batches(65_536, columns=columns):
            place = np.minimum((done + np.arange(batch.num_rows)) // length, count - 1)
            found.row[place] = batch["row"].to_numpy()
            is_right, loss, compared = _losses(batch, is_classification)
            # Runs of older versions have neither probabilities nor bands.
            if "probability" in columns:
                _add_probabilities(found, batch, is_right, compared)
            if bands[0] in columns:
                _add_bands(found, batch, place)
            if not is_classification:
                found.tail = _tail([*found.tail, (_numbers(batch["target"]) - _numbers(batch["prediction"]))[compared]])
            if found.hours is not None and found.days is not None:
                _add_times(found, batch["time"], loss, compared)
            done += batch.num_rows
    return found


def _losses(batch: Any, is_classification: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    compared = compute.and_(compute.is_valid(batch["target"]), compute.is_valid(batch["prediction"])).to_numpy(False)
    if is_classification:
        is_right = compute.fill_null(compute.equal(batch["target"], batch["prediction"]), False).to_numpy(False)
        return is_right, 1.0 - is_right, compared
    residual = _numbers(batch["target"]) - _numbers(batch["prediction"])
    return compared, np.where(compared, residual, 0) ** 2, compared


def _add_bands(found: Diagnostics, batch: Any, place: np.ndarray) -> None:
    target = _numbers(batch["target"])
    for index, name in enumerate(NAMES):
        low, high = (_numbers(batch[f"{side}_{name}"]) for side in ("low", "high"))
        inside = (low <= target) & (target <= high)
        found.covered[:, index] += np.bincount(place, inside, minlength=len(found.row))
    known = ~np.isnan(target) & ~np.isnan(_numbers(batch[f"low_{NAMES[0]}"]))
    found.banded += np.bincount(place, known, minlength=len(found.row))


def _add_probabilities(found: Diagnostics, batch: Any, is_right: np.ndarray, compared: np.ndarray) -> None:
    share = np.where(compared, _numbers(batch["probability"]), 0)
    place = np.minimum((share * BINS).astype(int), BINS - 1)
    for index, values in enumerate((share, is_right, compared)):
        found.bins[index] += np.bincount(place, values * compared, minlength=BINS)


def _add_times(found: Diagnostics, time: Any, loss: np.ndarray, compared: np.ndarray) -> None:
    for sums, unit in ((found.hours, compute.hour(time)), (found.days, compute.day_of_week(time))):
        if sums is None:
            continue
        place = compute.fill_null(unit, 0).to_numpy(False)
        for index, values in enumerate((loss * compared, compared)):
            sums[index] += np.bincount(place, values, minlength=sums.shape[1])
    stamps = time.cast(pa.timestamp("us", time.type.tz), safe=False).cast(pa.int64()).to_numpy(False)
    if found.spacing is None and len(stamps) > 1:
        found.spacing = float(np.median(np.diff(stamps))) / 3.6e9


def _tail(parts: list[np.ndarray]) -> list[np.ndarray]:
    while len(parts) > 1 and sum(map(len, parts[1:])) >= TAIL:
        parts = parts[1:]
    return parts


def _numbers(values: Any) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False).astype(float)


def coverage_chart(found: Diagnostics) -> Chart | None:
    """Of each part of the run, the share of the targets in each band."""
    if not found.banded.any():
        return None
    part = np.where(found.banded[:, None] > 0, found.covered / np.maximum(found.banded, 1)[:, None], np.nan)
    lines = [
        Series(f"{name} % band", found.row, 100 * part[:, index], colour=COLOURS[index])
        for index, name in enumerate(NAMES)
    ]
    lines += [
        Series(f"{name} %", found.row, np.full(len(found.row), float(name)), colour="#999999", dashed=True)
        for name in NAMES
    ]
    return Chart(
        "coverage", "How often the bands held", f"The part of the targets that lay in each band, in {len(found.row)} "
        "parts of the run. Dashed: what was promised.", "row", "% of the targets", lines,
    )  # fmt: skip


def residual_parts(found: Diagnostics, target: str) -> Iterator[Part]:
    """The residuals of the last rows: their distribution, and whether one tells anything about the next."""
    values = np.concatenate(found.tail) if found.tail else np.zeros(0)
    if len(values) < 20:
        return
    low, high = np.quantile(values, [0.001, 0.999])
    if high > low and values.std() > 0:  # squares of tiny numbers are 0
        counts, edges = np.histogram(values[(values >= low) & (values <= high)], bins=40)
        centres, width = (edges[:-1] + edges[1:]) / 2, edges[1] - edges[0]
        normal = np.exp(-(((centres - values.mean()) / values.std()) ** 2) / 2) / (values.std() * np.sqrt(2 * np.pi))
        yield Chart(
            "residuals", "Residuals", f"Target minus prediction, the last {len(values):,} rows; what is beyond the "
            "outermost thousandth is left out. Dashed: a normal distribution with the same mean and spread.",
            f"residual of {target}", "density",
            [Series("residuals", centres, counts / (len(values) * width), colour=OURS),
             Series("normal", centres, normal, colour="#999999", dashed=True)],
        )  # fmt: skip
    spread = values.std()
    lag = float(np.corrcoef(values[:-1], values[1:])[0, 1]) if spread > 0 else 0.0
    rows = [
        ("mean (0: neither too high nor too low)", values.mean()),
        ("standard deviation", spread),
        ("median of the size", np.median(np.abs(values))),
        ("largest size", np.abs(values).max()),
        ("correlation with the row before (0: nothing is left to use)", lag),
    ]
    yield Table("The residuals in numbers", f"The last {len(values):,} rows.", ("what", "value"), rows)


def reliability_parts(found: Diagnostics) -> Iterator[Part]:
    """Do classes that are predicted with 70 % occur in 70 % of the rows?"""
    predicted, right, count = found.bins
    used = count > 0
    if not used.any():
        return
    yield Chart(
        "reliability", "Probabilities and what came true", "Rows by the probability of the class that was predicted; "
        "the table says how many. On the dashed line the probabilities are right.",
        "probability of the predicted class (%)", "right (%)",
        [Series("SmoothFBO", 100 * predicted[used] / count[used], 100 * right[used] / count[used], colour=OURS,
                markers=True),
         Series("right probabilities", [0, 100], [0, 100], colour="#999999", dashed=True)],
    )  # fmt: skip
    rows = [
        (f"{100 * i // BINS}–{100 * (i + 1) // BINS} %", 100 * predicted[i] / count[i], 100 * right[i] / count[i],
         (int(count[i]), f"{int(count[i]):,}"))
        for i in np.flatnonzero(used)
    ]  # fmt: skip
    columns = ("probability", "mean probability (%)", "right (%)", "rows")
    yield Table("The same in numbers", "All rows with a target.", columns, rows)


def time_parts(found: Diagnostics, error: str) -> Iterator[Part]:
    """The error by hour of the day and day of the week."""
    if found.hours is not None and np.sum(found.hours[1] > 0) > 1:
        used = np.flatnonzero(found.hours[1])
        yield Chart(
            "error_by_hour", "Error by hour of the day", f"The {error} of all rows.", "hour", error,
            [Series("SmoothFBO", used, found.hours[0][used] / found.hours[1][used], colour=OURS, markers=True)],
        )  # fmt: skip
    if found.days is not None and np.sum(found.days[1] > 0) > 1:
        used = np.flatnonzero(found.days[1])
        rows = [
            (DAYS[day], found.days[0][day] / found.days[1][day], (found.days[1][day], f"{found.days[1][day]:,.0f}"))
            for day in used
        ]
        yield Table("Error by day of the week", f"The {error} of all rows.", ("day", error, "rows"), rows)
