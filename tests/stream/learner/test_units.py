"""A value that cannot be meant, another unit, a real move, and one reference that shares nothing with the learner.

The stream is y = 2(a − 10) + 0.2(b − 20) + 0.1·noise; without column a, the error would be 4.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stream_reference as reference
from stream_rows import as_rows

from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.rolling import rolling_blocks
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.units import _quartiles
from smoothfbo.stream.rows import Rows

ROWS, EVENT, NOISE = 2_400, 1_200, 0.01
SPEC = Specification(features=2, outputs=1, is_classification=False, block=16, rates=8, windows=(16,))


def stream(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 2)) * [1, 5] + [10, 20]
    return x, 2 * (x[:, 0] - 10) + 0.2 * (x[:, 1] - 20) + 0.1 * random.normal(size=ROWS)


def process(x, y, spec=SPEC):
    return process_rows(as_rows(x, y), spec)


def process_rows(rows, spec):
    return Learner(spec).process(rows)


def excess(outcome, y, start, stop=ROWS, method="smoothfbo"):
    names = ("smoothfbo", *SPEC.reference_names)
    return np.mean((outcome.predictions[names.index(method), start:stop] - y[start:stop]) ** 2) - NOISE


def one_wrong_value(x, y):
    x[EVENT, 0] = -9999


def many_wrong_values(x, y):
    x[EVENT : EVENT + 400 : 50, 0] = -9999


def wrong_from_the_beginning(x, y):
    x[[3, 700], 0] = -9999


def thousandth(x, y):
    x[EVENT:, 0] /= 1000


def centred_thousandth(x, y):
    x[:, 0] -= 10
    x[EVENT:, 0] /= 1000


def thousandfold(x, y):
    x[EVENT:, 0] *= 1000


def fahrenheit(x, y):
    x[EVENT:, 0] = 32 + 1.8 * x[EVENT:, 0]


def one_wrong_target(x, y):
    y[EVENT] = -9999


@pytest.mark.parametrize(
    "event",
    [
        one_wrong_value,
        many_wrong_values,
        wrong_from_the_beginning,
        thousandth,
        centred_thousandth,
        thousandfold,
        fahrenheit,
        one_wrong_target,
    ],
)
def test_the_column_is_as_good_as_before_after_500_rows(event):
    x, y = stream()
    event(x, y)
    outcome = process(x, y)
    assert outcome.finite.all()
    assert excess(outcome, y, EVENT + 500) < 0.1  # a lost column costs 4
    assert excess(outcome, y, EVENT + 920, method="rolling_ridge") < 0.1  # the wrong values have left its window


@pytest.mark.parametrize("row", [EVENT, EVENT + 5, EVENT + 15])  # the first of a block, one inside, the last
def test_the_row_after_a_wrong_target_is_predicted_without_it(row):
    x, y = stream()
    y[row] = -9999
    assert excess(process(x, y), y, row + 1, row + 32) < 0.1


@pytest.mark.parametrize("size", [3, 8])
def test_a_real_move_is_followed_at_once(size):
    x, y = stream()
    x[EVENT:, 0] += size
    y[EVENT:] += 2 * size
    outcome = process(x, y)
    assert excess(outcome, y, EVENT + 48) < 0.1


def test_a_real_move_beyond_ten_spreads_is_seen_at_once():
    """The fit uses the values as they are, and so it is judged; cut at ten standard deviations they would not do."""
    random = np.random.default_rng(0)
    x = random.normal(size=(EVENT + 32, 2))
    x[EVENT:, 0] += 60
    learner = Learner(SPEC)
    learner.process(as_rows(x, x @ [0.2, 1.0] + 0.1 * random.normal(size=len(x))))
    assert learner.state.units.odd[0] == 0
    assert learner.state.units.high[0] == x[:, 0].max()


def test_a_target_that_jumps_far_is_learnt():
    x, y = stream()
    y[EVENT:] += 100
    assert excess(process(x, y), y, EVENT + 500) < 0.1


@pytest.mark.parametrize("is_known_late", [False, True])
def test_a_far_value_that_comes_again_and_again_is_missing(is_known_late):
    x, y = stream()
    random = np.random.default_rng(5)
    missing = random.random(ROWS) < 0.05
    missing[EVENT : EVENT + 24] = True  # a sensor that fails
    x[missing, 0] = y[missing] = -9999
    spec = dataclasses.replace(SPEC, with_references=False)
    rows = as_rows(x, y)
    if is_known_late:
        spec = dataclasses.replace(spec, delay=1, horizon=16)
        rows = rows._replace(previous=np.r_[np.full(16, np.nan), y[:-16]])
    squares = (process_rows(rows, spec).predictions[0] - y) ** 2
    squares[missing] = np.nan
    # While a block is odd, the column is left out: see `units`.
    assert np.nanmean(squares[EVENT + 64 :]) - NOISE < 0.02


def test_a_lag_that_is_missing_in_the_same_way_is_no_move():
    random = np.random.default_rng(6)
    level = np.cumsum(0.1 * random.normal(size=ROWS)) + random.normal(size=ROWS)
    level[[EVENT, EVENT + 1, EVENT + 300, EVENT + 302]] = -9999
    lags = np.stack([np.r_[np.full(lag, np.nan), level[:-lag]] for lag in (1, 2, 3)], axis=1)
    spec = dataclasses.replace(SPEC, features=3, lags=(0, 3), with_references=False)
    learner = Learner(spec)
    learner.process(as_rows(lags, level))
    assert learner.state.units.low.min() > -100
    assert learner.state.targets.low > -100


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_a_target_that_jumps_far_is_learnt_even_if_it_then_stands_still(size):
    x, y = stream()
    y[EVENT:] = 1000 + size * (y[EVENT:] - y[EVENT:].mean())
    assert excess(process(x, y), y, EVENT + 64) < 0.1


def test_a_table_that_behaves_is_left_as_it_is():
    """Heavy tails, a mark that is seldom set, a trend: nothing is far, nothing is odd."""
    random = np.random.default_rng(1)
    mark = random.random(ROWS) < 0.01
    for column in (random.standard_t(3, ROWS), np.arange(ROWS) / 100.0):
        x = np.stack([column, mark], axis=1)
        y = x @ [1.0, 3.0] + 0.1 * random.normal(size=ROWS)
        learner = Learner(SPEC)
        learner.process(as_rows(x, y))
        units = learner.state.units
        np.testing.assert_array_equal(units.factor, 1)
        np.testing.assert_array_equal(units.shift, 0)
        np.testing.assert_array_equal(units.low, x.min(axis=0))
        np.testing.assert_array_equal(units.high, x.max(axis=0))
        np.testing.assert_array_equal(learner.state.features.rows, ROWS)


def test_a_column_that_begins_nearly_constant_is_not_lost():
    x, y = stream()
    x[:40, 0] = 10 + 1e-6 * (x[:40, 0] - 10)
    y[:40] = 2 * (x[:40, 0] - 10) + 0.2 * (x[:40, 1] - 20)
    outcome = process(x, y)
    assert excess(outcome, y, 200, 400) < 0.1


def test_quartiles_are_numpys():
    random = np.random.default_rng(0)
    values = random.normal(size=(17, 5))
    values[random.random((17, 5)) < 0.4] = np.nan
    values[:, 4] = np.nan
    found = np.stack(_quartiles(jnp.asarray(values)))
    for column in range(4):
        expected = np.nanpercentile(values[:, column], (25, 50, 75), method="inverted_cdf")
        np.testing.assert_array_equal(found[:, column], expected)
    assert np.isnan(found[:, 4]).all()


def test_the_rolling_ridge_agrees_with_numpy():
    x, y = stream()
    x[5, 1] = y[ROWS - 40] = np.nan
    outcome, blocks = process(x, y), rolling_blocks(SPEC.rows)
    at = 1 + SPEC.reference_names.index("rolling_ridge")
    for first in (16, 32, 800, ROWS - 16):
        past, new = slice(max(first - 16 * blocks, 0), first), slice(first, first + 16)
        known = ~np.isnan(y[past])
        mean, spread = np.nanmean(x[past][known], axis=0), np.nanstd(x[past][known], axis=0)
        z = np.c_[np.nan_to_num((x - mean) / spread), np.ones(ROWS)]
        centre, scale = np.nanmean(y[past]), np.nanstd(y[past])
        weight = known / known.sum()
        fit = reference.weighted_fit(z[past], np.nan_to_num((y[past] - centre) / scale), weight, SPEC.ridge)
        np.testing.assert_allclose(outcome.predictions[at, new], z[new] @ fit * scale + centre, rtol=1e-6)


def test_units_survive_a_file_and_any_portions(tmp_path):
    from smoothfbo.stream.learner import files

    x, y = stream()
    thousandfold(x, y)
    rows = as_rows(x, y)
    whole, learner = Learner(SPEC).process(rows), Learner(SPEC)
    cut = EVENT + 100  # while it is odd
    one = learner.process(Rows(*(column[:cut] for column in rows)))
    files.save(tmp_path / "state", learner, {})
    two = files.load(tmp_path / "state")[0].process(Rows(*(column[cut:] for column in rows)))
    np.testing.assert_array_equal(np.concatenate([one.predictions, two.predictions], axis=1), whole.predictions)
    assert jax.tree.all(jax.tree.map(lambda leaf: bool(np.isfinite(leaf).all()), learner.state.references))


@pytest.mark.parametrize("is_classification", [False, True])
def test_the_first_state_has_the_types_of_all_later_ones(is_classification):
    """Else the program is compiled twice."""
    state = Learner(dataclasses.replace(SPEC, is_classification=is_classification)).state
    assert not [leaf for leaf in jax.tree.leaves(state) if leaf.weak_type]
