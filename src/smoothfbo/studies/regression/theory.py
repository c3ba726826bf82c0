"""What the paper's theorem says about this very task: its constants and its bound, as measured."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from smoothfbo.harness.methods import FBO, SMOOTH_FBO
from smoothfbo.harness.statistics import Frame, interval
from smoothfbo.studies.regression.claims import at_base
from smoothfbo.studies.regression.config import RegressionConfig
from smoothfbo.studies.regression.lanes import Lane
from smoothfbo.studies.regression.program import testbed_of_lane

SHARES = (0.25, 0.5, 1.0)  # of the rounds, at which V₁ is reported: does it grow like T?
SETTING = ("drift", "weights", "minibatch", "method", "window", "outer_rate")


def theorem_on_this_task(config: RegressionConfig, lanes: Frame) -> Iterator[dict[str, Any]]:
    """For FBO and SmoothFBO at the main rate: V₁ after a quarter, half and all rounds, Q, L along the path, α·L·w, and
    E BLR_w(T) beside the bound of Theorem 5.3's proof, (2/α)(2TQ/w + V₁) + Γ.

    V₁ is that of `DriftingRegression.suprema`, a bound. There is no L that holds for all λ (the curvature grows without
    bound towards λ = 0), so L is the largest ‖∇²F_t(λ_t)‖ that was met. The theorem wants α ≤ 1/L; averaged stored
    gradients are stable for α·L·w < π²/2.
    """
    for place in lanes[["drift", "weights", "minibatch"]].drop_duplicates().to_dict("records"):
        here = at_base(lanes, {**place, "regime": "default"}, config.base)
        here = here[here["method"].isin((FBO, SMOOTH_FBO)) & (here["outer_rate"] == config.base["outer_rate"])]
        for keys, group in here.groupby(list(SETTING), sort=False):
            rows = [_of_lane(config, row) for row in group.to_dict("records")]
            yield dict(zip(SETTING, keys, strict=True)) | {
                "measured": {name: interval([row[name] for row in rows]) for name in rows[0]},
                "step_allowed": all(row["step_times_smoothness"] <= 1 for row in rows),
            }


def _of_lane(config: RegressionConfig, row: dict[str, Any]) -> dict[str, float]:
    lane = Lane(**{name: row[name] for name in Lane.__dataclass_fields__})
    variation, bound = _constants(config, replace(lane, method=FBO, window=1, weights="per-lag", outer_rate=0.0))
    rounds, window, rate = config.rounds, lane.window, lane.outer_rate
    terms = 2 * rounds * bound / window + variation[-1]
    return {
        **{f"variation_{share:g}": value for share, value in zip(SHARES, variation, strict=True)},
        "objective_bound": bound,
        "smoothness": row["curvature"],
        "step_times_smoothness": rate * row["curvature"],
        "step_times_smoothness_times_window": rate * row["curvature"] * window,
        "tracking": row["tracking"],
        "error": row["error"],
        "regret": row["regret"],
        "bound": 2 / rate * terms + row["error"],
    }


@cache
def _constants(config: RegressionConfig, lane: Lane) -> tuple[tuple[float, ...], float]:
    """V₁ at the shares of the rounds, and Q."""
    testbed = testbed_of_lane(config, lane)
    total = np.cumsum(np.asarray(jax.jit(lambda: testbed.suprema(config.rounds))(), float))
    places = [max(int(share * len(total)) - 1, 0) for share in SHARES]
    return tuple(float(total[place]) for place in places), float(jnp.asarray(testbed.objective_bound(config.rounds)))
