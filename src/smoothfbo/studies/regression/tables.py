"""The tables of the regression's page: verdicts, claims, the theorem's constants, and all numbers."""

from typing import Any

from smoothfbo.harness.page import Table, Verdict, estimate_cell
from smoothfbo.studies.regression.claims import BEST_RATE, BEST_RATE_AND_BATCHES, COMPARED, LOWER_OBJECTIVE
from smoothfbo.studies.regression.methods import find

TABLE_METRICS = {
    "excess": "exact objective − σ²", "excess_newest": "of the newest batch alone", "cosine_used": "cosine, smoothed",
    "cosine_raw": "cosine, raw",
    "proxy": "proxy Σ‖g̃‖²",
    "raw": "Σ‖ĝ‖²", "regret_1": "regret BLR_1", "regret_100": "regret BLR_100", "regret": "regret BLR_w (own w)",
    "scale": "Σλ at the end", "tracking": "tracking D", "error": "error Γ", "variance": "variance of g̃",
    "bias_given_fits": "bias ‖b‖²", "noise_given_fits": "noise E‖ζ‖²", "bias_given_past": "bias given the past",
    "noise_given_past": "noise given the past", "outer_loss": "hold-out loss",
    "inner_error": "‖ĥ − h*‖²", "truth_error": "‖ĥ − f‖²", "skipped": "skipped rounds",
}  # fmt: skip


def verdict_table(claims: list[dict[str, Any]]) -> Table:
    """Claims down, windows across; what depends on single rates of the sweep is in the folded table."""
    shown = [claim for claim in claims if claim["claim"] != LOWER_OBJECTIVE]
    windows = sorted({claim["window"] for claim in shown})
    rows = []
    for key, same in places(shown):
        by_window = {claim["window"]: claim for claim in same}
        where = [
            *place_cells(key, shown),
            *([SHORT_NAMES[key["comparison"]]] if key["comparison"] in SHORT_NAMES else []),
        ]
        cells = [_verdict(by_window[window]) if window in by_window else None for window in windows]
        rows.append((f"{key['claim'][0].upper()}{key['claim'][1:]} ({', '.join(where)})", *cells))
    return Table(
        "What holds, seed by seed",
        "SmoothFBO against FBO at the same outer rate, or each at its best rate: ratio, or difference of cosines (in "
        "“at least doubles”, from twice FBO's). Untuned: the recommended method against the others with the best "
        "rates and mini-batches of this run. Green holds and red fails with the whole 95 % interval; grey is open.",
        ("claim", *("untuned" if window == 1 else f"w = {window}" for window in windows)),
        rows,
    )


SHORT_NAMES = {BEST_RATE: "best rates", BEST_RATE_AND_BATCHES: "best rates and mini-batches"}


def places(claims: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Claims that differ in their window or rate alone, together."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for claim in claims:
        groups.setdefault(tuple(claim[name] for name in COMPARED), []).append(claim)
    return [(dict(zip(COMPARED, key, strict=True)), same) for key, same in groups.items()]


def place_cells(place: dict[str, Any], claims: list[dict[str, Any]]) -> list[str]:
    """The drift, and what else differs between claims."""
    kinds = [place["weights"]] if len({claim["weights"] for claim in claims}) > 1 else []
    uses = [f"mini-batches: {place['minibatch']}"] if len({claim["minibatch"] for claim in claims}) > 1 else []
    return [place["drift"], *kinds, *uses, *([place["regime"]] if place["regime"] != "default" else [])]


def _verdict(claim: dict[str, Any]) -> Verdict:
    mean = claim["value"]["mean"]
    text = "–" if mean is None else f"×{mean:.3g}" if claim["measure"] == "ratio" else f"{mean:+.2f}"
    return Verdict.of(claim["verdict"], text)


def claims_table(claims: list[dict[str, Any]]) -> Table:
    rows = []
    for claim in claims:
        names = ("drift", "weights", "minibatch", "regime", "outer_rate", "other_rate")
        where = ", ".join(f"{name.replace('_', ' ')} {claim[name]}" for name in names if name in claim)
        value = estimate_cell(claim["value"])
        which = (claim["claim"], claim.get("window"), claim["verdict"])  # what tells rows apart is seen first
        rows.append((*which, value, claim["measure"], claim["comparison"], where))
    return Table(
        "The paper's claims and the truth, seed by seed",
        "Paired over seeds: geometric mean of the ratios of SmoothFBO to the other, or mean of the differences, with "
        "the 95 % interval. A claim holds if the whole interval is on its side of the limit, fails if it is on the "
        "other, and is open in between or if a seed gave nothing finite. With this many comparisons, one in twenty "
        "errs by chance.",
        ("claim", "w", "verdict", "value", "measure", "comparison", "where"), rows,
    )  # fmt: skip


def theory_table(entries: list[dict[str, Any]]) -> Table:
    names = {
        "variation_0.25": "V₁ after T/4", "variation_0.5": "V₁ after T/2", "variation_1": "V₁", "objective_bound": "Q",
        "smoothness": "L on the path", "step_times_smoothness": "α·L", "step_times_smoothness_times_window": "α·L·w",
        "tracking": "tracking D", "error": "error Γ", "regret": "regret BLR_w", "bound": "bound of BLR_w",
    }  # fmt: skip
    rows = [
        (
            find(entry["method"]).with_window(entry["window"]), entry["drift"], entry["weights"], entry["minibatch"],
            *(estimate_cell(entry["measured"][name]) for name in names),
        )
        for entry in entries
    ]  # fmt: skip
    return Table(
        "Constants and bound of Theorem 5.3, as measured",
        "At the main outer rate α. V₁ that doubles from T/2 to T grows linearly: then nothing is promised. The bound "
        "is (2/α)(2TQ/w + V₁) + Γ, for α ≤ 1/L; averages of stored gradients are stable for α·L·w < π²/2. No L holds "
        "for all λ here: it is the largest curvature that the path met.",
        ("method", "drift", "weights", "mini-batches", *names.values()), rows,
    )  # fmt: skip


def summary_table(groups: list[dict[str, Any]]) -> Table:
    keys = ("method", "window", "drift", "weights", "minibatch", "lags", "regime", "outer_rate", "inner_rate",
            "adjoint_rate", "batch", "inner_steps")  # fmt: skip
    keys = [key for key in keys if key in ("method", "window") or len({group[key] for group in groups}) > 1]
    names = [name for name in TABLE_METRICS if any(name in group["metrics"] for group in groups)]
    rows = [
        (*(_shown(group, key) for key in keys), *(estimate_cell(group["metrics"].get(name)) for name in names))
        for group in groups
    ]
    return Table(
        "Mean and 95 % interval over seeds",
        "Sums are over all rounds; objective, cosines, losses and errors are means over the second half. Regrets with "
        "different windows cannot be compared (an average is smaller than what it averages), and all gradients shrink "
        "as Σλ grows, because the objective depends on the shares λ/Σλ alone. Bias and noise are the paper's, given "
        "the fitted functions; given the past, before the fits, what warm-started networks carry on counts as bias. "
        "The variance of g̃ is over time, and holds the drift of the gradient itself. Click a heading to sort.",
        (*(key.replace("_", " ") for key in keys), *(TABLE_METRICS[name] for name in names)),
        rows,
    )  # fmt: skip


def _shown(group: dict[str, Any], key: str) -> Any:
    """Methods by their labels; those of several runs have one of their own."""
    return group.get("label", find(group["method"]).label) if key == "method" else group[key]
