"""Events of the fleet: each once, however often it comes; for the store, the rules and viewers."""

from __future__ import annotations

from collections import OrderedDict, deque

from aggregator.ingest.batcher import Pending
from aggregator.stats import Stats
from aggregator.store.protocol import StoredEvent
from telemetry import frame as frames
from telemetry import inventory as messages
from telemetry.errors import WireError
from telemetry.inventory import Event

REMEMBERED_EVENTS = 100_000
RECENT_EVENTS = 1000


class EventIntake:
    """Events that came, and those that no rule has seen yet."""

    def __init__(self, pending: Pending, stats: Stats) -> None:
        self._pending = pending
        self._stats = stats
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._unjudged: list[Event] = []
        self.recent: deque[Event] = deque(maxlen=RECENT_EVENTS)
        """Newest last."""

    def take(self, node: str, payload: bytes, wall: int) -> None:
        """Take an event of a node, `wall` ns since 1970. Raises `WireError`."""
        event = messages.decode(checked(payload), Event)
        if event.node != node:
            raise WireError("foreign", f"an event of {event.node!r}")
        key = event.node, event.id
        if key in self._seen:
            self._stats.events_duplicate += 1
            return
        self._seen[key] = None
        if len(self._seen) > REMEMBERED_EVENTS:
            self._seen.popitem(last=False)
        self.recent.append(event)
        self._unjudged.append(event)
        self._pending.batch.events.append(StoredEvent(event, wall))

    def take_unjudged(self) -> list[Event]:
        """Return the events that no rule has seen yet."""
        events, self._unjudged = self._unjudged, []
        return events


def checked(payload: bytes) -> bytes:
    """Return a message that is no longer than a message may be. Raises `WireError`."""
    if len(payload) > frames.MAX_FRAME_BYTES:
        raise WireError("oversize", f"{len(payload)} bytes")
    return payload
