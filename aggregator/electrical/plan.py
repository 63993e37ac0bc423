"""Plans on a running cluster: present power, limits in force and present breaker heat."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec
import numpy as np

from aggregator.electrical.service import ElectricalService
from aggregator.electrical.site_loader import WHERE
from aggregator.electrical.throughput import cappable
from alerts.engine.instant import firing_ids
from alerts.rules.rule import Rule
from api.power import CapPlan, CapRequest, FitRequest, FitResult, PlanResult
from power.devices.thermal import Heat
from power.plan.caps import plan_caps
from power.plan.fit import fit
from power.plan.plan import Suppose, make
from power.report.cluster_parts import card_named
from power.site.config import CircuitConfig, NodeConfig, PanelConfig, PowerConfig
from power.site.layout import lay_out
from power.site.machine import Machine, lowest_cap
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.wire.inventory import Inventory

_Spec = TypeVar("_Spec", CircuitConfig, PanelConfig)


def live_plan(
    electrical: ElectricalService, fleet: Fleet, suppose: Suppose, rules: Sequence[Rule]
) -> Callable[[], PlanResult]:
    """Return the computation of the plan from the present state, evaluated by `rules`, which may run in a thread
    of its own: feeds that are lost now are lost in it, too. Watts in `suppose` replace what a node draws now.

    It raises `ConfigError` for what does not exist."""
    if electrical.site.layout is None:
        raise ConfigError(WHERE, "there is no circuit", "Write [power.circuits.office] and breaker = 15.")
    site = _with_undeclared(_moved(_as_it_is(electrical.site.config, fleet), electrical), electrical)
    lost = tuple(dict.fromkeys((*_lost(electrical), *suppose.lose)))
    now = Suppose(watts=_drawn(electrical), add=suppose.add, cap=suppose.cap, lose=lost, move=suppose.move)
    return partial(_plan, site, now, suppose.watts, tuple(rules), electrical.heat())


def _plan(
    site: PowerConfig, now: Suppose, watts: Mapping[str, float], rules: Sequence[Rule], heat: Heat | None
) -> PlanResult:
    drawn = now.watts
    if now.cap is not None:
        machines = lay_out(WHERE, site).machines
        drawn = {
            name: _capped(machines[name], each, now.cap) if name in machines else each for name, each in drawn.items()
        }
    supposed = dataclasses.replace(now, watts={**drawn, **watts})
    return make(WHERE, site, supposed, partial(firing_ids, rules), heat)


def _capped(machine: Machine, drawn: float, cap: float) -> float:
    """Return what a node draws with each GPU capped: what it draws beyond its power commitment stays, for no limit
    of a GPU explains it."""
    if not machine.known:
        return drawn
    unexplained = max(0.0, drawn - machine.committed_watts)
    return min(drawn, machine.capped(cap).committed_watts + unexplained)


def live_fit(electrical: ElectricalService, fleet: Fleet, asked: FitRequest) -> Callable[[], FitResult]:
    """Return the search for places in the present site, which may run in a thread of its own: it takes a
    second over a large hall. Undeclared loads that meters have found count as loads of their circuits.

    The search raises `ConfigError` for what does not exist."""
    if electrical.site.layout is None:
        raise ConfigError(WHERE, "there is no circuit", "Write [power.circuits.office] and breaker = 15.")
    site = _with_undeclared(_as_it_is(electrical.site.config, fleet), electrical)
    return partial(fit, WHERE, site, asked, _drawn(electrical))


def live_cap(
    electrical: ElectricalService, fleet: Fleet, asked: CapRequest, now: float, jobs: Mapping[str, str]
) -> Callable[[], CapPlan]:
    """Return the computation of a plan of caps from the limits in force, which may run in a thread of its
    own: a feed that is lost now is lost in it, too. `jobs`: who holds each GPU, by UUID. It raises `ConfigError` for a circuit that does not exist."""
    layout = electrical.site.layout
    if layout is None:
        raise ConfigError(WHERE, "there is no circuit", "Write [power.circuits.office] and breaker = 15.")
    site = _with_undeclared(_moved(_as_it_is(electrical.site.config, fleet), electrical), electrical)
    return partial(
        plan_caps,
        WHERE,
        site,
        asked,
        _drawn(electrical),
        cappable(fleet, layout.machines, now, jobs),
        electrical.throughput.measured(),
        _sigma(electrical, asked.circuit),
        _lost(electrical),
    )


def _sigma(electrical: ElectricalService, circuit: str) -> float | None:
    """Return one standard deviation of a circuit's present watts; None where they are not known."""
    if electrical.latest is None or circuit not in electrical.latest.circuit.names:
        return None
    row = electrical.latest.circuit.names.index(circuit)
    sigma = float(electrical.latest.circuit.column("circuit_sigma_watts")[row])
    return sigma if math.isfinite(sigma) else None


def _with_undeclared(site: PowerConfig, electrical: ElectricalService) -> PowerConfig:
    """Return the site with the undeclared load of each circuit and panel, less that of circuits below it."""
    snapshots, layout = electrical.latest, electrical.site.layout
    if snapshots is None or layout is None:
        return site
    unknown = np.nan_to_num(snapshots.circuit.column("circuit_unknown_watts")).tolist()
    found = dict(zip(snapshots.circuit.names, unknown, strict=True))
    own = {name: max(watts, 0.0) for name, watts in found.items()}
    for name, circuit in layout.circuits.items():
        if circuit.parent is not None and name in found:
            own[circuit.parent] = own.get(circuit.parent, 0.0) - max(found[name], 0.0)

    def more(name: str, spec: _Spec) -> _Spec:
        return msgspec.structs.replace(spec, other_w=spec.other_w + max(own.get(name, 0.0), 0.0))

    return msgspec.structs.replace(
        site,
        circuits={name: more(name, spec) for name, spec in site.circuits.items()},
        panels={name: more(name, spec) for name, spec in site.panels.items()},
    )


def _lost(electrical: ElectricalService) -> tuple[str, ...]:
    """Return the feeds that are lost now."""
    if electrical.latest is None:
        return ()
    circuit = electrical.latest.circuit
    lost = circuit.column("circuit_feed_lost") == 1
    return tuple(name for name, gone in zip(circuit.names, lost.tolist(), strict=True) if gone)


def _moved(site: PowerConfig, electrical: ElectricalService) -> PowerConfig:
    """Return the site with the transfer switches on the inputs that they stand on now."""
    moved = electrical.moved_transfers()
    transfers = {
        name: msgspec.structs.replace(one, preferred=one.alternate, alternate=one.preferred) if name in moved else one
        for name, one in site.transfers.items()
    }
    return msgspec.structs.replace(site, transfers=transfers)


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
        return _accepted(msgspec.structs.replace(node, cap_watts=cap), limits)
    cards = {model: card_named(model) for model in models}
    if not models or None in cards.values() or node.watts is not None:
        return node
    counts = Counter(card.id for gpu in inventory.gpus if (card := cards[gpu.name]) is not None)
    gpus = tuple(f"{count}x {card}" for card, count in counts.items())
    return _accepted(msgspec.structs.replace(node, gpus=gpus, cap_watts=cap), limits)


def _accepted(node: NodeConfig, limits: Sequence[float]) -> NodeConfig:
    """Return a node whose lowest cap is no higher than the limits that its driver has accepted."""
    lowest = lowest_cap(node)
    if lowest is None or not limits or min(limits) >= lowest:
        return node
    return msgspec.structs.replace(node, floor_watts=min(limits))
