"""What happened on this node: numbers events, and holds each until a frame has taken it along.

An event goes out twice: at once on its own topic (fast), and inside the next frame (sure, because
a lost frame is noticed and sent again). Readers drop the second by its id.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from collector.source import DeviceEvent
from telemetry.inventory import Event, encode

log = logging.getLogger(__name__)

MOST_PENDING = 1000
"""Events that wait for a frame; a storm beyond that is counted, its beginning is kept."""
MOST_IN_FRAME = 100


class EventQueue:
    """The events of one session. `send` is called with each at once, for the event topic."""

    def __init__(self, node: str, session: int, send: Callable[[Event, bytes], None]) -> None:
        self._node = node
        self._session = session
        self._send = send
        self._pending: deque[bytes] = deque()
        self.events = 0
        """Events that got a number."""
        self.dropped = 0
        """Events of a storm that no frame took along, and that were not sent."""

    def add(self, noticed: DeviceEvent) -> None:
        """Give a noticed its id and its place on the bus."""
        if len(self._pending) >= MOST_PENDING:
            self.dropped += 1
            if self.dropped == 1:
                log.error("node=%s more events than frames can carry; dropping", self._node)
            return
        event = Event(
            id=f"{self._session:012x}-{self.events}",
            node=self._node,
            at=noticed.at,
            kind=noticed.kind,
            gpu=noticed.gpu,
            pci=noticed.pci,
            message=noticed.message,
            data=noticed.data,
        )
        try:
            payload = encode(event)
        except (TypeError, ValueError) as error:  # a source put something else than JSON in `data`
            log.warning("node=%s event %s can't be written: %s", self._node, event.kind, error)
            self.dropped += 1
            return
        self.events += 1
        self._pending.append(payload)
        log.info(
            "node=%s gpu=%s event=%s %s", self._node, event.gpu or "-", event.kind, event.message
        )
        self._send(event, payload)

    def drain(self) -> tuple[bytes, ...]:
        """Return the events for the next frame, oldest first; they are the frame's from then on."""
        count = min(len(self._pending), MOST_IN_FRAME)
        return tuple(self._pending.popleft() for _ in range(count))
