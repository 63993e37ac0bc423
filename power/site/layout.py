"""The layout of a site: a checked tree of circuits with machines, with all defaults filled in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from power.devices.breaker import Curve
from power.site.chain import chained_ups, efficiency_points, elements_of, inputs_of, transfer, transformer, ups_row
from power.site.circuit import Circuit, ElementKind, branch_circuit, panel_circuit
from power.site.config import PowerConfig, UpsConfig
from power.site.cords import Plugged, cord_notices, cords_of_site, supply_notices, supply_numbers
from power.site.machine import Machine, build
from power.site.plausible import cap_notices, check_circuit_volts, check_supply_volts, mains_notices, pole_notices
from telemetry.errors import ConfigError, did_you_mean

# Errors of a site as a whole, and notices of what is probably wrong (E24).


def check_redundancy(
    site: PowerConfig, circuits: dict[str, Circuit], cords: tuple[Plugged, ...], notices: list[str]
) -> None:
    groups: dict[str, list[str]] = {}
    for name, circuit in circuits.items():
        if circuit.kind is ElementKind.CIRCUIT and circuit.group is not None:
            groups.setdefault(circuit.group, []).append(name)
    plugged: dict[str, set[str]] = {}
    for cord in cords:
        plugged.setdefault(cord.machine, set()).add(cord.circuit)
    alone = {node: next(iter(feeds)) for node, feeds in plugged.items() if len(feeds) == 1}
    for group, members in groups.items():
        parents = [circuits[member].parent for member in members]
        sources = [circuits[member].source for member in members]
        if len(members) < 2:
            notices.append(f"circuits.{members[0]}: it is alone in group {group}; name the other feed")
        elif parents[0] is not None and len(set(parents)) == 1:
            notices.append(
                f"circuits.{members[0]}: {' and '.join(members)} are a {circuits[members[0]].scheme} group on one panel, {parents[0]}: not independent. Feed them from two panels"
            )
        elif len({circuits[member].side for member in members}) == 1 and circuits[members[0]].scheme in {
            "2N",
            "2(N+1)",
        }:
            notices.append(
                f"circuits.{members[0]}: all of group {group} are side {circuits[members[0]].side}, which is lost at once; give the other side a role of its own"
            )
        elif sources[0] is not None and len(set(sources)) == 1:
            notices.append(
                f"circuits.{members[0]}: {' and '.join(members)} share the source {sources[0]}: not independent"
            )
        notices += [
            f"nodes.{node}: one cord in redundant group {group}; it loses power with its feed"
            for node, feed in alone.items()
            if feed in members
        ]


def check_budgets(where: str, site: PowerConfig) -> None:
    for circuit in () if site.bill is None else site.bill.circuits:
        if circuit not in site.circuits and circuit not in site.panels:
            raise _unknown(f"{where}: bill.circuits", "circuit", circuit, site.circuits)
    for name, budget in site.budgets.items():
        for circuit in budget.circuits:
            if circuit not in site.circuits:
                raise _unknown(f"{where}: budgets.{name}.circuits", "circuit", circuit, site.circuits)
        if not budget.circuits:
            raise ConfigError(
                f"{where}: budgets.{name}.circuits",
                "it counts nothing",
                f"Name circuits: {', '.join(list(site.circuits)[:5])}.",
            )
        if not 0 < budget.clear <= budget.warn <= budget.crit <= 1:
            raise ConfigError(
                f"{where}: budgets.{name}",
                f"its levels do not rise: clear {budget.clear:g}, warn {budget.warn:g}, crit {budget.crit:g}",
                "Write clear = 0.85, warn = 0.9, crit = 0.97, or others that rise up to 1.",
            )
        if budget.kw is None and budget.kwh_month is None and budget.cost_month is None:
            raise ConfigError(f"{where}: budgets.{name}", "it has no limit", "Write kw, kwh_month or cost_month.")


_OF_THE_TREE = ("efficiency", "conversion", "volts", "wiring", "breaker")
"""Settings of a UPS that only one that is an element of the tree has."""


def check_ups(where: str, site: PowerConfig, machines: Collection[str]) -> None:
    """Refuse a UPS with unknown circuits or nodes, or a wrong table of efficiency or overload."""
    chained = chained_ups(site)
    for name, ups in site.ups.items():
        place = f"{where}: ups.{name}"
        for circuit in ups.circuits:
            if circuit not in site.circuits:
                raise _unknown(f"{place}.circuits", "circuit", circuit, site.circuits)
        for node in ups.nodes:
            if node not in machines:
                raise _unknown(f"{place}.nodes", "node", node, machines)
        efficiency_points(f"{place}.efficiency", ups.efficiency, ups.conversion, ups.watts)
        usual = UpsConfig(watts=ups.watts)
        idle = [key for key in _OF_THE_TREE if name not in chained and getattr(ups, key) != getattr(usual, key)]
        if idle:
            raise ConfigError(
                f"{place}.{idle[0]}",
                "it has no effect, since nothing says what feeds this UPS",
                "Write parent, the panel or source that feeds it, or remove it.",
            )
        loads = [load for load, _ in ups.overload or ()]
        if any(one >= two for one, two in pairwise(loads)):
            raise ConfigError(
                f"{place}.overload", "the loads do not rise", "Write [[1.05, 3600], [1.10, 600], [1.30, 60]]."
            )


def check_supplies(where: str, site: PowerConfig, machines: Mapping[str, Machine], cords: Sequence[Plugged]) -> None:
    """Refuse cords with more supplies than the machine has, or with a number beyond them."""
    behind: dict[str, int] = {}
    for cord in cords:
        behind[cord.machine] = behind.get(cord.machine, 0) + (cord.supplies or 0)
    for name, count in behind.items():
        machine = machines[name]
        # Without a configured count the cords define it.
        if count > machine.supplies and machine.supply_watts is not None:
            raise ConfigError(
                f"{where}: nodes.{name}.cords",
                f"they name {count} supplies, and it has {machine.supplies}",
                f"Number them 1 to {machine.supplies}, each once.",
            )
    for name, node in site.nodes.items():
        if name not in machines or machines[name].supply_watts is None:
            continue
        machine, place = machines[name], f"{where}: nodes.{name}.cords"
        numbers = [n for cord in node.cords for n in supply_numbers(place, cord.psu) or ()]
        if max(numbers, default=0) > machine.supplies:
            raise ConfigError(
                place,
                f"there is no supply {max(numbers)}: it has {machine.supplies}",
                f"Number them 1 to {machine.supplies}, each once.",
            )


def _unknown(place: str, kind: str, name: str, known: Collection[str]) -> ConfigError:
    cure = did_you_mean(name, known) or f"Known: {', '.join(sorted(known)[:20])}."
    return ConfigError(place, f"there is no {kind} {name!r}", cure)


__all__ = ["Circuit", "Plugged", "SiteLayout", "lay_out"]


@dataclass(frozen=True, slots=True)
class SiteLayout:
    """A checked site; `circuits` has parents before children."""

    site: PowerConfig
    circuits: dict[str, Circuit]
    machines: dict[str, Machine]
    cords: tuple[Plugged, ...]
    notices: tuple[str, ...] = field(default=())
    """Notices of what is allowed and probably wrong (E24)."""

    def below(self, circuit: str) -> set[str]:
        """Return a circuit and everything that it feeds."""
        found = {circuit}
        for other in self.circuits.values():
            if found & {other.parent, *(other.inputs if other.parallel else ())}:
                found.add(other.id)
        return found


def lay_out(where: str, site: PowerConfig) -> SiteLayout:
    """Return the checked layout. Raises `ConfigError` with place and cure."""
    if not site.circuits:
        raise ConfigError(f"{where}: circuits", "there is no circuit", "Write [circuits.office] and breaker = 15.")
    notices: list[str] = []
    circuits = _tree(where, site, notices)
    check_circuit_volts(where, site, circuits)
    cords = cords_of_site(where, site, circuits)
    feeds: dict[str, list[float]] = {}
    for cord in cords:
        circuit = circuits[cord.circuit]
        outlet = circuit.volts * (1 if len(cord.poles) == 1 else 3**0.5)
        feeds.setdefault(cord.machine, []).append(outlet)
    machines = {
        name: build(f"{where}: nodes.{name}", name, site.nodes.get(name), min(volts), len(volts))
        for name, volts in feeds.items()
    }
    check_redundancy(site, circuits, cords, notices)
    check_budgets(where, site)
    check_ups(where, site, set(machines))
    check_supplies(where, site, machines, cords)
    check_supply_volts(where, site, circuits, machines, cords)
    notices += [*cap_notices(site), *mains_notices(site), *pole_notices(site, circuits)]
    notices += cord_notices(circuits, machines, cords)
    notices += supply_notices(circuits, machines, cords)
    notices += [
        f"{one.id}: no trip time is known: {one.band.why_unknown}; pages come by load"
        for one in circuits.values()
        if one.curve not in {None, Curve.UNKNOWN} and not one.band.known
    ]
    notices += [f"nodes.{n}: it hangs on no circuit" for n in site.nodes if n not in machines]
    return SiteLayout(site, circuits, machines, cords, tuple(notices))


def _tree(where: str, site: PowerConfig, notices: list[str]) -> dict[str, Circuit]:
    """Return all elements of the tree, what feeds before what is fed."""
    circuits: dict[str, Circuit] = {}
    chained = chained_ups(site)
    behind = {name: ups for ups in chained for name in site.ups[ups].circuits}
    for table, name in _parents_first(where, site, behind):
        place = f"{where}: {table}.{name}"
        match table:
            case "panels":
                circuits[name] = panel_circuit(place, name, site.panels[name], site, circuits)
            case "transformers":
                for row in transformer(place, name, site.transformers[name], site, circuits):
                    circuits[row.id] = row
            case "transfers":
                circuits[name] = transfer(place, name, site.transfers[name], site, circuits)
            case "ups":
                circuits[name] = ups_row(place, name, site.ups[name], site, circuits)
            case _:
                spec = site.circuits[name]
                circuits[name] = branch_circuit(place, name, spec, site, circuits, notices, behind.get(name))
    return circuits


def _parents_first(where: str, site: PowerConfig, behind: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return table and name of every element, after all that can feed it."""
    elements = elements_of(where, site)
    order: dict[str, None] = {}
    for start in elements:
        open_: dict[str, list[str]] = {}
        name: str | None = start
        while name is not None:
            if name not in open_:
                inputs = inputs_of(site, elements[name], name, behind)
                open_[name] = [i for i in inputs if i in elements]
            above = next((i for i in open_[name] if i not in order), None)
            if above in open_:
                chain = list(open_)
                ring = " -> ".join([*chain[chain.index(above) :], above])
                raise ConfigError(
                    f"{where}: {elements[above]}.{above}.parent",
                    f"it feeds itself: {ring}",
                    "Remove one of these parents.",
                )
            if above is None:
                order[name] = None
                del open_[name]
                name = next(reversed(open_), None)
            else:
                name = above
    return [(elements[name], name) for name in order]
