"""Events until every rule has evaluated them: new ones, those of nodes that have no rows now, those that raise, and those
that a rule missed while it was set aside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from alerts.engine.recent_events import Placed, place_events
from alerts.rules.input import FleetSnapshot
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.runtime.isolation import Isolation, PartFault, PartKind

MOST_WAITING = 20_000
"""Events that wait for a part that is set aside; the oldest are given up."""


class PendingEvents:
    """Events that are evaluated now or later; one that raises is tried again, and costs no other."""

    def __init__(self, longest: int) -> None:
        """`longest`: ns after which an event that waits is given up."""
        self.aside = Isolation(PartKind.EVENT)
        """Events by `node/id`."""
        self._longest = longest
        self._new: list[Event] = []
        """Events that no complete tick has evaluated."""
        self._held: list[Event] = []
        """Events of nodes that have no rows now, or that could not be placed."""
        self.missed: dict[str, list[Event]] = {}
        """Events that a rule could not evaluate, by its part."""

    def add(self, events: Sequence[Event]) -> None:
        """Add new events to those that no complete tick has evaluated."""
        del self._new[:-MOST_WAITING]
        self._new += events

    def evaluated(self) -> None:
        """Note that a tick has evaluated the events that it placed."""
        self._new = []

    def place(self, fleet: Fleet, now: float, wall_ns: int, disturb: Callable[[Event], None]) -> Placed:
        """Return the rows of the events that wait; those of nodes that have no rows now are held. `disturb`
        is called with each event that has a row."""
        oldest, waiting = wall_ns - self._longest, [*self._held, *self._new]
        ready = [event for event in waiting if event.node in fleet.nodes and self._is_due(event, now)]
        found = place_events(fleet, ready, oldest, disturb)
        if waiting:
            held = {id(event): event for event in waiting}
            for event in ready:
                del held[id(event)]
            for event, error in found.faults:
                self.fail(event, error, now)
                held[id(event)] = event
            self._new = [event for event in waiting if id(event) not in held]
            self._held = [event for event in held.values() if event.at >= oldest][-MOST_WAITING:]
        return found.placed

    def fail(self, event: Event, error: Exception, now: float) -> None:
        """Set an event aside on which something raises."""
        self.aside.fail(_key(event), error, now)

    def miss(self, part: str, events: Collection[Event]) -> None:
        """Keep events for the time at which a rule works again."""
        if events:
            missed = self.missed.setdefault(part, [])
            missed.extend(events)
            del missed[:-MOST_WAITING]

    def with_missed(self, part: str, table: Table | None, snapshot: FleetSnapshot) -> FleetSnapshot:
        """Return a snapshot that has the events too that a rule missed, but for those whose pause is not over."""
        oldest, missed = snapshot.wall - self._longest, self.missed.pop(part, [])
        ready = [event for event in missed if self._is_due(event, snapshot.now)]
        self.miss(part, [one for one in missed if one.at >= oldest and not self._is_due(one, snapshot.now)])
        if table is None or not ready:
            return snapshot
        again = place_events(snapshot.fleet, ready, oldest).placed[table]
        return replace(snapshot, events={**snapshot.events, table: [*again, *snapshot.events[table]]})

    def settle(self) -> None:
        """Note which events work again: those that nothing withholds."""
        if len(self.aside):
            withheld = {_key(event) for event in chain(self._held, *self.missed.values())}
            for key in self.aside.reasons():
                if key not in withheld:
                    self.aside.works(key)

    def faults(self) -> Iterator[PartFault]:
        """Yield the nodes of whose events one raises, or has raised since the last call."""
        for key, reason in self.aside.recent().items():
            node, _, event = key.partition("/")
            yield PartKind.EVENT.fault(node, f"event {event}: {reason}")

    def _is_due(self, event: Event, now: float) -> bool:
        """Return whether an event may be evaluated: it never raised, or its pause is over."""
        return not len(self.aside) or self.aside.due(_key(event), now)


def _key(event: Event) -> str:
    return f"{event.node}/{event.id}"
