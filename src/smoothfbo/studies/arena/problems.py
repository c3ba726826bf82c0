"""The arena's problems: testbeds of the library with the ranges of rates to try, one entry each."""

from functools import partial
from typing import Any

import jax
import numpy as np

from smoothfbo.studies.arena.entries import ArenaProblem
from smoothfbo.testbeds import (
    ChangingSupport,
    DriftingCosine,
    DriftingRegression,
    InstrumentalVariables,
    MovingSources,
    RotatingCorruption,
    SinusoidFamilies,
)
from smoothfbo.testbeds.regression import PERIOD
from smoothfbo.testbeds.weighting import Weighting, decay, per_lag


def sources(seed: Any, *, dimension: int, **knobs: Any) -> MovingSources:
    return MovingSources(sources=dimension, features=max(9, dimension + 3), seed=seed, **knobs)


def regression(weighting: Weighting, seed: Any, *, dimension: int, drift: str, **knobs: Any) -> DriftingRegression:
    """The paper's, with fewer lags and samples: its network makes it the dearest problem by far."""
    return DriftingRegression(
        drift, inputs=3, lags=dimension, batch=6, width=16, weighting=weighting, seed=seed,
        key=jax.random.key(seed), **knobs,
    )  # fmt: skip


def instruments(seed: Any, *, dimension: int, **knobs: Any) -> InstrumentalVariables:
    return InstrumentalVariables(treatments=dimension, features=max(9, dimension), seed=seed, **knobs)


def support(seed: Any, *, dimension: int, **knobs: Any) -> ChangingSupport:
    return ChangingSupport(features=dimension, batch=max(32, 2 * dimension), seed=seed, **knobs)


def families(seed: Any, *, dimension: int, **knobs: Any) -> SinusoidFamilies:
    return SinusoidFamilies(frequencies=dimension, seed=seed, **knobs)


def corruption(seed: Any, *, dimension: int, noise: float, **knobs: Any) -> RotatingCorruption:
    """Small, because every evaluation of the exact objective solves a logistic regression. Noise: wrong labels."""
    return RotatingCorruption(
        components=6, training=150, clean=150, batch=32, groups=dimension, rate=noise, seed=seed, **knobs
    )


def cosine(seed: Any, **knobs: Any) -> DriftingCosine:
    return DriftingCosine(seed=seed, **knobs)


def knobs(noise: float, dimension: int, period: float = 600.0) -> dict[str, Any]:
    """What every problem has; all of them drift smoothly by default."""
    return {"noise": noise, "dimension": dimension, "drift": "smooth", "period": period}


PROBLEMS = (
    ArenaProblem(
        "sources", sources, rates=(1.0, 100.0), lengths=(0.02, 1.0), knobs=knobs(0.3, 6),
        label="Moving sources",
        note="Sources of one function, wrong in turn: the best mixture moves all the time.",
    ),
    ArenaProblem(
        "regression", partial(regression, per_lag), rates=(20.0, 5_000.0), lengths=(0.05, 5.0),
        knobs=knobs(0.3, 3, PERIOD), label="Regression, weight per lag",
        note="The paper's task. Its best answer hardly moves: nearly always all weight on the newest batch.",
    ),
    ArenaProblem(
        "decay", partial(regression, decay), rates=(1.0, 300.0), lengths=(0.01, 1.0),
        knobs=knobs(0.3, 3, PERIOD), label="Regression, decay",
        note="The paper's task with a scalar decay. Its best answer is constant: forget as fast as possible.",
    ),
    ArenaProblem(
        "instruments", instruments, rates=(0.01, 1.0), lengths=(5e-3, 0.3), knobs=knobs(0.3, 4),
        label="Instrumental variables",
        note="Two-stage least squares whose structural parameter goes round a circle.",
    ),
    ArenaProblem(
        "support", support, rates=(0.3, 60.0), lengths=(0.03, 2.0), knobs=knobs(0.3, 8),
        label="Changing support",
        note="A penalty for each feature; which features matter changes one after the other.",
    ),
    ArenaProblem(
        "families", families, rates=(0.03, 3.0), lengths=(5e-3, 0.3), knobs=knobs(0.3, 3),
        label="Families of sinusoids",
        note="Online meta-learning: a start that is shared by the tasks of a round, whose family drifts.",
    ),
    ArenaProblem(
        "corruption", corruption, rates=(3.0, 300.0), lengths=(0.1, 5.0), stride=5, knobs=knobs(0.8, 5),
        label="Rotating corruption",
        note="Hyper-cleaning of real digits: groups of labels are wrong in turn. Judged on clean data, in every fifth "
        "of the recorded rounds.",
    ),
    ArenaProblem(
        "cosine", cosine, rates=(0.02, 2.0), lengths=(0.02, 1.0), knobs=knobs(1.0, 4, 2 * np.pi / 0.02),
        label="Oracle cosine",
        note="A gradient oracle without an inner problem: in place of FBO stands the oracle itself.",
    ),
)  # fmt: skip
"""Every problem of the arena. To add one, add an entry."""
