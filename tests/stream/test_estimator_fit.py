"""What the estimators' fit is: weights, coefficients, categories, intervals; single rows in NumPy; river's clone."""

import copy

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError

from smoothfbo.stream.estimators import StreamClassifier, StreamRegressor
from smoothfbo.stream.frames import FrameEncoder
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.single import SingleRows
from smoothfbo.stream.rows import Rows

OPTIONS = {"block": 8, "rates": 4, "smoothing": 3}
ROWS = 8 * 30 + 5


def data(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 3)) * [1, 10, 0.1] + 5
    return x, x @ [1.0, -0.2, 3.0] + 0.1 * random.normal(size=ROWS)


def named(row):
    return dict(zip("abc", row.tolist(), strict=True))


@pytest.fixture(scope="module")
def fitted():
    x, y = data()
    return StreamRegressor(**OPTIONS).fit(pd.DataFrame(x, columns=list("abc")), y)


def test_single_rows_give_the_numbers_of_many(fitted):
    x, _ = data(1)
    x[3, 1], x[4, 2], x[5, 0] = np.nan, 1e9, -1e9  # missing, and far from all else
    expected = fitted.predict(pd.DataFrame(x, columns=list("abc")))
    given = [fitted.predict_one(named(row)) for row in x[:20]]
    np.testing.assert_allclose(given, expected[:20], rtol=1e-12)
    assert abs(expected[5] - expected.mean()) < 10  # it did count as missing


def in_turns(model, rows, y, weight=None):
    """Predictions of all rows but the first, each before it is learnt; and what whole blocks give, compiled."""
    given = []
    for at, (row, target) in enumerate(zip(rows, y.tolist(), strict=True)):
        given += [model.predict_one(row)] if at else []
        model.learn_one(row, target, 1.0 if weight is None else weight[at])
    x = np.concatenate([model._row(row).features for row in rows])
    y = y if weight is None else np.where(weight > 0, y, np.nan)
    known = Rows(x, y, pd.Series(y).shift().ffill().to_numpy())
    return given, Learner(model.learned_.learner.spec).process(known, weight).predictions[0, 1:]


def test_rows_that_are_predicted_and_learnt_in_turns_give_the_numbers_of_a_file(monkeypatch):
    predicted = []
    original = SingleRows.predict
    monkeypatch.setattr(SingleRows, "predict", lambda *row: predicted.append(original(*row)) or predicted[-1])
    x, y = data(2)
    x[np.random.default_rng(3).random(x.shape) < 0.05] = np.nan
    x[100, 1], y[120], y[150] = 1e9, -1e7, np.nan  # far from all else, and missing
    x[180:, 0] /= 1000  # another unit
    y[90:] += 2
    y[200:] += 1e6  # the target moves for good
    given, expected = in_turns(StreamRegressor(**OPTIONS), [named(row) for row in x], y)
    np.testing.assert_allclose(given, expected, rtol=1e-9)
    assert sum(found is not None for found in predicted) > 200  # in NumPy
    weight = np.random.default_rng(4).choice([0.0, 0.5, 2.0], size=64)
    given, expected = in_turns(StreamRegressor(**OPTIONS), [named(row) for row in x[:64]], y[:64], weight)
    np.testing.assert_allclose(given, expected, rtol=1e-9)


def test_single_rows_trust_an_expert_that_begins_again():
    random, jump = np.random.default_rng(6), 8 * 66
    x = random.normal(size=(8 * 69, 3))
    y = np.where(np.arange(len(x)) < jump, 1, -4) * x[:, 0] + 0.3 * random.normal(size=len(x))
    model, given = StreamRegressor(**OPTIONS).fit(pd.DataFrame(x[:jump], columns=list("abc")), y[:jump]), []
    for row, target in zip(x[jump:], y[jump:].tolist(), strict=True):
        given.append(model.predict_one(named(row)))
        model.learn_one(named(row), target)
    expected = Learner(model.learned_.spec).process(Rows(x, y, np.r_[np.nan, y[:-1]])).predictions[0, jump:]
    np.testing.assert_allclose(given, expected, rtol=1e-9)


def test_a_single_row_is_predicted_wherever_the_block_stands(fitted):
    """Rows that are learnt without a prediction before them, and several that are predicted."""
    x, y = data(5)
    model = copy.deepcopy(fitted)
    for at in range(40):
        for other in range(at % 3):
            expected = model.predict(pd.DataFrame(x[at + other :][:1], columns=list("abc")))
            assert model.predict_one(named(x[at + other])) == pytest.approx(expected[0], rel=1e-9)
        model.learn_one(named(x[at]), y[at])


def test_coefficients_are_those_of_the_learned_memory(fitted):
    x, y = data()
    assert fitted.coef_.shape == (3,)
    frame = pd.DataFrame(x, columns=list("abc"))
    state = fitted.learned_.learner.state
    z = np.column_stack([(x - state.features.mean) / state.features.spread, np.ones(len(x))])
    fit = z @ np.ravel(state.learners.estimator.inner.params[0]) * state.target.spread[0] + state.target.mean[0]
    np.testing.assert_allclose(x @ fitted.coef_ + fitted.intercept_, fit, rtol=1e-10)
    np.testing.assert_allclose(fit, fitted.predict(frame), atol=0.2)  # an expert among others
    np.testing.assert_allclose(fitted.coef_, [1, -0.2, 3], rtol=0.05)
    classes = StreamClassifier(**OPTIONS).fit(frame, np.digitize(y, np.quantile(y, [0.25, 0.5, 0.75])))
    assert classes.coef_.shape == (4, 3)
    assert classes.intercept_.shape == (4,)
    np.testing.assert_allclose(classes.coef_.sum(axis=0), 0, atol=1e-9)  # scores add up to 1
    assert classes.intercept_.sum() == pytest.approx(1)
    with pytest.raises(AttributeError, match="once it has learnt, with the linear predictor"):
        _ = StreamRegressor().coef_


def test_weights_are_weights_of_the_fit():
    """After the first block every memory holds that block alone: a weighted ridge regression, in NumPy."""
    x, y = data()
    x, y = x[:8], y[:8]
    weight = np.array([1.0, 0, 2.5, 0.1, 7, 1, 1, 0.3])
    model = StreamRegressor(**OPTIONS).fit(x, y, sample_weight=weight)
    z = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(8)])
    centre, spread = y[weight > 0].mean(), y[weight > 0].std()  # a target of weight 0 has no part in anything
    goal, share = (y - centre) / spread, weight / weight.sum()
    solution = np.linalg.solve((z.T * share) @ z + 1e-3 * np.eye(4), (z.T * share) @ goal)
    np.testing.assert_allclose(x @ model.coef_ + model.intercept_, z @ solution * spread + centre, rtol=1e-9)
    rows = StreamRegressor(**OPTIONS)
    for row, value, importance in zip(x, y, weight, strict=True):
        rows.learn_one(named(row), value, importance)
    np.testing.assert_array_equal(rows.coef_, model.coef_)


def test_a_row_of_weight_0_counts_nothing():
    x, y = data()
    left_out = np.random.default_rng(4).random(ROWS) < 0.3
    weight, missing = np.where(left_out, 0.0, 1.0), np.where(left_out, np.nan, y)
    wrong = np.where(left_out, y.max() + 50, y)
    frame, rows = pd.DataFrame(x, columns=list("abc")), [named(row) for row in x]
    weighted, without = StreamRegressor(**OPTIONS), StreamRegressor(**OPTIONS)
    for row, value, known, importance in zip(rows, wrong, missing, weight, strict=True):
        weighted.learn_one(row, value, importance)
        without.learn_one(row, known)
    at_once = StreamRegressor(**OPTIONS).fit(frame, wrong, sample_weight=weight)
    expected = [without.predict_one(row) for row in rows[:9]]
    np.testing.assert_allclose(at_once.predict(frame[:9]), expected, rtol=1e-9)
    np.testing.assert_allclose([weighted.predict_one(row) for row in rows[:9]], expected, rtol=1e-9)
    assert np.mean((at_once.predict(frame) - y) ** 2) < 0.1
    classes = np.where(y > np.median(y), "up", "down")
    wrong = np.where(left_out, "wrong", classes)
    model = StreamClassifier(**OPTIONS).fit(x, wrong, sample_weight=weight)
    assert not (model.predict(x) == "wrong").any()


@pytest.mark.parametrize("estimator", [StreamRegressor, StreamClassifier])
def test_rows_without_a_target_that_counts_leave_nothing_to_predict_by(estimator):
    model, row = estimator(**OPTIONS), named(data()[0][0])
    for rows in range(ROWS):  # within the first block and beyond it
        model.learn_one(row, 3, 0.0)
        if rows in (0, ROWS - 1):
            assert model.predict_one(row) == (0.0 if estimator is StreamRegressor else None)
            with pytest.raises(NotFittedError, match="has seen rows, but no target that counts"):
                model.predict_many(pd.DataFrame([row]))
    model.learn_one(row, 3)
    assert model.predict_one(row) == pytest.approx(3, abs=1)


def test_weights_that_are_all_the_same_change_nothing_and_bad_ones_are_refused(tmp_path):
    x, y = data()
    plain = StreamRegressor(**OPTIONS).fit(x, y)
    same = StreamRegressor(**OPTIONS).fit(x, y, sample_weight=np.full(ROWS, 3.0))
    np.testing.assert_allclose(same.coef_, plain.coef_, rtol=1e-9)
    # With and without a weight, cut and saved in the middle of a block.
    weight = np.linspace(0.5, 2, ROWS)
    whole = StreamRegressor(**OPTIONS).fit(x, y, sample_weight=weight)
    parts = StreamRegressor(**OPTIONS).fit(x[:101], y[:101], sample_weight=weight[:101])
    parts.save(tmp_path / "model.state")
    parts = StreamRegressor.load(tmp_path / "model.state").partial_fit(x[101:], y[101:], sample_weight=weight[101:])
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    # A portion may come of which nothing counts.
    whole.partial_fit(x[:4], [1e6, 1e6, 1e6, y[3]], sample_weight=[0, 0, 0, 1])
    parts.partial_fit(x[:3], np.full(3, 1e6), sample_weight=np.zeros(3)).partial_fit(x[3:4], y[3:4])
    np.testing.assert_array_equal(parts.predict(x), whole.predict(x))
    for bad in (-1.0, np.inf):
        with pytest.raises(ValueError, match=r"finite|infinity"):
            plain.partial_fit(x[:1], y[:1], sample_weight=[bad])
        with pytest.raises(ValueError, match=f"finite and not negative, got {bad}"):
            plain.learn_one(named(x[0]), 1.0, bad)


def test_intervals_hold_what_they_promise():
    x, y = data()
    noise = np.random.default_rng(2).normal(size=ROWS)
    model, inside = StreamRegressor(**OPTIONS), []
    for at in range(ROWS):
        if at > 20:
            bands = [model.predict_interval(x[at : at + 1], level)[0] for level in (0.5, 0.8, 0.95)]
            assert bands[2][0] <= bands[1][0] <= bands[0][0] <= bands[0][1] <= bands[1][1] <= bands[2][1]
            inside.append([low <= y[at] + noise[at] <= high for low, high in bands])
        model.partial_fit(x[at : at + 1], y[at : at + 1] + noise[at])
    np.testing.assert_allclose(np.mean(inside, axis=0), [0.5, 0.8, 0.95], atol=0.06)
    assert model.predict_interval(x).shape == (ROWS, 2)
    with pytest.raises(ValueError, match=r"`level` must be one of 0.5, 0.8, 0.95, got 0.9"):
        model.predict_interval(x, level=0.9)


def test_text_and_categories_are_encoded_in_frames_and_rows(tmp_path):
    x, y = data()
    town = np.array(["Rome", "Oslo", "Lima"])[np.arange(ROWS) % 3]
    town[-20:] = "Cork"  # comes late
    effect = pd.Series({"Rome": 0.0, "Oslo": 5.0, "Lima": -3.0, "Cork": 9.0})
    y = y + effect[town].to_numpy()
    frame = pd.DataFrame(x, columns=list("abc")).assign(town=town)
    as_text = StreamRegressor(**OPTIONS).fit(frame, y)
    as_category = StreamRegressor(**OPTIONS).fit(frame.astype({"town": "category"}), y)
    np.testing.assert_array_equal(as_text.coef_, as_category.coef_)
    names = as_text.get_feature_names_out().tolist()
    assert names[:7] == ["a", "b", "c", "town=Rome", "town=Oslo", "town=Lima", "town=Cork"]
    assert as_text.n_features_in_ == 4
    gap = as_text.coef_[names.index("town=Oslo")] - as_text.coef_[names.index("town=Rome")]
    assert gap == pytest.approx(5, abs=0.3)
    rows = StreamRegressor(**OPTIONS)
    given, expected = in_turns(rows, frame.to_dict("records"), y)
    np.testing.assert_allclose(given, expected, rtol=1e-9)
    np.testing.assert_array_equal(rows.coef_, as_text.coef_)
    as_text.save(tmp_path / "model.state")
    loaded = StreamRegressor.load(tmp_path / "model.state")
    new = frame[:3].assign(town=["Oslo", None, "Nowhere"])
    np.testing.assert_array_equal(loaded.predict(new), as_text.predict(new))
    assert loaded.predict_one(new.iloc[0].to_dict()) == pytest.approx(as_text.predict(new)[0], rel=1e-12)


@pytest.fixture(scope="module")
def of_towns():
    x, y = data()
    frame = pd.DataFrame(x, columns=list("abc")).assign(town=np.array(["Rome", "Oslo", "Lima"])[np.arange(ROWS) % 3])
    return StreamRegressor(**OPTIONS).fit(frame, y), frame, y


def test_new_levels_in_a_prediction_take_no_room_from_those_that_are_learnt(of_towns):
    model, frame, y = of_towns
    asked, fresh = copy.deepcopy(model), copy.deepcopy(model)
    strangers = frame[:30].assign(town=[f"town {i}" for i in range(30)])
    together = asked.predict(strangers)
    one = asked.predict_one(strangers.iloc[29].to_dict())
    assert one == pytest.approx(together[29], rel=1e-12)  # whatever else is asked for
    later = frame[:40].assign(town=["Cork"] * 20 + ["Bern"] * 20)
    for other in (asked, fresh):
        other.partial_fit(later, y[:40] + 9.0 * (later.town == "Cork"))
    np.testing.assert_array_equal(asked.predict(later), fresh.predict(later))
    assert "town=Bern" in asked.get_feature_names_out()


def test_missing_values_and_other_types_of_the_same_columns_give_the_same_numbers(of_towns):
    model, frame, _ = of_towns
    some = frame[:4].assign(b=[1.0, np.nan, 3.5, 4.0], town=["Rome", None, "Oslo", "Lima"])
    expected = model.predict(some)
    np.testing.assert_array_equal(model.predict(some.convert_dtypes()), expected)  # Float64 and string, with pandas.NA
    np.testing.assert_array_equal(model.predict(some.astype(object)), expected)
    np.testing.assert_array_equal(model.predict(pa.Table.from_pandas(some)), expected)  # as polars: it has `to_pandas`
    row = some.convert_dtypes().astype(object).iloc[1].to_dict() | {"b": pd.NA}
    assert model.predict_one(row) == pytest.approx(expected[1], rel=1e-12)
    with pytest.raises(ValueError, match=r"give a data frame with the columns \['a', 'b', 'c', 'town'\]"):
        model.predict(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="Column 'b' must hold numbers, got str"):
        model.predict(some.assign(b="x"))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_text_in_the_types_of_arrow_is_text(kind):
    frame = pd.DataFrame({"town": pd.Series(["Rome", "Oslo", None], dtype=pd.ArrowDtype(kind))})
    encoder = FrameEncoder.of_frame(frame)
    assert encoder is not None
    found = encoder.frame(frame, learns=True)[:, :2]
    np.testing.assert_array_equal(found, [[1, 0], [0, 1], [np.nan, np.nan]])


def test_integers_that_became_floats_are_the_same_categories_and_names_may_be_numbers(tmp_path):
    x, y = data()
    code = np.arange(ROWS) % 3
    frame = pd.DataFrame(x)
    frame[3] = pd.Categorical(code)
    as_floats = frame.copy()
    as_floats[3] = pd.Categorical(code.astype(float))
    model = StreamRegressor(**OPTIONS).fit(frame, y + 5.0 * code)
    np.testing.assert_array_equal(model.predict(as_floats), model.predict(frame))
    model.save(tmp_path / "model.state")  # JSON makes text of the name 3
    np.testing.assert_array_equal(StreamRegressor.load(tmp_path / "model.state").predict(frame), model.predict(frame))


def test_after_a_missing_target_the_last_value_is_the_last_that_is_known(fitted):
    x, _ = data(1)
    before = copy.deepcopy(fitted).learn_one(named(x[0]), 20.0)
    for missing in (float("nan"), None, pd.NA):
        after = copy.deepcopy(before).learn_one(named(x[1]), missing)
        assert after.learned_.previous == 20.0
        assert after.predict_one(named(x[2])) == pytest.approx(before.predict_one(named(x[2])), rel=1e-9)


def test_parameters_that_changed_after_rows_were_learnt_are_refused_until_it_starts_anew(fitted):
    x, _ = data()
    model = copy.deepcopy(fitted).set_params(ridge=5.0)
    with pytest.raises(ValueError, match=r"`ridge` is 5.0, but it has learnt with 0.001"):
        model.learn_one(named(x[0]), 1.0)
    assert model.set_params(ridge=1e-3).learn_one(named(x[0]), 1.0) is model


def test_rivers_clone(fitted):
    fresh = fitted.clone({"step": 0.25})
    assert fresh.get_params() == fitted.get_params() | {"step": 0.25}
    assert fresh.predict_one({"a": 1.0}) == 0.0
    same = fitted.clone(include_attributes=True)
    x, _ = data(1)
    row = named(x[0])
    assert same.predict_one(row) == fitted.predict_one(row)
    same.learn_one(row, 100.0)
    assert len(same.learned_.learner.pending.target) == len(fitted.learned_.learner.pending.target) + 1
    assert copy.deepcopy(fitted).predict_one(row) == fitted.predict_one(row)
