"""Pages of one device: `/api/v1/nodes/<node>` and `/api/v1/gpus/<uuid>`."""

from __future__ import annotations

import msgspec

from api.alerts import Alert
from api.fleet import NodeReply
from api.jobs import GpuHolder
from telemetry.devices import Event, Gpu, Link, MemoryPool, MigInstance, Port
from telemetry.wire.jobs import GpuProcess


class GpuReply(msgspec.Struct, frozen=True):
    """A GPU of a node, with its readings in base units by metric."""

    gpu: Gpu
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}
    """The reason for each metric that is absent."""
    holders: list[GpuHolder] | None = None
    """Jobs that hold it now; null where its node does not say, and at a past time."""


class LinkReply(msgspec.Struct, frozen=True):
    """A link of a GPU."""

    link: Link
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}


class PortReply(msgspec.Struct, frozen=True):
    """A port of a node's network adapters."""

    port: Port
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}


class InstanceReply(msgspec.Struct, frozen=True):
    """A MIG instance of a GPU."""

    instance: MigInstance
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}
    holders: list[GpuHolder] | None = None
    """Jobs that hold its GPU instance now; null where its node does not say, and at a past time."""


class DeviceReply(msgspec.Struct, frozen=True):
    """A device of a table that no other field of a reply has."""

    table: str
    key: str
    name: str
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}


class WallAndGpus(msgspec.Struct, frozen=True, kw_only=True):
    """The power of a node at the wall beside that of its GPUs, as both were read, and how old they are."""

    wall_watts: float | None = None
    wall_age_seconds: float | None = None
    gpu_watts: float | None = None
    """The sum over the GPUs that are read."""
    gpu_age_seconds: float | None = None
    state: str = ""
    """`contradicted` where the node's own meter reads less than its GPUs: one of both is wrong; else empty."""


class NodePageReply(msgspec.Struct, frozen=True, kw_only=True):
    """The page of a node."""

    at: int
    """ns since 1970."""
    node: NodeReply
    host: dict[str, str] = {}
    """Facts for people."""
    cuda_version: str | None = None
    pools: list[MemoryPool] = []
    power: WallAndGpus = WallAndGpus()
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}
    gpus: list[GpuReply] = []
    ports: list[PortReply] = []
    devices: list[DeviceReply] = []
    """Devices of all other tables, which have no page of their own."""
    alerts: list[Alert] = []


class GpuPageReply(msgspec.Struct, frozen=True, kw_only=True):
    """The page of a GPU."""

    at: int
    """ns since 1970."""
    node: NodeReply
    gpu: Gpu
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}
    links: list[LinkReply] = []
    instances: list[InstanceReply] = []
    events: list[Event] = []
    """The last ones in memory, newest first."""
    alerts: list[Alert] = []
    holders: list[GpuHolder] | None = None
    """Jobs that hold it now; null where its node does not say, and at a past time."""
    processes: list[GpuProcess] = []
    """Processes on it, as its node listed them last; none at a past time."""
