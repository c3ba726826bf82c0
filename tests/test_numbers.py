"""The numbers in the documents are those of the stored files: a row that is not made of them fails."""

import json
import re

import pytest
from stored_results import DOCS, RESULTS, stored, text_of

from smoothfbo.harness.methods import find


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


def test_what_the_arena_says_of_the_recommended_method_now():
    def ratio(entry):
        return f"{entry['mean']:.2f} [{entry['low']:.2f}, {entry['high']:.2f}]"

    for row in stored("arena_recommended")["board"]:
        gap, to_best = row["gap"], "> 1000" if row["to_best"]["mean"] > 1000 else ratio(row["to_best"])
        start = f"| {row['problem']} | {gap['mean']:.3g} [{gap['low']:.3g}, {gap['high']:.3g}] | {to_best} ("
        (line,) = [line for line in (DOCS / "arena.md").read_text().splitlines() if line.startswith(start)]
        assert line.endswith(f") | {ratio(row['to_fbo'])} |")
        assert row["diverged"] == 0


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
