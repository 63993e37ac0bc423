"""The site as a tree of lines with machines on them: checked, with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass, field

from power.checks import check_budgets, check_redundancy, check_supplies, check_ups
from power.cords import Plugged, cords_of_site
from power.line import Line, circuit_line, panel_line
from power.machine import Machine, build
from power.site import Site
from telemetry.errors import ConfigError

__all__ = ["Layout", "Line", "Plugged", "lay_out"]


@dataclass(frozen=True, slots=True)
class Layout:
    """All of it; `lines` has parents before children."""

    site: Site
    lines: dict[str, Line]
    machines: dict[str, Machine]
    cords: tuple[Plugged, ...]
    notices: tuple[str, ...] = field(default=())
    """What is allowed and probably wrong (E24)."""

    def below(self, line: str) -> set[str]:
        """Return a line and everything that it feeds."""
        found = {line}
        for other in self.lines.values():
            if other.parent in found:
                found.add(other.id)
        return found


def lay_out(where: str, site: Site) -> Layout:
    """Return the checked layout. Raises `ConfigError` with place and cure."""
    if not site.circuits:
        raise ConfigError(f"{where}: circuits", "there is no circuit", "Write [circuits.office] and breaker = 15.")  # fmt: skip
    notices: list[str] = []
    lines: dict[str, Line] = {}
    for name, panel in site.panels.items():
        lines[name] = panel_line(f"{where}: panels.{name}", name, panel, site)
    for name in _parents_first(where, site):
        place = f"{where}: circuits.{name}"
        lines[name] = circuit_line(place, name, site.circuits[name], site, lines, notices)
    cords = cords_of_site(where, site, lines)
    feeds: dict[str, list[float]] = {}
    for cord in cords:
        line = lines[cord.line]
        outlet = line.volts * (1 if len(cord.poles) == 1 else 3**0.5)
        feeds.setdefault(cord.machine, []).append(outlet)
    machines = {
        name: build(f"{where}: nodes.{name}", name, site.nodes.get(name), min(volts), len(volts))
        for name, volts in feeds.items()
    }
    check_redundancy(site, lines, cords, notices)
    check_budgets(where, site)
    check_ups(where, site, set(machines))
    check_supplies(where, machines, cords)
    notices += [f"nodes.{n}: it hangs on no circuit" for n in site.nodes if n not in machines]
    return Layout(site, lines, machines, cords, tuple(notices))


def _parents_first(where: str, site: Site) -> list[str]:
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
