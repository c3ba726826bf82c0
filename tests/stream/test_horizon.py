"""With a horizon of H, row t is predicted from the targets of the rows up to t − H, and from no later one."""

import io
import sys

import numpy as np
import pandas as pd
import pytest

from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner.specification import blocks_until_known
from smoothfbo.stream.pipeline import run_stream

ROWS = 8 * 20 + 3


class Kept:
    def __init__(self):
        self.tables = []

    def predictions(self, table):
        self.tables.append(table.to_pandas())

    def blocks(self, table):
        """Not looked at."""


def table(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 2))
    y = x @ [1.0, -2.0] + np.cumsum(random.normal(size=ROWS))
    return pd.DataFrame(x, columns=["a", "b"]).assign(y=y)


def predictions(frame, folder, entry="file", **options):
    text = frame.to_csv(index=False)
    (folder / "table.csv").write_text(text)
    config = {"block": 8, "rates": 4, "windows": (2, 3), "smoothing": 3, "lags": 2, "task": "regression", **options}
    data = str(folder / "table.csv") if entry == "file" else "-"
    sink, before = Kept(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    try:
        results = run_stream(StreamConfig(data, "y", **config), sink)
    finally:
        sys.stdin = before
    assert results.fault is None
    return pd.concat(sink.tables, ignore_index=True).drop(columns=["target", "probability_of_target"], errors="ignore")


def changed_after(frame, last_known):
    """Every target after this row is another one."""
    changed = frame.copy()
    later = np.arange(ROWS) > last_known
    if frame["y"].dtype == object:
        other = frame["y"].map({"low": "high", "high": "middle", "middle": "low"})
        changed.loc[later, "y"] = other[later]
    else:
        changed.loc[later, "y"] = 40 - 3 * frame["y"][later]
    return changed


def assert_nothing_leaks(frame, folder, horizon, rows, **options):
    whole = predictions(frame, folder, horizon=horizon, **options)
    for row in rows:
        changed = predictions(changed_after(frame, row - horizon), folder, horizon=horizon, **options)
        pd.testing.assert_frame_equal(changed[: row + 1], whole[: row + 1], check_exact=True)
        later = changed["prediction"][row + 1 :].to_numpy() != whole["prediction"][row + 1 :].to_numpy()
        assert later.any()  # the change does show, once it is known


# A horizon of 1 is another program, without a delay: test_stream.py looks for leaks there.
@pytest.mark.parametrize(
    ("horizon", "entry"),
    [pytest.param(1, "file", marks=pytest.mark.thorough), (2, "file"), (16, "file"), (50, "file"), (7, "stdin")],
)
def test_no_target_is_used_before_it_is_known(tmp_path, horizon, entry):
    assert_nothing_leaks(table(), tmp_path, horizon, (60, 87, 120) if entry == "file" else (87,), entry=entry)


@pytest.mark.thorough
def test_nor_by_a_network(tmp_path):
    options = {"predictor": "network", "width": 4, "network_blocks": 4, "network_steps": 2, "references": False}
    assert_nothing_leaks(table(), tmp_path, 24, (87, 120), **options)


@pytest.mark.thorough
def test_nor_any_class(tmp_path):
    frame = table()
    frame["y"] = pd.qcut(frame["y"], 3, labels=["low", "middle", "high"]).astype(object)
    assert_nothing_leaks(frame, tmp_path, 24, (60, 120), task="classification")


def test_the_newest_known_target_is_used(tmp_path):
    frame = table()
    whole = predictions(frame, tmp_path, horizon=7)
    changed = predictions(changed_after(frame, 80 - 8), tmp_path, horizon=7)  # one row less is known at row 80
    assert changed["prediction"][80] != whole["prediction"][80]
    np.testing.assert_array_equal(whole["last_value"][7:], frame["y"][:-7])


@pytest.mark.parametrize("horizon", [1, 2, 8, 9, 10, 17, 24])
def test_a_block_waits_until_its_last_target_is_known(horizon):
    """Counted row by row: which blocks of 8 are known when the first row of block 20 is predicted?"""
    known = [block for block in range(20) if 8 * block + 7 <= 8 * 20 - horizon]
    assert blocks_until_known(horizon, 8) == 19 - known[-1]


@pytest.mark.thorough
def test_far_ahead_is_harder_than_near(tmp_path):
    """The level is a random walk and nothing announces it: H rows ahead the error is H and the noise of the level."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"x": random.normal(size=6_000), "y": np.cumsum(random.normal(size=6_000))})
    frame.to_csv(tmp_path / "walk.csv", index=False)
    errors = [
        run_stream(StreamConfig(str(tmp_path / "walk.csv"), "y", lags=0, horizon=horizon)).errors["smoothfbo"]
        for horizon in (24, 500)
    ]
    assert errors[0] > 24
    assert errors[1] > 250
