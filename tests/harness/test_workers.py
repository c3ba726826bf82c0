"""Blocks of lanes by workers: how they are cut, tried again, given up, resumed and joined."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pandas as pd
import pytest
from toy_study import Kill, execute, same_results, toy

from smoothfbo import cli
from smoothfbo.errors import UsageError
from smoothfbo.harness import folders, runner, store
from smoothfbo.harness.page import Page, write_page
from smoothfbo.harness.study import Run
from smoothfbo.harness.workers import gpus, process
from smoothfbo.harness.workers.base import AttemptResult
from smoothfbo.harness.workers.blocks import cut, size_for
from smoothfbo.harness.workers.choice import choose
from smoothfbo.harness.workers.driver import ATTEMPTS
from smoothfbo.harness.workers.process import run_attempt


class Here:
    """Workers in this process. `fault(block, try)` may raise before a block is run, or return what watches it."""

    request, notes, devices, blocks = "here", (), ["here"], 2

    def __init__(self, study, fault=lambda block, number: None, block=2):
        self.block, self.asked, self._study, self._fault = block, [], study, fault

    @contextmanager
    def open(self, folder):
        self._folder = folder
        yield self

    def submit(self, block):
        self.asked.append(block)
        return len(self.asked) - 1

    def wait(self, pending, seconds):
        return [(pending[0], run_attempt(lambda: self._run(pending[0])))]

    def _run(self, index):
        block = self.asked[index]
        watch = self._fault(block, self.asked[: index + 1].count(block)) or (lambda program, records: None)
        runner.execute(self._study, Run(None, self._folder, "", lambda progress: None, watch, block=block))


def run(folder, workers, on_progress=lambda progress: None, on_records=lambda program, records: None, study=None):
    study = study or toy()
    runner.execute(study, Run(study.config, folder, "smoothfbo toy", on_progress, on_records, workers))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """In one process, without workers."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    execute(toy(), folder)
    return folder


@pytest.mark.parametrize(
    ("size", "lanes"), [(None, [3, 1]), (1, [1, 1, 1, 1]), (2, [1, 2, 1]), (3, [3, 1]), (9, [3, 1])]
)
def test_blocks_have_every_lane_once_and_are_as_equal_as_can_be(size, lanes):
    programs = toy().programs
    blocks = cut(programs, size)
    assert [len(block.program.lanes) for block in blocks] == lanes
    assert [lane for block in blocks for lane in block.program.lanes] == [
        lane for program in programs for lane in program.lanes
    ]
    for block in blocks:
        assert block.program.numbers["seed"].tolist() == [lane["seed"] for lane in block.program.lanes]
    assert len({block.name for block in blocks}) == len(blocks)


def test_as_many_blocks_as_keep_the_workers_busy():
    assert [size_for(toy().programs, number) for number in (1, 2, 3, 4, 100)] == [4, 2, 2, 1, 1]
    wide = [dataclasses.replace(program, width=3) for program in toy().programs]
    assert [size_for(wide, number) for number in (1, 2, 100)] == [6, 3, 3]  # full calls


def test_blocks_give_the_tables_of_one_process(whole, tmp_path):
    seen, shown = [], []
    workers = Here(toy())
    run(tmp_path, workers, shown.append, lambda program, records: seen.append((program.lanes, records)))
    same_results(whole, tmp_path)
    assert workers.asked == ["000-000000", "000-000001", "001-000000"]
    assert not (tmp_path / "progress").exists()
    assert store.read_json(tmp_path / "config.json")["workers"] == {"request": "here", "block": 2}
    assert [progress.done for progress in shown] == sorted(progress.done for progress in shown)
    assert shown[-1].done == shown[-1].total == 64
    # Records of whole programs, chunk by chunk; the last one without what is beyond the end.
    assert [(len(lanes), records["place"].shape) for lanes, records in seen] == (
        [(3, (3, 4))] * 3 + [(3, (3, 3))] + [(1, (1, 4))] * 3 + [(1, (1, 3))]
    )
    run(tmp_path, workers)  # nothing is left to run
    assert len(workers.asked) == 3


def test_a_driver_that_died_goes_on_with_what_is_left_and_with_the_same_blocks(whole, tmp_path):
    first = Here(toy())
    first.wait = lambda pending, seconds, wait=first.wait: _die() if pending[0] == 1 else wait(pending, seconds)
    with pytest.raises(Kill):
        run(tmp_path, first)
    second = Here(toy(), block=None)  # which would make other blocks
    second.blocks = 100
    run(tmp_path, second)
    assert second.asked == ["000-000001", "001-000000"]
    same_results(whole, tmp_path)


def _die():
    raise Kill


def test_workers_run_the_second_stage_by_the_stored_choice(tmp_path):
    study, shown = toy(with_second_stage=True), []
    execute(study, tmp_path / "whole")
    workers = Here(dataclasses.replace(study, measure=_die))  # a worker measures nothing
    run(tmp_path / "run", workers, shown.append, study=study)
    same_results(tmp_path / "whole", tmp_path / "run")
    assert workers.asked == ["000-000000", "000-000001", "001-000000", "002-000000"]
    assert {progress.total for progress in shown} == {6 * 16}
    assert [progress.done for progress in shown] == sorted(progress.done for progress in shown)


def test_nothing_is_chosen_while_a_first_block_is_missing(tmp_path):
    study = toy(with_second_stage=True)

    def fault(block, number):
        if block == "001-000000":
            raise RuntimeError("no luck")

    run(tmp_path, Here(study, fault), study=study)
    assert folders.read_missing(tmp_path)
    again = Here(study)
    run(tmp_path, again, study=study)
    assert again.asked == ["001-000000", "002-000000"]
    assert folders.is_complete(tmp_path)


def test_a_block_is_tried_again_and_given_up_when_it_gets_no_further(whole, tmp_path):
    def fault(block, number):
        def watch(program, records):  # always in its second chunk
            if block == "000-000001" and records["round"][0, 0] == 4:
                raise RuntimeError("no luck")

        return watch

    workers, shown = Here(toy(), fault), []
    run(tmp_path, workers, shown.append)
    assert workers.asked.count("000-000001") == ATTEMPTS
    name = "block 000-000001 (a: method a, seed 2 … 3)"
    assert folders.read_missing(tmp_path) == [f"{name}: RuntimeError: no luck"]
    notes = [note for progress in shown for note in progress.notes]
    assert notes == [f"{name} failed and is tried again: RuntimeError: no luck."] * 2 + [
        f"{name} failed 3 times and is left out: RuntimeError: no luck."
    ]
    assert folders.is_finished(tmp_path)
    assert not folders.is_complete(tmp_path)
    assert pd.read_parquet(tmp_path / "lanes.parquet")["seed"].tolist() == [1, 4]
    write_page(tmp_path / "report.html", Page("Toy", "", "", [], []))
    assert f"Missing: {name}: RuntimeError: no luck." in (tmp_path / "report.html").read_text()
    again = Here(toy())  # the same command, when the reason is gone
    run(tmp_path, again)
    assert again.asked == ["000-000001"]
    assert folders.is_complete(tmp_path)
    same_results(whole, tmp_path)


def test_a_block_that_gets_further_each_time_is_not_given_up(whole, tmp_path):
    def fault(block, number):
        def watch(program, records):
            if number <= 3 and records["round"][0, 0] == 4 * (number - 1):
                raise RuntimeError("killed")

        return watch

    workers = Here(toy(), fault)
    run(tmp_path, workers)
    assert workers.asked.count("001-000000") == 4
    same_results(whole, tmp_path)


def test_what_no_other_attempt_can_mend_ends_the_run_with_its_sentence(tmp_path, monkeypatch):
    def full(path, arrays):
        raise UsageError(f"{path.name} cannot be written: No space left on device.")

    workers = Here(toy())
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_arrays", full)
        with pytest.raises(UsageError, match=r"^records-000000\.npz cannot be written: No space left on device\.$"):
            run(tmp_path, workers)
    assert workers.asked == ["000-000000", "000-000001", "001-000000"]
    run(tmp_path, workers)
    assert folders.is_complete(tmp_path)


def test_without_any_block_there_is_no_summary(tmp_path):
    def fault(block, number):
        raise MemoryError

    with pytest.raises(UsageError, match=r"3 of 3 blocks failed, .* The first was block 000-000000 .*: MemoryError\.$"):
        run(tmp_path, Here(toy(), fault))
    assert not folders.is_finished(tmp_path)


def test_ctrl_c_stops_workers_after_their_chunk_and_resumes(whole, tmp_path):
    def fault(block, number):
        def watch(program, records):
            if block == "000-000001":
                os.kill(os.getpid(), signal.SIGINT)
                (tmp_path / "progress" / "stop").touch()  # as the driver does when it looks again

        return watch

    workers = Here(toy(), fault)
    with pytest.raises(folders.Stopped):
        run(tmp_path, workers)
    assert len(list((tmp_path / "progress" / "000-000001").glob("records-*.npz"))) == 1
    assert list((tmp_path / "progress" / "000-000001" / "checkpoints").glob("*.npz"))
    assert not (tmp_path / "progress" / "001-000000").exists()
    run(tmp_path, Here(toy()))
    same_results(whole, tmp_path)


def test_other_blocks_than_the_runs_are_refused(whole, tmp_path):
    with pytest.raises(UsageError, match=r"`block` 2 does not fit: .* holds a run in whole programs; leave the option"):
        run(whole, Here(toy()))
    run(tmp_path, Here(toy()))
    with pytest.raises(UsageError, match="holds a run in blocks of 2 lanes"):
        run(tmp_path, Here(toy(), block=3))
    missing = run_attempt(lambda: runner.execute(toy(), Run(None, tmp_path, "", print, block="007-000000")))
    assert missing == AttemptResult(f"{tmp_path} has no block 007-000000 (is it of another version?)", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "many"], "--workers must be a number of local processes (1 to 1,024), auto (a running Ray"),
        (["--workers", "0"], "or ray://HOST:PORT, got 0."),
        (["--block", "5"], "--block must be used together with --workers, got 5."),
        (["--workers", "2", "--block", "0"], "--block must be an integer of at least 1, got 0."),
        (["--out", "nowhere://bucket/run"], "--out nowhere://bucket/run "),  # needs a package, or is no store
    ],
)
def test_bad_options_are_one_line(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["regression", *options]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_without_ray_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"^`workers` auto needs one more package: pip install 'smoothfbo\[ray\]'\.$"):
        run(tmp_path, choose("auto", None))
    assert not list(tmp_path.iterdir())


def test_processes_share_gpus(tmp_path, monkeypatch):
    class Plugin:
        name = "xla_cuda13"

    monkeypatch.setattr(gpus.importlib.metadata, "entry_points", lambda group: [Plugin])
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert gpus.visible() == ["3", "5"]
    assert gpus.environment("5", 9) == {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1000", "CUDA_VISIBLE_DEVICES": "5"}
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert gpus.visible() == []
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "is not installed" in gpus.start_mps()
    assert gpus.models() == []
    asked = tmp_path / "nvidia-smi"
    asked.write_text("#!/bin/sh\necho NVIDIA H200\necho NVIDIA H200\n")
    asked.chmod(0o755)
    assert gpus.models() == ["NVIDIA H200"]
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\n[ -e {tmp_path}/on ] && exit 0\n[ "$1" = -d ] || exit 1\n: > {tmp_path}/on\n')
    control.chmod(0o755)
    assert "started now" in gpus.start_mps()
    assert "which was running" in gpus.start_mps()


TINY = [
    "--methods", "exact", "--windows", "1", "--rounds", "400", "--chunk", "1", "--seeds", "4", "--width", "4",
    "--inputs", "2", "--lags", "2", "--probe-draws", "0", "--minibatch", "4", "--batch", "4", "--block", "2",
]  # fmt: skip


STUB = """
import os, sys
for line in sys.stdin:
    name = line.strip()
    if name == "killed":
        os.kill(os.getpid(), 9)
    if name == "broken":
        sys.exit("out of luck.")
    if name == "cut":
        os.write(1, b"[null, fal")
        os.kill(os.getpid(), 9)
    print('[null, false, ["%s %s"]]' % (name, os.getpid()), flush=True)
"""


def test_local_processes_answer_die_and_are_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", STUB))
    with choose("2", None).open(tmp_path) as team:
        pending = {team.submit(block): block for block in ("one", "killed", "two", "broken", "cut", "three")}
        ended = {}
        while pending:
            ended |= {pending.pop(handle): how for handle, how in team.wait(list(pending), 1.0)}
    assert ended["killed"] == ended["cut"] == AttemptResult("its process was killed (SIGKILL)")
    assert ended["broken"] == AttemptResult("its process ended with status 1 (out of luck)")
    for block in ("one", "two", "three"):
        assert ended[block].error is None
        name, pid = ended[block].notes[0].split()
        assert name == block
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)  # none is left


@pytest.mark.thorough
def test_a_local_worker_that_is_killed_is_replaced(command, tmp_path):
    folder = tmp_path / "run"
    driver = command("regression", *TINY, "--workers", "2", "--out", folder)
    while not list(folder.glob("progress/000-000002/records-*.npz")):
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.02)
    children = subprocess.run(["pgrep", "-P", str(driver.pid)], capture_output=True, text=True, check=True).stdout
    for child in children.split():
        os.kill(int(child), signal.SIGKILL)
    output, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, errors
    assert "failed and is tried again: its process was killed (SIGKILL)." in output
    assert len(pd.read_parquet(folder / "lanes.parquet")) == 4
    assert json.loads((folder / "config.json").read_text())["workers"] == {"request": "2", "block": 2}


@pytest.mark.thorough
def test_blocks_as_tasks_of_ray(command, tmp_path):
    pytest.importorskip("ray")
    driver = command("regression", *TINY, "--workers", "auto", "--out", tmp_path / "run")
    output, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, errors
    assert "Ray: " in output
    assert len(pd.read_parquet(tmp_path / "run" / "lanes.parquet")) == 4
