"""Plans: the electrical state at supposed watts, evaluated by the rules of the live cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import msgspec
import numpy as np

from api.power import BudgetPlan, Cap, CircuitPlan, NodePlan, PlanResult, SnapshotKind
from power.devices.breaker import EDGES
from power.devices.catalogue import SYSTEM_BY_ID, counted_models, key_of
from power.devices.supply import set_load
from power.devices.thermal import Heat, steady
from power.network.contingency import Contingency, LossKind, contingencies_of
from power.network.graph import build_graph
from power.network.switching import state_after
from power.network.topology import SiteTopology, build_topology
from power.plan.cords import cords_into
from power.plan.dead_supplies import check as check_supplies
from power.plan.dead_supplies import separated as dead_supplies_of
from power.plan.dead_supplies import unnumbered, unplugged
from power.plan.losses import limits_of, losses_of
from power.plan.planned_state import PlannedState, evaluate
from power.plan.remedy import RemedyPart, cap_of
from power.site.ceilings import Ceiling, ceilings
from power.site.config import NodeConfig, PowerConfig, UpsConfig
from power.site.cords import cord_notices, supply_notices
from power.site.layout import Circuit, Plugged, SiteLayout, lay_out
from power.site.machine import Machine
from power.site.plausible import CAP, POWER, PRELOAD
from power.snapshot.documents import plain
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import POLES, Flags, Floats
from present.circuit.verdict import verdict
from present.units import exact_watts
from telemetry.errors import ConfigError, did_you_mean

_INVERTER = 0.9
"""Output over what is drawn from batteries; more at half load, less at little."""
MOST_ADDED = 1_000
"""Most machines that a plan may add, so that it does not keep a cluster waiting."""


@dataclass(frozen=True, slots=True)
class Suppose:
    """Assumptions of a plan that differ from the configuration."""

    watts: Mapping[str, float] = field(default_factory=dict)
    """Watts at the wall by node; others draw their power commitment."""
    add: Sequence[tuple[str, str]] = ()
    """(`MODEL:N`, several joined by commas, where its cords go: `power.plan.cords`)."""
    cap: float | None = None
    """Enforced watts per GPU."""
    lose: Sequence[str] = ()
    """Circuits, panels or sources that are off."""
    move: Mapping[str, str] = field(default_factory=dict)
    """Where the cords go, by node."""
    preload: float = 0.0
    """Load over rating that the breakers have carried for hours."""


FiringIds = Callable[[Sequence[PowerSnapshot]], Mapping[SnapshotKind, Mapping[str, Sequence[str]]]]
"""Ids of the rules that fire on each row of some snapshots: `alerts.engine.instant.firing_ids`."""


def make(where: str, site: PowerConfig, suppose: Suppose, rules: FiringIds, heat: Heat | None = None) -> PlanResult:
    """Return the plan. Raises `ConfigError` for what does not exist, with the nearest that does, and
    for what can't be.

    `rules` evaluates the planned snapshots. `heat`: of every circuit of the site's layout, where known;
    else that of `preload`.
    """
    _check(suppose)
    changed = _changed(site, suppose)
    dead_supplies, lose = dead_supplies_of(suppose.lose, changed)
    if dead_supplies:
        check_supplies(dead_supplies, lay_out(where, changed).machines)
        changed = unplugged(changed, dead_supplies)
    layout = lay_out(where, changed)
    topology = build_topology(layout)
    machines = layout.machines
    if suppose.cap is not None:
        machines = {name: m.capped(suppose.cap) for name, m in machines.items()}
    for name in suppose.watts:
        _known("--watts", name, machines)
    off = {name for name, numbers in dead_supplies.items() if len(numbers) == machines[name].supplies}
    given = np.array([0.0 if n in off else suppose.watts.get(n, m.committed_watts) for n, m in machines.items()])
    committed = np.array([m.committed_watts if m.planned else suppose.watts.get(n, 0.0) for n, m in machines.items()])
    graph = build_graph(layout, topology)
    for name in lose:
        _known("--lose", name, graph.elements)
    switching = state_after(graph, lose)
    contingencies = contingencies_of(switching)
    if heat is None:
        heat = steady(np.full(len(topology.network.names), suppose.preload))
    known = np.array([m.planned for m in machines.values()], dtype=bool)
    state = evaluate(topology, given, committed, known=known, contingencies=contingencies, heat=heat)
    dead = {name for name, off in zip(layout.circuits, switching.dead, strict=True) if off}
    nodes, budgets = (
        _nodes(layout, given, state.machine_watts, committed, dead, switching.dark, dead_supplies),
        _budgets(layout, state.now.watts),
    )
    limits = list(limits_of(state.outcome))
    ids = rules([
        state.snapshot,
        _snapshot(SnapshotKind.SUPPLY, "supply_load_ratio", {n.id: n.supply_load for n in nodes}),
        _snapshot(SnapshotKind.UPS, "ups_load_ratio", {
            one.id: one.load_ratio for one in limits if one.id in layout.site.ups
        }, {one.id: one.survivor_ratio for one in limits if one.id in layout.site.ups}),
        _snapshot(SnapshotKind.BUDGET, "budget_level_ratio", {
            ceiling.name: ceiling.level(plan.kw / ceiling.kw) for ceiling, plan in budgets
        }),
    ])  # fmt: skip
    silent = [n for n, m in machines.items() if not m.planned and n not in suppose.watts]
    plans = {
        circuit.id: _circuit(
            circuit,
            index,
            topology,
            list(machines.values()),
            state,
            dead,
            state.outcome.loss_name(int(state.survivor_case[index]), index),
            list(ids[SnapshotKind.CIRCUIT].get(circuit.id, ())),
            silent,
        )
        for index, circuit in enumerate(layout.circuits.values())
    }
    stale = _overloads(layout, layout.machines)  # without what is supposed
    overloads = _overloads(layout, machines)
    result = PlanResult(
        circuits=[p for name, p in plans.items() if not layout.circuits[name].is_panel],
        panels=[p for name, p in plans.items() if layout.circuits[name].is_panel],
        nodes=[
            msgspec.structs.replace(
                plan, supply_load=_finite(plan.supply_load), alerts=list(ids[SnapshotKind.SUPPLY].get(plan.id, ()))
            )
            for plan in nodes
        ],
        budgets=[
            msgspec.structs.replace(plan, kw=round(plan.kw, 3), alerts=list(ids[SnapshotKind.BUDGET].get(plan.id, ())))
            for _, plan in budgets
        ],
        limits=[
            msgspec.structs.replace(
                one,
                alerts=list(ids[SnapshotKind.UPS].get(one.id, ())),
                battery_seconds=_battery_seconds(layout.site.ups.get(one.id), one.watts),
            )
            for one in limits
        ],
        losses=losses_of(layout, state.outcome),
        unknown=silent,
        overloads=overloads,
        notices=[
            *(text for text in layout.notices if text not in stale),
            *overloads,
            *_together(layout, contingencies.cases),
            *_too_low(suppose.cap, machines),
            *unnumbered(layout, dead_supplies),
            *(
                f"nodes.{n}: its draw is not known and counts as nothing here; write gpus, profile or watts, or give --watts {n}=W"
                for n in silent
            ),
        ],
    )
    holds, words = verdict(result)
    return msgspec.structs.replace(result, holds=holds, verdict=words)


def _overloads(layout: SiteLayout, machines: Mapping[str, Machine]) -> list[str]:
    parts = layout.circuits, machines, layout.cords
    return [*cord_notices(*parts), *supply_notices(*parts)]


def _check(suppose: Suppose) -> None:
    for node, watts in suppose.watts.items():
        if not (math.isfinite(watts) and watts >= 0):
            raise ConfigError(f"--watts {node}", f"{watts:g} is no power", f"Write {node}=2500.")
        POWER.check(f"--watts {node}", watts, f"{node}={{}}")
    if suppose.cap is not None and not (math.isfinite(suppose.cap) and suppose.cap > 0):
        raise ConfigError("--cap", f"{suppose.cap:g} is no power limit", "Write watts per GPU: 300.")
    if suppose.cap is not None:
        CAP.check("--cap", suppose.cap, "--cap {}")
    PRELOAD.check("--preload", suppose.preload, "--preload {}")
    added = sum(n for what, _ in suppose.add for n, _ in counted_models("--add", what))
    if added > MOST_ADDED:
        raise ConfigError(
            "--add",
            f"{added:,} devices are more than {MOST_ADDED:,}",
            "Add fewer, or write them into a configuration of their own.",
        )


def _changed(site: PowerConfig, suppose: Suppose) -> PowerConfig:
    nodes, circuits = dict(site.nodes), dict(site.circuits)
    for node, target in suppose.move.items():
        cords = cords_into("--move", target, site)
        listed = [name for name, c in circuits.items() if node in c.nodes]
        if node not in nodes and not listed:
            _known("--move", node, [*nodes, *(n for c in circuits.values() for n in c.nodes)])
        for name in listed:
            left = tuple(n for n in circuits[name].nodes if n != node)
            circuits[name] = msgspec.structs.replace(circuits[name], nodes=left)
        nodes[node] = msgspec.structs.replace(nodes.get(node, NodeConfig()), cords=cords)
    for number, (what, target) in enumerate(suppose.add, 1):
        cords = cords_into("--add", target, site)
        parts = counted_models("--add", what)
        count, model = parts[0]
        systems = key_of(model) in SYSTEM_BY_ID
        for copy in range(count if systems else 1):
            new = (
                NodeConfig(profile=model)
                if systems
                else NodeConfig(gpus=tuple(f"{n}x {name}" for n, name in parts), host_watts=0.0)
            )
            name = f"added-{number}" if copy == 0 else f"added-{number}-{copy + 1}"
            nodes[name] = msgspec.structs.replace(new, cords=cords)
    return msgspec.structs.replace(site, nodes=nodes, circuits=circuits)


def _known(where: str, name: str, names: Mapping[str, object] | Sequence[str]) -> None:
    if name not in names:
        cure = did_you_mean(name, names) or f"Known: {', '.join(names)}."
        raise ConfigError(where, f"there is no {name!r}", cure)


def _together(layout: SiteLayout, cases: Sequence[Contingency]) -> list[str]:
    """Return notices of nodes on redundant feeds that are dark without one element further up; of feeds on one
    panel and from one source the layout says so itself."""
    feeds: dict[str, set[str]] = {}
    for cord in layout.cords:
        if layout.circuits[cord.circuit].group is not None:
            feeds.setdefault(cord.machine, set()).add(cord.circuit)
    names, noted, notices = list(layout.machines), set[str](), []
    for case in cases:
        lost = case.lost[0]
        if case.kind is not LossKind.ELEMENT or lost not in layout.circuits:
            continue
        dark = [names[machine] for machine in case.unfed if len(feeds.get(names[machine], ())) > 1]
        parents = {layout.circuits[c].parent for name in dark[:1] for c in feeds[name]} | noted
        if dark and lost not in parents and dark[0] not in noted:
            noted |= set(dark)
            more = f" and {len(dark) - 1} more" if len(dark) > 1 else ""
            loses = "it loses all of its" if not more else f"it{more} lose all of their"
            notices.append(f"nodes.{dark[0]}: {loses} redundant feeds with {lost}: not independent")
    return notices


def _too_low(cap: float | None, machines: Mapping[str, Machine]) -> list[str]:
    """Return notices of cards that do not accept a cap and are planned with their lowest one."""
    if cap is None:
        return []
    floors: dict[float, list[str]] = {}
    for name, machine in machines.items():
        if machine.gpus and machine.floor_watts is not None and cap < machine.floor_watts:
            floors.setdefault(machine.floor_watts, []).append(name)
    return [
        f"--cap {cap:g}: the cards of {', '.join(names)} take no less than {exact_watts(floor)}, and are planned with that"
        for floor, names in floors.items()
    ]


def _circuit(
    circuit: Circuit,
    index: int,
    topology: SiteTopology,
    machines: Sequence[Machine],
    state: PlannedState,
    dead: AbstractSet[str],
    loss: str | None,
    alerts: list[str],
    silent: Sequence[str],
) -> CircuitPlan:
    amps = state.now.amps[index]
    survivor = float(state.survivor_amps[index])
    seconds = [float(s) for s in state.trip_seconds[index]]
    return CircuitPlan(
        id=circuit.id,
        watts=round(float(state.now.watts[index]), 1),
        amps={POLES[pole]: round(float(amps[pole]), 3) for pole in circuit.poles},
        neutral_amps=round(float(state.neutral[index]), 3) if len(circuit.poles) > 1 else None,
        rated_amps=plain(circuit.rated_amps, 3),
        continuous_amps=plain(circuit.continuous_amps, 3),
        load_ratio=round(float(amps.max()) / circuit.rated_amps, 4),
        trip_known=circuit.curve is not None and circuit.band.known,
        trip_seconds={e: round(s, 1) if np.isfinite(s) else None for e, s in zip(EDGES, seconds, strict=True)},
        committed_watts=round(float(state.committed.watts[index]), 1),
        survivor_amps=round(survivor, 3) if np.isfinite(survivor) else None,
        survivor_loss=loss,
        alerts=alerts,
        cap=_cap(circuit, index, topology, machines, state, failing="E08" in alerts)
        if {"E02", "E03", "E04", "E07", "E08"} & set(alerts)
        else None,
        lost=circuit.id in dead,
        unknown=_unknown(topology, index, silent) if silent else [],
    )


def _unknown(topology: SiteTopology, index: int, silent: Sequence[str]) -> list[str]:
    """Return which nodes of unknown draw have a cord below a circuit."""
    part = slice(topology.starts[index], topology.starts[index + 1])
    below = {topology.network.machines[machine] for machine in topology.below[1][part]}
    return [name for name in silent if name in below]


def _cap(
    circuit: Circuit,
    index: int,
    topology: SiteTopology,
    machines: Sequence[Machine],
    state: PlannedState,
    *,
    failing: bool,
) -> Cap | None:
    """Return the cap that brings a circuit below its limit. Watts are assumed to scale with amps."""
    watts, amps = float(state.committed.watts[index]), float(state.committed.highest[index])
    if amps == 0:
        return None
    part = slice(topology.starts[index], topology.starts[index + 1])
    shares = topology.below[2][part]
    if failing:  # when the other feeds are lost, all machines of the group draw from this one
        shares = np.ones(len(shares))
    parts = [
        RemedyPart(
            float(share),
            tuple((part.count, part.limit_watts) for part in machine.parts),
            machine.wall,
            machine.floor_watts,
            tuple(part.card.name for part in machine.parts),
        )
        for machine, share in zip((machines[k] for k in topology.below[1][part]), shares, strict=True)
    ]
    other = watts - float(sum(p.at(p.limit_watts) for p in parts))
    if failing:
        other = float(topology.other_below[index])
    return cap_of(circuit, parts, watts * circuit.continuous_amps / amps - other, amps / watts)


def _nodes(
    layout: SiteLayout,
    usual: Floats,
    watts: Floats,
    committed: Floats,
    dead: AbstractSet[str],
    unfed: Flags,
    dead_supplies: Mapping[str, AbstractSet[int]],
) -> list[NodePlan]:
    """Return the plan of each node, not yet rounded nor evaluated. `usual`: watts while all supplies have
    power; `unfed`: whether it has none; `dead_supplies`: numbers of those that have failed themselves."""
    plans = []
    by_machine: dict[str, list[Plugged]] = {}
    for cord in layout.cords:
        by_machine.setdefault(cord.machine, []).append(cord)
    for index, machine in enumerate(layout.machines.values()):
        cords = by_machine[machine.id]
        gone = [cord for cord in cords if cord.circuit in dead]
        failed = len(dead_supplies.get(machine.id, ()))
        dark = len(gone) == len(cords) or bool(unfed[index]) or failed == machine.supplies
        load = None
        if machine.supply_watts is not None:
            each = (machine.supplies - failed) / len(cords)
            lost_supplies = sum(each if c.supplies is None else c.supplies for c in gone)
            working = machine.supplies - failed - round(lost_supplies)
            dc = 0.0 if dark else machine.dc(float(usual[index]))
            load = 0.0 if dark else set_load(dc, machine.supply_watts, working, machine.needed)
        plans.append(
            NodePlan(
                id=machine.id,
                watts=0.0 if dark else round(float(watts[index]), 1),
                committed_watts=round(float(committed[index]), 1),
                supply_load=load,
                alerts=[],
                dark=dark,
            )
        )
    return plans


def _budgets(layout: SiteLayout, watts: Floats) -> list[tuple[Ceiling, BudgetPlan]]:
    by_circuit = dict(zip(layout.circuits, watts.tolist(), strict=True))
    found = []
    for ceiling in ceilings(layout):
        kw = sum(by_circuit[name] for name in ceiling.circuits) / 1000
        limit = None if math.isnan(ceiling.kw) else ceiling.kw
        found.append((ceiling, BudgetPlan(id=ceiling.name, kw=kw, limit_kw=limit, alerts=[])))
    return found


def _snapshot(
    kind: SnapshotKind,
    quantity: str,
    rows: Mapping[str, float | None],
    survivors: Mapping[str, float | None] | None = None,
) -> PowerSnapshot:
    values = [math.nan if value is None else value for value in rows.values()]
    columns = {quantity: np.array(values)}
    if survivors is not None:
        columns["ups_survivor_ratio"] = np.array([math.nan if x is None else x for x in survivors.values()])
    return PowerSnapshot(kind, 0, tuple(rows), columns)


def _battery_seconds(ups: UpsConfig | None, watts: float) -> float | None:
    """Return for how long a UPS carries a load from new batteries."""
    if ups is None or ups.battery_wh is None or watts <= 0:
        return None
    return round(3600 * ups.battery_wh * _INVERTER / watts)


def _finite(load: float | None) -> float | None:
    return round(load, 3) if load is not None and math.isfinite(load) else None
