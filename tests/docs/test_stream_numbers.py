"""Drifting tables: the page's numbers are those of the stored runs. (Those of the benchmark: test_benchmarks.py.)"""

import json
import re

from stored_results import DOCS, missing, stored

PAGE = "stream.md"


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


def test_errors_with_a_horizon():
    for name in ("nswdemand", "nswprice", "transfer"):
        run = run_of(f"{name}-48")
        error, last = (run["errors"][each] for each in ("smoothfbo", "last_value"))
        assert not missing(
            PAGE, f"| {name} | {error:.5f} | {run['ratio_to_best_reference']:.2f} | {error / last:.2f} |"
        )


def test_bands_with_a_horizon():
    coverage = [f"{100 * value:.1f}" for value in run_of("nswdemand-48")["coverage"].values()]
    assert not missing(PAGE, f"is covered in {coverage[0]}, {coverage[1]} and {coverage[2]} %")
    assert float(f"{100 * run_of('vicdemand-1')['coverage']['0.5']:.0f}") == 69


def test_the_front_page_says_what_the_page_says():
    pattern = r"is (0\.\d{3}) of that of the best fixed expert.*?(0\.\d{3}) of that of the best of eight river models"
    texts = [" ".join((DOCS / page).read_text(encoding="utf-8").split()) for page in (PAGE, "index.md")]
    one, other = (re.search(pattern, text) for text in texts)
    assert one
    assert other
    assert one.groups() == other.groups()


def test_streams_that_nothing_was_chosen_on():
    path = DOCS.parent / "benchmarks" / "results" / "stream_unseen.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        f"| {case['table']} | {case['ratio']:.3f} | {case['best'].replace('_', ' ')} | {case['ratio_to_river']:.3f} | "
        f"{case['river_best']} |"
        for case in found["cases"]
    ]
    _, classes, _, numbers = (f"{line['value']:.3f}" for line in found["ratios"])
    assert not missing(
        PAGE, *rows, f"there are {classes} of the mistakes of the best of eight river models", f"numbers {numbers} of"
    )
