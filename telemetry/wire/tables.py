"""The kinds of tables: which devices of an inventory are the rows of each, and how a row is named everywhere.

Frames, the fleet, the store, rules, history and the page of metrics ask this list which rows a node has, in the order of
its inventory. Stores in other databases, OTLP and the columns of the API still name each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from telemetry.metric import Table
from telemetry.wire.inventory import Inventory


class StoredName(NamedTuple):
    """The number and name of a device that are stored beside its key, to show it when it is gone."""

    number: int | None
    """Its index or number on the node."""
    text: str


@dataclass(frozen=True, slots=True)
class TableKind:
    """A kind of device whose rows are a table."""

    table: Table
    devices: Callable[[Inventory], Sequence[Any]]
    """The devices of a node, in the order of their rows. The device of the table of nodes is the inventory itself."""
    key: Callable[[Any], str]
    """Key of a device, unique within the cluster: the store, rules and requests name it by that."""
    named: Callable[[Inventory], Iterable[StoredName]]
    """Number and name of each device of a node, in the order of their rows."""

    def keys(self, inventory: Inventory) -> list[str]:
        """Return the keys of a node's devices, in the order of their rows."""
        return [self.key(device) for device in self.devices(inventory)]

    def count(self, inventory: Inventory) -> int:
        """Return how many rows a node has."""
        return len(self.devices(inventory))


def _of_links(inventory: Inventory) -> Iterable[StoredName]:
    models = {gpu.uuid: gpu.name for gpu in inventory.gpus}
    return (StoredName(link.number, models.get(link.gpu, "")) for link in inventory.links)


KINDS = {
    kind.table: kind
    for kind in (
        TableKind(
            Table.GPU,
            lambda inventory: inventory.gpus,
            lambda gpu: gpu.uuid,
            lambda inventory: (StoredName(gpu.index, gpu.name) for gpu in inventory.gpus),
        ),
        TableKind(
            Table.LINK,
            lambda inventory: inventory.links,
            lambda link: f"{link.gpu}/{link.number}",
            _of_links,
        ),
        TableKind(
            Table.NODE,
            lambda inventory: (inventory,),
            lambda inventory: inventory.node,
            lambda _: (StoredName(None, ""),),
        ),
        TableKind(
            Table.PORT,
            lambda inventory: inventory.ports,
            lambda port: port.id,
            lambda inventory: (StoredName(port.number, port.name) for port in inventory.ports),
        ),
        TableKind(
            Table.INSTANCE,
            lambda inventory: inventory.instances,
            lambda instance: instance.uuid,
            lambda inventory: (
                StoredName(each.gpu_instance, f"{each.gpu} {each.name}")
                for each in inventory.instances
            ),
        ),
    )
}
"""By table."""
