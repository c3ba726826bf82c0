"""The numbers on the theory's page are those of the stored file."""

import pytest
from stored_results import missing, row, stored

PAGE = "studies/theory.md"
GROWTH = {
    ("log T", "none"): "log T", ("T^1/4", "none"): "T^¼",
    ("T/w, turn alone", "none"): "T/w (the turn of the counter-example)", ("T, wobble alone", "none"): "T (its wobble)",
    ("T", "none"): "T (both)", ("log T", "falls"): "log T, with a bias that falls like t^(−1/4)",
    ("log T", "stays"): "log T, with a bias that stays",
}  # fmt: skip


def worst(start, problem=None):
    return max(
        check["worst"]
        for check in stored("theory")["checks"]
        if check["name"].startswith(start) and problem in (None, check["problem"])
    )


@pytest.mark.parametrize(("drift", "bias"), GROWTH)
def test_slopes(drift, bias):
    cells = {
        each["exponent"]: f"{each['slope']:+.3f} ± {1.96 * each['error']:.3f}"
        for each in stored("theory")["growth_slopes"]
        if (each["drift"], each["bias"], each["step"]) == (drift, bias, "1/(2Lw)")
    }
    text = row(GROWTH[drift, bias], *(cells[exponent] for exponent in (0.333, 0.5, 0.667)))
    assert not missing(PAGE, text.replace("+0.000 ±", "0.000 ±"))


def test_worst_ratios():
    lemmas = worst("error lemma (oracle), summed"), worst("error lemma (estimated)", "functional")
    theorems = worst("theorem (oracle)"), worst("theorem (estimated)")
    assert not missing(
        PAGE,
        f"expectations | {lemmas[0]:.2f}, {lemmas[1]:.2f} |",
        f"arbitrary sequences | {worst('telescoping'):.2f} |",
        f"| movement bound | every path | {worst('movement'):.2f} |",
        f"| proxy bound | every path | {worst('proxy'):.2f} |",
        f"expectations | {theorems[0]:.2f}, {theorems[1]:.2f} |",
        f"every path | {worst('bias lemma'):.2f} |",
        f"equal to 3e-15; {worst('linear reduction: BLR'):.2f} |",
        f"every path; expectations; every path | {worst('replay, descent'):.2f}, {worst('theorem (replayed)'):.2f}, "
        f"{worst('replay, ageing'):.2f} |",
        f"and {worst('measured: E BLR, replayed against stored (oracle problem)'):.2f} with an oracle",
        f"In the worst single round the ratio is {worst('error lemma (oracle), worst round'):.2f}",
        f"is at most {worst('linear reduction, O'):.2f}, that of the historical-point premise at most "
        f"{worst('historical-point premise'):.1f}",
    )
    assert worst("decomposition") < 1e-3  # of a tolerance of 1e-12
    held = [check for check in stored("theory")["checks"] if check["hold"] < check["settings"] and check["hold"]]
    assert all(check["problem"] == "both terms" for check in held)


REPLAYED = {
    "log T, stored": ("log T", "stored"), "log T": ("log T", "replayed"),
    "log T, noise that depends on λ": ("log T", "replayed, shifted samples"), "T^¼": ("T^1/4", "replayed"),
    "T/w (the turn of the counter-example)": ("T/w, turn alone", "replayed"),
    "T (its wobble)": ("T, wobble alone", "replayed"), "T (both)": ("T", "replayed"),
}  # fmt: skip


@pytest.mark.parametrize("label", REPLAYED)
def test_slopes_of_replayed_windows(label):
    """At the theorems' own step; of BLR_w and of BLR_1."""
    found = [
        each
        for each in stored("theory")["growth_slopes"]
        if (each["drift"], each["smoothing"], each["bias"], each["step"]) == (*REPLAYED[label], "none", "1/L")
    ]
    assert [each["exponent"] for each in found] == [0.333, 0.5, 0.667]
    for regret, suffix in (("BLR_w", ""), ("BLR_1", "_one")):
        cells = [f"{each[f'slope{suffix}']:+.3f} ± {1.96 * each[f'error{suffix}']:.3f}" for each in found]
        text = row(label, regret, *cells).replace("+0.000 ±", "0.000 ±").replace("−0.000 ±", "0.000 ±")
        assert not missing(PAGE, text)
