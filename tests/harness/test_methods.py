"""The methods of all studies: what can stand in one chart can be told apart."""

from collections import Counter

import pytest

from smoothfbo.harness.methods import find
from smoothfbo.studies.arena.entries import PLUGIN_COLOUR
from smoothfbo.studies.arena.methods import METHODS as ARENA
from smoothfbo.studies.cartpole.config import METHODS as CARTPOLE
from smoothfbo.studies.regression.config import METHODS as REGRESSION

COMPARED = {
    "arena": (*(method.name for method in ARENA), "still", "constant"),
    "cartpole": CARTPOLE,
    "regression": REGRESSION,
}


@pytest.mark.parametrize("study", COMPARED)
def test_no_two_methods_of_a_study_look_the_same(study):
    styles = Counter((find(name).colour, find(name).is_dashed) for name in COMPARED[study])
    assert [style for style, count in styles.items() if count > 1] == []


def test_plug_ins_of_the_arena_have_a_colour_of_their_own():
    assert PLUGIN_COLOUR not in {find(name).colour for name in COMPARED["arena"]}
