"""What the page says of stored predictions and blocks, against pandas."""

import numpy as np
import pandas as pd
import pytest

from smoothfbo.stream import charts, diagnostics, stored
from smoothfbo.stream.learner.specification import Specification

ROWS = 1_000


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("diagnostics")


def test_coverage_hours_days_and_residuals(place):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"row": np.arange(1, ROWS + 1), "time": pd.date_range("2024-01-01", periods=ROWS, freq="30min")}
    )
    frame["target"], frame["prediction"] = random.normal(size=(2, ROWS))
    for name, half in (("50", 0.7), ("80", 1.3), ("95", 2.0)):
        frame[f"low_{name}"], frame[f"high_{name}"] = frame["prediction"] - half, frame["prediction"] + half
    frame.loc[:5, ["prediction", *(f"{side}_{name}" for name in (50, 80, 95) for side in ("low", "high"))]] = np.nan
    frame.loc[100:110, "target"] = np.nan
    frame.to_parquet(place / "numbers.parquet", row_group_size=300)
    found = diagnostics.read_diagnostics(place / "numbers.parquet", is_classification=False)
    judged = frame.dropna()
    residual = judged["target"] - judged["prediction"]
    assert found.banded.sum() == len(judged)
    np.testing.assert_array_equal(found.covered.sum(axis=0), [(residual.abs() <= half).sum() for half in (0.7, 1.3, 2)])
    np.testing.assert_allclose(np.concatenate(found.tail), residual)
    assert found.spacing == 0.5
    for sums, by in ((found.hours, judged["time"].dt.hour), (found.days, judged["time"].dt.day_of_week)):
        np.testing.assert_allclose(sums[0] / sums[1], (residual**2).groupby(by).mean())
    *_, table = diagnostics.residual_parts(found, "y")
    numbers = dict(table.rows)
    assert numbers["standard deviation"] == pytest.approx(residual.std(ddof=0))


def test_residuals_whose_squares_vanish_are_no_curve():
    none, tiny = np.zeros(0), 1e-200 * np.random.default_rng(0).normal(size=100)
    found = diagnostics.Diagnostics(row=none, covered=none, banded=none, bins=none, tail=[tiny])
    with np.errstate(divide="raise", invalid="raise"):
        assert not [part for part in diagnostics.residual_parts(found, "y") if isinstance(part, diagnostics.Chart)]


def test_reliability(place):
    random = np.random.default_rng(0)
    share = random.uniform(0.3, 1, ROWS)
    right = random.random(ROWS) < share
    frame = pd.DataFrame({"row": np.arange(1, ROWS + 1), "target": np.where(right, "a", "b"), "prediction": "a"})
    frame.assign(probability=share).to_parquet(place / "classes.parquet")
    found = diagnostics.read_diagnostics(place / "classes.parquet", is_classification=True)
    for bin, values in pd.DataFrame({"share": share, "right": right}).groupby((10 * share).astype(int)):
        np.testing.assert_allclose(found.bins[:, bin], [values["share"].sum(), values["right"].sum(), len(values)])


def test_what_changed_at_an_alarm(place):
    blocks = pd.DataFrame({"block": np.arange(200), "known": 8})
    blocks["loss_smoothfbo"] = np.where((blocks["block"] >= 100) & (blocks["block"] < 105), 9.0, 1.0)
    blocks["effect_0"] = np.where(blocks["block"] < 104, 2.0, -1.0)
    blocks["effect_1"], blocks["effect_2"] = 0.5, 0.0
    blocks.to_parquet(place / "blocks.parquet")
    change = {"row": 801, "block": 100, "seen_in_block": 103}
    (around,) = stored.around_changes(place / "blocks.parquet", [change], ["x", "z", None])
    assert around["losses"] == [1.0, 9.0, 1.0]
    assert around["effects"] == [("x", 2.0, -1.0), ("z", 0.5, 0.5)]


def test_every_method_has_a_label():
    spec = Specification(features=1, outputs=1, is_classification=False, windows=(4,), seasons=(48,))
    labels = [charts.label(name, 16) for name in ("smoothfbo", *spec.reference_names)]
    assert len(set(labels)) == len(labels)
