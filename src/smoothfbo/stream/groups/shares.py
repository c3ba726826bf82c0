"""`--by` with `--workers`: every worker learns a share of the series, in a pass of its own; then shares are joined."""

import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smoothfbo.errors import UsageError
from smoothfbo.harness import folders, store
from smoothfbo.harness.folders import Stopped
from smoothfbo.harness.study import Progress, Run
from smoothfbo.harness.workers.driver import ORPHAN_SECONDS, StopFile, run_blocks
from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.folder import TABLES, StreamFolder
from smoothfbo.stream.groups.files import open_session, save_session
from smoothfbo.stream.groups.keys import SeriesKeys
from smoothfbo.stream.groups.pipeline import open_stream, process_pieces, results_of
from smoothfbo.stream.groups.session import SeriesSession
from smoothfbo.stream.groups.summary import write_series
from smoothfbo.stream.passes import Clock, StreamResults, finish
from smoothfbo.stream.reading.faults import MOST_NAMED
from smoothfbo.stream.reading.reader import can_be_read_again

SESSION = "session.state"  # of a share that is done
LEFT_OUT = "left_out"  # rows that no share could read


@dataclass(frozen=True)
class Share:
    """The series whose names have this remainder: it depends on nothing but the name and the number of shares."""

    index: int
    number: int
    rounds: int = 1  # for the bar: a share is done or not
    chunks: int = 1

    @property
    def name(self) -> str:
        return f"share-{self.index:04d}"

    @property
    def text(self) -> str:
        return f"{self.index + 1} of {self.number} of the series"

    def of(self, table: pa.Table, by: tuple[str, ...]) -> pa.Table:
        """The rows of its series."""
        keys = SeriesKeys(by)
        codes = keys.of(table)
        is_ours = [zlib.crc32("\0".join(name).encode()) % self.number == self.index for name in keys.names]
        return table.filter(pa.array(np.array(is_ours, bool)[codes]))


def run_share(run: Run) -> None:
    """One share, as a worker runs it: in a folder of its own, from its last snapshot on."""
    index, number = int((run.block or "").removeprefix("share-")), folders.stored_block_size(run.folder) or 1
    share, work = Share(index, number), run.folder / "progress"
    place, stop = work / share.name, StopFile(work)
    if stop.is_requested:
        raise Stopped
    with folders.exclusive(place / "progress", ORPHAN_SECONDS), StreamFolder(place) as sink:
        opened = open_stream(run.config, None, sink.snapshot, share.of)
        results = process_pieces(
            opened.session,
            _until(stop, opened.pieces()),
            sink,
            after_piece=lambda session: sink.save_when_due(lambda path: save_session(session, path)),
            before_forecasts=lambda session: sink.save(lambda path: save_session(session, path)),
        )
        if stop.is_requested:
            raise Stopped
        sink.join()
        save_session(opened.session, place / SESSION)
        unread = {"count": opened.session.unread.count, "first": opened.session.unread.first}
        folders.write_summary(place, {"summary": results.summary(), LEFT_OUT: unread})


def _until(stop: StopFile, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for piece in pieces:
        if stop.is_requested:
            return
        yield piece


def run_shares(run: Run, description: dict[str, Any]) -> None:
    """All shares by workers; then the tables and the summary, as if one process had gone through the table."""
    config, folder, workers = run.config, run.folder, run.workers
    assert workers is not None
    _check(config)
    clock, work = Clock(0), folder / "progress"
    with workers.open(folder) as team:
        is_begun = (folder / "config.json").exists()
        number = (folders.stored_block_size(folder) if is_begun else None) or team.blocks
        folders.claim(folder, description | {"workers": {"request": workers.request, "block": number}})
        shares = [Share(index, number) for index in range(number)]

        def is_done(share: Share) -> bool:
            return folders.is_finished(work / share.name)

        def show(progress: Progress) -> None:
            run.on_progress(progress._replace(unit="shares", text=progress.text.replace("blocks", "shares of series")))

        with folders.exclusive(work):
            left = [share for share in shares if not is_done(share)]
            missing = run_blocks(shares, left, work, team, lambda share: int(is_done(share)), show)
            places = [work / share.name for share in shares if share.name not in missing]
            lost = [f"share {share.text}: {missing[share.name]}" for share in shares if share.name in missing]
            if not places:
                raise UsageError(f"all shares of the series failed; the first was {lost[0]}.")
            results, session = _joined(config, places, clock)
            for name in TABLES:
                _join_table(folder / f"{name}.parquet", [place / f"{name}.parquet" for place in places])
            write_series(session, folder)
            if lost:
                folders.write_missing(folder, lost)
            else:
                (folder / folders.MISSING).unlink(missing_ok=True)
            folders.write_summary(folder, {"summary": results.summary() | {"stopped": False}})
    if not missing:
        shutil.rmtree(work, ignore_errors=True)


def _check(config: StreamConfig) -> None:
    if not config.by:
        raise UsageError("`workers` share the series of a table: name the columns that tell them apart with `by`.")
    if config.state is not None:
        raise UsageError("`state` is one file, which `workers` cannot share; leave one of the two out.")
    if not can_be_read_again(config.data):
        raise UsageError(f"`workers` each read the whole table, and {config.data} can be read only once.")


def _joined(config: StreamConfig, places: list[Path], clock: Clock) -> tuple[StreamResults, SeriesSession]:
    """One session with all series, and its results. Rows that cannot be read are the same for every share."""
    opened = [open_session(config, place / SESSION) for place in places]
    for table, _ in opened:
        table.close()
    sessions = [session for _, session in opened]
    whole = sessions[0]
    counts = [session.series for session in sessions]
    for other, before in zip(sessions[1:], np.cumsum(counts).tolist(), strict=False):
        whole.changes += [change | {"series": before + change["series"]} for change in other.changes]
        whole.skipped += other.skipped
        whole.left_out.count += other.left_out.count
        whole.left_out.first += other.left_out.first
    names = [name for session, count in zip(sessions, counts, strict=True) for name in session.keys.names[:count]]
    whole.keys = SeriesKeys(config.by)
    whole.keys.add(names)
    whole.changes.sort(key=lambda change: change["row"])
    for field in vars(whole.sums):
        parts = [getattr(session.sums, field)[:count] for session, count in zip(sessions, counts, strict=True)]
        setattr(whole.sums, field, np.concatenate(parts))
    unread = store.read_json(places[0] / f"{LEFT_OUT}.json")
    whole.unread.count, whole.unread.first = unread["count"], unread["first"]
    summaries = [store.read_json(place / "summary.json") for place in places]
    faults = [each["fault"] for each in summaries if each["fault"]]
    results = results_of(whole, clock, UsageError(faults[0]) if faults else None)
    forecasts = sum(each["forecasts"] for each in summaries)
    missing = {name: sum(each["missing"].get(name, 0) for each in summaries) for name in _any(summaries, "missing")}
    effects = results.effects if all(each["effects"] == summaries[0]["effects"] for each in summaries) else []
    joined = replace(
        results,
        rows=results.rows + forecasts,
        table_rows=sum(each["table_rows"] for each in summaries),
        missing=missing,
        constant_features=[n for n in _any(summaries, "constant_features") if n not in _any(summaries, "features")],
        features=_any(summaries, "features"),
        effects=effects,
        classes=_any(summaries, "classes"),
        rows_per_second=results.rows / max(clock.seconds, 1e-9),
        forecasts=forecasts,
        left_out_first=results.left_out_first[:MOST_NAMED],
    )
    return finish(joined, whole), whole


def _any(summaries: list[dict[str, Any]], name: str) -> list[str]:
    """What any of them has, in order of appearance."""
    return list(dict.fromkeys(each for summary in summaries for each in summary[name]))


def _join_table(path: Path, parts: list[Path]) -> None:
    """One table from those of all shares: predictions in the order of the rows, blocks in that of their first rows."""
    tables = [pq.read_table(part) for part in parts if part.exists()]
    if not tables:
        return
    whole = pa.concat_tables(tables)
    order = "row" if "row" in whole.column_names else "first_row"
    store.write(path, lambda file: pq.write_table(whole.sort_by(order), file))
