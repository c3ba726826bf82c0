"""Bilevel local regret, its terms, and the paper's bounds: pure functions of a trace and known objectives.

A trace is what was played and used, stacked over rounds t = 0, …, T−1: `outers` (λ_t), `gradients` (the estimates
ĝ_t) and `smoothed` (g̃_t), pytrees with a leading axis over rounds. What is known of the problem comes as functions of
`(round, outer)`: `objective` is F_t(λ) and `gradient` is ∇F_t(λ). Whatever has an index before round 0 is zero, as in
the paper.

Every function is for one run; `jax.vmap` it over lanes. None costs more than O(T·w·d). `window` may be traced (to vmap
over windows) if `capacity`, the largest window, is given.
"""

from smoothfbo.regret.bounds import (
    Supremum,
    descent_bound,
    estimated_error,
    largest_objective,
    largest_slope,
    noise_level,
    oracle_error,
    regret_bound,
    replayed_error,
    searched_suprema,
    variation,
)
from smoothfbo.regret.terms import (
    Terms,
    Totals,
    decompose,
    movement,
    proxy,
    regret,
    telescoping,
    totals,
    tracking,
)
from smoothfbo.regret.windows import (
    squared_norms,
    window_gradients,
    window_mean,
)

__all__ = [
    "Supremum",
    "Terms",
    "Totals",
    "decompose",
    "descent_bound",
    "estimated_error",
    "largest_objective",
    "largest_slope",
    "movement",
    "noise_level",
    "oracle_error",
    "proxy",
    "regret",
    "regret_bound",
    "replayed_error",
    "searched_suprema",
    "squared_norms",
    "telescoping",
    "totals",
    "tracking",
    "variation",
    "window_gradients",
    "window_mean",
]
