"""The methods of all studies: one look for each, and what can stand in one chart can be told apart."""

from collections import Counter

import pytest

from smoothfbo.harness.methods import SHARED, is_shared
from smoothfbo.studies.arena.entries import PLUGIN_COLOUR
from smoothfbo.studies.arena.leaderboard import UNMOVED
from smoothfbo.studies.arena.methods import METHODS as ARENA
from smoothfbo.studies.cartpole import methods as cartpole
from smoothfbo.studies.regression import methods as regression

# study -> the name, the colour and "is dashed" of each of its methods
COMPARED = {
    "arena": [
        *((each.name, each.description["colour"], each.description["is_dashed"]) for each in ARENA),
        *((name, look.colour, True) for name, look in UNMOVED.items()),
    ],
    **{
        name: [(each, study.find(each).colour, study.find(each).is_dashed) for each in study.METHODS]
        for name, study in {"cartpole": cartpole, "regression": regression}.items()
    },
}


@pytest.mark.parametrize("study", COMPARED)
def test_no_two_methods_of_a_study_look_the_same(study):
    styles = Counter((colour, is_dashed) for _, colour, is_dashed in COMPARED[study])
    assert [style for style, count in styles.items() if count > 1] == []


def test_a_look_is_stated_once():
    """What two studies compare stands in the harness, and a study does not give it another look."""
    arena = {each.name for each in ARENA if each.label or each.colour}
    stated = Counter([*SHARED, *UNMOVED, *arena, *cartpole.OWN, *regression.OWN])
    assert [name for name, count in stated.items() if count > 1] == []
    assert all(each.name in arena and each.label and each.colour for each in ARENA if not is_shared(each.name))


def test_plug_ins_of_the_arena_have_a_colour_of_their_own():
    assert PLUGIN_COLOUR not in {colour for _, colour, _ in COMPARED["arena"]}
