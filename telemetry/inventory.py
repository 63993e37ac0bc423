"""What a node is made of, and the JSON messages beside the frames.

Border types: tolerant of unknown fields, fields are only ever added, with a default.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from telemetry.errors import WireError
from telemetry.schema import SCHEMA, Schema

T = TypeVar("T")


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, keyed by its UUID; the index is for people."""

    uuid: str
    index: int
    name: str
    """As the driver says: `NVIDIA H100 80GB HBM3`; may be `Graphics Device`."""
    pci: str | None = None
    """Normal form `0000:18:00.0`, lower case, domain of four digits or more."""
    serial: str | None = None
    vbios: str | None = None
    part_number: str | None = None
    architecture: str | None = None
    memory_bytes: int | None = None
    power_limit_watts: float | None = None
    """Limit in force when the inventory was taken."""
    minor: int | None = None
    mig: bool = False
    slot: str | None = None
    """Slot, tray or module number, where the platform tells."""
    present: bool = True
    """False when it was there and is gone: its rows stay, all gaps."""
    capabilities: dict[str, str] = {}
    """Gap word by metric that this GPU will never have: `{"gpu_fan_speed_ratio": "not_supported"}`."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One NVLink of one GPU: a row of the `link` table."""

    gpu: str
    """UUID of the GPU that the link belongs to."""
    number: int
    peer_kind: str | None = None
    """`gpu`, `switch` or `cpu`."""
    peer_pci: str | None = None
    peer: str | None = None
    """UUID of the GPU at the far end, when it is one of this node's."""


class MemoryPool(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs that reach each other's memory over NVLink; a lone GPU is a pool of one."""

    gpus: tuple[str, ...]
    """UUIDs."""
    bytes: int | None = None
    over: str = "none"
    """`nvlink`, `nvswitch` or `none`."""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is made of; retained on the bus, sent again when it changes."""

    node: str
    cluster: str = "default"
    session: int = 0
    version: int = 0
    """Counts up within a session with every change."""
    taken_at: int = 0
    """ns since 1970."""
    kilowatch: str = ""
    """Release of the collector."""
    source: str = ""
    """Where the readings come from: `nvml`, `nvidia-smi`, `simulated:two-dgx-h100` ..."""
    host: dict[str, str] = {}
    """Facts for people: kernel, CPU model, product name, serial."""
    driver_version: str | None = None
    cuda_version: str | None = None
    driver_state: str = "unknown"
    """`up`, `missing`, `mismatched`, `hung`, `no_permission`, `released`, or `none` where the
    source has no driver."""
    driver_message: str = ""
    """What is wrong and what to do, in one sentence."""
    gpus: tuple[Gpu, ...] = ()
    """In the order of the rows of the frame's `gpu` blocks."""
    links: tuple[Link, ...] = ()
    """In the order of the rows of the frame's `link` blocks."""
    pools: tuple[MemoryPool, ...] = ()
    schema: Schema = SCHEMA


class FrameSpan(msgspec.Struct, frozen=True, array_like=True):
    """Frames `first` to `last` of a session, both included."""

    session: int
    first: int
    last: int


class NodeState(StrEnum):
    """Whether a collector is there."""

    ONLINE = "online"
    OFFLINE = "offline"


class CollectorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a collector is there; retained, and its last will.

    An `offline` counts only if its session is the current one: a will may arrive after the next
    start's `online`.
    """

    state: NodeState
    session: int
    interval: float = 1.0
    """Seconds between frames."""
    slow_interval: float = 15.0
    at: int = 0
    reason: str = ""
    """`lost` in the will, `shutdown` in a planned end."""
    ring: tuple[FrameSpan, ...] = ()
    """What the collector's ring holds, one span per session, oldest first. The aggregator asks for
    what it misses; frames before a span's first are gone, and are recorded as a hole."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened at an instant: an XID, a GPU lost or back, a driver reload."""

    id: str
    """`<session>-<number>`: at least once on the wire, once in the store."""
    node: str
    at: int
    """ns since 1970, of the node."""
    kind: str
    """`xid`, `sxid`, `gpu_lost`, `gpu_back`, `gpu_hung`, `gpu_answers`, `gpu_replaced`,
    `driver_down`, `driver_up`, `driver_reloaded`, `clocks_down`, `clocks_free`, `mig_changed`,
    `recovery_action`, `collector_started`, `collector_stopped`, `ticks_skipped`, `ring_down`,
    `ring_up`,
    `driver_log` (a line of the kernel's log that is no XID, `data.what` says which),
    `xid_repeated`, `sxid_repeated`, `gpu_lost_repeated` (how often a fault came again in its
    minute, `data.count`; no new fault), `fault` (simulated)."""
    gpu: str | None = None
    """UUID."""
    pci: str | None = None
    message: str = ""
    data: dict[str, Any] = {}


class CommandKind(StrEnum):
    """What an aggregator or a person can ask of a collector."""

    RESEND = "resend"
    """Send frames `first` to `last` of `about` again, on `backfill`."""
    RELEASE = "release"
    """Close the driver, so that it can be upgraded; frames go on, all gaps."""
    RESUME = "resume"
    """Open the driver again."""
    INVENTORY = "inventory"
    """Read the inventory again."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What an aggregator or a person asks of a collector."""

    kind: CommandKind
    about: int = 0
    """Session that the frames belong to."""
    first: int = 0
    last: int = 0


class CommandReply(msgspec.Struct, frozen=True, kw_only=True):
    """The collector's answer to `resend`, sent after the frames: what it no longer has."""

    about: int
    first: int
    last: int
    sent: int = 0
    gone: tuple[FrameSpan, ...] = ()
    """Frames that the ring has lost; the aggregator records them as holes."""


_encoder = msgspec.json.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """Return the JSON of a message."""
    return _encoder.encode(message)


def decode(payload: bytes, kind: type[T]) -> T:
    """Read a JSON message. Raises `WireError` (`malformed`) with the place of the fault."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("malformed", str(error)) from error
