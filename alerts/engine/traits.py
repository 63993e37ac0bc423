"""Traits of each node, for a comparison of those that fail with the rest of the fleet."""

from __future__ import annotations

from collections.abc import Mapping

from telemetry.fleet import Fleet
from telemetry.wire.inventory import Inventory

_NO_TRAIT = frozenset({"cluster", "user", "account", "job"})
"""Labels that say nothing of a cause, or that not everybody may read: titles quote traits."""


def traits_of(fleet: Fleet, labels: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """Return by node what it is: rack, circuits, switches, driver, firmware and model. `labels`: of the nodes from
    elsewhere."""
    return {name: _traits(node.inventory, labels.get(name, {})) for name, node in fleet.nodes.items()}


def _traits(inventory: Inventory, labels: Mapping[str, str]) -> dict[str, list[str]]:
    found = {_singular(name): value.split(",") for name, value in labels.items() if value and name not in _NO_TRAIT}
    gpus, ports = inventory.gpus, inventory.ports
    found |= {
        "driver": [inventory.driver_version or ""],
        "model": [gpu.name for gpu in gpus],
        "VBIOS": [gpu.vbios or "" for gpu in gpus],
        "switch": [port.switch or "" for port in ports],
        "adapter firmware": [port.firmware or "" for port in ports],
    }
    return {name: known for name, values in found.items() if (known := [*filter(None, values)])}


def _singular(name: str) -> str:
    return {"circuits": "circuit"}.get(name, name)
