"""Pairs of faults: a page fires, a person treats it in some way, and a second page fires elsewhere.

Alerts are made by the real rules from their own examples; the incident manager is the real one, in
virtual time.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import NamedTuple

import msgspec

from alerts.engine.rule_tests import first_alert
from alerts.incidents.policy import policies_of
from alerts.notice import Notice
from alerts.rules.rule import Rule, load
from api.alerts import Action, Alert, NotificationState, Severity, Subject
from tests.alerts.deliveries import ManagerHarness, acknowledge, over, silenced

BETWEEN = 30.0
"""Seconds between the two faults: longer than a cascade lasts."""


class Where(StrEnum):
    """The place of the second fault, seen from the first. A circuit, UPS or budget that also feeds
    the node stands for another GPU of it."""

    SAME = "same GPU"
    OTHER = "other GPU of the node"
    ELSEWHERE = "other node"


class Treated(StrEnum):
    """State of the first page: whether a person has acknowledged or silenced it."""

    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    SILENCED = "silenced"
    """By its rule and its node, or the name of its circuit."""


class Outcome(StrEnum):
    """Outcome of the second fault."""

    PAGE = "a page of its own"
    UPDATE = "named in an update"
    INHIBITED = "inhibited"
    SILENCED = "silenced"
    NOT_APPLICABLE = "not applicable"


class Cell(NamedTuple):
    """A pair of faults."""

    first: str
    second: str
    where: Where
    treated: Treated


RULES = {rule.name: rule for rule in load() if rule.severity is Severity.PAGE}
POLICIES = policies_of(load())


def cells() -> list[Cell]:
    """Return every cell of the matrix."""
    return [
        Cell(first, second, where, treated)
        for first in RULES
        for second in RULES
        for where in Where
        for treated in Treated
    ]


def is_of_node(rule: Rule) -> bool:
    """Whether a rule is about a node as a whole, so that there is no other of it on the node."""
    return rule.table in {Subject.NODE, Subject.SUPPLY}


class Device(NamedTuple):
    """A GPU with its node and what feeds that."""

    node: str
    gpu: str
    row: str
    circuits: str


DEVICES = {
    Where.SAME: Device("n1", "GPU-a", "feed-1", "feed-1,feed-2"),
    Where.OTHER: Device("n1", "GPU-b", "feed-2", "feed-1,feed-2"),
    Where.ELSEWHERE: Device("n2", "GPU-c", "feed-3", "feed-3"),
}


@cache
def firing(name: str, where: Where, link: int = 0) -> Alert:
    """Return the alert of a rule on a device, as the rule engine makes it from an example."""
    rule, device = RULES[name], DEVICES[where]
    row = device.node if rule.table is Subject.SUPPLY else device.row
    alert = first_alert(rule, node=device.node, gpu=device.gpu, row=row, facts={"nodes": device.node})
    if alert.subject.snapshot_kind is not None:
        return alert
    labels = {**alert.labels, "circuits": device.circuits}
    if rule.table is Subject.PORT and where is Where.OTHER:
        key = f"{alert.key.rpartition(':')[0]}:other/1"
        return msgspec.structs.replace(alert, key=key, labels={**labels, "port": "mlx5_1/1"})
    if rule.table is Subject.LINK and link:
        labels["link"] = str(link)
        key = f"{alert.key.rpartition('/')[0]}/{link}"
        return msgspec.structs.replace(alert, key=key, labels=labels)
    return msgspec.structs.replace(alert, labels=labels)


class Play:
    """Run of one cell through real rules and incidents."""

    def __init__(self, cell: Cell) -> None:
        self.first = firing(cell.first, Where.SAME)
        self.second = firing(cell.second, cell.where, link=1)
        self.harness = harness = ManagerHarness(POLICIES)
        harness.tick(self.first)
        self._wait(5.0)
        [page] = harness.sent
        if cell.treated is Treated.ACKNOWLEDGED:
            acknowledge(harness, page.incident.key)
        elif cell.treated is Treated.SILENCED:
            place = f"node={self.first.node}" if self.first.node else f"name={self.first.name}"
            silenced(harness, f"rule={cell.first}", place, seconds=7200)
        self._wait(BETWEEN - 5.0)
        self.notices = self._now(self.second)

    def _now(self, *changes: Alert, seconds: float = 20.0) -> list[Notice]:
        before = len(self.harness.sent)
        self.harness.tick(*changes)
        self._wait(seconds)
        return self.harness.sent[before:]

    def _wait(self, seconds: float) -> None:
        """Advance the clock, from one time at which the manager has something to do to the next."""
        harness = self.harness
        end = harness.now + seconds
        while harness.now < end:
            due = harness.manager.next_due()
            step = end - harness.now if due is None else min(due, end) - harness.now
            harness.tick(seconds=max(step, 0.1))

    def outcome(self) -> Outcome | None:
        """Return what has become of the second fault; None is nothing at all."""
        status = self.harness.manager.status(self.second.key)
        assert status is not None
        assert not [one for one in self.notices if one.action is Action.RESOLVE], "a false end"
        match status.state:
            case NotificationState.INHIBITED:
                assert status.by == self.first.key
                return Outcome.INHIBITED if not self.notices else None
            case NotificationState.SILENCED:
                return Outcome.SILENCED if not self._names(Action.TRIGGER) else None
            case _:
                pass
        if self._names(Action.TRIGGER):
            [page] = self.notices
            fresh = page.incident.key != self.harness.sent[0].incident.key
            return Outcome.PAGE if fresh and page.reason == "new" else None
        return Outcome.UPDATE if self._names(Action.UPDATE) else None

    def _names(self, action: Action) -> bool:
        listed = [one.incident.alerts for one in self.notices if one.action is action]
        return any(self.second.key == one.key for alerts in listed for one in alerts)

    def after_the_first_ends(self) -> tuple[bool, bool]:
        """Return whether the second fault, which still fires, was notified then, and whether
        anything was announced as resolved that has it."""
        notices = self._now(over(self.first), seconds=120.0)  # longer than any grace
        rung = [one for one in notices if one.action is Action.TRIGGER]
        ends = [one for one in notices if one.action is Action.RESOLVE]
        key = self.second.key
        return (
            any(one.key == key for page in rung for one in page.incident.alerts),
            any(one.key == key for end in ends for one in end.incident.alerts),
        )
