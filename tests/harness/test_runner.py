"""The runner: lanes on devices, chunks, checkpoints, resuming, refusing."""

import dataclasses
import errno
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from toy_study import Kill, execute, same_results, stop_after, toy

from smoothfbo.errors import UsageError
from smoothfbo.harness import chunks, console, folders, lanes, runner, store
from smoothfbo.harness.checkpoints import Checkpoints
from smoothfbo.harness.lanes import SpreadProgram
from smoothfbo.harness.study import Progress


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    folder = tmp_path_factory.mktemp("complete") / "run"
    execute(toy(), folder)
    return folder


def test_a_run_leaves_tidy_files_and_drops_what_is_beyond_the_end(complete):
    assert {path.name for path in complete.iterdir()} == {
        "config.json", "metrics.parquet", "lanes.parquet", "summary.json",
    }  # fmt: skip
    metrics = pd.read_parquet(complete / "metrics.parquet")
    assert {"method", "window", "seed", "round", "place"} == set(metrics.columns)
    assert (metrics.groupby("seed")["round"].apply(list).map(lambda r: r == list(range(15)))).all()
    stored = json.loads((complete / "config.json").read_text())
    assert stored["config"] == {"rounds": 15, "speed": 1.0}
    assert {"jax", "smoothfbo", "optax"} <= set(stored["versions"])
    assert stored["devices"]


def test_lanes_are_what_one_lane_alone_would_be(complete):
    """Vmapping, padding and spreading change nothing."""
    metrics = pd.read_parquet(complete / "metrics.parquet")
    for seed in (1, 2, 3, 4):
        place = np.float32(seed * 100)
        for row in metrics[metrics["seed"] == seed].itertuples():
            key = jax.random.fold_in(jax.random.key(jnp.uint32(seed)), row.round)
            place = np.float32(place + np.asarray(jax.random.normal(key, dtype=jnp.float32)))
            np.testing.assert_allclose(row.place, place, rtol=1e-6)


@pytest.mark.parametrize("number", [1, 3, 4, 6])
def test_a_run_that_died_goes_on_to_the_same_bits(complete, tmp_path, monkeypatch, number):
    monkeypatch.setattr(chunks, "CHECKPOINT_SHARE", np.inf)
    folder = tmp_path / "run"
    with pytest.raises(Kill):
        execute(toy(), folder, stop_after(number))
    assert not folders.is_finished(folder)
    seen = []
    execute(toy(), folder, lambda program, records: seen.append(records))
    assert len(seen) <= 8 - (number - 1)
    same_results(complete, folder)


def test_a_finished_run_is_not_run_again(complete):
    before = (complete / "metrics.parquet").stat().st_mtime_ns
    execute(toy(), complete, stop_after(1))
    assert (complete / "metrics.parquet").stat().st_mtime_ns == before


def damage(checkpoint):
    """Another number in an array, in a file that is whole: only the digest can tell."""
    arrays = store.read_arrays(checkpoint)
    arrays["000000"] = arrays["000000"] + 1
    store.write_arrays(checkpoint, arrays)


def leave_two_checkpoints(folder):
    with pytest.raises(Kill):
        execute(toy(), folder, stop_after(3))
    places = sorted((folder / "progress" / "000" / "checkpoints").iterdir())
    assert len(places) == 2
    return places


def test_a_damaged_checkpoint_falls_back_to_the_one_before(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHECKPOINT_SHARE", np.inf)
    places = leave_two_checkpoints(tmp_path / "run")
    damage(places[1])
    with pytest.warns(UserWarning, match=r"000002.npz is damaged .*trying the one before"):
        execute(toy(), tmp_path / "run")
    same_results(complete, tmp_path / "run")


def test_without_an_intact_checkpoint_it_starts_again(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHECKPOINT_SHARE", np.inf)
    places = leave_two_checkpoints(tmp_path / "run")
    damage(places[0])
    places[1].write_bytes(places[1].read_bytes()[:100])
    with pytest.warns(UserWarning, match="is damaged"):
        execute(toy(), tmp_path / "run")
    same_results(complete, tmp_path / "run")


def test_damaged_records_are_run_again(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHECKPOINT_SHARE", np.inf)
    leave_two_checkpoints(tmp_path / "run")
    (tmp_path / "run" / "progress" / "000" / "records-000001.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"records-000001.npz is damaged"):
        execute(toy(), tmp_path / "run")
    same_results(complete, tmp_path / "run")


def test_records_of_other_lanes_are_refused(tmp_path):
    with pytest.raises(Kill):
        execute(toy(), tmp_path, stop_after(1))
    other = dataclasses.replace(toy(), programs=toy().programs[::-1])
    with pytest.raises(UsageError, match="holds records of other lanes"):
        execute(other, tmp_path)


def test_results_without_their_configuration_are_refused(complete, tmp_path):
    shutil.copytree(complete, tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    with pytest.raises(UsageError, match=r"holds summary.json of a run but no config.json"):
        execute(toy(speed=2.0), tmp_path / "run")


def test_one_process_at_a_time(tmp_path):
    study = toy()

    def again(program, records):
        with pytest.raises(UsageError, match="another process is running in"):
            execute(study, tmp_path)
        raise Kill

    with pytest.raises(Kill):
        execute(study, tmp_path, again)


def test_checkpoints_return_the_same_bits(tmp_path):
    state = {
        "float": np.array([[0.1, np.nan, -np.inf]], np.float32),
        "double": np.array([[np.pi]]),
        "key": np.array([[2**32 - 1, 7]], np.uint32),
        "nothing": np.zeros((1, 0), np.float32),
        "flag": np.array([True]),
    }
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, state)
    ((chunks, loaded),) = checkpoints.load(jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), state))
    assert chunks == 3
    for name, value in state.items():
        assert loaded[name].dtype == value.dtype
        assert loaded[name].tobytes() == value.tobytes()


def test_another_configuration_is_refused(complete):
    with pytest.raises(UsageError, match=r"another configuration \(speed = 1\.0 there, 2\.0 here\)"):
        execute(toy(speed=2.0), complete)
    with pytest.raises(UsageError, match="holds a run of 'toy'"):
        execute(dataclasses.replace(toy(), name="other"), complete)


def test_other_versions_are_mentioned(complete, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(complete, folder)
    stored = json.loads((folder / "config.json").read_text())
    stored["versions"]["jax"] = "0.0.1"
    (folder / "config.json").write_text(json.dumps(stored))
    with pytest.warns(UserWarning, match="begun with other versions"):
        execute(toy(), folder)


@pytest.mark.parametrize("where", ["records", "checkpoint", "metrics"])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path, monkeypatch, where):
    folder = tmp_path / "run"
    full = OSError(errno.ENOSPC, "No space left on device")

    def half(path, *args, **kwargs):
        Path(path).write_bytes(b"half")
        raise full

    target = {
        "records": (store.np, "savez", half),
        "checkpoint": (Checkpoints, "save", lambda self, chunks, state: store.write(folder / "000001.npz", half)),
        "metrics": (pd.DataFrame, "to_parquet", lambda self, path, **kwargs: half(path)),
    }[where]
    monkeypatch.setattr(chunks, "CHECKPOINT_SHARE", np.inf)
    with monkeypatch.context() as patch:
        patch.setattr(*target)
        with pytest.raises(UsageError, match="cannot be written: No space left on device"):
            execute(toy(), folder)
    assert not list(folder.rglob(".partial*"))
    execute(toy(), folder)
    assert folders.is_finished(folder)


def test_one_compilation_per_program():
    traced = []
    study = toy()
    program = study.programs[0]
    counted = dataclasses.replace(
        program, advance=lambda numbers, state: traced.append(None) or program.advance(numbers, state)
    )
    spread = SpreadProgram(counted)
    state = spread.start()
    for _ in range(3):
        state, records = spread.advance(state)
    assert len(traced) == 1
    assert records["place"].shape == (3, 4)


def test_a_second_stage_follows_from_the_first_programs_and_dies_and_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    """Four chunks each of a and b, then c: killed in b, before the choice, at the start of c, and within it."""
    monkeypatch.setattr(chunks, "CHECKPOINT_SHARE", np.inf)
    whole, shown = tmp_path / "whole", []
    execute(toy(with_second_stage=True), whole, on_progress=shown.append)
    metrics = pd.read_parquet(whole / "metrics.parquet")
    assert list(metrics.groupby("method")["seed"].unique().map(list)) == [[1, 2, 3], [4], [4, 5]]  # 4 starts at 400
    assert {progress.total for progress in shown if progress.total} == {6 * 16}
    done = [progress.done for progress in shown]
    assert done == sorted(done)
    assert done[-1] == 6 * 16
    folder = tmp_path / "run"
    for number in (5, 4, 1, 2):  # chunks until the next kill, which loses the last one
        with pytest.raises(Kill):
            execute(toy(with_second_stage=True), folder, stop_after(number))
    assert (folder / "progress" / runner.CHOICE).exists()
    execute(toy(with_second_stage=True), folder)
    same_results(folder, whole)
    assert not (folder / "progress").exists()


def test_the_choice_is_made_once(tmp_path):
    """Whoever resumes takes it from the run's folder."""
    study = toy(with_second_stage=True)
    with pytest.raises(Kill):
        execute(study, tmp_path, stop_after(9))
    never = dataclasses.replace(study.second_stage, choose=stop_after(1))
    execute(dataclasses.replace(study, second_stage=never), tmp_path)
    assert set(pd.read_parquet(tmp_path / "metrics.parquet")["seed"]) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("width", [1, 2, 5])
def test_calls_for_some_lanes_at_a_time_are_the_same_lanes(width):
    """Also where a call has room for more lanes than there are, and where its compilation serves fewer lanes."""
    whole = SpreadProgram(toy().programs[0])
    parts = SpreadProgram(dataclasses.replace(toy().programs[0], width=width))
    first, second = whole.start(), parts.start()
    assert len(second) == -(-3 // width)
    for _ in range(2):
        first, expected = whole.advance(first)
        second, records = parts.advance(parts.put(parts.fetch(second)))
        for name, values in expected.items():
            np.testing.assert_array_equal(records[name], values)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), parts.shapes())
    assert shapes == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), parts.fetch(second))


@pytest.mark.parametrize("block", [1, 2])
def test_lanes_in_blocks_are_the_same_lanes(monkeypatch, block):
    """Three lanes, two at a time: the second block has a lane of padding."""
    program = toy().programs[0]
    whole = SpreadProgram(program)
    monkeypatch.setattr(lanes, "BLOCK", block)
    parts = SpreadProgram(program)
    padded = np.asarray(parts.put(np.arange(3.0))[0])
    np.testing.assert_array_equal(padded, [0, 1, 2] if block == 1 else [0, 1, 2, 2])
    first, second = whole.start(), parts.start()
    for _ in range(2):
        first, expected = whole.advance(first)
        second, records = parts.advance(second)
        for name, values in expected.items():
            np.testing.assert_array_equal(records[name], values)
    for one, other in zip(*(map(np.asarray, jax.tree.leaves(s.fetch(x))) for s, x in ((whole, first), (parts, second))),
                          strict=True):  # fmt: skip
        np.testing.assert_array_equal(one, other)


def test_what_is_left_counts_the_compilations_to_come(monkeypatch):
    """Ten seconds of compiling and ten of 20 rounds each, twice, with 40 rounds to come: the same again."""
    clock = iter([0.0, 10.0, 20.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    speed, left = console.Speed(), []
    for done, compiling in ((0, True), (0, False), (20, False), (20, True), (20, False), (40, False)):
        progress = Progress("", done, 80, "rounds", compiling)
        speed.update(progress)
        left.append(speed.left(progress))
    assert left[2] == "about 30 s left"  # there may have been one compilation for all
    assert left[-1] == "about 40 s left"
