"""Retained states on the bus: the messages that are wanted there, and those that are there.

A state is one JSON message on a topic of its own (`telemetry.wire.topics.state_topic`), for screens and
programs that connect later: alerts, circuits, budgets. Only changes are sent; after the connection was
lost all is sent again, because a broker may have lost it; messages of an earlier run of this
aggregator that are not wanted any more are cleared. Pure: the loop passes `publish` in.
"""

from __future__ import annotations

from collections.abc import Callable

from telemetry.wire.border import decode_owner

MOST_AT_ONCE = 200
"""Messages of one call: a storm must not fill the connection that commands go over."""
MOST_LEFTOVER = 10_000
"""Topics of an earlier run that are remembered; the others are found at the next connection."""

Publish = Callable[[str, bytes], bool]
"""Sends a retained message; False when it can't now."""


class RetainedTopics:
    """The states of one kind: topics of one prefix."""

    def __init__(self, prefix: str, by: str) -> None:
        """`prefix` begins every topic; `by` is in every payload that this aggregator writes, so
        that it never clears a message of another aggregator of the cluster."""
        self.prefix = prefix
        self._by = by
        self._wanted: dict[str, bytes] = {}
        self._published: dict[str, bytes] = {}
        self._leftover: set[str] = set()
        """Topics with a message of an earlier run."""
        self._changed: dict[str, None] = {}
        self._connection = 0

    def put(self, topic: str, payload: bytes) -> None:
        """Set the message of a topic."""
        self._wanted[topic] = payload
        self._changed[topic] = None

    def clear(self, topic: str) -> None:
        """Remove the message of a topic."""
        if self._wanted.pop(topic, None) is not None:
            self._changed[topic] = None

    def topics(self) -> list[str]:
        """Return the topics that have a message."""
        return list(self._wanted)

    def receive(self, topic: str, payload: bytes) -> bool:
        """Note a message on the bus; return whether its topic is of this kind. Raises `WireError`
        for one that no aggregator has written."""
        if not topic.startswith(self.prefix):
            return False
        if not payload or topic in self._wanted:
            return True
        ours = decode_owner(topic, self.prefix, payload) == self._by
        if ours and len(self._leftover) < MOST_LEFTOVER:
            self._leftover.add(topic)
            self._changed[topic] = None
        return True

    def send(self, publish: Publish, connection: int) -> int:
        """Send the changes; return how many messages were sent.

        `connection` is the number of the connection to the broker: with another one, what is
        retained there is unknown.
        """
        if connection != self._connection:
            self._connection = connection
            self._published.clear()
            self._changed = dict.fromkeys([*self._wanted, *self._leftover])
        sent = 0
        while self._changed and sent < MOST_AT_ONCE:
            topic = next(iter(self._changed))
            payload = self._wanted.get(topic, b"")
            current = payload == self._published.get(topic, b"") and topic not in self._leftover
            if not current:
                if not publish(topic, payload):
                    break
                sent += 1
                self._published[topic] = payload
                self._leftover.discard(topic)
            if not payload:
                self._published.pop(topic, None)
            del self._changed[topic]
        return sent
