"""The ledger of a store: which frames there are, events, holes, inventories and names, exactly once.

One transaction a batch into DuckDB. Committed frames are remembered as number spans per session,
made again at opening from the tables themselves; a frame that is there already is left out of a
batch, with all its rows. Periods that are over are sealed, and old or too large ones dropped.
"""

from __future__ import annotations

import logging
from collections import ChainMap, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from aggregator.config import NameLimits, StoreConfig
from aggregator.jobs.stored import JobQuery, StoredJob
from aggregator.store import manifest, retention
from aggregator.store.duck import Columns, DuckEngine, memory_bytes, texts
from aggregator.store.folding import Folding
from aggregator.store.inventories import insert_inventories, read_inventories, stored_parts
from aggregator.store.job_months import FOLDER, JobMonths
from aggregator.store.jobs import (
    ended_jobs,
    find_jobs,
    full_until,
    jobs_of,
    move_past,
    note_sent,
    open_jobs,
    sent_until,
    write_jobs,
)
from aggregator.store.manifest import SealedFile
from aggregator.store.past import later_than
from aggregator.store.protocol import Batch, CollectorRun, LostFrames, StoredDevice, StoredState, StoreStatus
from aggregator.store.refill import Refill, Refills, came_again_of, find_refill, rolled_up
from aggregator.store.seal import Sealer
from aggregator.store.sealed_files import SealedFiles
from aggregator.store.stored_spans import Fresh, NewHole, StoredSpans, accounted_runs
from aggregator.store.tables import FRAMES, create_period, create_tables, period_of, period_tables
from api.fleet import StoredEvent
from api.jobs import JobRow
from telemetry.devices import Event
from telemetry.errors import StoreError
from telemetry.metric import Table
from telemetry.text.decoders import of_json
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import JobKey

log = logging.getLogger(__name__)

RETAIN_EVERY_NS = 30 * 10**9
"""ns between two checks of retention."""


class LedgerStore:
    """The part of a store that is not readings, in a data folder."""

    def __init__(self, config: StoreConfig, folder: Path, names: NameLimits | None = None) -> None:
        """`names`: what is kept of names and sessions that are long gone or had no frame."""
        self._config = config
        self._names = names or NameLimits()
        self._root = folder
        self._engine = DuckEngine(folder / "hot.duckdb", config)
        self._opened = 0
        self._runs: dict[tuple[str, int], int] = {}
        self._stored = StoredSpans()
        self._parts: set[str] = set()
        """Parts of inventories that are stored."""
        self._sealed = SealedFiles(folder)
        self._periods: dict[int, dict[str, str]] = {}
        self._sealer: Sealer | None = None
        self._retained_at = 0
        self._refills = Refills()
        self._found: deque[Refill] = deque()
        """Refills that the thread of the check has found, and that have not begun."""
        self._lost_frames: list[LostFrames] = []
        self._complete: list[SealedFile] = []
        """Lost files of which nothing is missing any more."""
        self._folding = Folding(config.checkpoint_bytes)
        self._job_months = JobMonths(folder)
        self._at_opening: dict[str, Any] = {}
        """Answers that the opening has read, by method, for the first call of each before the first change."""
        self._begin()

    def write(self, batch: Batch) -> int:
        """Store a batch in one transaction; return how many frames were new."""
        self._ready()
        self._at_opening.clear()
        frames = batch.frames
        fresh = self._stored.fresh(frames)
        new = int(fresh.sum())
        runs = {(run.node, run.session): run.id for run in batch.runs}
        holes = self._stored.new_holes(batch.holes, ChainMap(runs, self._runs))
        period = self._period_for(batch.at)
        tables = self._periods.get(period)
        with self._engine.transaction():
            if new and tables is None:
                tables = create_period(self._engine, period)
            _insert_names(self._engine, batch, holes)
            parts = insert_inventories(self._engine, batch.inventories, self._parts)
            if new and tables is not None:
                every = new == len(frames) and not self._refills
                self._insert(tables, batch, fresh, every=every)
            self._insert_more(batch, fresh)
        self._parts |= parts
        self._runs.update(runs)
        for key in batch.ended_runs:
            self._stored.end(self._runs.pop(key, -1))
        if new and tables is not None:
            self._periods[period] = tables
        self._stored.remember(frames, fresh, holes)
        if self._refills:
            self._complete += self._refills.stored(frames, fresh)
        return new

    def _period_for(self, at: int) -> int:
        """Return the period into which a batch of a time is written. Nothing is added to one that
        is being sealed: a batch that waited until then (for a disk, say) goes into the next."""
        period = period_of(at, self._config.seal_seconds)
        sealer = self._sealer
        if sealer is not None and period == sealer.period:
            period += max(1, int(self._config.seal_seconds))
        return period

    def _insert(self, tables: Mapping[str, str], batch: Batch, fresh: Fresh, *, every: bool) -> None:
        """Insert the frames of a batch that are `fresh`; `every`: all of them are."""
        frames = batch.frames
        columns: Columns = {
            "run": frames.run[fresh],
            "seq": frames.seq[fresh],
            "ts": frames.sampled_at[fresh],
            "received": frames.received_at[fresh],
            "backfilled": frames.backfilled[fresh],
        }
        self._engine.insert(tables[FRAMES], columns)
        self._folding.add(FRAMES, len(columns["seq"]))

    def _insert_more(self, batch: Batch, fresh: Fresh) -> None:
        """Insert what another store keeps beside frames; inside the transaction of the batch."""

    # -- Reading -------------------------------------------------------------------------------

    def known(self) -> StoredState:
        """Return the runs and devices that have a number already."""
        self._ready()
        found: StoredState = self._at_opening.pop("known", None) or _read_known(self._engine)
        return found

    def accounted(self) -> dict[tuple[str, int], IntervalSet]:
        """Return which frames of each (node, session) are stored or recorded as holes."""
        self._ready()
        return {key: self._stored.of(run) for key, run in self._runs.items()}

    def inventories(self) -> list[Inventory]:
        """Return the newest inventory of each node, that of the node known longest first; one that can't
        be read any more is left out."""
        self._ready()
        found: list[Inventory] = self._at_opening.pop("inventories", None) or read_inventories(self._engine)
        return found

    def events(self, start: int, end: int, node: str | None, kind: str | None, limit: int) -> list[StoredEvent]:
        """Return events, newest first; one that can't be read any more is left out."""
        self._ready()
        rows = self._engine.rows(
            "select body, received from events where happened >= ? and happened < ? "
            "and (?::varchar is null or node = ?) and (?::varchar is null or kind = ?) "
            "order by happened desc, id desc limit ?",
            start,
            end,
            node,
            node,
            kind,
            kind,
            limit,
        )
        found = []
        for body, at in rows:
            try:
                found.append(StoredEvent(of_json(Event).decode(body), at))
            except msgspec.DecodeError as error:
                log.warning("a stored event can't be read: %s", error)
        return found

    def write_jobs(self, jobs: Sequence[StoredJob]) -> None:
        """Store jobs in one transaction, each in place of what is stored of it."""
        self._ready()
        self._at_opening.clear()
        if jobs:
            with self._engine.transaction():
                write_jobs(self._engine, jobs)

    def open_jobs(self) -> list[StoredJob]:
        """Return the jobs that a start goes on with: those that last, and those whose energy is still to be counted."""
        self._ready()
        found: list[StoredJob] = self._at_opening.pop("open jobs", None) or open_jobs(self._engine)
        return found

    def jobs_of(self, keys: Sequence[JobKey]) -> list[StoredJob]:
        """Return the jobs of some keys, as far as they are stored."""
        self._ready()
        return jobs_of(self._engine, keys)

    def find_jobs(self, query: JobQuery) -> list[JobRow]:
        """Return jobs, the newest begin first, from any thread."""
        with self._engine.reader() as reader:
            return find_jobs(reader, query)

    def ended_jobs(self, first: int, until: int) -> list[JobRow]:
        """Return the jobs that ended from `first` on and before `until`."""
        self._ready()
        return ended_jobs(self._engine, first, until)

    def unsent_jobs(self, first: int, until: int, most: int) -> tuple[list[JobRow], int]:
        """Return about `most` jobs that ended after those that `note_sent` has, from `first` on and before `until`, and
        the end of the time whose jobs these are."""
        self._ready()
        first = max(first, sent_until(self._engine))
        until = full_until(self._engine, first, until, most)
        return ended_jobs(self._engine, first, until), until

    def jobs_sent_until(self) -> int:
        """Return the end of the time whose jobs were sent elsewhere."""
        self._ready()
        return sent_until(self._engine)

    def note_sent(self, until: int) -> None:
        """Note that all jobs that ended before a time were sent elsewhere."""
        with self._engine.transaction():
            note_sent(self._engine, until)

    def later(self, table: Table, at: int) -> set[tuple[str, str]]:
        """Return node and key of the devices of a table that came only after `at`, from any
        thread."""
        with self._engine.reader() as reader:
            return later_than(reader, table, at)

    def size(self) -> dict[str, int]:
        """Return bytes by part: `hot`, `sealed`, `rollups` on disk, `memory` of the database."""
        return {
            "hot": self._engine.bytes(),
            "sealed": self._sealed.index.raw_bytes,
            "rollups": self._sealed.index.rollup_bytes,
            "memory": memory_bytes(self._engine),
        }

    def status(self) -> StoreStatus:
        """Return how many sealed files are missing, for another program removed or damaged them."""
        return StoreStatus("embedded", lost_files=len(self._sealed.lost))

    # -- Upkeep --------------------------------------------------------------------------------

    def tidy(self) -> bool:
        """Fold the log into the database if it is large enough; return whether that was done.

        Called between two commits: the engine by itself does it inside one, which then takes ten
        times as long (1.4 s instead of 0.15 s at 100,000 GPUs).
        """
        self._ready()
        if not self._folding.due(self._engine.log_bytes()):
            return False
        try:
            done = self._engine.fold()
        except StoreError:
            self._folding.put_off()
            raise
        if done:
            self._folding.done()
        return done

    def maintain(self, now: int) -> bool:
        """Do one piece of upkeep between two commits; return whether there is more to do now, by
        `seal` first."""
        self._ready()
        self._at_opening.clear()
        self._engine.evict()
        self._refill(now)
        self._retain(now)  # before sealing: a disk must not fill while hours are being sealed
        if self._sealer is None:
            due = self._due(now)
            if due is not None:
                self._sealer = Sealer(
                    self._engine, self._root, self._config, due, self._periods[due], self._sealed.index.files
                )
        if self._sealer is not None:
            if self._sealer.made:
                self._finish(self._sealer)
            return True
        with self._engine.transaction():
            move_past(self._engine, now)
        return self._job_months.is_due(self._engine, now)

    def _retain(self, now: int) -> None:
        if now - self._retained_at < RETAIN_EVERY_NS and now >= self._retained_at:
            return
        self._retained_at = now
        lost = self._sealed.drain_lost()
        if lost:
            manifest.note_lost(self._engine, lost)
        sealed, config = self._sealed, self._config
        going = [
            *retention.going(sealed.index.files, config, self._engine.bytes(), now),
            *retention.too_old(sealed.lost, config, now),
        ]
        sealed.remove(going)  # before their files: a file of the index that is not there is lost
        try:
            retention.drop(self._engine, self._root, config, going, now)
        except (StoreError, OSError) as error:
            sealed.add(file for file in going if not file.lost and (self._root / file.path).exists())
            if isinstance(error, OSError):
                raise StoreError(
                    f"{self._root}: can't remove what is too old: {error.strerror}. Make it writable for this user."
                ) from error
            raise

    def check_next(self) -> None:
        """Verify one sealed file, the next of an endless pass over all, and find which frames
        lost files held; in any thread. Raises `StoreError`."""
        self._sealed.check_next()
        for file in self._sealed.unfilled():
            hot = [tables[file.block] for tables in dict(self._periods).values()]
            with self._engine.reader() as reader:
                found = find_refill(reader, self._root, file, self._sealed.index.files, hot)
            self._sealed.note_looked_for(file.path)
            if found is not None:
                self._found.append(found)

    def drain_refill(self) -> list[LostFrames]:
        """Return the frames that are to be requested again since the last call."""
        frames, self._lost_frames = self._lost_frames, []
        return frames

    def _refill(self, now: int) -> None:
        """Begin the refills that were found, and drop what those that ended have replaced."""
        while self._found:
            refill = self._found[0]
            # On disk before the first frame comes again: from then on the file itself, if somebody
            # puts it back, would double it.
            manifest.note_lost(self._engine, [replace(refill.file, refilled=True)])
            self._found.popleft()
            if not refill.waiting:
                self._complete.append(refill.file)
                continue
            log.warning(
                "%s: %d spans of frames are requested again from the nodes' rings",
                self._root / refill.file.path,
                len(refill.frames),
            )
            for run, spans in refill.requested.items():
                self._stored.forget(run, spans)
            self._refills.add(refill)
            self._lost_frames += refill.frames
        while self._complete:
            file = self._complete[-1]
            going = [file, *rolled_up(file, self._sealed.index.files)]
            self._sealed.remove(going)
            manifest.note_replaced(self._engine, file)
            retention.drop(self._engine, self._root, self._config, going, now)
            self._complete.pop()
            log.warning("%s: all of its readings have come again", self._root / file.path)

    def seal(self) -> None:
        """Make the next file of a period that is being sealed, or those of months of jobs, beside commits: in any
        thread, while no `maintain` runs. Raises `StoreError`."""
        sealer = self._sealer
        if sealer is not None and not sealer.made:
            with self._abandon_on_error(sealer):
                sealer.step()
        elif sealer is None and self._job_months.due_at is not None:
            try:
                with self._engine.reader() as reader:
                    made = self._job_months.make(reader, self._job_months.due_at)
            except OSError as error:
                raise StoreError(f"{self._root}: can't write jobs to Parquet: {error.strerror}") from error
            if made:
                log.info("jobs of %s are in %s", ", ".join(made), self._root / FOLDER)

    def _finish(self, sealer: Sealer) -> None:
        with self._abandon_on_error(sealer):
            sealer.finish()
        self._sealer = None
        # In this order: `past` reads them from another thread, and must find all in one of them.
        self._sealed.add(sealer.files)
        self._periods.pop(sealer.period, None)
        self._retained_at = 0

    @contextmanager
    def _abandon_on_error(self, sealer: Sealer) -> Iterator[None]:
        try:
            yield
        except (StoreError, OSError) as error:
            self._sealer = None
            sealer.abandon()
            if isinstance(error, OSError):
                raise StoreError(f"{self._root}: can't seal: {error.strerror}") from error
            raise

    def _due(self, now: int) -> int | None:
        """Return the oldest period that is over."""
        current = period_of(now, self._config.seal_seconds)
        over = [
            period
            for period in self._periods
            if period != current and period + int(self._config.seal_seconds) <= now // 10**9
        ]
        return min(over, default=None)

    def close(self) -> None:
        """Write everything and close the files."""
        self._engine.close()  # ends what is read and sealed beside it
        sealer = self._sealer  # its own thread may clear it meanwhile
        if sealer is not None:
            sealer.abandon()

    # -- Opening -------------------------------------------------------------------------------

    def _ready(self) -> None:
        self._engine.ensure()
        if self._engine.opened != self._opened:
            self._load()

    def _begin(self) -> None:
        """Read what a start needs; a database that opens and can't be read is set aside, and another begun."""
        try:
            self._load()
            engine = self._engine
            self._at_opening = {
                "known": _read_known(engine),
                "inventories": read_inventories(engine),
                "open jobs": open_jobs(engine),
            }
        except OSError:  # of the folder, not of the database
            raise
        except Exception as error:  # noqa: BLE001 - whatever damaged rows do to those who read them
            self._engine.begin_anew(error)
            self._load()

    def _load(self) -> None:
        """Read from the database what is stored."""
        engine = self._engine
        create_tables(engine)
        retention.clear_folder(self._root / "sealing")
        self._sealer = None
        periods = period_tables(engine)
        seal_seconds = max(1, int(self._config.seal_seconds))
        files = manifest.load(engine)

        def came_again(file: SealedFile) -> bool:
            hot = [tables[file.block] for tables in periods.values() if file.block in tables]
            others = [other for other in files if not other.lost]
            try:
                return came_again_of(engine, self._root, file, others, hot)
            except StoreError as error:  # of a sealed file: no fault of the database
                log.warning("%s: stays aside: %s", file.path, error)
                return True

        manifest.reconcile(engine, self._root, set(periods), seal_seconds, came_again)
        self._periods = {period: create_period(engine, period) for period in periods}
        frame_tables = [each[FRAMES] for each in self._periods.values()]
        if not self._opened:
            retention.forget_runs(engine, self._config, frame_tables)
            retention.forget_nodes(engine, self._names, frame_tables)
        self._parts = stored_parts(engine)
        self._sealed.reset(manifest.load(engine))
        self._refills = Refills()
        self._found.clear()
        self._runs = {(node, session): run for run, node, session in engine.rows("select id, node, session from runs")}
        self._stored = StoredSpans(accounted_runs(engine, frame_tables))
        self._opened = engine.opened


def _read_known(engine: DuckEngine) -> StoredState:
    runs = engine.rows("select id, node, session from runs")
    devices = engine.rows('select id, node, key, "index", name from devices')
    return StoredState(
        [CollectorRun(*row) for row in runs],
        [StoredDevice(row[0], row[1], row[2], None if row[3] < 0 else row[3], row[4]) for row in devices],
    )


# Into the tables that are not bound to a period: names, inventories, events and holes.


def _insert_names(engine: DuckEngine, batch: Batch, holes: Sequence[NewHole]) -> None:
    """Insert all of a batch but inventories, frames and readings; inside the caller's transaction."""
    _runs(engine, batch.runs)
    if batch.removed_nodes:
        engine.run("delete from inventories where list_contains(?, node)", batch.removed_nodes)
    _devices(engine, batch.devices, batch.at)
    _events(engine, batch.events)
    _holes(engine, holes, batch.at)


def _runs(engine: DuckEngine, runs: Sequence[CollectorRun]) -> None:
    if runs:
        columns: Columns = {
            "id": np.array([run.id for run in runs], np.int32),
            "node": texts([run.node for run in runs]),
            "session": np.array([run.session for run in runs], np.int64),
        }
        engine.insert("runs", columns, "or ignore")


def _devices(engine: DuckEngine, devices: Sequence[StoredDevice], at: int) -> None:
    if devices:
        index = [-1 if each.index is None else each.index for each in devices]
        columns: Columns = {
            "id": np.array([device.id for device in devices], np.int32),
            "node": texts([device.node for device in devices]),
            "key": texts([device.key for device in devices]),
            "index": np.array(index, np.int32),
            "name": texts([device.name for device in devices]),
            "since": np.full(len(devices), at, np.int64),
        }
        engine.insert("devices", columns, "or ignore")


def _events(engine: DuckEngine, events: Sequence[StoredEvent]) -> None:
    if not events:
        return
    happened = [each.event for each in events]
    columns: Columns = {
        "node": texts([event.node for event in happened]),
        "id": texts([event.id for event in happened]),
        "happened": np.array([event.at for event in happened], np.int64),
        "received": np.array([each.received_at for each in events], np.int64),
        "kind": texts([event.kind for event in happened]),
        "gpu": texts([event.gpu for event in happened]),
        "body": texts([msgspec.json.encode(event).decode() for event in happened]),
    }
    engine.insert("events", columns, "or ignore")


def _holes(engine: DuckEngine, holes: Sequence[NewHole], at: int) -> None:
    if holes:
        columns: Columns = {
            "run": np.array([hole.run for hole in holes], np.int32),
            "first": np.array([hole.first for hole in holes], np.int64),
            "last": np.array([hole.last for hole in holes], np.int64),
            "reason": texts([hole.reason for hole in holes]),
            "received": np.full(len(holes), at, np.int64),
        }
        engine.insert("holes", columns)
