"""What an alert says to a person: where it is, and the value in units that people use."""

from __future__ import annotations

from collections.abc import Iterator
from string import Formatter

from alerts.conditions import AnyOf, Condition, Happens, Silent
from alerts.counters import Rate
from telemetry.catalogue import BY_NAME
from telemetry.fleet import Fleet
from telemetry.inventory import Gpu, Inventory, Link
from telemetry.metric import Table, Unit

FIELDS = ("where", "node", "gpu", "uuid", "index", "name", "pci", "serial", "link", "value")
"""What may stand in braces in a rule's `summary` and `description`."""


def fields_of(template: str) -> Iterator[str]:
    """Names in braces. Raises `ValueError` when the braces don't match."""
    for _, name, spec, conversion in Formatter().parse(template):
        if name is not None:
            if spec or conversion:
                raise ValueError(f"{{{name}}} may have no format of its own")
            yield name


def device(inventory: Inventory, table: Table, position: int) -> tuple[str, Gpu | None, str]:
    """Return key, GPU and place in words of the device at a position of an inventory's table."""
    match table:
        case Table.NODE:
            return "node", None, inventory.node
        case Table.GPU:
            gpu = inventory.gpus[position]
            return gpu.uuid, gpu, f"{inventory.node} GPU {gpu.index}"
        case Table.LINK:
            link: Link = inventory.links[position]
            owner = next((one for one in inventory.gpus if one.uuid == link.gpu), None)
            index = "?" if owner is None else owner.index
            return (
                f"{link.gpu}/{link.number}",
                owner,
                f"{inventory.node} GPU {index} link {link.number}",
            )


def position_of(fleet: Fleet, table: Table, row: int) -> tuple[Inventory, int] | None:
    """Return the inventory that a row belongs to and its position there; None for a free row."""
    match table:
        case Table.NODE:
            name = fleet.hosts[row]
        case Table.GPU:
            name = (fleet.gpus[row] or (None,))[0]
        case Table.LINK:
            name = (fleet.links[row] or (None,))[0]
    if name is None:
        return None
    node = fleet.nodes[name]
    return node.inventory, row - node.rows[table].start


def fill(template: str, where: str, node: str, gpu: Gpu | None, value: str) -> str:
    """Put a device's facts into a rule's sentence."""
    unknown = "unknown"
    return template.format(
        where=where,
        node=node,
        gpu=unknown if gpu is None else f"GPU {gpu.index}",
        uuid=unknown if gpu is None else gpu.uuid,
        index=unknown if gpu is None else gpu.index,
        name=unknown if gpu is None else gpu.name,
        pci=(gpu and gpu.pci) or unknown,
        serial=(gpu and gpu.serial) or unknown,
        link=where.rpartition(" ")[2],
        value=value,
    )


def value_text(condition: Condition, value: float | None) -> str:
    """Return a judged value with its unit: `91 °C`, `7.2 %`, `gpu reset`."""
    if value is None:
        return "no reading"
    if isinstance(condition, AnyOf):
        for part in condition.of:
            if not isinstance(part, Happens):
                return value_text(part, value)
        return f"{value:g}"
    if isinstance(condition, Silent):
        return f"{value:.0f} s"
    name = next(condition.metrics(), None)
    if name is None:
        return f"{value:g}"
    metric = BY_NAME[name]
    if isinstance(condition, Rate):
        return f"{100 * value:.1f} %" if metric.unit is Unit.SECONDS else f"{value:.4g}/s"
    match metric.unit:
        case Unit.STATE:
            return dict(metric.states).get(int(value), f"state {value:g}")
        case Unit.CELSIUS:
            return f"{value:g} °C"
        case Unit.WATTS:
            return f"{value:.0f} W"
        case Unit.RATIO:
            return f"{100 * value:.1f} %"
        case Unit.SECONDS:
            return f"{value:g} s"
        case _:
            return f"{value:g}"
