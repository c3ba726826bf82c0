"""The arena's problems: testbeds of the library with the ranges of rates to try, one entry each."""

from typing import Any

import jax

from smoothfbo.studies.arena.entries import ArenaProblem
from smoothfbo.testbeds import DriftingCosine, DriftingRegression, MovingSources, Sinusoidal
from smoothfbo.testbeds.regression import decay, per_lag


def regression(seed: Any) -> DriftingRegression:
    return DriftingRegression(jax.random.key(seed), Sinusoidal(2.0, 0.05), weighting=per_lag)


def regression_decay(seed: Any) -> DriftingRegression:
    return DriftingRegression(jax.random.key(seed), Sinusoidal(2.0, 0.05), weighting=decay)


PROBLEMS = (
    ArenaProblem(
        "sources", lambda seed, **knobs: MovingSources(seed=seed, **knobs), rates=(0.03, 300.0), lengths=(3e-3, 1.0),
        label="Moving sources",
        note="Six sources of one function, wrong in turn: the best mixture moves all the time.",
    ),
    ArenaProblem(
        "regression", regression, rates=(1.0, 3_000.0), lengths=(3e-3, 3.0), label="Regression, weight per lag",
        note="The paper's task. Its best answer hardly moves: mostly all weight on the newest batch.",
    ),
    ArenaProblem(
        "decay", regression_decay, rates=(0.1, 300.0), lengths=(1e-3, 1.0), label="Regression, decay",
        note="The paper's task with a scalar decay. Its best answer hardly moves.",
    ),
    ArenaProblem(
        "cosine", lambda seed: DriftingCosine(), rates=(1e-3, 3.0), lengths=(1e-3, 3.0), label="Oracle cosine",  # noqa: ARG005
        note="A gradient oracle without an inner problem: in place of FBO stands the oracle itself.",
    ),
)  # fmt: skip
"""Every problem of the arena. To add one, add an entry."""
