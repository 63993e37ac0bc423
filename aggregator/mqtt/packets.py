"""The packets of one read from an MQTT 3.1.1 connection. Pure.

Nearly all are live frames, PUBLISH at QoS 0, which need no answer and no state: they are cut out here, in one pass. All
others go to the client, packet by packet and in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MOST_PACKET_BYTES = (4 << 20) + (64 << 10)
"""A message of 4 MiB, the longest that a node may send, with its topic: as the shipped broker bounds it."""
_KIND_AND_QOS = 0b1111_0110
"""Bits of the first byte; the others say that it is sent again or was retained, which is all the same here."""
_PUBLISH_QOS_0 = 0b0011_0000
_LONGEST_LENGTH = 4
"""Bytes of a packet's length."""


_PUBLISH = 0b0011_0000
_QOS = 0b0000_0110


class LongPublish(NamedTuple):
    """A PUBLISH that is longer than any may be, and is not kept."""

    topic: str
    size: int
    """Bytes of the packet."""
    qos: int
    message_id: int
    """0 at QoS 0."""


class PacketReader:
    """Reads a connection. A packet that is longer than any may be is passed over as it comes: gathered first, as gmqtt
    does, one of 200 MB held up everything for ten seconds."""

    def __init__(
        self,
        receive: Callable[[str, bytes], None],
        other: Callable[[bytes], int],
        too_long: Callable[[LongPublish], None],
        most: int = MOST_PACKET_BYTES,
    ) -> None:
        """`receive`, `other`: as of `read_packets`. `too_long`: is told what was passed over; a broker waits for its
        acknowledgement all the same."""
        self._receive, self._other, self._too_long = receive, other, too_long
        self._most = most
        self._passing = 0
        """Bytes to come of a packet that is passed over."""

    def read(self, data: bytes) -> int:
        """Return how many bytes of `data` are done with, or -1 for no MQTT."""
        passed = min(self._passing, len(data))
        if passed:
            self._passing -= passed
            data = data[passed:]
        at = read_packets(data, self._receive, self._other)
        if at < 0 or len(data) - at < 2:
            return at if at < 0 else passed + at
        size, body = _size(data, at)
        if size <= self._most:
            return passed + at
        if data[at] & 0b1111_0000 != _PUBLISH:
            return -1
        found = _long_publish(data, at, body, size)
        if found is None:  # its topic comes with the next bytes
            return passed + at
        self._too_long(found)
        self._passing = size - (len(data) - at)
        return passed + len(data)


def _size(data: bytes, at: int) -> tuple[int, int]:
    """Return the bytes of the packet that begins at a place, and where its body begins; no size where its length has
    not come."""
    length, body = 0, at + 1
    while body < len(data):
        byte = data[body]
        length |= (byte & 0x7F) << (7 * (body - at - 1))
        body += 1
        if byte < 0x80:
            return body - at + length, body
    return 0, body


def _long_publish(data: bytes, at: int, body: int, size: int) -> LongPublish | None:
    """Return what the head of a PUBLISH says; None where it has not come."""
    qos = (data[at] & _QOS) >> 1
    if len(data) < body + 2:
        return None
    end = body + 2 + (data[body] << 8 | data[body + 1])
    if len(data) < end + 2:
        return None
    message_id = data[end] << 8 | data[end + 1] if qos else 0
    return LongPublish(data[body + 2 : end].decode(errors="replace"), size, qos, message_id)


def read_packets(data: bytes, receive: Callable[[str, bytes], None], other: Callable[[bytes], int]) -> int:
    """Pass on the whole packets of `data`; return how many bytes they are, or -1 for no MQTT.

    `receive` is called with topic and payload of each PUBLISH at QoS 0, and must not raise; `other` with each other
    packet. It returns a number below 0 for no MQTT.
    """
    at, size = 0, len(data)
    while at + 2 <= size:
        length, body = data[at + 1], at + 2
        if length >= 0x80:
            length &= 0x7F
            while True:
                if body >= size:
                    return at
                byte = data[body]
                length |= (byte & 0x7F) << (7 * (body - at - 1))
                body += 1
                if byte < 0x80:
                    break
                if body - at > _LONGEST_LENGTH:
                    return -1
        end = body + length
        if end > size:
            return at
        passed = data[at] & _KIND_AND_QOS == _PUBLISH_QOS_0 and _published(data, body, end, receive)
        if not passed and other(data[at:end]) < 0:
            return -1
        at = end
    return at


def _published(data: bytes, body: int, end: int, receive: Callable[[str, bytes], None]) -> bool:
    """Pass on a PUBLISH; return False for one whose topic is none."""
    start = body + 2
    if start >= end:
        return False
    payload = start + (data[body] << 8 | data[body + 1])
    if not start < payload <= end:
        return False
    try:
        topic = data[start:payload].decode()
    except UnicodeDecodeError:
        return False
    receive(topic, data[payload:end])
    return True
