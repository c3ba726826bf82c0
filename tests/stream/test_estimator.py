"""The estimators: both conventions, the same learner, one file."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.utils import estimator_checks

from smoothfbo.errors import UsageError
from smoothfbo.stream.estimators import StreamClassifier, StreamRegressor

OPTIONS = {"block": 8, "rates": 4, "smoothing": 3}


def data(rows=203, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3)) * [1, 10, 0.1] + 5
    return x, x @ [1.0, -0.2, 3.0] + 0.1 * random.normal(size=rows)


def one_by_one(model, x, y):
    predictions = []
    for row, value in zip(x, y, strict=True):
        named = dict(zip("abc", row.tolist(), strict=True))
        predictions.append(model.predict_one(named))
        model.learn_one(named, value)
    return predictions


def test_one_row_or_many_the_predictions_are_the_same():
    x, y = data()
    rows = one_by_one(StreamRegressor(**OPTIONS), x, y.tolist())
    many, frames = StreamRegressor(**OPTIONS), StreamRegressor(**OPTIONS)
    frame, at = pd.DataFrame(x, columns=list("abc")), 0
    for size in (3, 5, 40, 1, 100, 54):
        part = slice(at, at + size)
        if at:
            assert many.predict(x[part])[0] == pytest.approx(rows[at], rel=1e-12)
            named = frames.predict_many(frame[part])
            assert named.iloc[0] == many.predict(x[part])[0]
            assert named.index.equals(frame.index[part])
        many.partial_fit(x[part], y[part])
        frames.learn_many(frame[part], pd.Series(y)[part])
        at += size
    assert np.mean((np.array(rows)[100:] - y[100:]) ** 2) < 0.05


def test_predicting_changes_nothing():
    x, y = data()
    model = StreamRegressor(**OPTIONS).fit(x, y)
    np.testing.assert_array_equal(model.predict(x), model.predict(x))
    assert model.predict(x[:5]) == pytest.approx(model.predict(x)[:5], rel=1e-12)
    np.testing.assert_array_equal(model.fit(x, y).predict(x), StreamRegressor(**OPTIONS).fit(x, y).predict(x))
    assert model.weights.sum() == pytest.approx(1)


def test_classes_may_be_anything_and_come_later():
    x, y = data()
    labels = np.where(y > np.median(y), "up", "down").astype("U6")
    labels[100:] = np.where(x[100:, 1] > 12, "far up", labels[100:])
    model = StreamClassifier(**OPTIONS)
    guesses = one_by_one(model, x, labels.tolist())
    assert guesses[0] is None
    assert set(guesses[8:100]) <= {"up", "down"}
    assert model.classes_.tolist() == [*dict.fromkeys(labels.tolist())]
    assert np.mean(np.array(guesses[150:]) == labels[150:]) > 0.75
    shares = model.predict_proba_one(dict(zip("abc", x[0], strict=True)))
    assert sum(shares.values()) == pytest.approx(1)
    batch = StreamClassifier(**OPTIONS).partial_fit(x, labels, classes=["down", "far up", "up", "sideways"])
    assert batch.classes_.tolist() == ["down", "far up", "sideways", "up"]
    assert batch.predict_proba(x).shape == (203, 4)
    assert np.mean(batch.predict(x) == labels) > 0.6


@pytest.mark.parametrize("kind", [str, object])
def test_new_classes_are_numbered_as_they_appear_in_any_portions(kind):
    x, _ = data(40)
    y = np.array([*"ab" * 8, "z", "c", "z", "y", "c", *"abz" * 6, "b"], kind)
    whole = StreamClassifier(block=8, rates=4).partial_fit(x[:16], y[:16]).partial_fit(x[16:], y[16:])
    rows = StreamClassifier(block=8, rates=4).partial_fit(x[:16], y[:16])
    for at in range(16, 40):
        rows.partial_fit(x[at : at + 1], y[at : at + 1])
    assert whole.classes_.tolist() == rows.classes_.tolist() == ["a", "b", "z", "c", "y"]
    np.testing.assert_array_equal(whole.predict_proba(x), rows.predict_proba(x))


@pytest.mark.parametrize(("classes", "slope"), [(2, 1.0), (2, 4.0), (4, 2.0)])
def test_probabilities_are_nearly_those_of_a_logistic_regression(classes, slope):
    random = np.random.default_rng(0)
    x = random.normal(size=(6_000, 3))
    weights = slope * random.normal(size=(3, classes))
    y = np.argmax(x @ weights + random.gumbel(size=(6_000, classes)), axis=1)
    model = StreamClassifier(**OPTIONS).fit(x[:3_000], y[:3_000])
    shares = model.predict_proba(x[3_000:])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert shares.min() > 0
    assert shares.max() < 1
    np.testing.assert_array_equal(shares.argmax(axis=1), model.predict(x[3_000:]))
    right = LogisticRegression(C=100).fit(x[:3_000], y[:3_000]).predict_proba(x[3_000:])
    assert log_loss(y[3_000:], shares) < 1.1 * log_loss(y[3_000:], right)


def test_missing_features_are_allowed():
    x, y = data()
    x[::7, 1] = np.nan
    model = StreamRegressor(**OPTIONS).fit(x, y)
    assert np.isfinite(model.predict(x)).all()
    one = StreamRegressor(**OPTIONS)
    one_by_one(one, x, y.tolist())
    assert np.isfinite(one.predict_one({"a": 1.0, "unknown": 3.0, "c": None}))


@pytest.mark.parametrize("kind", [StreamRegressor, StreamClassifier])
def test_a_saved_estimator_goes_on_as_if_not_interrupted(tmp_path, kind):
    x, y = data()
    y = y if kind is StreamRegressor else np.where(y > np.median(y), 1, 0)
    whole = one_by_one(kind(**OPTIONS), x, y.tolist())
    first = kind(**OPTIONS)
    one_by_one(first, x[:77], y[:77].tolist())
    first.save(tmp_path / "model.state")
    assert one_by_one(kind.load(tmp_path / "model.state"), x[77:], y[77:].tolist()) == whole[77:]
    assert one_by_one(pickle.loads(pickle.dumps(first)), x[77:], y[77:].tolist()) == whole[77:]
    other = StreamClassifier if kind is StreamRegressor else StreamRegressor
    with pytest.raises(UsageError, match=f"holds a {kind.__name__} learner, not a {other.__name__}"):
        other.load(tmp_path / "model.state")


def test_mistakes_are_named():
    x, y = data()
    with pytest.raises(ValueError, match="has not learnt anything yet"):
        StreamRegressor().predict(x)
    model = StreamRegressor(**OPTIONS).fit(x, y)
    with pytest.raises(ValueError, match="2 features, but StreamRegressor is expecting 3"):
        model.predict(x[:, :2])
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.full((1, 3), np.inf), [1.0])
    with pytest.raises(ValueError, match="columns have no names"):
        model.predict_one({"a": 1.0})
    with pytest.raises(ValueError, match="must be numbers, or text from the first row on"):
        StreamRegressor().learn_one({"a": 1.0}, 1.0).learn_one({"a": "red"}, 1.0)
    with pytest.raises(ValueError, match="features must be finite"):
        StreamRegressor().learn_one({"a": float("inf")}, 1.0)
    with pytest.raises(ValueError, match="target must be finite"):
        StreamRegressor().learn_one({"a": 1.0}, float("-inf"))
    with pytest.raises(ValueError, match=r"target must be a number, or None where it is missing, got .*'high'"):
        StreamRegressor().learn_one({"a": 1.0}, "high")
    with pytest.raises(ValueError, match="must lie within ±1e"):
        model.partial_fit(x[:2], [1.0, 1e200])
    with pytest.raises(ValueError, match="must lie within ±1e"):
        model.partial_fit(np.full((1, 3), -1e200), [1.0])
    with pytest.raises(ValueError, match="Classes must be all text or all numbers, got 'a' and 2"):
        StreamClassifier(**OPTIONS).fit(x[:2], np.array(["a", 2], dtype=object))
    with pytest.raises(ValueError, match="a mapping of names to values, such as a dict, got list"):
        StreamRegressor().learn_one([1.0], 1.0)
    with pytest.raises(ValueError, match=r"nowhere.state does not exist"):
        StreamRegressor.load("nowhere.state")


def test_what_cannot_be_learnt_leaves_nothing_behind():
    x, y = data()
    model = StreamRegressor(**OPTIONS)
    with pytest.raises(ValueError, match="features must be finite"):
        model.learn_one({"a": 1.0, "typo": float("inf")}, 1.0)
    one_by_one(model, x[:20], y[:20])
    assert model.features_ == ["a", "b", "c"]
    labels = np.where(y > np.median(y), "up", "down")
    model = StreamClassifier(**OPTIONS).fit(x, labels)
    with pytest.raises(ValueError, match="not negative"):
        model.partial_fit(x[:2], ["new", "up"], sample_weight=[-1.0, 1.0])
    with pytest.raises(ValueError, match="all text or all numbers, got 'down' and 1"):
        model.partial_fit(x[:2], [1, 0])
    for missing in (None, float("nan")):
        with pytest.raises(ValueError, match="Every row needs a class"):
            StreamClassifier(**OPTIONS).learn_one({"a": 1.0}, missing)
    assert model.classes_.tolist() == ["down", "up"]


def test_a_first_frame_or_row_that_cannot_be_learnt_from_is_named():
    x, y = data()
    frame = pd.DataFrame(x[:, :2], columns=["a", "b"])
    with pytest.raises(ValueError, match="no column of features, so there is nothing to learn from"):
        StreamRegressor(**OPTIONS).fit(frame[[]], y)
    with pytest.raises(ValueError, match="Column 'a' appears twice in the data frame"):
        StreamRegressor(**OPTIONS).fit(frame.set_axis(["a", "a"], axis=1), y)
    with pytest.raises(ValueError, match="Column 'when' holds times; make them numbers"):
        StreamRegressor(**OPTIONS).fit(frame.assign(when=pd.date_range("2024", periods=len(frame))), y)
    with pytest.raises(ValueError, match="Column 'day' must hold numbers, got date"):
        StreamRegressor(**OPTIONS).fit(frame.assign(day=pd.date_range("2024", periods=len(frame)).date), y)
    with pytest.raises(ValueError, match="Column 'list' must hold numbers, got list"):
        StreamRegressor(**OPTIONS).fit(frame.assign(list=[[1]] * len(frame)), y)
    with pytest.raises(ValueError, match="first row has no features"):
        StreamRegressor(**OPTIONS).learn_one({}, 1.0)


def test_without_scikit_learn_one_line_says_what_to_install():
    program = "import sys; sys.modules['sklearn.base'] = None\nimport smoothfbo; smoothfbo.StreamRegressor"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'smoothfbo[experiments]'" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("predictor", "netwrok", "one of linear, network"),
        ("step", -1, "positive and finite"),
        ("step", "large", "positive and finite"),
        ("block", 2.5, "an integer between 2 and 100000"),
        ("rates", 1, "an integer between 2 and 20"),
        ("seed", -1, "an integer between 0"),
    ],
)
def test_options_are_checked_when_it_starts(as_users_call, option, value, allowed):
    x, y = data(20)
    model = StreamRegressor(**{option: value})  # scikit-learn: the constructor only stores
    for start in (lambda: model.fit(x, y), lambda: model.learn_one({"a": 1.0}, 1.0)):
        with pytest.raises(ValueError, match=allowed) as caught:
            start()
        assert str(caught.value).startswith(f"`{option}` must be")
        assert "--" not in str(caught.value)


@pytest.mark.parametrize("start", ["frame", "rows"])
def test_a_loaded_estimator_knows_the_names_of_its_features(tmp_path, start):
    x, y = data()
    frame = pd.DataFrame(x, columns=list("abc"))
    model = StreamRegressor(**OPTIONS)
    if start == "frame":
        model.fit(frame, y)
    else:
        one_by_one(model, x, y.tolist())
    model.save(tmp_path / "model.state")
    loaded = StreamRegressor.load(tmp_path / "model.state")
    assert loaded.feature_names_in_.tolist() == list("abc")
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="same order"):
        loaded.predict(frame[["c", "a", "b"]])
    row = frame[["c", "a", "b"]].iloc[0].to_dict()
    assert loaded.predict_one(row) == pytest.approx(loaded.predict(frame)[0], rel=1e-12)


# A choice: all of them take minutes, because every number of features is a compilation (`make estimators`).
CHECKS = (
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_estimators_unfitted",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_sparse_tag",
    "check_n_features_in",
    "check_fit1d",
    "check_fit2d_predict1d",
    "check_estimators_empty_data_messages",
    "check_dict_unchanged",
    "check_fit_idempotent",
)


OTHER_SHAPES = {
    StreamRegressor: ("check_n_features_in", "check_fit_idempotent"),
    StreamClassifier: (
        "check_n_features_in",
        "check_fit_idempotent",
        "check_fit2d_predict1d",
        "check_dict_unchanged",
    ),
}


@pytest.mark.parametrize(
    ("kind", "checks"),
    [
        *((kind, sorted({*CHECKS} - {*others})) for kind, others in OTHER_SHAPES.items()),
        *(pytest.param(kind, others, marks=pytest.mark.thorough) for kind, others in OTHER_SHAPES.items()),
    ],
)
def test_scikit_learns_rules(kind, checks):
    chosen = [
        (estimator, check)
        for estimator, check in estimator_checks.estimator_checks_generator(kind(**OPTIONS))
        if check.func.__name__ in checks
    ]
    assert len(chosen) >= len(checks) - 3
    for estimator, check in chosen:
        check(estimator)
