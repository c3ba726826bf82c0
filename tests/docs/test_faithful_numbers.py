"""CartPole as the paper writes it, and what each remedy gives: the page's numbers are those of the stored seeds."""

import csv
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from stored_results import RESULTS, missing, row, stored

from smoothfbo.harness.statistics import bootstrap
from smoothfbo.studies.cartpole.methods import find

PAGE, EVIDENCE = "studies/cartpole.md", "studies/cartpole-evidence.md"
LARGEST = 500
PAPER = {"smooth-fbo": "500.00 / 232.19 / 5.05", "itd": "336.05 / 56.87 / 4.20", "smooth-omd": "147.75 / 31.55 / 5.00",
         "smooth-itd": "23.40 / 9.56 / 4.20"}  # fmt: skip
RUNS = ("average", "smooth-fbo", "fbo", "mle", "omd", "itd", "smooth-omd", "smooth-itd")
REMEDIES = ("twin", "clip", "bounds", "leak", "falling")


def with_interval(value):
    low, high = (min(max(value[end], 0), LARGEST) for end in ("low", "high"))
    return f"{value['mean']:.0f} [{low:.0f}, {high:.0f}]"


def three(values):
    return " / ".join(f"{values[name]:.1f}" for name in ("max", "mean", "min"))


@cache
def lanes():
    """Columns of every run, over its seeds."""
    columns = defaultdict(lambda: defaultdict(list))
    for name in ("cartpole_faithful", "cartpole_remedies"):
        with (RESULTS / f"{name}_lanes.csv").open() as file:
            for each in csv.DictReader(file):
                assert 800 <= int(each["seed"]) < 810
                for column in ("final_return", "late_return", "newest_return", "clipped"):
                    columns[each["run"]][column].append(float(each[column]))
    return columns


def group_of(name, run):
    (group,) = [group for group in stored(name)["groups"] if group["run"] == run]
    return group


def faithful_row(run):
    group = group_of("cartpole_faithful", f"faithful-{run}")
    method = "smooth-fbo" if run == "average" else run
    smoothing = f", w = {group['window']:,.0f}, θ = {group['mix']:g}" if find(method).is_smoothed else ""
    rates = " / ".join(f"{group[name]:g}" for name in ("inner_rate", "outer_rate", "target_rate", "temperature"))
    metrics = group["metrics"]
    return row(
        find(method).label + smoothing, three(group), with_interval(metrics["late_return"]),
        with_interval(metrics["mean_return"]), str(group["frozen"]), rates, PAPER.get(method, "–"),
    )  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_the_algorithm_as_written(run):
    assert not missing(PAGE, faithful_row(run))


def difference(run, other, column):
    value = bootstrap([lanes()[run][column], lanes()[other][column]], lambda x, y: x.mean(axis=-1) - y.mean(axis=-1))
    return f"{value['mean']:.0f} [{value['low']:.0f}, {value['high']:.0f}]"


def remedy_row(remedy):
    """Added to the algorithm as written, and taken away from ours: return and difference, averaged and newest."""
    if remedy == "averaged":
        added, without = lanes()["faithful-with-averaged"]["final_return"], lanes()["ours"]["newest_return"]
        value = bootstrap([without, lanes()["ours"]["final_return"]], lambda x, y: x.mean(axis=-1) - y.mean(axis=-1))
        plus = difference("faithful-with-averaged", "faithful-smooth-fbo", "final_return")
        minus = f"{value['mean']:.0f} [{value['low']:.0f}, {value['high']:.0f}]"
        return row(remedy, f"{np.mean(added):.0f}", plus, f"{np.mean(without):.0f}", minus, "–", "–")
    with_it, without = f"faithful-with-{remedy}", f"ours-no-{remedy}"
    return row(
        remedy, f"{np.mean(lanes()[with_it]['final_return']):.0f}",
        difference(with_it, "faithful-smooth-fbo", "final_return"),
        f"{np.mean(lanes()[without]['final_return']):.0f}", difference(without, "ours", "final_return"),
        f"{np.mean(lanes()[without]['newest_return']):.0f}", difference(without, "ours", "newest_return"),
    )  # fmt: skip


@pytest.mark.parametrize("remedy", [*REMEDIES, "averaged"])
def test_what_each_remedy_gives(remedy):
    assert not missing(EVIDENCE, remedy_row(remedy))


def sentences():
    ours = group_of("cartpole_remedies", "ours")
    share = [100 * of(lanes()["ours"]["clipped"]) for of in (np.mean, min, max)]
    remedies = [
        f"{three(ours)} with averaged networks and {three(ours['newest'])} with the newest",
        f"| the same on seeds 800 to 809 | {share[0]:.0f} % ({share[1]:.0f} to {share[2]:.0f} % by seed) |",
    ]  # fmt: skip
    comparisons = [
        f"({difference('faithful-average', 'faithful-smooth-fbo', 'final_return')})",
        f"by {difference('faithful-average', 'faithful-fbo', 'final_return')}",
        f"by {difference('faithful-average', 'faithful-fbo', 'late_return')}",
        f"by {difference('faithful-smooth-fbo', 'faithful-fbo', 'final_return')}",
    ]  # fmt: skip
    return remedies, comparisons


def test_sentences():
    remedies, comparisons = sentences()
    assert not missing(EVIDENCE, *remedies)
    assert not missing(PAGE, *comparisons)
    without = group_of("cartpole_remedies", "ours-no-bounds")
    assert without["frozen"] == 6
    assert group_of("cartpole_remedies", "ours-no-falling")["min"] == LARGEST


def test_how_often_the_clip_acts():
    shares = {group["method"]: group["metrics"]["clipped"]["mean"] for group in stored("cartpole_clip")["groups"]}
    assert min(shares["smooth-fbo"], shares["vep"]) > 0.99
    assert not missing(EVIDENCE, f"| 99 % or more | {100 * shares['fbo']:.0f} % | 99 % or more |")
