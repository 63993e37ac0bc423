"""Protobuf's wire form, as little of it as messages take that are written and read by hand. Pure."""

from __future__ import annotations

from collections.abc import Iterator


class ProtobufError(ValueError):
    """Bytes that are no message: cut off, or of another form."""


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it, and snappy too."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, body: bytes) -> bytes:
    """Return a field of bytes."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield number and value of each field of a message: bytes, or a whole number. Raises `ProtobufError` for a
    message that is none."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, place = _varint(message, place)
        else:
            size = {1: 8, 5: 4}.get(kind, -1)
        if size < 0 or place + size > len(message):
            raise ProtobufError("the message is cut off or no protobuf")
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ProtobufError("the message has a number without an end")
