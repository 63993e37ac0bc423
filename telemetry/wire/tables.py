"""The kinds of tables: which devices of an inventory are the rows of each, and how a row is named everywhere.

Frames, the fleet, the store, rules, history, the pages of metrics, OTLP and the API ask this list which rows a node has,
in the order of its inventory, and how each is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from telemetry.devices import INSTANCE_PREFIX, PORT_PREFIX, Gpu, Link, MigInstance, Port
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory

Labels = Mapping[str, str | None]


class StoredName(NamedTuple):
    """The number and name of a device that are stored beside its key, to show it when it is gone."""

    number: int | None
    """Its index or number on the node."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKind:
    """A kind of device whose rows are a table. The defaults are for devices with an `id` and a `name`."""

    table: Table
    noun: str
    """Word for one of its devices."""
    help: str
    """Sentence of docs/metrics.md on its rows."""
    devices: Callable[[Inventory], Sequence[Any]]
    """The devices of a node, in the order of their rows. The device of the table of nodes is the inventory itself."""
    key: Callable[[Any], str] = attrgetter("id")
    """Key of a device, unique within the cluster: the store, rules and requests name it by that."""
    prefix: str = ""
    """Beginning of the keys, which no key of another table has; only GPUs, links and nodes have none."""
    most: int = 1024
    """Highest number of devices of a node, where they have a prefix."""
    owner: Callable[[Any], str] | None = None
    """UUID of the GPU that a device is a part of; None for devices that are part of none."""
    named: Callable[[Inventory, Sequence[Any]], Iterable[StoredName]] = lambda _, devices: (
        StoredName(None, each.name) for each in devices
    )
    """Number and name of each device of a node, in the order of their rows."""
    labels: Callable[[Inventory, Any], Labels]
    """Labels of a device's series in Prometheus, beside those of its node."""
    hardware: Callable[[Inventory, Any], Mapping[str, str | None]] = lambda _, device: {"hw.name": device.name}
    """Attributes of a device in OTLP, beside those of its key and owner."""
    columns: Mapping[str, Callable[[Any], Any]]
    """Fields of `api.columns.ColumnRows` beside `node` and the index of the owner, and how a device fills them."""
    identity: tuple[str, ...] = ("key",)
    """The fields of `columns` that make its key, joined by `/`."""
    stored: Callable[[str, StoredName], Mapping[str, Any]] = lambda key, name: {"key": key, "name": name.text}
    """Values of these fields for a device that is gone, by its key and stored name."""
    usual: tuple[str, ...] = ()
    """Metrics of a request that names none; () for all."""
    has_pages: bool = False
    """Whether pages of its own show its devices; else the page of the node lists them."""

    def keys(self, inventory: Inventory) -> list[str]:
        """Return the keys of a node's devices, in the order of their rows."""
        return [self.key(device) for device in self.devices(inventory)]

    def count(self, inventory: Inventory) -> int:
        """Return how many rows a node has."""
        return len(self.devices(inventory))

    def names(self, inventory: Inventory) -> Iterable[StoredName]:
        """Return number and name of each device of a node, in the order of their rows."""
        return self.named(inventory, self.devices(inventory))


def _link_names(inventory: Inventory, links: Sequence[Link]) -> Iterable[StoredName]:
    models = {gpu.uuid: gpu.name for gpu in inventory.gpus}
    return (StoredName(link.number, models.get(link.gpu, "")) for link in links)


def _owner_labels(inventory: Inventory, uuid: str) -> Labels:
    """Return the labels of a GPU that a device is a part of."""
    index = next((str(gpu.index) for gpu in inventory.gpus if gpu.uuid == uuid), None)
    return {"gpu": index, "uuid": uuid}


def _instance_labels(inventory: Inventory, one: MigInstance) -> Labels:
    """Return the labels that dcgm-exporter gives an instance."""
    return {
        **_owner_labels(inventory, one.gpu),
        "instance_uuid": one.uuid,
        "gpu_instance": str(one.gpu_instance),
        "compute_instance": str(one.compute_instance),
        "profile": one.profile or None,
    }


def _gpu_hardware(inventory: Inventory, gpu: Gpu) -> Labels:
    return {
        "hw.type": "gpu", "hw.name": f"GPU {gpu.index}", "hw.model": gpu.name, "hw.serial_number": gpu.serial,
        "hw.firmware_version": gpu.vbios, "hw.driver_version": inventory.driver_version,
    }  # fmt: skip


def _port_hardware(_: Inventory, port: Port) -> Labels:
    return {
        "hw.type": "network", "hw.name": port.name, "hw.model": port.model,
        "hw.firmware_version": port.firmware, "hw.network.physical_address": port.guid,
    }  # fmt: skip


def _stored_gpu(key: str, name: StoredName) -> Mapping[str, Any]:
    index = -1 if name.number is None else name.number
    return {"gpu": index, "uuid": key, "name": name.text, "present": True}


def _stored_link(key: str, _: StoredName) -> Mapping[str, Any]:
    uuid, number = key.rsplit("/", 1)
    return {"uuid": uuid, "link": int(number), "peer": None}


def _stored_instance(key: str, name: StoredName) -> Mapping[str, Any]:
    uuid, _, text = name.text.partition(" ")
    return {"uuid": uuid, "name": text, "instance": key}


KINDS = {
    kind.table: kind
    for kind in (
        TableKind(
            table=Table.GPU,
            noun="GPU",
            help="One row for each GPU, labelled `cluster`, `node`, `gpu` (index) and `uuid`.",
            devices=attrgetter("gpus"),
            key=attrgetter("uuid"),
            named=lambda _, gpus: (StoredName(gpu.index, gpu.name) for gpu in gpus),
            labels=lambda _, gpu: {"gpu": str(gpu.index), "uuid": gpu.uuid},
            hardware=_gpu_hardware,
            columns={
                "gpu": attrgetter("index"),
                "uuid": attrgetter("uuid"),
                "name": attrgetter("name"),
                "present": attrgetter("present"),
            },
            identity=("uuid",),
            stored=_stored_gpu,
            usual=(
                "gpu_power_watts",
                "gpu_power_limit_watts",
                "gpu_temperature_celsius",
                "gpu_utilization_ratio",
                "gpu_memory_used_bytes",
                "gpu_memory_total_bytes",
            ),
            has_pages=True,
        ),
        TableKind(
            table=Table.LINK,
            noun="link",
            help="One row for each NVLink or xGMI link of each GPU, labelled also `link`.",
            devices=attrgetter("links"),
            key=lambda link: f"{link.gpu}/{link.number}",
            owner=attrgetter("gpu"),
            named=_link_names,
            labels=lambda inventory, link: {**_owner_labels(inventory, link.gpu), "link": str(link.number)},
            hardware=lambda _, __: {"hw.type": "network"},
            columns={
                "uuid": attrgetter("gpu"),
                "link": attrgetter("number"),
                "peer": lambda link: link.peer or link.peer_pci or link.peer_kind,
            },
            identity=("uuid", "link"),
            stored=_stored_link,
            usual=("link_state",),
            has_pages=True,
        ),
        TableKind(
            table=Table.NODE,
            noun="node",
            help="One row for each machine.",
            devices=lambda inventory: (inventory,),
            key=attrgetter("node"),
            named=lambda _, nodes: (StoredName(None, "") for _ in nodes),
            labels=lambda _, __: {},
            hardware=lambda inventory, _: {"hw.name": inventory.node},
            columns={},
            identity=("node",),
            stored=lambda _, __: {},
            usual=("node_wall_power_watts", "node_cpu_utilization_ratio", "node_gpus_answering"),
            has_pages=True,
        ),
        TableKind(
            table=Table.PORT,
            noun="port",
            help="One row for each port of an InfiniBand, RoCE or Ethernet adapter and each bond, labelled `port` (`mlx5_0/1`, "
            "`eno1`); files are below `/sys/class/infiniband/ADAPTER/ports/NUMBER`.",
            devices=attrgetter("ports"),
            prefix=PORT_PREFIX,
            named=lambda _, ports: (StoredName(port.number, port.name) for port in ports),
            labels=lambda _, port: {"port": port.name},
            hardware=_port_hardware,
            columns={"name": attrgetter("name"), "present": attrgetter("present"), "port": attrgetter("id")},
            identity=("port",),
            stored=lambda key, name: {"name": name.text, "present": True, "port": key},
            usual=("port_state", "port_speed_bytes_per_second"),
            has_pages=True,
        ),
        TableKind(
            table=Table.INSTANCE,
            noun="MIG instance",
            help="One row for each MIG instance (NVML's MIG devices), labelled as its GPU and `instance_uuid`, "
            "`gpu_instance`, `compute_instance` and `profile`. On the page with dcgm-exporter's names, memory used and "
            "activity of instances stand in place of their GPU's, with `GPU_I_ID` and `GPU_I_PROFILE`.",
            devices=attrgetter("instances"),
            key=attrgetter("uuid"),
            prefix=INSTANCE_PREFIX,
            most=4096,
            owner=attrgetter("gpu"),
            named=lambda _, found: (StoredName(each.gpu_instance, f"{each.gpu} {each.name}") for each in found),
            labels=_instance_labels,
            hardware=lambda _, one: {"hw.type": "gpu", "hw.name": one.name, "hw.model": one.profile},
            columns={"uuid": attrgetter("gpu"), "name": attrgetter("name"), "instance": attrgetter("uuid")},
            identity=("instance",),
            stored=_stored_instance,
            usual=("instance_memory_used_bytes", "instance_sm_active_ratio"),
            has_pages=True,
        ),
    )
}
"""By table."""
