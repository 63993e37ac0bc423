"""The whole cluster as one aggregator, for HTTP: any member answers for all.

The present is copied from the holders when somebody asks, at most once a second. The history of a device
is answered by the member that holds its group, which has the newest of it; where that one does not
answer, by this one from the shared storage. Who is missing is in the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from aggregator.alerting.delivery_view import DeliveryView
from aggregator.alerting.pipeline import AlertPipeline
from aggregator.cluster.ask import MemberAnswers, decoded
from aggregator.cluster.cluster_fitness import ClusterDrift, ClusterFitness
from aggregator.cluster.cluster_jobs import ClusterJobs
from aggregator.cluster.fleet_copy import FleetCopy, FleetPart, FleetQuestion, FleetSource
from aggregator.cluster.groups import GROUPS
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.port import CoordinationError
from aggregator.jobs.stored import FoundJobs, JobQuery, UnheldMonth, WholeJobs
from aggregator.store.protocol import FleetPast, HistorySeries, PastInstants, StoredDevice
from aggregator.store.sealed_files import joined
from aggregator.view import AggregatorView, SiteView
from alerts.engine.engine import worst_first
from api.alerts import Alert
from api.fleet import AggregatorRow, StoredEvent
from telemetry.catalogue import BY_NAME
from telemetry.devices import Event
from telemetry.errors import NodeError
from telemetry.fleet import Floats
from telemetry.metric import Lane, Table
from telemetry.text import counted
from telemetry.text.decoders import of_msgpack
from telemetry.wire.jobs import JobKey
from telemetry.wire.topics import shard_of

ANSWER_SECONDS = 2.0
"""Seconds in which a member must answer about the present, and else is missing."""
PAST_SECONDS = 10.0
"""Seconds in which it must answer about the past: a query may read many files."""
FRESH_SECONDS = 1.0
"""Seconds for which a copy of the present serves all who ask."""
MOST_WORK = 0.1
"""Share of a core that copies may take: above, one serves for longer."""
NOBODY = "nobody"
"""Stands for the member of a group that none has."""
MOVED = "moved"
"""Why an alert ended whose node another member has now."""
MOST_EVENTS = 100
"""Newest events that a member sends with its present."""


class HistoryQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A question for the history of a device."""

    device: str
    metric: str
    start: int
    end: int
    step: float


class PastQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A question for the past of the devices that a member holds."""

    table: Table
    columns: tuple[str, ...]
    first: int
    step: int
    count: int
    reach: dict[Lane, int]
    nodes: tuple[str, ...] | None


class PastPart(msgspec.Struct, frozen=True):
    """A `FleetPast` as it travels."""

    groups: tuple[str, ...]
    """The groups that the member holds."""
    devices: list[tuple[int, str, str, int | None, str]]
    columns: dict[str, tuple[str, bytes]]
    """By metric: type of the values, and the values."""
    seen: dict[Lane, bytes]
    slack: dict[Lane, int]
    later: list[tuple[str, str]]
    begins: int | None
    incomplete: list[tuple[int, int]]


class EventsQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A question for events."""

    start: int
    end: int
    node: str | None
    kind: str | None
    limit: int


class ClusterView:
    """An `AggregatorView` of all members, and the `OtherStores` of this one's store; `run` it."""

    def __init__(self, own: AggregatorView, member: ClusterMember) -> None:
        """`own`: this member alone, whose store is open."""
        self._own, self._member = own, member
        self._answers = MemberAnswers(member.coordination, member.name)
        self._source = FleetSource(member.planner.own.start)
        self._copy = FleetCopy()
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed = float("-inf")
        self._work = 0.0
        """Seconds that the last copy took this loop."""
        self.missing: Sequence[str] = ()
        self.fleet = self._copy.fleet
        self.stats, self.store, self.cluster = own.stats, own.store, own.cluster
        self.started_at, self.impairments, self.marks = own.started_at, own.impairments, own.marks
        self.shedding, self.flushes, self.electrical = own.shedding, own.flushes, own.electrical
        self.register, self.pages_aside = own.register, own.pages_aside
        self.process_words = own.process_words
        self.fitness = ClusterFitness(own, member.name, self._answers, self._copy)
        self.drift = ClusterDrift(own.drift, self)
        self.jobs = ClusterJobs(own, member.name, self._answers, self._copy, self._askable)

    # -- Of this member --------------------------------------------------------------------------

    @property
    def here(self) -> AggregatorView:
        """This member alone."""
        return self._own

    @property
    def pipeline(self) -> AlertPipeline:
        """Rules, incidents and silences of this member."""
        return self._own.pipeline

    @property
    def delivery(self) -> DeliveryView:
        """Deliveries and channels of this member."""
        return self._own.delivery

    def __getattr__(self, name: str) -> object:
        """Return what else this member has."""
        return getattr(self._own, name)

    @property
    def site_role(self) -> SiteView | None:
        """The part of this member in what one place must judge."""
        return self._own.site_role

    def members(self) -> Sequence[AggregatorRow]:
        """Return all members that are known, by name, those that are gone with their last groups."""
        planner, now = self._member.planner, self.now()
        leader = "" if self.site_role is None else self.site_role.leader
        owned = Counter(map(self._owner, GROUPS))
        rows = []
        for name, known in sorted(planner.members.items()):
            gone = planner.dead(name, now)
            rows.append(
                AggregatorRow(
                    name=name,
                    groups=owned[name],
                    nodes=known.beat.nodes,
                    version=known.beat.version,
                    silent_seconds=now - known.heard if gone else None,
                    leads=name == leader,
                    load=None if gone else known.beat.load,
                )
            )
        return rows

    def now(self) -> float:
        """The monotonic clock of this member, seconds."""
        return self._own.now()

    def wall(self) -> int:
        """The wall clock, ns since 1970."""
        return self._own.wall()

    async def forget(self, node: str) -> bool:
        """Remove a node, at the member that holds it: only that one may. Raises `NodeError` also where it does
        not answer."""
        owner = self._owner(shard_of(node))
        if owner in {"", self._member.name}:
            return await self._own.forget(node)
        try:
            body = await self._answers.ask(owner, "forget", node.encode(), PAST_SECONDS)
            return of_msgpack(bool).decode(body)
        except (CoordinationError, msgspec.DecodeError) as error:
            raise NodeError(f"{node} was not forgotten: {error}") from error

    def record_event(self, event: Event) -> None:
        """Add an event about a node of this member."""
        self._own.record_event(event)

    # -- The present -----------------------------------------------------------------------------

    def alerts(self) -> list[Alert]:
        """Alerts of all members, worst first; of one that does not answer the last that it said."""
        found = {
            alert.key: alert
            for member, answered in self._copy.answers.items()
            for alert in answered.part.alerts
            if self._copy.vouches(member, alert.node)
        }
        found |= {alert.key: alert for alert in self._own.alerts() if alert.ended != MOVED or alert.key not in found}
        return sorted(found.values(), key=worst_first)

    def recent_events(self) -> Sequence[Event]:
        """The newest events of all members, newest first."""
        found = {event.id: event for event in self._own.recent_events()}
        for answered in self._copy.answers.values():
            found |= {event.id: event for event in answered.part.events}
        return sorted(found.values(), key=lambda event: event.at, reverse=True)

    async def refresh(self) -> None:
        """Copy the present of all members, if the last copy is a second old; who comes meanwhile waits for
        the same."""
        if self._refreshing is None:
            if self.now() - self._refreshed < max(FRESH_SECONDS, self._work / MOST_WORK):
                return
            self._refreshing = asyncio.create_task(self._refresh(), name="copy of the present")
            self._refreshing.add_done_callback(self._refresh_ended)
        await asyncio.shield(self._refreshing)

    def _refresh_ended(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled() and task.exception() is None:
            self._refreshed = self.now()

    async def _refresh(self) -> None:
        asked = self._member.others(self.now())
        found, scores = await asyncio.gather(
            self._answers.ask_all(asked, "fleet", lambda name: _pack(self._copy.question(name)), ANSWER_SECONDS),
            self.fitness.ask(asked),
        )
        began = time.thread_time()
        parts = decoded(found, FleetPart)
        own = self._part(self._copy.question(self._member.name))
        self._copy.update({**parts, self._member.name: own}, self.now())
        self._work = time.thread_time() - began
        known = self._member.planner.members
        for name in self._copy.answers.keys() - known.keys() - {self._member.name}:
            self._copy.leave(name)  # and with it its alerts
        self.missing = self._missing()
        if scores is not None:
            await self.fitness.join(scores, sorted(set(self._askable()[1]) - scores.keys()))
        await self.drift.refresh()

    def _askable(self) -> tuple[list[str], list[str]]:
        """Return the others that answered about the present, and all that have something, the dead among them."""
        others = self._member.others(self.now())
        asked = [name for name in others if name in self._copy.answering]
        return asked, sorted({*others, *self._member.planner.members} - {self._member.name})

    def _missing(self) -> list[str]:
        lacking = Counter(self._owner(group) or NOBODY for group in GROUPS if group not in self._copy.heard)
        return [f"{name}: {counted(groups, 'group')}" for name, groups in sorted(lacking.items())]

    def _owner(self, group: str) -> str:
        entry = self._member.planner.owner(group)
        return "" if entry is None else entry.owner

    def _part(self, asked: FleetQuestion) -> FleetPart:
        own = self._own
        return self._source.part(
            own.fleet,
            self._member.receives,
            asked,
            own.now(),
            list(own.alerts()),
            list(own.recent_events())[:MOST_EVENTS],
            own.jobs.lists,
        )

    # -- The past --------------------------------------------------------------------------------

    async def history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Return the history of a device, from the member that holds it."""
        await self.refresh()
        node, own = self.fleet.home_of(device), self.store.own_history
        holder = self._member.name if node is None else self._copy.heard.get(shard_of(node), "")
        if holder == self._member.name:
            return await own(device, metric, start, end, step)
        if holder:
            question = HistoryQuestion(device, metric, start, end, step)
            with contextlib.suppress(CoordinationError, msgspec.DecodeError):
                body = await self._answers.ask(holder, "history", _pack(question), PAST_SECONDS)
                return of_msgpack(HistorySeries).decode(body)
        found = await own(device, metric, start, end, step)
        lacking = holder or self._owner(shard_of(node or "")) or NOBODY
        return msgspec.structs.replace(found, missing=[lacking])

    async def past(
        self,
        table: Table,
        columns: Sequence[str],
        when: PastInstants,
        reach: Mapping[Lane, int],
        nodes: Sequence[str] | None,
    ) -> FleetPast:
        """Return the past of all devices, of each from the member that holds it."""
        await self.refresh()
        wanted = set(GROUPS) if nodes is None else {shard_of(node) for node in nodes}
        heard = self._copy.heard
        names = None if nodes is None else tuple(nodes)
        question = PastQuestion(table, tuple(columns), when.first, when.step, when.count, dict(reach), names)
        asked = {heard[group] for group in wanted if group in heard} - {self._member.name}
        own, bodies = await asyncio.gather(
            self.store.own_past(table, columns, when, reach, nodes),
            self._answers.ask_all(asked, "past", lambda _: _pack(question), PAST_SECONDS),
        )
        parts = decoded(bodies, PastPart)
        answered = {group for part in parts.values() for group in part.groups}
        found = [_only(own, lambda group: group not in answered)]
        found += [_unpacked(part, when) for part in parts.values()]
        past = join_pasts(found, columns, when)
        lacking = wanted - answered - self._member.receives.keys()
        past.missing = sorted({self._owner(group) or NOBODY for group in lacking})
        return past

    async def events(self, start: int, end: int, node: str | None, kind: str | None, limit: int) -> list[StoredEvent]:
        """Return events of all members, newest first."""
        question = EventsQuestion(start, end, node, kind, limit)
        own, bodies = await asyncio.gather(
            self.store.own_events(start, end, node, kind, limit),
            self._answers.ask_all(self._member.others(self.now()), "events", lambda _: _pack(question), ANSWER_SECONDS),
        )
        found = {each.event.id: each for each in own}
        for theirs in decoded(bodies, list[StoredEvent]).values():
            found |= {each.event.id: each for each in theirs}
        return sorted(found.values(), key=lambda one: one.event.at, reverse=True)[:limit]

    async def find_jobs(self, wanted: JobQuery) -> FoundJobs:
        """Return jobs of all members, the newest begin first."""
        return await self.jobs.find(wanted)

    async def whole_jobs(self, keys: Sequence[JobKey]) -> WholeJobs:
        """Return all that the members know of some jobs."""
        return await self.jobs.whole(keys)

    async def unheld(self, month: str) -> UnheldMonth:
        """Return the use of the GPUs of all members that no job held in a month."""
        return await self.jobs.unheld(month)

    # -- Answers to others -----------------------------------------------------------------------

    async def run(self) -> None:
        """Answer the questions of others until cancelled."""
        while True:
            try:
                async with self._answers.serving(
                    {
                        "fleet": self._answer_fleet,
                        "history": self._answer_history,
                        "past": self._answer_past,
                        "events": self._answer_events,
                        "forget": self._answer_forget,
                        "fitness": self.fitness.answer,
                    }
                    | self.jobs.handlers()
                ):
                    await asyncio.Event().wait()
            except CoordinationError:
                await asyncio.sleep(1.0)

    async def _answer_fleet(self, body: bytes) -> bytes:
        return _pack(self._part(of_msgpack(FleetQuestion).decode(body)))

    async def _answer_history(self, body: bytes) -> bytes:
        asked = of_msgpack(HistoryQuestion).decode(body)
        return _pack(await self.store.own_history(asked.device, asked.metric, asked.start, asked.end, asked.step))

    async def _answer_forget(self, body: bytes) -> bytes:
        return _pack(await self._own.forget(body.decode()))

    async def _answer_past(self, body: bytes) -> bytes:
        asked = of_msgpack(PastQuestion).decode(body)
        when = PastInstants(asked.first, asked.step, asked.count)
        found = await self.store.own_past(asked.table, asked.columns, when, asked.reach, asked.nodes)
        held = self._member.receives
        return await asyncio.to_thread(_packed, _only(found, held.__contains__), tuple(held))

    async def _answer_events(self, body: bytes) -> bytes:
        asked = of_msgpack(EventsQuestion).decode(body)
        return _pack(await self.store.own_events(asked.start, asked.end, asked.node, asked.kind, asked.limit))


def _pack(what: object) -> bytes:
    return msgspec.msgpack.encode(what)


def _only(past: FleetPast, wanted: Callable[[str], bool]) -> FleetPast:
    """Return the part of a past whose devices are in groups that are wanted."""
    kept = [place for place, each in enumerate(past.devices) if wanted(shard_of(each.node))]
    return dataclasses.replace(
        past,
        devices=[past.devices[place] for place in kept],
        columns={name: values[:, kept] for name, values in past.columns.items()},
        seen={lane: times[:, kept] for lane, times in past.seen.items()},
        later={each for each in past.later if wanted(shard_of(each[0]))},
    )


def _packed(past: FleetPast, groups: tuple[str, ...]) -> bytes:
    return _pack(
        PastPart(
            groups,
            [(each.id, each.node, each.key, each.index, each.name) for each in past.devices],
            {name: (values.dtype.str, values.tobytes()) for name, values in past.columns.items()},
            {lane: times.tobytes() for lane, times in past.seen.items()},
            past.slack, sorted(past.later), past.begins, past.incomplete,
        )
    )  # fmt: skip


def _unpacked(part: PastPart, when: PastInstants) -> FleetPast:
    shape = (when.count, len(part.devices))
    return FleetPast(
        [StoredDevice(*each) for each in part.devices],
        {name: np.frombuffer(body, kind).reshape(shape) for name, (kind, body) in part.columns.items()},
        {lane: np.frombuffer(body, np.int64).reshape(shape) for lane, body in part.seen.items()},
        part.slack,
        set(part.later),
        part.begins,
        list(part.incomplete),
    )


def join_pasts(parts: Sequence[FleetPast], columns: Iterable[str], when: PastInstants) -> FleetPast:
    """Return the pasts of several members, who have no device in common, as one."""
    counts = [len(part.devices) for part in parts]

    def side_by_side(arrays: list[Floats]) -> Floats:
        kind = np.result_type(*(each.dtype for each in arrays if each.shape[1])) if any(counts) else arrays[0].dtype
        return np.concatenate([each.astype(kind, copy=False) for each in arrays], axis=1)

    joint = FleetPast([each for part in parts for each in part.devices], {}, {}, {}, set())
    for name in columns:
        its = [
            part.columns.get(name, np.full((when.count, count), np.nan, np.float32))
            for part, count in zip(parts, counts, strict=True)
        ]
        joint.columns[name] = side_by_side(its)
        lane = BY_NAME[name].lane
        if lane not in joint.seen:
            joint.seen[lane] = np.concatenate(
                [
                    part.seen.get(lane, np.zeros((when.count, count), np.int64))
                    for part, count in zip(parts, counts, strict=True)
                ],
                axis=1,
            )
    for part in parts:
        joint.slack |= {lane: max(slack, joint.slack.get(lane, 0)) for lane, slack in part.slack.items()}
        joint.later |= part.later
    begins = [part.begins for part in parts if part.begins is not None]
    joint.begins = min(begins, default=None)
    joint.incomplete = joined(each for part in parts for each in part.incomplete)
    return joint
