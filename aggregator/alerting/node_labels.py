"""Labels of nodes for their alerts: the circuits that feed them, and their rack.

They come from the [power] section and the nodes' inventories. A page names both, and alerts of one
circuit or rack are grouped into one incident.
"""

from __future__ import annotations

from collections.abc import Mapping

from power.site.layout import SiteLayout
from telemetry.fleet import Fleet

LabelsByNode = Mapping[str, Mapping[str, str]]
"""By node: its labels."""


class NodeLabels:
    """The labels of all nodes; a new mapping only when a label has changed."""

    def __init__(self) -> None:
        self._labels: LabelsByNode = {}
        self._version = -1
        self._layout: SiteLayout | None = None

    def of(self, fleet: Fleet, layout: SiteLayout | None) -> LabelsByNode:
        """Return the labels of each node that has any."""
        if fleet.version != self._version or layout is not self._layout:
            self._version, self._layout = fleet.version, layout
            found = labels_of(fleet, layout)
            if found != self._labels:
                self._labels = found
        return self._labels


def labels_of(fleet: Fleet, layout: SiteLayout | None) -> LabelsByNode:
    """Return the labels of each node, as far as they are known: `circuits` (the lines that feed it,
    joined by commas) and `rack` (that of a circuit, else of the node's inventory)."""
    found: dict[str, dict[str, str]] = {}
    for name, node in fleet.nodes.items():
        rack = node.inventory.host.get("rack")
        if isinstance(rack, str) and rack:
            found[name] = {"rack": rack}
    if layout is None:
        return found
    for machine, lines in _fed_by(layout).items():
        labels = found.setdefault(machine, {})
        labels["circuits"] = ",".join(lines)
        racks = [circuit.rack for line in lines if (circuit := layout.site.circuits.get(line))]
        rack = next(filter(None, racks), None)
        if rack is not None:
            labels["rack"] = rack
    return found


def _fed_by(layout: SiteLayout) -> dict[str, list[str]]:
    """Return for each machine the lines that its cords hang on, each once."""
    found: dict[str, list[str]] = {}
    for cord in layout.cords:
        lines = found.setdefault(cord.machine, [])
        if cord.circuit not in lines:
            lines.append(cord.circuit)
    return found
