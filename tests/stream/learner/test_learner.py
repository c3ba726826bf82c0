"""The stream learner: against NumPy, without leaks, in pieces, through jumps, with late classes."""

import dataclasses
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import stream_reference as reference
from stream_rows import KeptTables, as_rows

from smoothfbo.errors import UsageError
from smoothfbo.functions import Linear
from smoothfbo.hypergradients.base import inner_objective
from smoothfbo.samples import Samples
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.folder import StreamFolder
from smoothfbo.stream.learner import files
from smoothfbo.stream.learner.changes import ChangeDetector, effective_memory
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.linear import LinearOfOutputs
from smoothfbo.stream.learner.memory import change_units, representative_rows
from smoothfbo.stream.learner.moments import empty_moments, extend, standardise
from smoothfbo.stream.learner.problem import bilevel_problem
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.pipeline import run_stream
from smoothfbo.stream.rows import Rows

SMALL = Specification(features=3, outputs=1, is_classification=False, block=8, rates=4, windows=(2, 3), smoothing=3)
# That of `StreamClassifier` in test_estimator.py, so that it compiles once.
CLASSES = dataclasses.replace(SMALL, is_classification=True, with_references=False, windows=(), own=(-1, -1, -1))


def drifting(rows, seed=0, features=3, scale=1.0, noise=0.3):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, features)) * np.arange(1, features + 1) + 10
    w = random.normal(size=features) + np.cumsum(0.05 * random.normal(size=(rows, features)), axis=0)
    y = scale * ((w * (x - 10)).sum(axis=1) + noise * random.normal(size=rows)) + 50 * scale
    return x, y


def small_config(path, target="y", **options):
    options = {"block": 8, "rates": 4, "windows": (2, 3), "smoothing": 3, "lags": 1, **options}
    return StreamConfig(str(path), target, **options)


def run_frame(frame, folder, **options):
    path = folder / "table.csv"
    frame.to_csv(path, index=False)
    sink = KeptTables()
    return run_stream(small_config(path, **options), sink), sink


def test_moments_and_standardisation_agree_with_numpy():
    random = np.random.default_rng(0)
    values = random.normal(size=(60, 4)) * [1, 100, 1e-3, 0] + [0, 1e6, 5, 7]
    values[random.random((60, 4)) < 0.2] = np.nan
    moments = empty_moments(4)
    for block in np.split(values, 6):
        moments = extend(moments, jnp.asarray(block), jnp.asarray(~np.isnan(block)))
    mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(moments.spread, np.where([1, 1, 1, 0], spread, 1), rtol=1e-9)
    expected = np.where(np.isnan(values), 0, np.clip((values - mean) / moments.spread, -1.5, 1.5))
    np.testing.assert_allclose(standardise(jnp.asarray(values), moments, 1.5), expected, atol=1e-8)


def test_representative_rows_have_the_moments_of_the_rows_they_stand_for():
    random = np.random.default_rng(1)
    rows = random.normal(size=(40, 6))
    rows[:, 3] = 0
    rows[:, 4] = rows[:, 0] - 2 * rows[:, 1]
    gram = rows.T @ rows
    few = np.asarray(representative_rows(jnp.asarray(gram)))
    np.testing.assert_allclose(few.T @ few, gram, atol=1e-10)


def test_moments_change_units_as_the_rows_would():
    random = np.random.default_rng(2)
    rows = np.c_[random.normal(size=(40, 3)), np.ones(40), random.normal(size=40)]
    factor, shift = np.array([2.0, 0.1, 1.0, 1.0, 3.0]), np.array([1.0, -2.0, 0.5, 0.0, 4.0])
    moved = rows * factor + shift
    result = change_units(jnp.asarray(rows.T @ rows), jnp.asarray(factor), jnp.asarray(shift), 3)
    np.testing.assert_allclose(result, moved.T @ moved / 40, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(change_units(jnp.zeros((5, 5)), jnp.asarray(factor), jnp.asarray(shift), 3), 0)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_predictions_and_weights_agree_with_numpy(scale):
    """Weighted fit, hypergradient (by central differences), smoothing, multiplicative step, units: all of it."""
    x, y = drifting(8 * 14, scale=scale)
    outcome = Learner(SMALL).process(as_rows(x, y))
    options = {"block": 8, "rates": 4, "smoothing": 3, "step": SMALL.step}
    predictions, outer = reference.smoothfbo_regression(x, y, **options)
    np.testing.assert_allclose(outcome.predictions[1, 8:], predictions, rtol=1e-6)
    expected = np.exp(outer) / np.exp(outer).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(outcome.weights[1:], expected, atol=1e-6)
    assert np.ptp(expected, axis=0).max() > 0.05  # the weights moved
    unsmoothed, _ = reference.smoothfbo_regression(x, y, **{**options, "smoothing": 1})
    at = 1 + SMALL.reference_names.index("unsmoothed")
    np.testing.assert_allclose(outcome.predictions[at, 8:], unsmoothed, rtol=1e-6)
    assert outcome.finite.all()


def test_references_agree_with_numpy():
    x, y = drifting(8 * 9, seed=3)
    outcome = Learner(SMALL).process(as_rows(x, y))
    names = ("smoothfbo", *SMALL.reference_names)
    assert names[:6] == ("smoothfbo", "learned_memory", "last_block", "forgetting_2", "forgetting_4", "all_past")
    assert names[-5:] == ("last_value", "unsmoothed", "window_2", "window_3", "rolling_ridge")
    t = 8
    past, new = slice(0, 8 * t), slice(8 * t, 8 * t + 8)
    mean, spread = reference.column_moments(x[past])
    z, goal = np.c_[(x - mean) / spread, np.ones(len(x))], (y - y[past].mean()) / y[past].std()
    weights = {}
    for window in (2, 3):
        weights[f"window_{window}"] = np.r_[np.zeros(8 * (t - window)), np.full(8 * window, 1 / (8 * window))]
    for name, weight in weights.items():
        fit = reference.weighted_fit(z[past], goal[past], weight, SMALL.ridge)
        expected = z[new] @ fit * y[past].std() + y[past].mean()
        np.testing.assert_allclose(outcome.predictions[names.index(name), new], expected, rtol=1e-8, err_msg=name)
    np.testing.assert_array_equal(outcome.predictions[names.index("last_value"), 1:], y[:-1])


def test_any_portions_give_the_same_bits():
    x, y = drifting(8 * 70 + 5, seed=4)
    x[7, 1] = x[100, 2] = y[60] = np.nan
    rows = as_rows(x, y)
    whole = Learner(SMALL).process(rows)
    pieces, learner, at = [], Learner(SMALL), 0
    for size in [1, 2, 9, 40, 300, 7, 1, 500]:
        part = Rows(*(column[at : at + size] for column in rows))
        looked = learner.predict(part)
        np.testing.assert_array_equal(looked.predictions[:, :1], learner.process(part).predictions[:, :1])
        pieces.append(learner)
        at += size
    again, at = Learner(SMALL), 0
    for size in [1, 2, 9, 40, 300, 7, 1, 500]:
        part = again.process(Rows(*(column[at : at + size] for column in rows)))
        np.testing.assert_array_equal(part.predictions, whole.predictions[:, at : at + size])
        at += size
    assert np.isnan(whole.predictions[:, 0]).all()  # before the first target nothing can be predicted
    assert np.isfinite(whole.predictions[:, 1:]).all()


def test_predictions_do_not_depend_on_their_own_targets_or_on_later_rows():
    x, y = drifting(8 * 12, seed=5)
    before = Learner(SMALL).process(as_rows(x, y)).predictions
    changed = y.copy()
    changed[80:] = -1e3
    rows = as_rows(x, changed)._replace(previous=np.r_[np.nan, y[:-1]])
    after = Learner(SMALL).process(rows).predictions
    np.testing.assert_array_equal(after[:, :81], before[:, :81])  # row 80 is predicted before its target is known
    assert (after[0, 88:] != before[0, 88:]).any()


def test_many_classes_are_quick_and_more_than_can_be_are_refused(tmp_path):
    """60 classes took 200 seconds: the fit was one system of all features times all classes."""
    frame = table().assign(y=[f"class {i // 8}" if i < 24 else f"class {i}" for i in range(8 * 20 + 3)])
    begin = time.process_time()  # however busy the machine is
    results, sink = run_frame(frame, tmp_path)
    assert time.process_time() - begin < 60  # most of it compiles
    # classes 0, 1 and 2, then one for every row: the 65th comes in row 24 + 62
    assert ", row 86, column 'y': more than 64 classes" in str(results.fault)
    assert len(sink.frame()) == 85


def table(rows=8 * 20 + 3, seed=6):
    x, y = drifting(rows, seed)
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(x, columns=["a", "b & <i>", 'c "quoted", with comma'])
    frame["kind"] = random.choice(["red", "green", "blue"], rows)
    frame["when"] = pd.date_range("2024-01-01", periods=rows, freq="h")
    frame["y"] = y
    return frame


@pytest.mark.parametrize("target", ["y", "class"])
def test_nothing_leaks_from_the_future(tmp_path, target):
    frame, cut = table(), 85
    if target == "class":  # with the shapes of the classes in test_stream_command.py, so that it compiles once
        frame[target] = pd.qcut(frame.pop("y"), 3, labels=["low", "middle", "high"]).astype(str)
        frame["kind"] = pd.factorize(frame["kind"])[0]
        del frame["when"]
    results, sink = run_frame(frame, tmp_path, target=target)
    order = np.concatenate([np.arange(cut), cut + np.random.default_rng(0).permutation(len(frame) - cut)])
    times = frame.get("when")  # stay in order
    shuffled = frame.iloc[order] if times is None else frame.iloc[order].assign(when=times.to_numpy())
    _, shuffled = run_frame(shuffled, tmp_path, target=target)
    # The row after t is another one now; up to t everything is the same, to the bit.
    pd.testing.assert_frame_equal(shuffled.frame()[:cut], sink.frame()[:cut], check_exact=True)
    assert (shuffled.frame()["prediction"][cut:] != sink.frame()["prediction"][cut:]).any()
    assert results.fault is None


def test_a_run_writes_one_row_per_input_row_and_counts_right(tmp_path):
    frame = table()
    frame.loc[5, "a"] = frame.loc[50, "y"] = np.nan
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    told = []
    with StreamFolder(tmp_path) as sink:
        results = run_stream(small_config(path), sink, told.append)
    written = pd.read_parquet(tmp_path / "predictions.parquet")
    blocks = pd.read_parquet(tmp_path / "blocks.parquet")
    assert written["row"].tolist() == list(range(1, len(frame) + 1))
    np.testing.assert_allclose(written["target"], frame["y"])
    assert (written["time"] == frame["when"]).all()
    error = (written["prediction"] - written["target"]) ** 2
    assert error.isna().sum() == 2  # the missing target, and the first row, for which nothing could be predicted
    assert results.errors["smoothfbo"] == pytest.approx(error.mean(), rel=1e-12)
    assert results.errors["last_value"] == pytest.approx(((written["last_value"] - written["target"]) ** 2).mean())
    assert len(blocks) == results.blocks == 20
    means = [error[8 * b : 8 * b + 8].mean() for b in range(20)]
    np.testing.assert_allclose(blocks["loss_smoothfbo"], means, rtol=1e-12)
    np.testing.assert_allclose(blocks[[f"weight_{k}" for k in range(4)]].sum(axis=1), 1)
    assert results.missing == {"a": 1, "y": 1}
    assert told[-1].rows == len(frame)
    assert told[-1].errors == results.errors
    assert results.best_reference in results.errors
    json.dumps(results.summary(), allow_nan=False)
    assert {"b & <i>", 'c "quoted", with comma', "kind=blue", "kind=other", "y[-1]"} < set(results.features)


@pytest.mark.parametrize("cut", [64, 77])
def test_a_saved_state_goes_on_as_if_not_interrupted(tmp_path, cut):
    frame, state = table(), tmp_path / "model.state"
    _, whole = run_frame(frame, tmp_path)
    _, one = run_stream_part(frame[:cut], tmp_path, state)
    results, two = run_stream_part(frame[cut:], tmp_path, state)
    joined = pd.concat([one.frame(), two.frame()], ignore_index=True)
    pd.testing.assert_frame_equal(joined, whole.frame(), check_exact=True)
    blocks = pd.concat([one.frame("blocks"), two.frame("blocks")], ignore_index=True)
    pd.testing.assert_frame_equal(blocks, whole.frame("blocks"), rtol=1e-12)
    assert results.rows == len(frame)


def run_stream_part(frame, folder, state, **options):
    path = folder / "part.csv"
    frame.to_csv(path, index=False)
    sink = KeptTables()
    return run_stream(small_config(path, **options), sink, state=state), sink


def test_rows_whose_target_is_not_known_yet_are_predicted_and_come_again(tmp_path):
    """Today's table ends with rows for tomorrow; tomorrow's table begins with them, and now they have targets."""
    frame, state, cut = table(), tmp_path / "model.state", 77
    _, whole = run_frame(frame, tmp_path)
    today = frame[: cut + 20].copy()
    today.loc[cut:, "y"] = np.nan
    results, one = run_stream_part(today, tmp_path, state)
    assert results.forecasts == 20
    assert results.rows == len(one.frame()) == cut + 20
    assert one.frame()["prediction"][cut:].notna().all()
    _, two = run_stream_part(frame[cut:], tmp_path, state)  # its first time is not before the last one that is kept
    joined = pd.concat([one.frame()[:cut], two.frame()], ignore_index=True)
    pd.testing.assert_frame_equal(joined, whole.frame(), check_exact=True)


def test_rows_whose_target_is_lost_stay_if_others_follow(tmp_path):
    frame, state, cut = table(), tmp_path / "model.state", 77
    frame.loc[60:70, "y"] = np.nan
    _, whole = run_frame(frame, tmp_path)
    results, one = run_stream_part(frame[:cut], tmp_path, state)
    assert results.forecasts == 0
    _, two = run_stream_part(frame[cut:], tmp_path, state)
    joined = pd.concat([one.frame(), two.frame()], ignore_index=True)
    pd.testing.assert_frame_equal(joined, whole.frame(), check_exact=True)


def test_a_state_that_does_not_fit_is_refused(tmp_path):
    frame, state = table(), tmp_path / "model.state"
    run_stream_part(frame[:80], tmp_path, state)
    with pytest.raises(UsageError, match=r"`step` is 0.25, but .* was learnt with 0.5"):
        run_stream_part(frame[80:], tmp_path, state, step=0.25)
    with pytest.raises(UsageError, match="no column 'a', which the saved learner"):
        run_stream_part(frame[80:].drop(columns="a"), tmp_path, state)
    learner, content = files.load(state)
    learner.state = learner.state._replace(references=learner.state.references[:1])
    files.save(state, learner, content)
    with pytest.raises(UsageError, match=r"another shape .*references is float64\[1, 1"):
        files.load(state)
    for damage, message in (
        (b"PK nonsense", "not the state of a learner"),
        (state.read_bytes()[:500], "not the state"),
    ):
        state.write_bytes(damage)
        with pytest.raises(UsageError, match=message):
            files.load(state)
    files.VERSION, before = 99, files.VERSION
    try:
        files.save(state, Learner(SMALL), {})
    finally:
        files.VERSION = before
    with pytest.raises(UsageError, match="has version 99; this program reads version 10"):
        files.load(state)


def test_a_class_that_appears_later_is_learnt_and_changes_nothing_before():
    random = np.random.default_rng(7)
    y = np.repeat([0.0, 1.0], 200)[random.permutation(400)]
    y[200:] = random.integers(0, 4, 200)
    x = np.stack([y + 0.1 * random.normal(size=400), y == 2, y == 3], axis=1) + 0.05 * random.normal(size=(400, 3))
    learner = Learner(CLASSES)
    outcome = learner.process(as_rows(x, y))
    shorter = Learner(CLASSES).process(as_rows(x[:203], y[:203]))
    np.testing.assert_array_equal(outcome.predictions[:, :203], shorter.predictions)
    assert learner.spec.outputs == 3
    assert (outcome.predictions[0, 300:] == y[300:]).mean() > 0.9
    assert set(outcome.predictions[0, 300:]) == {0, 1, 2, 3}
    assert outcome.scores.shape == (400, 4)
    np.testing.assert_allclose(outcome.scores.sum(axis=1), 1, atol=1e-9)


def test_a_new_class_is_known_from_its_first_row_on():
    """Also in the block in which it comes, where no fit knows it yet; rows before it know nothing of it."""
    random = np.random.default_rng(8)
    x, block = random.normal(size=(60, 3)), CLASSES.rows
    y = (x[:, 0] > 0).astype(float)
    first = 5 * block + 2
    y[first:], y[first + 3 :] = 2, 5  # two of them, for which room is made one after the other
    y[first + 5] = 2
    whole = Learner(CLASSES)
    rows = as_rows(x, y)
    outcome = whole.process(rows)
    predicted = outcome.predictions[0]
    assert (outcome.scores[first + 1 : first + 6, 2] > 1e-3).all()
    assert (outcome.scores[: first + 1, 2:] == 0).all()
    np.testing.assert_array_equal(outcome.scores[1:].argmax(axis=1), predicted[1:])
    portions, singles = Learner(CLASSES), Learner(CLASSES)
    for start in range(0, 60, 7):
        part = portions.process(Rows(*(column[start : start + 7] for column in rows)))
        np.testing.assert_array_equal(part.predictions[0], outcome.predictions[0, start : start + 7])
        np.testing.assert_array_equal(part.scores, outcome.scores[start : start + 7, : part.scores.shape[1]])
    for at in range(first + 8):
        one = Rows(*(column[at : at + 1] for column in rows))
        if at > first - 4:
            asked = singles.predict(one._replace(target=np.full(1, np.nan)))
            np.testing.assert_array_equal(asked.predictions[0], predicted[at])
            np.testing.assert_array_equal(asked.scores[0], outcome.scores[at, : asked.scores.shape[1]])
        singles.learn(one)


def test_a_level_that_comes_late_is_learnt(tmp_path):
    random = np.random.default_rng(0)
    kind = np.where(np.arange(1_600) < 1_200, "a", random.choice(["a", "b", "c"], 1_600))
    effect = np.select([kind == "b", kind == "c"], [5.0, -5.0], 0.0)
    frame = table(1_600).assign(kind=kind, y=effect + 0.3 * random.normal(size=1_600))  # the others say nothing
    results, sink = run_frame(frame, tmp_path)
    error = (sink.frame()["prediction"] - frame["y"])[1_400:] ** 2
    assert error.mean() < 2 * 0.3**2  # without the levels it is 16.7
    assert {"kind=b", "kind=c"} < set(results.features)


def test_many_outputs_fit_as_one_large_system_does():
    """`Linear` solves for all outputs at once; here each one has its own small system."""
    random = np.random.default_rng(0)
    samples = Samples(
        jnp.asarray(random.normal(size=(40, 3))),
        {"target": jnp.asarray(random.normal(size=(40, 4))), "share": jnp.asarray(random.random((40, 2)))},
    )
    outer, key = jnp.asarray([0.3, -0.2]), jax.random.key(0)
    objective = inner_objective(bilevel_problem(is_classification=True), outer, samples)
    fits = []
    for function in (LinearOfOutputs(4, 0.01), Linear(lambda x: x, prediction=jnp.zeros(4), ridge=0.01)):
        start = function.init(samples.x[0], jnp.zeros(4), key)
        fits.append(jax.jit(lambda start, fit=function.fit: fit(start, objective, key).params)(start))
        assert function.regulariser(fits[-1]) == pytest.approx(0.005 * np.sum(np.square(fits[-1])))
    np.testing.assert_allclose(*fits, rtol=1e-9)


@pytest.mark.thorough
def test_a_network_learns_a_class_that_appears_later():
    random = np.random.default_rng(7)
    y = random.integers(0, 2, 160).astype(float)
    y[80:] = random.integers(0, 3, 80)
    spec = dataclasses.replace(CLASSES, predictor="network", width=4, network_blocks=4, network_steps=2)
    learner = Learner(spec)
    outcome = learner.process(as_rows(np.stack([y, y == 2, y == 1], axis=1) + 0.0, y))
    assert learner.spec.outputs == 3
    assert np.isfinite(outcome.predictions[0, 8:]).all()
    assert outcome.finite.all()


def test_weights_collapse_after_a_jump_and_recover():
    random = np.random.default_rng(8)
    jumps, rows = [8000, 16000], 24000
    w = np.repeat(random.normal(size=(3, 3)) * 2, 8000, axis=0)
    x = random.normal(size=(rows, 3))
    y = (w * x).sum(axis=1) + 0.5 * random.normal(size=rows)
    spec = dataclasses.replace(SMALL, rates=8, smoothing=5, with_references=False)
    outcome = Learner(spec).process(as_rows(x, y))
    memory = np.array([effective_memory(weights, t) for t, weights in enumerate(outcome.weights)])
    detector, found = ChangeDetector(), []
    losses = ((outcome.predictions[0] - y) ** 2).reshape(-1, 8).mean(axis=1)
    for value, loss in zip(memory, losses, strict=True):
        place = detector.update(value, loss)
        found += [] if place is None else [place * 8]
    for jump in jumps:
        at = jump // 8
        assert memory[at : at + 40].min() < memory[at - 20 : at].mean() / 5
        assert memory[at + 750 : at + 990].mean() > 3 * memory[at : at + 40].min()
        assert min(abs(place - jump) for place in found) <= 40
        newest = outcome.weights[:, 0]
        assert newest[at : at + 40].max() > 5 * newest[at - 20 : at].mean()
    assert len(found) <= 4


def test_a_jump_of_the_error_is_a_change_even_if_the_memory_is_short_already():
    """The mean square of 16 normal errors per block; memory constant; the error's variance is 5 times as large once."""
    random = np.random.default_rng(3)
    losses = random.chisquare(16, 3_000) / 16
    losses[1_000:1_020] *= 5
    detector = ChangeDetector()
    found = [detector.update(8.0, loss) for loss in losses]
    assert [place for place in found if place is not None] == [1_000]
    errors = (random.random((3_000, 8)) < 0.02).mean(axis=1)  # most blocks have no error at all
    detector = ChangeDetector()
    assert sum(detector.update(8.0, loss) is not None for loss in errors) <= 1
    assert all(ChangeDetector().update(8.0, 0.0) is None for _ in range(200))


@pytest.mark.thorough
def test_the_network_learns_what_a_line_cannot():
    random = np.random.default_rng(9)
    x = random.normal(size=(2000, 3))
    y = np.abs(x[:, 0]) + 0.1 * random.normal(size=2000)
    spec = dataclasses.replace(SMALL, block=50, predictor="network", network_blocks=10, width=16, network_rate=1e-2)
    spec = dataclasses.replace(spec, with_references=False)
    outcome = Learner(spec).process(as_rows(x, y))
    assert np.mean((outcome.predictions[0, 1000:] - y[1000:]) ** 2) < 0.3 * np.var(y)  # no line does better than var(y)
    assert outcome.finite.all()


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("block", 1, "between 2 and 100000"),
        ("lags", -1, "between 0 and 1000"),
        ("step", 0.0, "positive"),
        ("task", "ranking", "one of regression, classification"),
        ("windows", (1,), "between 2 and 4096"),
        ("extra_lags", (2,), "above lags = 4"),
        ("missing", "guess", "one of impute, error"),
    ],
)
def test_options_are_checked(as_users_call, option, value, allowed):
    with pytest.raises(UsageError, match=allowed) as caught:
        StreamConfig("data.csv", "y", **{option: value})
    assert f"`{option}`" in str(caught.value)


def test_a_fault_ends_the_run_and_everything_before_it_is_kept(tmp_path):
    frame = table()
    frame["a"] = frame["a"].astype(object)
    frame.loc[100, "a"] = "oops"
    _, whole = run_frame(table(), tmp_path)
    results, sink = run_frame(frame, tmp_path)
    assert "row 101, column 'a': 'oops' is not a number" in str(results.fault)
    assert results.summary()["fault"] == str(results.fault)
    assert results.rows == 100
    pd.testing.assert_frame_equal(sink.frame(), whole.frame()[:100], check_exact=True)
