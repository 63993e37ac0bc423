"""The fold of the log of edges: the same edges give every candidate the same incidents and notices.

Pure: the time is that of the log, never a clock of this machine. What is folded is noted by the log's
sequence number, so that an edge counts once, also after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from aggregator.cluster.port import LogEnd, LoggedMessage
from aggregator.site.edges import (
    AcknowledgeEdge,
    AlertEdge,
    Edge,
    RestatedEdge,
    SilenceEdge,
    TickEdge,
    UnacknowledgeEdge,
    UnsilenceEdge,
    decode,
)
from alerts.incidents.manager import IncidentManager
from alerts.incidents.policy import DEFAULT_TIMINGS, NotificationTimings, RulePolicy
from alerts.incidents.state import IncidentChanges, IncidentMemory, RecordKey
from api.alerts import Alert, AlertState, Incident, Silence
from telemetry.errors import IncidentError

_MILLISECOND = 1_000_000


MARK, BORN, EPOCH, EVALUATOR = "log_mark", "log_born", "log_epoch", "log_evaluator"
"""Kinds of the journal's records of a fold."""


@dataclass(frozen=True, slots=True)
class FoldPosition:
    """How far a log is folded, as the journal stores it."""

    mark: int = 0
    born: int = 0
    """When the log was created, 0 where that is not known."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Newest epoch of each evaluator."""
    evaluators: Mapping[str, str] = field(default_factory=dict)
    """Evaluator of each alert that fires, by its key."""


def position_of(records: Callable[[str], Mapping[str, bytes]]) -> FoldPosition:
    """Return the stored position of a fold. `records` returns the journal's records of a kind."""
    return FoldPosition(
        int(records(MARK).get("", b"0")),
        int(records(BORN).get("", b"0")),
        {key: int(body) for key, body in records(EPOCH).items()},
        {key: body.decode() for key, body in records(EVALUATOR).items()},
    )


@dataclass(frozen=True, slots=True)
class FoldStep:
    """The changes that one edge made."""

    changes: IncidentChanges = field(default_factory=IncidentChanges)
    answer: Incident | Silence | None = None
    """Of a person's request: what it made or changed."""
    refused: str = ""
    """Why a person's request was refused."""


class IncidentFold:
    """Incidents by the edges of the log, up to `mark`."""

    def __init__(
        self,
        policies: Mapping[str, RulePolicy],
        memory: IncidentMemory | None = None,
        *,
        position: FoldPosition | None = None,
        timings: NotificationTimings = DEFAULT_TIMINGS,
    ) -> None:
        """Continue from `memory`, in which all edges up to `position` are."""
        position = position or FoldPosition()
        self.mark = position.mark
        """Sequence number of the last edge."""
        self._born = position.born
        self.unreadable = 0
        """Edges that could not be decoded: of a later release, or damaged."""
        self.outdated = 0
        """Edges of an evaluator that lost its group."""
        self._policies, self._timings = policies, timings
        self._memory = memory
        self._manager: IncidentManager | None = None
        self._epochs = dict(position.epochs)
        self._firing: dict[str, dict[str, Alert]] = {}
        """What fires by each evaluator, by the alert's key."""
        self._noted: dict[RecordKey, bytes | None] = {}
        """Records of the fold itself that have changed."""
        if memory is not None and memory.clock is not None:
            for tracked in memory.alerts:
                evaluator = position.evaluators.get(tracked.alert.key)
                if tracked.firing and evaluator is not None:
                    self._firing.setdefault(evaluator, {})[tracked.alert.key] = tracked.alert
            wall = memory.clock.wall
            self._begin(wall // _MILLISECOND / 1000, wall)

    @property
    def manager(self) -> IncidentManager | None:
        """The incident manager, for its queries; None before the first edge."""
        return self._manager

    def goes_on(self, end: LogEnd) -> bool:
        """Return whether the log is the one that was folded so far. Where it was lost, begin at the begin of the new
        one: incidents stay as they are. Epochs may begin again too, where all members were restarted."""
        born, self._born = self._born, end.born
        if born != end.born:
            self._noted[RecordKey(BORN, "")] = str(end.born).encode()
        if born in {0, end.born} and end.sequence >= self.mark:
            return True
        self.mark = 0
        self._noted |= dict.fromkeys((RecordKey(EPOCH, each) for each in self._epochs), None)
        self._epochs.clear()
        return False

    def next_due(self) -> int | None:
        """Return when a tick is needed at the latest, ns since 1970 by the log's clock; None: none is."""
        due = None if self._manager is None else self._manager.next_due()
        return None if due is None else round(due * 1e9)

    def apply(self, message: LoggedMessage) -> FoldStep | None:
        """Fold one message in; None for one that does not count."""
        if message.sequence <= self.mark:
            return None
        self.mark = message.sequence
        try:
            edge = decode(message.payload)
        except msgspec.MsgspecError:
            self.unreadable += 1
            return None
        # Whole milliseconds: two candidates that began at different times round alike.
        wall_ns = message.at // _MILLISECOND * _MILLISECOND
        now = wall_ns // _MILLISECOND / 1000
        manager = self._manager or self._begin(now, wall_ns)
        try:
            step = self._fold(manager, edge, now, wall_ns)
        except IncidentError as error:  # the same for every candidate
            return FoldStep(refused=str(error))
        return None if step is None else self._marked(step)

    def _begin(self, now: float, wall_ns: int) -> IncidentManager:
        self._manager = IncidentManager(self._policies, self._memory, timings=self._timings, now=now, wall_ns=wall_ns)
        return self._manager

    def _marked(self, step: FoldStep) -> FoldStep:
        """Add to a step that is stored how far the log is folded."""
        if not step.changes:  # an edge without changes may be folded again
            return step
        noted, self._noted = self._noted, {}
        own = {**noted, RecordKey(MARK, ""): str(self.mark).encode()}
        changes = replace(step.changes, records={**step.changes.records, **own})
        return replace(step, changes=changes)

    def _fold(self, manager: IncidentManager, edge: Edge, now: float, wall_ns: int) -> FoldStep | None:
        match edge:
            case AlertEdge() | RestatedEdge():
                if edge.epoch < self._epochs.get(edge.evaluator, 0):
                    self.outdated += 1
                    return None
                if edge.epoch != self._epochs.get(edge.evaluator):
                    self._epochs[edge.evaluator] = edge.epoch
                    self._noted[RecordKey(EPOCH, edge.evaluator)] = str(edge.epoch).encode()
                if isinstance(edge, AlertEdge):
                    alerts, recovering = self._changed(edge), frozenset(edge.recovering)
                else:
                    alerts, recovering = self._restated(edge, wall_ns), frozenset()
                return FoldStep(manager.receive(alerts, now, wall_ns, recovering))
            case AcknowledgeEdge(key=key, who=who, why=why, until=until):
                incident, changes = manager.acknowledge(key, who=who, why=why, until=until, now=now, wall_ns=wall_ns)
                return FoldStep(changes, incident)
            case UnacknowledgeEdge(key=key, who=who, why=why):
                incident, changes = manager.unacknowledge(key, who=who, why=why, now=now, wall_ns=wall_ns)
                return FoldStep(changes, incident)
            case SilenceEdge():
                silence, changes = manager.silence(
                    edge.matchers,
                    who=edge.who,
                    why=edge.why,
                    starts=edge.starts,
                    ends=edge.ends,
                    maintenance=edge.maintenance,
                    now=now,
                    wall_ns=wall_ns,
                )
                return FoldStep(changes, silence)
            case UnsilenceEdge(key=key, who=who):
                silence, changes = manager.unsilence(key, who=who, why="", now=now, wall_ns=wall_ns)
                return FoldStep(changes, silence)
            case TickEdge():
                return FoldStep(manager.receive((), now, wall_ns))

    def _changed(self, edge: AlertEdge) -> list[Alert]:
        """Note what fires by an evaluator, and return what it said."""
        firing = self._firing.setdefault(edge.evaluator, {})
        for alert in edge.alerts:
            if alert.state is AlertState.FIRING:
                firing[alert.key] = alert
            else:
                firing.pop(alert.key, None)
            self._note(alert, edge.evaluator)
        return list(edge.alerts)

    def _restated(self, edge: RestatedEdge, wall_ns: int) -> list[Alert]:
        """Return what an evaluator says again and was not known, and what is over for it does not say it."""
        before = self._firing.setdefault(edge.evaluator, {})
        firing = {alert.key: alert for alert in edge.firing}
        new = [alert for key, alert in firing.items() if before.get(key) != alert]
        over = [
            msgspec.structs.replace(alert, state=AlertState.RESOLVED, changed=wall_ns)
            for key, alert in before.items()
            if edge.complete and key not in firing
        ]
        self._firing[edge.evaluator] = firing if edge.complete else {**before, **firing}
        for alert in (*over, *new):
            self._note(alert, edge.evaluator)
        return [*over, *new]

    def _note(self, alert: Alert, evaluator: str) -> None:
        fires = alert.state is AlertState.FIRING
        self._noted[RecordKey(EVALUATOR, alert.key)] = evaluator.encode() if fires else None
