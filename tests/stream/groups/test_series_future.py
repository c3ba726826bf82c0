"""Many series: what is predicted of a row depends on no target that is not known yet, of its own series or another."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
from stream_rows import KeptTables

from smoothfbo import SeriesClassifier, SeriesRegressor
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.groups import pipeline
from smoothfbo.stream.groups.learners import SeriesLearners
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.reading import reader
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.segments import segments_of

OPTIONS = {"block": 8, "rates": 4, "smoothing": 3}
# That of an estimator for three columns: its programs are compiled once for all files.
CLASSES = Specification(
    features=3, outputs=1, is_classification=True, with_references=False, own=(-1, -1, -1), **OPTIONS
)
LATE = dataclasses.replace(CLASSES, delay=2, horizon=9)
SPECS = [pytest.param(CLASSES, id="at once"), pytest.param(LATE, id="late", marks=pytest.mark.thorough)]
ROWS = 150


def data():
    """Rows of three series, mixed; from row 40 on with a third class, in the last series never."""
    random = np.random.default_rng(0)
    series, x = random.integers(0, 3, ROWS), random.normal(size=(ROWS, 3))
    y = (x[:, 0] > 0).astype(float)
    y[40:][(x[40:, 1] > 0.7) & (series[40:] != 2)] = 2
    return series, x, y


def other_targets(y, at):
    """Other classes from row `at` on, of which some are new."""
    changed = y.copy()
    changed[at:] = np.where(np.arange(len(y) - at) % 3 == 0, 5, 1 - y[at:].clip(0, 1))
    return changed


def rows_of(series, x, y, delay):
    """Every row knows the target of the row of its series that is `delay` + 1 before."""
    previous = np.full(len(y), np.nan)
    for number in np.unique(series):
        here = np.flatnonzero(series == number)
        previous[here[delay + 1 :]] = y[here[: -delay - 1]]
    return Rows(x, y, previous)


def process(spec, series, x, y, portion):
    """Predictions and probabilities, row by row, padded to eight classes; and the learners."""
    learners, found = SeriesLearners(spec), []
    rows = rows_of(series, x, y, spec.horizon if spec.delay else 0)
    for start in range(0, len(y), portion):
        segments = segments_of(series[start : start + portion])
        outcome = learners.process(Rows(*(c[start : start + portion][segments.order] for c in rows)), segments)
        scores = np.pad(outcome.scores, ((0, 0), (0, 8 - outcome.scores.shape[1])))
        found.append(segments.in_table_order(np.concatenate([outcome.predictions[:1].T, scores], axis=1)))
    return np.concatenate(found), learners


@pytest.mark.parametrize("spec", SPECS)
def test_targets_that_are_not_known_yet_change_no_prediction_and_no_probability(spec):
    series, x, y = data()
    expected, whole = process(spec, series, x, y, ROWS)
    for portion in (7, 64):
        found, learners = process(spec, series, x, y, portion)
        np.testing.assert_array_equal(found, expected, err_msg=portion)
        for name, values in learners.arrays(3).items():
            np.testing.assert_array_equal(values, whole.arrays(3)[name], err_msg=name)
    for at, portion in ((30, ROWS), (61, 50), (101, ROWS), (102, ROWS), (103, 50)):
        found, _ = process(spec, series, x, other_targets(y, at), portion)
        np.testing.assert_array_equal(found[: at + 1], expected[: at + 1], err_msg=f"{at}, {portion}")
    # The targets of other series, also those before, are nothing to a series.
    found, _ = process(spec, series, x, np.where(series == 0, other_targets(y, 20), y), ROWS)
    np.testing.assert_array_equal(found[series > 0], expected[series > 0])
    assert (found[series == 0] != expected[series == 0]).any()


@pytest.mark.parametrize("spec", SPECS)
def test_a_series_with_new_classes_is_what_it_is_alone(spec):
    series, x, y = data()
    found, learners = process(spec, series, x, y, 50)
    for number in range(3):
        here = series == number
        alone = Learner(spec)
        outcome = alone.process(rows_of(series[here], x[here], y[here], spec.horizon if spec.delay else 0))
        np.testing.assert_allclose(found[here][:, 0], outcome.predictions[0], rtol=1e-9)
        np.testing.assert_allclose(found[here][:, 1 : 1 + outcome.scores.shape[1]], outcome.scores, atol=1e-9)
        assert learners.states.outputs[number] == alone.spec.outputs
    assert learners.states.outputs[:3].tolist() == [3, 3, 1]


def frame_of(series, x, y, names):
    return pd.DataFrame(x, columns=["a", "b", "c"]).assign(shop=series, y=np.asarray(names)[y.astype(int)])


def test_in_a_table_later_targets_change_no_row_before(tmp_path, monkeypatch):
    """Classes and numbers; the kinds of the columns are those of the first rows, which stay as they are."""
    monkeypatch.setattr(reader, "FIRST_ROWS", 24)
    series, x, y = data()

    def predictions(y, names, portion):
        frame_of(series, x, y, names).to_csv(tmp_path / "table.csv", index=False)
        monkeypatch.setattr(pipeline, "FIRST_PIECE", portion)
        monkeypatch.setattr(pipeline, "PIECE", portion)
        sink = KeptTables()
        config = StreamConfig(
            str(tmp_path / "table.csv"), "y", by=("shop",), lags=0, windows=(), references=False, **OPTIONS
        )
        assert pipeline.run_series(config, sink)[0].fault is None
        return sink.frame().sort_values("row", ignore_index=True).drop(columns="target")

    for names in (list("stuvwx"), [0.25, 1.5, 2.75, 3.0, 4.0, 1e6]):
        expected = predictions(y, names, ROWS)
        pd.testing.assert_frame_equal(predictions(y, names, 37), expected, check_exact=True)
        for at, portion in ((61, ROWS), (101, 64)):
            found = predictions(other_targets(y, at), names, portion)
            before = slice(0, at)  # the probability of row `at` is that of its class
            pd.testing.assert_frame_equal(found[before], expected[before], check_exact=True)
            assert found["prediction"][at] == expected["prediction"][at]


def test_in_python_portions_and_targets_of_other_series_change_nothing():
    series, x, y = data()
    names = list("stuvwx")
    frame = frame_of(series, x, y, names).drop(columns="y")
    ahead = frame[-20:]

    def model_of(kind, y, portion):
        """Learnt in portions of so many rows, after a first one with two classes."""
        targets, model = np.asarray(names)[y.astype(int)] if kind is SeriesClassifier else y, kind("shop", **OPTIONS)
        for start, stop in itertools.pairwise([0, *range(30, ROWS, portion), ROWS]):
            model.partial_fit(frame[start:stop], targets[start:stop])
        return model

    whole = model_of(SeriesClassifier, y, ROWS)
    expected, classes = whole.predict_proba(ahead), whole.classes_.tolist()
    for portion in (7, 61):
        model = model_of(SeriesClassifier, y, portion)
        np.testing.assert_array_equal(model.predict_proba(ahead), expected)
        np.testing.assert_array_equal(model.predict(ahead), whole.classes_[expected.argmax(axis=1)])
    changed, is_other = np.where(series == 0, other_targets(y, 31), y), ahead["shop"].to_numpy() != 0
    model = model_of(SeriesClassifier, changed, 61)
    places = [model.classes_.tolist().index(name) for name in classes]  # by appearance, in any series
    known = model.predict_proba(ahead)[is_other][:, places]
    np.testing.assert_allclose(known / known.sum(axis=1, keepdims=True), expected[is_other], atol=3e-6)
    numbers = [model_of(SeriesRegressor, each, 61).predict(ahead) for each in (y, np.where(series == 0, 1e6, y))]
    np.testing.assert_array_equal(numbers[0][is_other], numbers[1][is_other])
