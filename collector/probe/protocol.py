"""Protocol between the collector and its probe process: framed MessagePack over two pipes.

The probe knows devices by their position, as the driver enumerates them; the values of a reading
are packed floats whose order the driver and its source agree on. So this protocol serves any
driver, and a tick without changes costs one short message each way.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from telemetry.devices import Gpu, Link, MigInstance

FAST, SLOW = 1, 2
"""Bits of `ProbeRequest.lanes`."""
PROCESSES = 4
"""Bit that a driver is given beside these for the devices of `ProbeRequest.processes`."""


class ProbeStatus(IntEnum):
    """How the reading of one device went."""

    OK = 0
    LOST = 1
    """The device has left the bus."""
    RESET_REQUIRED = 2
    """The device answers nothing until it is reset."""
    HUNG = 3
    """A call has not returned yet, or hung lately and is not repeated for a while."""
    LATE = 4
    """The device was not read before the deadline."""
    FAILED = 5
    """A bug of the collector; the log has the traceback."""
    PAUSED = 6
    """The collector asked for it not to be read."""


class ProbeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Request for the readings of all devices."""

    seq: int
    lanes: int
    """Bits `FAST` and `SLOW`; 0 asks only for descriptions."""
    budget: float
    """Seconds until the reply must be sent."""
    without: tuple[int, ...] = ()
    """Devices that are not to be read."""
    processes: tuple[int, ...] = ()
    """Devices whose processes are read too."""


class ProbeDescription(msgspec.Struct, frozen=True, array_like=True):
    """Description of a device. An empty UUID: it is present, but can't be identified."""

    gpu: Gpu
    links: tuple[Link, ...] = ()
    instances: tuple[MigInstance, ...] = ()


class ProbeProcess(msgspec.Struct, frozen=True, array_like=True):
    """Process with a context on a device."""

    pid: int
    type: str
    """`compute`, `mps` or `graphics`."""
    memory_bytes: int | None = None
    instance: int | None = None
    """MIG GPU instance."""
    sm_ratio: float | None = None
    """Use of the multiprocessors since the reading before, 0 to 1."""


class ProbeProcesses(msgspec.Struct, frozen=True, array_like=True):
    """Processes of a device."""

    problem: str = ""
    """Why they are unknown, as in `collector.source.ListedProcesses`; empty: they are all listed."""
    rows: list[ProbeProcess] = []


class ProbeReading(msgspec.Struct, frozen=True, array_like=True):
    """Readings of one device at one tick."""

    status: ProbeStatus
    values: bytes = b""
    """float64, little-endian; empty unless the status is OK."""
    processes: ProbeProcesses | None = None
    """Absent where they were not asked for, or could not be read in time."""


class ProbeReply(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """The readings of all devices, in the driver's order."""

    seq: int
    readings: list[ProbeReading]
    described: dict[int, ProbeDescription] = {}
    """Devices whose description is new or has changed."""
    abandoned: int = 0
    """Calls abandoned as hung since the probe started."""
    drifted: bool = False
    """Whether the set of devices has changed since the driver was opened."""


class ProbeReport(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """State of the driver: open, not to be opened, or gone."""

    up: bool
    devices: int = 0
    code: int | None = None
    """The driver's own error code."""
    message: str = ""
    driver_version: str | None = None
    cuda_version: str | None = None
    nvml_version: str | None = None
    excluded: tuple[str, ...] | None = None
    """As in the inventory."""


class ProbeNotice(msgspec.Struct, frozen=True, array_like=True, tag="notice"):
    """Event of the driver: an XID, or a statement."""

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
    """Splits a stream of bytes into message bodies."""

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
