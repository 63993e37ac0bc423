"""The relay: appends what this member's rules find to the log of incidents, and repeats what fires.

An alert about a node is its shard group's, one about a circuit the site's, one about kilowatch itself the
member's. Only who holds a group, or leads the site, speaks for it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from aggregator.cluster.port import CoordinationError
from aggregator.site.edges import AlertEdge, Edge, RestatedEdge
from alerts.rules.rule import monitor_rules
from api.alerts import Alert, AlertState, Subject
from telemetry.wire.topics import shard_of

log = logging.getLogger(__name__)

SITE = "site"
SITE_PARTS = ("member/", "cluster/groups", "cluster/site", "drift/")
"""Beginnings of the parts that all members see alike, of kilowatch and of nodes that differ: who leads speaks of
them."""
SITE_SUBJECTS = (Subject.CIRCUIT, Subject.BUDGET, Subject.UPS, Subject.SUPPLY)
RESTATE_SECONDS = 30.0
COMPLETE_SECONDS = 60.0
"""Seconds after which an evaluator's rules have held back no alert that another one had found."""
ALERTS_PER_EDGE = 200
"""A server takes 1 MiB."""
RETRY_SECONDS = 0.5

_MONITOR = frozenset(rule.name for rule in monitor_rules())


def evaluator_of(alert: Alert, member: str) -> str:
    """Return who speaks of an alert."""
    if alert.rule in _MONITOR:
        part = alert.key.partition("/")[2]
        return SITE if part.startswith(SITE_PARTS) else f"member/{member}"
    if alert.subject in SITE_SUBJECTS:
        return SITE
    return shard_of(alert.node) if alert.node else f"member/{member}"


class AlertRelay:
    """Alerts of a member that wait for the log."""

    def __init__(
        self,
        member: str,
        append: Callable[[Edge, str], Awaitable[object]],
        epochs: Callable[[], Mapping[str, int]],
        clock: Callable[[], float],
    ) -> None:
        """`epochs`: by evaluator that this member is now, its epoch."""
        self._member, self._append, self._epochs, self._clock = member, append, epochs, clock
        self._began = clock()
        self._run = secrets.token_hex(6)
        self._number = 0
        self._queue: deque[tuple[Edge, str]] = deque()
        self._woken = asyncio.Event()
        self._firing: Callable[[], Sequence[Alert]] = list
        self._since: dict[str, tuple[int, float]] = {}
        """By evaluator its epoch, and when that began here."""
        self._empty: set[str] = set()
        """Evaluators of which the log has all and nothing fires."""

    def __len__(self) -> int:
        return len(self._queue)

    def receive(
        self, changes: Sequence[Alert], firing: Callable[[], Sequence[Alert]], recovering: Collection[str]
    ) -> None:
        """Take alerts that began, changed or resolved."""
        self._firing = firing
        if not changes:
            return
        epochs = self._epochs()
        parts: dict[str, list[Alert]] = {}
        for alert in changes:
            parts.setdefault(evaluator_of(alert, self._member), []).append(alert)
        for evaluator, alerts in parts.items():
            if evaluator not in epochs:  # another member speaks of these
                continue
            self._empty.discard(evaluator)
            for first in range(0, len(alerts), ALERTS_PER_EDGE):
                part = tuple(alerts[first : first + ALERTS_PER_EDGE])
                late = tuple(one.key for one in part if one.key in recovering)
                self._put(AlertEdge(evaluator, epochs[evaluator], part, late))

    def firing(self) -> Sequence[Alert]:
        """Return all alerts of this member's rules."""
        return self._firing()

    def begin_anew(self) -> None:
        """Repeat what fires, and who has nothing that does: the log is lost."""
        self._empty.clear()
        self.restate()

    def restate(self, *, only: str = "") -> None:
        """Repeat what fires by each evaluator that we are, or by one."""
        now, epochs = self._clock(), self._epochs()
        parts: dict[str, list[Alert]] = {}
        for alert in self._firing():
            if alert.state is AlertState.FIRING:
                parts.setdefault(evaluator_of(alert, self._member), []).append(alert)
        for evaluator, epoch in epochs.items():
            if only not in {"", evaluator}:
                continue
            known, since = self._since.get(evaluator, (-1, now))
            if known != epoch:
                since = self._began if evaluator == SITE else now  # circuits are computed all the time
                self._since[evaluator] = epoch, since
                self._empty.discard(evaluator)
            alerts = parts.get(evaluator, [])
            complete = now - since >= COMPLETE_SECONDS and len(alerts) <= ALERTS_PER_EDGE
            if not alerts and (not complete or evaluator in self._empty):
                continue
            if not alerts:
                self._empty.add(evaluator)
            else:
                self._empty.discard(evaluator)
            for first in range(0, max(1, len(alerts)), ALERTS_PER_EDGE):
                part = tuple(alerts[first : first + ALERTS_PER_EDGE])
                self._put(RestatedEdge(evaluator, epoch, part, complete))

    def _put(self, edge: Edge) -> None:
        self._number += 1
        self._queue.append((edge, f"{self._member}-{self._run}-{self._number}"))
        self._woken.set()

    async def run(self) -> None:
        """Append what waits, in its order, until cancelled; repeat what fires now and then."""
        restated = self._clock()
        while True:
            self._woken.clear()
            while self._queue:
                edge, name = self._queue[0]
                try:
                    await self._append(edge, name)
                except CoordinationError as error:
                    log.warning("%d changes of alerts wait for the log: %s", len(self), error)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                self._queue.popleft()
            if self._clock() - restated >= RESTATE_SECONDS:
                restated = self._clock()
                self.restate()
            try:
                async with asyncio.timeout(1.0):
                    await self._woken.wait()
            except TimeoutError:
                continue
