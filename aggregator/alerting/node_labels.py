"""Where nodes stand, for alerts about them: the circuits that feed them, and their rack.

Readings say nothing of it; the [power] section and the nodes' inventories do. A page names both, and
what hangs on one circuit or stands in one rack is told together.
"""

from __future__ import annotations

from collections.abc import Mapping

from power.site.layout import SiteLayout
from telemetry.fleet import Fleet

Places = Mapping[str, Mapping[str, str]]
"""By node: its labels."""


class NodeLabels:
    """The labels of all nodes; another mapping only when something has moved."""

    def __init__(self) -> None:
        self._places: Places = {}
        self._version = -1
        self._layout: SiteLayout | None = None

    def of(self, fleet: Fleet, layout: SiteLayout | None) -> Places:
        """Return the labels of each node of which there is something to say."""
        if fleet.version != self._version or layout is not self._layout:
            self._version, self._layout = fleet.version, layout
            found = places(fleet, layout)
            if found != self._places:
                self._places = found
        return self._places


def places(fleet: Fleet, layout: SiteLayout | None) -> Places:
    """Return `circuits` (the lines that its cords hang on, joined by commas) and `rack` (that of the
    circuit, else what the node itself says) of each node, those known."""
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
