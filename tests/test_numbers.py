"""The numbers in the documents are those of the stored files: a row that is not made of them fails."""

import json
import re

import pytest
from stored_results import RESULTS, stored, text_of

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


def gap_cell(value):
    return f"{value['mean']:.3g} [{value['low']:.3g}, {value['high']:.3g}]"


@pytest.mark.parametrize("method", ["recommended", "fbo", "smooth-fbo", "mixed-fbo", "replayed-fbo", "sobow", "exact"])
def test_the_arenas_table(method):
    """A row of the table: gaps, and costs where there are any."""
    rows = {row["problem"]: row for row in stored("arena_quick")["board"] if row["method"] == method}
    cells = " | ".join(gap_cell(rows[name]["gap"]) for name in ("sources", "instruments", "families"))
    page = text_of("arena.md")
    label = f"*{find(method).label}*" if find(method).is_reference else find(method).label
    assert f"| {label} | {cells} |" in page
    costs = " / ".join(f"{rows[name]['cost_to_fbo']:.2g}" for name in ("sources", "instruments", "families"))
    assert f"| {costs} |" in page


@pytest.mark.parametrize("method", ["recommended", "fbo", "smooth-fbo", "mixed-fbo", "replayed-fbo", "exact"])
def test_the_recommended_methods_table(method):
    names = ("sources", "instruments", "support", "families")
    rows = {row["problem"]: row for row in stored("arena_recommended")["board"] if row["method"] == method}
    label = f"*{find(method).label}*" if find(method).is_reference else find(method).label
    cells = " | ".join(gap_cell(rows[name]["gap"]) for name in names)
    costs = " / ".join(f"{rows[name]['cost_to_fbo']:.2g}" for name in names)
    assert f"| {label} | {cells} | {costs} |" in text_of("arena.md")
    if method == "recommended":
        for name in ("instruments", "families"):
            value = rows[name]["to_best"]
            assert f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]" in text_of("arena.md")


def test_what_the_arena_says_of_the_recommended_method():
    rows = {row["problem"]: row for row in stored("arena_quick")["board"] if row["method"] == "recommended"}
    assert rows["sources"]["to_best"]["mean"] == 1
    page = text_of("arena.md")
    for name in ("instruments", "families"):
        value = rows[name]["to_best"]
        assert f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]" in page
    assert rows["families"]["to_fbo"]["low"] > 1
    for row in stored("arena_quick")["correlations"]:
        value = row["spearman_gap"]
        text = f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]".replace("-", "−")
        assert text in page, text
