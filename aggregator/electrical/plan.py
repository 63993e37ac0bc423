"""Plans on a running cluster: present power, limits in force and present breaker heat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from aggregator.electrical.service import ElectricalService
from aggregator.electrical.site_loader import WHERE
from alerts.engine.instant import firing_ids
from alerts.rules.rule import Rule
from api.power import PlanResult
from power.plan.plan import Suppose, make
from power.report.cluster_parts import card_named
from power.site.config import NodeConfig, PowerConfig
from power.site.layout import lay_out
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.inventory import Inventory


def live_plan(
    electrical: ElectricalService, fleet: Fleet, suppose: Suppose, rules: Sequence[Rule]
) -> PlanResult:
    """Return the plan from the present state, evaluated by `rules`; watts in `suppose` replace what a
    node draws now. Raises `ConfigError` for what does not exist."""
    if electrical.site.layout is None:
        raise ConfigError(WHERE, "there is no circuit", "Write [power.circuits.office] and breaker = 15.")  # fmt: skip
    site = _as_it_is(electrical.site.config, fleet)
    drawn = _drawn(electrical)
    if suppose.cap is not None:
        machines = lay_out(WHERE, site).machines
        most = {name: m.capped(suppose.cap).committed_watts for name, m in machines.items() if m.known}  # fmt: skip
        drawn = {name: min(watts, most.get(name, math.inf)) for name, watts in drawn.items()}
    supposed = Suppose(
        watts={**drawn, **suppose.watts},
        add=suppose.add,
        cap=suppose.cap,
        lose=suppose.lose,
        move=suppose.move,
    )
    return make(WHERE, site, supposed, partial(firing_ids, rules), electrical.heat())


def _drawn(electrical: ElectricalService) -> dict[str, float]:
    snapshots = electrical.latest
    if snapshots is None:
        return {}
    watts = snapshots.supply.column("supply_wall_watts").tolist()
    pairs = zip(snapshots.supply.names, watts, strict=True)
    return {name: value for name, value in pairs if math.isfinite(value)}


def _as_it_is(site: PowerConfig, fleet: Fleet) -> PowerConfig:
    """Return the site with the GPUs and the limits in force of the nodes' inventories."""
    listed = {name for circuit in site.circuits.values() for name in circuit.nodes}
    nodes: Mapping[str, NodeConfig] = {**dict.fromkeys(listed, NodeConfig()), **site.nodes}
    found = {
        name: _from_inventory(node, fleet.nodes[name].inventory) if name in fleet.nodes else node
        for name, node in nodes.items()
    }
    return msgspec.structs.replace(site, nodes=found)


def _from_inventory(node: NodeConfig, inventory: Inventory) -> NodeConfig:
    models = {gpu.name for gpu in inventory.gpus}
    limits = [gpu.power_limit_watts for gpu in inventory.gpus if gpu.power_limit_watts is not None]
    cap = max(limits) if limits else node.cap_watts
    if node.profile is not None or node.gpus is not None:
        return msgspec.structs.replace(node, cap_watts=cap)
    card = card_named(next(iter(models))) if len(models) == 1 else None
    if card is None or node.watts is not None:
        return node
    return msgspec.structs.replace(node, gpus=f"{len(inventory.gpus)}x {card.id}", cap_watts=cap)
