"""The packets of one read from an MQTT 3.1.1 connection. Pure.

Nearly all are live frames, PUBLISH at QoS 0, which need no answer and no state: they are cut out here, in one pass. All
others go to the client, packet by packet and in their order.
"""

from __future__ import annotations

from collections.abc import Callable

_KIND_AND_QOS = 0b1111_0110
"""Bits of the first byte; the others say that it is sent again or was retained, which is all the same here."""
_PUBLISH_QOS_0 = 0b0011_0000
_LONGEST_LENGTH = 4
"""Bytes of a packet's length."""


def read_packets(
    data: bytes, receive: Callable[[str, bytes], None], other: Callable[[bytes], int]
) -> int:
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
