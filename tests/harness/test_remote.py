"""Runs in an object store: fsspec's memory, which writes a file whole or not at all and neither renames nor locks."""

import re
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from toy_study import Config, Kill, execute, same_results, stop_after, toy

from smoothfbo import cli
from smoothfbo.errors import UsageError
from smoothfbo.harness import commands, folders, registry, remote, runner
from smoothfbo.harness.study import Entry, Report, Run
from smoothfbo.harness.workers import cluster
from smoothfbo.harness.workers.process import run_attempt

fsspec = pytest.importorskip("fsspec")
PLACE = "memory://bucket/run"
CHUNKS = {"000": 4, "001": 4}  # of the programs of the toy study, by their folders


def build(folder):
    page = folder / "report.html"
    page.write_text("drawn from " + (folder / "summary.json").read_text())
    return page


def entry(watch=lambda program, records: None, study=toy):
    def start(run):
        runner.execute(study(), run._replace(on_records=watch))

    return Entry("toy", Config, start, lambda: Report(build, lambda folder: ["done"]))


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    execute(toy(), folder)
    return folder


def fetched(memory, folder):
    memory.get("/bucket/run", str(folder), recursive=True)
    return folder


def names(memory):
    return {path.removeprefix("/bucket/run/") for path in memory.find("/bucket/run")}


def chunk_numbers(memory, pattern):
    return {int(found[1]) for name in names(memory) if (found := re.fullmatch(pattern, name))}


def test_a_run_in_a_store_is_that_of_a_folder(memory, whole, tmp_path, capsys):
    assert commands.run(entry(), Config(), PLACE, "smoothfbo toy") == 0
    assert names(memory) == {path.name for path in whole.iterdir()} | {"report.html"}
    assert f"Page: {PLACE}/report.html" in capsys.readouterr().out
    same_results(whole, fetched(memory, tmp_path / "run"))
    assert commands.run(entry(), Config(), PLACE, "smoothfbo toy") == 0  # nothing is left to run
    assert f"{PLACE} holds the finished run" in capsys.readouterr().out
    with pytest.raises(UsageError, match=rf"^{PLACE} holds a run of another configuration \(speed"):
        commands.run(entry(study=lambda: toy(2.0)), Config(speed=2.0), PLACE, "smoothfbo toy")


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_killed_with_its_machine_it_resumes_from_what_was_uploaded(memory, whole, tmp_path, monkeypatch, chunks):
    done = []

    def watch(program, records):
        done.append(program.name)
        if len(done) == chunks:
            raise Kill

    monkeypatch.setattr("smoothfbo.harness.chunks.CHECKPOINT_SHARE", 1e9)  # after every chunk
    with monkeypatch.context() as patch:
        push = remote.Mirror.push

        def last(mirror, *, is_last=False):  # what the killed process did not come to
            if len(done) == chunks:
                return
            push(mirror, is_last=is_last)

        patch.setattr(remote, "CLOCK_TOLERANCE", 0)
        patch.setattr(remote, "PERIOD", 0.001)
        patch.setattr(remote.Mirror, "push", last)
        with pytest.raises(Kill):
            commands.run(entry(watch), Config(), PLACE, "smoothfbo toy")
    assert "summary.json" not in names(memory)
    expected = 0
    for program, number in CHUNKS.items():
        records = chunk_numbers(memory, rf"progress/{program}/records-(\d+)\.npz")
        saved = chunk_numbers(memory, rf"progress/{program}/checkpoints/(\d+)\.npz")
        # A slow upload may find that a checkpoint is gone already, which a newer one has replaced.
        resumed = number if len(records) == number else max((c for c in saved if c <= len(records)), default=0)
        expected += number - resumed
    again = []
    assert commands.run(entry(lambda program, _: again.append(program.name)), Config(), PLACE, "smoothfbo toy") == 0
    assert len(again) == expected
    same_results(whole, fetched(memory, tmp_path / "run"))


def test_uploads_in_order_and_deletes_last(memory, tmp_path, monkeypatch):
    mirror, said = remote.Mirror(PLACE, tmp_path), []
    put, remove = memory.put_file, memory.rm
    monkeypatch.setattr(memory, "put_file", lambda a, b: (said.append(b.split("/")[-1]), put(a, b)))
    monkeypatch.setattr(memory, "rm", lambda path, **_: (said.append(f"no {path.split('/')[-1]}"), remove(path)))
    for name in ("z", "b", "lock", ".partial-c"):
        (tmp_path / name).write_text(name)
    mirror.push()
    assert said == []  # too new: another file may have been overlooked
    mirror.push(is_last=True)
    mirror.push(is_last=True)
    assert said == ["z", "b"]
    (tmp_path / "b").unlink()
    (tmp_path / "a").write_text("a")
    gone = tmp_path / "gone"
    gone.write_text("")
    monkeypatch.setattr(memory, "put_file", lambda a, b: (gone.unlink(missing_ok=True), said.append("a"), put(a, b)))
    mirror.push(is_last=True)  # a file that came after `b` is deleted before it is uploaded: `b` is still needed
    assert said == ["z", "b", "a", "a"]
    assert names(memory) == {"z", "b", "a"}
    mirror.push(is_last=True)
    assert said[4:] == ["no b"]
    assert names(memory) == {"z", "a"}


class Ray:
    """Tasks of a cluster, run one after the other when they are waited for."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self):
        self.results = {}

    def cluster_resources(self):
        return {"CPU": 1.0}

    def nodes(self):
        return [{"Alive": True}]

    def remote(self, **options):
        return lambda function: SimpleNamespace(remote=lambda *arguments: (function, arguments))

    def wait(self, tasks, num_returns, timeout):
        function, arguments = tasks[0]
        self.results[tasks[0]] = function(*arguments)
        return tasks[:1], tasks[1:]

    def get(self, task):
        return self.results[task]


def test_workers_elsewhere_share_the_store_alone(memory, tmp_path, monkeypatch):
    study = toy(with_second_stage=True)
    faults = {"000-000001": 1}

    class Worker:
        def __init__(self, folder, environment):
            self.folder = folder

        def ask(self, block):
            crashes = faults.pop(block, None)
            watch = stop_after(crashes) if crashes else lambda program, records: None
            return run_attempt(lambda: runner.execute(study, Run(None, self.folder, "", print, watch, block=block)))

        def close(self):
            pass

    monkeypatch.setattr(cluster, "Worker", Worker)
    monkeypatch.setattr(remote, "SHARE", 1e-9)  # what is not asked for at once is looked at too late
    memory.pipe("/bucket/run/progress/999/checkpoints/000001.npz", b"of a worker that was lost")
    here = tmp_path / "driver"
    here.mkdir()
    mirror = remote.Mirror(PLACE, here)

    class Workers:
        request, block = "auto", 2

        def open(self, folder):
            return nullcontext(cluster.ClusterTeam(Ray(), folder, mirror))

    with mirror.uploading():
        runner.execute(study, Run(study.config, here, "", lambda progress: None, workers=Workers()))
    assert not [name for name in names(memory) if name.startswith("progress")]
    plain = tmp_path / "plain"
    execute(study, plain)
    same_results(plain, fetched(memory, tmp_path / "run"))
    assert not folders.read_missing(here)


def test_a_request_to_stop_reaches_workers_elsewhere(memory, monkeypatch):
    monkeypatch.setattr(remote, "PERIOD", 0.001)
    memory.pipe("/bucket/run/config.json", b"{}")
    with remote.block_folder(PLACE, "000") as folder:
        assert (folder / "config.json").exists()
        memory.pipe("/bucket/run/progress/stop", b"")
        for _ in range(10_000):
            if (folder / "progress" / "stop").exists():
                break
        else:
            raise AssertionError("it did not")
    assert remote.is_address("s3://bucket/run")
    assert not remote.is_address("file:///tmp/run")
    assert not remote.is_address("out/run")


def test_report_of_a_run_in_a_store(memory, monkeypatch, capsys):
    monkeypatch.setattr(registry, "entries", lambda: {"toy": entry()})
    assert commands.run(entry(), Config(), PLACE, "smoothfbo toy") == 0
    memory.rm("/bucket/run/report.html")
    assert cli.main(["report", PLACE]) == 0
    assert f"Written: {PLACE}/report.html" in capsys.readouterr().out
    assert "report.html" in names(memory)
    assert cli.main(["resume", PLACE]) == 0
    assert cli.main(["report", "memory://bucket/nothing"]) == 2
    assert "memory://bucket/nothing is not the folder of a run" in capsys.readouterr().err


def test_one_sentence_where_a_store_cannot_be_used(memory, monkeypatch, tmp_path):
    with pytest.raises(UsageError, match=r"^`out` nowhere://bucket cannot be used: Protocol not known"):
        remote.Mirror("nowhere://bucket", tmp_path)
    mirror = remote.Mirror(PLACE, tmp_path)
    (tmp_path / "a").write_text("a")

    def full(*_):
        raise OSError("no space")

    monkeypatch.setattr(memory, "put_file", full)
    with pytest.raises(UsageError, match=rf"^{PLACE} cannot be written: no space\.$"):
        mirror.push(is_last=True)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match=r"^`out` s3://b/r needs one more package: pip install 'smoothfbo\[remote\]'"):
        remote.Mirror("s3://b/r", tmp_path)
