"""Circuits for simulated clusters, and for a machine with minimal settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collector.simulated import Scenario

RACKS_A_PANEL = 8
_AMPLE = 125
"""Amps of a breaker that carries what any scenario hangs on it, with its partner's load too."""


def site_of(cluster: Scenario) -> dict[str, Any]:
    """Return a [power] section for a scenario, so that it has circuits. Their breakers are too small,
    which is a fault too: of a scenario without faults they carry the load."""
    match cluster.name:
        case "desktop-4x5090":
            site = desktop(cluster.nodes)
        case "two-dgx-h100":
            site = _one_feed(cluster)
        case _:
            site = _racks(cluster)
    if not cluster.faults:
        for circuit in site["circuits"].values():
            circuit["breaker"] = max(_AMPLE, circuit["breaker"])
    return site


def desktop(nodes: tuple[str, ...]) -> dict[str, Any]:
    """Return each machine on a 20 A circuit of its own at 120 V, as in a workshop in the US."""
    return {
        "region": "US",
        "site": {"tariff": 0.17},
        "circuits": {
            name: {"breaker": 20, "nodes": [node]}
            for name, node in zip(_names("office", len(nodes)), nodes, strict=True)
        },
        "nodes": {node: {"gpus": "4x RTX 5090", "host_price_usd": 4000} for node in nodes},
    }


def _one_feed(cluster: Scenario) -> dict[str, Any]:
    """Return two machines at 17 kW on one 208 V / 60 A feed: below its rating, above its continuous
    limit."""
    return {
        "region": "US",
        "site": {"tariff": 0.12, "pue": 1.3},
        "circuits": {
            name: {"breaker": 60, "volts": 208, "poles": 3, "wiring": "3ph-wye", "nodes": nodes}
            for name, nodes in zip(_names("rack-feed", -(-len(cluster.nodes) // 2)), _in_pairs(cluster), strict=True)
        },
        "nodes": {node: _machine(cluster) for node in cluster.nodes},
    }


def _racks(cluster: Scenario) -> dict[str, Any]:
    """Return racks with two feeds each, from panels A and B, either of which can carry the rack."""
    racks: dict[str, list[str]] = {}
    for node, rack in zip(cluster.nodes, cluster.racks, strict=True):
        racks.setdefault(rack or "rack", []).append(node)
    panels: dict[str, Any] = {}
    circuits: dict[str, Any] = {}
    for number, rack in enumerate(racks):
        for role in "AB":
            panel = f"panel-{number // RACKS_A_PANEL + 1}-{role}"
            panels[panel] = {"volts": 415, "wiring": "3ph-wye", "breaker": 600, "source": f"utility-{role}"}
            circuits[f"{rack}-{role}"] = {
                "panel": panel,
                "rack": rack,
                "breaker": 80,
                "poles": 3,
                "redundancy": {"group": rack, "role": role, "scheme": "2N"},
            }
    cords = {
        node: [{"psu": "1-3", "circuit": f"{rack}-A"}, {"psu": "4-6", "circuit": f"{rack}-B"}]
        for rack, nodes in racks.items()
        for node in nodes
    }
    return {
        "region": "US",
        "site": {"tariff": 0.12, "pue": 1.3},
        "panels": panels,
        "circuits": circuits,
        "nodes": {node: {**_machine(cluster), "cords": its} for node, its in cords.items()},
    }


def _machine(cluster: Scenario) -> dict[str, Any]:
    """Return a complete system, or one with the scenario's number of GPUs."""
    if cluster.gpus == 8:
        return {"profile": "dgx-h100"}
    return {"gpus": f"{cluster.gpus}x H100 SXM", "host_watts": 4000}


def _names(word: str, count: int) -> list[str]:
    return [word] if count == 1 else [f"{word}-{number + 1}" for number in range(count)]


def _in_pairs(cluster: Scenario) -> list[list[str]]:
    nodes = list(cluster.nodes)
    return [nodes[first : first + 2] for first in range(0, len(nodes), 2)]


def plugged(tree: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return a [power] section with this machine on the only circuit, if it names no machine."""
    circuits = tree.get("circuits")
    if not isinstance(circuits, dict) or len(circuits) != 1 or tree.get("nodes"):
        return dict(tree)
    ((name, circuit),) = circuits.items()
    if not isinstance(circuit, dict) or "nodes" in circuit:
        return dict(tree)
    return {**tree, "circuits": {name: {**circuit, "nodes": [node]}}}
