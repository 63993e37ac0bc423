"""`kilowatch replay`: rules over a recording; what would have been told to whom, and when.

The messages go through the aggregator's own intake into a fleet, rules and desk judge it second by
second in recorded time: what is found here is what would have been found then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.config import AggregatorConfig
from aggregator.ingest.dead_letters import DeadLetters
from aggregator.ingest.ids import IdRegistry
from aggregator.ingest.router import MessageRouter
from aggregator.stats import Stats
from aggregator.store.protocol import StoredState
from alerts.engine.restore import AlertRecord
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import StateChanges
from alerts.notice import Notice
from alerts.rules.rule import Rule
from api.alerts import Action, Incident, Severity
from collector.recording.file import RecordedMessage
from telemetry.errors import SourceError
from telemetry.fleet import Fleet
from telemetry.inventory import Inventory
from telemetry.topics import Topic, topic

STEP = 1_000_000_000
"""ns of recorded time between two runs of the rules."""
AFTERWARDS = 30.0
"""Seconds after the last message in which the desk may still decide: a ticket waits for its kind."""
CLUSTER = "replay"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody would have been told."""

    at: int
    """Recorded time, ns since 1970."""
    action: Action
    severity: Severity
    reason: str
    incident: str
    title: str


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording would have come to."""

    messages: int
    unreadable: int
    """Messages that could not be read."""
    nodes: int
    gpus: int
    first: int
    """ns since 1970."""
    last: int
    pages: int
    tickets: int
    told: list[Told]
    """In the order of time."""
    incidents: list[Incident]
    """All, the last state of each, worst first; those that nobody is told of too."""


@dataclass(slots=True)
class _Log:
    """What the desk says, kept instead of sent."""

    notices: list[Notice] = field(default_factory=list)
    incidents: dict[str, Incident] = field(default_factory=dict)

    def take(self, step: StateChanges, _: Sequence[AlertRecord] | None) -> None:
        self.notices += step.notices
        self.incidents.update({incident.key: incident for incident in step.incidents})


class _Stage:
    """A fleet, rules and a desk in recorded time."""

    def __init__(
        self, rules: Sequence[Rule], patience: NotificationTimings, began: int, folder: Path
    ) -> None:
        self.fleet, self.stats, self.log = Fleet(), Stats(), _Log()
        config = AggregatorConfig(cluster=CLUSTER)
        quarantine = DeadLetters(folder, 0)
        self.ingest = MessageRouter(
            config, self.fleet, self.stats, IdRegistry(StoredState()), quarantine
        )
        self.alarms = AlertPipeline(
            rules, self.log.take, cluster=CLUSTER, patience=patience, now=began / 1e9, wall=began
        )

    def take(self, entry: RecordedMessage) -> None:
        """Take one message in."""
        payload = entry.payload
        if entry.kind is Topic.INVENTORY:
            payload = inventory_of(payload, CLUSTER)
        where = topic(CLUSTER, entry.node, entry.kind)
        self.ingest.take(where, payload, entry.at / 1e9, entry.at)

    def judge(self, at: int) -> None:
        """Let a second be over."""
        now = at / 1e9
        self.ingest.flush(now, at)
        self.ingest.take_batch(at)
        self.ingest.stored()
        self.ingest.take_asks(now)
        self.ingest.take_clocks()
        events = self.ingest.take_events()
        self.alarms.judge(self.fleet, now, at, events, listening=True, snapshots=())

    def end(self, at: int) -> None:
        """Let the desk decide what it still waits with; nothing new is judged."""
        for tenth in range(1, int(AFTERWARDS * 10)):
            later = at + tenth * 100_000_000
            self.alarms.turn(later / 1e9, later)


def replay(
    path: Path,
    entries: Iterable[RecordedMessage],
    rules: Sequence[Rule],
    patience: NotificationTimings,
) -> ReplayOutcome:
    """Play a recording. Raises `SourceError` when there is nothing in it."""
    stage: _Stage | None = None
    messages, first, last, due = 0, 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="kilowatch-replay-") as folder:
        for entry in entries:
            if stage is None:
                first, last, due = entry.at, entry.at, entry.at + STEP
                stage = _Stage(rules, patience, entry.at, Path(folder))
            last = max(last, entry.at)
            while due <= entry.at:
                stage.judge(due)
                due += STEP
            stage.take(entry)
            messages += 1
        if stage is None:
            raise SourceError(f"{path} holds no message. Record with `kilowatch record {path}`.")
        stage.judge(due)
        stage.end(due)
    return _outcome(stage, messages, first, last)


def _outcome(stage: _Stage, messages: int, first: int, last: int) -> ReplayOutcome:
    told = [
        Told(at=one.at, action=one.action, severity=one.incident.severity, reason=one.reason,
             incident=one.incident.key, title=one.incident.title)
        for one in stage.log.notices
    ]  # fmt: skip
    new = [one for one in told if one.action is Action.TRIGGER and one.reason != "repeat"]
    order = tuple(Severity)
    return ReplayOutcome(
        messages=messages,
        unreadable=sum(stage.stats.dropped.values()),
        nodes=len(stage.fleet.nodes),
        gpus=len(stage.fleet.by_uuid),
        first=first,
        last=last,
        pages=sum(one.severity is Severity.PAGE for one in new),
        tickets=sum(one.severity is Severity.TICKET for one in new),
        told=told,
        incidents=sorted(
            stage.log.incidents.values(), key=lambda one: (order.index(one.severity), one.began)
        ),
    )


def inventory_of(payload: bytes, cluster: str) -> bytes:
    """Return an inventory as if it were of a cluster; one that can't be read as it is."""
    try:
        found = msgspec.json.decode(payload, type=Inventory)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return payload
    return msgspec.json.encode(msgspec.structs.replace(found, cluster=cluster))
