"""Circuits, budgets and UPS as retained states on the bus, for screens and other programs.

`kilowatch/1/<cluster>/circuits/<name>/state` is JSON; a message is sent when the
row has changed visibly, and every ten seconds. The topic of a removed circuit is cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np

from aggregator.electrical.service import ElectricalService
from aggregator.mqtt.retained import Publish, RetainedTopics
from alerts.incidents.manager import SuppressionStatus
from api.alerts import Alert, AlertState, NotificationState, Subject
from api.power import CircuitState, RowState
from power.site.layout import SiteLayout
from power.snapshot.documents import Alerts, circuit_states, only, row_states
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Floats
from telemetry.runtime.isolation import Parts
from telemetry.wire.topics import ROOT, state_topic

AGAIN_SECONDS = 10.0
MOST_AT_ONCE = 200
"""Rows sent in one call; those sent longest ago first, so that 2,000 rows take ten calls."""
_GROWING = ("energy_joules", "above_continuous_seconds")
KINDS = ("circuits", "budgets", "ups")


class PowerTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The retained payload of one row."""

    by: str
    """Sending aggregator: its shards, or `all`."""
    at: int
    """Time of the computation, ns since 1970."""
    state: CircuitState | RowState


class _RowTopics:
    """Topics of the rows of one power snapshot, with the state last sent for each."""

    def __init__(self, cluster: str, what: str, by: str) -> None:
        self.what = what
        self.states = RetainedTopics(f"{ROOT}/{cluster}/{what}/", by)
        self.names: tuple[str, ...] = ()
        self._sent = np.empty((0, 0))
        self._at = np.empty(0)
        self._alerts: dict[str, tuple[str, ...]] = {}

    def due(self, snapshot: PowerSnapshot, alerts: Alerts, now: float) -> list[str]:
        """Return the names of the rows to send again, and mark them as sent."""
        seen = _rounded(snapshot)
        if snapshot.names != self.names or seen.shape != self._sent.shape:
            self.names = snapshot.names
            self._sent = np.full(seen.shape, np.nan)
            self._at = np.full(len(snapshot.names), -np.inf)
            self._alerts = {}
        if not snapshot.names:
            return []
        changed = ~np.isclose(seen, self._sent, equal_nan=True).all(axis=1)
        alerted = np.array([tuple(alerts.get(n, ())) != self._alerts.get(n, ()) for n in snapshot.names], bool)
        wanted = changed | alerted | (now - self._at >= AGAIN_SECONDS)
        rows = np.flatnonzero(wanted)
        rows = rows[np.argsort(self._at[rows], kind="stable")][:MOST_AT_ONCE]
        self._sent[rows], self._at[rows] = seen[rows], now
        names = [snapshot.names[row] for row in rows]
        self._alerts |= {name: tuple(alerts.get(name, ())) for name in names}
        return names


def _rounded(snapshot: PowerSnapshot) -> Floats:
    """Return values rounded so coarsely that they change only when a person would see it: ratios to a
    percent, others to a tenth. Shape (rows, quantities)."""
    seen = np.zeros((len(snapshot.names), len(snapshot.columns)))
    for column, (name, values) in enumerate(sorted(snapshot.columns.items())):
        if name.endswith(_GROWING):
            continue  # they only grow, and are sent every ten seconds
        if name.endswith("_ratio"):
            seen[:, column] = np.round(values, 2)
        else:
            seen[:, column] = np.round(10 * np.log(np.maximum(np.abs(values), 1.0)))
    return seen


class PowerTopics:
    """Retained topics of circuits, budgets and UPSs of one cluster."""

    def __init__(self, cluster: str, shards: Iterable[str]) -> None:
        self._cluster = cluster
        self._by = ",".join(shards) or "all"
        self._kinds = {what: _RowTopics(cluster, what, self._by) for what in KINDS}
        self._prefixes = tuple(kind.states.prefix for kind in self._kinds.values())

    def filters(self) -> list[str]:
        """Return the topic filters to subscribe to, so that topics of an earlier run are cleared."""
        return [f"{ROOT}/{self._cluster}/{what}/+/state" for what in KINDS]

    def receive(self, topic: str, payload: bytes) -> bool:
        """Receive a message; return whether its topic is one of these. Raises `WireError` for one that
        no aggregator has written."""
        if not topic.startswith(self._prefixes):  # nearly every message
            return False
        return any(kind.states.receive(topic, payload) for kind in self._kinds.values())

    def show(
        self, electrical: ElectricalService, alerts: Iterable[Alert], now: float, parts: Parts | None = None
    ) -> None:
        """Update the states of all rows. `parts`: has rows that can't be made cleared, and the others shown."""
        snapshots, layout = electrical.latest, electrical.site.layout
        if layout is None:
            for kind in self._kinds.values():
                for topic in kind.states.topics():
                    kind.states.clear(topic)
        if snapshots is None or layout is None:
            return
        listed = list(alerts)
        for what, snapshot, subject in (
            ("circuits", snapshots.circuit, Subject.CIRCUIT),
            ("budgets", snapshots.budget, Subject.BUDGET),
            ("ups", snapshots.ups, Subject.UPS),
        ):
            self._show(what, snapshot, layout, firing(listed, subject), electrical.latest_at, now, parts)

    def send(self, publish: Publish, connection: int) -> int:
        """Send the topics that changed; return the number of messages."""
        return sum(kind.states.send(publish, connection) for kind in self._kinds.values())

    def _show(
        self,
        what: str,
        snapshot: PowerSnapshot,
        layout: SiteLayout,
        alerts: Alerts,
        at: int,
        now: float,
        parts: Parts | None,
    ) -> None:
        kind = self._kinds[what]
        wanted = {state_topic(self._cluster, what, name) for name in snapshot.names}
        for topic in kind.states.topics():
            if topic not in wanted:
                kind.states.clear(topic)
        names = kind.due(snapshot, alerts, now)
        if not names:
            return
        part = only(snapshot, names)
        states: list[CircuitState] | list[RowState]
        states = circuit_states(layout, part, alerts, parts) if what == "circuits" else row_states(part, alerts, parts)
        for name in set(names).difference(state.id for state in states):
            kind.states.clear(state_topic(self._cluster, what, name))  # what is there is of before
        for state in states:
            payload = msgspec.json.encode(PowerTopic(by=self._by, at=at, state=state))
            kind.states.put(state_topic(self._cluster, what, state.id), payload)


def spoken(alerts: Iterable[Alert], held: Callable[[str], SuppressionStatus | None]) -> Iterator[Alert]:
    """Iterate over the alerts that no other alert inhibits. `held` returns the suppression of an alert
    by its key."""
    for alert in alerts:
        found = held(alert.key)
        if found is None or found.state is not NotificationState.INHIBITED:
            yield alert


def firing(alerts: Iterable[Alert], subject: Subject) -> Alerts:
    """Return the ids of the rules that fire, by the name of their subject."""
    found: dict[str, set[str]] = {}
    for alert in alerts:
        if alert.subject is subject and alert.state is AlertState.FIRING:
            found.setdefault(alert.name, set()).add(alert.id or alert.rule)
    return {name: sorted(ids) for name, ids in found.items()}
