"""The evidence collector: makes the cards of an incident when it is notified, and keeps them.

Queries run in the store's threads, and each is bounded; what does not come in time is named on the card.
A page waits for its card for two seconds at most (`PAGE_SECONDS`), and then goes without.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from aggregator.jobs.service import JobService
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import PastInstants
from alerts.engine.fault_history import KEPT_NS, FaultIndex
from alerts.incidents.state import IncidentChanges
from alerts.journal.journal import KEPT_INCIDENTS, Journal
from alerts.message.card import AROUND_NS, GPU_METRICS, MOST_CARDS, NODE_METRICS, card_of, subject_of, subjects_of
from alerts.message.page import Links
from alerts.notice import Notice
from alerts.rules.rule import Rule
from api.alerts import Action, Alert, Incident
from api.evidence import AffectedJob, Evidence, EvidenceReadings, EvidenceReply
from api.jobs import AllocationRow
from telemetry.catalogue import BY_NAME
from telemetry.devices import Event
from telemetry.errors import StoreError
from telemetry.fleet import STALE_INTERVALS, Fleet
from telemetry.gap import GAP, Gap, reason_of
from telemetry.metric import Kind, Lane, Table
from telemetry.runtime.isolation import reason_of as fault_of
from telemetry.runtime.tasks import TaskGroup, unending
from telemetry.text.decimals import plain
from telemetry.text.decoders import of_json
from telemetry.wire.jobs import Job, JobKey

log = logging.getLogger(__name__)
T = TypeVar("T")
SECOND = 1_000_000_000
HOUR_NS = 3600 * SECOND

PAGE_SECONDS = 2.0
"""Longest delay of a page by its evidence, from the decision to notify."""
LEAST_SECONDS = 0.2
"""Delay of a page that was decided long ago: enough to read the journal."""
QUERY_SECONDS = 1.5
"""Longest wait for one query of a card at first; less than a page waits."""
AGAIN_SECONDS, PATIENT_SECONDS = 15.0, 20.0
"""After how long a card that lacks a part is collected again, and how long each query may take then."""
STEP_NS = 30 * SECOND
"""Between two instants of the readings."""
MOST_EVENTS = 1000
MOST_WAITING = 200
"""Incidents that wait for their cards."""
REMEMBERED = 500
"""Incidents whose cards are in memory; others are read from the journal."""
_UNASKED = frozenset({"repeat", "test"})
"""Reasons of notices that need no new card."""
_GROWN = frozenset({"more", "worse"})
LATE = "not collected in time"


class EvidenceView(Protocol):
    """The parts of an aggregator that cards are made from."""

    @property
    def fleet(self) -> Fleet:
        """The newest readings."""

    @property
    def store(self) -> StoreExecutor:
        """Readings and events of the past."""

    @property
    def jobs(self) -> JobService:
        """Jobs, and the GPUs that they hold or held."""

    def now(self) -> float:
        """The monotonic clock that the fleet's ages are counted with, seconds."""

    def wall(self) -> int:
        """The wall clock, ns since 1970."""

    def alerts(self) -> Sequence[Alert]:
        """Alerts that are pending, firing or just resolved."""

    def recent_events(self) -> Sequence[Event]:
        """The last events in memory, newest first."""


@dataclass(slots=True)
class _Wanted:
    """An incident that waits for cards."""

    incident: Incident
    first: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its first card is there, or can't be made."""
    next: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its next card is there, or no more come; another then takes its place."""
    patient: bool = False
    """Whether this is the second try, which nobody waits for."""


class EvidenceCollector:
    """Makes and keeps the evidence of incidents; `run` it once."""

    def __init__(self, view: EvidenceView, journal: Journal, rules: Iterable[Rule], links: Links) -> None:
        self._view = view
        self._journal = journal
        self._rules = {rule.name: rule for rule in rules}
        self._links = links
        self._faults = FaultIndex()
        self._no_past = ""
        """Why the incidents of the journal are not known; "" when they are."""
        self._cards: OrderedDict[str, tuple[Evidence, ...]] = OrderedDict()
        self._wanted: OrderedDict[str, _Wanted] = OrderedDict()
        self._work = asyncio.Event()
        self._unsaved: OrderedDict[str, tuple[Evidence, ...]] = OrderedDict()
        """Cards that are not in the journal yet, by incident."""
        self._to_save = asyncio.Event()
        self._again: set[asyncio.TimerHandle] = set()
        self._loaded = False
        self._expired = 0
        """When faults that are too old were last forgotten."""
        self._failed: dict[str, str] = {}
        """Reasons of what could not be collected or kept since `faults` was last called: by the rule of a
        card, or `journal`."""

    # -- Called on the loop, and never slow -------------------------------------------------------

    def note(self, step: IncidentChanges) -> None:
        """Note the changes of the incident manager: whoever is notified gets a card."""
        self._faults.note(step.incidents)
        for notice in step.notices:
            about = notice.action in {Action.TRIGGER, Action.UPDATE}
            if about and notice.reason not in _UNASKED:
                self._want(notice.incident)

    def faults(self) -> dict[str, str]:
        """Return what could not be collected or kept since the last call, with the reasons."""
        failed, self._failed = self._failed, {}
        return failed

    def _want(self, incident: Incident, *, patient: bool = False) -> _Wanted | None:
        """Queue an incident, unless all its subjects have a card or the queue is full."""
        key = incident.key
        known = self._wanted.get(key)
        if known is not None:
            known.incident = incident
            return known
        if len(self._wanted) >= MOST_WAITING or not self._uncarded(incident):
            return None
        wanted = self._wanted[key] = _Wanted(incident, patient=patient)
        self._work.set()
        return wanted

    def _uncarded(self, incident: Incident, lost: Set[tuple[str, str]] = frozenset()) -> list[Alert]:
        """Return an alert for each subject that has no card, as far as there is room for more; without
        the subjects in `lost`."""
        cards = self._cards.get(incident.key, ())
        have = {(card.node, card.uuid or card.name) for card in cards} | lost
        fresh = [one for one in subjects_of(incident) if subject_of(one) not in have]
        return fresh[: max(0, MOST_CARDS - len(cards))]

    async def of_notice(self, notice: Notice) -> EvidenceReply | None:
        """Return the evidence for a page, after two seconds at most; None for a notice that has none."""
        incident = notice.incident
        if notice.action not in {Action.TRIGGER, Action.UPDATE} or notice.reason == "test":
            return None
        left = (notice.at - self._view.wall()) / SECOND + PAGE_SECONDS
        problem = ""
        try:
            async with asyncio.timeout(min(PAGE_SECONDS, max(LEAST_SECONDS, left))):
                if incident.key not in self._cards and incident.key not in self._wanted:
                    await self._recall(incident.key)
                if notice.reason in _GROWN:
                    await self._wait_for_all(incident)
                wanted = self._wanted.get(incident.key)
                if wanted is not None and not wanted.patient:
                    await wanted.first.wait()
        except TimeoutError:
            problem = LATE
        cards = self._cards.get(incident.key, ())
        if notice.reason in _GROWN:  # the newest is why it is sent
            newest = sorted(enumerate(cards), key=lambda each: (-each[1].collected, -each[0]))
            cards = tuple(card for _, card in newest)
        problem = "" if cards else problem or "none was collected"
        return self._reply(incident, cards, problem)

    async def _wait_for_all(self, incident: Incident) -> None:
        """Wait until each subject of an incident has its card: what joined it is why it is sent."""
        wanted = self._wanted.get(incident.key)
        while wanted is not None and self._uncarded(incident):
            await wanted.next.wait()
            wanted = self._wanted.get(incident.key)

    async def of_incident(self, incident: Incident) -> EvidenceReply:
        """Return the evidence of an incident; what an open one lacks is collected now."""
        if incident.key not in self._cards:
            await self._recall(incident.key)
        wanted = self._wanted.get(incident.key)
        if wanted is None:
            wanted = self._want(incident)
        if wanted is not None:
            await wanted.first.wait()
        cards = self._cards.get(incident.key, ())
        over = "nothing of it fires any more, and none was collected while it did"
        busy = "too many incidents wait for theirs" if wanted is None else "it could not be collected"
        problem = over if not any(subjects_of(incident)) else busy
        return self._reply(incident, cards, "" if cards else problem)

    async def of_key(self, key: str) -> EvidenceReply | None:
        """Return the stored evidence of an incident that is over, by its whole key."""
        await self._recall(key)
        cards = self._cards.get(key, ())
        title = cards[0].summary if cards else ""
        found = EvidenceReply(at=self._view.wall(), incident=key, title=title, cards=cards)
        return found if cards else None

    def _reply(self, incident: Incident, cards: tuple[Evidence, ...], problem: str) -> EvidenceReply:
        return EvidenceReply(
            at=self._view.wall(), incident=incident.key, title=incident.title, cards=cards, problem=problem
        )

    # -- The task --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Collect what is wanted, and store it, until cancelled."""
        try:
            async with TaskGroup() as group:
                for work in (self._save(), self._turns()):
                    group.create_task(unending(work, lambda: False))
        finally:
            for handle in self._again:
                handle.cancel()

    async def _turns(self) -> None:
        """Collect what is wanted, one incident after the other, until cancelled."""
        if not self._loaded:
            await self._load_history()
        while True:
            self._work.clear()
            while self._wanted:
                await self._turn(next(iter(self._wanted)))
            await self._work.wait()

    async def _save(self) -> None:
        """Store cards in the journal, beside the collection of others, until cancelled."""
        while True:
            self._to_save.clear()
            while self._unsaved:
                key, cards = self._unsaved.popitem(last=False)
                try:
                    body = msgspec.json.encode(cards)
                    await asyncio.to_thread(self._journal.store_evidence, key, body)
                except Exception as error:
                    log.exception("evidence of %s was not stored", key)
                    self._failed["journal"] = fault_of(error)
            await self._to_save.wait()

    async def _turn(self, key: str) -> None:
        wanted = self._wanted[key]
        try:
            while True:
                asked = wanted.incident
                try:
                    await self._collect(wanted)
                except Exception as error:  # noqa: BLE001 - reported by its rule
                    self._fail(asked.group.get("rule", key), error)
                if not wanted.patient and self._incomplete(asked):
                    self._later(asked)
                if wanted.incident is asked or not self._uncarded(wanted.incident):
                    break
                wanted.patient = False  # what joined meanwhile has a second try of its own
        finally:
            self._wanted.pop(key, None)
            wanted.first.set()
            wanted.next.set()

    def _fail(self, part: str, error: Exception) -> None:
        """Note that a card, or a part of one, could not be made."""
        log.error("evidence of %s", part, exc_info=error)
        self._failed[part] = fault_of(error)

    async def _load_history(self) -> None:
        now = self._view.wall()
        try:
            found = await asyncio.to_thread(self._journal.incidents, now - KEPT_NS, KEPT_INCIDENTS)
        except StoreError as error:
            self._no_past = str(error)
            self._failed["journal"] = fault_of(error)
            return
        self._loaded, self._no_past = True, ""
        self._faults.note(reversed(found))

    async def _recall(self, key: str) -> None:
        """Read the cards of an incident from the journal."""
        try:
            body = await asyncio.to_thread(self._journal.evidence, key)
            cards = () if body is None else of_json(tuple[Evidence, ...]).decode(body)
        except (StoreError, msgspec.DecodeError) as error:
            log.warning("evidence of %s can't be read: %s", key, error)
            self._failed["journal"] = fault_of(error)
            return
        if cards and key not in self._cards:
            self._remember(key, cards)

    def _remember(self, key: str, cards: tuple[Evidence, ...]) -> None:
        self._cards[key] = cards
        self._cards.move_to_end(key)
        while len(self._cards) > REMEMBERED:
            self._cards.popitem(last=False)

    async def _collect(self, wanted: _Wanted) -> None:
        """Make the cards that an incident lacks, and have them stored."""
        key = wanted.incident.key
        if not self._loaded:
            await self._load_history()
        if key not in self._cards:
            await self._recall(key)
        made = await self._make_fresh(wanted)
        for alert in self._again_of(wanted) if wanted.patient else ():
            card = await self._card_or_none(alert, wanted, PATIENT_SECONDS)
            if card is None:
                continue
            others = (one for one in self._cards[key] if (one.node, one.uuid or one.name) != subject_of(alert))
            self._remember(key, (card, *others))
            made += 1
            made += await self._make_fresh(wanted)
        if not made:
            return
        self._unsaved[key] = self._cards[key]
        while len(self._unsaved) > REMEMBERED:
            lost, _ = self._unsaved.popitem(last=False)
            log.warning("evidence of %s was not stored: the journal is too slow", lost)
            self._failed["journal"] = f"the evidence of {lost} was not stored: the journal is too slow"
        self._to_save.set()

    async def _make_fresh(self, wanted: _Wanted) -> int:
        """Make the cards of the subjects without one, also of those that join meanwhile; return how many."""
        key, made = wanted.incident.key, 0
        lost: set[tuple[str, str]] = set()
        while fresh := self._uncarded(wanted.incident, lost):
            card = await self._card_or_none(fresh[0], wanted, QUERY_SECONDS)
            if card is None:
                lost.add(subject_of(fresh[0]))
                continue
            self._remember(key, (*self._cards.get(key, ()), card))
            wanted.first.set()
            wanted.next.set()
            wanted.next = asyncio.Event()
            made += 1
        return made

    def _incomplete(self, incident: Incident) -> bool:
        """Whether an incident lacks a card, or a card a part, that a second try may bring."""
        cards = self._cards.get(incident.key, ())
        return any(_lacks(card) for card in cards) or bool(self._uncarded(incident))

    def _again_of(self, wanted: _Wanted) -> list[Alert]:
        """Return an alert for each subject whose card lacks a part."""
        cards = self._cards.get(wanted.incident.key, ())
        lacking = {(card.node, card.uuid or card.name) for card in cards if _lacks(card)}
        return [one for one in subjects_of(wanted.incident) if subject_of(one) in lacking]

    def _later(self, incident: Incident) -> None:
        def again() -> None:
            self._again.discard(handle)
            if incident.key not in self._wanted and len(self._wanted) < MOST_WAITING:
                self._wanted[incident.key] = _Wanted(incident, patient=True)
                self._work.set()

        handle = asyncio.get_running_loop().call_later(AGAIN_SECONDS, again)
        self._again.add(handle)

    async def _card_or_none(self, alert: Alert, wanted: _Wanted, seconds: float) -> Evidence | None:
        """Make the card of an alert; None where that raises, which costs this card alone."""
        try:
            return await self._card(alert, wanted, seconds)
        except Exception as error:  # noqa: BLE001 - reported by its rule
            self._fail(alert.rule, error)
            return None

    async def _card(self, alert: Alert, wanted: _Wanted, seconds: float) -> Evidence:
        """Make the card of an alert; `seconds`: how long each query may take."""
        view, missing = self._view, {}
        now, wall = view.now(), view.wall()
        moment = min(alert.since, wall)
        start, end = moment - AROUND_NS, min(wall, moment + AROUND_NS) + 1
        recent = [event for event in view.recent_events() if event.node == alert.node]
        beside = [one for one in view.alerts() if one.node == alert.node and alert.node]
        device = self._device(alert)
        latest = None if device is None else _latest(view.fleet, device, now)
        stored: list[Event] = []
        past: tuple[tuple[int, ...], dict[str, tuple[float | None, ...]]] = ((), {})
        if alert.node:
            events, readings = await asyncio.gather(
                self._bounded(alert, lambda: self._events(alert.node, start, end), seconds),
                self._bounded(alert, lambda: self._past(alert.node, device, start, end), seconds),
            )
            if isinstance(events, str):
                missing["lines"] = events
            else:
                stored = events
            if isinstance(readings, str):
                missing["readings"] = readings
            else:
                past = readings
        if device is None:
            missing["readings"] = (
                f"{alert.node} has no such device now"
                if alert.node
                else f"those of a {alert.subject} are in its history, not on its card"
            )
        if self._no_past:
            missing["history"] = self._no_past
        if wall - self._expired > HOUR_NS:
            self._expired = wall
            self._faults.expire(wall)
        return card_of(
            alert,
            wanted.incident,
            self._rules.get(alert.rule),
            self._links,
            events=[*recent, *stored],
            alerts=beside,
            readings=_joined(past, latest, wall),
            history=None if self._no_past else self._faults.of(alert, wanted.incident.key, wall),
            missing=missing,
            now=wall,
            jobs=self._jobs_or_none(alert, moment, missing),
        )

    async def _bounded(self, alert: Alert, query: Callable[[], Awaitable[T]], seconds: float) -> T | str:
        """Return the answer of a query, or why there is none."""
        try:
            async with asyncio.timeout(seconds):
                return await query()
        except TimeoutError:
            return LATE
        except StoreError as error:
            return f"the store can't be read: {error}"[:200]
        except Exception as error:  # noqa: BLE001 - reported by its rule
            self._fail(alert.rule, error)
            return f"the store can't be read: {fault_of(error)}"[:200]

    def _jobs_or_none(self, alert: Alert, moment: int, missing: dict[str, str]) -> list[AffectedJob] | None:
        """Return the jobs of a card; a fault of ours costs them, not the card."""
        try:
            return self._jobs(alert, moment)
        except Exception as error:  # noqa: BLE001 - reported by its rule
            self._fail(alert.rule, error)
            missing["jobs"] = f"they can't be read: {fault_of(error)}"[:200]
            return None

    def _jobs(self, alert: Alert, moment: int) -> list[AffectedJob] | None:
        """Return the jobs that held an alert's GPU, or GPUs of its node, at a time; None where its node does
        not say."""
        jobs, node = self._view.jobs, self._view.fleet.nodes.get(alert.node)
        if alert.node not in jobs.lists:
            return None
        index = {} if node is None else {gpu.uuid: gpu.index for gpu in node.inventory.gpus}
        held: dict[JobKey, list[AllocationRow]] = {}
        for key, row in jobs.ledger.of_node(alert.node):
            there = row.begin <= moment and (row.end is None or row.end >= moment)
            if there and alert.gpu in {None, row.gpu}:
                held.setdefault(key, []).append(row)
        return [_affected(jobs.ledger.jobs[key].job, rows, index) for key, rows in held.items()]

    # -- Parts -----------------------------------------------------------------------------------

    def _device(self, alert: Alert) -> _Device | None:
        """Return the row of the fleet whose readings a card has: the GPU's, or the node's."""
        fleet = self._view.fleet
        node = fleet.nodes.get(alert.node)
        if node is None:
            return None
        if alert.gpu is None:
            row = node.row
            return _Device(Table.NODE, NODE_METRICS, alert.node, row)
        row = fleet.by_uuid.get(alert.gpu, -1)
        its = node.rows[Table.GPU]
        return _Device(Table.GPU, GPU_METRICS, alert.gpu, row if its.start <= row < its.stop else None)

    async def _events(self, node: str, start: int, end: int) -> list[Event]:
        found = await self._view.store.events(start, end, node, None, MOST_EVENTS)
        return [stored.event for stored in found]

    async def _past(
        self, node: str, device: _Device | None, start: int, end: int
    ) -> tuple[tuple[int, ...], dict[str, tuple[float | None, ...]]]:
        """Return instants, and the readings at each."""
        if device is None:
            return (), {}
        home = self._view.fleet.nodes.get(node)
        fast, slow = (1.0, 15.0) if home is None else (home.interval, home.slow_interval)
        reach = {
            Lane.FAST: round(STALE_INTERVALS * fast * SECOND),
            Lane.SLOW: round(STALE_INTERVALS * max(fast, slow) * SECOND),
        }
        when = PastInstants(start, STEP_NS, (end - 1 - start) // STEP_NS + 1)
        found = await self._view.store.past(device.table, device.metrics, when, reach, [node])
        place = next((n for n, one in enumerate(found.devices) if (one.node, one.key) == (node, device.key)), None)
        if place is None:
            return (), {}
        columns = {
            name: tuple(value if math.isfinite(value) else None for value in plain(values[:, place]).tolist())
            for name, values in found.columns.items()
        }
        return tuple(when.all().tolist()), columns


@dataclass(frozen=True, slots=True)
class _Device:
    """The device whose readings a card has."""

    table: Table
    metrics: tuple[str, ...]
    key: str
    row: int | None
    """Its row in the fleet; None where it has none on this node now."""


def _affected(job: Job, rows: Sequence[AllocationRow], index: Mapping[str, int]) -> AffectedJob:
    """Return a job with its GPUs of a node; `index`: by UUID."""
    ends = [row.end for row in rows if row.end is not None]
    return AffectedJob(
        scheduler=job.key.scheduler,
        job=job.key.id,
        job_name=job.name,
        user=job.user,
        account=job.account,
        begin=min(row.begin for row in rows),
        end=max(ends) if len(ends) == len(rows) else None,
        gpus=tuple(map(str, sorted({index[row.gpu] for row in rows if row.gpu in index}))),
    )


def _lacks(card: Evidence) -> bool:
    """Whether a part is missing that a second try may bring."""
    return any(why == LATE or why.startswith("the store") for why in card.missing.values())


def _latest(fleet: Fleet, device: _Device, now: float) -> dict[str, float]:
    """Return the present readings; a gap is a NaN with its reason."""
    row = device.row
    if row is None:
        return {}
    found: dict[str, float] = {}
    for matrix in fleet.matrices:
        for name in device.metrics if matrix.block.table is device.table else ():
            if name in matrix.columns:
                never = np.isneginf(matrix.seen[row])
                found[name] = GAP[Gap.NOT_READ] if never else fleet.reading(name, row, now)
    return found


def _joined(
    past: tuple[tuple[int, ...], dict[str, tuple[float | None, ...]]], latest: Mapping[str, float] | None, wall: int
) -> EvidenceReadings:
    """Return the readings of the past with the present ones as the last instant."""
    at, columns = past
    if not latest:
        return EvidenceReadings(at=at, columns=columns)
    gaps: dict[str, str] = {}
    whole: dict[str, tuple[float | None, ...]] = {}
    for name, value in latest.items():
        before = columns.get(name, (None,) * len(at))
        shown = _short(name, value)
        if not math.isfinite(shown):  # an infinite one is no reading either
            reason = reason_of(value)
            gaps[name] = (Gap.ERROR if reason is None else reason).word
        whole[name] = (*before, shown if math.isfinite(shown) else None)
    return EvidenceReadings(at=(*at, wall), columns=whole, gaps=gaps)


def _short(name: str, value: float) -> float:
    """Return a gauge as short as the precision of a float32 allows."""
    if BY_NAME[name].kind is Kind.COUNTER:
        return value
    return float(plain(np.array([value], np.float32))[0])
