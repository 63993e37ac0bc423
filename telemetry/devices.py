"""The devices of a node and the events that they report, as they cross the bus and the HTTP API."""

from __future__ import annotations

from typing import Any

import msgspec


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, keyed by its UUID; the index is for display."""

    uuid: str
    index: int
    name: str
    """Name that the driver reports: `NVIDIA H100 80GB HBM3`; may be `Graphics Device`."""
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
    """Slot, tray or module number, where the platform reports it."""
    present: bool = True
    """False for a GPU that was there and is gone: its rows stay, all gaps."""
    capabilities: dict[str, str] = {}
    """Reason by metric for each metric that this GPU never has: `{"gpu_fan_speed_ratio": "not_supported"}`."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """An NVLink of a GPU: a row of the `link` table."""

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


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change at an instant: an XID, a GPU lost or back, a driver reload."""

    id: str
    """`<session>-<number>`: at least once on the wire, once in the store."""
    node: str
    at: int
    """ns since 1970, of the node."""
    kind: str
    """`xid`, `sxid`, `gpu_lost`, `gpu_back`, `gpu_hung`, `gpu_answers`, `gpu_replaced`,
    `driver_down`, `driver_up`, `driver_reloaded`, `clocks_down`, `clocks_free`, `mig_changed`,
    `recovery_action`, `collector_started`, `collector_stopped`, `ticks_skipped`, `ring_down`,
    `ring_up`, `name_in_use` (another collector uses the node's name), `command_refused`,
    `task_failed` and `task_works` (a task or thread of the collector, `data.task`),
    `driver_log` (a line of the kernel's log that is no XID, its kind is `data.what`),
    `xid_repeated`, `sxid_repeated`, `gpu_lost_repeated` (how often a fault came again in its
    minute, `data.count`; no new fault), `fault` (simulated)."""
    gpu: str | None = None
    """UUID."""
    pci: str | None = None
    message: str = ""
    data: dict[str, Any] = {}
