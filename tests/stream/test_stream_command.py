"""`smoothfbo stream` as a user calls it: folder, page, faults, standard input, killed and resumed, state."""

import gzip
import json
import os
import shutil
import signal
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from browser import HOSTILE, look_at, needs_browser

from smoothfbo import cli
from smoothfbo.harness.console import cores, start_jax
from smoothfbo.stream import folder as stream_folder
from smoothfbo.stream.command import ENTRY
from smoothfbo.stream.config import StreamConfig, with_flags

# One learner for all tests, so that it compiles once.
OPTIONS = ["--block", "8", "--rates", "4", "--windows", "2", "3", "--smoothing", "3", "--lags", "1"]
TITLES = (HOSTILE, "$x^$ & <b>bold</b>", 'a "quoted", name')


def table(rows=8 * 30 + 3, seed=0):
    """Three features, the names of which do their worst, a constant, and a target whose law jumps in the middle."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3))
    weight = np.where(np.arange(rows)[:, None] < rows // 2, [1.0, 2.0, -1.0], [-3.0, 0.5, 1.0])
    frame = pd.DataFrame(x, columns=list(TITLES))
    frame["always"] = 7
    frame["y"] = (x * weight).sum(axis=1) + 0.1 * random.normal(size=rows)
    return frame


def call(*arguments):
    return cli.main([str(argument) for argument in arguments])


@pytest.mark.parametrize(("by", "threads"), [((), 1), (("shop",), cores())])
def test_one_series_has_one_thread_and_batches_of_many_one_for_each_core(by, threads, monkeypatch):
    monkeypatch.setattr("smoothfbo.harness.lanes.use_compilation_cache", lambda: None)
    monkeypatch.setattr(os, "environ", {})
    start_jax(cpu_only=True, side_by_side=ENTRY.side_by_side(StreamConfig("table.csv", "y", by=by)))
    assert os.environ["NPROC"] == str(threads)
    start_jax(cpu_only=True)  # again: nothing is said twice
    assert os.environ["XLA_FLAGS"].count("xla_cpu_small_while_loop_byte_threshold=1000000") == 1


def stream(data, folder, *more, target="y"):
    return call("stream", data, "--target", target, *OPTIONS, "--out", folder, *more)


def predictions(folder):
    return pd.read_parquet(folder / "predictions.parquet")


def same_run(first, second):
    for name in ("predictions.parquet", "blocks.parquet"):
        pd.testing.assert_frame_equal(pd.read_parquet(first / name), pd.read_parquet(second / name), check_exact=True)
    one, other = (json.loads((folder / "summary.json").read_text()) for folder in (first, second))
    for timing in ("seconds", "rows_per_second"):
        del one[timing], other[timing]
    assert one == other


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("stream")


@pytest.fixture(scope="module")
def finished(place):
    """A run with hostile names, times, missing values, a constant column and a target with a dollar sign."""
    frame = table()
    frame["when"] = pd.date_range("2024-01-01", periods=len(frame), freq="h")
    frame.loc[[3, 50], TITLES[1]] = np.nan
    frame = frame.rename(columns={"y": "<i>$y_{$"})
    frame.to_csv(place / "hostile.csv", index=False)
    assert stream(place / "hostile.csv", place / "hostile", target="<i>$y_{$") == 0
    return place / "hostile"


def test_a_run_leaves_the_usual_folder(finished):
    assert {path.name for path in finished.iterdir()} == {
        "config.json", "summary.json", "predictions.parquet", "blocks.parquet", "figures", "report.html",
    }  # fmt: skip
    stored = json.loads((finished / "config.json").read_text())
    assert stored["experiment"] == "stream"
    assert stored["config"]["block"] == 8
    assert stored["config"]["state"] is None
    assert {"commit", "command", "versions", "devices", "data"} <= set(stored)
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["rows"] == len(predictions(finished)) == 243
    assert summary["missing"] == {TITLES[1]: 2}
    assert summary["constant_features"] == ["always"]
    assert {path.name for path in (finished / "figures").iterdir()} == {
        "ages.png", "coverage.png", "effects.png", "error_by_hour.png", "memory.png", "predictions.png",
        "recent_error.png", "relative_error.png", "residuals.png", "running_error.png", "weights.png",
    }  # fmt: skip
    page = (finished / "report.html").read_text()
    assert "<script>document" not in page
    shown = page.split('<script id="charts"')[0]
    assert "<i>$" not in shown
    # What is to be known comes first; then memories in rows, what changed, and whether the bands held.
    assert shown.index("few rows") < shown.index("All methods on the same rows") < shown.index("Detected changes")
    assert "forgetting, 16 rows" in shown
    assert "100 rows are 4.17 days" in shown
    assert "Error by day of the week" in shown
    assert "Can the bands be trusted?" in shown


@pytest.mark.usefixtures("no_figures")
def test_a_finished_run_is_shown_again_and_not_run_again(finished, capsys):
    before = (finished / "predictions.parquet").stat().st_mtime_ns
    assert stream(finished.with_suffix(".csv"), finished, target="<i>$y_{$") == 0
    shown = capsys.readouterr().out
    assert "holds the finished run" in shown
    assert "(best in hindsight)" in shown
    assert "Features that never varied: 'always'" in shown
    assert f"Missing values: {TITLES[1]!r} 2" in shown
    assert "report.html" in shown
    assert (finished / "predictions.parquet").stat().st_mtime_ns == before
    table = [line.split()[-3:] for line in shown.splitlines() if line.startswith(("  SmoothFBO", "  forgetting"))]
    errors = [float(error) for error, _, _ in table]
    assert errors == sorted(errors)
    assert stream(finished.with_suffix(".csv"), finished, "--step", "0.25", target="<i>$y_{$") == 2
    assert "another configuration (step = 0.5 there, 0.25 here)" in capsys.readouterr().err


@pytest.mark.usefixtures("no_figures")
def test_the_report_is_rebuilt_from_stored_files(finished, tmp_path, capsys):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    (folder / "report.html").unlink()
    shutil.rmtree(folder / "figures")
    assert call("report", folder) == 0
    assert (folder / "report.html").read_bytes() == (finished / "report.html").read_bytes()
    assert {path.name for path in (folder / "figures").iterdir()} == {
        path.name for path in (finished / "figures").iterdir()
    }
    assert capsys.readouterr().err == ""


@needs_browser
@pytest.mark.parametrize("size", ["1200,900", "400,800"])
def test_the_page_works_in_a_browser_whatever_the_names(finished, tmp_path, size):
    seen = look_at(finished / "report.html", tmp_path, size)
    assert seen["errors"] == []
    assert seen["title"] == "<i>$y_{$: how much of the past to trust"
    assert seen["charts"] >= 11
    assert seen["heat"] == 2
    assert not seen["wide"]


@pytest.mark.usefixtures("no_figures")
def test_classes_may_have_any_names_and_come_late(place, capsys):
    frame = table()
    names = np.array([HOSTILE, "low", "late"])
    frame["y"] = names[np.where(frame["y"] > 0, 0, np.where(np.arange(len(frame)) > 150, 2, 1))]
    frame.to_parquet(place / "classes.parquet")
    assert stream(place / "classes.parquet", place / "classes") == 0
    assert "error rate" in capsys.readouterr().out
    assert set(predictions(place / "classes")["target"]) == set(names)
    page = (place / "classes" / "report.html").read_text()
    assert "<script>document" not in page
    assert "predicted late" in page


def write(path, content):
    if path.name.endswith(".gz"):
        packed = gzip.compress(content)
        path.write_bytes(packed[: len(packed) - 30])
    else:
        path.write_bytes(content)
    return path


# As many columns as in test_live.py, so that the learner compiles once for both files.
ROWS = b"".join(b"%d.5,%d,%d\n" % (i, i % 5, i % 7) for i in range(60))
PLAIN = b"x,z,y\n" + ROWS
TIMED = b"t,x,z,y\n" + b"".join(b"%d,%d.5,%d,%d\n" % (i, i, i % 5, i % 7) for i in range(60))


def only_complaint(errors):
    """The last line; before it a slow machine may have written lines of progress, which are no complaints."""
    *progress, complaint = errors.splitlines()
    assert complaint.startswith("smoothfbo: ")
    assert all(line == "compiling" or " rows, error so far " in line for line in progress)
    return complaint


def without_spaces(text):
    """The parser's line breaks change them."""
    return text.replace(" ", "")


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    ("content", "more", "message", "rows"),
    [
        (PLAIN, ["--target", "why"], "--target why: no such column; did you mean 'y'?", None),
        (None, [], "data.csv does not exist.", None),
        (b"", [], "data.csv is empty.", None),
        (b"x,y\n", [], "data.csv has a header and no rows.", None),
        (b"x,y\n1,2\n", [], "has 1 row, fewer than one block of 8; choose a smaller --block.", None),
        (b"y\n" + b"1.5\n2\n" * 20, ["--lags", "0"], "nothing to predict column 'y' from; give it a column", None),
        (b"x,x,y\n1,2,3\n", [], "column 'x' appears twice (columns 1 and 2)", None),
        (PLAIN, ["--state", "no/where"], "--state no/where: the folder no does not exist.", None),
        (PLAIN, ["--sort"], "--sort needs a file and a time column (--time)", None),
        (PLAIN, ["--ignore", "y"], "--ignore y is the target, which cannot be left out.", None),
        (PLAIN, ["--seed", "-1"], "--seed must be an integer between 0 and 2147483647, got", None),
        (PLAIN.replace(b",", b";"), [], "separated by commas, but its header seems to use semicolons.", None),
        (PLAIN.replace(b",", b"\t"), [], "separated by commas, but its header seems to use tabs.", None),
        (PLAIN, ["--lags", "x"], "(see smoothfbo stream --help).", None),
        (b"x,z,y\n" + b"1,2,\n" * 20, [], "column 'y' has no value that could be predicted", 20),
        (PLAIN, ["--block", "1"], "--block must be an integer between 2 and 100000, got 1.", None),
        (PLAIN + b"oops,2,1\n", [], "row 61, column 'x': 'oops' is not a number (--on-error skip", 60),
        (PLAIN + b"1,2,3,4\n", [], "row 61: 4 values for 3 columns; a column appeared.", 60),
        (PLAIN + b"1,2\n", [], "row 61, column 'y': no value; 2 values for 3 columns.", 60),
        (PLAIN + b"inf,2,1\n", [], "row 61, column 'x': an infinite value.", 60),
        (PLAIN + b",2,1\n", ["--missing", "error"], "row 61, column 'x': a missing value (--missing is error).", 60),
        (TIMED + b"1,1,1,1\n", ["--time", "t"], "row 61, column 't': 1.0 is before the row above; rows must", 60),
        (PLAIN + b"1,2,\0\n", [], "line 62: a NUL byte", 60),
        (PLAIN + b"9" * 10_000_000, [], "line 62: longer than 1,048,576 bytes", 60),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_what_came_before_is_kept(
    tmp_path, monkeypatch, capsys, content, more, message, rows
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        write(tmp_path / "data.csv", content)
    target = [] if "--target" in more else ["--target", "y"]
    assert call("stream", "data.csv", *target, "--task", "regression", *OPTIONS, *more) == 2
    errors = capsys.readouterr().err
    complaint = only_complaint(errors)
    assert without_spaces(message.rstrip(".")) in without_spaces(complaint)
    assert "`" not in complaint  # options are flags here
    folder = tmp_path / "out" / "stream-data"
    if rows is None:
        assert not folder.exists()
    else:
        assert len(predictions(folder)) == rows
        assert with_flags(json.loads((folder / "summary.json").read_text())["fault"]) in errors
        assert f"The {rows} rows before are kept." in errors
        assert (folder / "report.html").exists()


@pytest.mark.usefixtures("no_figures")
def test_where_no_row_was_evaluated_no_error_is_shown(tmp_path, capsys):
    write(tmp_path / "data.csv", b"x,z,y\n" + b"1,2,\n" * 20)
    assert stream(tmp_path / "data.csv", tmp_path / "run", "--task", "regression") == 2
    assert "SmoothFBO " not in capsys.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "No row has both a prediction and a target" in page
    assert "mean squared error is 0" not in page
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    summary["judged"] = summary.pop("evaluated")  # as it was called earlier
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    assert cli.main(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.html").read_text() == page


@pytest.mark.usefixtures("no_figures")
def test_a_value_far_from_all_others_is_named_once(tmp_path, capsys):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=400), "rare": 0.0, "number": np.arange(400)})  # as many as `table`
    frame["y"], frame["empty"] = 2 * frame["x"], np.nan
    frame.loc[350, "rare"] = 1.0  # a mark that is seldom set is not odd
    frame.loc[[200, 300], "x"] = -9999
    frame.to_csv(tmp_path / "data.csv", index=False)
    assert stream(tmp_path / "data.csv", tmp_path / "run") == 0
    notes = json.loads((tmp_path / "run" / "summary.json").read_text())["notes"]
    assert [note for note in notes if "far from all else" in note] == [note for note in notes if "column 'x'" in note]
    assert len([note for note in notes if note.startswith("column 'x', row 201: -9999 (2 times) is far")]) == 1
    assert "row 201: -9999" in " ".join(capsys.readouterr().out.split())
    many = pd.concat([frame.assign(empty=5.0), *[frame] * 50])  # more than a piece; the first row stands in the first
    many.iloc[3, 0] = -9999
    many.to_csv(tmp_path / "many.csv", index=False)
    assert stream(tmp_path / "many.csv", tmp_path / "many") == 0
    notes = json.loads((tmp_path / "many" / "summary.json").read_text())["notes"]
    assert [note for note in notes if note.startswith("column 'x', row 4: -9999 (103 times) is far")]
    assert " ".join(capsys.readouterr().out.split()).count("row 4: -9999 is far") == 1
    frame.drop([200, 300]).to_csv(tmp_path / "good.csv", index=False)
    assert stream(tmp_path / "good.csv", tmp_path / "good") == 0
    assert len(json.loads((tmp_path / "good" / "summary.json").read_text())["notes"]) == 1  # the task


@pytest.mark.usefixtures("no_figures")
def test_a_truncated_gzip_keeps_what_could_be_read(place, capsys):
    x = np.random.default_rng(0).normal(size=30_000)
    pd.DataFrame({"x": x, "z": x.round(), "y": 2 * x}).to_csv(place / "cut.csv.gz", index=False)
    whole = (place / "cut.csv.gz").read_bytes()
    (place / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    assert stream(place / "cut.csv.gz", place / "cut") == 2
    errors = capsys.readouterr().err
    assert "the gzip file is truncated or damaged" in only_complaint(errors)
    assert len(predictions(place / "cut")) > 8_000


@pytest.mark.usefixtures("no_figures")
def test_a_fault_in_the_first_row_leaves_nothing_and_can_be_fixed(tmp_path, capsys):
    data, folder, task = tmp_path / "data.csv", tmp_path / "run", ("--task", "regression")
    data.write_bytes(b"x,z,y\ninf,2,1\n" + ROWS)
    assert stream(data, folder, *task) == 2
    assert "row 1, column 'x': an infinite value" in capsys.readouterr().err
    data.write_bytes(PLAIN + b"oops,2,1\n")  # fixed, and another fault
    assert stream(data, folder, *task) == 2
    data.write_bytes(PLAIN)
    assert stream(data, folder, *task) == 0
    assert len(predictions(folder)) == 60
    data.write_bytes(PLAIN + ROWS)
    capsys.readouterr()
    assert stream(data, folder, *task) == 2
    assert "data.csv has changed since the run in" in capsys.readouterr().err


class Typed:
    """Standard input that hands out one portion after the other, then ends or is interrupted."""

    def __init__(self, text, ends=True, size=1_000):
        self.portions = [text[at : at + size] for at in range(0, len(text), size)]
        self.buffer, self.ends = self, ends

    def read1(self, size):
        if self.portions:
            return self.portions.pop(0)
        if not self.ends:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        return b""


@pytest.mark.usefixtures("no_figures")
def test_standard_input_gives_what_the_file_gives(tmp_path, monkeypatch, capsys):
    data = tmp_path / "data.csv"
    table().to_csv(data, index=False)
    assert stream(data, tmp_path / "file") == 0
    monkeypatch.setattr(sys, "stdin", Typed(data.read_bytes()))
    assert stream("-", tmp_path / "input") == 0
    pd.testing.assert_frame_equal(predictions(tmp_path / "file"), predictions(tmp_path / "input"), check_exact=True)
    capsys.readouterr()
    assert stream("-", tmp_path / "input") == 2
    assert "holds a run over rows that cannot be read again; give another folder" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", Typed(data.read_bytes(), ends=False))
    assert stream("-", tmp_path / "stopped") == 130
    assert "standard input cannot be read again" in capsys.readouterr().err
    assert len(predictions(tmp_path / "stopped")) == 243


@pytest.mark.usefixtures("no_figures")
def test_a_state_goes_on_with_new_rows_also_after_a_fault(tmp_path, capsys):
    frame = table()
    frame.to_csv(tmp_path / "whole.csv", index=False)
    frame[:101].to_csv(tmp_path / "one.csv", index=False)
    with open(tmp_path / "one.csv", "a") as file:
        file.write("1,2,3,7,oops\n")
    frame[101:].to_csv(tmp_path / "two.csv", index=False)
    assert stream(tmp_path / "whole.csv", tmp_path / "whole") == 0
    state = ["--state", tmp_path / "model.state"]
    assert stream(tmp_path / "one.csv", tmp_path / "one", *state) == 2
    said = capsys.readouterr().err
    assert "row 102, column 'y': 'oops' is not a number (`" not in said  # options are said as flags
    assert "row 102, column 'y': 'oops' is not a number (--on-error skip" in said
    assert said.rstrip().endswith("The 101 rows before are kept.")
    saved = (tmp_path / "model.state").read_bytes()
    assert stream(tmp_path / "two.csv", tmp_path / "two", *state) == 0
    assert "model.state, after 243 rows" in capsys.readouterr().out
    joined = pd.concat([predictions(tmp_path / "one"), predictions(tmp_path / "two")], ignore_index=True)
    pd.testing.assert_frame_equal(joined, predictions(tmp_path / "whole"), check_exact=True)
    # Asked again, the finished run is shown; the rows are not learnt twice.
    after = (tmp_path / "model.state").read_bytes()
    assert after != saved
    assert stream(tmp_path / "two.csv", tmp_path / "two", *state) == 0
    assert (tmp_path / "model.state").read_bytes() == after
    capsys.readouterr()
    (tmp_path / "model.state").write_bytes(saved[:999])
    assert stream(tmp_path / "two.csv", tmp_path / "three", *state) == 2
    assert "model.state is not the state of a learner, or it is damaged." in capsys.readouterr().err
    assert not (tmp_path / "three").exists()


@pytest.mark.usefixtures("no_figures")
def test_sorted_files_go_on_sorted(tmp_path):
    frame = table()
    frame["when"] = np.arange(len(frame))
    frame.to_csv(tmp_path / "whole.csv", index=False)
    frame[:99].to_csv(tmp_path / "one.csv", index=False)
    frame[99:].sample(frac=1, random_state=1).to_csv(tmp_path / "two.csv", index=False)
    order = ["--time", "when", "--sort", "--state", tmp_path / "model.state"]
    assert stream(tmp_path / "whole.csv", tmp_path / "whole", "--time", "when") == 0
    for name in ("one", "two"):
        assert stream(tmp_path / f"{name}.csv", tmp_path / name, *order) == 0
    joined = pd.concat([predictions(tmp_path / "one"), predictions(tmp_path / "two")], ignore_index=True)
    pd.testing.assert_frame_equal(joined, predictions(tmp_path / "whole"), check_exact=True)


class Crash(BaseException):
    """As if the process had been killed, where a test can look on."""


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("moment", ["joining", "summary"])
def test_killed_at_the_very_end_it_ends_the_same(tmp_path, monkeypatch, moment):
    data, state = tmp_path / "data.csv", tmp_path / "model.state"
    table().to_csv(data, index=False)
    assert stream(data, tmp_path / "whole") == 0

    def crash(*arguments):
        raise Crash

    with monkeypatch.context() as patch:
        if moment == "joining":
            patch.setattr(stream_folder.StreamFolder, "join", crash)
        else:
            patch.setattr("smoothfbo.harness.store.write_json", write_json_until_summary(crash))
        with pytest.raises(Crash):
            stream(data, tmp_path / "run", "--state", state)
    assert call("resume", tmp_path / "run") == 0
    same_run(tmp_path / "whole", tmp_path / "run")
    frame = table()[:5]
    frame.to_csv(tmp_path / "more.csv", index=False)
    assert stream(tmp_path / "more.csv", tmp_path / "more", "--state", state) == 0
    assert predictions(tmp_path / "more")["row"].tolist() == list(range(244, 249))  # learnt once, not twice


def write_json_until_summary(crash):
    from smoothfbo.harness.store import write_json

    return lambda path, content: crash() if path.name == "summary.json" else write_json(path, content)


def test_what_was_written_after_the_snapshot_is_written_again(tmp_path):
    def rows(*numbers):
        return pa.table({"row": list(numbers)})

    killed = stream_folder.StreamFolder(tmp_path)  # never closed
    killed.predictions(rows(1, 2))
    killed.blocks(rows(10))
    killed.save(lambda path: path.write_text("learner"))
    killed.predictions(rows(3, 4))
    killed.blocks(rows(20))
    killed._close_part()  # and here, between the part and its snapshot, comes the end
    assert stream_folder.StreamFolder(tmp_path).snapshot.read_text() == "learner"
    assert not (tmp_path / "predictions.parquet").exists()
    with stream_folder.StreamFolder(tmp_path) as sink:
        sink.predictions(rows(3))
    assert predictions(tmp_path)["row"].tolist() == [1, 2, 3]
    assert pd.read_parquet(tmp_path / "blocks.parquet")["row"].tolist() == [10]
    assert not (tmp_path / "progress").exists()


def wait_for_snapshot(process, folder, number):
    for _ in range(6_000):
        found = [int(path.stem.split("-")[1]) for path in folder.glob("progress/learner-*.state")]
        if max(found, default=0) >= number:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("the run saved nothing")


@pytest.mark.usefixtures("no_figures")
def test_stopped_and_killed_it_resumes_to_the_same_bits(command, tmp_path, monkeypatch, capsys):
    random = np.random.default_rng(0)
    # A snapshot after every 8,192 rows, and so many rows after the second that it is killed before the end.
    x = random.normal(size=32_000).round(3)
    y = x + random.normal(size=32_000).round(2)
    pd.DataFrame({"x": x, "z": x.round(), "y": y}).to_csv(tmp_path / "data.csv", index=False)
    arguments = ("stream", tmp_path / "data.csv", "--target", "y", *OPTIONS, "--out")
    whole, folder = tmp_path / "whole", tmp_path / "my run"
    save = stream_folder.StreamFolder.save
    with monkeypatch.context() as patch:  # interrupted after the first snapshot

        def interrupt(*arguments):
            save(*arguments)
            os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(stream_folder.StreamFolder, "save", interrupt)
        assert call(*arguments, folder) == 130
    assert f"resume with: smoothfbo resume '{folder}'" in capsys.readouterr().err.splitlines()[-1]
    assert list(folder.glob("progress/learner-*.state"))
    process = command(*arguments, folder)
    wait_for_snapshot(process, folder, 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "summary.json").exists()
    # Here, where the learner is compiled already; a process of its own that resumes is in the tests of the harness.
    assert call("resume", folder) == 0
    assert call(*arguments, whole) == 0
    same_run(whole, folder)
    assert not (folder / "progress").exists()
    assert (folder / "report.html").exists()


def test_help_names_the_options(capsys):
    with pytest.raises(SystemExit):
        call("stream", "--help")
    text = capsys.readouterr().out
    for option in ("--target", "--task", "--time", "--lags", "--state", "--missing", "--sort", "--block"):
        assert option in text


def test_river_evaluates_the_public_estimators():
    evaluate = pytest.importorskip("river.evaluate")
    from river import base, metrics

    import smoothfbo

    base.Regressor.register(smoothfbo.StreamRegressor)  # river asks for its own base classes
    base.Classifier.register(smoothfbo.StreamClassifier)
    frame = table()
    rows = frame.drop(columns="y").to_dict("records")
    options = {"block": 8, "rates": 4, "smoothing": 3}
    model = smoothfbo.StreamRegressor(**options)
    error = evaluate.progressive_val_score(zip(rows, frame["y"], strict=True), model, metrics.MSE())
    assert error.get() < frame["y"].var() / 2
    labels = frame["y"] > 0
    score = evaluate.progressive_val_score(
        zip(rows, labels, strict=True), smoothfbo.StreamClassifier(**options), metrics.Accuracy()
    )
    assert score.get() > 0.75


def test_the_block_depends_on_the_task_unless_it_is_chosen():
    config = StreamConfig("data.csv", "y")
    assert [config.for_task(is_classification).rows_per_block for is_classification in (False, True)] == [16, 8]
    chosen = StreamConfig("data.csv", "y", block=5)
    assert chosen.for_task(is_classification=True) == chosen
