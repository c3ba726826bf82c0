"""The run system: lanes on devices, chunks, checkpoints, resuming, refusing, the page."""

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from html import unescape
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from smoothfbo import cli
from smoothfbo.errors import UsageError
from smoothfbo.harness import lanes, runner, store
from smoothfbo.harness.charts import Chart, HeatMap, Series, as_plotly
from smoothfbo.harness.checkpoints import Checkpoints
from smoothfbo.harness.lanes import SpreadProgram
from smoothfbo.harness.page import Section, Table, write_page
from smoothfbo.harness.study import Measured, Program, Study


@dataclasses.dataclass(frozen=True)
class Config:
    rounds: int = 15
    speed: float = 1.0


def toy(speed: float = 1.0) -> Study:
    """Three lanes of a random walk and one more, in two programs: cheap, with a state and with randomness."""
    config = Config(speed=speed)

    def begin(numbers):
        return {"place": numbers["start"], "round": jnp.zeros((), jnp.int32)}

    def advance(numbers, state):
        def step(state, _):
            key = jax.random.fold_in(jax.random.key(numbers["seed"]), state["round"])
            place = state["place"] + config.speed * jax.random.normal(key, dtype=jnp.float32)
            return {"place": place, "round": state["round"] + 1}, {"round": state["round"], "place": place}

        return jax.lax.scan(step, state, length=4)

    def program(name, seeds):
        return Program(
            name=name,
            lanes=tuple({"method": name, "window": 1, "seed": seed} for seed in seeds),
            numbers={"seed": jnp.asarray(seeds, jnp.uint32), "start": jnp.asarray(seeds, jnp.float32) * 100},
            start=begin,
            advance=advance,
            rounds=config.rounds,
            chunk=4,
        )

    def measure(program, records):
        frames = [
            pd.DataFrame({**lane, **{name: values[index] for name, values in records.items()}})
            for index, lane in enumerate(program.lanes)
        ]
        rounds = pd.concat(frames, ignore_index=True)
        return Measured(rounds, rounds.groupby("seed", as_index=False)["place"].last())

    def summarise(rounds, lanes):
        return {"rows": len(rounds), "lanes": len(lanes)}

    return Study("toy", config, [program("a", [1, 2, 3]), program("b", [4])], measure, summarise)


def no_progress(progress):
    pass


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    folder = tmp_path_factory.mktemp("complete") / "run"
    runner.execute(toy(), folder, "smoothfbo toy", no_progress)
    return folder


def same_results(first, second):
    for name in ("metrics.parquet", "lanes.parquet"):
        pd.testing.assert_frame_equal(pd.read_parquet(first / name), pd.read_parquet(second / name), check_exact=True)
    assert (first / "summary.json").read_bytes() == (second / "summary.json").read_bytes()


class Kill(Exception):
    pass


def stop_after(chunks):
    """What the runner is told; it raises like a crash after some chunks."""
    seen = 0

    def tell(progress):
        nonlocal seen
        seen += progress.records is not None
        if seen == chunks:
            raise Kill

    return tell


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


@pytest.mark.parametrize("chunks", [1, 3, 4, 6])
def test_a_run_that_died_goes_on_to_the_same_bits(complete, tmp_path, monkeypatch, chunks):
    monkeypatch.setattr(runner, "CHECKPOINT_SHARE", np.inf)
    folder = tmp_path / "run"
    with pytest.raises(Kill):
        runner.execute(toy(), folder, "smoothfbo toy", stop_after(chunks))
    assert not runner.is_finished(folder)
    seen = []
    runner.execute(toy(), folder, "smoothfbo toy", seen.append)
    assert len([progress for progress in seen if progress.records is not None]) <= 8 - (chunks - 1)
    same_results(complete, folder)


def test_a_finished_run_is_not_run_again(complete):
    before = (complete / "metrics.parquet").stat().st_mtime_ns
    runner.execute(toy(), complete, "smoothfbo toy", stop_after(1))
    assert (complete / "metrics.parquet").stat().st_mtime_ns == before


def damage(checkpoint):
    victim = max((path for path in checkpoint.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(bytes(content))


def leave_two_checkpoints(folder):
    with pytest.raises(Kill):
        runner.execute(toy(), folder, "smoothfbo toy", stop_after(3))
    places = sorted((folder / "progress" / "000" / "checkpoints").iterdir())
    assert len(places) == 2
    return places


def test_a_damaged_checkpoint_falls_back_to_the_one_before(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "CHECKPOINT_SHARE", np.inf)
    places = leave_two_checkpoints(tmp_path / "run")
    damage(places[1])
    with pytest.warns(UserWarning, match=r"000002 is damaged .*trying the one before"):
        runner.execute(toy(), tmp_path / "run", "smoothfbo toy", no_progress)
    same_results(complete, tmp_path / "run")


def test_without_an_intact_checkpoint_it_starts_again(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "CHECKPOINT_SHARE", np.inf)
    places = leave_two_checkpoints(tmp_path / "run")
    damage(places[0])
    shutil.rmtree(places[1] / "state")
    with pytest.warns(UserWarning, match="is damaged"):
        runner.execute(toy(), tmp_path / "run", "smoothfbo toy", no_progress)
    same_results(complete, tmp_path / "run")


def test_damaged_records_are_run_again(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "CHECKPOINT_SHARE", np.inf)
    leave_two_checkpoints(tmp_path / "run")
    (tmp_path / "run" / "progress" / "000" / "records-000001.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"records-000001.npz is damaged"):
        runner.execute(toy(), tmp_path / "run", "smoothfbo toy", no_progress)
    same_results(complete, tmp_path / "run")


def test_records_of_other_lanes_are_refused(tmp_path):
    with pytest.raises(Kill):
        runner.execute(toy(), tmp_path, "smoothfbo toy", stop_after(1))
    other = dataclasses.replace(toy(), programs=toy().programs[::-1])
    with pytest.raises(UsageError, match="holds records of other lanes"):
        runner.execute(other, tmp_path, "smoothfbo toy", no_progress)


def test_results_without_their_configuration_are_refused(complete, tmp_path):
    shutil.copytree(complete, tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    with pytest.raises(UsageError, match=r"holds summary.json of a run but no config.json"):
        runner.execute(toy(speed=2.0), tmp_path / "run", "smoothfbo toy", no_progress)


def test_one_process_at_a_time(tmp_path):
    study = toy()

    def again(progress):
        with pytest.raises(UsageError, match="another process is running in"):
            runner.execute(study, tmp_path, "smoothfbo toy", no_progress)
        raise Kill

    with pytest.raises(Kill):
        runner.execute(study, tmp_path, "smoothfbo toy", again)


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
        runner.execute(toy(speed=2.0), complete, "smoothfbo toy", no_progress)
    with pytest.raises(UsageError, match="holds a run of 'toy'"):
        runner.execute(dataclasses.replace(toy(), experiment="other"), complete, "smoothfbo other", no_progress)


def test_other_versions_are_mentioned(complete, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(complete, folder)
    stored = json.loads((folder / "config.json").read_text())
    stored["versions"]["jax"] = "0.0.1"
    (folder / "config.json").write_text(json.dumps(stored))
    with pytest.warns(UserWarning, match="begun with other versions"):
        runner.execute(toy(), folder, "smoothfbo toy", no_progress)


@pytest.mark.parametrize("where", ["records", "checkpoint", "metrics"])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path, monkeypatch, where):
    folder = tmp_path / "run"
    full = OSError(errno.ENOSPC, "No space left on device")

    def half(path, *args, **kwargs):
        Path(path).write_bytes(b"half")
        raise full

    def no_digests(folder):
        raise full

    target = {
        "records": (store.np, "savez", half),
        "checkpoint": (sys.modules["smoothfbo.harness.checkpoints"], "_digests", no_digests),
        "metrics": (pd.DataFrame, "to_parquet", lambda self, path, **kwargs: half(path)),
    }[where]
    monkeypatch.setattr(runner, "CHECKPOINT_SHARE", np.inf)
    with monkeypatch.context() as patch:
        patch.setattr(*target)
        with pytest.raises(UsageError, match="cannot be written: No space left on device"):
            runner.execute(toy(), folder, "smoothfbo toy", no_progress)
    assert not list(folder.rglob(".partial*"))
    runner.execute(toy(), folder, "smoothfbo toy", no_progress)
    assert runner.is_finished(folder)


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


@pytest.mark.parametrize("block", [1, 2])
def test_lanes_in_blocks_are_the_same_lanes(monkeypatch, block):
    """Three lanes, two at a time: the second block has a lane of padding."""
    program = toy().programs[0]
    whole = SpreadProgram(program)
    monkeypatch.setattr(lanes, "BLOCK", block)
    parts = SpreadProgram(program)
    first, second = whole.start(), parts.start()
    for _ in range(2):
        first, expected = whole.advance(first)
        second, records = parts.advance(second)
        for name, values in expected.items():
            np.testing.assert_array_equal(records[name], values)
    for one, other in zip(*(map(np.asarray, jax.tree.leaves(s.fetch(x))) for s, x in ((whole, first), (parts, second))),
                          strict=True):  # fmt: skip
        np.testing.assert_array_equal(one, other)


# Three lanes: on two devices one of them has a lane of padding.
SMALL = [
    "--methods", "fbo", "smooth-fbo", "uniform", "--windows", "1", "7", "--rounds", "60", "--chunk", "3",
    "--seeds", "1", "--width", "8", "--inputs", "2", "--lags", "3", "--probe-draws", "0", "--minibatch", "4",
    "--batch", "4",
]  # fmt: skip


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """The command line in a process of its own, as users run it, with a compilation cache for this test."""
    cache = tmp_path_factory.mktemp("cache")
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "smoothfbo", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    return start


@pytest.fixture(scope="module")
def uninterrupted(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    process = command("regression", *SMALL, "--out", folder)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "SmoothFBO" in output
    return folder


def wait_for_records(process, folder, number):
    """Until the run has written so many chunks (a generous limit: the machine may be busy)."""
    for _ in range(6_000):
        if len(list(folder.glob("progress/000/records-*.npz"))) >= number:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("the run wrote nothing")


def test_killed_at_any_moment_it_resumes_to_the_same_bits(command, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    for number in (1, 4):
        process = command("regression", *SMALL, "--out", folder)
        wait_for_records(process, folder, number)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    process = command("resume", folder)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    same_results(uninterrupted, folder)
    assert (folder / "report.html").exists()
    assert not (folder / "progress").exists()


def test_interrupted_it_stops_after_the_chunk_and_says_how_to_go_on(command, uninterrupted, tmp_path):
    folder = tmp_path / "my run"
    process = command("regression", *SMALL, "--out", folder)
    wait_for_records(process, folder, 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert f"go on with: smoothfbo resume '{folder}'" in errors.splitlines()[-1]
    assert list(folder.glob("progress/000/checkpoints/*/digests.json"))
    process = command("regression", *SMALL, "--out", folder)  # the same command again
    process.communicate(timeout=300)
    assert process.returncode == 0
    same_results(uninterrupted, folder)


def test_reports_are_rebuilt_from_stored_files_and_compare_runs(uninterrupted, tmp_path, capsys):
    folders = []
    for name in ("one", "two"):
        shutil.copytree(uninterrupted, tmp_path / name)
        (tmp_path / name / "report.html").unlink()
        shutil.rmtree(tmp_path / name / "figures")
        folders.append(str(tmp_path / name))
    assert cli.main(["report", folders[0]]) == 0
    assert (tmp_path / "one" / "report.html").exists()
    assert list((tmp_path / "one" / "figures").glob("*.png"))
    assert cli.main(["report", *folders, "--out", str(tmp_path / "both")]) == 0
    page = (tmp_path / "both" / "report.html").read_text()
    assert "two: smooth-fbo" in page
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resume", "nowhere"], "nowhere is not the folder of a run: it has no config.json."),
        (["report", "nowhere"], "nowhere is not the folder of a run: it has no config.json."),
        (["report"], "report needs the folder of a run"),
        (["resume"], "Missing from smoothfbo resume"),
        (["nonsense"], "nonsense"),
        ([], "Expected one of"),
    ],
)
def test_bad_commands_are_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_unfinished_run_has_no_report_yet(tmp_path, capsys):
    folder = tmp_path / "run"
    with pytest.raises(Kill):
        runner.execute(dataclasses.replace(toy(), experiment="regression"), folder, "x", stop_after(1))
    assert cli.main(["report", str(folder)]) == 2
    assert f"{folder} is not finished: go on with `smoothfbo resume {folder}`." in capsys.readouterr().err


HOSTILE = '<!--<script>document.title="owned"</script>&"\'</script>'
PROBE = """
<script>
window.addEventListener("load", () => setTimeout(() => {
  const head = [...document.querySelectorAll("th button")].find(b => b.textContent === "value");
  const column = () => [...head.closest("table").tBodies[0].rows].map(r => r.cells[1].dataset.value).join(" ");
  const seen = {charts: document.querySelectorAll(".chart .main-svg").length,
    lines: document.querySelectorAll(".chart .scatterlayer .js-line").length,
    heat: document.querySelectorAll(".chart .heatmaplayer image").length,
    title: document.title, errors: window.seenErrors};
  head.click(); seen.rising = column(); head.click(); seen.falling = column();
  seen.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const note = document.createElement("pre"); note.id = "seen"; note.textContent = JSON.stringify(seen);
  document.body.append(note);
}, 1500));
</script>
"""
WATCH = """<script>window.seenErrors = [];
window.onerror = (message) => window.seenErrors.push(String(message));
for (const kind of ["error", "warn"]) console[kind] = (...words) => window.seenErrors.push(words.join(" "));
</script>"""


def look_at(path, folder, size="1200,900"):
    """What a browser makes of a page; `folder` is for its own files."""
    page = path.read_text()
    watched = folder / "watched.html"
    watched.write_text(page.replace("<head>", "<head>" + WATCH).replace("</body>", PROBE + "</body>"))
    result = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder / 'profile'}", f"--window-size={size}", "--virtual-time-budget=15000",
            "--dump-dom", f"file://{watched}",
        ],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return json.loads(unescape(result.stdout.split('<pre id="seen">')[1].split("</pre>")[0]))


needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="needs chromium (Debian's package of that name)"
)


def test_names_in_charts_are_no_tags():
    line = Series(HOSTILE, [0, 1], [1.0, 10.0])
    described = json.dumps(as_plotly(Chart("line", "", "", HOSTILE, HOSTILE, [line])), ensure_ascii=False)
    assert described.count("&lt;script&gt;") == 3
    assert "<" not in described


@needs_browser
@pytest.mark.parametrize("size", ["1200,900", "400,800"])
def test_the_page_works_in_a_browser(tmp_path, size):
    line = Series(HOSTILE, [0, 1, 2], [1.0, 10.0, 100.0], [0.0, 5.0, 90.0], [2.0, 20.0, 110.0])
    parts = [
        Table(HOSTILE, HOSTILE, ("name", "value"), [("a", 10.0), (HOSTILE, 9.0), ("c", (100.0, "1e2"))]),
        Chart("line", HOSTILE, HOSTILE, HOSTILE, "y", [line], log_y=True),
        HeatMap("heat", "heat", "", "x", "y", "z", [0, 1], [0, 1], [[1.0, 2.0], [3.0, float("nan")]]),
    ]
    path = tmp_path / "page.html"
    write_page(path, "Page", HOSTILE, [Section(HOSTILE, [HOSTILE], parts)])
    assert "http://" not in path.read_text().split("<script>")[0]
    seen = look_at(path, tmp_path, size)
    assert seen["errors"] == []
    assert seen["title"] == "Page"
    assert seen["charts"] >= 2
    assert seen["lines"] >= 1
    assert seen["heat"] == 1
    assert not seen["wide"]
    values = [text.split() for text in (seen["rising"], seen["falling"])]
    assert values == [["9.0", "10.0", "100.0"], ["100.0", "10.0", "9.0"]]
