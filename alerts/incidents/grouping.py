"""Which incident an alert belongs to: one that is open where it is, or a new one.

Alerts of one rule in one group (a GPU, a node, a rack, a circuit: the rule says) are one incident;
so are alerts of other rules that come there, or on the same GPU, within a minute of the last. Where
the rule says so, its alerts on other GPUs of the node join too: what takes eight away at once is one.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from alerts.incidents.clock import SteadyClock
from alerts.incidents.index import IncidentIndex, worst
from alerts.incidents.places import Place, common, group, same_kind
from alerts.incidents.policy import NotificationTimings, RuleScope
from alerts.incidents.state import IncidentRecord, TrackedAlert
from api.alerts import Severity

TAKEN = 3600.0
"""Seconds: what comes to an incident that somebody took, and that has been calm for so long, is
news: it opens another."""


class IncidentGrouping:
    """Gives every alert that may be told its incident."""

    def __init__(
        self, cabinet: IncidentIndex, clock: SteadyClock, patience: NotificationTimings
    ) -> None:
        self._cabinet = cabinet
        self._clock = clock
        self._patience = patience
        self._used: Counter[str] = Counter()
        """How many incidents there were of each group within these ten minutes."""
        self._bucket = -1

    def place(self, case: TrackedAlert, left: dict[str, list[str]]) -> None:
        """Let an alert join an incident. `left`: see `Holding.left`."""
        alert = case.alert
        place = common(alert, self._cabinet.policy(alert.rule).group)
        dossier = self._open(case, place) or self._adopted(case, place, left)
        if dossier is None:
            dossier = self.begin(group(alert, place), place, alert.severity)
        elif dossier.key in left and not self._cabinet.active(dossier):
            dossier.group = group(alert, dossier.place)
            dossier.cause_untold = True
        self._join(case, dossier)

    def begin(self, group: dict[str, str], place: Place, severity: Severity) -> IncidentRecord:
        """Open an incident."""
        clock = self._clock
        key, base = self._key(group)
        dossier = IncidentRecord(
            key=key,
            base=base,
            order=clock.order(),
            group=group,
            place=place,
            severity=severity,
            began=clock.wall,
            changed=clock.wall,
            opened=clock.time,
            joined=clock.time,
            wait_until=clock.time + self._wait(severity),
        )
        self._cabinet.file(dossier)
        return dossier

    def _open(self, case: TrackedAlert, place: Place) -> IncidentRecord | None:
        alert = case.alert
        places = [place, ("gpu", alert.gpu or "")]
        if self._cabinet.policy(alert.rule).group is RuleScope.BURST:
            places.append(same_kind(alert))
        for at in dict.fromkeys(places):
            for dossier in self._cabinet.open_at(at):
                if self._joins(case, place, dossier):
                    return dossier
        return None

    def _joins(self, case: TrackedAlert, place: Place, dossier: IncidentRecord) -> bool:
        if dossier.storming is not None:
            return False
        calm = self._clock.time - dossier.joined
        if dossier.ack is not None and calm > TAKEN:
            return False
        alike = case.alert.rule in dossier.rules and dossier.place == place
        return alike or calm <= self._patience.together

    def _adopted(
        self, case: TrackedAlert, place: Place, left: dict[str, list[str]]
    ) -> IncidentRecord | None:
        """Return the oldest incident that was told of consequences of this alert alone: it goes on
        as the cause's, so that nobody is paged twice."""
        if not left:
            return None
        below = set(self._cabinet.consequences(case.alert.key))
        for key, lost in left.items():
            dossier = self._cabinet.dossiers[key]
            if dossier.closed is None and not self._cabinet.active(dossier) and below >= set(lost):
                self._cabinet.move(dossier, place)
                return dossier
        return None

    def _join(self, case: TrackedAlert, dossier: IncidentRecord) -> None:
        severity, clock = case.alert.severity, self._clock
        dossier.joined = clock.time
        dossier.changed = clock.wall
        dossier.severity = worst((dossier.severity, severity))
        if dossier.told is None:
            dossier.wait_until = min(dossier.wait_until, clock.time + self._wait(severity))
        if case.alert.rule not in dossier.rules:
            dossier.rules.append(case.alert.rule)
        self._cabinet.join(case, dossier)

    def _wait(self, severity: Severity) -> float:
        patience = self._patience
        return patience.page_wait if severity is Severity.PAGE else patience.ticket_wait

    def _key(self, group: dict[str, str]) -> tuple[str, str]:
        """Return a key that was never used, and what it is made of: two aggregators that see the same find the same, for
        the pager to collapse."""
        bucket = self._clock.bucket
        if bucket != self._bucket:
            self._bucket = bucket
            self._used = Counter(
                dossier.base
                for dossier in self._cabinet.dossiers.values()
                if dossier.base.startswith(f"{bucket}/")
            )
        base = f"{bucket}/" + "/".join(f"{name}={value}" for name, value in sorted(group.items()))
        self._used[base] += 1
        digest = hashlib.sha256(f"{base}/{self._used[base]}".encode()).hexdigest()[:20]
        return f"{group['rule'][:100]}-{digest}", base
