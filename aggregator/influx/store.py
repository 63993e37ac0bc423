"""The InfluxDB store: readings go to a server, and a ledger on this disk holds what must be exact.

Frames, events, holes and inventories stay in the ledger, which answers at once and without a server.
Readings become lines in a spool on disk before their frames count as stored; a frame that waits in an
open mean does not count yet, and after a kill -9 it is requested again, as any other that is missing.
A point that is written twice replaces itself.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from aggregator.config import AggregatorConfig
from aggregator.influx.aggregates import SpanAggregates, of_readings
from aggregator.influx.lines import MILLISECOND
from aggregator.influx.metrics import families
from aggregator.influx.names import EVENTS
from aggregator.influx.past import read_past
from aggregator.influx.reader import InfluxReader
from aggregator.influx.sender import SpoolSender
from aggregator.influx.span_ladder import FinishedSpan, SpanLadder, some
from aggregator.influx.spool import Spool
from aggregator.influx.state_changes import ChangeWatcher
from aggregator.influx.writer import SECOND, Lines, Writer, packed
from aggregator.jobs.stored import JobQuery, StoredJob
from aggregator.store.ledger import LedgerStore
from aggregator.store.past import PastQuery
from aggregator.store.protocol import (
    Batch,
    BlockRows,
    FleetPast,
    Frames,
    HistorySeries,
    LostFrames,
    PastInstants,
    StoredState,
    StoreStatus,
)
from aggregator.store.stored_spans import Fresh, StoredSpans
from api.fleet import StoredEvent
from api.jobs import JobRow
from telemetry.errors import StoreError
from telemetry.metric import Lane, Table
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import JobKey
from telemetry.wire.schema import SCHEMA

log = logging.getLogger(__name__)

MOST_JOBS = 500
"""Jobs that are sent at once: some 30 ms."""
SETTLED_NS = 900 * SECOND
"""Time after its end in which a job may still change: its node lists it for ten minutes."""
JOBS_EVERY_NS = 60 * SECOND
"""Time between two looks for jobs to send."""
MOST_AT_ONCE = 400_000
"""Values of finished spans in one commit: about a quarter of a second."""


class InfluxStore:
    """The `Store` of a data folder and a server."""

    def __init__(self, config: AggregatorConfig, *, deliver: bool = True) -> None:
        """`deliver`: whether a thread delivers; else `sender.step` does. Raises `StoreError`,
        `ConfigError`."""
        influx = self._config = config.store.influxdb
        self.spool = Spool(config.data_dir / "spool", influx.spool_bytes, {EVENTS})
        self.sender = SpoolSender(influx, self.spool, wall=time.time)
        self._reader = InfluxReader(influx, config.cluster)
        self._ledger = LedgerStore(config.store, config.data_dir, config.name_limits)
        self._writer = Writer(config.cluster, influx.batch_lines)
        self._spans = SpanLadder(influx)
        self._saved = config.data_dir / "open-hours.npz"
        self._outbox: list[Lines] = []
        """Lines that the spool does not have yet."""
        self._finished: deque[FinishedSpan] = deque()
        """Finished spans that are not all lines yet."""
        self._commit = Batch()
        """The next commit of the ledger."""
        self._new = 0
        self._failed: Batch | None = None
        """The batch that was accepted, and could not be written: it comes again."""
        self.dropped: Counter[str] = Counter()
        """Points that the spool had no room for, or kept too long, by reason."""
        self._jobs_sent = self._ledger.jobs_sent_until()
        """End of the time whose jobs the server has got."""
        known = self._ledger.known()
        self._writer.add_devices(known.devices)
        self._runs = {(run.node, run.session): run.id for run in known.runs}
        self._seen = StoredSpans({self._runs[key]: found for key, found in self._ledger.accounted().items()})
        self._watches = {at: ChangeWatcher(at) for at in range(len(SCHEMA.blocks))}
        self._spans.restore(self._saved)
        if deliver:
            self.sender.start()

    # -- Writing -------------------------------------------------------------------------------

    def write(self, batch: Batch) -> int:
        """Store a batch; return how many frames were new. After a kill -9 a frame is there when its
        mean was in the spool; else it is missing, and is requested again."""
        if batch is not self._failed:
            self._accept(batch)
        self._failed = batch
        self._finish(batch.at)
        self._failed = None
        new, self._new = self._new, 0
        return new

    def _accept(self, batch: Batch) -> None:
        """Add a batch to the open spans, the requests and the next commit."""
        for rows in batch.blocks:
            _check(rows)
        fresh = self._seen.fresh(batch.frames)
        self._writer.add_devices(batch.devices)
        self._runs.update({(run.node, run.session): run.id for run in batch.runs})
        commit = self._commit
        gone = set(batch.removed_nodes)
        commit.inventories = [each for each in commit.inventories if each.node not in gone]
        for name in ("events", "holes", "inventories", "runs", "devices", "ended_runs", "removed_nodes"):
            getattr(commit, name).extend(getattr(batch, name))
        self._outbox += self._writer.events(batch.events)
        self._outbox += self._writer.holes(batch.holes, batch.at)
        for rows in batch.blocks:
            self._readings(rows, batch, fresh)
        self._spans.hold(some(batch.frames, fresh), batch.at)
        holes = self._seen.new_holes(batch.holes, self._runs)
        self._seen.remember(batch.frames, fresh, holes)
        for key in batch.ended_runs:
            self._seen.end(self._runs.pop(key, -1))
        self._new += int(fresh.sum())

    def _readings(self, rows: BlockRows, batch: Batch, fresh: Fresh) -> None:
        kept = fresh[rows.frame]
        if not kept.any():
            return
        block = SCHEMA.blocks[rows.block]
        device, gauges, counters = rows.device, rows.gauges, rows.counters
        at = batch.frames.sampled_at[rows.frame]
        if not kept.all():
            at, device, gauges, counters = at[kept], device[kept], gauges[kept], counters[kept]
        cells = of_readings(block, device, at, gauges, counters)
        if self._spans.means is None or block.lane is Lane.SLOW:
            self._outbox += self._writer.points(rows.block, cells)
        else:
            changes = self._watches[rows.block].detect(cells.device, at, gauges)
            if changes is not None:
                self._outbox += self._writer.changes(rows.block, changes)
        self._spans.add(rows.block, cells, batch.at)

    def _finish(self, at: int, *, every: bool = False) -> None:
        """Write to disk what is ready: the spool first, then the ledger that relies on it."""
        self._announce(at)
        self._finished.extend(self._spans.due(at, every=every))
        done = self._write_finished(every=every)
        self.spool.append(packed(self._outbox, self._config.batch_lines))
        self._outbox = []
        commit = self._commit
        commit.at = at
        commit.frames = Frames.join(self._spans.stored)
        if commit:
            self._ledger.write(commit)
        self._commit = Batch()
        self._spans.stored.clear()
        if done and not self._finished:
            self._spans.save(self._saved)

    def _write_finished(self, *, every: bool) -> bool:
        """Make lines of finished spans, some at a time: a fleet's minute takes seconds, and a commit
        must not. Return whether frames count as stored by it."""
        waits = sum(_values(span) for span in self._finished)
        left, held = max(MOST_AT_ONCE, waits // 8), False  # a large fleet has more every second
        while self._finished and (left > 0 or every):
            span = self._finished[0]
            while span.blocks and (left > 0 or every):
                block, cells = span.blocks.pop()
                self._outbox += self._writer.points(block, cells, span.rollup)
                left -= _cost(span, block, cells)
            if not span.blocks:
                self._spans.stored += span.frames
                held = held or bool(span.frames)
                self._finished.popleft()
        return held

    def _announce(self, at: int) -> None:
        """Record what the spool dropped, as a hole of exact size."""
        losses = self.spool.drain_losses()
        for loss in losses:
            self.dropped[loss.reason] += loss.points
            log.error("influxdb: the spool dropped %d points (%s)", loss.points, loss.reason)
        self._outbox += self._writer.losses(losses, at)

    # -- Reading -------------------------------------------------------------------------------

    def known(self) -> StoredState:
        """Return the runs and devices that have a number already."""
        return self._ledger.known()

    def accounted(self) -> dict[tuple[str, int], IntervalSet]:
        """Return which frames are in the spool or delivered, or recorded as holes."""
        return self._ledger.accounted()

    def inventories(self) -> list[Inventory]:
        """Return the newest inventory of each node."""
        return self._ledger.inventories()

    def history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Return one metric of one device, as the server has it; from any thread."""
        return self._reader.history(device, metric, start, end, step)

    def past(
        self,
        table: Table,
        columns: Sequence[str],
        when: PastInstants,
        reach: Mapping[Lane, int],
        nodes: Sequence[str] | None,
    ) -> FleetPast:
        """Return the newest readings of all devices at each instant, as the server has them; from any
        thread."""
        query = PastQuery(table, tuple(columns), when, dict(reach), nodes)
        return read_past(self._reader, query, self._ledger.later(table, when.first))

    def events(self, start: int, end: int, node: str | None, kind: str | None, limit: int) -> list[StoredEvent]:
        """Return events, newest first, from the ledger."""
        return self._ledger.events(start, end, node, kind, limit)

    def write_jobs(self, jobs: Sequence[StoredJob]) -> None:
        """Store jobs in the ledger. The server gets those that have ended when nothing of them changes any more; one that
        changes after that comes again."""
        self._ledger.write_jobs(jobs)
        late = {each.row.end // SECOND for each in jobs if each.row.end is not None and each.row.end < self._jobs_sent}
        for second in sorted(late):
            self._send(self._ledger.ended_jobs(second * SECOND, (second + 1) * SECOND))

    def _send_jobs(self, now: int) -> None:
        """Write the jobs to the spool that ended a while ago, some at a time."""
        until = (now - SETTLED_NS) // SECOND * SECOND
        if until - self._jobs_sent < JOBS_EVERY_NS:
            return
        oldest = max(0, now - int(self._config.events_age_seconds * SECOND))
        rows, until = self._ledger.unsent_jobs(oldest, until, MOST_JOBS)
        self._send(rows)
        self._ledger.note_sent(until)
        self._jobs_sent = until

    def _send(self, ended: Sequence[JobRow]) -> None:
        self.spool.append(packed(self._writer.jobs(ended), self._config.batch_lines))

    def open_jobs(self) -> list[StoredJob]:
        """Return the jobs that had not ended when they were written last."""
        return self._ledger.open_jobs()

    def jobs_of(self, keys: Sequence[JobKey]) -> list[StoredJob]:
        """Return the jobs of some keys, as far as they are stored."""
        return self._ledger.jobs_of(keys)

    def find_jobs(self, query: JobQuery) -> list[JobRow]:
        """Return jobs, the newest begin first."""
        return self._ledger.find_jobs(query)

    def size(self) -> dict[str, int]:
        """Return bytes by part on this disk: of the ledger, and `spool`."""
        return {**self._ledger.size(), "spool": self.spool.bytes}

    def status(self) -> StoreStatus:
        """Return whether the server accepts data, and the metrics of sender and spool."""
        self.sender.revive()
        problem = self.sender.problem
        return StoreStatus(
            name="influxdb",
            problem=problem,
            warning=f"InfluxDB accepts no data, {self.spool.points} points wait in the spool; "
            "`kilowatch influx check` reports the reason."
            if problem
            else "",
            lost_files=self._ledger.status().lost_files,
            families=families(self.sender.metrics, self.spool, self.dropped),
        )

    # -- Upkeep --------------------------------------------------------------------------------

    def tidy(self) -> bool:
        """Do what a commit leaves to be done."""
        return self._ledger.tidy()

    def maintain(self, now: int) -> bool:
        """Close finished spans although no frame comes; drop points that are too old to be sent."""
        if self._failed is None:
            self._finish(now)
            self._send_jobs(now)
        self.spool.age((now - int(self._config.raw_age_seconds * 1e9)) // MILLISECOND)
        return self._ledger.maintain(now)

    def seal(self) -> None:
        """Do one long piece of the ledger's upkeep, beside commits."""
        self._ledger.seal()

    def check_next(self) -> None:
        """Verify one of the ledger's files."""
        self._ledger.check_next()

    def drain_refill(self) -> list[LostFrames]:
        """Return nothing: no reading is in a file."""
        return self._ledger.drain_refill()

    def close(self) -> None:
        """Write everything and close. Open means end here, and their rest will be a part of its own;
        hours go on after the next start."""
        try:
            self._finish(time.time_ns(), every=True)
            self._spans.save(self._saved)
        except StoreError as error:
            log.warning("influxdb: %s Open means are requested again at the next start.", error)
        finally:
            self.sender.stop()
            self._reader.close()
            self._writer.close()
            self.spool.close()
            self._ledger.close()


def _cost(span: FinishedSpan, block: int, cells: SpanAggregates) -> int:
    """Return the number of values in the lines of a part of a span; a roll-up has four of each metric."""
    return len(cells) * len(SCHEMA.blocks[block].names) * (4 if span.rollup else 1)


def _values(span: FinishedSpan) -> int:
    return sum(_cost(span, block, cells) for block, cells in span.blocks)


def _check(rows: BlockRows) -> None:
    """Raise `ValueError` for rows that are not of their block, before anything is changed."""
    block = SCHEMA.blocks[rows.block]
    wanted = (len(rows.frame), len(block.gauges)), (len(rows.frame), len(block.counters))
    if (rows.gauges.shape, rows.counters.shape) != wanted:
        raise ValueError(
            f"rows of {block.name} have {rows.gauges.shape[1]} gauges and {rows.counters.shape[1]} counters"
        )
