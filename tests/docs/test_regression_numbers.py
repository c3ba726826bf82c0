"""The numbers on the regression's page are those of the stored files."""

import pytest
from stored_results import missing, row, stored

from smoothfbo.studies.regression.methods import find

PAGE = "studies/regression.md"
FILES = {"per-lag": "regression_paper", "decay": "regression_decay", "log": "regression_log"}
KINDS = [("per-lag", "batch"), ("per-lag", "full"), ("decay", "batch"), ("decay", "full")]
NAMES = {"unrolled": "unrolled", "smooth-unrolled": "smoothed unrolled", "uniform": "uniform weights",
         "exact": "exact hypergradient"}  # fmt: skip


def label(method, window=1):
    name = NAMES.get(method, find(method).label)
    return f"{name}, w = {window}" if window > 1 else name


def group_of(name, method, window, *, rate=None, run=None, **wanted):
    """The metrics of the one group of a file."""
    base = stored(name)["base"]
    wanted = {**base, "regime": "default", "outer_rate": base["outer_rate"] if rate is None else rate, **wanted}
    if method == "uniform":
        wanted["outer_rate"] = 0.0
    found = [
        group
        for group in stored(name)["groups"]
        if (group["method"], group["window"], group.get("run")) == (method, window, run)
        and all(group[key] == value for key, value in wanted.items())
    ]
    assert len(found) == 1, (name, method, window, rate, run, len(found))
    return found[0]["metrics"]


def claims_of(name, **wanted):
    return [claim for claim in stored(name)["claims"] if all(claim.get(key) == each for key, each in wanted.items())]


def effect(metric, window, weights, minibatch, *, name=None, run=None, drift="sinusoidal"):
    """SmoothFBO against FBO at the main rate."""
    measure = "cosine − 1 × cosine at w = 1" if metric == "cosine_used" else "ratio"
    found = claims_of(
        name or FILES[weights], metric=metric, window=window, weights=weights, minibatch=minibatch, run=run,
        drift=drift, regime="default", comparison="against w = 1 at the same outer rate", measure=measure,
        outer_rate=None,
    )  # fmt: skip
    found = [claim for claim in found if claim["limit"] in (0.0, 1.0)]
    assert len(found) == 1, (metric, window, weights, minibatch, len(found))
    return found[0]


def of_value(value, digits=3):
    return f"{value['mean']:.{digits}f} [{value['low']:.{digits}f}, {value['high']:.{digits}f}]"


def with_interval(value):
    """Three digits."""
    return f"{value['mean']:.3g} [{value['low']:.3g}, {value['high']:.3g}]"


def judged(claim, digits=2):
    mark = {"holds": "", "fails": " (fails)", "open": " (open)"}[claim["verdict"]]
    return of_value(claim["value"], digits) + mark


# Each method at its best


METHODS = [("fbo", 1), ("smooth-fbo", 10), ("smooth-fbo", 100), ("aid", 1), ("unrolled", 1), ("exact", 1)]


def best_rate(method, window, weights, minibatch):
    from smoothfbo.studies.regression.claims import tuned_rates
    from smoothfbo.studies.regression.presets import PRESETS

    return tuned_rates(PRESETS["paper"].sweep_rates)["default", weights, minibatch][method, window].outer_rate


def best_row(method, window):
    cells = []
    for weights, minibatch in KINDS:
        rate = best_rate(method, window, weights, minibatch)
        value = group_of(FILES[weights], method, window, rate=rate, weights=weights, minibatch=minibatch)["excess"]
        cells.append(f"{with_interval(value)} at {rate:g}")
    return row(label(method, window), *cells)


@pytest.mark.parametrize(("method", "window"), METHODS)
def test_each_method_at_its_best_rate(method, window):
    assert not missing(PAGE, best_row(method, window))


def rivals(weights, minibatch, window=100):
    """SmoothFBO relative to FBO, AID and unrolling, each at its best rate."""
    cells = []
    for other in ("FBO", "AID", "Unrolled"):
        (claim,) = claims_of(
            FILES[weights], claim=f"the exact objective is below that of {other}", weights=weights, window=window,
            minibatch=minibatch, regime="default", comparison="each at its best outer rate",
        )  # fmt: skip
        cells.append(of_value(claim["value"], 2))
    return cells


@pytest.mark.parametrize(("weights", "minibatch"), KINDS)
def test_smoothfbo_against_each_at_its_best(weights, minibatch):
    name = f"{weights}, {'mini-batches' if minibatch == 'batch' else 'full batches'}"
    assert not missing(PAGE, row(name, *rivals(weights, minibatch)))


# What the window does


EFFECTS = {
    "proxy": "proxy Σ‖g̃‖²", "variance": "variance of g̃", "cosine_used": "cosine with ∇F_t, difference",
    "regret_1": "true regret BLR_1", "regret_100": "true regret BLR_100", "excess": "exact objective",
}  # fmt: skip


def effect_row(metric):
    cells = []
    for weights, minibatch in KINDS:
        claim = effect(metric, 100, weights, minibatch)
        # The variance of the scalar's gradients spans many powers of ten between seeds.
        cells.append("–" if (metric, weights) == ("variance", "decay") else judged(claim))
    return row(EFFECTS[metric], *cells)


@pytest.mark.parametrize("metric", EFFECTS)
def test_a_window_of_100_at_the_same_rate(metric):
    assert not missing(PAGE, effect_row(metric))


RATES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


def rate_row(weights, minibatch, regime="default"):
    found = {
        claim["outer_rate"]: claim
        for claim in claims_of(
            FILES[weights], claim="smoothing lowers the exact objective", weights=weights, minibatch=minibatch,
            window=100, regime=regime,
        )
    }  # fmt: skip
    cells = []
    for rate in RATES:
        claim = found[rate]
        cells.append(f"{claim['value']['mean']:.2f}" + {"holds": " ↓", "fails": " ↑", "open": ""}[claim["verdict"]])
    noisy = ", three times the noise" if regime == "noisy" else ""
    return row(f"{weights}, {'mini-batches' if minibatch == 'batch' else 'full batches'}{noisy}", *cells)


REGIMES = [(*kind, "default") for kind in KINDS] + [(weights, "batch", "noisy") for weights in ("per-lag", "decay")]


@pytest.mark.parametrize(("weights", "minibatch", "regime"), REGIMES)
def test_a_window_of_100_over_the_rates(weights, minibatch, regime):
    assert not missing(PAGE, rate_row(weights, minibatch, regime))


def plus_minus(value):
    return f"{value['mean']:.3g} ± {value['high'] - value['mean']:.1g}"


TABLE = [
    ("fbo", 1), ("smooth-fbo", 10), ("smooth-fbo", 100), ("smooth-fbo", 500), ("aid", 1), ("unrolled", 1),
    ("smooth-unrolled", 100), ("uniform", 1), ("exact", 1),
]  # fmt: skip


def table_row(method, window, minibatch):
    metrics = group_of("regression_paper", method, window, minibatch=minibatch)
    cells = [plus_minus(metrics[key]) for key in ("cosine_used", "proxy")]
    cells += [f"{metrics['variance']['mean']:.1e}".replace("e-0", "e-")]
    cells += [plus_minus(metrics[key]) for key in ("regret_1", "excess")]
    return row(NAMES.get(method, find(method).label), "–" if method == "uniform" else str(window), *cells)


@pytest.mark.parametrize(("method", "window"), TABLE)
def test_the_table_of_mini_batches(method, window):
    assert not missing(PAGE, table_row(method, window, "batch"))


WINDOWS = (5, 10, 50, 100, 250, 500)


def window_row(metric, minibatch):
    cells = [effect(metric, window, "per-lag", minibatch) for window in WINDOWS]
    sign = {"holds": "", "fails": " (fails)", "open": " (open)"}
    name = f"{EFFECTS[metric]}, {'mini-batches' if minibatch == 'batch' else 'full batches'}"
    return row(name, *(f"{claim['value']['mean']:.2f}{sign[claim['verdict']]}" for claim in cells))


@pytest.mark.parametrize("minibatch", ["batch", "full"])
@pytest.mark.parametrize("metric", ["proxy", "cosine_used", "regret_1", "regret_100", "excess"])
def test_every_window(metric, minibatch):
    assert not missing(PAGE, window_row(metric, minibatch))


# Jumps, logarithms, final batches, tied windows, the paper's ranges, the theorem


def jump_row(metric, minibatch):
    cells = [effect(metric, window, "per-lag", minibatch, name="regression_jumps", run="jumps-per-lag", drift="jumps")
             for window in (10, 100, 250, 500)]  # fmt: skip
    name = f"{EFFECTS[metric]}, {'mini-batches' if minibatch == 'batch' else 'full batches'}"
    return row(name, *map(judged, cells))


@pytest.mark.parametrize("minibatch", ["batch", "full"])
@pytest.mark.parametrize("metric", ["proxy", "cosine_used", "regret_100", "excess"])
def test_jumps(metric, minibatch):
    assert not missing(PAGE, jump_row(metric, minibatch))


def log_row(rate, minibatch):
    cells = []
    for method, window in (("fbo", 1), ("smooth-fbo", 10), ("smooth-fbo", 100), ("exact", 1)):
        value = group_of("regression_log", method, window, rate=rate, weights="log", minibatch=minibatch)["excess"]
        lost = 10 - value["seeds"]
        cells.append(f"{lost} of 10 not finite" if lost else with_interval(value))
    return row(f"{rate:g}, {'mini-batches' if minibatch == 'batch' else 'full batches'}", *cells)


@pytest.mark.parametrize("minibatch", ["batch", "full"])
@pytest.mark.parametrize("rate", [1.0, 3.0])
def test_logarithms(rate, minibatch):
    assert not missing(PAGE, log_row(rate, minibatch))


def test_the_best_rates_of_logarithms():
    (claim,) = claims_of("regression_log", comparison="each at its best outer rate", minibatch="full", window=100)
    assert (claim["outer_rate"], claim["other_rate"]) == (3, 1)
    assert not missing(
        PAGE, f"(1 for FBO, 3 for w = 100), the objective of w = 100 is {of_value(claim['value'], 2)} of FBO's"
    )


def final_row(final, minibatch):
    name, run = ("regression_paper", None) if final == "all" else ("regression_variants", f"final-{final}")
    cells = []
    for window in (1, 100):
        metrics = group_of(name, "smooth-fbo" if window > 1 else "fbo", window, run=run, weights="per-lag",
                           minibatch=minibatch)  # fmt: skip
        lost = 10 - metrics["excess"]["seeds"]
        cells.append(plus_minus(metrics["excess"]) + (f" ({lost} lost)" if lost else ""))
        cells.append(plus_minus(metrics["cosine_used"]))
    claim = effect("regret_1", 100, "per-lag", minibatch, name=name, run=run)
    lost = 10 - claim["value"]["seeds"]
    noise = group_of(name, "fbo", 1, run=run, weights="per-lag", minibatch=minibatch)
    cells += ["–" if lost else judged(claim)]
    cells += [f"{noise[f'{part}_given_fits']['mean']:.1e}".replace("e-0", "e-") for part in ("bias", "noise")]
    return row(f"`{final}`, {'mini-batches' if minibatch == 'batch' else 'full batches'}", *cells)


@pytest.mark.parametrize("minibatch", ["batch", "full"])
@pytest.mark.parametrize("final", ["all", "drawn", "fresh"])
def test_final_batches(final, minibatch):
    assert not missing(PAGE, final_row(final, minibatch))


def tied_row(weights, minibatch):
    cells = [with_interval(group_of("regression_variants", "smooth-fbo", window, run=f"tied-{weights}", weights=weights,
                                    minibatch=minibatch)["excess"]) for window in (5, 10, 50, 100)]  # fmt: skip
    return row(f"{weights}, {'mini-batches' if minibatch == 'batch' else 'full batches'}", *cells)


@pytest.mark.parametrize(("weights", "minibatch"), KINDS)
def test_one_window_for_data_and_smoothing(weights, minibatch):
    assert not missing(PAGE, tied_row(weights, minibatch))


def ablation_ranges():
    """Of all settings at an outer rate the smallest and the largest mean objective, for FBO and w = 100."""
    texts = []
    for rate in (0.001, 0.01, 30.0):
        means = [
            group["metrics"]["excess"]["mean"]
            for group in stored("regression_ablation")["groups"]
            if group["outer_rate"] == rate
        ]
        assert len(means) == 72
        texts.append(row(f"{rate:g}", f"{min(means):.4f}", f"{max(means):.4f}"))
    return texts


def test_the_papers_ranges():
    assert not missing(PAGE, *ablation_ranges())


THEORY = {
    "variation_0.25": "V₁ after 250 rounds", "variation_0.5": "after 500", "variation_1": "after 1,000",
    "objective_bound": "Q", "smoothness": "L along the path", "step_times_smoothness_times_window": "α·L·w",
    "tracking": "D", "error": "Γ", "regret": "BLR_w", "bound": "its bound",
}  # fmt: skip


def theory_row(name):
    cells = []
    for weights, minibatch in KINDS:
        (entry,) = [
            each
            for each in stored(FILES[weights])["theory"]
            if (each["weights"], each["minibatch"], each["window"]) == (weights, minibatch, 100)
        ]
        cells.append(f"{entry['measured'][name]['mean']:.3g}")
    return row(THEORY[name], *cells)


@pytest.mark.parametrize("name", THEORY)
def test_the_theorem_on_this_task(name):
    assert not missing(PAGE, theory_row(name))


def test_sentences():
    """What the page says outside its tables."""
    rates = {
        claim["outer_rate"]: claim["value"]["mean"]
        for claim in claims_of("regression_paper", claim="smoothing lowers the exact objective", regime="normalised")
        if claim["window"] == 100
    }
    low, high = ([f"{rates[rate]:.2f}" for rate in some] for some in ((0.01, 0.03, 0.1), (0.3, 1.0, 3.0)))
    best = [
        group_of("regression_paper", method, window, rate=0.1, regime="normalised")["excess"]["mean"]
        for method, window in (("smooth-fbo", 100), ("fbo", 1))
    ]
    jumps = effect("excess", 50, "decay", "full", name="regression_jumps", run="jumps-decay", drift="jumps")
    fbo = group_of("regression_paper", "fbo", 1)
    stays = group_of("regression_paper", "fbo", 1, rate=1e-3, inner_rate=1e-4, adjoint_rate=1e-4)
    uniform = group_of("regression_paper", "uniform", 1)
    assert abs(stays["excess"]["mean"] / uniform["excess"]["mean"] - 1) < 1e-3
    assert not missing(
        PAGE,
        f"{low[0]}, {low[1]} and {low[2]} of the objective of w = 1",
        f"{high[0]}, {high[1]} and {high[2]} times it at larger ones",
        f"{best[0]:.5f} (w = 100) against {best[1]:.5f} (FBO) with such steps",
        f"to {of_value(jumps['value'], 2)} at w = 50 and more",
        f"All weight on the newest batch has {fbo['excess_newest']['mean']:.6f}",
        "(mean square {:.1e}) is larger than its noise ({:.1e})".format(
            *(fbo[f"{part}_given_past"]["mean"] for part in ("bias", "noise"))
        ).replace("e-0", "e-"),
    )


def test_the_cosines_on_the_page_of_hypergradients():
    cosines = [group_of("regression_paper", method, 1)["cosine_used"]["mean"] for method in ("fbo", "aid", "unrolled")]
    text = f"is {cosines[0]:.2f} for FBO, {cosines[1]:.3f} for AID and {cosines[2]:.3f} for unrolling"
    assert not missing("concepts/hypergradient.md", text)


def test_where_the_true_regret_falls():
    def windows(metric, minibatch):
        return [window for window in WINDOWS if effect(metric, window, "per-lag", minibatch)["verdict"] == "holds"]

    assert windows("regret_1", "full") == windows("regret_100", "full") == list(WINDOWS)
    assert (windows("regret_1", "batch"), windows("regret_100", "batch")) == ([5, 10], [5, 10, 50, 100])
    assert windows("excess", "batch") == windows("excess", "full") == []
