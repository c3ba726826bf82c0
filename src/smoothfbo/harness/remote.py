"""A run's folder at an address, such as s3://bucket/run: the run works in a local folder, which is mirrored there.

Object stores write a file whole or not at all, but neither rename nor lock. Nothing of a run depends on that there:

- Until its end a run never writes two files under one name. They are uploaded in the order in which they were written,
  and what was deleted meanwhile is deleted last. So the store holds the run as it was a moment ago, and a run that is
  killed, with its machine, resumes from there.
- Two workers with the same block, one of them taken for lost, write the same bits under the same names.
- Two drivers of one run on one machine are told apart by a lock; on two machines that is the user's duty.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothfbo.errors import UsageError
from smoothfbo.harness.folders import locked
from smoothfbo.harness.store import partial_path, reason

PERIOD = 2.0  # seconds between uploads
SHARE = 0.2  # of the time, at most, goes into uploads, and into looking what others have uploaded
CLOCK_TOLERANCE = 10**8  # nanoseconds: more than the clocks of files are late
STOP = "progress/stop"  # see workers.driver
LOCAL = ("lock", ".partial-")  # names that begin like this stay here


def is_address(place: str | Path) -> bool:
    """Whether it names an object store: s3://bucket/run, gs://…, memory://…. file://… is a folder like any other."""
    return re.match(r"[a-z][a-z0-9+.-]+://", str(place)) is not None and not str(place).startswith("file://")


class Mirror:
    """A local folder and its copy at an address; the copy is the truth when a run begins."""

    def __init__(self, address: str, folder: Path):
        self.address, self.folder = address.rstrip("/"), folder
        self._store, self._root = _connect(self.address)
        self._uploaded: dict[str, tuple[int, int]] = {}  # name -> size and time of what the store holds
        self._looked, self._cost = 0.0, 0.0
        self._lock = threading.Lock()

    def pull(self, wanted: Callable[[str], bool] = lambda name: True, under: str = "") -> None:  # noqa: ARG005
        """Fetch the wanted files that are not here yet. Names are relative to the folder."""
        with self._lock, _errors_in_one_sentence(self.address, "read"):
            self._store.invalidate_cache()
            for path in self._store.find(f"{self._root}/{under}".rstrip("/")):
                name = str(path)[len(self._root) :].lstrip("/")
                target = self.folder / name
                if target.exists() or not wanted(name):
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                partial = partial_path(target)
                with contextlib.suppress(FileNotFoundError):  # an old checkpoint, deleted meanwhile
                    self._store.get_file(path, str(partial))
                    os.replace(partial, target)  # without fsync: the store keeps it
                    self._uploaded[name] = _version(target)

    def pull_progress(self, *, with_checkpoints: bool) -> None:
        """What an earlier attempt has left, but for its request to stop. A cluster's driver needs no checkpoints."""
        self.discard(STOP)
        if with_checkpoints:
            self.pull()
        else:
            self.pull_records(at_once=True)

    def pull_records(self, *, at_once: bool) -> None:
        """What workers elsewhere have uploaded; unless at once, not if that was looked at just now."""
        begin = time.monotonic()
        if at_once or begin - self._looked > self._cost / SHARE:
            self.pull(lambda name: "/checkpoints/" not in name and name != STOP, "progress")
            self._looked = time.monotonic()
            self._cost = self._looked - begin

    def push(self, *, is_last: bool = False) -> None:
        """Upload what is new, the oldest first; then delete there what was deleted here. The last time all is new."""
        with self._lock, _errors_in_one_sentence(self.address, "written"):
            here, is_whole = self._files(time.time_ns() + (1 if is_last else -1) * CLOCK_TOLERANCE), True
            for name in sorted(here, key=lambda name: here[name][1]):
                if self._uploaded.get(name) == here[name]:
                    continue
                try:
                    self._store.put_file(str(self.folder / name), f"{self._root}/{name}")
                    self._uploaded[name] = here[name]
                except FileNotFoundError:  # deleted meanwhile: another file has taken its place, and comes next time
                    is_whole = False
            if is_whole and "summary.json" in here and not (self.folder / "progress").exists():
                self.discard("progress")  # with what workers elsewhere have left in it
            for name in [*self._uploaded] if is_whole else ():
                if not (self.folder / name).exists():
                    self.discard(name)

    def discard(self, name: str) -> None:
        """Delete a file or a folder there."""
        self._uploaded = {k: v for k, v in self._uploaded.items() if k != name and not k.startswith(f"{name}/")}
        with contextlib.suppress(FileNotFoundError):
            self._store.rm(f"{self._root}/{name}", recursive=True)

    def _files(self, end: int) -> dict[str, tuple[int, int]]:
        """What was written before `end`, a moment before now: what came later may need files that were overlooked."""
        found = {}
        for path in self.folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not path.name.startswith(LOCAL) and (version := _version(path))[1] < end:
                    found[path.relative_to(self.folder).as_posix()] = version
        return found

    @contextmanager
    def uploading(self, also: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Upload now and then, by a thread; at the end once more, whatever the end is."""
        ended = threading.Event()

        def upload() -> None:
            wait = PERIOD
            while not ended.wait(wait):
                begin = time.monotonic()
                try:
                    self.push()
                    also()
                except UsageError as error:  # it is tried again, and the last time it ends the run
                    warnings.warn(str(error).rstrip("."), stacklevel=2)
                wait = max(PERIOD, (time.monotonic() - begin) / SHARE)

        thread = threading.Thread(target=upload, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.push(is_last=True)


@contextmanager
def working_folder(place: str | Path) -> Iterator[tuple[Path, Mirror | None]]:
    """The folder to work in: the place itself or, of an address, a local one with the files of its run.

    What is in `progress` is left to whoever needs it. Errors name the address.
    """
    place = str(place).removeprefix("file://")
    if not is_address(place):
        yield Path(place), None
        return
    digest = hashlib.sha256(f"{Path.home()} {place.rstrip('/')}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"smoothfbo-{digest}"
    with locked(folder.with_name(f"{folder.name}.lock"), place):
        shutil.rmtree(folder, ignore_errors=True)  # left by a run that was killed: the store knows better
        folder.mkdir()
        mirror = Mirror(place, folder)
        try:
            mirror.pull(lambda name: not name.startswith("progress/"))
            yield folder, mirror
        except UsageError as error:
            raise type(error)(str(error).replace(str(folder), mirror.address)) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def block_folder(address: str, block: str) -> Iterator[Path]:
    """On a node of a cluster: a folder with what is there of one block, mirrored until the block ends."""
    with tempfile.TemporaryDirectory(prefix="smoothfbo-") as name:
        mirror = Mirror(address, Path(name))
        for part in ("config.json", "progress/choice.json", STOP, f"progress/{block}"):
            mirror.pull(under=part)
        with mirror.uploading(also=lambda: mirror.pull(under=STOP)):
            yield Path(name)


def _connect(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise UsageError(f"`out` {address} needs one more package: pip install 'smoothfbo[remote]'.") from None
    try:
        store, root = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:  # fsspec says which package knows this kind of store
        raise UsageError(f"`out` {address} cannot be used: {reason(error)}.") from error
    return store, str(root).rstrip("/")


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@contextmanager
def _errors_in_one_sentence(address: str, what: str) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # stores have errors of their own
        raise UsageError(f"{address} cannot be {what}: {reason(error)}.") from error
