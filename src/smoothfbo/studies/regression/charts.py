"""The regression's charts, from its stored tables."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from smoothfbo.harness.charts import PALETTE, Chart, HeatMap, Series
from smoothfbo.harness.methods import FBO, RECOMMENDED, SMOOTH_FBO
from smoothfbo.harness.statistics import Frame, bands
from smoothfbo.studies.regression.config import FACTORS, TEST_POINTS
from smoothfbo.studies.regression.lines import entries_of, lines_of, one_window, series_of
from smoothfbo.studies.regression.methods import find

SMOOTHED = 21  # rounds of the running mean in charts of noisy quantities
PLAIN = ("unrolled", "aid", FBO, SMOOTH_FBO)  # the paper's
ESTIMATED = (*PLAIN, RECOMMENDED)


def objective(frame: Frame, drift: str, settings: dict[str, Any]) -> Chart:
    """The one picture to look at: what every method achieves, measured by the truth."""
    return Chart(
        f"{drift}_objective", f"Exact objective over time, {drift} drift",
        f"F_t(λ_t) − σ², running mean of {SMOOTHED} rounds, outer rate {settings['outer_rate'][0]:g}; lower is better. "
        "Uniform weights are where every method starts; the exact hypergradient is what a perfect estimator would do.",
        "round", "F_t(λ_t) − σ²", lines_of(frame, "excess", running=SMOOTHED, methods=(*ESTIMATED, "exact", "uniform")),
        log_y=True,
    )  # fmt: skip


def over_time(frame: Frame, drift: str, settings: dict[str, Any]) -> Iterator[Chart]:
    name = f"{drift}_"
    rate = f"outer rate {settings['outer_rate'][0]:g}"
    yield Chart(
        name + "proxy", "Cumulative proxy Σ‖g̃‖²" + (" (the paper's Fig. 1)" if drift == "sinusoidal" else ""),
        f"The squared norm of the smoothed gradient, summed over rounds, {rate}. Averaging shrinks any "
        "noisy vector, so windows cannot be compared by it alone; see the regret, the cosine and the exact objective.",
        "round", "Σ ‖g̃‖²", lines_of(frame, "proxy", methods=PLAIN), log_y=True,
    )  # fmt: skip
    yield Chart(
        name + "proxy_zoom", "The same, zoomed in on SmoothFBO",
        "Linear axes: a curve that bends down grows more slowly than the number of rounds.",
        "round", "Σ ‖g̃‖²", lines_of(frame, "proxy", methods=(SMOOTH_FBO,)),
    )  # fmt: skip
    yield objective(frame, drift, settings)
    yield Chart(
        name + "regret", "True regret BLR_1 over time",
        "Σ‖∇F_t(λ_t)‖² with the exact gradients at the current point. They shrink as Σλ grows, so a small regret is "
        "not yet a small objective.",
        "round", "BLR_1", lines_of(frame, "regret_1", methods=(*ESTIMATED, "exact")), log_y=True,
    )  # fmt: skip
    yield Chart(
        name + "loss", "Hold-out loss", f"Mean squared error on the newest batch before it is learnt, running mean of "
        f"{SMOOTHED} rounds. The noise alone is {settings['noise'] ** 2:g}.",
        "round", "loss", lines_of(one_window(frame), "outer_loss", running=SMOOTHED),
    )  # fmt: skip
    yield Chart(
        name + "norms", "Size of the raw hypergradient",
        f"‖ĝ_t‖², running mean of {SMOOTHED} rounds, geometric mean over seeds.",
        "round", "‖ĝ‖²", lines_of(one_window(frame), "raw_squared", running=SMOOTHED, geometric=True), log_y=True,
    )  # fmt: skip
    yield Chart(
        name + "inner_error", "Error of the inner function against the exact solution h*",
        f"E‖ĥ − h*‖², running mean of {SMOOTHED} rounds, on {TEST_POINTS} fixed inputs.",
        "round", "E‖ĥ − h*‖²", lines_of(frame, "inner_error", running=SMOOTHED, methods=(*ESTIMATED, "uniform")),
        log_y=True,
    )  # fmt: skip


def over_windows(lanes: Frame, drift: str) -> Iterator[Chart]:
    """Headline figures over w; a method without smoothing is its own line's point at w = 1."""
    if not (lanes["window"] > 1).any():
        return
    lanes = lanes.assign(estimator=[find(str(name)).estimator for name in lanes["method"]])

    def over_w(columns: dict[str, str], estimators: tuple[str, ...]) -> list[Series]:
        result = []
        for index, (column, text) in enumerate(columns.items()):
            for estimator in estimators:
                rows = lanes[lanes["estimator"] == estimator]
                if rows["window"].nunique() > 1 and column in rows and not rows[column].isna().all():
                    band = bands(rows, "window", column)
                    colour = find(estimator).colour if len(columns) == 1 else PALETTE[index]
                    title = text if len(estimators) == 1 else find(estimator).label + (f", {text}" if text else "")
                    result.append(
                        Series(title, band.index, band["mean"], band["low"], band["high"], colour, markers=True)
                    )
        return result

    every = ("fbo", "unrolled", "aid", "exact")
    plots: tuple[tuple[str, str, str, str, list[Series], bool], ...] = (
        ("window_proxy", "Proxy over the window", "The whole run's Σ‖g̃‖².", "Σ ‖g̃‖²",
         over_w({"proxy": ""}, every[:3]), True),
        ("window_variance", "Variance of the smoothed gradient over the window",
         "Trace of the covariance of g̃_t over the second half of the rounds.", "variance",
         over_w({"variance": ""}, every[:3]), True),
        ("window_cosine", "Cosine with the exact hypergradient over the window",
         "Of the smoothed gradient g̃_t with ∇F_t(λ_t), mean over the second half of the rounds.", "cosine",
         over_w({"cosine_used": ""}, every), False),
        ("window_objective", "Exact objective over the window", "F_t(λ_t) − σ², mean over the second half.", "F − σ²",
         over_w({"excess": ""}, every), True),
        ("window_terms", "Error of the smoothed gradient and its terms (FBO)",
         "Γ = Σ‖g̃ − ∇F_{t,w}(λ_t)‖², its tracking part D = Σ‖r‖², and the regret BLR_w itself.", "sum over rounds",
         over_w({"error": "error Γ", "tracking": "tracking D", "regret": "regret BLR_w"}, ("fbo",)), True),
    )  # fmt: skip
    for name, title, caption, y, series, logarithmic in plots:
        if series:
            who = f" {series[0].name}, averaged over w rounds;" if len(series) == 1 else ""
            caption += f"{who} w = 1 is without smoothing."
            yield Chart(f"{drift}_{name}", title, caption, "window w", y, series, log_x=True, log_y=logarithmic)


def trajectory(frame: Frame, drift: str, summary: dict[str, Any]) -> Iterator[Chart]:
    truth = summary["truth"]
    rows = frame[frame["seed"] == truth["seed"]].drop_duplicates("round").sort_values("round")
    if not len(rows):
        return
    shift = rows["shift"].to_numpy()
    parameters = {f"W[{i}]": value for i, value in enumerate(truth["weight"])} | {"b": truth["bias"]}
    series = [
        Series(name, rows["round"], value + shift, colour=PALETTE[i % len(PALETTE)], dashed=name == "b")
        for i, (name, value) in enumerate(parameters.items())
    ]
    yield Chart(
        f"{drift}_parameters", "Drifting parameters" + (" (the paper's Fig. 2)" if drift == "sinusoidal" else ""),
        f"W_t and b_t of seed {truth['seed']}.", "round", "value", series, steps=drift == "jumps",
    )  # fmt: skip


def learned_weights(frame: Frame, drift: str, settings: dict[str, Any]) -> Iterator[HeatMap]:
    entries = entries_of(frame)
    smooth = [entry for entry in entries if entry.method.name == SMOOTH_FBO]
    shown = [entry for entry in entries if entry.method.name in (FBO, RECOMMENDED, "exact")] + smooth[-1:]
    if len(smooth) > 2:
        shown[-1] = min(smooth, key=lambda entry: abs(entry.window - 100))
    for entry in shown:
        lags = entry.window if settings["tied"] and entry.window > 1 else settings["lags"]
        mean = entry.rows.groupby("round", observed=True)[[f"share_{lag}" for lag in range(lags)]].mean()
        step = max(1, len(mean) // 200)
        yield HeatMap(
            f"{drift}_weights_{entry.method.name}", f"Learned weights: {entry.label}",
            "λ_s / Σλ over lag and time, mean over seeds; lag 0 is the newest batch.",
            "round", "lag", "share", mean.index[::step], np.arange(lags), mean.to_numpy()[::step].T,
        )  # fmt: skip


def over_rates(lanes: Frame, settings: dict[str, Any]) -> Iterator[Chart]:
    for regime in settings["sweep_regimes"]:
        here = lanes[lanes["regime"] == regime]
        smoothed = here["window"] > 1
        if regime == "default":
            windows = ~smoothed | here["window"].isin(settings["sweep_windows"])
            here = here[here["outer_rate"].isin(settings["sweep_rates"]) & windows]
        here = here[(here["window"] == 1) | (here["method"] == SMOOTH_FBO)]
        for column, title, y, logarithmic in (
            ("excess", "Exact objective", "F − σ²", True), ("cosine_used", "Cosine with the truth", "cosine", False),
        ):  # fmt: skip
            series = []
            for entry in entries_of(here):
                if entry.method.is_reference and column != "excess":
                    continue
                band = bands(entry.rows, "outer_rate", column)
                series.append(series_of(entry, band, entry.method.is_dashed, markers=True))
            yield Chart(
                f"sweep_{regime}_{column}", f"{title} over the outer rate, {regime} regime",
                "Mean over the second half of the rounds.", "outer rate", y, series, log_x=True, log_y=logarithmic,
            )  # fmt: skip


def at_paper_rates(frame: Frame, uniform: Frame) -> Iterator[Chart]:
    yield Chart(
        "paper_proxy", "Cumulative proxy at the paper's rates", "FBO against SmoothFBO.", "round", "Σ ‖g̃‖²",
        lines_of(frame, "proxy"), log_y=True,
    )  # fmt: skip
    yield Chart(
        "paper_objective", "Exact objective at the paper's rates",
        f"Running mean of {SMOOTHED} rounds, beside uniform weights.", "round", "F_t(λ_t) − σ²",
        lines_of(frame, "excess", running=SMOOTHED) + lines_of(uniform, "excess", running=SMOOTHED),
    )  # fmt: skip


def over_factors(lanes: Frame, settings: dict[str, Any]) -> Iterator[Chart]:
    """Each factor with several values, all others averaged over."""
    lanes = lanes[(lanes["regime"] == "default") & lanes["method"].isin((FBO, SMOOTH_FBO))]
    for factor in FACTORS:
        values = settings[factor]
        if len(values) < 2 or isinstance(values[0], str):
            continue
        here = lanes[lanes[factor].isin(values)]
        for column, title, logarithmic in (
            ("excess", "exact objective − σ²", True),
            ("cosine_used", "cosine, smoothed", False),
        ):
            series = []
            for entry in entries_of(here):
                means = entry.rows.groupby([factor, "seed"], as_index=False)[column].mean()
                series.append(series_of(entry, bands(means, factor, column), markers=True))
            yield Chart(
                f"ablation_{factor}_{column}", f"{title} over {factor.replace('_', ' ')}",
                "Averaged over all other factors; interval over seeds.", factor.replace("_", " "), title, series,
                log_x=True, log_y=logarithmic,
            )  # fmt: skip
