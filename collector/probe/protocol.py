"""What the collector and its probe process say to each other: framed MessagePack over two pipes.

The probe knows devices by their position, as the driver enumerates them; the values of a reading
are packed floats whose order the driver and its source agree on. So this protocol serves any
driver, and a tick with nothing new costs one short message each way.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from telemetry.inventory import Gpu, Link

FAST, SLOW = 1, 2
"""Bits of `ProbeRequest.lanes`."""


class ProbeStatus(IntEnum):
    """How the reading of one device went."""

    OK = 0
    LOST = 1
    """It has left the bus."""
    RESET_REQUIRED = 2
    """It answers nothing until somebody resets it."""
    HUNG = 3
    """A call has not returned yet, or hung lately and is left in peace for a while."""
    LATE = 4
    """Its turn did not come before the deadline."""
    FAILED = 5
    """Our own code failed on its answers; what went wrong stands in the log."""


class ProbeRequest(msgspec.Struct, frozen=True, array_like=True):
    """The collector wants the readings of all devices."""

    seq: int
    lanes: int
    """Bits `FAST` and `SLOW`; 0 asks only for descriptions."""
    budget: float
    """Seconds until the answer must be on its way."""


class ProbeDescription(msgspec.Struct, frozen=True, array_like=True):
    """What one device is. An empty UUID: it is there, and does not say which it is."""

    gpu: Gpu
    links: tuple[Link, ...] = ()


class ProbeReading(msgspec.Struct, frozen=True, array_like=True):
    """One device at one tick."""

    status: ProbeStatus
    values: bytes = b""
    """float64, little-endian; empty unless the status is OK."""


class ProbeReply(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """The readings of all devices, in the driver's order."""

    seq: int
    readings: list[ProbeReading]
    described: dict[int, ProbeDescription] = {}
    """Devices whose description is new or has changed."""
    abandoned: int = 0
    """Calls given up as hung since the probe started."""
    drifted: bool = False
    """The driver has other devices now than when it was opened."""


class ProbeReport(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """The driver is open, or can't be opened, or has gone away."""

    up: bool
    devices: int = 0
    code: int | None = None
    """The driver's own error code."""
    message: str = ""
    driver_version: str | None = None
    cuda_version: str | None = None


class ProbeNotice(msgspec.Struct, frozen=True, array_like=True, tag="notice"):
    """Something that the driver says by itself: an XID."""

    kind: str
    at: int
    """ns since 1970."""
    device: int | None = None
    message: str = ""
    data: dict[str, int | str] = {}


ToParent = ProbeReply | ProbeReport | ProbeNotice

_encoder = msgspec.msgpack.Encoder()
_HEAD = 4


def pack(message: msgspec.Struct) -> bytes:
    """Return a message with its length before it."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_HEAD, "little") + body


class Unpacker:
    """Cuts a stream of bytes into message bodies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies that are complete with `data`."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(buffer) - start >= _HEAD:
            begin = start + _HEAD
            end = begin + int.from_bytes(buffer[start:begin], "little")
            if len(buffer) < end:
                break
            bodies.append(bytes(buffer[begin:end]))
            start = end
        del buffer[:start]
        return bodies
