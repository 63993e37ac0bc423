"""The interface of alerting to incidents that several aggregators have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from aggregator.alerting.incident_actions import IncidentActions
from aggregator.impairments import MonitorPart
from alerts.delivery.gate import DeliveryGate
from alerts.incidents.manager import IncidentManager
from alerts.incidents.policy import NotificationTimings, RulePolicy
from alerts.incidents.state import IncidentChanges
from alerts.journal.journal import Journal
from api.alerts import Alert

Follow = Callable[[IncidentManager, IncidentChanges], None]
"""Receives the incident manager of the log, and what an edge of the log changed."""


class SharedIncidents(Protocol):
    """Incidents by a log that several aggregators fold; implemented by `aggregator.site.incidents`."""

    @property
    def gate(self) -> DeliveryGate:
        """The gate of the outbox."""

    @property
    def actions(self) -> IncidentActions:
        """Actions of people, for all members."""

    @property
    def publishes(self) -> bool:
        """Whether this member publishes the incidents."""

    def relay(
        self, changes: Sequence[Alert], firing: Callable[[], Sequence[Alert]], recovering: Collection[str]
    ) -> None:
        """Have alerts that began, changed or resolved appended to the log. `firing` returns all alerts."""

    def own_part(self, part: MonitorPart) -> MonitorPart:
        """Return a part of kilowatch itself under a name that no other member has."""

    def open(
        self,
        journal: Journal,
        policies: Mapping[str, RulePolicy],
        timings: NotificationTimings,
        follow: Follow,
        wake: Callable[[], None],
    ) -> dict[str, Callable[[], Awaitable[None]]]:
        """Go on where the journal is, and return the tasks to run. `wake` wakes the channels."""
