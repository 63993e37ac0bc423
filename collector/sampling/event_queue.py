"""Events of this node: numbers them, and queues each for the next frame.

An event is published twice: at once on its own topic (fast), and inside the next frame (reliable,
because a lost frame is requested again). Readers drop the duplicate by its id.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from collector.source import DeviceEvent
from telemetry.devices import Event
from telemetry.wire.inventory import encode

log = logging.getLogger(__name__)

MOST_PENDING = 1000
"""Events that wait for a frame; later ones are dropped and counted."""
MOST_IN_FRAME = 100


class EventQueue:
    """Events of one session. `send` is called with each at once, for the event topic."""

    def __init__(self, node: str, session: int, send: Callable[[Event, bytes], None]) -> None:
        self._node = node
        self._session = session
        self._send = send
        self._pending: deque[bytes] = deque()
        self.events = 0
        """Events that were numbered."""
        self.dropped = 0
        """Events that were neither queued nor sent."""

    def add(self, noticed: DeviceEvent) -> None:
        """Number an event, queue it for the next frame, and send it."""
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
        except (TypeError, ValueError) as error:  # a source put a value into `data` that JSON has not
            log.warning("node=%s event %s can't be written: %s", self._node, event.kind, error)
            self.dropped += 1
            return
        self.events += 1
        self._pending.append(payload)
        log.info("node=%s gpu=%s event=%s %s", self._node, event.gpu or "-", event.kind, event.message)
        self._send(event, payload)

    def drain(self) -> tuple[bytes, ...]:
        """Remove and return the events for the next frame, oldest first."""
        count = min(len(self._pending), MOST_IN_FRAME)
        return tuple(self._pending.popleft() for _ in range(count))
