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
from power.devices.catalogue import SYSTEM_BY_ID, counted, key_of
from power.devices.supply import set_load
from power.devices.thermal import Heat, steady
from power.network.topology import SiteTopology, build_topology
from power.network.wiring import POLES, Floats
from power.plan.planned_state import PlannedState, evaluate
from power.plan.remedy import RemedyPart, cap_of
from power.site.ceilings import Ceiling, ceilings
from power.site.config import CordConfig, NodeConfig, PowerConfig
from power.site.layout import Circuit, Plugged, SiteLayout, lay_out
from power.site.machine import Machine
from power.snapshot.documents import plain
from power.snapshot.snapshot import PowerSnapshot
from telemetry.errors import ConfigError, did_you_mean

MOST_ADDED = 1_000
"""Most machines that a plan may add, so that it does not keep a cluster waiting."""


@dataclass(frozen=True, slots=True)
class Suppose:
    """Assumptions of a plan that differ from the configuration."""

    watts: Mapping[str, float] = field(default_factory=dict)
    """Watts at the wall by node; others draw their power commitment."""
    add: Sequence[tuple[str, str]] = ()
    """(`MODEL:N`, circuit)."""
    cap: float | None = None
    """Enforced watts per GPU."""
    lose: Sequence[str] = ()
    """Circuits, panels or sources that are off."""
    move: Mapping[str, str] = field(default_factory=dict)
    """Circuit by node."""
    preload: float = 0.0
    """Load over rating that the breakers have carried for hours."""


FiringIds = Callable[[Sequence[PowerSnapshot]], Mapping[SnapshotKind, Mapping[str, Sequence[str]]]]
"""Ids of the rules that fire on each row of some snapshots: `alerts.engine.instant.firing_ids`."""


def make(
    where: str, site: PowerConfig, suppose: Suppose, rules: FiringIds, heat: Heat | None = None
) -> PlanResult:
    """Return the plan. Raises `ConfigError` for what does not exist, with the nearest that does, and
    for what can't be.

    `rules` evaluates the planned snapshots. `heat`: of every circuit of the site's layout, where known;
    else that of `preload`.
    """
    _check(suppose)
    layout = lay_out(where, _changed(site, suppose))
    topology = build_topology(layout)
    machines = layout.machines
    if suppose.cap is not None:
        machines = {name: m.capped(suppose.cap) for name, m in machines.items()}
    for name in suppose.watts:
        _known("--watts", name, machines)
    given = np.array([suppose.watts.get(n, m.committed_watts) for n, m in machines.items()])
    committed = np.array([
        m.committed_watts if m.known else suppose.watts.get(n, 0.0) for n, m in machines.items()
    ])  # fmt: skip
    lost = frozenset(circuit for name in suppose.lose for circuit in _feeds(name, layout))
    if heat is None:
        heat = steady(np.full(len(topology.network.names), suppose.preload))
    known = np.array([m.known for m in machines.values()], dtype=bool)
    state = evaluate(topology, given, committed, known=known, lost=lost, heat=heat)
    dead = set().union(*(layout.below(name) for name in lost)) if lost else set()
    nodes, budgets = _nodes(layout, given, committed, dead), _budgets(layout, state.now.watts)
    ids = rules([
        state.snapshot,
        _snapshot(SnapshotKind.SUPPLY, "supply_load_ratio", {n.id: n.supply_load for n in nodes}),
        _snapshot(SnapshotKind.BUDGET, "budget_level_ratio", {
            ceiling.name: ceiling.level(plan.kw / ceiling.kw) for ceiling, plan in budgets
        }),
    ])  # fmt: skip
    plans = {
        circuit.id: _circuit(
            circuit, index, topology, list(machines.values()), state, dead,
            list(ids[SnapshotKind.CIRCUIT].get(circuit.id, ())),
        )
        for index, circuit in enumerate(layout.circuits.values())
    }  # fmt: skip
    silent = [n for n, m in machines.items() if not m.known and n not in suppose.watts]
    return PlanResult(
        circuits=[p for name, p in plans.items() if not layout.circuits[name].is_panel],
        panels=[p for name, p in plans.items() if layout.circuits[name].is_panel],
        nodes=[
            msgspec.structs.replace(
                plan,
                supply_load=_finite(plan.supply_load),
                alerts=list(ids[SnapshotKind.SUPPLY].get(plan.id, ())),
            )
            for plan in nodes
        ],
        budgets=[
            msgspec.structs.replace(
                plan, kw=round(plan.kw, 3), alerts=list(ids[SnapshotKind.BUDGET].get(plan.id, ()))
            )
            for _, plan in budgets
        ],
        notices=[
            *layout.notices,
            *_too_low(suppose.cap, machines),
            *(f"nodes.{n}: its draw is not known and counts as nothing here; write gpus, profile or watts, or give --watts {n}=W" for n in silent),
        ],
    )  # fmt: skip


def _check(suppose: Suppose) -> None:
    for node, watts in suppose.watts.items():
        if not (math.isfinite(watts) and watts >= 0):
            raise ConfigError(f"--watts {node}", f"{watts:g} is no power", f"Write {node}=2500.")
    if suppose.cap is not None and not (math.isfinite(suppose.cap) and suppose.cap > 0):
        raise ConfigError(
            "--cap", f"{suppose.cap:g} is no power limit", "Write watts per GPU: 300."
        )
    added = sum(counted("--add", what)[0] for what, _ in suppose.add)
    if added > MOST_ADDED:
        raise ConfigError("--add", f"{added:,} devices are more than {MOST_ADDED:,}", "Add fewer, or "
                          "write them into a configuration of their own.")  # fmt: skip


def _changed(site: PowerConfig, suppose: Suppose) -> PowerConfig:
    nodes, circuits = dict(site.nodes), dict(site.circuits)
    for node, target in suppose.move.items():
        _known("--move", target, circuits)
        listed = [name for name, c in circuits.items() if node in c.nodes]
        if node not in nodes and not listed:
            _known("--move", node, [*nodes, *(n for c in circuits.values() for n in c.nodes)])
        for name in listed:
            left = tuple(n for n in circuits[name].nodes if n != node)
            circuits[name] = msgspec.structs.replace(circuits[name], nodes=left)
        nodes[node] = msgspec.structs.replace(
            nodes.get(node, NodeConfig()), cords=(CordConfig(circuit=target),)
        )
    for number, (what, target) in enumerate(suppose.add, 1):
        _known("--on", target, circuits)
        count, model = counted("--add", what)
        systems = key_of(model) in SYSTEM_BY_ID
        for copy in range(count if systems else 1):
            new = (
                NodeConfig(profile=model)
                if systems
                else NodeConfig(gpus=f"{count}x {model}", host_watts=0.0)
            )
            name = f"added-{number}" if copy == 0 else f"added-{number}-{copy + 1}"
            nodes[name] = msgspec.structs.replace(new, cords=(CordConfig(circuit=target),))
    return msgspec.structs.replace(site, nodes=nodes, circuits=circuits)


def _known(where: str, name: str, names: Mapping[str, object] | Sequence[str]) -> None:
    if name not in names:
        cure = did_you_mean(name, names) or f"Known: {', '.join(names)}."
        raise ConfigError(where, f"there is no {name!r}", cure)


def _too_low(cap: float | None, machines: Mapping[str, Machine]) -> list[str]:
    """Return notices of cards that do not accept a cap and are planned with their lowest one."""
    if cap is None:
        return []
    floors: dict[float, list[str]] = {}
    for name, machine in machines.items():
        if machine.gpus and machine.floor_watts is not None and cap < machine.floor_watts:
            floors.setdefault(machine.floor_watts, []).append(name)
    return [
        f"--cap {cap:g}: the cards of {', '.join(names)} take no less than {floor:g} W, and are planned with that"
        for floor, names in floors.items()
    ]


def _feeds(name: str, layout: SiteLayout) -> list[str]:
    if name in layout.circuits:
        return [name]
    behind = [circuit.id for circuit in layout.circuits.values() if circuit.source == name]
    if not behind:
        _known(
            "--lose",
            name,
            [*layout.circuits, *{x.source for x in layout.circuits.values() if x.source}],
        )
    return behind


def _circuit(
    circuit: Circuit, index: int, topology: SiteTopology, machines: Sequence[Machine], state: PlannedState,
    dead: AbstractSet[str], alerts: list[str],
) -> CircuitPlan:  # fmt: skip
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
        trip_seconds={e: round(s, 1) if np.isfinite(s) else None for e, s in zip(EDGES, seconds, strict=True)},
        committed_watts=round(float(state.committed.watts[index]), 1),
        survivor_amps=round(survivor, 3) if np.isfinite(survivor) else None,
        alerts=alerts,
        cap=_cap(circuit, index, topology, machines, state, failing="E08" in alerts) if {"E02", "E03", "E04", "E07", "E08"} & set(alerts) else None,
        lost=circuit.id in dead,
    )  # fmt: skip


def _cap(
    circuit: Circuit, index: int, topology: SiteTopology, machines: Sequence[Machine], state: PlannedState,
    *, failing: bool,
) -> Cap | None:  # fmt: skip
    """Return the cap that brings a circuit below its limit. Watts are assumed to scale with amps."""
    watts, amps = float(state.committed.watts[index]), float(state.committed.highest[index])
    if amps == 0:
        return None
    part = slice(topology.starts[index], topology.starts[index + 1])
    shares = topology.below[2][part]
    if failing:  # when the other feeds are lost, all machines of the group draw from this one
        shares = np.ones(len(shares))
    parts = [
        RemedyPart(float(share), m.gpus, m.fixed_watts, m.watts_per_gpu_watt, m.limit_watts, m.floor_watts)
        for m, share in zip((machines[k] for k in topology.below[1][part]), shares, strict=True)
    ]  # fmt: skip
    other = watts - float(sum(p.at(p.limit_watts) for p in parts))
    if failing:
        other = float(topology.other_below[index])
    return cap_of(circuit, parts, watts * circuit.continuous_amps / amps - other, amps / watts)


def _nodes(
    layout: SiteLayout, watts: Floats, committed: Floats, dead: AbstractSet[str]
) -> list[NodePlan]:
    """Return the plan of each node, not yet rounded nor evaluated."""
    plans = []
    by_machine: dict[str, list[Plugged]] = {}
    for cord in layout.cords:
        by_machine.setdefault(cord.machine, []).append(cord)
    for index, machine in enumerate(layout.machines.values()):
        cords = by_machine[machine.id]
        gone = [cord for cord in cords if cord.circuit in dead]
        dark = len(gone) == len(cords)
        load = None
        if machine.supply_watts is not None:
            each = machine.supplies / len(cords)
            lost_supplies = sum(each if c.supplies is None else c.supplies for c in gone)
            working = machine.supplies - round(lost_supplies)
            dc = 0.0 if dark else machine.dc(float(watts[index]))
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


def _snapshot(kind: SnapshotKind, quantity: str, rows: Mapping[str, float | None]) -> PowerSnapshot:
    values = [math.nan if value is None else value for value in rows.values()]
    return PowerSnapshot(kind, 0, tuple(rows), {quantity: np.array(values)})


def _finite(load: float | None) -> float | None:
    return round(load, 3) if load is not None and math.isfinite(load) else None
