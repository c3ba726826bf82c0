"""Products of columns: which there are, and their fits against NumPy, from the formulas."""

import jax.numpy as jnp
import numpy as np
import pytest

from smoothfbo.stream.estimators import StreamRegressor
from smoothfbo.stream.learner import products
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.random_features import MEMORY, RESTORED, RIDGE
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.rows import Rows

BLOCK = 8
# Two numbers, a binary column, and a lag, which is not multiplied.
SPEC = Specification(
    features=4, outputs=1, is_classification=False, block=BLOCK, rates=5, windows=(2,), lags=(3, 4), own=(-1, -1, -1)
)


def listed(places, seed=0):
    chosen = products.choose(places, seed)
    return list(zip(*(part.tolist() for part in chosen), strict=True))


def test_all_products_of_few_columns():
    found = listed((-1, -1, -1))
    pairs = [(0, 1), (0, 2), (1, 2)]
    switches = [(i, j) for i in range(3) for j in range(3)]
    assert sorted(found) == sorted([(*pair, False) for pair in pairs] + [(*pair, True) for pair in switches])
    assert all(i != j for i, j, _ in found[-6:])  # a switch of another column comes last


def test_of_many_columns_the_first_levels_of_text_come_first():
    numbers, levels = 5, 9
    places = (-1,) * numbers + tuple(range(levels)) * 2  # two text columns
    found = listed(places)
    assert len(found) == products.COUNT == len(set(found))
    assert found != listed(places, seed=1)
    for i, j, is_switch in found:
        assert not is_switch or max(i, j) < numbers  # a level is a switch already
        assert i < numbers or (i < numbers + levels <= j)  # two levels of one column are never there at once
    pairs = {pair[:2] for pair in found if not pair[2]}
    for place in range(3):
        assert {(i, numbers + column * levels + place) for i in range(numbers) for column in range(2)} <= pairs


@pytest.mark.parametrize(
    ("own", "is_classification", "expected"),
    [
        ((-1, -1), False, True),
        ((-1,), False, False),
        ((0, 1, 2), False, False),
        ((0, 1, 2, -1), False, True),
        ((0, 1, 0, 1), False, True),
        ((-1, -1), True, False),
        ((), False, False),
    ],
)
def test_two_columns_of_numbers_are_needed(own, is_classification, expected):
    spec = Specification(features=9, outputs=1, is_classification=is_classification, own=own)
    assert spec.has_products is expected
    assert ("products" in spec.expert_names) is expected
    assert not expected or listed(own)


def expanded(z):
    """(z, 1, products) by hand, in the order of `choose`."""
    columns = [z, np.ones((len(z), 1))]
    for i, j, is_switch in listed(SPEC.own):
        limit = 1.0 if is_switch else 2.0
        columns.append((np.clip(z[:, i], -limit, limit) * np.clip(z[:, j], -2, 2))[:, None])
    return np.concatenate(columns, axis=1)


def stream(rows, seed=0):
    """A binary column says which of two laws holds."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 4)) * [3, 0.2, 1, 1]
    x[:, 2] = x[:, 2] > 0
    y = np.where(x[:, 2] > 0, x[:, 0], -x[:, 0] + 10 * x[:, 1]) + 0.1 * random.normal(size=rows)
    x[:, 3] = np.r_[0, y[:-1]]
    return x, y


def test_products_learn_what_is_left_over_with_a_refit_after_every_row():
    x, y = stream(BLOCK * 12)
    y[35] = np.nan
    previous = np.r_[np.nan, y[:-1]]
    previous[36] = y[34]
    x[36, 3] = y[34]
    predictions = Learner(SPEC).process(Rows(x, y, previous)).predictions
    names = ("smoothfbo", *SPEC.reference_names)
    unit = y[:BLOCK].std()
    linear = predictions[names.index("all_past")]  # the longest memory of so short a ladder
    for name, base in (("products", linear), ("products_difference", previous)):
        predicted, size = predictions[names.index(name)], expanded(x).shape[1]
        information, right, kept = RIDGE * np.eye(size), np.zeros(size), 1 - 1 / MEMORY
        for start in range(0, len(x), BLOCK):
            information, right = kept * information, kept * right
            for at in range(start, start + BLOCK) if start else ():  # the first block has no standard units yet
                z = (x[at : at + 1] - x[:start].mean(axis=0)) / x[:start].std(axis=0)
                phi = expanded(np.clip(z, -10, 10))[0]
                expected = base[at] + unit * (phi @ np.linalg.solve(information, right))
                np.testing.assert_allclose(predicted[at], expected, rtol=1e-7, err_msg=f"{name}, row {at}")
                if not np.isnan(y[at]):
                    information += np.outer(phi, phi)
                    right += phi * (y[at] - base[at]) / unit
            for j in (start // BLOCK * RESTORED + np.arange(RESTORED)) % size:
                information[j, j] += RIDGE * (1 - kept) * size / RESTORED
    error = np.nanmean((predictions[:, -3 * BLOCK :] - y[-3 * BLOCK :]) ** 2, axis=1)
    assert error[names.index("products")] < 0.3 * error[names.index("all_past")]


def test_the_features_agree_with_numpy():
    z = 2 * np.random.default_rng(1).normal(size=(50, 4))
    found = products.multiply(jnp.asarray(np.c_[z, np.ones(50)]), products.choose(SPEC.own, SPEC.seed))
    np.testing.assert_allclose(found, expanded(z), rtol=1e-12)


def test_single_rows_and_many_are_the_same_numbers():
    x, y = stream(BLOCK * 9 + 5)
    one, many = StreamRegressor(block=BLOCK, rates=5), StreamRegressor(block=BLOCK, rates=5)
    weights = np.random.default_rng(2).uniform(0.5, 2, len(y))
    for at, row in enumerate(x):
        if at > 1:
            found = one.predict_one(dict(enumerate(row)))
            assert found == pytest.approx(many.predict(x[at : at + 1])[0], rel=1e-9), at
        one.learn_one(dict(enumerate(row)), y[at], weights[at])
        many.partial_fit(x[at : at + 1], y[at : at + 1], sample_weight=weights[at : at + 1])
    assert "products" in one.learned_.learner.spec.expert_names
