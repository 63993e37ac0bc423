"""The devices of a node and the events that they report, as they cross the bus and the HTTP API."""

from __future__ import annotations

from typing import Any

import msgspec


class Gpu(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    brand: str | None = None
    """NVML's brand: `NVIDIA`, `Tesla`, `GeForce RTX`."""
    inforom: str | None = None
    """Version of the InfoROM's image."""
    architecture: str | None = None
    memory_bytes: int | None = None
    power_limit_watts: float | None = None
    """Limit in force when the inventory was taken."""
    minor: int | None = None
    """Number of `/dev/nvidiaN`, or of AMD's render node `/dev/dri/renderDN`."""
    mig: bool = False
    pcie_width: int | None = None
    """Lanes of PCI Express in use when the GPU was opened."""
    ecc: bool | None = None
    """Whether ECC is on; None where it can't be, or is not told."""
    persistence: bool | None = None
    """Whether persistence mode is on."""
    numa_node: int | None = None
    """NUMA node of the host that is nearest to it."""
    slot: str | None = None
    """Place in the rack as the platform reports it: `slot 14, tray 4, host 1, module 2, chassis 1820...`,
    or the slot's number alone."""
    present: bool = True
    """False for a GPU that was there and is gone: its rows stay, all gaps."""
    fabric_cluster: str | None = None
    """UUID of the NVLink domain that the GPU has joined; none where it has joined none."""
    fabric_clique: int | None = None
    """Part of that domain whose GPUs reach each other."""
    capabilities: dict[str, str] = {}
    """Reason by metric for each metric that this GPU never has: `{"gpu_fan_speed_ratio": "not_supported"}`."""


class Link(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An NVLink or xGMI link of a GPU: a row of the `link` table."""

    gpu: str
    """UUID of the GPU that the link belongs to."""
    number: int
    peer_kind: str | None = None
    """`gpu`, `switch` or `cpu`."""
    peer_pci: str | None = None
    peer: str | None = None
    """UUID of the GPU at the far end, when it is one of this node's."""


PORT_PREFIX = "port:"
"""Beginning of the identity of a port, which no UUID of a GPU and no name of a node has."""


PORT_ROLES = ("compute", "storage", "management")
"""Roles of ports that settings may give."""


class Port(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A port of a network adapter, or a bond of ports: a row of the `port` table."""

    id: str
    """Identity within the cluster, `port:<node>:<PCI address or adapter>/<number>`: an adapter may
    have another name after a restart."""
    adapter: str
    """Name that the kernel gives the adapter: `mlx5_0`; of plain Ethernet that of the interface."""
    number: int
    """From 1; 0 for plain Ethernet."""
    pci: str | None = None
    """Normal form, as that of a GPU."""
    numa_node: int | None = None
    link_layer: str = ""
    """`InfiniBand` or `Ethernet`, as the kernel says it."""
    model: str | None = None
    """Type and board of the adapter: `MT4129 MT_0000000838`."""
    firmware: str | None = None
    guid: str | None = None
    interface: str | None = None
    """Network interface over the port: `ibp24s0`."""
    gpu: str | None = None
    """UUID of the nearest GPU: below the same PCI Express switch, where only one is nearest."""
    role: str = ""
    """`compute`, `storage`, `management` or `member` (of a bond); empty where it is not known."""
    rail: int | None = None
    """Place among the node's compute ports, in the order of their GPUs: ports of one rail of all nodes
    are mostly on one leaf switch."""
    bond: str | None = None
    """Bond that the port is a member of: `bond0`."""
    switch: str | None = None
    """Switch at the far end, by `collector.topology`."""
    switch_port: str | None = None
    """Port of that switch."""
    present: bool = True
    """False for a port that was there and is gone: its row stays, all gaps."""

    @property
    def name(self) -> str:
        """Adapter and number: `mlx5_0/1`; of plain Ethernet the interface alone."""
        return f"{self.adapter}/{self.number}" if self.is_rdma else self.adapter

    @property
    def is_rdma(self) -> bool:
        """Whether it is a port of an RDMA adapter, whose ports are numbered from 1."""
        return self.number > 0


INSTANCE_PREFIX = "MIG-"
"""Beginning of the UUID of a MIG instance."""


class MigInstance(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A compute instance of a GPU that MIG has split: a row of the `instance` table.

    NVML calls it a MIG device. Its memory is that of its GPU instance, which several compute
    instances may share.
    """

    uuid: str
    """`MIG-` and the driver's own identity."""
    gpu: str
    """UUID of the GPU."""
    gpu_instance: int
    """Number of the GPU instance, as processes and schedulers name it."""
    compute_instance: int = 0
    """Number within the GPU instance."""
    profile: str = ""
    """`1g.10gb`, or `1c.3g.40gb` for a part of a GPU instance; empty where the driver says no sizes."""
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    placement: int | None = None
    """First memory slice of its GPU instance, by which names of claims tell it; None where the driver does not say."""

    @property
    def name(self) -> str:
        """Numbers and profile: `7/0 1g.10gb`."""
        return f"{self.gpu_instance}/{self.compute_instance} {self.profile}".rstrip()


class MemoryPool(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs that reach each other's memory over NVLink or xGMI; a lone GPU is a pool of one."""

    gpus: tuple[str, ...]
    """UUIDs."""
    bytes: int | None = None
    over: str = "none"
    """`nvlink`, `nvswitch`, `xgmi` or `none`."""


WELL = "well"
"""`data.state` of a unit that does not fail any more."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change at an instant: an XID, a GPU lost or back, a driver reload."""

    id: str
    """`<session>-<number>`: at least once on the wire, once in the store."""
    node: str
    at: int
    """ns since 1970, of the node."""
    kind: str
    """`xid`, `sxid`, `gpu_lost`, `gpu_back`, `gpu_hung`, `gpu_answers`, `gpu_replaced`, `gpu_paused`
    (it is read seldom, until it is reset) and `gpu_resumed`,
    `driver_down`, `driver_up`, `driver_reloaded`, `clocks_down`, `clocks_free`, `mig_changed`,
    `recovery_action`, `collector_started`, `collector_stopped`, `ticks_skipped`, `ring_down`,
    `ring_up`, `name_in_use` (another collector uses the node's name), `command_refused`,
    `mount`, `service` and `part` (a drive, memory module or PCI device; one began to fail, counted errors or is well
    again: `data.unit` names it, `data.metric` the reading that it is part of, `data.server` who serves a mount), `task_failed` and `task_works` (a task or
    thread of the collector, `data.task`), `check` (results of `kilowatch check --full`, `data.measured`),
    `driver_log` (a statement of the driver that is no XID, `data.what` is its name in
    `telemetry/statements`; or the state of the reader of the kernel's log), `node_log` (a statement of the kernel
    about another part of the node, `data.unit` is the part that it names), `xid_repeated`,
    `sxid_repeated`, `gpu_lost_repeated`, `driver_log_repeated`, `node_log_repeated` (how often a fault came again in its
    minute, `data.count`; no new fault), `fault` (simulated); of the aggregator `recovery` (a step
    of `kilowatch recover`, `data.step`)."""
    gpu: str | None = None
    """UUID."""
    pci: str | None = None
    message: str = ""
    data: dict[str, Any] = {}
