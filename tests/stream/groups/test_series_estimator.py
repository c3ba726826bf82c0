"""Many series as one estimator: every series as if it had an estimator of its own."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from smoothfbo import SeriesClassifier, SeriesRegressor, StreamRegressor
from smoothfbo.errors import UsageError

# As in test_estimator.py, and as many features: the learner of one series compiles once for both files.
OPTIONS = {"block": 8, "rates": 4, "smoothing": 3}


def table(rows, shops=3, seed=0):
    """Shops in random order, each with its own law; shop 2 comes late."""
    random = np.random.default_rng(seed)
    shop = random.integers(0, shops, rows)
    shop[: rows // 3] %= 2
    frame = pd.DataFrame(random.normal(size=(rows, 3)), columns=["x", "z", "none"]).assign(shop=shop)
    return frame, 10.0**shop * (frame.x - shop * frame.z + 0.1 * random.normal(size=rows)).to_numpy()


def alone(model, frame, y, until):
    """The places of the rows from `until` on, series by series, their features, and an estimator of that series."""
    for shop in sorted(set(frame.shop[until:])):
        before, after = ((frame.shop == shop) & part for part in (frame.index < until, frame.index >= until))
        features = frame.drop(columns="shop")
        yield np.flatnonzero(after[until:]), features[after], model.fit(features[before], y[before])


def test_every_series_is_predicted_as_if_it_were_alone_and_goes_on_after_it_was_saved(tmp_path):
    frame, y = table(90)
    model = clone(SeriesRegressor("shop", **OPTIONS)).fit(frame[:31], y[:31])
    model.save(tmp_path / "shops.state")
    for start, stop in ((31, 32), (32, 50), (50, 70)):  # any portions
        model.partial_fit(frame[start:stop], y[start:stop])
    resumed = SeriesRegressor.load(tmp_path / "shops.state").partial_fit(frame[31:70], y[31:70])
    predictions, bands = model.predict(frame[70:]), model.predict_interval(frame[70:], level=0.95)
    np.testing.assert_array_equal(resumed.predict(frame[70:]), predictions)
    np.testing.assert_array_equal(resumed.predict_interval(frame[70:], level=0.95), bands)
    assert resumed.series_ == model.series_
    assert set(model.series_) == {"0", "1", "2"}
    for place, features, one in alone(StreamRegressor(**OPTIONS), frame, y, 70):
        np.testing.assert_allclose(predictions[place], one.predict(features), rtol=1e-9)
        np.testing.assert_allclose(bands[place], one.predict_interval(features, level=0.95), rtol=1e-9)
    # A row of a mapping is the row of a frame.
    row = frame.iloc[70].to_dict() | {"shop": int(frame.shop[70])}
    assert model.predict_one(row) == predictions[0]
    # Integers become floats where a value is missing; they are the same series.
    assert model.predict_one(row | {"shop": float(frame.shop[70])}) == predictions[0]
    np.testing.assert_array_equal(model.predict(frame[70:].astype({"shop": float})), predictions)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(frame[70:]), predictions)
    # A missing target leaves the last value that is known.
    other = copy.deepcopy(model).learn_one(row, 1e3).learn_one(row, float("nan"))
    assert other.learned_.previous[model.series_.index(str(row["shop"]))] == 1e3
    assert model.predict_one(row | {"shop": 9}) == 0.0
    model.learn_one(row, y[70])
    resumed.partial_fit(frame[70:71], y[70:71])
    np.testing.assert_array_equal(model.predict(frame[71:]), resumed.predict(frame[71:]))
    with pytest.raises(ValueError, match="Nothing was learnt of the series '9'"):
        model.predict(frame[:1].assign(shop=9))
    with pytest.raises(AttributeError, match="coefficients of its own"):
        _ = model.coef_
    with pytest.raises(UsageError, match="holds a SeriesRegressor learner, not a SeriesClassifier"):
        SeriesClassifier.load(tmp_path / "shops.state")


def test_classes_that_come_later_are_learnt_in_all_series():
    frame, y = table(60, shops=2)
    names = np.array(["low", "middle", "high"])[np.digitize(y / 10.0**frame.shop, [-1, 1])]
    early = np.flatnonzero(names[:30] != "middle")
    model = SeriesClassifier(["shop"], **OPTIONS).fit(frame.iloc[early], names[early])
    model.partial_fit(frame[30:50], names[30:50])
    assert model.classes_.tolist() == ["high", "low", "middle"]
    assert set(model.series_) == {("0",), ("1",)}
    shares = model.predict_proba(frame[50:])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.mean(model.predict(frame[50:]) == names[50:]) > 0.5
    assert (model.predict(frame[50:]) == "middle").any()


def test_a_series_without_a_target_yet_has_no_prediction():
    features = {"none": 0.0, "x": 1.0, "z": 0.0}  # as many as above: the same compiled programs
    model = SeriesRegressor("shop", **OPTIONS)
    for shop, y in (("a", 1.0), ("b", None)):
        model.learn_one({"shop": shop, **features}, y)
    assert [model.predict_one({"shop": shop, **features}) for shop in "abc"] == [1.0, 0.0, 0.0]
    for shop in "bc":
        with pytest.raises(ValueError, match=f"Nothing was learnt of the series '{shop}'; a row with a target"):
            model.predict(pd.DataFrame([{"shop": shop, **features}]))
    classifier = SeriesClassifier("shop", **OPTIONS)
    classifier.learn_one({"shop": "a", **features}, "up")
    assert [classifier.predict_proba_one({"shop": shop, **features}) for shop in "ab"] == [{"up": 1.0}, {}]


def test_what_is_wrong_is_said_before_anything_is_learnt():
    frame, y = table(6)
    model = SeriesRegressor(["shop", "town"], **OPTIONS)
    with pytest.raises(ValueError, match="no column 'town'"):
        model.fit(frame, y)
    with pytest.raises(ValueError, match="Column 'town' has no value in row 2"):
        model.fit(frame.assign(town=["a", None, "a", "a", "b", "b"]), y)
    with pytest.raises(TypeError, match="data frame with shop, town, got ndarray"):
        model.fit(frame.to_numpy(), y)
    with pytest.raises(ValueError, match="have no weights"):
        model.fit(frame.assign(town="a"), y, sample_weight=np.ones(6))
    with pytest.raises(NotFittedError):
        model.save("nowhere")
    assert model.predict_one({"shop": 1, "town": "a"}) == 0.0
    with pytest.raises(ValueError, match="The row has no 'town'"):
        model.learn_one({"shop": 1, "town": float("nan"), "x": 1.0}, 1.0)
    for by in ([], ["shop", "shop"]):
        with pytest.raises(ValueError, match="`by` must be a column, or a list of different columns"):
            SeriesRegressor(by, **OPTIONS).fit(frame, y)
