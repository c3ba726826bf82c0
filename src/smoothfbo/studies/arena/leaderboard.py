"""From lanes to the leaderboard: settings are chosen on the tuning seeds, and judged on the fresh ones. No jax here."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy import stats
from scipy.interpolate import PchipInterpolator

from smoothfbo.harness.methods import FBO, Style
from smoothfbo.harness.statistics import Frame, bootstrap, interval, rank_intervals, ratio_of_means
from smoothfbo.studies.arena import drift_map
from smoothfbo.studies.arena.config import ArenaConfig
from smoothfbo.studies.arena.grid import SETTING

LARGEST_RATIO = 100.0  # times the smallest gap: where it is, or diverged, does not matter any more
GOOD_RATE = 1.1  # a rate is good if the gap is at most this many times that of the best one
UNMOVED = {"still": Style("λ never moves", "#777777"), "constant": Style("Best constant λ", "#555555")}


def summarise(config: ArenaConfig, known: dict[str, Any], tables: Mapping[str, Frame]) -> dict[str, Any]:
    """`known` says who took part; see `measure.study`."""
    methods = [*known["methods"], *(_unmoved(name, style) for name, style in UNMOVED.items())]
    ranked = [method["name"] for method in methods if not method["is_reference"]]
    untuned = [method["name"] for method in methods if method.get("untuned") is not None]
    rows, correlations, against = [], [], []
    for problem, lanes in tables["lanes"].groupby("problem", sort=False):
        board = judge(config, lanes, ranked)
        rows += [{"problem": problem, **row} for row in board]
        correlations.append({"problem": problem, **correlate(config, lanes, board)})
        against += [{"problem": problem, **row} for row in against_tuned(config, lanes, board, untuned)]
    summary = {**known, "methods": methods, "board": rows, "untuned": against, "correlations": correlations}
    if "map" in tables:
        summary["map"] = drift_map.cells(config, tables["map"])
    return {"summary": summary}


def _unmoved(name: str, style: Style) -> dict[str, Any]:
    return {"name": name, "label": style.label, "colour": style.colour, "is_dashed": True, "is_reference": True}


def choices(config: ArenaConfig, lanes: Frame, untuned: Mapping[str, float]) -> list[dict[str, Any]]:
    """Each method's setting on each problem; `untuned` methods have the rate that they have."""
    result = []
    for (problem, method), group in lanes[lanes["seed"].isin(config.tuning)].groupby(["problem", "method"], sort=False):
        tried = group[group["rate"] == untuned[method]] if method in untuned else group
        result.append({"problem": problem, "method": method, **choose(tried)})
    return result


def judge(config: ArenaConfig, lanes: Frame, ranked: list[str]) -> list[dict[str, Any]]:
    """One problem: every method at the setting that the tuning seeds chose, measured on the fresh ones.

    A method without all of these has failed, and is left out.
    """
    groups = lanes[lanes["seed"].isin(config.fresh)].groupby("method", sort=False)
    groups = {str(method): group for method, group in groups if set(group["seed"]) == set(config.fresh)}
    chosen = {
        method: dict(zip(SETTING, _plain(group[SETTING].iloc[0]), strict=True)) for method, group in groups.items()
    }
    fresh = {method: group.set_index("seed").loc[list(config.fresh)] for method, group in groups.items()}
    playing = [name for name in ranked if name in fresh]
    gaps = np.array([fresh[name]["gap"] for name in playing]).T  # axes (seed, method)
    ranks = rank_intervals(gaps) if playing else []
    best = playing[int(np.argmin([rank["mean"] for rank in ranks]))] if playing else ""
    rows = []
    for method, lanes_of in fresh.items():
        row = {"method": method, **chosen[method], "diverged": int((~np.isfinite(lanes_of["gap"])).sum())}
        row |= {name: mean_interval(lanes_of[name]) for name in ("gap", "gap_all", "regret_1", "proxy", "raw")}
        row["skipped"] = interval(lanes_of["skipped"])["mean"]
        if FBO in fresh:
            row["to_fbo"] = ratio_of_means(lanes_of["gap"], fresh[FBO]["gap"])
        if method in playing:
            row["rank"] = ranks[playing.index(method)]
            row["to_best"] = ratio_of_means(lanes_of["gap"], fresh[best]["gap"])
            row["range"] = good_rates(config, lanes[lanes["method"] == method], chosen[method])
        rows.append(row)
    return rows


def against_tuned(
    config: ArenaConfig, lanes: Frame, board: list[dict[str, Any]], untuned: list[str]
) -> list[dict[str, Any]]:
    """One problem: what a method without anything to tune loses, or gains, against the best of the tuned ones.

    The best of them is the one with the smallest mean gap on the fresh seeds, so it is lucky, if anything. The ratio is
    paired over seeds; nothing where the untuned method diverged.
    """
    ranked = {row["method"]: row for row in board if "rank" in row}
    tuned = [row for row in ranked.values() if row["method"] not in untuned and row["gap"]["mean"] is not None]
    if not tuned:
        return []
    best = min(tuned, key=lambda row: row["gap"]["mean"])["method"]
    fresh = lanes[lanes["seed"].isin(config.fresh)]
    gaps = {name: fresh[fresh["method"] == name].sort_values("seed")["gap"] for name in (*untuned, best)}
    return [
        {"method": name, "best_tuned": best, "to_best_tuned": ratio_of_means(gaps[name], gaps[best])}
        for name in untuned
        if name in ranked
    ]


def choose(lanes: Frame) -> dict[str, Any]:
    """The setting with the smallest mean gap; one where a seed diverged counts as infinite."""
    means = lanes.groupby(SETTING, sort=False)["gap"].mean()
    means = means.where(np.isfinite(means), np.inf)
    return dict(zip(SETTING, _plain(means.idxmin()), strict=True))


def mean_interval(values: Any) -> dict[str, Any]:
    """Mean with its 95 % bootstrap interval over seeds; nothing where a seed diverged."""
    numbers = np.asarray(values, float)
    if not len(numbers) or not np.isfinite(numbers).all():
        return {"mean": None, "low": None, "high": None, "seeds": int(np.isfinite(numbers).sum())}
    return bootstrap([numbers], lambda draws: draws.mean(axis=1))


def good_rates(config: ArenaConfig, lanes: Frame, setting: dict[str, Any]) -> dict[str, Any] | None:
    """Rates around the best one with at most 1.1 times its gap, at the chosen window and rule, on the tuning seeds.

    Between rates the logarithm of the gap is interpolated by monotone cubics, which are flat at the smallest gap, so
    that methods with few and with many rates can be compared. `is_open` where the range reaches an end of the grid: it
    is at least that wide. `decades` is log10(high/low).
    """
    same = (lanes["rule"] == setting["rule"]) & (lanes["window"] == setting["window"])
    means = lanes[same & lanes["seed"].isin(config.tuning)].groupby("rate")["gap"].mean()
    means = means.where(np.isfinite(means), np.inf)
    rates, gaps = np.log10(means.index.to_numpy(float)), means.to_numpy(float)
    if not len(gaps):  # the tuning seeds are missing
        return None
    best = int(np.argmin(gaps))
    if not np.isfinite(gaps[best]) or gaps[best] <= 0:
        return None
    logs = np.log(np.minimum(gaps, LARGEST_RATIO * gaps[best]) / gaps[best])
    fine = np.linspace(rates[0], rates[-1], 2_001)
    bad = (PchipInterpolator(rates, logs)(fine) if len(rates) > 1 else logs * np.ones(len(fine))) > np.log(GOOD_RATE)
    below, above = fine[bad & (fine < rates[best])], fine[bad & (fine > rates[best])]
    low, high = below.max(initial=rates[0]), above.min(initial=rates[-1])
    return {
        "low": float(10**low), "high": float(10**high), "decades": float(high - low),
        "is_open": not len(below) or not len(above), "is_edge": best in (0, len(gaps) - 1),
    }  # fmt: skip


def correlate(config: ArenaConfig, lanes: Frame, board: list[dict[str, Any]]) -> dict[str, Any]:
    """How well the proxy Σ‖g̃‖² ranks the methods at their chosen settings: rank correlation with gap and BLR_1."""
    names = ("proxy", "gap", "regret_1")
    chosen = [row for row in board if "rank" in row and all(row[name]["mean"] is not None for name in names)]
    if len(chosen) < 3:
        return {}
    values = {
        name: np.array([
            lanes[lanes["method"] == row["method"]].set_index("seed").loc[list(config.fresh), name]
            for row in chosen
        ]).T
        for name in names
    }  # fmt: skip
    result = {}
    for name in ("gap", "regret_1"):
        pairs = np.stack([values["proxy"], values[name]], axis=-1)  # axes (seed, method, 2)
        tau: Any = stats.kendalltau(*pairs.mean(axis=0).T)[0]
        result[f"spearman_{name}"] = bootstrap([pairs], _spearman, draws=500)
        result[f"kendall_{name}"] = float(np.nan_to_num(tau))
    return result


def _spearman(draws: np.ndarray) -> np.ndarray:
    """The rank correlation of the means over seeds; axes (draw, seed, method, 2). It is 0 where all are equal."""
    ranks = stats.rankdata(draws.mean(axis=1), axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    first, second = centred[..., 0], centred[..., 1]
    product = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    return np.divide((first * second).sum(axis=1), product, out=np.zeros(len(ranks)), where=product > 0)


def _plain(values: Iterable[Any]) -> list[Any]:
    """Python's own numbers, for JSON."""
    return [value.item() if hasattr(value, "item") else value for value in values]
