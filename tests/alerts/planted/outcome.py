"""Outcome of each planted fault in a replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.alerts import Action, Incident
from kilowatch.replay.outcome import ReplayedNotice, ReplayOutcome
from tests.alerts.planted.cases import PlantedFault
from tests.alerts.planted.fleet import A_RACK, BEGAN, name_of

_AGAIN = frozenset({"repeat", "escalated"})


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """The notifications of one fault."""

    fault: PlantedFault
    sent: tuple[ReplayedNotice, ...]
    """New pages and tickets about its nodes or their circuit."""
    owners: tuple[str, ...]
    """Owners of the remedy, of the incidents' leading alerts."""

    def problem(self) -> str:
        """Return what is wrong with it, or ""."""
        case = self.fault.case
        if not self.sent:
            return "nobody was notified"
        if len(self.sent) > 1:
            titles = ", and ".join(one.title for one in self.sent)
            return f"notified {len(self.sent)} times: {titles}"
        [one] = self.sent
        if case.severity not in {"any", one.severity.value}:
            return f"a {one.severity.value} in place of a {case.severity}: {one.title}"
        wait = (one.at - BEGAN) / 1e9 - self.fault.second
        if not -1 <= wait <= case.within:
            return f"notified after {wait:.0f} s: {one.title}"
        [owner] = self.owners
        if owner not in case.owner:
            return f"its owner is {owner!r}, not {' or '.join(case.owner)}: {one.title}"
        return ""


def outcomes(faults: Sequence[PlantedFault], found: ReplayOutcome) -> tuple[list[FaultOutcome], list[ReplayedNotice]]:
    """Return the outcome of each fault, and the notifications that are of none."""
    incidents = {one.key: one for one in found.incidents}
    new = [one for one in found.notices if one.action is Action.TRIGGER and one.reason not in _AGAIN]
    left = list(new)
    result = []
    for fault in faults:
        mine = [one for one in new if _concerns(incidents[one.incident], fault)]
        left = [one for one in left if one not in mine]
        owners = tuple(_owner(incidents, one) for one in mine)
        result.append(FaultOutcome(fault, tuple(mine), owners))
    return result, left


def _concerns(incident: Incident, fault: PlantedFault) -> bool:
    nodes = {name_of(node) for node in fault.nodes}
    rack = f"rack-{fault.nodes[0] // A_RACK + 1:02d}"
    return any(alert.node in nodes or (len(nodes) > 1 and alert.name == rack) for alert in incident.alerts)


def _owner(incidents: Mapping[str, Incident], notice: ReplayedNotice) -> str:
    alerts = incidents[notice.incident].alerts
    owner = alerts[0].remediation if alerts else None
    return "" if owner is None else owner.value
