"""The layout of a site: a checked tree of circuits with machines, with all defaults filled in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from power.site.circuit import Circuit, branch_circuit, panel_circuit
from power.site.config import PowerConfig
from power.site.cords import Plugged, cords_of_site
from power.site.machine import Machine, build
from telemetry.errors import ConfigError, did_you_mean

# Errors of a site as a whole, and notices of what is probably wrong (E24).


def check_redundancy(
    site: PowerConfig, circuits: dict[str, Circuit], cords: tuple[Plugged, ...], notices: list[str]
) -> None:
    groups: dict[str, list[str]] = {}
    for name, circuit in site.circuits.items():
        if circuit.redundancy:
            groups.setdefault(circuit.redundancy.group, []).append(name)
    plugged: dict[str, set[str]] = {}
    for cord in cords:
        plugged.setdefault(cord.machine, set()).add(cord.circuit)
    alone = {node: next(iter(feeds)) for node, feeds in plugged.items() if len(feeds) == 1}
    for group, members in groups.items():
        parents = [circuits[member].parent for member in members]
        sources = [circuits[member].source for member in members]
        if len(members) < 2:
            notices.append(f"circuits.{members[0]}: it is alone in group {group}; name the other feed")  # fmt: skip
        elif parents[0] is not None and len(set(parents)) == 1:
            notices.append(f"circuits.{members[0]}: {' and '.join(members)} are a {circuits[members[0]].scheme} group on one panel, {parents[0]}: not independent. Feed them from two panels")  # fmt: skip
        elif sources[0] is not None and len(set(sources)) == 1:
            notices.append(f"circuits.{members[0]}: {' and '.join(members)} share the source {sources[0]}: not independent")  # fmt: skip
        notices += [
            f"nodes.{node}: one cord in redundant group {group}; it loses power with its feed"
            for node, feed in alone.items()
            if feed in members
        ]


def check_budgets(where: str, site: PowerConfig) -> None:
    for name, budget in site.budgets.items():
        for circuit in budget.circuits:
            if circuit not in site.circuits:
                raise _unknown(
                    f"{where}: budgets.{name}.circuits", "circuit", circuit, site.circuits
                )
        if not budget.circuits:
            raise ConfigError(f"{where}: budgets.{name}.circuits", "it counts nothing", f"Name circuits: {', '.join(list(site.circuits)[:5])}.")  # fmt: skip
        if not 0 < budget.clear <= budget.warn <= budget.crit <= 1:
            raise ConfigError(f"{where}: budgets.{name}", f"its levels do not rise: clear {budget.clear:g}, warn {budget.warn:g}, crit {budget.crit:g}", "Write clear = 0.85, warn = 0.9, crit = 0.97, or others that rise up to 1.")  # fmt: skip
        if budget.kw is None and budget.kwh_month is None and budget.cost_month is None:
            raise ConfigError(f"{where}: budgets.{name}", "it has no limit", "Write kw, kwh_month or cost_month.")  # fmt: skip


def check_ups(where: str, site: PowerConfig, machines: Collection[str]) -> None:
    """Refuse a UPS with unknown circuits or nodes, or a wrong overload table."""
    for name, ups in site.ups.items():
        place = f"{where}: ups.{name}"
        for circuit in ups.circuits:
            if circuit not in site.circuits:
                raise _unknown(f"{place}.circuits", "circuit", circuit, site.circuits)
        for node in ups.nodes:
            if node not in machines:
                raise _unknown(f"{place}.nodes", "node", node, machines)
        loads = [load for load, _ in ups.overload or ()]
        if any(one >= two for one, two in pairwise(loads)):
            raise ConfigError(f"{place}.overload", "the loads do not rise", "Write [[1.05, 3600], [1.10, 600], [1.30, 60]].")  # fmt: skip


def check_supplies(where: str, machines: Mapping[str, Machine], cords: Sequence[Plugged]) -> None:
    """Refuse cords with more supplies than the machine has."""
    behind: dict[str, int] = {}
    for cord in cords:
        behind[cord.machine] = behind.get(cord.machine, 0) + (cord.supplies or 0)
    for name, count in behind.items():
        machine = machines[name]
        # Without a configured count the cords define it.
        if count > machine.supplies and machine.supply_watts is not None:
            raise ConfigError(f"{where}: nodes.{name}.cords", f"they name {count} supplies, and it has {machine.supplies}", f"Number them 1 to {machine.supplies}, each once.")  # fmt: skip


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
            if other.parent in found:
                found.add(other.id)
        return found


def lay_out(where: str, site: PowerConfig) -> SiteLayout:
    """Return the checked layout. Raises `ConfigError` with place and cure."""
    if not site.circuits:
        raise ConfigError(f"{where}: circuits", "there is no circuit", "Write [circuits.office] and breaker = 15.")  # fmt: skip
    notices: list[str] = []
    circuits: dict[str, Circuit] = {}
    for name, panel in site.panels.items():
        circuits[name] = panel_circuit(f"{where}: panels.{name}", name, panel, site)
    for name in _parents_first(where, site):
        place = f"{where}: circuits.{name}"
        circuits[name] = branch_circuit(place, name, site.circuits[name], site, circuits, notices)
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
    check_supplies(where, machines, cords)
    notices += [f"nodes.{n}: it hangs on no circuit" for n in site.nodes if n not in machines]
    return SiteLayout(site, circuits, machines, cords, tuple(notices))


def _parents_first(where: str, site: PowerConfig) -> list[str]:
    order: dict[str, None] = {}
    for start in site.circuits:
        chain: list[str] = []
        name: str | None = start
        while name is not None and name in site.circuits and name not in order:
            if name in chain:
                ring = " -> ".join([*chain[chain.index(name) :], name])
                raise ConfigError(f"{where}: circuits.{name}.parent", f"it feeds itself: {ring}", "Remove one of these parents.")  # fmt: skip
            chain.append(name)
            name = site.circuits[name].parent
        order.update(dict.fromkeys(reversed(chain)))
    return list(order)
