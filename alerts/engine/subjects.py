"""What stands in a row: a device of the fleet or a line of a power snapshot; and its facts for an alert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api.alerts import Subject
from api.power import SnapshotKind
from telemetry.inventory import Gpu, Inventory
from telemetry.metric import Table


@dataclass(frozen=True, slots=True)
class DeviceSubject:
    """A row of the fleet."""

    inventory: Inventory
    table: Table
    position: int
    """In the inventory's list of its table."""


@dataclass(frozen=True, slots=True)
class SnapshotSubject:
    """A row of a power snapshot."""

    kind: SnapshotKind
    name: str
    facts: Mapping[str, str] = field(default_factory=dict)


RowSubject = DeviceSubject | SnapshotSubject


@dataclass(frozen=True, slots=True)
class SubjectInfo:
    """Where an alert is: what it says of its subject, whatever the verdict."""

    subject: Subject
    holder: str
    """Second part of the alert's key: the node, or the kind of a snapshot's row."""
    device: str
    """Last part of the alert's key: a UUID, `uuid/link`, `node`, or the name of a snapshot's row."""
    node: str
    """Empty for a row of a snapshot."""
    name: str
    """Empty for a device."""
    where: str
    """In words: `dgx-01 GPU 3 link 7`."""
    gpu: Gpu | None
    labels: dict[str, str]
    facts: Mapping[str, str]
    """What a rule's sentences may name beside the usual fields."""


def place_of(spot: RowSubject, places: Mapping[str, Mapping[str, str]]) -> SubjectInfo:
    """Return the facts of what stands in a row; `places` has those of nodes that others know."""
    if isinstance(spot, SnapshotSubject):
        return _snapshot_info(spot)
    inventory = spot.inventory
    gpu, where = _words(spot)
    labels = {"cluster": inventory.cluster, **places.get(inventory.node, {})}
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
    if spot.table is Table.LINK:
        labels["link"] = str(inventory.links[spot.position].number)
    return SubjectInfo(
        Subject(spot.table),
        inventory.node,
        _device(spot),
        inventory.node,
        "",
        where,
        gpu,
        labels,
        {},
    )


def _snapshot_info(spot: SnapshotSubject) -> SubjectInfo:
    kind, name, facts = spot.kind, spot.name, spot.facts
    if kind is not SnapshotKind.MONITOR:
        labels = {**facts, "name": name, str(kind): name}
        return SubjectInfo(
            Subject(kind), str(kind), name, "", name, f"{kind} {name}", None, labels, facts
        )
    holder, _, device = name.partition("/")
    labels = {label: facts[label] for label in ("cluster", "channel") if label in facts}
    node, shown = facts.get("node", ""), facts.get("name", "")
    return SubjectInfo(Subject.NODE, holder, device, node, shown, shown, None, labels, facts)


def _device(spot: DeviceSubject) -> str:
    match spot.table:
        case Table.NODE:
            return "node"
        case Table.GPU:
            return spot.inventory.gpus[spot.position].uuid
        case Table.LINK:
            link = spot.inventory.links[spot.position]
            return f"{link.gpu}/{link.number}"


def _words(spot: DeviceSubject) -> tuple[Gpu | None, str]:
    """Return the GPU, and the place in words."""
    inventory = spot.inventory
    match spot.table:
        case Table.NODE:
            return None, inventory.node
        case Table.GPU:
            gpu = inventory.gpus[spot.position]
            return gpu, f"{inventory.node} GPU {gpu.index}"
        case Table.LINK:
            link = inventory.links[spot.position]
            owner = next((one for one in inventory.gpus if one.uuid == link.gpu), None)
            index = "?" if owner is None else owner.index
            return owner, f"{inventory.node} GPU {index} link {link.number}"
