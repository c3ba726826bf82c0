"""Drifting tables: the page's numbers are those of the stored runs and of the stored benchmark."""

import json

import numpy as np
import pytest
from stored_results import DOCS, missing, row, stored

PAGE = "stream.md"
BENCHMARK = json.loads((DOCS.parent / "benchmarks" / "results" / "stream.json").read_text())
HELD_OUT = [table for table in BENCHMARK["tables"] if table["kind"] == "held out"]


def run_of(name):
    (found,) = [each for each in stored("stream")["tables"] if each["run"] == name]
    return found


def test_a_table_with_two_changes():
    run = run_of("changes")
    first, second = (f"{change['row']:,}" for change in run["changes"])
    errors = [f"{run['errors'][name]:.3f}" for name in ("smoothfbo", run["best_reference"])]
    assert not missing(
        PAGE,
        f"It reports changes at rows {first} and {second}.",
        f"the mean squared error is {errors[0]}, that of the best fixed expert {errors[1]}",
    )


BANDS = [("nswdemand", 1), ("nswdemand", 48), ("nswprice", 1), ("nswprice", 48), ("vicdemand", 1), ("transfer", 48)]


def band_row(target, horizon):
    coverage = run_of(f"{target}-{horizon}")["coverage"]
    return row(target, str(horizon), *(f"{100 * coverage[level]:.1f}" for level in ("0.5", "0.8", "0.95")))


@pytest.mark.parametrize(("target", "horizon"), BANDS)
def test_bands_of_electricity(target, horizon):
    assert not missing(PAGE, band_row(target, horizon))


def table_row(table):
    boa = f"{table['ratio_to_boa']:.3f}" if "ratio_to_boa" in table else "–"
    return row(
        table["table"], f"{table['rows']:,}", f"{table['ratio']:.3f} ({table['low']:.3f} to {table['high']:.3f})",
        table["best"].replace("_", " "), boa, f"{table['ratio_to_river']:.3f} ({table['river_best']})",
    )  # fmt: skip


@pytest.mark.parametrize("table", HELD_OUT, ids=lambda table: table["table"])
def test_held_out_tables(table):
    assert not missing(PAGE, table_row(table))


def test_the_head_of_the_page():
    def mean(name):
        return np.exp(np.mean([np.log(table[name]) for table in HELD_OUT if name in table]))

    worst = max(table["ratio"] for table in HELD_OUT if table["rows"] >= 1_000)
    values = [mean("ratio"), worst, mean("ratio_to_boa"), mean("ratio_to_river")]
    labels = (
        "the best of all fixed experts in hindsight, geometric mean | ≤ 0.97",
        "the same, worst table with 1,000 rows or more | ≤ 1.03",
        "BOA per row on the same experts (regression), geometric mean | ≤ 0.99",
        "the best of eight river models in hindsight, geometric mean | ≤ 1.0",
    )
    rows = [row(label, f"{value:.3f}") for label, value in zip(labels, values, strict=True)]
    assert not missing(PAGE, *rows)
    for page in (PAGE, "index.md"):
        assert not missing(page, f"is {values[0]:.3f} of that of the best fixed expert", f"{values[3]:.3f} of that of")
