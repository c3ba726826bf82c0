"""The regression's claims: intervals, verdicts, pairs of lanes, the rates and mini-batches at which methods meet."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from small_regression import SMALL

from smoothfbo.harness.statistics import interval, ratio_interval
from smoothfbo.studies.regression import claims as regression_claims
from smoothfbo.studies.regression.lanes import REGIMES
from smoothfbo.studies.regression.presets import PRESETS


def test_intervals_are_those_of_student():
    values = np.array([1.0, 2.0, 4.0, 8.0])
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    result = interval([*values, np.nan])
    np.testing.assert_allclose([result["low"], result["mean"], result["high"]], [low, values.mean(), high], rtol=1e-12)
    assert result["seeds"] == 4
    assert interval([3.0]) == {"mean": 3.0, "low": None, "high": None, "seeds": 1}
    ratio = ratio_interval(values, [2.0, 2.0, 2.0, 2.0])
    np.testing.assert_allclose(ratio["mean"], np.prod(values / 2) ** (1 / 4))
    logs = np.log(values / 2)
    np.testing.assert_allclose(ratio["high"], np.exp(stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs))[1]))


@pytest.mark.parametrize(
    ("low", "high", "seeds", "expected"),
    [
        (0.2, 0.8, 4, "holds"),
        (1.1, 2.0, 4, "fails"),
        (0.5, 1.5, 4, "open"),
        (0.2, 0.8, 3, "open"),
        (None, None, 4, "open"),
    ],
)
def test_verdicts(low, high, seeds, expected):
    value = {"mean": 0.5, "low": low, "high": high, "seeds": seeds}
    assert regression_claims.verdict(value, 1.0, 4, below=True) == expected
    opposite = {"holds": "fails", "fails": "holds", "open": "open"}[expected]
    assert regression_claims.verdict(value, 1.0, 4, below=False) == opposite


def lanes_of(method, window, **columns):
    base = {"drift": "sinusoidal", "weights": "per-lag", "regime": "default", **SMALL.base, "outer_rate": 5.0}
    seeds = len(next(iter(columns.values())))
    rest = dict.fromkeys(("proxy", "variance", "regret_1", "regret_100", "excess", "cosine_used"), np.ones(seeds))
    return pd.DataFrame({**base, "method": method, "window": window, "seed": range(seeds), **(rest | columns)})


def test_claims_are_paired_and_have_limits():
    before = lanes_of("fbo", 1, proxy=np.array([6.0, 12.0, 18.0]), cosine_used=np.array([0.2, 0.3, -0.1]))
    after = lanes_of("smooth-fbo", 100, proxy=np.array([1.0, 2.01, 2.99]), cosine_used=np.array([0.61, 0.89, 0.1]))
    config = dataclasses.replace(SMALL, windows=(1, 100), rounds=100)
    claims = {claim["claim"]: claim for claim in regression_claims.judge_claims(config, pd.concat([before, after]))}
    fall = claims["the proxy falls at least fivefold"]
    np.testing.assert_allclose(fall["value"]["mean"], 1 / 6, rtol=1e-2)
    assert (fall["limit"], fall["verdict"]) == (0.2, "holds")
    doubles = claims["the cosine at least doubles"]
    np.testing.assert_allclose(doubles["value"]["mean"], np.mean([0.21, 0.29, 0.3]))
    assert doubles["verdict"] == "holds"
    assert claims["the exact objective falls"]["verdict"] == "open"


def test_the_recommended_method_meets_others_at_their_best_rates():
    ours = lanes_of("recommended", 1, excess=np.array([1.0, 1.1, 0.9])).assign(outer_rate=0.0)
    rows = [
        lanes_of(method, 1, excess=factor * np.array([1.0, 1.1, 0.9])).assign(outer_rate=rate)
        for method, rate, factor in (("fbo", 5.0, 9.0), ("fbo", 7.0, 2.0), ("exact", 5.0, 0.8), ("exact", 7.0, 0.9))
    ]
    claims = list(regression_claims.judge_claims(SMALL, pd.concat([ours, *rows], ignore_index=True)))
    found = {claim["limit"]: claim for claim in claims if claim["comparison"] == regression_claims.UNTUNED}
    assert {limit: claim["other_rate"] for limit, claim in found.items()} == {1.0: 7.0, 1.2: 5.0}
    assert {limit: claim["verdict"] for limit, claim in found.items()} == {1.0: "holds", 1.2: "fails"}
    np.testing.assert_allclose([found[1.0]["value"]["mean"], found[1.2]["value"]["mean"]], [0.5, 1.25])


def test_each_method_may_have_its_own_mini_batches(monkeypatch):
    def lanes(method, window, minibatch, rate, excess):
        return lanes_of(method, window, excess=np.asarray(excess)).assign(minibatch=minibatch, outer_rate=rate)

    rows = [
        lanes("fbo", 1, "batch", 3.0, [4.0, 4.0, 4.2]),
        lanes("fbo", 1, "full", 3.0, [2.0, 2.0, 2.1]),
        lanes("smooth-fbo", 10, "batch", 3.0, [1.0, 1.0, 1.1]),
        lanes("smooth-fbo", 10, "full", 9.0, [3.0, 3.0, 3.1]),
    ]
    best = {("fbo", 1): (1.9, 3.0, "full"), ("smooth-fbo", 10): (0.9, 3.0, "batch")}
    tuned = {("default", "per-lag", use): {} for use in ("batch", "full")}
    for method, values in best.items():
        tuned["default", "per-lag", values[-1]][method] = regression_claims.Tuned(*values)
    monkeypatch.setattr(regression_claims, "tuned_rates", lambda sweep: tuned)
    same = {name: getattr(PRESETS["tune"], name) for name in regression_claims.TUNED_FOR}
    config = dataclasses.replace(
        SMALL, **same, minibatch=("batch", "full"), sweep_rates=(3.0, 9.0), sweep_regimes=("default",)
    )
    claims = regression_claims.judge_claims(config, pd.concat(rows, ignore_index=True))
    (claim,) = [each for each in claims if each["comparison"] == regression_claims.BEST_RATE_AND_BATCHES]
    np.testing.assert_allclose(claim["value"]["mean"], 0.5, rtol=0.02)
    assert (claim["verdict"], claim["minibatch"], claim["weights"]) == ("holds", "tuned", "per-lag")
    assert (claim["own_minibatch"], claim["other_minibatch"], claim["window"]) == ("batch", "full", 10)


def test_tuned_rates_come_from_the_stored_tuning_and_are_not_the_smallest():
    grid = PRESETS["paper"].sweep_rates
    rates = regression_claims.tuned_rates(grid)
    for regime in PRESETS["tune"].sweep_regimes:
        factor = REGIMES[regime].rate
        here = rates[regime, "per-lag", "batch"]
        assert {place for place in here if place[0].endswith("fbo")} == {
            ("fbo", 1), ("smooth-fbo", 10), ("smooth-fbo", 100),
        }  # fmt: skip
        assert all(grid[0] * factor < tuned.outer_rate for tuned in here.values())
    methods = {method for method, _ in rates["default", "per-lag", "batch"]}
    assert methods >= {"unrolled", "aid", "fbo", "smooth-fbo", "exact"}


def test_the_better_mini_batches_of_a_method_are_found():
    tuned = {use: regression_claims.Tuned(excess, rate, use) for use, excess, rate in (("batch", 2, 3), ("full", 1, 9))}
    rates = {("default", "decay", use): {("fbo", 1): tuned[use]} for use in tuned}
    rates["default", "per-lag", "batch"] = {("fbo", 1): tuned["batch"]}
    rates["noisy", "decay", "full"] = {("fbo", 1): regression_claims.Tuned(0, 1, "full")}
    assert regression_claims.best_use(rates, "decay") == {("fbo", 1): tuned["full"]}
    assert regression_claims.best_use(rates, "per-lag") == {("fbo", 1): tuned["batch"]}
