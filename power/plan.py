"""What if: the same evaluation as on a live cluster, over watts that someone supposes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from power.answer import BudgetPlan, CircuitPlan, NodePlan, Plan
from power.breaker import EDGES
from power.devices import SYSTEM_BY_ID, counted, key_of
from power.judgement import State, evaluate
from power.layout import Layout, Line, lay_out
from power.network import Network, connect
from power.remedy import cap_of
from power.site import Cord, Node, Site
from power.supply import set_load
from power.thermal import steady
from power.wiring import POLES, Floats
from telemetry.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class Suppose:
    """What is supposed, beside the configuration."""

    watts: Mapping[str, float] = field(default_factory=dict)
    """At the wall, by node; a node without draws what it may."""
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


def make(where: str, site: Site, suppose: Suppose) -> Plan:
    """Return the plan. Raises `ConfigError` for what does not exist, with the nearest that does."""
    layout = lay_out(where, _changed(site, suppose))
    network = connect(layout)
    machines = layout.machines
    if suppose.cap is not None:
        machines = {name: m.capped(suppose.cap) for name, m in machines.items()}
    for name in suppose.watts:
        _known("--watts", name, machines)
    given = np.array([suppose.watts.get(n, m.committed_watts) for n, m in machines.items()])
    committed = np.array([
        m.committed_watts if m.known else suppose.watts.get(n, 0.0) for n, m in machines.items()
    ])  # fmt: skip
    lost = frozenset(line for name in suppose.lose for line in _feeds(name, layout))
    heat = steady(np.full(len(network.names), suppose.preload))
    state = evaluate(layout, network, given, committed, lost=lost, heat=heat)
    plans = {
        line.id: _circuit(line, index, layout, network, state)
        for index, line in enumerate(layout.lines.values())
    }
    silent = [n for n, m in machines.items() if not m.known and n not in suppose.watts]
    return Plan(
        circuits=[p for name, p in plans.items() if not layout.lines[name].is_panel],
        panels=[p for name, p in plans.items() if layout.lines[name].is_panel],
        nodes=_nodes(layout, given, committed, lost),
        budgets=_budgets(layout, plans),
        notices=[
            *layout.notices,
            *(f"nodes.{n}: its draw is not known and counts as nothing here; write gpus, profile or watts, or give --watts {n}=W" for n in silent),
        ],
    )  # fmt: skip


def _changed(site: Site, suppose: Suppose) -> Site:
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
            nodes.get(node, Node()), cords=(Cord(circuit=target),)
        )
    for number, (what, target) in enumerate(suppose.add, 1):
        _known("--on", target, circuits)
        count, model = counted("--add", what)
        systems = key_of(model) in SYSTEM_BY_ID
        for copy in range(count if systems else 1):
            new = Node(profile=model) if systems else Node(gpus=f"{count}x {model}", host_watts=0.0)
            name = f"added-{number}" if copy == 0 else f"added-{number}-{copy + 1}"
            nodes[name] = msgspec.structs.replace(new, cords=(Cord(circuit=target),))
    return msgspec.structs.replace(site, nodes=nodes, circuits=circuits)


def _known(where: str, name: str, names: Mapping[str, object] | Sequence[str]) -> None:
    if name not in names:
        cure = did_you_mean(name, names) or f"Known: {', '.join(names)}."
        raise ConfigError(where, f"there is no {name!r}", cure)


def _feeds(name: str, layout: Layout) -> list[str]:
    if name in layout.lines:
        return [name]
    behind = [line.id for line in layout.lines.values() if line.source == name]
    if not behind:
        _known(
            "--lose", name, [*layout.lines, *{x.source for x in layout.lines.values() if x.source}]
        )
    return behind


def _circuit(line: Line, index: int, layout: Layout, network: Network, state: State) -> CircuitPlan:
    amps = state.now.amps[index]
    survivor = float(state.survivor_amps[index])
    alerts = list(state.alerts[index])
    seconds = [float(s) for s in state.trip_seconds[index]]
    return CircuitPlan(
        id=line.id,
        watts=round(float(state.now.watts[index]), 1),
        amps={POLES[pole]: round(float(amps[pole]), 3) for pole in line.poles},
        neutral_amps=round(float(state.neutral[index]), 3) if len(line.poles) > 1 else None,
        rated_amps=line.rated_amps,
        continuous_amps=round(line.continuous_amps, 3),
        load_ratio=round(float(amps.max()) / line.rated_amps, 4),
        trip_seconds={e: round(s, 1) if np.isfinite(s) else None for e, s in zip(EDGES, seconds, strict=True)},
        committed_watts=round(float(state.committed.watts[index]), 1),
        survivor_amps=round(survivor, 3) if np.isfinite(survivor) else None,
        alerts=alerts,
        cap=cap_of(line, index, layout, state) if {"E02", "E03", "E04", "E07", "E08"} & set(alerts) else None,
    )  # fmt: skip


def _nodes(
    layout: Layout, watts: Floats, committed: Floats, lost: frozenset[str]
) -> list[NodePlan]:
    dead = set().union(*(layout.below(name) for name in lost)) if lost else set()
    plans = []
    for index, machine in enumerate(layout.machines.values()):
        cords = [cord for cord in layout.cords if cord.machine == machine.id]
        gone = [cord for cord in cords if cord.line in dead]
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
                supply_load=round(load, 3) if load is not None and np.isfinite(load) else None,
                alerts=["E15"] if load is not None and load > 0.85 else [],
            )
        )
    return plans


def _budgets(layout: Layout, plans: Mapping[str, CircuitPlan]) -> list[BudgetPlan]:
    found = []
    ceilings = [(n, b.circuits, b.kw, b.warn) for n, b in layout.site.budgets.items()]
    ceilings += [(n, (n,), p.budget_kw, 0.9) for n, p in layout.site.panels.items() if p.budget_kw]
    for name, circuits, limit, warn in ceilings:
        # A circuit that hangs below another of the same budget is counted with it, once.
        inside = {below for c in circuits for below in layout.below(c) - {c}}
        kw = sum(plans[c].watts for c in circuits if c not in inside) / 1000
        over = limit is not None and kw >= warn * limit
        found.append(BudgetPlan(id=name, kw=round(kw, 3), limit_kw=limit, alerts=["E22"] * over))
    return found
