"""Whether the regret grows more slowly than the number of rounds: slopes, and a verdict where the paper claims one."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from smoothfbo.studies.theory.growth import BIASES, STORED, GrowthSetting
from smoothfbo.studies.theory.statements import Check


def growth_slopes(growth: Any) -> pd.DataFrame:
    """Slopes of log(BLR/T) over log T on the larger half of the horizons, one per lane, then mean and error.

    `slope` is that of BLR_w, `slope_one` that of BLR_1, in which every round counts with its own objective.
    """
    largest = np.sort(growth["rounds"].unique())[len(growth["rounds"].unique()) // 2 :]
    rows = []
    names = [*GrowthSetting._fields, "exponent"]
    for keys, group in growth[growth["rounds"].isin(largest)].groupby(names, sort=False):
        row = dict(zip(names, keys, strict=True))
        for suffix, values in (("", "regret_per_round"), ("_one", "regret_one_per_round")):
            table = group.pivot_table(index="rounds", columns="lane", values=values)
            slopes = np.polyfit(np.log(table.index.to_numpy()), np.log(table.to_numpy()), 1)[0]
            row |= {f"slope{suffix}": slopes.mean(), f"error{suffix}": slopes.std(ddof=1) / np.sqrt(len(slopes))}
        rows.append(row)
    return pd.DataFrame(rows)


def judge_growth(growth: Any) -> Iterator[Check]:
    """Sublinear means that the regret per round falls with T; where it must not fall, that is judged, too."""
    largest = int(growth["rounds"].max())
    for row in growth_slopes(growth).to_dict("records"):
        exponent = float(row["exponent"])
        biased = "" if row["bias"] == "none" else f", bias {row['bias']}"
        rule = f"V₁ ~ {row['drift']}, step {row['step']}, w = T^{exponent:g}{biased}"
        setting: Any = {"problem": "growth", "window": int(np.ceil(largest**exponent)), "drift": 0.0, "step": 0.0}
        yield from (_judge_stored if row["smoothing"] == STORED else _judge_replayed)(row, rule, setting)
    yield from _judge_bias_that_stays(growth[growth["rounds"] == largest])


def _judge_stored(row: dict[str, Any], rule: str, setting: Any) -> Iterator[Check]:
    """With linear variation BLR_w must not fall.

    With a step of 1/(2Lw) the proof gives BLR ≤ 4Lw(2Q + V₁) + Γ, so a claim is made where w·V₁ grows clearly more
    slowly than T, and the bias falls. A bias that stays has B_T ~ T: the iterates settle where ∇F = −b, so the regret
    per round must stay above a share of ‖b‖². With a step of 1/L and a growing window, stored gradients feed back with
    a delay and the iteration oscillates: D_{T,w} is not o(T), the corollary does not apply, and nothing is claimed.
    """
    growth_of_variation = {"log T": 0.0, "T^1/4": 0.25}.get(row["drift"], 1.0)
    claimed = row["step"] == "1/(2Lw)" and row["exponent"] + growth_of_variation < 0.8 and row["bias"] != "stays"
    if row["drift"] == "T":
        yield _stays("counter-example", rule, row["slope"], row["error"], setting)
    else:
        yield _falls("sublinear" if claimed else None, rule, row["slope"], row["error"], 0.0, setting)


def _judge_replayed(row: dict[str, Any], rule: str, setting: Any) -> Iterator[Check]:
    """Replay at the theorems' own step: BLR_w ≤ 2L(2Q + min(V₁, 2TQ/w)) + Tσ²/w must fall whatever V₁ does.

    With V₁ ~ log T a slope of −0.3 is asked for. BLR_1 ≤ 2 BLR_w + 2A falls where the ageing A within a window is
    o(T): w for V₁ ~ log T, w^1.5 for T^1/4. With a turn by a right angle in every window it must stay.
    """
    name = row["smoothing"]
    goal = -0.3 if row["drift"] == "log T" else 0.0
    yield _falls(name, rule, row["slope"], row["error"], goal, setting)
    own, one = f"{name}, BLR_1", (row["slope_one"], row["error_one"])
    if row["drift"] in ("T", "T/w, turn alone"):
        yield _stays(own, rule, *one, setting)
    else:
        power = {"log T": 1.0, "T^1/4": 1.5}.get(row["drift"], np.inf)
        claimed = power * row["exponent"] < 0.8
        yield _falls(own if claimed else None, rule if claimed else f"{own}, {rule}", *one, goal, setting)


def _falls(name: str | None, rule: str, slope: float, error: float, goal: float, setting: Any) -> Check:
    """A slope below `goal`: by three standard errors where that is 0, else up to them. Without a name, no claim."""
    holds = None if name is None else bool(slope < -3 * error if goal == 0 else slope <= goal + 3 * error)
    asked = "slope < 0" if goal == 0 else f"slope ≤ {goal:g}".replace("-", "−")
    title = f"no claim: {rule}" if name is None else f"{name}, {asked}: {rule}"
    return Check(title, "rate", lhs=slope, rhs=goal, standard_error=error, holds=holds, **setting)


def _stays(name: str, rule: str, slope: float, error: float, setting: Any) -> Check:
    title = f"{name}, slope > −0.05: {rule}"
    holds = bool(-slope <= 0.05 + 3 * error)
    return Check(title, "rate", lhs=-slope, rhs=0.05, standard_error=error, holds=holds, **setting)


def _judge_bias_that_stays(growth: Any) -> Iterator[Check]:
    """½‖b‖² ≤ E BLR_w(T)/T at the largest horizon: smoothing does not remove a bias."""
    length, _ = BIASES["stays"]
    for window, here in growth[growth["bias"] == "stays"].groupby("window"):
        error = float(here["regret_per_round"].std(ddof=1) / np.sqrt(len(here)))
        value = float(here["regret_per_round"].mean())
        yield Check(
            "a bias that stays keeps the regret up: ½‖b‖² ≤ E BLR/T", "expectation", "biased oracle", int(window), 0.0,
            0.0, lhs=length**2 / 2, rhs=value, standard_error=error, holds=length**2 / 2 <= value + 3 * error,
        )  # fmt: skip
