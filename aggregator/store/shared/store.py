"""The store of a member of a cluster: its own folder for the newest readings, shared storage for all.

Every minute the frames that no segment holds yet are spilled, one segment a group under the epoch of
its holder, and put into the storage. While that is away, read-only or full, commits and spills go on:
segments wait on this member's disk, are read from there, and are put there later. A query reads
segments, and of the hot tables what is not spilled: each frame once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aggregator.config import NameLimits, StoreConfig
from aggregator.folder import kinds
from aggregator.settings.shared_storage import SharedStorageConfig
from aggregator.store import manifest, retention
from aggregator.store.duck import Columns, MovedError
from aggregator.store.embedded import QUERY_SECONDS, RETRIES, RETRY_SECONDS, EmbeddedStore
from aggregator.store.history import read_history
from aggregator.store.past import PastQuery, read_past
from aggregator.store.protocol import Batch, FleetPast, HistorySeries, PastInstants
from aggregator.store.shared.compaction import compact, plan_compaction
from aggregator.store.shared.segment import Segment, SegmentName, SessionKey, read_footer
from aggregator.store.shared.segment_index import SegmentChoice, SegmentIndex, SegmentView
from aggregator.store.shared.spill import Spiller
from aggregator.store.shared.storage import NameTakenError, SharedStorage
from aggregator.store.stored_spans import Fresh, spans_of
from aggregator.store.tables import FRAMES, period_of
from telemetry.errors import StoreError
from telemetry.metric import Lane, Table
from telemetry.runtime.backoff import STEADY, Backoff
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.topics import shard_of

log = logging.getLogger(__name__)

PLAN_SECONDS = 60.0
"""Seconds between two looks for what is to be compacted or removed."""
_TABLES = """
create table if not exists spilled(run integer, first bigint, last bigint);
create table if not exists outgoing(name varchar primary key);
"""


@dataclass(frozen=True, slots=True)
class SharedState:
    """The state that queries see, replaced as a whole: a frame is in a segment of the view, or not `spilled`."""

    view: SegmentView
    spilled: Mapping[int, IntervalSet]


@dataclass(frozen=True, slots=True)
class SharedStatus:
    """The state of the shared storage, for health and impairments."""

    problem: str = ""
    """Why the storage can't be used, in its words; empty while it can."""
    waiting: int = 0
    """Segments that are on this member's disk alone, and their bytes."""
    waiting_bytes: int = 0
    waiting_since: int = 0
    """ns since 1970 of the oldest of them; 0 for none. A crash of this machine's disk now costs a refill
    from then on."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Files that are left out, with the reason, by name."""


class SharedStore(EmbeddedStore):
    """The `Store` of a member of a cluster."""

    def __init__(
        self,
        config: StoreConfig,
        folder: Path,
        shared: SharedStorageConfig,
        names: NameLimits | None = None,
        *,
        grace_seconds: float = 20.0,
    ) -> None:
        """`grace_seconds`: for which a replaced segment stays; twice the time after which a member
        counts as dead. Raises `StoreError` or `ConfigError`."""
        self._shared = shared
        self._grace = grace_seconds
        self._storage = SharedStorage(shared)
        self._segments = SegmentIndex(self._storage, config.seal_seconds)
        self._epochs: dict[str, int] = {}
        """Epoch under which each group is held, or was held last."""
        self._held: frozenset[str] = frozenset()
        """Replaced whole: upkeep goes through it in another thread."""
        self._outgoing: deque[Segment] = deque()
        self._uploaded: list[str] = []
        """Segments that are in the storage, but still in the table `outgoing`."""
        self._compacted: deque[list[Segment]] = deque()
        """Compactions whose files are not in the table `outgoing` yet."""
        self._guard = threading.Lock()
        """Guards the state that queries see, and what the two threads hand to each other."""
        self._state = SharedState(SegmentView(), {})
        self._unspilled: dict[int, IntervalSet] = {}
        self._unspilled_since = 0
        self._unspilled_periods: set[int] = set()
        self._spiller: Spiller | None = None
        self._spilled_at = 0
        self._spill_soon: set[str] = set()
        """Groups that are spilled before it is time for all."""
        self._upload_backoff = Backoff(1.0, 30.0, STEADY)
        self._upload_at = 0
        self._refresh_at = 0
        self._plan_at = 0
        self._replaced_at: dict[str, int] = {}
        """When a segment was first seen to be replaced, ns."""
        self._problems: dict[str, str] = {}
        self._new_frames: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], int] | None = None
        super().__init__(config, folder, names)
        if self._storage.filesystem is not None:
            self._engine.read_from(self._storage.filesystem)

    # -- Groups --------------------------------------------------------------------------------

    def hold(self, group: str, epoch: int) -> None:
        """Note that this member holds a group under an epoch."""
        self._epochs[group] = epoch
        self._held |= {group}

    def release(self, group: str) -> None:
        """Note that this member no longer holds a group: what it has of it is spilled soon."""
        self._held -= {group}
        self._spill_soon.add(group)

    def highest_epoch(self, group: str | None = None) -> int:
        """Return the highest epoch of a group's segments, or of all, 0 for none: the next is higher, also
        when the coordination has lost its memory."""
        groups = self._state.view.groups
        wanted = groups.values() if group is None else [groups[group]] if group in groups else []
        return max((each.epoch for each in wanted), default=0)

    def request_spill(self, groups: Set[str] | None) -> bool:
        """Spill what is committed of groups, None for all, with the next upkeep; return whether nothing of
        them is left to spill. In the store's thread."""
        self._ready()
        left = self._groups_unspilled() if groups is None else self._groups_unspilled() & groups
        self._spill_soon |= left
        return not left and self._spiller is None

    def waits(self, groups: Set[str] | None) -> bool:
        """Return whether a segment of groups, None for any, is on this member's disk alone; in any thread."""
        return any(groups is None or each.key.group in groups for each in list(self._outgoing))

    def list_now(self) -> bool:
        """List the storage; return whether it can be. In the thread that works on it."""
        done = self._attempt("list", lambda: self._segments.refresh(self._engine))
        self._show()
        return done

    def accounted_shared(self, group: str) -> dict[SessionKey, IntervalSet]:
        """Return the frames of a group that are in segments: a successor requests only the others."""
        return self._segments.marks(group)

    # -- Commits, in the store's thread ----------------------------------------------------------

    def write(self, batch: Batch) -> int:
        """Store a batch in one transaction; return how many frames were new."""
        self._new_frames = None
        new = super().write(batch)
        if self._new_frames is not None:
            runs, numbers, since = self._new_frames
            if not self._unspilled:
                self._unspilled_since = since
            self._unspilled_since = min(self._unspilled_since, since)
            self._unspilled_periods.add(self._period_for(batch.at))
            for run, seq in zip(runs.tolist(), numbers.tolist(), strict=True):
                spans = self._unspilled.get(run)
                if spans is None:
                    spans = self._unspilled[run] = IntervalSet()
                spans.add(seq)
        return new

    def _insert(self, tables: Mapping[str, str], batch: Batch, fresh: Fresh, *, every: bool) -> None:
        super()._insert(tables, batch, fresh, every=every)
        frames = batch.frames
        since = int(frames.received_at[fresh].min())
        self._new_frames = frames.run[fresh], frames.seq[fresh], since

    def maintain(self, now: int) -> bool:
        """Do one piece of upkeep between two commits; return whether there is more to do now, by
        `seal` first."""
        self._ready()
        self._register()
        if self._spiller is None and self._spill_due(now):
            self._spiller = self._begin_spill(now)
        if self._spiller is not None:
            if self._spiller.made:
                self._finish_spill(self._spiller)
            return True
        return super().maintain(now)

    def seal(self) -> None:
        """Make the next segments of a spill, or the next file of a period that is being sealed, beside
        commits."""
        spiller = self._spiller
        if spiller is None:
            super().seal()
        elif not spiller.made:
            try:
                spiller.step()
            except (StoreError, OSError) as error:
                self._abandon_spill(spiller)
                if isinstance(error, OSError):
                    raise StoreError(f"{self._root}: can't spill: {error.strerror}") from error
                raise

    def _due(self, now: int) -> int | None:
        """Return the oldest period that is over, and whose frames are all spilled."""
        due = super()._due(now)
        return None if due in self._unspilled_periods else due

    def _spill_due(self, now: int) -> bool:
        late = now - self._spilled_at >= self._shared.spill_seconds * 1e9 or now < self._spilled_at
        if self._unspilled and not late and self._spill_soon:
            self._spill_soon &= self._groups_unspilled()
        return bool(self._unspilled) and (late or bool(self._spill_soon))

    def _groups_unspilled(self) -> set[str]:
        return {shard_of(node) for node in self._nodes_of(self._unspilled).values()}

    def _nodes_of(self, runs: Iterable[int]) -> dict[int, str]:
        """Return the node of each run."""
        nodes = {run: node for (node, _), run in self._runs.items()}
        gone = [run for run in runs if run not in nodes]  # of sessions that have ended meanwhile
        rows = self._engine.rows("select id, node from runs where list_contains(?, id)", gone) if gone else []
        nodes.update((int(run), str(node)) for run, node in rows)
        return {run: nodes[run] for run in runs}

    def _begin_spill(self, now: int) -> Spiller:
        """Begin to spill all that is due: some groups, or all."""
        some, self._spill_soon = self._spill_soon, set()
        late = now - self._spilled_at >= self._shared.spill_seconds * 1e9 or now < self._spilled_at
        if late:
            self._spilled_at = now
        period = period_of(now, self._config.seal_seconds)
        groups: dict[str, dict[int, list[tuple[int, int]]]] = {}
        for run, node in self._nodes_of(self._unspilled).items():
            if late or shard_of(node) in some:
                groups.setdefault(shard_of(node), {})[run] = list(self._unspilled[run])
        return Spiller(
            self._engine,
            self._folder,
            dict(self._periods),
            groups,
            dict(self._epochs),
            since=self._unspilled_since,
            period=period,
            ends=period + max(1, int(self._config.seal_seconds)),
            number=now // 10**6 - period * 1000,
            slice_rows=self._config.slice_rows,
        )

    def _finish_spill(self, spiller: Spiller) -> None:
        """Note frames as spilled and files as outgoing, between two commits. Raises `StoreError`."""
        spilled = dict(self._state.spilled)
        unspilled: dict[int, IntervalSet] = {}
        done = {run: spans for group in spiller.spans.values() for run, spans in group.items()}
        for run, spans in done.items():
            spilled[run] = IntervalSet([*spilled.get(run, ()), *spans])
        for run, numbers in self._unspilled.items():
            rest = IntervalSet(numbers)
            for first, last in done.get(run, ()):
                rest.remove_span(first, last)
            if len(rest):
                unspilled[run] = rest
        try:
            with self._engine.transaction():
                self._engine.run("delete from spilled where list_contains(?, run)", list(done))
                self._insert_spilled({run: spilled[run] for run in done})
                self._note_outgoing(spiller.segments)
        except StoreError:
            self._abandon_spill(spiller)
            raise
        self._spiller = None
        self._unspilled = unspilled
        if not unspilled:
            self._unspilled_periods.clear()
        with self._guard:
            self._segments.add_own(spiller.segments)
            self._outgoing.extend(spiller.segments)
            self._state = SharedState(self._segments.view, spilled)

    def _abandon_spill(self, spiller: Spiller) -> None:
        self._spiller = None
        spiller.abandon()

    def _insert_spilled(self, spilled: Mapping[int, IntervalSet]) -> None:
        rows = [(run, *span) for run, spans in spilled.items() for span in spans]
        table = np.array(rows, np.int64).reshape(-1, 3)
        columns: Columns = {
            "run": table[:, 0].astype(np.int32),
            "first": np.ascontiguousarray(table[:, 1]),
            "last": np.ascontiguousarray(table[:, 2]),
        }
        self._engine.insert("spilled", columns)

    def _register(self) -> None:
        """Note in the database which segments were put into the storage, and which compaction made."""
        with self._guard:
            uploaded, self._uploaded = self._uploaded, []
            compacted, self._compacted = list(self._compacted), deque()
        # A database that was opened again has removed the files that its table did not name.
        compacted = [made for made in compacted if all(Path(each.place).is_file() for each in made)]
        made = [segment for each in compacted for segment in each]
        if uploaded or made:
            with self._engine.transaction():
                self._engine.run("delete from outgoing where list_contains(?, name)", uploaded)
                self._note_outgoing(made)
        for name in uploaded:
            (self._folder / name).unlink(missing_ok=True)
        if made:
            with self._guard:
                self._segments.add_own(made)
                self._outgoing.extend(made)
                self._state = SharedState(self._segments.view, self._state.spilled)

    def _note_outgoing(self, segments: Sequence[Segment]) -> None:
        names = [segment.name for segment in segments]
        self._engine.run("insert or ignore into outgoing select unnest(?::varchar[])", names)

    # -- The storage, in a thread of its own -----------------------------------------------------

    def tend(self, now: int) -> bool:
        """Do one piece of work on the storage; return whether there is more to do now. Never raises
        `StoreError`: `shared_status` says what fails."""
        if now >= self._refresh_at:
            self._refresh_at = now + int(self._shared.refresh_seconds * 1e9)
            self._attempt("list", lambda: self._segments.refresh(self._engine))
            self._show()
            return True
        if self._outgoing and now >= self._upload_at:
            if self._attempt("put", self._upload):
                self._upload_backoff.reset()
            else:
                self._upload_at = now + int(self._upload_backoff.next() * 1e9)
            self._show()
            return True
        if now >= self._plan_at and not self._problems and not self._compacted:
            done = self._attempt("compact", lambda: self._compact(now))
            if not done or not self._compacted:
                self._plan_at = now + int(PLAN_SECONDS * 1e9)
                self._attempt("remove", lambda: self._remove(now))
            self._show()
            return True
        return False

    def shared_status(self) -> SharedStatus:
        """Return the state of the shared storage; in any thread, at once."""
        waiting = list(self._outgoing)
        since = min((each.key.period * 1000 + each.key.number for each in waiting), default=0)
        unreadable = {name: each.reason for name, each in self._segments.unreadable.items()}
        return SharedStatus(
            "; ".join(dict.fromkeys(self._problems.values())),
            len(waiting),
            sum(each.bytes for each in waiting),
            since * 10**6,
            unreadable,
        )

    def check_next(self) -> None:
        """Verify one sealed file and one segment, the next of endless passes over all."""
        super().check_next()
        self._attempt("verify", lambda: self._segments.check_next(self._held))
        self._show()

    def _attempt(self, what: str, work: Callable[[], None]) -> bool:
        """Do a piece of work; note why it fails, or that it does not."""
        try:
            work()
        except StoreError as error:
            if self._problems.get(what) != str(error):
                log.warning("shared storage: %s Commits go on; segments wait on this disk.", error)
            self._problems[what] = str(error)
            return False
        self._problems.pop(what, None)
        return True

    def _show(self) -> None:
        with self._guard:
            self._state = SharedState(self._segments.view, self._state.spilled)

    def _upload(self) -> None:
        """Put the oldest waiting segment into the storage."""
        waiting = self._outgoing  # replaced by whoever opens the database again
        if not waiting:
            return
        segment = waiting[0]
        path, key = self._folder / segment.name, segment.key
        while True:
            try:
                self._storage.put(path, str(key))
                break
            except NameTakenError:
                with self._storage.open(str(key)) as file:
                    if file.read() == path.read_bytes():
                        break  # it was put there before a crash
                key = key._replace(number=key.number + 1)
        with self._guard:
            if self._outgoing is waiting:
                waiting.popleft()
            else:
                left = [each for each in self._outgoing if each.name != segment.name]
                self._outgoing = deque(left)
            self._uploaded.append(segment.name)
            self._segments.moved(segment.name, str(key))

    def _compact(self, now: int) -> None:
        """Make one compaction that is due in a group of this member."""
        waiting = {segment.name for segment in self._outgoing}
        for group in sorted(self._held):
            found = self._segments.segments(group)
            plan = (
                plan_compaction(
                    found, self._epochs[group], self._config.rollup_seconds, now, 2 * self._shared.spill_seconds
                )
                if found
                else None
            )
            if plan is None or any(each.name in waiting for each in plan.sources):
                continue
            if not self._segments.verify(plan.sources):
                continue  # what is left of it next time
            number = now // 10**6 - plan.period * 1000
            try:
                made = compact(self._engine, self._folder, plan, self._epochs[group], number, self._config)
            except OSError as error:
                raise StoreError(f"{self._root}: can't compact: {error.strerror}") from error
            with self._guard:
                self._compacted.append(made)
            return

    def _remove(self, now: int) -> None:
        """Remove segments of this member's groups that are replaced, after their time, or too old."""
        segments = [each for group in self._held for each in self._segments.segments(group)]
        waiting = {segment.name for segment in self._outgoing}
        there = {segment.name for segment in segments}
        replaced = {
            name
            for segment in segments
            if segment.name not in waiting  # others must see what replaces it before it goes
            for name in segment.footer.replaces
        } & there
        self._replaced_at = {name: self._replaced_at.get(name, now) for name in replaced}
        old = {
            file.path
            for file in retention.too_old(
                [file for each in segments for file in each.sealed_files()], self._config, now
            )
        }
        over = {name for name, at in self._replaced_at.items() if now - at >= self._grace * 1e9}
        for name in sorted((old | over) - waiting):
            self._segments.remove([name])
            self._show()
            self._storage.remove(name)

    # -- Reading -------------------------------------------------------------------------------

    def history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Return one metric of one device of any group; in any thread, beside commits."""
        tries = 0
        while True:
            periods, state = dict(self._periods), self._state
            try:
                with self._engine.reader(QUERY_SECONDS) as reader:
                    found = reader.rows(
                        "select d.node, r.id, r.session from devices d left join runs r on r.node = d.node "
                        "where d.key = ?",
                        device,
                    )
                    group = shard_of(found[0][0]) if found else None
                    but = _in_segments(state, found)
                    choice = SegmentChoice(state.view, group)
                    return read_history(reader, choice, periods, device, metric, start, end, step, but)
            except MovedError:
                tries += 1
                if tries == RETRIES:
                    raise
                time.sleep(RETRY_SECONDS)

    def past(
        self,
        table: Table,
        columns: Sequence[str],
        when: PastInstants,
        reach: Mapping[Lane, int],
        nodes: Sequence[str] | None,
    ) -> FleetPast:
        """Return the newest readings of the devices of all groups that this member knows, at each instant; in
        any thread, beside commits."""
        query = PastQuery(table, tuple(columns), when, dict(reach), nodes)
        groups = None if nodes is None else {shard_of(node) for node in nodes}
        tries = 0
        while True:
            periods, state = dict(self._periods), self._state
            try:
                with self._engine.reader(QUERY_SECONDS) as reader:
                    return read_past(reader, SegmentChoice.of(state.view, groups), periods, query)
            except MovedError:
                tries += 1
                if tries == RETRIES:
                    raise
                time.sleep(RETRY_SECONDS)

    # -- Opening -------------------------------------------------------------------------------

    @property
    def _folder(self) -> Path:
        return self._root / "outgoing"

    def _load(self) -> None:
        super()._load()
        engine = self._engine
        if self._storage.filesystem is not None:
            engine.read_from(self._storage.filesystem)
        engine.run(_TABLES)
        engine.run("delete from spilled where run not in (select id from runs)")
        if self._spiller is not None:
            self._abandon_spill(self._spiller)
        spilled: dict[int, IntervalSet] = {}
        for run, first, last in engine.rows("select run, first, last from spilled"):
            spilled.setdefault(run, IntervalSet()).add_span(first, last)
        self._unspilled, self._unspilled_since = {}, 0
        for tables in self._periods.values():
            for run, first, last in spans_of(engine, tables[FRAMES]):
                for span in spilled.get(run, IntervalSet()).missing(first, last):
                    self._unspilled.setdefault(run, IntervalSet()).add_span(*span)
        self._unspilled_periods = set(self._periods) if self._unspilled else set()
        with self._guard:
            self._outgoing = deque(self._waiting())
            self._uploaded = []  # what the table still names is put there again, and found there
            self._segments.reset_own(list(self._outgoing))
            self._state = SharedState(self._segments.view, spilled)

    def _waiting(self) -> list[Segment]:
        """Return the segments that the table names, oldest first, and remove what is left of others."""
        named = {name for (name,) in self._engine.rows("select name from outgoing")}
        found = []
        for path in sorted(self._folder.rglob("*.parquet")) if self._folder.is_dir() else []:
            name = path.relative_to(self._folder).as_posix()
            key = SegmentName.parse(name)
            if name not in named or key is None:
                manifest.remove(path)
                continue
            try:
                with self._engine.reader() as reader:
                    footer = read_footer(reader, str(path), key)
            except Exception as error:  # noqa: BLE001 - whatever a damaged file does to those who read it
                kinds.set_aside(path, error)
                continue
            found.append(Segment(name, key, footer, path.stat().st_size, str(path)))
        return sorted(found, key=lambda each: (each.key.period, each.key.number, each.key.step))


def _in_segments(state: SharedState, runs: Iterable[tuple[str, int | None, int | None]]) -> dict[int, IntervalSet]:
    """Return the frames of runs (node, number, session) that segments hold, whoever wrote them: the hot
    tables may hold them too, after a group had two holders for a while."""
    found: dict[int, IntervalSet] = {}
    for node, run, session in runs:
        if run is None:
            continue
        spans = IntervalSet(state.spilled.get(run, ()))
        group = state.view.groups.get(shard_of(node))
        for segment in () if group is None else group.segments.values():
            for mark in segment.footer.marks:
                if mark.node == node and mark.session == session:
                    spans.add_span(mark.first, mark.last)
        if spans:
            found[run] = spans
    return found
