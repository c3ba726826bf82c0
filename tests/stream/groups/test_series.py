"""Many series in one table: each as if it were alone, in any order and any portions; killed and resumed."""

import json
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from stream_rows import KeptTables, as_rows

from smoothfbo import cli
from smoothfbo.algebra import where_needed
from smoothfbo.errors import UsageError
from smoothfbo.harness.study import Run
from smoothfbo.harness.workers.process import run_attempt
from smoothfbo.stream import folder as stream_folder
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.groups import pipeline
from smoothfbo.stream.groups.changes import ChangeDetectors
from smoothfbo.stream.groups.keys import SeriesKeys
from smoothfbo.stream.groups.learners import SeriesLearners
from smoothfbo.stream.groups.records import series_table
from smoothfbo.stream.groups.report import series_verdict
from smoothfbo.stream.learner.changes import ChangeDetector, effective_memories, effective_memory
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.pipeline import run_stream
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.run import execute
from smoothfbo.stream.segments import fill_forward, join, segments_of

# One learner for all tests, also for those of tables, so that its two programs compile once: three features (x, a lag,
# another lag), blocks of 8.
SPEC = Specification(
    features=3, outputs=1, is_classification=False, with_references=False, block=8, rates=4, smoothing=3, lags=(1, 3),
    own=(-1,),
)  # fmt: skip
OPTIONS = {"block": 8, "rates": 4, "smoothing": 3, "lags": 2, "windows": (), "references": False}


def mixed_rows(lengths, seed=0):
    """Rows of several series, each with its own law, alone and mixed, and which series each mixed row is of."""
    random = np.random.default_rng(seed)
    alone = []
    for number, length in enumerate(lengths):
        x = random.normal(size=(length, 3)) * 10.0 ** (number % 3)
        y = x @ random.normal(size=3) + random.normal(size=length)
        alone.append(as_rows(x, y))
    series = random.permutation(np.repeat(np.arange(len(lengths)), lengths))
    mixed = Rows(*(np.empty((len(series), *column.shape[1:])) for column in alone[0]))
    for number, rows in enumerate(alone):
        for column, values in zip(mixed, rows, strict=True):
            column[series == number] = values
    return alone, mixed, series


def process(learners, rows, series, cuts):
    """All predictions, and the edges of the bands, in the order of the rows."""
    parts, ends = [], [*cuts, len(series)]
    for start, stop in zip([0, *ends], ends, strict=False):
        if start < stop:
            segments = segments_of(series[start:stop])
            outcome = learners.process(Rows(*(c[start:stop][segments.order] for c in rows)), segments)
            together = np.concatenate([outcome.predictions[:1].T, outcome.bands.reshape(stop - start, -1)], axis=1)
            parts.append(segments.in_table_order(together))
    return np.concatenate(parts)


def test_every_series_is_predicted_as_if_it_were_alone_and_any_portions_give_the_same_bits():
    """Short and long series, more of them than a batch holds, one whose unit changes, one whose target moves far."""
    lengths = [200, 5, 64, 0, 71, *[9] * 70]
    alone, mixed, series = mixed_rows(lengths)
    for rows in (alone[0].features, mixed.features[series == 0]):
        rows[160:, 0] *= 1000
    mixed.features[series == 0] = alone[0].features
    alone[4].target[40:] += 1e5
    alone[4].previous[41:] += 1e5
    mixed.target[series == 4], mixed.previous[series == 4] = alone[4].target, alone[4].previous
    whole, cut = SeriesLearners(SPEC), SeriesLearners(SPEC)
    expected = process(whole, mixed, series, [])
    cuts = sorted(np.random.default_rng(1).integers(0, len(series), 4).tolist())
    np.testing.assert_array_equal(process(cut, mixed, series, cuts), expected)
    np.testing.assert_array_equal(cut.states.numbers[: cut.series], whole.states.numbers[: whole.series])
    np.testing.assert_array_equal(cut.bands.states[: cut.series], whole.bands.states[: whole.series])
    learner = Learner(SPEC)
    assert whole.series == len(lengths)
    assert whole.bytes_per_series >= sum(leaf.nbytes for leaf in jax.tree.leaves(learner.state))
    for number in (0, 1, 2, 4, 5, 74):
        outcome = Learner(SPEC).process(alone[number])
        rows = np.concatenate([outcome.predictions[:1].T, outcome.bands.reshape(lengths[number], -1)], axis=1)
        np.testing.assert_allclose(expected[series == number], rows, rtol=1e-9, err_msg=number)
    # Nothing is kept of what is only predicted.
    ahead = mixed_rows([20, 9, 0, 3], seed=3)[1:]
    segments = segments_of(ahead[1])
    rows, states = Rows(*(column[segments.order] for column in ahead[0])), whole.states.numbers.copy()
    first, second = (whole.predict(rows, segments) for _ in range(2))
    np.testing.assert_array_equal(first.predictions, second.predictions)
    np.testing.assert_array_equal(first.bands, second.bands)
    np.testing.assert_array_equal(whole.states.numbers, states)
    learner = Learner(SPEC)
    learner.process(alone[0])
    part = slice(*segments.starts[:2])
    expected = learner.predict(Rows(*(column[part] for column in rows)))
    np.testing.assert_allclose(first.predictions[0, part], expected.predictions[0], rtol=1e-9)
    np.testing.assert_allclose(first.bands[part], expected.bands, rtol=1e-9)


def frame_of(series, rows, seed=0):
    """A table of several series in random order, in time order within each; the last has a gap in its targets."""
    random = np.random.default_rng(seed)
    parts = []
    for number in range(series):
        x = random.normal(size=rows).round(3)
        y = (x * random.normal() + np.cumsum(random.normal(size=rows)) * 3**number).round(3)
        parts.append(pd.DataFrame({"shop": f"s{number}", "item": number % 2, "hour": range(rows), "x": x, "y": y}))
    parts[-1].loc[10:13, "y"] = np.nan
    frame = pd.concat(parts)
    return frame.iloc[random.permutation(len(frame))].sort_values("hour", kind="stable", ignore_index=True)


def config(path, **options):
    return StreamConfig(str(path), "y", **{**OPTIONS, "time": "hour", **options})


def test_a_series_in_a_table_of_many_is_what_it_is_in_a_table_of_its_own(tmp_path, monkeypatch):
    """With forecasts at the end of each series, which are held back and leave the learners as they were."""
    frame = frame_of(4, 60)
    frame.loc[frame["hour"] >= 58, "y"] = np.nan
    frame = frame.sort_values("shop", kind="stable", ignore_index=True)  # forecasts are not at the end of the table
    frame.to_csv(tmp_path / "all.csv", index=False)
    monkeypatch.setattr(pipeline, "PIECE", 50)
    monkeypatch.setattr(pipeline, "FIRST_PIECE", 20)
    sink = KeptTables()
    results, session = pipeline.run_series(config(tmp_path / "all.csv", by=("shop", "item")), sink)
    predictions, blocks = sink.frame(), sink.frame("blocks")
    assert results.fault is None
    assert (results.rows, results.forecasts, session.rows) == (240, 8, 232)
    assert sorted(predictions["row"]) == list(range(1, 241))
    predictions = predictions.sort_values("row", ignore_index=True)
    pd.testing.assert_series_equal(predictions["shop"], frame["shop"])
    errors, covered = [], []
    for shop, part in frame.groupby("shop"):
        part.drop(columns=["shop", "item"]).to_csv(tmp_path / "one.csv", index=False)
        alone = KeptTables()
        one = run_stream(config(tmp_path / "one.csv"), alone)
        here = predictions[predictions["shop"] == shop]
        for name in ("prediction", "low_95", "high_50"):
            np.testing.assert_allclose(here[name], alone.frame()[name], rtol=1e-9, err_msg=name)
        expected, found = alone.frame("blocks"), blocks[blocks["shop"] == shop]
        for name in ("block", "known", "memory", "loss_smoothfbo", "weight_2"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, err_msg=name)
        # first_row is that of the whole table
        assert found["first_row"].tolist() == here["row"].iloc[expected["first_row"] - 1].tolist()
        errors.append(one.errors["smoothfbo"])
        covered.append(one.coverage["0.8"])
    np.testing.assert_allclose(series_table(session)["coverage_80"].to_numpy(), covered)
    table = pipeline.summary_of_series(session)
    assert table["count"] == 4
    np.testing.assert_allclose([table["errors"]["0"], table["errors"]["1"]], [min(errors), max(errors)], rtol=1e-9)


class Crash(BaseException):
    """As if the process had been killed, where a test can look on."""


def stream(*arguments):
    options = ["--target", "y", "--time", "hour", "--block", "8", "--rates", "4", "--smoothing", "3", "--lags", "2"]
    return cli.main(["stream", *map(str, arguments), *options])


def contents(folder):
    """Tables and numbers of a finished run, but for its speed."""
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"], summary["rows_per_second"]
    names = ("predictions", "blocks", "series", "changes")
    return summary, {name: pd.read_parquet(folder / f"{name}.parquet") for name in names}


@pytest.mark.usefixtures("no_figures")
def test_killed_it_resumes_to_the_same_bits_and_a_state_goes_on_with_new_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stream_folder, "SNAPSHOT_SHARE", 1e9)
    monkeypatch.setattr(pipeline, "PIECE", 40)
    monkeypatch.setattr(pipeline, "FIRST_PIECE", 20)
    frame = frame_of(4, 60)
    frame.loc[(frame["shop"] == "s1") & (frame["hour"] > 20) & (frame["hour"] < 50), "y"] = np.nan
    frame.to_csv(tmp_path / "all.csv", index=False)
    run = [tmp_path / "all.csv", "--by", "shop", "item", "--out"]
    assert stream(*run, tmp_path / "whole") == 0
    assert "4 series by 'shop', 'item', of 60 to 60 rows" in capsys.readouterr().out
    done, process = [], pipeline._process
    with monkeypatch.context() as patch:

        def crash_at_the_fifth(session, piece, sink):
            done.append(piece)
            if len(done) == 5:  # rows of s1 wait
                raise Crash
            return process(session, piece, sink)

        patch.setattr(pipeline, "_process", crash_at_the_fifth)
        with pytest.raises(Crash):
            stream(*run, tmp_path / "run")
    assert cli.main(["resume", str(tmp_path / "run")]) == 0
    (one, tables), (other, others) = contents(tmp_path / "whole"), contents(tmp_path / "run")
    assert one == other
    for name in tables:
        pd.testing.assert_frame_equal(tables[name], others[name], check_exact=True)
    assert "10 %" not in (tmp_path / "whole" / "report.html").read_text()

    state = ["--by", "shop", "item", "--state", tmp_path / "model.state", "--out"]
    for name, part in (("one", frame[:130]), ("two", frame[130:])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
        assert stream(tmp_path / f"{name}.csv", *state, tmp_path / name) == 0
    joined = pd.concat([pd.read_parquet(tmp_path / n / "predictions.parquet") for n in ("one", "two")])
    # Rows of s1 that waited for a target at the end of the first table are forecasts there and no part of the state.
    both = tables["predictions"].merge(joined, on=["shop", "time"])
    same = both["shop"] != "s1"
    np.testing.assert_array_equal(both["prediction_x"][same], both["prediction_y"][same])
    pd.DataFrame(frame[:3]).drop(columns="shop").to_csv(tmp_path / "three.csv", index=False)
    capsys.readouterr()
    assert stream(tmp_path / "three.csv", "--state", tmp_path / "model.state", "--out", tmp_path / "three") == 2
    assert "is the state of many series, but --by is not given." in capsys.readouterr().err


class Here:
    """Workers in this process; the shares of series that are asked for, in turn."""

    request, notes, devices, block = "here", (), ["here"], None

    def __init__(self, configuration, blocks):
        self.configuration, self.blocks, self.asked = configuration, blocks, []

    @contextmanager
    def open(self, folder):
        self.folder = folder
        yield self

    def submit(self, block):
        self.asked.append(block)
        return len(self.asked) - 1

    def wait(self, pending, seconds):
        block = self.asked[pending[0]]
        run = Run(self.configuration, self.folder, "", lambda progress: None, block=block)
        return [(pending[0], run_attempt(lambda: execute(run)))]


def test_shares_of_the_series_come_to_what_all_of_them_come_to(tmp_path, monkeypatch):
    """Five shares of four series, so that one or more have none; one share crashes and resumes from its snapshot."""
    monkeypatch.setattr(stream_folder, "SNAPSHOT_SHARE", 1e9)
    monkeypatch.setattr(pipeline, "PIECE", 40)
    monkeypatch.setattr(pipeline, "FIRST_PIECE", 20)
    monkeypatch.setattr(ChangeDetectors, "update", lambda detectors, slots, memory, losses: 0 * slots)  # in every block
    frame = frame_of(4, 60)
    frame.loc[frame["hour"] >= 58, "y"] = np.nan
    frame.to_csv(tmp_path / "all.csv", index=False)
    configuration = config(tmp_path / "all.csv", by=("shop", "item"))
    results, pieces = {}, {}
    for name, workers in (("one", None), ("five", Here(configuration, 5)), ("crashed", Here(configuration, 5))):
        calls, process = [], pipeline._process

        def watched(session, piece, sink, name=name, calls=calls, process=process):
            calls.append(piece)
            if name == "crashed" and len(calls) == 3:
                raise OSError("gone")
            return process(session, piece, sink)

        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_process", watched)
            run = Run(configuration, tmp_path / name, "", lambda progress: None, workers=workers)
            execute(run)
        pieces[name] = len(calls)
        execute(run)  # nothing is left to run
        results[name] = contents(tmp_path / name)
        assert not (tmp_path / name / "progress").exists()
    assert pieces["crashed"] == pieces["five"] + 1  # nothing but the piece that was lost is done again
    (one, tables), (five, others) = results["one"], results["five"]
    assert results["crashed"][0] == five
    for name in tables:
        pd.testing.assert_frame_equal(results["crashed"][1][name], others[name], check_exact=True)
        order = {"predictions": ["row"], "changes": ["row", "seen_in_block"], "blocks": ["shop", "block"]}
        order = order.get(name, ["shop"])
        alike = (each[name].sort_values(order, ignore_index=True) for each in (tables, others))
        pd.testing.assert_frame_equal(*alike, rtol=1e-9)
    series, parts = one.pop("series"), five.pop("series")
    for name in ("errors", "absolute_errors", "coverage"):
        np.testing.assert_allclose([*one.pop(name).values()], [*five.pop(name).values()], rtol=1e-9)
    assert five.pop("ratio_to_best_reference") == pytest.approx(one.pop("ratio_to_best_reference"), rel=1e-9)
    assert one == five
    assert (series["count"], series["changes"]) == (parts["count"], parts["changes"]) == (4, len(tables["changes"]))
    assert parts["ratios"] == pytest.approx(series["ratios"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": ()}, "`workers` share the series of a table: name the columns that tell them apart with `by`"),
        ({"state": "s"}, "`state` is one file, which `workers` cannot share"),
    ],
)
def test_what_workers_cannot_share_is_refused(tmp_path, options, message):
    frame_of(2, 20).to_csv(tmp_path / "all.csv", index=False)
    configuration = config(tmp_path / "all.csv", **{"by": ("shop",), **options})
    run = Run(configuration, tmp_path / "run", "", lambda progress: None, workers=Here(configuration, 2))
    with pytest.raises(UsageError, match=message):
        execute(run)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": ("shpo",)}, "`by` shpo: no such column; did you mean 'shop'?"),
        ({"by": ("y",)}, "`by` y is the target; they must be different columns."),
        ({"by": ("hour",)}, "`by` hour is the time; they must be different columns."),
        ({"by": ("shop", "shop")}, "`by` must be different columns, got shop shop."),
        (
            {"by": ("shop",), "live": "csv"},
            "`live` answers one series; many (`by`) are read from a file or from standard input.",
        ),
        ({"by": ("shop",), "ignore": ("shop",)}, "`ignore` shop is a column of `by`, which cannot be left out."),
    ],
)
def test_columns_that_cannot_tell_series_apart_are_named(tmp_path, options, message):
    frame_of(2, 20).to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(UsageError) as caught:
        pipeline.run_series(config(tmp_path / "data.csv", **options))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("shop", None, "row 31, column 'shop': a missing value, so the row is of no series."),
        ("hour", 3, "row 31, column 'hour': 3.0 is before the row above of its series; rows must be in time order"),
    ],
)
def test_a_fault_is_named_by_its_row_and_what_came_before_is_kept(tmp_path, column, value, message):
    frame = frame_of(2, 20)
    frame.loc[30, column] = value
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    results, session = pipeline.run_series(config(path, by=("shop",), ignore=("item",)))
    assert message in str(results.fault)
    assert session.rows == results.rows == 30
    skipped, _ = pipeline.run_series(config(path, by=("shop",), ignore=("item",), on_error="skip"))
    assert (skipped.fault, skipped.rows, skipped.left_out) == (None, 39, 1)
    assert message in skipped.left_out_first[0]


def test_learners_that_do_not_fit_into_memory_are_refused(tmp_path, monkeypatch):
    frame_of(3, 20).to_csv(tmp_path / "data.csv", index=False)
    monkeypatch.setattr(pipeline, "_free_memory", lambda: 4096)
    results, _ = pipeline.run_series(config(tmp_path / "data.csv", by=("shop",), ignore=("item",)))
    assert "has 3 series and more to come: their learners need 0.0 GiB" in str(results.fault)


@pytest.mark.parametrize("key", ["evaluated", "judged"])  # the second is in earlier summaries
def test_the_verdict_names_the_share_of_series_that_beat_their_last_value(key):
    series = {"count": 5, key: 4, "better_than_last_value": 3, "ratios": {"0.5": 0.8, "1": 1.2}}
    summary = {"error_name": "mean squared error", "errors": {"smoothfbo": 0.25}, "series": series}
    assert "below that of the last value in 75% of the series" in series_verdict(summary)
    assert "too short to be evaluated" in series_verdict(summary | {"series": series | {key: 0}})


def test_segments_join_and_fill_as_pandas_does():
    random = np.random.default_rng(0)
    series = random.integers(0, 5, 60) * 2
    values = np.where(random.random(60) < 0.4, np.nan, random.normal(size=60))
    segments = segments_of(series)
    past = random.normal(size=(9, 3))
    past[2, 1:] = past[4, 0] = np.nan
    kept = np.arange(len(segments.slots)) % 4
    joined = join(segments, kept)
    front = np.concatenate([past[slot, :count] for slot, count in zip(segments.slots, kept, strict=True)])
    together = joined.of(front, values[segments.order])
    fill_forward(together[:, None], joined.starts)
    for slot, count in zip(segments.slots, kept, strict=True):
        expected = pd.Series(np.concatenate([past[slot, :count], values[series == slot]])).ffill()
        at = np.searchsorted(segments.slots, slot)
        np.testing.assert_array_equal(together[joined.starts[at] : joined.starts[at + 1]], expected)
    np.testing.assert_array_equal(segments.in_table_order(series[segments.order]), series)


def test_series_get_their_numbers_as_they_come():
    import pyarrow as pa

    keys = SeriesKeys(("a", "b"))
    first = keys.of(pa.table({"a": ["y", "x", "y", "y"], "b": ["1", "1", "2", "1"]}))
    second = keys.of(pa.table({"a": ["x", "y", "x"], "b": ["2", "2", "1"]}))
    assert (first.tolist(), second.tolist()) == ([0, 1, 2, 0], [3, 2, 1])
    assert keys.names == [("y", "1"), ("x", "1"), ("y", "2"), ("x", "2")]
    named = keys.columns(np.array([2, 0]), {"a"})
    assert {name: values.to_pylist() for name, values in named.items()} == {"by_a": ["y", "y"], "b": ["2", "1"]}


def test_changes_of_many_series_are_those_of_each_alone():
    random = np.random.default_rng(0)
    series, blocks = 20, 300
    losses = random.exponential(size=(series, blocks))
    for row in losses:
        for start in random.integers(0, blocks, 3):
            row[start:] *= random.choice([0.01, 30])
    losses[3, 100:200] = losses[5] = 0
    memories = np.exp(np.cumsum(random.normal(size=(series, blocks)) * 0.4, axis=1)).clip(1, 500)
    together, at = ChangeDetectors(), np.zeros(series, int)
    together.make_room(series)
    found = [[] for _ in range(series)]
    while len(left := np.flatnonzero(at < blocks)):
        slots = random.permutation(left)[: random.integers(1, series)]
        for slot, place in zip(
            slots, together.update(slots, memories[slots, at[slots]], losses[slots, at[slots]]), strict=True
        ):
            found[slot] += [(at[slot], place)] if place >= 0 else []
        at[slots] += 1
    for slot in range(series):
        alone = ChangeDetector()
        pairs = enumerate(zip(memories[slot], losses[slot], strict=True))
        places = [(block, alone.update(float(memory), float(loss))) for block, (memory, loss) in pairs]
        assert found[slot] == [(block, place) for block, place in places if place is not None]
    assert sum(map(len, found)) > 30
    weights, before = random.dirichlet(np.ones(5), size=20), random.integers(0, 50, 20)
    expected = [effective_memory(one, int(count)) for one, count in zip(weights, before, strict=True)]
    np.testing.assert_allclose(effective_memories(weights, before), expected)


def test_what_no_lane_needs_is_not_computed():
    def function(x, y):
        return {"value": x * y, "count": y.astype(jnp.int32)}

    def one(x, y):
        default = {"value": x, "count": jnp.zeros((), jnp.int32)}
        return where_needed(x > 1, function, default, x, y)

    x, y = jnp.array([0.5, 2.0, 3.0]), jnp.array(4.0)
    assert one(x[1], y)["value"] == 8
    lanes = jax.vmap(one, in_axes=(0, None))
    np.testing.assert_array_equal(lanes(x, y)["value"], [0.5, 8, 12])
    np.testing.assert_array_equal(lanes(x, y)["count"], [0, 4, 4])
    np.testing.assert_array_equal(jax.vmap(one, in_axes=(None, 0))(x[2], x)["value"], 3 * x)
    assert "cond" in str(jax.make_jaxpr(lanes)(x, y))  # plain `cond` under vmap becomes `select`
