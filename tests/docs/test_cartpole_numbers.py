"""CartPole with the shipped settings: the page's numbers are those of the stored seeds."""

import csv
import json
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from scipy import stats
from stored_results import DOCS, RESULTS, missing, row, stored

from smoothfbo.harness.statistics import bootstrap, probability_of_improvement
from smoothfbo.studies.cartpole.methods import find

PAGE, EVIDENCE = "studies/cartpole.md", "studies/cartpole-evidence.md"
LARGEST = 500
COLUMNS = ("final_return", "late_return", "mean_return", "newest_return", "newest_late_return")
FILES = ("cartpole", "cartpole_further", "cartpole_remedies", "cartpole_corrected")
OURS = "smooth-fbo", 100


def with_interval(value, digits=0):
    """Mean and interval, cut at the largest return."""
    low, high = (min(max(value[end], 0), LARGEST) for end in ("low", "high"))
    return f"{value['mean']:.{digits}f} [{low:.0f}, {high:.0f}]"


def three(values):
    return " / ".join(f"{values[name]:.1f}" for name in ("max", "mean", "min"))


@cache
def lanes(*files):
    """The columns of every seed with the shipped settings, drifting, by method and window."""
    columns = defaultdict(lambda: defaultdict(list))
    for name in files:
        with (RESULTS / f"{name}_lanes.csv").open() as file:
            for each in csv.DictReader(file):
                if each["environment"] != "drifting" or (name == "cartpole_remedies" and each["run"] != "ours"):
                    continue
                place = columns[each["method"], int(float(each["window"]))]
                for column in COLUMNS:
                    place[column].append(float(each[column]))
    return columns


def student(values):
    """Mean with its 95 % interval."""
    mean, half = np.mean(values), stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def difference(x, y):
    return x.mean(axis=-1) - y.mean(axis=-1)


def compared(ours, others, statistic, digits):
    value = bootstrap([ours, others], statistic)
    mean, low, high = (f"{value[end]:.{digits}f}" for end in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


# All stored seeds


def all_seeds_row(method, window):
    seeds = lanes(*FILES)[method, window]
    label = find(method).label + (" (w = 100, θ = 0.4)" if (method, window) == OURS else "")
    averaged, newest = (seeds[name] for name in ("final_return", "newest_return"))
    return row(
        label, str(len(averaged)), with_interval(student(averaged), 1), f"{min(averaged):.1f}",
        with_interval(student(newest)), f"{min(newest):.1f}",
    )  # fmt: skip


@pytest.mark.parametrize(("method", "window"), [("vep", 1), OURS, ("fbo", 1), ("mle", 1)])
def test_all_seeds_together(method, window):
    assert not missing(PAGE, all_seeds_row(method, window))


def against_rows():
    ours = lanes(*FILES)[OURS]
    others = [lanes(*FILES)[name, 1] for name in ("fbo", "vep", "mle", "omd", "itd")]
    cells = {
        "averaged networks": [
            compared(ours["final_return"], each["final_return"], probability_of_improvement, 2) for each in others
        ],
        "difference of means": [compared(ours["final_return"], each["final_return"], difference, 0) for each in others],
        "newest networks": [
            compared(ours["newest_return"], each["newest_return"], probability_of_improvement, 2) for each in others
        ],
    }
    return [row(label, *values) for label, values in cells.items()]


def test_smoothfbo_against_others():
    assert not missing(EVIDENCE, *against_rows())


def sentences():
    """At the head of the page and on the front page."""
    ours, vep, fbo, mle = (lanes(*FILES)[each] for each in (OURS, ("vep", 1), ("fbo", 1), ("mle", 1)))
    head = [
        f"With our remedies it is {np.mean(ours['final_return']):.0f}, above FBO",
        f"Without it the mean is {np.mean(ours['newest_return']):.0f} and the minimum {min(ours['newest_return']):.0f}",
    ]
    remedy = f"On all stored seeds it gives {np.mean(ours['final_return']) - np.mean(ours['newest_return']):.0f}"
    means = [f"{np.mean(each['final_return']):.0f}" for each in (fbo, mle)]
    front = [
        f"mean last return is {with_interval(student(ours['final_return']))} on {len(ours['final_return'])} seeds",
        f"above FBO ({means[0]}) and MLE ({means[1]}), and not distinguishable from VEP "
        f"({with_interval(student(vep['final_return']))})",
    ]
    return head, remedy, front


def test_the_heads_of_both_pages():
    head, remedy, front = sentences()
    (written,) = [group for group in stored("cartpole_faithful")["groups"] if group["run"] == "faithful-average"]
    three_of = " / ".join(f"{written[name]:.0f}" for name in ("max", "mean", "min"))
    assert not missing(PAGE, *head)
    assert not missing(EVIDENCE, remedy)
    assert not missing("index.md", *front, f"{three_of} over ten seeds")


# Ten seeds, all methods


def group_of(name, method, environment="drifting", window=None):
    (found,) = [
        group
        for group in stored(name)["groups"]
        if (group["method"], group["environment"]) == (method, environment)
        and (window is None or group["window"] == window)
    ]
    return found


def ten_row(method, environment):
    group = group_of("cartpole", method, environment)
    metrics = group["metrics"]
    return row(
        find(method).label, three(group), with_interval(metrics["final_return_iqm"]),
        with_interval(metrics["late_return"]), with_interval(metrics["mean_return"]), three(group["newest"]),
    )  # fmt: skip


METHODS = ("mle", "omd", "itd", "fbo", "vep", "smooth-mle", "smooth-omd", "smooth-itd", "smooth-fbo")


@pytest.mark.parametrize("environment", ["drifting", "stationary"])
def test_ten_seeds(environment):
    assert not missing(EVIDENCE, *(ten_row(method, environment) for method in METHODS))


def test_lanes_that_froze():
    frozen = {(group["method"], group["environment"]): group["frozen"] for group in stored("cartpole")["groups"]}
    itd, smoothed = ([frozen[name, where] for where in ("stationary", "drifting")] for name in ("itd", "smooth-itd"))
    assert (itd, smoothed, sum(frozen.values())) == ([3, 2], [3, 0], 8)
    assert not missing(EVIDENCE, "ITD froze in 3 (stationary) and 2 (drifting) of 10 lanes, smoothed ITD in 3 and none")
    assert not any(group["frozen"] for group in stored("cartpole_further")["groups"])


def independent_row(method):
    """Fresh transitions for the hypergradient, beside the same ones, on the same seeds."""
    both = [lanes(name)[method, 100 if method == "smooth-fbo" else 1] for name in ("cartpole", "cartpole_independent")]
    cells = []
    for column in ("final_return", "newest_return"):
        same, fresh = (each[column] for each in both)
        cells += [f"{np.mean(same):.0f}", f"{np.mean(fresh):.0f}", compared(fresh, same, difference, 0)]
    return row(find(method).label, *cells)


@pytest.mark.parametrize("method", ["fbo", "smooth-fbo"])
def test_final_transitions_of_their_own(method):
    assert not missing(EVIDENCE, independent_row(method))


# Forty further seeds


FURTHER = (("vep", 1), ("smooth-fbo", 1), OURS, ("smooth-fbo", 10), ("fbo", 1), ("mle", 1))


def further_row(method, window):
    group = group_of("cartpole_further", method, window=window)
    metrics, returns = group["metrics"], np.array(lanes("cartpole_further")[method, window]["final_return"])
    assert len(returns) == group["seeds"] == 40
    np.testing.assert_allclose(returns.mean(), group["mean"], rtol=1e-4)
    return row(
        find(method).with_window(window), with_interval(metrics["final_return"], 1), f"{group['min']:.1f}",
        f"{(returns < 400).sum()}, {(returns < 100).sum()}", with_interval(metrics["mean_return"]),
        with_interval(metrics["newest_return"]), with_interval(metrics["newest_late_return"]),
    )  # fmt: skip


@pytest.mark.parametrize(("method", "window"), FURTHER)
def test_forty_further_seeds(method, window):
    assert not missing(EVIDENCE, further_row(method, window))


WINDOW_ROWS = {
    "difference of the mean last returns": "final_return",
    "of the means over the last tenth of training": "late_return",
    "of the means over all of training": "mean_return",
    "of the last returns, newest networks alone": "newest_return",
    "of the last tenth, newest networks alone": "newest_late_return",
}


def window_rows():
    def cells(column, statistic, digits):
        samples = [lanes("cartpole_further")["smooth-fbo", window][column] for window in (1, 10, 100)]
        return [compared(each, samples[0], statistic, digits) for each in samples[1:]]

    return [
        *(row(label, *cells(column, difference, 0)) for label, column in WINDOW_ROWS.items()),
        row("probability of ending above", *cells("final_return", probability_of_improvement, 2)),
        row("the same, newest networks alone", *cells("newest_return", probability_of_improvement, 2)),
    ]


def test_what_the_window_alone_does():
    assert not missing(EVIDENCE, *window_rows())


def clip_cells():
    shares = [
        100 * group_of("cartpole_further", *each)["metrics"]["clipped"]["mean"]
        for each in (("smooth-fbo", "drifting", 100), ("fbo",), ("vep",), ("mle",))
    ]
    return "| {:.0f} % | {:.0f} % | {:.0f} % | {:.1f} % |".format(*shares)


def test_how_often_the_clip_acts():
    assert not missing(EVIDENCE, clip_cells())


def test_sentences():
    ten, forty = (group_of(name, *OURS[:1], window=100) for name in ("cartpole", "cartpole_further"))
    returns = np.array(lanes("cartpole_further")[OURS]["final_return"])
    (mle,) = [
        entry["probability"]
        for entry in stored("cartpole")["improvement"]
        if (entry["environment"], entry["other"]) == ("stationary", "mle")
    ]
    late = {
        (group["method"], group["environment"]): [
            group["metrics"][name]["mean"] for name in ("late_return", "newest_late_return")
        ]
        for group in stored("cartpole")["groups"]
    }
    below = [each for each, (averaged, newest) in late.items() if averaged < newest]
    assert below == [("fbo", "stationary")]
    assert (returns < 400).sum() == 5
    newest = [(each["newest"]["mean"], each["newest"]["min"]) for each in (ten, forty)]
    assert not missing(
        PAGE,
        f"the mean is {newest[0][0]:.0f} on the ten seeds and {newest[1][0]:.0f} on the forty, the minima "
        f"{newest[0][1]:.0f} and {newest[1][1]:.0f}",
        "({:.0f} against {:.0f})".format(*late["fbo", "stationary"]),
    )
    assert not missing(
        EVIDENCE,
        f"Five of SmoothFBO's 40 seeds end below 400, the lowest at {returns.min():.0f}",
        f"({mle['mean']:.2f} [{mle['low']:.2f}, {mle['high']:.2f}], ten seeds)",
    )


SIZES = {
    "omd": (1e6, 2e7), "itd": (1e4, 3e4), "fbo": (200, 800), "smooth-fbo": (200, 810), "vep": (75, 105.5),
    "mle": (0.1, 0.2), "smooth-mle": (0.1, 0.2),
}  # fmt: skip


@pytest.mark.parametrize("method", SIZES)
def test_sizes_of_gradients(method):
    """Root mean squares over training, geometric means over seeds: what the page says of their sizes."""
    low, high = SIZES[method]
    for environment in ("stationary", "drifting"):
        squares = group_of("cartpole", method, environment)["metrics"]["proxy_log10"]["mean"]
        assert low <= 10 ** ((squares - 6) / 2) <= high


# The appendix' study


def appendix_rows():
    cases = [("fbo", 1), *(("smooth-fbo", window) for window in (10, 100, 1_000)), ("mle", 1), ("omd", 1)]
    groups = [group_of("cartpole_appendix", method, window=window) for method, window in cases]
    better = {entry["window"]: entry for entry in stored("cartpole_appendix")["improvement"] if entry["other"] == "fbo"}

    def above(name):
        values = [better[window][name] for window in (10, 100, 1_000)]
        return [f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]" for value in values]

    proxies = [group["metrics"]["proxy_log10"]["mean"] for group in groups]
    shares = [10 ** (proxy - proxies[0]) for proxy in proxies[1:4]]
    return [
        row("averaged networks", *(with_interval(group["metrics"]["final_return"]) for group in groups)),
        "| ends above FBO | | " + " | ".join(above("probability")) + " | | |",
        row("newest networks", *(f"{group['newest']['mean']:.0f}" for group in groups)),
        "| ends above FBO | | " + " | ".join(above("newest")) + " | | |",
        f"leave {shares[0]:.2f}, {shares[1]:.3f} and {shares[2]:.3f} of FBO's proxy",
    ]


def test_the_appendix():
    assert not missing(EVIDENCE, *appendix_rows())


# The corrected method


@pytest.mark.parametrize("environment", ["drifting", "stationary"])
def test_the_corrected_smoothfbo(environment):
    """Every cell of its two tables, and the differences in the text."""
    for method, label in (("smooth-corrected-fbo", "SmoothFBO, corrected"), ("vep", "VEP")):
        group = group_of("cartpole_corrected", method, environment)
        metrics = group["metrics"]
        window = " (w = 100, θ = 0.4)" if (method, environment) == ("smooth-corrected-fbo", "drifting") else ""
        cells = [
            label + window, with_interval(metrics["final_return"], 1), f"{np.floor(10 * group['min']) / 10:.1f}",
            *(with_interval(metrics[name]) for name in ("newest_return", "late_return", "mean_return")),
        ]  # fmt: skip
        assert not missing(PAGE, row(*cells))
    differences = {(each["environment"], each["measure"]): each for each in stored("cartpole_corrected")["differences"]}
    if environment == "drifting":
        ours, vep = lanes("cartpole_corrected")["smooth-corrected-fbo", 100], lanes(*FILES)["vep", 1]
        more = compared(ours["final_return"], vep["final_return"], difference, 0)
        assert not missing(
            PAGE,
            f"by {with_interval(differences['drifting', 'final_return'])}",
            f"above all {len(vep['final_return'])} stored seeds of VEP by {more}",
        )
        others = lanes("cartpole", "cartpole_further")["vep", 1]["final_return"]
        assert not missing(PAGE, f"On {len(others)} other seeds VEP has {with_interval(student(others))}")
    else:
        assert differences["stationary", "final_return"]["low"] < 0 < differences["stationary", "final_return"]["high"]


# One command for all of it


def test_seconds_of_the_whole_study():
    content = json.loads((DOCS.parent / "benchmarks" / "results" / "paper.json").read_text())
    (case,) = content["cases"]
    assert (case["steps"], case["devices"][-1]) == (180_000_000, "NVIDIA H200")
    seconds = round(case["seconds_to_page"])
    speed = f"{round(case['steps_per_second'], -3):,} steps a second"
    assert not missing("how-to/scaling.md", f"{seconds} s from start to page", speed)
    assert not missing(EVIDENCE, f"{seconds} s from start to page")
