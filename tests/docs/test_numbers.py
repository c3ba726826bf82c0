"""The numbers in the documents are those of the stored files: a row that is not made of them fails."""

import json
import re

import pandas as pd
import pytest
from stored_results import DOCS, RESULTS, stored, text_of


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
    runs = content["runs"].values()
    assert list(runs)
    assert all(map(stated, runs))


# The arena

ARENA = ("sources", "regression", "decay", "instruments", "support", "families", "corruption", "cosine")


def gap_cell(value):
    return f"{value['mean']:.3g} [{value['low']:.3g}, {value['high']:.3g}]"


def label_of(method):
    return next(each["label"] for each in stored("arena_full")["methods"] if each["name"] == method)


def arena_rows(method):
    return {row["problem"]: row for row in stored("arena_full")["board"] if row["method"] == method}


@pytest.mark.parametrize("method", ["recommended", "fbo", "smooth-fbo", "mixed-fbo", "replayed-fbo", "sobow", "exact"])
def test_the_arenas_tables(method):
    """Gaps, costs and ranges of rates; bold print is left out."""
    rows, page = arena_rows(method), text_of("arena.md")
    label = f"*{label_of(method)}*" if method == "exact" else label_of(method)
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


def ratio_cell(value):
    if value["mean"] is None:
        return "–"
    return "> 1000" if value["mean"] > 1000 else f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"


def test_what_the_arena_says_of_the_recommended_method():
    rows, page = arena_rows("recommended"), text_of("arena.md")
    untuned = stored("arena_full")["untuned"]
    assert [row["problem"] for row in untuned] == list(ARENA)
    for row in untuned:
        name, mine, rival = row["problem"], rows[row["problem"]], row["equal_time"]
        gap = gap_cell(mine["gap"]) if not mine["diverged"] else f"diverged ({mine['diverged']})"
        against = f"{ratio_cell(row['to_best_tuned'])} ({label_of(row['best_tuned'])})"
        at_equal_time = f"{ratio_cell(rival['ratio'])} ({label_of(rival['method'])})" if rival else "–"
        cells = (name, gap, against, ratio_cell(mine["to_fbo"]), f"{mine['cost_to_fbo']:.2g}", at_equal_time)
        assert f"| {' | '.join(cells)} |" in page
    ratios = {row["problem"]: row["to_best_tuned"] for row in untuned}
    ahead = [name for name, value in ratios.items() if value["high"] is not None and value["high"] < 1]
    tied = [name for name, value in ratios.items() if value["low"] is not None and value["low"] <= 1 <= value["high"]]
    assert f"ahead of the best *tuned* method on {len(ahead)} of {len(untuned)} problems" in page
    assert f"tied with it on {len(tied)} ({' and '.join(tied)}: the interval" in page
    for row in stored("arena_full")["correlations"]:
        assert f"{row['spearman_gap']['mean']:.2f} ({row['problem']})".replace("-", "−") in page
    runs = stored("arena_full")["runs"]
    assert f"$ {runs['full']['command']}" in page


def test_what_the_readme_says_of_the_arena():
    result = stored("arena_full")
    tied = [row for row in result["untuned"] if row["to_best_tuned"]["low"] <= 1]
    words = " ".join((DOCS.parent / "README.md").read_text().split())
    assert f"compares {len(result['standings'])} online bilevel methods" in words
    assert f"on {len(tied)} of {len(result['untuned'])} problems" in words


def test_what_the_arena_says_of_repetitions():
    runs = {name: stored(f"arena_{name}") for name in ("repeated", "walk", "jumps", "bursts")}
    found = {name: {row["problem"]: row["to_best_tuned"] for row in run["untuned"]} for name, run in runs.items()}
    page = text_of("arena.md")
    assert list(found["repeated"]) == ["sources", "instruments", "support", "families", "cosine"]
    for problem in found["repeated"]:
        cells = [ratio_cell(ratios[problem]) if problem in ratios else "–" for ratios in found.values()]
        assert f"| {problem} | {' | '.join(cells)} |" in page
    for name, run in runs.items():
        assert run["runs"][name]["command"] in page
    more = stored("arena_corruption")
    assert more["runs"]["corruption"]["command"] in page
    cells = {row["problem"]: ratio_cell(row["to_best_tuned"]) for row in more["untuned"]}
    assert f"{cells['regression']} and {cells['corruption']} times the best tuned method" in " ".join(page.split())
    assert all(ratio["mean"] < 1 for ratio in found["repeated"].values())  # the smallest gap
    assert all(ratio["low"] <= 1 for ratios in found.values() for ratio in ratios.values())  # best or tied
    assert all(found[name]["support"]["high"] < 1 for name in ("walk", "jumps", "bursts"))  # ahead
    assert max(ratio["mean"] for ratios in found.values() for ratio in ratios.values()) <= 1.06  # within 6 %


def test_the_arenas_map():
    result = stored("arena_full")
    cells = {(e["noise"], e["period"], e["method"]): e["ratio"] for e in result["map"] if e["rate"] is None}
    assert not any(e["is_edge"] for e in result["map"] if e["rate"] is None)  # no best rate at an end of the grid
    assert f"$ {result['runs'].get('map', result['runs']['full'])['command']}" in text_of("arena.md")
    for noise, period in {key[:2] for key in cells}:
        both = (cells[noise, period, method] for method in ("smooth-fbo", "recommended"))
        texts = (f"{r['mean']:.2f}{'' if r['low'] <= 1 <= r['high'] else '*'}" for r in both)
        assert f"| {noise:g} | {period:g} | {' | '.join(texts)} |" in text_of("arena.md")
    pays = [
        sum(ratio["high"] < 1 for (_, _, name), ratio in cells.items() if name == method)
        for method in ("smooth-fbo", "recommended")
    ]
    number = len(cells) // 2
    assert f"pays at {pays[0]} of {number} places of noise and speed, the recommended method at {pays[1]}." in text_of(
        "arena.md"
    )


@pytest.mark.parametrize("name", ["vote", "retuned"])
def test_the_votes_of_cartpole(name):
    """Mean, interval (cut at the largest return) and minimum of every row, and of the newest networks."""
    lanes, page = pd.read_csv(DOCS / "results" / f"cartpole_{name}_lanes.csv"), text_of("studies/cartpole-evidence.md")
    for (method, environment), each in lanes.groupby(["method", "environment"]):
        cells = []
        for figure, digits in (("final_return", 1), ("newest_return", 0)):
            values = each[figure]
            half = 1.96 * values.std() / len(values) ** 0.5
            low, high = values.mean() - half, min(values.mean() + half, 500)
            cells += [f"{values.mean():.{digits}f} [{low:.0f}, {high:.0f}]", f"{values.min():.1f}"]
        label = {"vep": "VEP", "smooth-corrected-fbo": "SmoothFBO, corrected"}[method]
        assert f"| {label} | {environment} | {' | '.join(cells)} |" in page
