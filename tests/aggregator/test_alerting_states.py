"""Retained states on the bus: only changes are sent, all after a broken line, nothing is left."""

from __future__ import annotations

import pytest

from aggregator.mqtt.retained import MOST_AT_ONCE, MOST_LEFTOVER, RetainedTopics
from telemetry.errors import WireError

PREFIX = "kilowatch/1/lab/alerts/"
A, B = f"{PREFIX}a/state", f"{PREFIX}b/state"


class Bus:
    """What stands on a broker, and what was sent to it."""

    def __init__(self) -> None:
        self.standing: dict[str, bytes] = {}
        self.sent: list[tuple[str, bytes]] = []
        self.up = True

    def publish(self, topic: str, payload: bytes) -> bool:
        """As a broker retains."""
        if not self.up:
            return False
        self.sent.append((topic, payload))
        if payload:
            self.standing[topic] = payload
        else:
            self.standing.pop(topic, None)
        return True


@pytest.fixture
def bus() -> Bus:
    """An empty broker."""
    return Bus()


def test_only_changes_are_sent(bus: Bus) -> None:
    """What stands already is not sent again."""
    states = RetainedTopics(PREFIX, "all")
    states.put(A, b"1")
    states.put(B, b"1")
    assert states.send(bus.publish, 1) == 2
    states.put(A, b"1")
    states.put(B, b"2")
    assert states.send(bus.publish, 1) == 1
    states.clear(A)
    states.clear(A)
    assert states.send(bus.publish, 1) == 1
    assert states.send(bus.publish, 1) == 0
    assert bus.standing == {B: b"2"}


def test_all_is_sent_again_on_a_new_connection(bus: Bus) -> None:
    """The broker may have forgotten, and something may have ended meanwhile."""
    states = RetainedTopics(PREFIX, "all")
    states.put(A, b"1")
    states.put(B, b'{"by":"all"}')
    states.send(bus.publish, 1)
    states.clear(B)
    bus.up = False
    assert states.send(bus.publish, 1) == 0
    del bus.standing[A]
    bus.up = True
    for topic, payload in list(bus.standing.items()):  # what is retained comes with the connection
        assert states.receive(topic, payload)
    states.send(bus.publish, 2)
    assert bus.standing == {A: b"1"}


def test_what_an_earlier_life_left_is_cleared_but_not_what_others_keep(bus: Bus) -> None:
    """Two aggregators share a cluster; each clears only what carries its own mark."""
    bus.standing = {A: b'{"by":"00-7f"}', B: b'{"by":"80-ff"}'}
    states = RetainedTopics(PREFIX, "00-7f")
    states.send(bus.publish, 1)
    for topic, payload in list(bus.standing.items()):
        assert states.receive(topic, payload)
    states.send(bus.publish, 1)
    assert bus.standing == {B: b'{"by":"80-ff"}'}
    assert not states.receive("kilowatch/1/lab/3f/n1/status", b"{}")


def test_what_comes_back_is_not_taken_for_a_remnant(bus: Bus) -> None:
    """An echo of what was just sent changes nothing; a state that is wanted again stands."""
    states = RetainedTopics(PREFIX, "all")
    states.put(A, b'{"by":"all"}')
    states.send(bus.publish, 1)
    states.receive(A, b'{"by":"all"}')
    assert states.send(bus.publish, 1) == 0
    states.clear(A)
    states.receive(A, b'{"by":"all"}')
    states.put(A, b'{"by":"all"}')
    states.send(bus.publish, 1)
    assert bus.standing == {A: b'{"by":"all"}'}


def test_what_no_aggregator_has_written_is_refused_and_never_cleared(bus: Bus) -> None:
    """Nor are more topics remembered than an aggregator has."""
    states = RetainedTopics(PREFIX, "all")
    hostile = ((A, b'x"by":"all"'), (A, b'{"by":["all"]}'), (f"{PREFIX}x/y/state", b'{"by":"all"}'),
               (f"{PREFIX}\x1b[2J/state", b'{"by":"all"}'))  # fmt: skip
    for topic, payload in hostile:
        with pytest.raises(WireError):
            states.receive(topic, payload)
    for number in range(MOST_LEFTOVER + 10):
        assert states.receive(f"{PREFIX}{number}/state", b'{"by":"all"}')
    sent = 0
    while count := states.send(bus.publish, 1):
        sent += count
    assert sent == MOST_LEFTOVER


def test_a_storm_goes_out_in_portions(bus: Bus) -> None:
    """Commands use the same connection."""
    states = RetainedTopics(PREFIX, "all")
    for number in range(3 * MOST_AT_ONCE):
        states.put(f"{PREFIX}{number}/state", b"1")
    assert states.send(bus.publish, 1) == MOST_AT_ONCE
    states.send(bus.publish, 1)
    states.send(bus.publish, 1)
    assert len(bus.standing) == 3 * MOST_AT_ONCE
    assert len(states.topics()) == 3 * MOST_AT_ONCE
