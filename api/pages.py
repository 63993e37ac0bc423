"""One node, one GPU, one metric's past: `/api/v1/nodes/<node>`, `/gpus/<uuid>`, `/history`, `/events`."""

from __future__ import annotations

import msgspec

from api.alerts import Alert
from api.columns import Numbers
from api.fleet import NodeLine


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""

    node: str
    at: int
    """ns since 1970, the node's clock."""
    kind: str
    gpu: str | None = None
    message: str = ""


class StoredEvent(msgspec.Struct, frozen=True):
    """An event of `/api/v1/events`."""

    event: Event


class Events(msgspec.Struct, frozen=True):
    """`/api/v1/events`, newest first."""

    events: list[StoredEvent]


class GpuFacts(msgspec.Struct, frozen=True):
    """One GPU, as its inventory has it."""

    uuid: str
    index: int
    name: str
    pci: str | None = None
    serial: str | None = None
    vbios: str | None = None
    slot: str | None = None
    present: bool = True


class LinkFacts(msgspec.Struct, frozen=True):
    """One NVLink of a GPU."""

    number: int
    peer_kind: str | None = None
    peer: str | None = None


class LinkPart(msgspec.Struct, frozen=True):
    """A link and its readings."""

    link: LinkFacts
    readings: dict[str, float] = {}


class GpuPart(msgspec.Struct, frozen=True):
    """A GPU of a node, and its readings."""

    gpu: GpuFacts
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}


class MemoryPool(msgspec.Struct, frozen=True):
    """GPUs that reach each other's memory."""

    gpus: list[str]
    bytes: int | None = None
    over: str = "none"


class NodePage(msgspec.Struct, frozen=True):
    """`/api/v1/nodes/<node>`."""

    at: int
    node: NodeLine
    host: dict[str, str] = {}
    pools: list[MemoryPool] = []
    readings: dict[str, float] = {}
    gpus: list[GpuPart] = []
    alerts: list[Alert] = []


class GpuPage(msgspec.Struct, frozen=True):
    """`/api/v1/gpus/<uuid>`."""

    at: int
    node: NodeLine
    gpu: GpuFacts
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}
    links: list[LinkPart] = []
    events: list[Event] = []
    alerts: list[Alert] = []


class History(msgspec.Struct, frozen=True):
    """`/api/v1/history`: one metric of one device, in buckets."""

    metric: str
    step: float
    start: int
    end: int
    at: list[int] = []
    mean: Numbers = []
    low: Numbers = []
    high: Numbers = []
