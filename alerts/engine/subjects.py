"""Subject of a row: a device of the fleet or a row of a snapshot; and its facts for an alert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api.alerts import Subject
from api.power import SnapshotKind
from present.device.gpu import gpu_name
from telemetry.devices import Gpu
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.tables import KINDS


@dataclass(frozen=True, slots=True)
class DeviceSubject:
    """A device in a row of the fleet."""

    inventory: Inventory
    table: Table
    position: int
    """In the inventory's list of its table."""


@dataclass(frozen=True, slots=True)
class SnapshotSubject:
    """A row of a snapshot."""

    kind: SnapshotKind
    name: str
    facts: Mapping[str, str] = field(default_factory=dict)


RowSubject = DeviceSubject | SnapshotSubject


@dataclass(frozen=True, slots=True)
class SubjectInfo:
    """Place and facts of an alert's subject, whatever the verdict."""

    subject: Subject
    holder: str
    """Second part of the alert's key: the node, or the kind of a snapshot's row."""
    device: str
    """Last part of the alert's key: a UUID, `uuid/link`, a port's identity, `node`, or the name of a snapshot's row."""
    node: str
    """Empty for a row of a snapshot."""
    name: str
    """Empty for a device."""
    where: str
    """Place as text: `dgx-01 GPU 3 link 7`."""
    gpu: Gpu | None
    labels: dict[str, str]
    facts: Mapping[str, str]
    """Facts that a rule's texts may name beside the usual fields."""


def subject_info(
    subject: RowSubject, node_labels: Mapping[str, Mapping[str, str]], job: Mapping[str, str]
) -> SubjectInfo:
    """Return the facts of a row's subject. `node_labels`: labels of the nodes from elsewhere; `job`: those
    of the job that has it."""
    if isinstance(subject, SnapshotSubject):
        return _snapshot_info(subject)
    inventory = subject.inventory
    gpu, where = gpu_and_place(subject)
    labels = {"cluster": inventory.cluster, **node_labels.get(inventory.node, {}), **job}
    if gpu is not None:
        facts = {
            "gpu": str(gpu.index),
            "uuid": gpu.uuid,
            "serial": gpu.serial,
            "pci": gpu.pci,
            "slot": gpu.slot,
            "model": gpu.name,
        }
        labels |= {name: fact for name, fact in facts.items() if fact}
        if gpu.fabric_cluster is not None:
            labels.setdefault("domain", f"{gpu.fabric_cluster}.{gpu.fabric_clique}")
    kind = KINDS[subject.table]
    its = kind.labels(inventory, kind.devices(inventory)[subject.position])
    labels |= {name: fact for name, fact in its.items() if fact}
    if subject.table is Table.PORT:
        port = inventory.ports[subject.position]
        of_port = {
            "pci": port.pci,
            "role": port.role,
            "rail": None if port.rail is None else str(port.rail),
            "switch": port.switch,
            "switch_port": port.switch_port,
        }
        labels |= {name: fact for name, fact in of_port.items() if fact}
    return SubjectInfo(
        Subject(subject.table), inventory.node, _device(subject), inventory.node, "", where, gpu, labels, {}
    )


def _snapshot_info(subject: SnapshotSubject) -> SubjectInfo:
    kind, name, facts = subject.kind, subject.name, subject.facts
    if kind is not SnapshotKind.MONITOR:
        labels = {**facts, "name": name, str(kind): name}
        return SubjectInfo(Subject(kind), str(kind), name, "", name, f"{kind} {name}", None, labels, facts)
    holder, _, device = name.partition("/")
    labels = {label: facts[label] for label in ("cluster", "channel") if label in facts}
    node, shown = facts.get("node", ""), facts.get("name", "")
    return SubjectInfo(Subject.NODE, holder, device, node, shown, shown, None, labels, facts)


def _device(subject: DeviceSubject) -> str:
    if subject.table is Table.NODE:
        return "node"
    kind = KINDS[subject.table]
    return kind.key(kind.devices(subject.inventory)[subject.position])


def gpu_and_place(subject: DeviceSubject) -> tuple[Gpu | None, str]:
    """Return the GPU of a device, None for one that is of none, and its place as text."""
    inventory = subject.inventory
    match subject.table:
        case Table.NODE:
            return None, inventory.node
        case Table.GPU:
            gpu = inventory.gpus[subject.position]
            return gpu, gpu_name(inventory.node, gpu.index)
        case Table.LINK:
            link = inventory.links[subject.position]
            owner = next((one for one in inventory.gpus if one.uuid == link.gpu), None)
            index = "?" if owner is None else owner.index
            return owner, f"{gpu_name(inventory.node, index)} link {link.number}"
        case Table.INSTANCE:
            instance = inventory.instances[subject.position]
            owner = next((one for one in inventory.gpus if one.uuid == instance.gpu), None)
            index = "?" if owner is None else owner.index
            return owner, f"{gpu_name(inventory.node, index)} MIG {instance.name}"
        case _:
            kind = KINDS[subject.table]
            device = kind.devices(inventory)[subject.position]
            return None, f"{inventory.node} {kind.noun} {device.name}"
