"""Retained states on the bus: what should stand there, and what does.

A state is one JSON message on a topic of its own (`telemetry.topics.state_topic`), for screens and
programs that come later: alerts, circuits, budgets. Only changes are sent; all is sent again after
the connection was lost, because a broker may have forgotten it; what an earlier life of this
aggregator left behind, and nobody wants any more, is cleared. Pure: the loop hands it `publish`.
"""

from __future__ import annotations

from collections.abc import Callable

MOST_AT_ONCE = 200
"""Messages of one call: a storm must not fill the connection that commands go over."""

Publish = Callable[[str, bytes], bool]
"""Sends a retained message; False when it can't now."""


class RetainedTopics:
    """All states of one kind: topics that begin alike."""

    def __init__(self, prefix: str, mark: bytes = b"") -> None:
        """`prefix` begins every topic; `mark` is in every payload that this aggregator writes, so
        that it never clears what another aggregator of the same cluster keeps there."""
        self.prefix = prefix
        self._mark = mark
        self._wanted: dict[str, bytes] = {}
        self._standing: dict[str, bytes] = {}
        self._leftover: set[str] = set()
        """Topics on which an earlier life's message was heard."""
        self._changed: dict[str, None] = {}
        self._connection = 0

    def put(self, topic: str, payload: bytes) -> None:
        """Say what should stand on a topic from now on."""
        self._wanted[topic] = payload
        self._changed[topic] = None

    def clear(self, topic: str) -> None:
        """Say that nothing should stand there any more."""
        if self._wanted.pop(topic, None) is not None:
            self._changed[topic] = None

    def topics(self) -> list[str]:
        """Return the topics on which something should stand."""
        return list(self._wanted)

    def heard(self, topic: str, payload: bytes) -> bool:
        """Take a message off the bus; returns whether its topic is one of these."""
        if not topic.startswith(self.prefix):
            return False
        if topic not in self._wanted and payload and self._mark in payload:
            self._leftover.add(topic)
            self._changed[topic] = None
        return True

    def send(self, publish: Publish, connection: int) -> int:
        """Send what is not as it should be; returns how many messages were sent.

        `connection` is the number of the connection to the broker: another one means that nobody
        knows what stands there now.
        """
        if connection != self._connection:
            self._connection = connection
            self._standing.clear()
            self._changed = dict.fromkeys([*self._wanted, *self._leftover])
        sent = 0
        while self._changed and sent < MOST_AT_ONCE:
            topic = next(iter(self._changed))
            payload = self._wanted.get(topic, b"")
            stands = payload == self._standing.get(topic, b"") and topic not in self._leftover
            if not stands:
                if not publish(topic, payload):
                    break
                sent += 1
                self._standing[topic] = payload
                self._leftover.discard(topic)
            if not payload:
                self._standing.pop(topic, None)
            del self._changed[topic]
        return sent
