"""`smoothfbo stream --live`: answers row by row through a real pipe, killed and resumed; questions; bad rows."""

import io
import json
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from stream_rows import KeptTables

from smoothfbo import cli
from smoothfbo.errors import UsageError
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner import files
from smoothfbo.stream.live import Answers, Printer, report_news
from smoothfbo.stream.pipeline import open_stream, run_stream
from smoothfbo.stream.reading.faults import LeftOut

OPTIONS = {"block": 8, "rates": 4, "windows": (2, 3), "smoothing": 3, "lags": 1, "task": "regression"}
FLAGS = [
    "--block",
    "8",
    "--rates",
    "4",
    "--windows",
    "2",
    "3",
    "--smoothing",
    "3",
    "--lags",
    "1",
    "--task",
    "regression",
]
HEADER = "a,b,y"


def rows(count=60, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 2))
    y = x @ [1.0, -2.0] + 0.1 * random.normal(size=count)
    return [f"{a!r},{b!r},{c!r}" for (a, b), c in zip(x.tolist(), y.tolist(), strict=True)]


def question(row):
    return row.rpartition(",")[0] + ","


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def of_file(place):
    """What a file with these rows gives."""
    (place / "whole.csv").write_text("\n".join([HEADER, *rows()]) + "\n")
    sink = KeptTables()
    run_stream(StreamConfig(str(place / "whole.csv"), "y", **OPTIONS), sink)
    return sink.frame()


def call(lines, *more):
    """In this process, from a standard input that ends."""
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO("\n".join([HEADER, *lines, ""]).encode()))
    try:
        return cli.main(["stream", "-", "--target", "y", *FLAGS, *map(str, more)])
    finally:
        sys.stdin = before


def test_rows_are_answered_as_they_come_and_a_killed_run_goes_on(command, place, of_file, capsys):
    state, data = place / "model.state", rows()
    live = ["--live", "json", "--state", state, "--save-every", "0.2", "--on-error", "skip"]
    process = command("stream", "-", "--target", "y", *FLAGS, *live)

    def ask(*lines):
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        return [json.loads(process.stdout.readline()) for line in lines if line.count(",") == 2]

    process.stdin.write(HEADER + "\n")
    answers = ask(*data[:8])
    waits = []
    for row in data[8:40]:
        start = time.perf_counter()
        answers += ask(row)
        waits.append(time.perf_counter() - start)
    assert np.median(waits) < 0.5  # a few milliseconds where nothing else runs; compiling would take longer than this
    (asked,) = ask(question(data[40]))
    assert asked["target"] is None
    assert ask("1,2", "x,1", data[40])[0] == asked | {"target": float(data[40].rpartition(",")[2])}
    answers.append(asked)
    for name in ("prediction", "low_50", "high_50", "low_80", "high_80", "low_95", "high_95"):
        given = np.array([answer[name] for answer in answers], float)
        # The command compiles whole loops, this process does not: on some processors the last digit differs.
        np.testing.assert_allclose(given, of_file[name][:41], rtol=1e-12, atol=1e-14)
    while not state.exists() or files.load(state)[1]["rows"] < len(answers):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert "left out: standard input, row 42, column 'y': no value; 2 values for 3 columns." in errors
    # The next start, with the next rows; in CSV.
    assert call(data[41:], "--live", "csv", "--state", state) == 0
    out, errors = capsys.readouterr()
    assert f"{state}: 41 rows were learnt; the next one is row 42" in errors
    assert "60 rows, mean squared error" in errors
    rest = pd.read_csv(io.StringIO(out))
    names = ["row", "target", "prediction", "low_50", "high_50", "low_80", "high_80", "low_95", "high_95"]
    assert list(rest) == names
    pd.testing.assert_frame_equal(rest, of_file[names][41:].reset_index(drop=True), rtol=1e-12)


def answered(place, lines, **options):
    """What is printed for these lines, and the session afterwards."""
    (place / "lines.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    opened = open_stream(StreamConfig(str(place / "lines.csv"), "y", **OPTIONS | options))
    text = io.StringIO()
    answers = Answers(opened.session, Printer(False, text))
    for piece in opened.pieces():
        for at in range(piece.num_rows):
            assert answers.add(piece.slice(at, 1)) is None
    return [json.loads(line) for line in text.getvalue().splitlines()], answers


def test_questions_are_answered_in_their_place_and_learnt_once(place, of_file):
    data = rows()
    lines = [*data[:20], *map(question, data[20:23]), *data[20:22], question(data[23]), *data[22:30]]
    given, answers = answered(place, lines)
    assert [answer["row"] for answer in given] == [*range(1, 24), 21, 22, 24, *range(23, 31)]
    learnt = {answer["row"]: answer["prediction"] for answer in given if answer["target"] is not None}
    np.testing.assert_array_equal(np.array(list(learnt.values()), float), of_file["prediction"][:30])
    assert answers.session.rows == 30
    assert answers.waiting == []


def test_a_target_that_never_comes_is_lost_as_in_a_file(place):
    data = rows()
    lines = [*data[:20], question(data[20]), question(data[21]), *data[22:30], question(data[30])]
    given, answers = answered(place, lines)
    (place / "lost.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    sink = KeptTables()
    results = run_stream(StreamConfig(str(place / "lost.csv"), "y", **OPTIONS), sink)
    np.testing.assert_array_equal([answer["prediction"] for answer in given][1:], sink.frame()["prediction"][1:])
    assert answers.session.rows == 30
    assert len(answers.waiting) == results.forecasts == 1


def test_bad_rows_are_left_out_counted_and_named(place, of_file, tmp_path):
    data = rows()
    bad = {3: "oops,1,2", 10: "1", 11: "inf,1,2", 40: "1,2,3,4", 50: '"1,2,3', 55: "1,\xff,3"}
    lines = list(data)
    for place_of, line in bad.items():
        lines.insert(place_of, line)
    (tmp_path / "bad.csv").write_bytes("\n".join([HEADER, *lines, ""]).encode("latin-1"))
    sink = KeptTables()
    results = run_stream(StreamConfig(str(tmp_path / "bad.csv"), "y", on_error="skip", **OPTIONS), sink)
    assert results.fault is None
    assert results.left_out == 6
    for number, text in zip((4, 11, 12, 41, 51, 56), results.left_out_first, strict=True):
        assert f"bad.csv, row {number}" in text
    pd.testing.assert_frame_equal(sink.frame(), of_file, check_exact=True)


def test_rows_out_of_order_are_left_out(place, tmp_path):
    lines = [f"{i},{row}" for i, row in enumerate(rows(30))]
    lines.insert(20, f"5,{rows(30)[5]}")
    (tmp_path / "order.csv").write_text("\n".join(["t," + HEADER, *lines, ""]))
    config = StreamConfig(str(tmp_path / "order.csv"), "y", time="t", on_error="skip", **OPTIONS)
    results = run_stream(config)
    assert (results.rows, results.table_rows, results.left_out) == (30, 30, 1)
    assert "row 21, column 't': 5.0 is before the row above" in results.left_out_first[0]


def test_what_is_left_out_is_named_once_whatever_is_wrong_with_it():
    session: Any = SimpleNamespace(changes=[], unread=LeftOut(True), left_out=LeftOut(True))
    said, reported = [], (0, 0, 0)
    for kind, text in ((session.left_out, "row 3"), (session.unread, "row 5"), (session.left_out, "row 7")):
        kind.add(UsageError(text))
        reported = report_news(session, reported, said.append)
    assert said == ["left out: row 3", "left out: row 5", "left out: row 7"]


def test_predict_only_learns_nothing(place, of_file, tmp_path, capsys):
    data, state = rows(), tmp_path / "model.state"
    assert call(data[:35], "--live", "json", "--state", state) == 0
    before = state.read_bytes()
    capsys.readouterr()
    assert call([*map(question, data[35:37]), data[37]], "--live", "json", "--state", state, "--predict-only") == 0
    given = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["row"] for answer in given] == [36, 37, 38]
    assert given[0]["prediction"] == of_file["prediction"][35]
    assert state.read_bytes() == before
    assert call(data, "--live", "json", "--predict-only") == 2
    assert "--predict-only needs a learner: give its file as --state." in capsys.readouterr().err
    assert call(data, "--live", "json", "--predict-only", "--state", tmp_path / "none.state") == 2
    assert "--predict-only needs a learner, but" in capsys.readouterr().err
