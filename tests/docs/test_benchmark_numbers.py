"""Speed: the numbers on the pages are those of benchmarks/results."""

import json
import re
from functools import cache

import pytest
from stored_results import DOCS, missing, row

RESULTS = DOCS.parent / "benchmarks" / "results"
PAGE = "benchmarks.md"


@cache
def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def ratio(name, what, **where):
    """The one line that is about this."""
    (found,) = [
        line
        for line in stored(name)["ratios"]
        if line["what"] == what and all(line[key].startswith(value) for key, value in where.items())
    ]
    return found


def with_range(line, digits):
    return f"{line['value']:.{digits}f} ({line['low']:.{digits}f} to {line['high']:.{digits}f})"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_commits_are_clean_where_they_are_stated(path):
    content = json.loads(path.read_text())
    commits = [each["commit"] for each in (content, *content.get("cases", ())) if each.get("commit")]
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in commits)


def test_seconds():
    names = ("study", "hypergradients", "functional", "smoothing", "scaling")
    seconds = [stored(name)["seconds"] for name in names]
    parts = [f"{name} {value:.1f}" for name, value in zip(names, seconds, strict=True)]
    assert not missing(PAGE, f"took {sum(seconds):.0f} s in all", f"{', '.join(parts[:-1])} and {parts[-1]}")


@pytest.mark.parametrize("peer", ["PyTorch, eager", "PyTorch, torch.compile"])
def test_the_study_against_pytorch(peer):
    steps = {
        (case["implementation"], case["how"]): f"{case['steps_per_second']:,.0f}" for case in stored("study")["cases"]
    }
    one = with_range(ratio("study", "steps per second", reference=peer), 1)
    ten = with_range(ratio("study", "steps per second, all lanes", reference=peer), 1)
    both = f"{steps[peer, '10 lanes, 2 processes']} (two processes; {steps[peer, '10 lanes, 1 process']} in one)"
    ours = row("SmoothFBO", steps["SmoothFBO", "fbo, 1 lane"], steps["SmoothFBO", "fbo, 10 lanes"], "", "")
    assert not missing(PAGE, row(peer, steps[peer, "1 lane"], both, one, ten), re.sub(" +", " ", ours))


def test_a_loop_and_the_first_result():
    texts = [
        with_range(ratio("loop", "time of a round", subject=each), 2) for each in ("step", "pieces", "an iterable")
    ]
    for subject, goal in (("nothing compiled", 8), ("compiled before", 3)):
        line = ratio("readme", "README's example", subject=subject)
        texts.append(with_range({key: goal * line[key] for key in ("value", "low", "high")}, 1))
    assert not missing(PAGE, *texts)


@pytest.mark.parametrize("exponent", [2, 3, 4, 5, 6])
def test_hypergradients_against_peers(exponent):
    conjugate, neumann, unrolled = (
        ratio("hypergradients", f"time, {name}, d = {10**exponent:,}")
        for name in ("conjugate gradients", "Neumann series", "unrolled")
    )
    label = f"10{'⁰¹²³⁴⁵⁶'[exponent]}"
    cells = with_range(conjugate, 2), f"{neumann['value']:.2f}", with_range(unrolled, 2)
    assert not missing(PAGE, row(label, *cells))


def test_functional_and_smoothing():
    cells = []
    for peer, times in (("AID", ("1.9", "3.6", "6.6")), ("unrolled", ("0.49", "1.3", "3.6"))):
        lines = [ratio("functional", f"cosine at {time} ms per round", reference=peer) for time in times]
        cells.append(row(peer, f"{', '.join(times)} ms", ", ".join(with_range(line, 1) for line in lines)))
    flat = [
        next(line for line in stored("smoothing")["ratios"] if line["what"] == f"time per update, d = {10**d:,}")
        for d in range(2, 7)
    ]
    assert all(line["reference"] == "w = 10" for line in flat)
    cells.append(row("time, largest w over w = 10 (goal ≤ 1.1)", *(f"{line['value']:.2f}" for line in flat)))
    assert not missing(PAGE, *cells)


@pytest.mark.parametrize("testbed", ["sources", "instruments", "families"])
def test_the_recommended_method(testbed):
    methods = ("fbo-solved", "replayed-16", "recommended")
    lines = [ratio("recommended", f"a round, {testbed}", subject=method) for method in methods]
    assert not missing(PAGE, row(testbed, *(with_range(line, 1) for line in lines)))


def test_one_gpu():
    rows, found = [], {}
    for case in stored("gpu")["cases"]:
        label = "FBO" if case["method"] == "fbo" else "SmoothFBO, w = 1,000"
        seconds = case["microseconds_per_step"]
        cells = (f"{case['lanes']:,}", f"{case['steps_per_second']:,.0f}", f"{seconds:,.0f}", str(case["kernels"]))
        rows.append(row(label, *cells, f"{case['gap']:,.0f}", f"{seconds:,.0f} s"))
        found[case["method"], case["lanes"]] = case
    lanes = [found["fbo", number] for number in (1, 10, 100, 1_000)]
    speeds, gaps = ([f"{case[name]:,.0f}" for case in lanes] for name in ("steps_per_second", "gap"))
    assert not missing("studies/cartpole-evidence.md", *rows)
    ten = [f"{found[each]['microseconds_per_step']:.0f} s" for each in (("fbo", 10), ("smooth-fbo", 10))]
    assert not missing("studies/cartpole.md", "take {} with FBO and {} with SmoothFBO".format(*ten))
    assert not missing(
        PAGE,
        f"{speeds[0]} with one lane, {speeds[1]} with ten, {speeds[2]} with a hundred, {speeds[3]} with a thousand",
        f"{gaps[0]}, {gaps[1]}, {gaps[2]} and {gaps[3]} times what the matrix products alone would take",
    )


def test_two_cores():
    speeds = [case["steps_per_second"] for case in stored("cartpole")["cases"]]
    one, two = (f"{min(each):,.0f} to {max(each):,.0f}" for each in speeds)
    line = with_range(ratio("cartpole", "a step with w = 1,000"), 3)
    assert not missing("studies/cartpole-evidence.md", f"FBO {one} steps per second", two, line)


def test_the_recommended_method_on_the_regression():
    page = (DOCS / "studies" / "regression.md").read_text()
    for case in stored("recommended_regression")["cases"]:
        name = {"per_lag": "weight per lag", "decay": "decay"}[case["weights"]]
        drift = {"smooth": "sinusoidal", "jumps": "jumps"}[case["drift"]]
        values = [f"{case[method]['excess']:.3g}" for method in ("recommended", "fbo", "exact")]
        ratios = [
            f"{ratio['mean']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
            for ratio in (case["to_fbo"], case["to_exact"])
        ]
        assert f"| {name}, {drift} | {' | '.join(values + ratios)} |" in page


BEYOND = "concepts/recommended.md"


def beyond(name, kept="recommended_beyond"):
    return next(case for case in stored(kept)["cases"] if case["problem"] == name)


def gap(name, method="recommended"):
    return f"{beyond(name)['methods'][method]['gap']:.3g}"


def best_gap(name):
    return gap(name, beyond(name)["best_tuned"])


def table_beyond(content):
    """The rows of a table, and on how many problems `smooth_fbo` is ahead, tied, behind, and close."""
    rows, labels, ratios = [], {"fbo": "FBO", "mixed": "θ-mix", "stored": "window"}, []
    for case in content["cases"]:
        gaps = {method: found["gap"] for method, found in case["methods"].items()}
        best, ratio = case["best_tuned"], case["to_best_tuned"]
        assert best == min(labels, key=gaps.get)
        cells = f"{case['standing']:.3g}", f"{gaps['fbo']:.3g}", f"{gaps[best]:.3g} ({labels[best]})"
        interval = f"{ratio['mean']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
        rows.append(row(case["what"], *cells, f"{gaps['recommended']:.3g}", interval))
        ratios.append(ratio)
    ahead, behind = (sum(sign * each[end] > sign for each in ratios) for sign, end in ((-1, "high"), (1, "low")))
    return rows, (ahead, len(rows) - ahead - behind, behind), sum(each["mean"] <= 1.1 for each in ratios)


def test_the_recommended_method_on_problems_that_nothing_was_chosen_on():
    content = stored("recommended_later")
    rows, (ahead, tied, behind), close = table_beyond(content)
    worse = [case for case in content["cases"] if case["methods"]["recommended"]["gap"] > case["standing"]]
    assert [case["problem"] for case in worse] == ["robust"]
    assert not missing(
        BEYOND,
        *rows,
        f"{content['command']} --first-seed {content['seeds'][0]}",
        "On eight problems that nothing was chosen on, `smooth_fbo` with its defaults is ahead of the best tuned rival "
        f"on {ahead}, tied on {tied} and behind on {behind}",
        f"on {close} of them it has at most 1.1 times its gap",
        f"on {len(worse)} of them it is worse than not moving at all",
        f"Seeds {content['seeds'][0]} to {content['seeds'][-1]}",
    )
    for page in ("../README.md", "index.md"):
        assert not missing(
            page, f"it is ahead of the best tuned rival on {ahead}, tied on {tied} and behind on {behind}"
        )


def test_the_recommended_method_on_the_eight_before_them():
    content = stored("recommended_blind")
    rows, (ahead, tied, behind), close = table_beyond(content)
    case = beyond("decay", "recommended_blind")
    assert not missing(
        BEYOND,
        *rows,
        content["command"],
        f"it is ahead of the best tuned rival on {ahead}, tied on {tied} and behind on {behind}",
        f"on {close} of them it has at most 1.1 times its gap",
        f"The largest gap of a seed is {max(case['methods']['recommended']['seeds']):.2g} now, without moving "
        f"{case['standing']:.3g}",
        f"only the seeds are fresh, {content['seeds'][0]} to {content['seeds'][-1]}",
    )


def test_the_recommended_method_on_ten_earlier_problems():
    content = stored("recommended_unseen")
    rows, (ahead, tied, behind), close = table_beyond(content)
    assert (len(rows), beyond("sensors", "recommended_unseen")["methods"]["fbo"]["step"]) == (10, "adam")
    assert not missing(
        BEYOND,
        *rows,
        content["command"],
        f"it is ahead of the best tuned rival on {ahead}, tied on {tied} and behind on {behind}",
        f"on {close} of them it has at most 1.1 times its gap",
        f"only the seeds are fresh, {content['seeds'][0]} to {content['seeds'][-1]}",
    )


def test_the_recommended_method_beyond_the_arena():
    content = stored("recommended_beyond")
    rows, (ahead, tied, behind), close = table_beyond(content)
    worse = sum(case["methods"]["recommended"]["gap"] > case["standing"] for case in content["cases"])
    assert not missing(
        BEYOND,
        *rows,
        content["command"],
        f"On {len(rows)} small problems",
        f"ahead of the best tuned rival on {ahead}, tied on {tied} and behind on {behind}",
        f"on {worse} of these it is worse than not moving at all",
        f"The gap is {gap('flips')} now, where standing still has {beyond('flips')['standing']:.3g}",
        f"by 0.1 radians a round it is {gap('turns')}",
        f"at most 1.1 times the best rival's gap on {close}",
        f"and the ratio {beyond('narrow')['to_best_tuned']['mean']:.2f}",
        f"seeds {content['seeds'][0]} to {content['seeds'][-1]}",
    )
    three = ("sigmoids", "softmax", "simplex")
    ours, others = ([each(name) for name in three] for each in (gap, best_gap))
    assert not missing(
        "how-to/constraints.md", row("`smooth_fbo`", *ours), row("FBO or its θ-mix, at the best rate", *others)
    )
