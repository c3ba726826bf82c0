"""The numbers in the documents are those of the stored files: a row that is not made of them fails."""

import csv
import json
import re
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from scipy import stats
from stored_results import RESULTS, stored, text_of

from smoothfbo.harness.methods import find
from smoothfbo.harness.statistics import bootstrap, probability_of_improvement

# Stored before a run said its version and a clean commit; each leaves this list when it is run again.
UNSTATED = {"cartpole", "cartpole_appendix", "cartpole_hundred", "cartpole_window"}
LARGEST = 500


def group_of(name, method, environment="drifting", window=None):
    found = [
        group
        for group in stored(name)["groups"]
        if (group["method"], group["environment"]) == (method, environment)
        and (window is None or group["window"] == window)
    ]
    assert len(found) == 1, (name, method, environment, window, len(found))
    return found[0]


def with_interval(value, digits=0):
    """Mean and interval, cut at the largest return."""
    low, high = (min(max(value[end], 0), LARGEST) for end in ("low", "high"))
    return f"{value['mean']:.{digits}f} [{low:.0f}, {high:.0f}]"


def three(values):
    return " / ".join(f"{values[name]:.1f}" for name in ("max", "mean", "min"))


def stated(description):
    return bool(
        description.get("command")
        and re.fullmatch(r"[0-9a-f]{40}", description.get("commit") or "")
        and description.get("versions", {}).get("smoothfbo")
        and description.get("devices")
    )


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_stored_results_say_what_made_them(path):
    content = json.loads(path.read_text())
    runs = content["runs"].values() if "runs" in content else [content.get("run", {})]
    assert all(map(stated, runs)) == (path.stem not in UNSTATED)


# CartPole


@pytest.mark.parametrize("environment", ["drifting", "stationary"])
def test_ten_seeds_of_cartpole(environment):
    methods = [group["method"] for group in stored("cartpole")["groups"] if group["environment"] == environment]
    assert len(methods) == 9
    for method in methods:
        group = group_of("cartpole", method, environment)
        metrics = group["metrics"]
        row = [
            find(method).label, three(group), with_interval(metrics["final_return_iqm"]),
            with_interval(metrics["late_return"]), with_interval(metrics["mean_return"]), three(group["newest"]),
        ]  # fmt: skip
        assert f"| {' | '.join(row)} |" in text_of("studies/cartpole.md"), row


@cache
def lanes():
    """The columns of every seed, by method, environment and window."""
    columns = defaultdict(lambda: defaultdict(list))
    with (RESULTS / "cartpole_hundred_lanes.csv").open() as file:
        for row in csv.DictReader(file):
            place = columns[row["method"], row["environment"], int(float(row["window"]))]
            for name in ("final_return", "late_return", "mean_return", "newest_return", "newest_late_return"):
                place[name].append(float(row[name]))
    return columns


HUNDRED = [
    ("vep", "drifting", 1), ("smooth-fbo", "drifting", 100), ("smooth-fbo", "drifting", 10),
    ("smooth-fbo", "drifting", 1), ("fbo", "drifting", 1), ("mle", "drifting", 1), ("vep", "stationary", 1),
    ("mle", "stationary", 1), ("smooth-fbo", "stationary", 100), ("fbo", "stationary", 1),
]  # fmt: skip


@pytest.mark.parametrize(("method", "environment", "window"), HUNDRED)
def test_hundred_seeds_of_cartpole(method, environment, window):
    group = group_of("cartpole_hundred", method, environment, window)
    metrics, returns = group["metrics"], np.array(lanes()[method, environment, window]["final_return"])
    assert len(returns) == group["seeds"]
    np.testing.assert_allclose(returns.mean(), group["mean"], rtol=1e-6)
    row = [
        find(method).with_window(window), with_interval(metrics["final_return"], 1), f"{group['min']:.1f}",
        f"{(returns < 400).sum()}, {(returns < 100).sum()}", with_interval(metrics["mean_return"]),
        with_interval(metrics["newest_return"]), with_interval(metrics["newest_late_return"]),
    ]  # fmt: skip
    assert f"| {' | '.join(row)} |" in text_of("studies/cartpole.md"), row


@pytest.mark.parametrize("environment", ["drifting", "stationary"])
def test_the_corrected_smoothfbo(environment):
    """Every cell of its two tables, and the differences in the text."""
    page = text_of("studies/cartpole.md")
    for method, label in (("smooth-corrected-fbo", "SmoothFBO, corrected"), ("vep", "VEP")):
        group = group_of("cartpole_corrected", method, environment)
        metrics = group["metrics"]
        window = " (w = 100, θ = 0.4)" if (method, environment) == ("smooth-corrected-fbo", "drifting") else ""
        row = [
            label + window, with_interval(metrics["final_return"], 1), f"{np.floor(10 * group['min']) / 10:.1f}",
            *(with_interval(metrics[name]) for name in ("newest_return", "late_return", "mean_return")),
        ]  # fmt: skip
        assert f"| {' | '.join(row)} |" in page, row
    differences = {(each["environment"], each["measure"]): each for each in stored("cartpole_corrected")["differences"]}
    if environment == "drifting":
        assert f"by {with_interval(differences['drifting', 'final_return'])}" in page
    else:
        assert differences["stationary", "final_return"]["low"] < 0 < differences["stationary", "final_return"]["high"]


def test_smoothfbo_against_others():
    entries = {
        (entry["other"], entry["other_window"]): entry
        for name in ("cartpole", "cartpole_hundred")
        for entry in stored(name)["improvement"]
        if (entry["environment"], entry["window"]) == ("drifting", 100)
    }
    others = [entries[name, 1] for name in ("fbo", "vep", "mle", "omd", "itd")]
    for label, key, form in (
        ("averaged networks", "probability", "{:.2f} [{:.2f}, {:.2f}]"),
        ("difference of means", "difference", "{:.0f} [{:.0f}, {:.0f}]"),
        ("newest networks", "newest", "{:.2f} [{:.2f}, {:.2f}]"),
    ):
        cells = [form.format(*(other[key][end] for end in ("mean", "low", "high"))) for other in others]
        row = f"| {label} | {' | '.join(cells)} |".replace("-", "−")
        assert row in text_of("studies/cartpole.md"), row


WINDOW_ROWS = {
    "difference of the mean last returns": "final_return",
    "of the means over the last tenth of training": "late_return",
    "of the means over all of training": "mean_return",
    "of the last returns, newest networks alone": "newest_return",
    "of the last tenth, newest networks alone": "newest_late_return",
}


def test_what_the_window_alone_does():
    def cell(column, window, statistic, form):
        samples = [lanes()["smooth-fbo", "drifting", each][column] for each in (window, 1)]
        value = bootstrap(samples, statistic)
        return form.format(*(value[end] for end in ("mean", "low", "high"))).replace("-", "−")

    def difference(x, y):
        return x.mean(axis=-1) - y.mean(axis=-1)

    rows = [
        f"| {label} | {' | '.join(cell(column, w, difference, '{:.0f} [{:.0f}, {:.0f}]') for w in (10, 100))} |"
        for label, column in WINDOW_ROWS.items()
    ]
    for label, column in (
        ("probability of ending above", "final_return"),
        ("the same, newest networks alone", "newest_return"),
    ):
        cells = [cell(column, w, probability_of_improvement, "{:.2f} [{:.2f}, {:.2f}]") for w in (10, 100)]
        rows.append(f"| {label} | {' | '.join(cells)} |")
    for row in rows:
        assert row in text_of("studies/cartpole.md"), row


def pooled(groups, metric):
    """Mean and 95 % Student interval of several groups of seeds together, from theirs."""
    parts = []
    for group in groups:
        value = group["metrics"][metric]
        half, number = value["high"] - value["mean"], value["seeds"]
        parts.append((number, value["mean"], half * np.sqrt(number) / stats.t.ppf(0.975, number - 1)))
    number = sum(n for n, *_ in parts)
    mean = sum(n * m for n, m, _ in parts) / number
    spread = np.sqrt(sum((n - 1) * s**2 + n * (m - mean) ** 2 for n, m, s in parts) / (number - 1))
    half = stats.t.ppf(0.975, number - 1) * spread / np.sqrt(number)
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": number}


def all_groups(method):
    """Of every file that has the method with the shipped settings, drifting."""
    if method != "smooth-fbo":
        files = ("cartpole", "cartpole_hundred", *(("cartpole_corrected",) if method == "vep" else ()))
        return [group_of(name, method, window=1) for name in files]
    files = ("cartpole", "cartpole_window", "cartpole_hundred")
    ours = [group for group in stored("cartpole_remedies")["groups"] if group["run"] == "ours"]
    return [group_of(name, method, window=100) for name in files] + ours


@pytest.mark.parametrize("method", ["vep", "smooth-fbo", "fbo", "mle"])
def test_all_seeds_together(method):
    groups = all_groups(method)
    averaged, newest = (pooled(groups, name) for name in ("final_return", "newest_return"))
    label = find(method).label + (" (w = 100, θ = 0.4)" if method == "smooth-fbo" else "")
    row = [
        label, str(averaged["seeds"]), with_interval(averaged, 1), f"{min(group['min'] for group in groups):.1f}",
        with_interval(newest), f"{min(group['newest']['min'] for group in groups):.1f}",
    ]  # fmt: skip
    assert f"| {' | '.join(row)} |" in text_of("studies/cartpole.md"), row


def test_the_front_page():
    """Its row about CartPole: all stored seeds, and the algorithm as written."""
    fbo, mle = (f"{pooled(all_groups(name), 'final_return')['mean']:.0f}" for name in ("fbo", "mle"))
    vep = with_interval(pooled(all_groups("vep"), "final_return"))
    (written,) = [group for group in stored("cartpole_faithful")["groups"] if group["run"] == "faithful-average"]
    three_of = " / ".join(f"{written[name]:.0f}" for name in ("max", "mean", "min"))
    averaged = pooled(all_groups("smooth-fbo"), "final_return")
    page = text_of("index.md")
    assert f"mean last return is {with_interval(averaged)} on {averaged['seeds']} seeds" in page
    assert f"above FBO ({fbo}) and MLE ({mle}), and not distinguishable from VEP ({vep})" in page
    assert f"{three_of} over ten seeds" in page


# The arena

ARENA = ("sources", "regression", "decay", "instruments", "support", "families", "corruption", "cosine")


def gap_cell(value):
    return f"{value['mean']:.3g} [{value['low']:.3g}, {value['high']:.3g}]"


def arena_rows(method):
    return {row["problem"]: row for row in stored("arena_full")["board"] if row["method"] == method}


@pytest.mark.parametrize("method", ["recommended", "fbo", "smooth-fbo", "mixed-fbo", "replayed-fbo", "sobow", "exact"])
def test_the_arenas_tables(method):
    """Gaps, costs and ranges of rates; bold print is left out."""
    rows, page = arena_rows(method), text_of("arena.md")
    label = f"*{find(method).label}*" if find(method).is_reference else find(method).label
    ranks = {row["method"]: f"{row['mean_rank']:.1f}" for row in stored("arena_full")["standings"]}

    def gap(name):
        if name not in rows:
            return "–"
        return gap_cell(rows[name]["gap"]) if not rows[name]["diverged"] else f"diverged ({rows[name]['diverged']})"

    first, second = (" | ".join(map(gap, names)) for names in (ARENA[:4], ARENA[4:]))
    assert f"| {label} | {ranks.get(method, '–')} | {first} |" in page
    assert f"| {label} | {second} |" in page
    if method in ranks:
        cells = [
            f"{row['cost_to_fbo']:.2g}; {'≥ ' if row['range']['is_open'] else ''}{10 ** row['range']['decades']:.2g}"
            for row in (rows.get(name) for name in ARENA) if row is not None
        ]  # fmt: skip
        assert " | ".join(cells) in page


def test_what_the_arena_says_of_the_recommended_method():
    rows, page = arena_rows("recommended"), text_of("arena.md")

    def written(value):
        return f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"

    for name in ("instruments", "support"):
        assert rows[name]["to_best"]["mean"] == 1
        assert rows[name]["equal_time"]["ratio"]["mean"] < 1
        assert written(rows[name]["to_fbo"]) in page
    for name in ("sources", "families", "corruption", "cosine"):
        cells = written(rows[name]["to_best"]), written(rows[name]["to_fbo"]), f"{rows[name]['cost_to_fbo']:.2g}"
        assert f"| {name} | {' | '.join(cells)} |" in page
    for row in stored("arena_full")["correlations"]:
        assert f"{row['spearman_gap']['mean']:.2f} ({row['problem']})".replace("-", "−") in page


def test_the_arenas_map():
    cells = {
        (e["noise"], e["period"], e["method"]): e["ratio"] for e in stored("arena_full")["map"] if e["rate"] is None
    }
    for noise, period in {key[:2] for key in cells}:
        both = (cells[noise, period, method] for method in ("smooth-fbo", "recommended"))
        texts = (f"{r['mean']:.2f}{'' if r['low'] <= 1 <= r['high'] else '*'}" for r in both)
        assert f"| {noise:g} | {period:g} | {' | '.join(texts)} |" in text_of("arena.md")
    pays = [ratio["high"] < 1 for (_, _, method), ratio in cells.items() if method == "smooth-fbo"]
    assert (sum(pays), len(pays)) == (1, 16)
