"""The engine: every rule on every row of the fleet, once a tick.

Pure: it reads no clock and does no I/O; the aggregator's loop hands it the fleet, the time and what
happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from alerts.alert import Alert, Severity, State
from alerts.conditions import Condition, happenings_of
from alerts.judging import BAD, UNKNOWN
from alerts.look import Look, RuleSight, place_events
from alerts.machine import Life, Phase, step
from alerts.rows import Census, Change, Rows
from alerts.rules import Rule
from alerts.wording import device, fill, position_of, value_text
from telemetry.fleet import Fleet
from telemetry.inventory import Event, Inventory
from telemetry.metric import Table

RESOLVED_SHOWN = 900.0
"""Seconds for which a resolved alert is still listed: long enough to be seen by who was paged."""
STALL = 5.0
"""Seconds. A pause between two ticks that is longer than this, and than three of the usual ones, is
our own: nobody was heard in it."""
_EVENT_AGE = 3_600_000_000_000
"""ns: an event that comes an hour late is history, unless its rule would keep firing for longer."""


class _Track:
    """One rule on one table: its memory and its alerts' lives."""

    def __init__(self, rule: Rule, table: Table, when: Condition) -> None:
        self.rule = rule
        self.table = table
        self.when = when
        self.rows = Rows()
        self.life = Life(self.rows)
        self.memory = self.rows.part(0)

    def move(self, change: Change) -> None:
        self.rows.move(change.size, change.old, change.new, change.touched)
        self.life.active = bool(self.life.phase.any())

    def step(self, look: Look, wall: int) -> list[tuple[int, State]]:
        """Judge all rows and move them on; return the rows that now fire or have resolved."""
        rule = self.rule
        sight = RuleSight(look, self.table, self.rows.size, self.life.phase == Phase.FIRING)
        verdicts, values = self.when.judge(sight, self.memory)
        if rule.unless is not None:
            excused = rule.unless.judge(sight, self.rows.part(1)).verdicts == BAD
            verdicts[excused] = UNKNOWN
        fires, resolves = step(
            self.life, verdicts, values, now=look.now, wall=wall, hold=rule.hold, keep=rule.keep
        )
        return [(int(row), State.FIRING) for row in fires] + [
            (int(row), State.RESOLVED) for row in resolves
        ]

    def alert(self, inventory: Inventory, position: int, row: int, state: State, at: int) -> Alert:
        """Put the life of one row into words."""
        rule = self.rule
        key, gpu, where = device(inventory, self.table, position)
        number = float(self.life.value[row])
        value = None if np.isnan(number) else number
        text = value_text(self.when, value)
        return Alert(
            key=f"{rule.name}/{inventory.node}/{key}",
            rule=rule.name,
            state=state,
            severity=rule.severity,
            node=inventory.node,
            gpu=None if gpu is None else gpu.uuid,
            since=int(self.life.began[row]),
            changed=at,
            value=value,
            summary=fill(rule.summary, where, inventory.node, gpu, text),
            description=fill(rule.description, where, inventory.node, gpu, text),
            runbook=rule.runbook,
        )


class Engine:
    """All rules, and what they remember of the fleet."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.events_unplaced = 0
        """Events of nodes that the fleet did not know; only grows."""
        self._tracks = list(_tracks(rules))
        self._census = Census()
        self._resolved: deque[tuple[float, Alert]] = deque()
        self._fleet: Fleet | None = None
        self._last_tick = -np.inf
        self._rhythm: float | None = None
        """Seconds between two calls, as a rule."""
        self._listening_since = -np.inf
        self._event_age = max([_EVENT_AGE, *(int(rule.keep * 1e9) for rule in rules)])

    def evaluate(
        self,
        fleet: Fleet,
        now: float,
        wall_ns: int,
        events: Sequence[Event] = (),
        *,
        listening: bool = True,
    ) -> list[Alert]:
        """Judge everything once; return the alerts that began to fire or resolved at this tick.

        `now`: the fleet's monotonic clock, seconds. `events`: those since the last call, each once.
        `listening`: whether the aggregator hears the bus; while it does not, and for as long as it
        then takes, no node is called silent.
        """
        self._fleet = fleet
        if not listening or self._slept(now):
            self._listening_since = now
        changes = self._follow(fleet, wall_ns)
        placed, unplaced = place_events(fleet, events, wall_ns - self._event_age)
        self.events_unplaced += unplaced
        look = Look(fleet, self._census, now, self._listening_since, placed)
        for track in self._tracks:
            for row, state in track.step(look, wall_ns):
                found = position_of(fleet, track.table, row)
                if found is not None:
                    changes.append(track.alert(*found, row, state, wall_ns))
        self._remember(changes, now)
        return changes

    def alerts(self) -> list[Alert]:
        """Return all that is pending, firing or resolved not long ago, worst first."""
        listed = [alert for _, alert in self._resolved]
        for track in self._tracks:
            for row in track.life.listed():
                found = position_of(self._fleet, track.table, row) if self._fleet else None
                if found is not None:
                    firing = track.life.phase[row] == Phase.FIRING
                    state = State.FIRING if firing else State.PENDING
                    at = int(track.life.changed[row])
                    listed.append(track.alert(*found, int(row), state, at))
        return sorted(listed, key=_worst_first)

    def _slept(self, now: float) -> bool:
        """Whether the pause since the last call was longer than our rhythm."""
        pause, self._last_tick = now - self._last_tick, now
        if pause <= max(STALL, 3 * (self._rhythm or 0.0)):
            self._rhythm = pause
            return False
        if self._rhythm is None and np.isfinite(pause):
            self._rhythm = pause  # the first pause there is: rules may run seldom on purpose
            return False
        return True

    def _follow(self, fleet: Fleet, wall: int) -> list[Alert]:
        """Let every rule's memory follow its devices; what fires on a device that has left the
        inventory resolves."""
        changes = self._census.update(fleet)
        resolved: list[Alert] = []
        if changes is None:
            return resolved
        for track in self._tracks:
            change = changes[track.table]
            for row, inventory, position in change.gone if track.life.active else ():
                if track.life.phase[row] == Phase.FIRING:
                    resolved.append(track.alert(inventory, position, row, State.RESOLVED, wall))
            track.move(change)
        return resolved

    def _remember(self, changes: Iterable[Alert], now: float) -> None:
        for alert in changes:
            if alert.state is State.RESOLVED:
                self._resolved.append((now, alert))
        again = {alert.key for alert in changes if alert.state is State.FIRING}
        if again:
            self._resolved = deque(kept for kept in self._resolved if kept[1].key not in again)
        while self._resolved and now - self._resolved[0][0] > RESOLVED_SHOWN:
            self._resolved.popleft()


def _tracks(rules: Iterable[Rule]) -> Iterable[_Track]:
    for rule in rules:
        yield _Track(rule, rule.table, rule.when)
        events = happenings_of(rule.when)
        if events is not None and rule.table is not Table.NODE:
            # An XID of a GPU that nobody knows is still an XID: it is its node's.
            yield _Track(msgspec.structs.replace(rule, unless=None), Table.NODE, events)


def _worst_first(alert: Alert) -> tuple[int, int, int, str]:
    return _STATES.index(alert.state), _SEVERITIES.index(alert.severity), alert.since, alert.key


_STATES = (State.FIRING, State.PENDING, State.RESOLVED)
_SEVERITIES = tuple(Severity)
