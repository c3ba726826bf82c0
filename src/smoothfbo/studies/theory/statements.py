"""The paper's statements as comparisons of a left side with a right side, and the verdicts."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from smoothfbo import regret
from smoothfbo.studies.theory.config import TheoryConfig

Columns = dict[str, Any]

TELESCOPING = "telescoping lemma: Σ F_tw(λ_t) − F_tw(λ_t+1) ≤ 2TQ/w + V₁"


@dataclass(frozen=True)
class Check:
    """One statement at one setting. `holds` is None where the paper gives no constant to compare with."""

    name: str
    kind: str  # identity, pathwise, expectation, rate
    problem: str
    window: int
    drift: float
    step: float  # as a fraction of 1/L
    lhs: float
    rhs: float
    standard_error: float  # of lhs − rhs, over lanes
    holds: bool | None
    within_assumptions: bool = True

    @property
    def ratio(self) -> float:
        return self.lhs / self.rhs if self.rhs else (0.0 if abs(self.lhs) < 1e-12 else float("inf"))


class Judge:
    """Compares left and right sides and collects the verdicts of one problem at one setting."""

    def __init__(self, problem: str, window: int, drift: float, step: float, within: bool):
        self.setting = {"problem": problem, "window": window, "drift": drift, "step": step}
        self.within = within
        self.checks: list[Check] = []

    def _add(self, name: str, kind: str, lhs: Any, rhs: Any, error: Any, holds: Any) -> None:
        verdict = None if holds is None else bool(holds)
        self.checks.append(
            Check(name, kind, **self.setting, lhs=float(lhs), rhs=float(rhs), standard_error=float(error),
                  holds=verdict, within_assumptions=self.within)
        )  # fmt: skip

    def pathwise(self, name: str, lhs: np.ndarray, rhs: Any) -> None:
        """Must hold in every lane (and round, where there is an axis for it); the tightest one is shown."""
        rhs = np.broadcast_to(rhs, lhs.shape)
        slack = 1e-9 * (np.abs(lhs) + np.abs(rhs)) + 1e-12
        tightest = np.unravel_index(np.argmax(lhs - rhs - slack), lhs.shape)
        self._add(name, "pathwise", lhs[tightest], rhs[tightest], 0.0, np.all(lhs <= rhs + slack))

    def expectation(self, name: str, lhs: np.ndarray, rhs: Any) -> None:
        """The means over lanes, up to three standard errors of their difference."""
        difference = lhs - rhs
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        holds = difference.mean() <= 3 * error + 1e-12
        self._add(name, "expectation", lhs.mean(), np.mean(rhs), error, holds)

    def equality(self, name: str, lhs: np.ndarray, rhs: np.ndarray) -> None:
        """Two means over lanes that must agree within four standard errors."""
        difference = lhs - rhs
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        self._add(name, "expectation", lhs.mean(), rhs.mean(), error, abs(difference.mean()) <= 4 * error + 1e-12)

    def identity(self, name: str, mismatch: np.ndarray, size: np.ndarray) -> None:
        """A relative difference that is nothing but rounding."""
        relative = np.sqrt(mismatch.max() / max(size.max(), 1e-300))
        self._add(name, "identity", relative, 1e-12, 0.0, relative <= 1e-12)

    def measured(self, name: str, lhs: Any, rhs: Any) -> None:
        """An O(·) statement: the paper gives no constant, so the ratio is reported and nothing is judged."""
        self._add(name, "rate", lhs, rhs, 0.0, None)


def judge_statements(
    judge: Judge,
    problem: Any,
    columns: Columns,
    constants: dict[str, Any],
    step: float,
    window: int,
    estimated: bool,
) -> list[Check]:
    """All statements at one setting; `columns` has axes (lane, round) or (lane,).

    `estimated` says which theorem: that of estimated hypergradients (Algorithm 3), or that of an oracle (Algorithm 1).
    """
    rounds = columns["regret"].shape[1]
    total = {name: values.sum(axis=1) if values.ndim == 2 else values for name, values in columns.items()}
    smoothness, bound, variation = constants["smoothness"], constants["objective_bound"], constants["variation"]
    gamma, tracking = total["error"], total["tracking"]

    judge.identity("decomposition: error = noise + bias + tracking", columns["mismatch"], columns["error"])
    judge.pathwise(TELESCOPING, total["telescoping"], 2 * rounds * bound / window + variation)
    judge.pathwise("movement bound: Σ‖r‖² ≤ L²/w ΣΣ‖λ_t−i − λ_t‖²", tracking, smoothness**2 * total["movement"])
    judge.pathwise("proxy: Σ‖g̃‖² ≤ 2·BLR + 2·Γ", total["proxy"], 2 * total["regret"] + 2 * gamma)
    judge.pathwise(
        "gradient norm lemma: ‖∇F_tw‖² ≤ 2‖g̃‖² + 2‖e‖²", columns["regret"], 2 * columns["proxy"] + 2 * columns["error"]
    )
    judge.pathwise(
        "projection lemma: ⟨e, g̃⟩ ≤ ‖e‖² + ¼‖g̃‖²", columns["inner_product"], columns["error"] + columns["proxy"] / 4
    )
    judge.pathwise("linear reduction: BLR ≤ 2 Σ‖h_tw‖² + 2D", total["regret"], 2 * total["historical"] + 2 * tracking)
    common = {
        "step": step,
        "smoothness": smoothness,
        "objective_bound": bound,
        "variation": variation,
        "rounds": rounds,
        "window": window,
        "allow_large_step": not judge.within,
    }
    judge.pathwise("descent: BLR ≤ 2/α (2TQ/w + V₁) + Γ", total["regret"], regret.regret_bound(gamma, **common))
    if estimated:
        _judge_estimates(judge, problem, columns, total, constants, common)
    else:
        _judge_oracle(judge, problem, columns, total, common)
    return judge.checks


def _judge_estimates(
    judge: Judge, problem: Any, columns: Columns, total: Columns, constants: dict[str, Any], common: dict[str, Any]
) -> None:
    """Lemma 5.2, Theorem 5.3, and what goes with them."""
    rounds, window, tracking = common["rounds"], common["window"], total["tracking"]
    noise = columns["conditional_variance"].mean(axis=0).max()  # σ_F² = sup over t of E‖ζ_t‖²
    error = regret.estimated_error(rounds=rounds, window=window, noise=noise, bias=total["bias_now"], tracking=tracking)
    judge.expectation("error lemma (estimated): EΓ ≤ 3Tσ²/w + 3B + 3D", total["error"], error)
    judge.expectation(
        "theorem (estimated): E BLR ≤ 2/α (2TQ/w + V₁) + 3Tσ²/w + 3B + 3D",
        total["regret"],
        regret.regret_bound(error, **common),
    )
    judge.pathwise(
        "bias lemma, constants derived here: ‖b_t‖² ≤ c (ε_in + ε_adj)",
        columns["bias_now"],
        problem.bias_constant() * (columns["inner_error"] + columns["adjoint_error"]),
    )
    judge.equality("variance lemma, exact here: E‖ζ_t‖² = E Var", total["noise_now"], total["conditional_variance"])
    scale = rounds * constants["objective_bound"] / window + constants["variation"] + rounds * noise / window
    scale += constants["path_variation"]
    judge.measured(
        "linear reduction, O(·): E BLR against TQ/w + V₁ + Tσ²/w + H₂ + D",
        total["regret"].mean(),
        scale + tracking.mean(),
    )
    judge.measured(
        "historical-point premise, O(·): E Σ‖h_tw‖² against TQ/w + V₁ + Tσ²/w + H₂",
        total["historical"].mean(),
        scale,
    )


def _judge_oracle(judge: Judge, problem: Any, columns: Columns, total: Columns, common: dict[str, Any]) -> None:
    """Lemma 4.2 and Theorem 4.4."""
    rounds, window, tracking = common["rounds"], common["window"], total["tracking"]
    noise = float(problem.noise) ** 2
    error = regret.oracle_error(rounds=rounds, window=window, noise=noise, tracking=tracking)
    per_round = columns["error"] - 2 * noise / window - 2 * columns["tracking"]
    worst = int(np.argmax(per_round.mean(axis=0)))
    judge.expectation(
        "error lemma (oracle), worst round: E‖e_t‖² ≤ 2σ²/w + 2E‖r_t‖²",
        columns["error"][:, worst],
        2 * noise / window + 2 * columns["tracking"][:, worst],
    )
    judge.expectation("error lemma (oracle), summed: EΓ ≤ 2Tσ²/w + 2D", total["error"], error)
    judge.expectation(
        "theorem (oracle): E BLR ≤ 2/α (2TQ/w + V₁) + 2Tσ²/w + 2D",
        total["regret"],
        regret.regret_bound(error, **common),
    )


def judge_trade_off(lanes: Any, config: TheoryConfig) -> Iterator[Check]:
    """Corollary: the variance contribution falls as 1/w; the tracking term grows with w and with drift.

    Lanes share their randomness between windows and drifts, so differences are taken lane by lane. The growth of the
    tracking term is judged where the averaged iteration is stable, α·L·w < π²/2 (beyond it the
    iterates oscillate and D saturates), and where the problem turns by less than a radian within a window.
    """
    tables: dict[Any, Any] = dict(iter(lanes.groupby(["problem", "drift", "step"])))
    small, large = min(config.windows), max(config.windows)
    for (problem, drift, step), table in tables.items():
        tracking = {window: here["tracking"].to_numpy() for window, here in table.groupby("window")}
        noise = {window: here["noise"].to_numpy() for window, here in table.groupby("window")}
        within = step <= 1 + 1e-9
        if problem == "oracle" and small < large:
            # zero padding leaves the first w − 1 rounds with fewer terms: Σ_t min(t, w)/w² instead of T/w
            judge = Judge(problem, large, drift, step, within)
            padded = {w: np.minimum(np.arange(1, config.rounds + 1), w).sum() / w**2 for w in (small, large)}
            predicted = noise[small] * padded[large] / padded[small]
            judge.equality("corollary: the variance contribution falls as 1/w", noise[large], predicted)
            yield from judge.checks
        usual = [w for w in sorted(config.windows) if step * w < np.pi**2 / 2 and drift * w < 1]
        for before, after in pairwise(usual):
            judge = Judge(problem, after, drift, step, within)
            judge.expectation("corollary: tracking D grows with the window", tracking[before], tracking[after])
            yield from judge.checks
        still = tables.get((problem, 0.0, step))
        if drift > 0 and still is not None:
            for window in usual[1:]:
                judge = Judge(problem, window, drift, step, within)
                without = still[still["window"] == window]["tracking"].to_numpy()
                name = "corollary: tracking D grows with drift (left side: no drift)"
                if problem in ("linear predictor", "both terms"):
                    # The features see only a part of the drift, and where λ enters both terms D is larger without
                    # drift at the large step. Nothing is promised: shown, not judged.
                    judge.measured(f"{name}, {problem}", without.mean(), tracking[window].mean())
                else:
                    judge.expectation(name, without, tracking[window])
                yield from judge.checks


def as_records(checks: list[Check]) -> list[dict[str, Any]]:
    """Plain values for JSON: what is not finite becomes None."""
    records = [asdict(check) | {"ratio": check.ratio} for check in checks]
    return [
        {key: None if isinstance(value, float) and not np.isfinite(value) else value for key, value in record.items()}
        for record in records
    ]


def from_records(records: list[dict[str, Any]]) -> Iterator[Check]:
    """The checks again; tables give None and NaN for what is missing."""
    for record in records:
        values: dict[str, Any] = {key: value for key, value in record.items() if key != "ratio"}
        values["holds"] = None if pd.isna(values["holds"]) else bool(values["holds"])
        yield Check(**values)
