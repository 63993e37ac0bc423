"""Pages while NATS has no quorum: without a log that all fold, and without claims.

An alert can't be appended to the log then, and no lease and no claim can be written. A page twice is better
than none: each member pages about the nodes that it holds, and who led last about the site, from a copy of
the incident manager. Such a page says "(unfenced)"; once NATS answers again the log has the same alerts,
and pages as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from alerts.incidents.manager import IncidentManager
from alerts.incidents.state import IncidentChanges
from alerts.notice import Notice
from api.alerts import Action, Alert, AlertState, Severity

UNFENCED_SECONDS = 8.0
"""Seconds after the first request without an answer from NATS in which there was none: then it has no quorum, for
another server leads its streams after four to six."""
SETTLE_SECONDS = 60.0
"""Seconds after which the log has all alerts again that were paged about meanwhile."""
PREFIX = "unfenced-"
"""Beginning of the ids of such notices; nobody claims them."""
MARK = "(unfenced)"
_FIRST = ("new",)
_REPEATED = ("repeat", "escalated")


class UnfencedPages:
    """The pages of one member from the loss of the quorum until the log has caught up."""

    def __init__(self, member: str, manager: IncidentManager, wall_ns: int) -> None:
        """`manager`: of the log so far; it is left as it is."""
        self._member = member
        self._manager = manager.copied(wall_ns / 1e9, wall_ns)
        self._reported: dict[str, Alert] = {}
        self._number = 0
        self.open: dict[str, Notice] = {}
        """Last page of each incident that was paged about and goes on, by its key."""

    def step(self, alerts: Iterable[Alert], speaks_for: Callable[[Alert], bool], wall_ns: int) -> IncidentChanges:
        """Return what is to be sent now. `alerts`: all of this member's rules; `speaks_for`: whether it is this
        member that pages about one."""
        firing = {alert.key: alert for alert in alerts if alert.state is AlertState.FIRING and speaks_for(alert)}
        changes = [alert for key, alert in firing.items() if self._reported.get(key) != alert]
        changes += [
            msgspec.structs.replace(alert, state=AlertState.RESOLVED, changed=wall_ns)
            for key, alert in self._reported.items()
            if key not in firing
        ]
        self._reported = firing
        found = self._manager.receive(changes, wall_ns / 1e9, wall_ns)
        notices = [self._marked(one) for one in found.notices if self._counts(one)]
        return IncidentChanges(notices=tuple(notices), wall_ns=wall_ns)

    def resume(self, manager: IncidentManager, wall_ns: int) -> None:
        """Go on from a newer log, after NATS has answered for a while: what the log has is paged about, and so is what
        was reported here before."""
        self._manager = manager.copied(wall_ns / 1e9, wall_ns)
        self._manager.receive(list(self._reported.values()), wall_ns / 1e9, wall_ns)

    def finish(self, manager: IncidentManager, wall_ns: int) -> IncidentChanges:
        """Return the ends of incidents that the log does not have under the same key: it pages about what goes
        on by itself."""
        known = {incident.key for incident in manager.incidents()}
        ends = [
            self._marked(
                msgspec.structs.replace(
                    notice,
                    action=Action.RESOLVE,
                    reason="resolved",
                    at=wall_ns,
                    incident=msgspec.structs.replace(notice.incident, ended=wall_ns, firing=0),
                )
            )
            for key, notice in self.open.items()
            if key not in known
        ]
        self.open.clear()
        return IncidentChanges(notices=tuple(ends), wall_ns=wall_ns)

    def _counts(self, notice: Notice) -> bool:
        """Return whether a notice is sent: pages, and the end of what was paged about here."""
        key = notice.incident.key
        if notice.action is Action.RESOLVE:
            return self.open.pop(key, None) is not None
        if notice.action is not Action.TRIGGER or notice.incident.severity is not Severity.PAGE:
            return False
        if notice.reason in (_FIRST if key in self.open else _REPEATED):
            return False
        self.open[key] = notice
        return True

    def _marked(self, notice: Notice) -> Notice:
        self._number += 1
        incident = notice.incident
        title = incident.title if incident.title.endswith(MARK) else f"{incident.title} {MARK}"
        return msgspec.structs.replace(
            notice,
            id=f"{PREFIX}{self._member}-{notice.id}-{self._number}",
            incident=msgspec.structs.replace(incident, title=title),
        )
