"""The arena's problems: testbeds of the library with the ranges of rates to try, one entry each."""

from functools import partial
from typing import Any

import jax

from smoothfbo.studies.arena.entries import ArenaProblem
from smoothfbo.testbeds import (
    ChangingSupport,
    DriftingCosine,
    DriftingRegression,
    InstrumentalVariables,
    MovingSources,
    RotatingCorruption,
    Sinusoidal,
    SinusoidFamilies,
)
from smoothfbo.testbeds.regression import Weighting, decay, per_lag


def regression(weighting: Weighting, seed: Any) -> DriftingRegression:
    """The paper's, with fewer lags and samples: its network makes it the dearest problem by far."""
    drift = Sinusoidal(2.0, 0.05)
    return DriftingRegression(jax.random.key(seed), drift, inputs=3, lags=3, batch=6, width=16, weighting=weighting)


def corruption(seed: Any) -> RotatingCorruption:
    """Small, because every evaluation of the exact objective solves a logistic regression."""
    return RotatingCorruption(components=6, training=150, clean=150, batch=32, seed=seed)


PROBLEMS = (
    ArenaProblem(
        "sources", lambda seed, **knobs: MovingSources(seed=seed, **knobs), rates=(1.0, 100.0), lengths=(0.02, 1.0),
        label="Moving sources",
        note="Six sources of one function, wrong in turn: the best mixture moves all the time.",
    ),
    ArenaProblem(
        "regression", partial(regression, per_lag), rates=(20.0, 5_000.0), lengths=(0.05, 5.0),
        label="Regression, weight per lag",
        note="The paper's task. Its best answer hardly moves: nearly always all weight on the newest batch.",
    ),
    ArenaProblem(
        "decay", partial(regression, decay), rates=(1.0, 300.0), lengths=(0.01, 1.0),
        label="Regression, decay",
        note="The paper's task with a scalar decay. Its best answer is constant: forget as fast as possible.",
    ),
    ArenaProblem(
        "instruments", lambda seed: InstrumentalVariables(seed=seed), rates=(0.01, 1.0), lengths=(5e-3, 0.3),
        label="Instrumental variables",
        note="Two-stage least squares whose structural parameter goes round a circle.",
    ),
    ArenaProblem(
        "support", lambda seed: ChangingSupport(seed=seed), rates=(0.3, 60.0), lengths=(0.03, 2.0),
        label="Changing support",
        note="A penalty for each feature; which features matter changes one after the other.",
    ),
    ArenaProblem(
        "families", lambda seed: SinusoidFamilies(seed=seed), rates=(0.03, 3.0), lengths=(5e-3, 0.3),
        label="Families of sinusoids",
        note="Online meta-learning: a start that is shared by the tasks of a round, whose family drifts.",
    ),
    ArenaProblem(
        "corruption", corruption, rates=(3.0, 300.0), lengths=(0.1, 5.0), stride=5,
        label="Rotating corruption",
        note="Hyper-cleaning of real digits: groups of labels are wrong in turn. Judged on clean data, in every fifth "
        "of the recorded rounds.",
    ),
    ArenaProblem(
        "cosine", lambda seed: DriftingCosine(), rates=(0.02, 2.0), lengths=(0.02, 1.0), label="Oracle cosine",  # noqa: ARG005
        note="A gradient oracle without an inner problem: in place of FBO stands the oracle itself.",
    ),
)  # fmt: skip
"""Every problem of the arena. To add one, add an entry."""
