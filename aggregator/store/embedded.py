"""The embedded store: one transaction a batch into DuckDB; sealing, roll-ups and retention behind.

Exactly once: what is committed is remembered as number spans per run, made anew at opening from the
tables themselves; a frame that is there already is left out of a batch, with all its rows.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.config import StoreConfig
from aggregator.model import Batch, Device, Frames, History, Hole, Known, Run, StoredEvent
from aggregator.store import manifest, retention
from aggregator.store.blocks import insert_blocks
from aggregator.store.duck import Columns, Engine, texts
from aggregator.store.history import read_history
from aggregator.store.marks import accounted_runs
from aggregator.store.seal import Sealer
from aggregator.store.tables import (
    FRAMES,
    create_lasting,
    create_period,
    period_of,
    period_tables,
)
from telemetry.errors import StoreError
from telemetry.intervals import IntervalSet
from telemetry.inventory import Event, Inventory

log = logging.getLogger(__name__)

RETAIN_EVERY_NS = 30 * 10**9
"""How often retention is looked at."""


class EmbeddedStore:
    """The `Store` of a data folder."""

    def __init__(self, config: StoreConfig, folder: Path) -> None:
        self._config = config
        self._root = folder
        self._engine = Engine(folder / "hot.duckdb", config)
        self._opened = 0
        self._runs: dict[tuple[str, int], int] = {}
        self._stored: dict[int, IntervalSet] = {}
        self._files: list[manifest.File] = []
        self._periods: dict[int, dict[str, str]] = {}
        self._sealer: Sealer | None = None
        self._retained_at = 0
        self._load()

    # -- Writing -------------------------------------------------------------------------------

    def write(self, batch: Batch) -> int:
        """Keep a batch in one transaction; returns how many frames were new."""
        self._ready()
        frames = batch.frames
        fresh = self._fresh(frames)
        new = int(fresh.sum())
        runs = {**self._runs, **{(run.node, run.session): run.id for run in batch.runs}}
        holes = self._new_holes(batch.holes, runs)
        period = period_of(batch.at, self._config.seal_seconds)
        tables = self._periods.get(period)
        with self._engine.transaction():
            if new and tables is None:
                tables = create_period(self._engine, period)
            self._write_names(batch)
            self._write_events(batch.events)
            self._write_holes(holes, batch.at)
            if new and tables is not None:
                self._write_frames(tables[FRAMES], frames, fresh)
                insert_blocks(
                    self._engine,
                    tables,
                    batch.blocks,
                    frames,
                    None if new == len(frames) else fresh,
                )
        self._runs = runs
        if new and tables is not None:
            self._periods[period] = tables
        self._remember(frames, fresh, holes)
        return new

    def _fresh(self, frames: Frames) -> npt.NDArray[np.bool_]:
        """Return which frames are not stored yet, and not twice in the batch."""
        stored, seen = self._stored, set()
        fresh = np.ones(len(frames), np.bool_)
        for at, key in enumerate(zip(frames.run.tolist(), frames.seq.tolist(), strict=True)):
            spans = stored.get(key[0])
            if key in seen or (spans is not None and key[1] <= spans.end and key[1] in spans):
                fresh[at] = False
            seen.add(key)
        return fresh

    def _new_holes(
        self, holes: list[Hole], runs: dict[tuple[str, int], int]
    ) -> list[tuple[int, int, int, str]]:
        """Return run, first, last and reason of what is not accounted for yet."""
        found = []
        for hole in holes:
            run = runs[hole.node, hole.session]
            spans = self._stored.get(run, IntervalSet())
            for first, last in spans.missing(hole.first, hole.last):
                found.append((run, first, last, hole.reason))
        return found

    def _write_names(self, batch: Batch) -> None:
        if batch.runs:
            columns: Columns = {
                "id": np.array([run.id for run in batch.runs], np.int32),
                "node": texts([run.node for run in batch.runs]),
                "session": np.array([run.session for run in batch.runs], np.int64),
            }
            self._engine.insert("runs", columns, "or ignore")
        if batch.devices:
            index = [-1 if each.index is None else each.index for each in batch.devices]
            devices: Columns = {
                "id": np.array([device.id for device in batch.devices], np.int32),
                "node": texts([device.node for device in batch.devices]),
                "key": texts([device.key for device in batch.devices]),
                "index": np.array(index, np.int32),
                "name": texts([device.name for device in batch.devices]),
            }
            self._engine.insert("devices", devices, "or ignore")
        newest = list({each.node: each for each in batch.inventories}.values())
        if newest:
            bodies: Columns = {
                "node": texts([each.node for each in newest]),
                "session": np.array([each.session for each in newest], np.int64),
                "version": np.array([each.version for each in newest], np.int64),
                "taken_at": np.array([_clamped(each.taken_at) for each in newest], np.int64),
                "body": texts([msgspec.json.encode(each).decode() for each in newest]),
            }
            self._engine.insert("inventories", bodies, "or replace")

    def _write_events(self, events: list[StoredEvent]) -> None:
        if not events:
            return
        happened = [each.event for each in events]
        columns: Columns = {
            "node": texts([event.node for event in happened]),
            "id": texts([event.id for event in happened]),
            "happened": np.array([_clamped(event.at) for event in happened], np.int64),
            "received": np.array([each.received_at for each in events], np.int64),
            "kind": texts([event.kind for event in happened]),
            "gpu": texts([event.gpu for event in happened]),
            "body": texts([msgspec.json.encode(event).decode() for event in happened]),
        }
        self._engine.insert("events", columns, "or ignore")

    def _write_holes(self, holes: list[tuple[int, int, int, str]], at: int) -> None:
        if holes:
            columns: Columns = {
                "run": np.array([hole[0] for hole in holes], np.int32),
                "first": np.array([hole[1] for hole in holes], np.int64),
                "last": np.array([hole[2] for hole in holes], np.int64),
                "reason": texts([hole[3] for hole in holes]),
                "received": np.full(len(holes), at, np.int64),
            }
            self._engine.insert("holes", columns)

    def _write_frames(self, table: str, frames: Frames, fresh: npt.NDArray[np.bool_]) -> None:
        columns: Columns = {
            "run": frames.run[fresh],
            "seq": frames.seq[fresh],
            "ts": frames.sampled_at[fresh],
            "received": frames.received_at[fresh],
            "backfilled": frames.backfilled[fresh],
        }
        self._engine.insert(table, columns)

    def _remember(
        self,
        frames: Frames,
        fresh: npt.NDArray[np.bool_],
        holes: list[tuple[int, int, int, str]],
    ) -> None:
        stored = self._stored
        runs, numbers = frames.run[fresh].tolist(), frames.seq[fresh].tolist()
        for run, seq in zip(runs, numbers, strict=True):
            spans = stored.get(run)
            if spans is None:
                spans = stored[run] = IntervalSet()
            spans.add(seq)
        for run, first, last, _ in holes:
            stored.setdefault(run, IntervalSet()).add_span(first, last)

    # -- Reading -------------------------------------------------------------------------------

    def known(self) -> Known:
        """Return the runs and devices that have a number already."""
        self._ready()
        runs = self._engine.rows("select id, node, session from runs")
        devices = self._engine.rows('select id, node, key, "index", name from devices')
        return Known(
            [Run(*row) for row in runs],
            [
                Device(row[0], row[1], row[2], None if row[3] < 0 else row[3], row[4])
                for row in devices
            ],
        )

    def accounted(self) -> dict[tuple[str, int], IntervalSet]:
        """Return which frames of each (node, session) are stored or recorded as holes."""
        self._ready()
        empty = IntervalSet()
        return {key: IntervalSet(self._stored.get(run, empty)) for key, run in self._runs.items()}

    def inventories(self) -> list[Inventory]:
        """Return the newest inventory of each node; one that can't be read any more is left out."""
        self._ready()
        found = []
        for node, body in self._engine.rows("select node, body from inventories order by node"):
            try:
                found.append(msgspec.json.decode(body, type=Inventory))
            except msgspec.DecodeError as error:
                log.warning("node=%s: its stored inventory can't be read: %s", node, error)
        return found

    def history(self, device: str, metric: str, start: int, end: int, step: float) -> History:
        """Return one metric of one device. Raises `StoreError` for a metric that is none."""
        self._ready()
        return read_history(
            self._engine, self._root, self._files, self._periods, device, metric, start, end, step
        )

    def events(
        self, start: int, end: int, node: str | None, kind: str | None, limit: int
    ) -> list[StoredEvent]:
        """Return events, newest first."""
        self._ready()
        rows = self._engine.rows(
            "select body, received from events where happened >= ? and happened < ? "
            "and (?::varchar is null or node = ?) and (?::varchar is null or kind = ?) "
            "order by happened desc, id desc limit ?",
            start, end, node, node, kind, kind, limit,
        )  # fmt: skip
        return [StoredEvent(msgspec.json.decode(body, type=Event), at) for body, at in rows]

    def size(self) -> dict[str, int]:
        """Return bytes by part: `hot`, `sealed`, `rollups`."""
        return {
            "hot": self._engine.bytes(),
            "sealed": manifest.total(self._files, raw=True),
            "rollups": manifest.total(self._files, raw=False),
        }

    # -- Upkeep --------------------------------------------------------------------------------

    def maintain(self, now: int) -> bool:
        """Do one piece of sealing or retention; returns whether there is more to do now."""
        self._ready()
        if self._sealer is None:
            due = self._due(now)
            if due is not None:
                self._sealer = Sealer(
                    self._engine, self._root, self._config, due, self._periods[due], self._files
                )
        if self._sealer is not None:
            return self._seal(self._sealer)
        if now - self._retained_at >= RETAIN_EVERY_NS or now < self._retained_at:
            self._retained_at = now
            self._files = retention.retain(self._engine, self._root, self._config, self._files, now)
        return False

    def _seal(self, sealer: Sealer) -> bool:
        try:
            if not sealer.step():
                return True
        except (StoreError, OSError) as error:
            self._sealer = None
            sealer.abandon()
            if isinstance(error, OSError):
                raise StoreError(f"{self._root}: can't seal: {error.strerror}") from error
            raise
        self._sealer = None
        self._periods.pop(sealer.period, None)
        self._files = manifest.load(self._engine)
        self._retained_at = 0
        return True

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
        """Write everything down and let go of the files."""
        if self._sealer is not None:
            self._sealer.abandon()
        self._engine.close()

    # -- Opening -------------------------------------------------------------------------------

    def _ready(self) -> None:
        self._engine.ensure()
        if self._engine.opened != self._opened:
            self._load()

    def _load(self) -> None:
        """Learn from the files what is stored."""
        engine = self._engine
        create_lasting(engine)
        retention.clear_folder(self._root / "sealing")
        self._sealer = None
        periods = period_tables(engine)
        seal_seconds = max(1, int(self._config.seal_seconds))
        manifest.reconcile(engine, self._root, set(periods), seal_seconds)
        self._periods = {period: create_period(engine, period) for period in periods}
        if not self._opened:
            frame_tables = [each[FRAMES] for each in self._periods.values()]
            retention.forget_runs(engine, self._config, frame_tables)
        self._files = manifest.load(engine)
        self._runs = {
            (node, session): run
            for run, node, session in engine.rows("select id, node, session from runs")
        }
        self._stored = accounted_runs(engine, [each[FRAMES] for each in self._periods.values()])
        self._opened = engine.opened


def _clamped(at: int) -> int:
    return max(-(1 << 62), min(at, 1 << 62))
