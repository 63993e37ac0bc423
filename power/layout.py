"""The site as a tree of lines with machines on them: checked, with every default filled in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from power.breaker import Band, Curve, band, default_curve, effective_amps
from power.machine import Machine, build
from power.site import Circuit, Cord, Panel, Site, amps
from power.wiring import POLES, Wiring, line_to_neutral
from telemetry.errors import ConfigError, did_you_mean

_HOME_VOLTS = {"US": 120.0, "CA": 120.0, "NA": 120.0, "JP": 100.0}


@dataclass(frozen=True, slots=True)
class Line:
    """A circuit or panel with what it inherits and defaults."""

    id: str
    parent: str | None
    wiring: Wiring
    poles: tuple[int, ...]
    """Which of L1, L2, L3, from 0."""
    volts: float
    """To neutral."""
    rated_amps: float
    effective_amps: float
    """After heat and grouping; what the trip model compares with."""
    continuous_amps: float
    power_factor: float
    curve: Curve | None
    """None where the physical rating is not known: no time to trip then."""
    band: Band
    neutral_amps: float
    other_watts: float = 0.0
    plug_amps: float | None = None
    group: str | None = None
    scheme: str = "2N"
    source: str | None = None
    is_panel: bool = False


@dataclass(frozen=True, slots=True)
class Plugged:
    """A part of a machine's power that enters from one line."""

    machine: str
    line: str
    share: float
    poles: tuple[int, ...]
    supplies: int | None = None


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
        lines[name] = _panel_line(f"{where}: panels.{name}", name, panel, site)
    for name in _parents_first(where, site):
        place = f"{where}: circuits.{name}"
        lines[name] = _circuit_line(place, name, site.circuits[name], site, lines, notices)
    cords = _cords(where, site, lines)
    feeds: dict[str, list[float]] = {}
    for cord in cords:
        line = lines[cord.line]
        outlet = line.volts * (1 if len(cord.poles) == 1 else 3**0.5)
        feeds.setdefault(cord.machine, []).append(outlet)
    machines = {
        name: build(f"{where}: nodes.{name}", name, site.nodes.get(name), min(volts), len(volts))
        for name, volts in feeds.items()
    }
    _check_redundancy(site, lines, cords, notices)
    _check_budgets(where, site)
    notices += [f"nodes.{n}: it hangs on no circuit" for n in site.nodes if n not in machines]
    return Layout(site, lines, machines, cords, tuple(notices))


def _parents_first(where: str, site: Site) -> list[str]:
    order: list[str] = []
    for start in site.circuits:
        chain: list[str] = []
        name: str | None = start
        while name is not None and name in site.circuits and name not in order:
            if name in chain:
                ring = " -> ".join([*chain[chain.index(name) :], name])
                raise ConfigError(f"{where}: circuits.{name}.parent", f"it feeds itself: {ring}", "Remove one of these parents.")  # fmt: skip
            chain.append(name)
            name = site.circuits[name].parent
        order += reversed(chain)
    return order


def _panel_line(place: str, name: str, panel: Panel, site: Site) -> Line:
    volts = panel.volts or (208.0 if site.region in _HOME_VOLTS else 400.0)
    wiring = panel.wiring or (Wiring.SPLIT if volts == 240 else Wiring.WYE)
    if name in site.circuits:
        raise ConfigError(place, "a circuit has this name too", "Rename one of them.")
    poles = (0,) if wiring is Wiring.SINGLE else (0, 1) if wiring is Wiring.SPLIT else (0, 1, 2)
    known = panel.breaker is not None
    rated = amps(f"{place}.breaker", panel.breaker) if panel.breaker is not None else float("inf")
    curve = default_curve(volts, site.region)
    return Line(
        name, None, wiring, poles, line_to_neutral(volts, wiring, len(poles)), rated, rated,
        0.8 * rated, 0.97, curve if known else None, band(curve, rated), rated,
        source=panel.source, is_panel=True,
    )  # fmt: skip


def _circuit_line(
    place: str, name: str, spec: Circuit, site: Site, lines: dict[str, Line], notices: list[str]
) -> Line:
    above_name = spec.parent or spec.panel
    if spec.parent is not None and spec.panel is not None:
        raise ConfigError(place, "it has a parent and a panel", "Keep the nearer one, the parent.")
    if above_name is not None and above_name not in lines:
        key = "parent" if spec.parent else "panel"
        known = [*site.panels, *site.circuits]
        raise ConfigError(f"{place}.{key}", f"there is no {above_name!r}", did_you_mean(above_name, known) or f"Known: {', '.join(known)}.")  # fmt: skip
    above = lines[above_name] if above_name else None
    given = spec.breaker if spec.breaker is not None else spec.rated_amps
    if given is None:
        raise ConfigError(f"{place}.breaker", "the rating is missing", "Write breaker = 15, the amps on the breaker's handle.")  # fmt: skip
    rated = amps(f"{place}.breaker", given)
    for key, value, top in (("continuous", spec.continuous, 1.0), ("pf", spec.pf, 1.0), ("sag", spec.sag, 1.0), ("grouping", spec.grouping, 1.0)):  # fmt: skip
        if not 0 < value <= top:
            raise ConfigError(f"{place}.{key}", f"{value:g} is out of range", "Write a ratio above 0, at most 1.")  # fmt: skip
    wiring, poles, volts = _wires(place, spec, site, above)
    if volts <= 0:
        raise ConfigError(f"{place}.volts", f"{volts:g} V is no voltage", "Write volts = 120.")
    if above is not None and rated > above.rated_amps:
        raise ConfigError(f"{place}.breaker", f"{rated:g} A is above the {above.rated_amps:g} A of {above.id}, which feeds it", f"Write at most {above.rated_amps:g}, or correct {above.id}.")  # fmt: skip
    curve = spec.curve or default_curve(round(volts * (1 if len(poles) == 1 else 3**0.5)), site.region)  # fmt: skip
    derated = spec.rating_is_derated
    if above is None and site.region is None and spec.curve is None and spec.volts is None:
        notices.append(f"circuits.{name}: neither region nor volts is set; 120 V and UL 489 are assumed")  # fmt: skip
    return Line(
        name, above_name, wiring, poles, volts * spec.sag, rated,
        rated if derated else effective_amps(rated, curve, site.site.ambient_c, spec.grouping),
        rated if derated else rated * spec.continuous, spec.pf, None if derated else curve,
        band(curve, rated), spec.neutral_amps or rated, spec.other_w, spec.plug_amps,
        spec.redundancy.group if spec.redundancy else None,
        spec.redundancy.scheme if spec.redundancy else "2N", above.source if above else None,
    )  # fmt: skip


def _wires(
    place: str, spec: Circuit, site: Site, above: Line | None
) -> tuple[Wiring, tuple[int, ...], float]:
    """Return wiring, poles and volts to neutral."""
    three = spec.wiring in {Wiring.WYE, Wiring.DELTA}
    count = spec.poles or (len(parse_poles(place, spec.phase)) if spec.phase else 0)
    count = count or (3 if three else 2 if spec.wiring is Wiring.SPLIT else 1)
    system = above.wiring if above else spec.wiring
    if system is None or (system is Wiring.SINGLE and count > 1):
        system = Wiring.SINGLE if count == 1 else Wiring.WYE if count == 3 or spec.volts == 208 else Wiring.SPLIT  # fmt: skip
    if spec.phase:
        poles = parse_poles(f"{place}.phase", spec.phase)
        if len(poles) != count:
            raise ConfigError(f"{place}.phase", f"{spec.phase} names {len(poles)} poles, poles says {count}", "Make them agree.")  # fmt: skip
    elif above is not None and count < len(above.poles):
        raise ConfigError(f"{place}.phase", f"{above.id} has {len(above.poles)} poles and this circuit {count}", 'Say which: phase = "L1" or "L1-L2".')  # fmt: skip
    else:
        poles = above.poles[:count] if above is not None else tuple(range(count))
    if above is not None and not set(poles) <= set(above.poles):
        raise ConfigError(f"{place}.phase", f"{above.id} does not have these poles", f"It has {'-'.join(POLES[p] for p in above.poles)}.")  # fmt: skip
    if len(poles) < count or count > 3:
        raise ConfigError(f"{place}.poles", f"{count} poles are not to be had here", "Write 1, 2 or 3.")  # fmt: skip
    if spec.volts is None and above is not None:
        return system, poles, above.volts
    home = _HOME_VOLTS.get(site.region or "US", 230.0)
    # Two poles of a home are twice its voltage apart, lines of three sqrt(3) times: 240 and 208 V.
    between = 2 if system is Wiring.SPLIT else 3**0.5
    volts = spec.volts if spec.volts is not None else home * (between if count > 1 else 1)
    if count == 2 and system is not Wiring.SPLIT:
        return system, poles, volts / 3**0.5  # volts between two lines of three
    return system, poles, line_to_neutral(volts, system, count)


def parse_poles(place: str, text: str) -> tuple[int, ...]:
    """Return (0, 1) of `L1-L2`."""
    words = re.findall(r"L[1-9]", text.upper())
    if not words or any(word not in POLES for word in words) or len(set(words)) < len(words):
        raise ConfigError(place, f"{text!r} names no poles", "Write L1, L2, L3 or L1-L2.")
    return tuple(sorted(POLES.index(word) for word in words))


def _cords(where: str, site: Site, lines: dict[str, Line]) -> tuple[Plugged, ...]:
    listed: dict[str, list[str]] = {}
    for name, circuit in site.circuits.items():
        for node in circuit.nodes:
            listed.setdefault(node, []).append(name)
    result: list[Plugged] = []
    for node, circuits in listed.items():
        place = f"{where}: nodes.{node}"
        if node in site.nodes and site.nodes[node].cords:
            raise ConfigError(place, f"it has cords and stands in circuits.{circuits[0]}.nodes", "Keep one of both.")  # fmt: skip
        if site.nodes and node not in site.nodes and (near := did_you_mean(node, site.nodes)):
            raise ConfigError(f"{where}: circuits.{circuits[0]}.nodes", f"there is no node {node!r}", near)  # fmt: skip
        if len(circuits) > 1 and len({lines[c].group for c in circuits} - {None}) != 1:
            raise ConfigError(place, f"it stands in {' and '.join(circuits)}, which do not stand in for each other", "Remove it from all but one, or give them a redundancy group.")  # fmt: skip
        result += [Plugged(node, c, 1 / len(circuits), lines[c].poles) for c in circuits]
    for node, spec in site.nodes.items():
        result += _cords_of(f"{where}: nodes.{node}", node, spec.cords, site, lines)
    return tuple(result)


def _cords_of(
    place: str, node: str, cords: tuple[Cord, ...], site: Site, lines: dict[str, Line]
) -> list[Plugged]:
    for number, cord in enumerate(cords):
        if cord.circuit not in site.circuits:
            raise ConfigError(f"{place}.cords[{number}].circuit", f"there is no circuit {cord.circuit!r}", did_you_mean(cord.circuit, site.circuits) or f"Known: {', '.join(site.circuits)}.")  # fmt: skip
    shares: list[float]
    supplies = [_supplies(f"{place}.cords", cord.psu) for cord in cords]
    if cords and all(cord.share is not None for cord in cords):
        shares = [float(cord.share or 0) for cord in cords]
        if abs(sum(shares) - 1) > 0.001 or min(shares) < 0:
            raise ConfigError(f"{place}.cords", f"the shares add up to {sum(shares):g}", "Make them add up to 1.")  # fmt: skip
    elif any(cord.share is not None for cord in cords):
        raise ConfigError(f"{place}.cords", "some cords have a share and some have none", "Write share on all of them, adding up to 1.")  # fmt: skip
    elif cords and all(count is not None for count in supplies):
        counts = [count or 0 for count in supplies]
        shares = [count / sum(counts) for count in counts]
    else:
        shares = [1 / len(cords) for _ in cords]
    return [
        Plugged(node, cord.circuit, share, _cord_poles(place, cord, lines), count)
        for cord, share, count in zip(cords, shares, supplies, strict=True)
    ]


def _cord_poles(place: str, cord: Cord, lines: dict[str, Line]) -> tuple[int, ...]:
    line = lines[cord.circuit]
    if cord.phase is None:
        return line.poles
    poles = parse_poles(f"{place}.cords.phase", cord.phase)
    if not set(poles) <= set(line.poles) or (line.wiring is Wiring.DELTA and len(poles) == 1):
        raise ConfigError(f"{place}.cords.phase", f"{cord.circuit} has no such outlet: {cord.phase}", f"It has {'-'.join(POLES[p] for p in line.poles)}, {line.wiring.value}.")  # fmt: skip
    return poles


def _supplies(place: str, psu: str | int | None) -> int | None:
    if psu is None:
        return None
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(psu).strip())
    if not match or (match[2] and int(match[2]) < int(match[1])):
        raise ConfigError(f"{place}.psu", f"{psu!r} names no supplies", 'Write 1 or "1-3".')
    return int(match[2]) - int(match[1]) + 1 if match[2] else 1


def _check_redundancy(
    site: Site, lines: dict[str, Line], cords: tuple[Plugged, ...], notices: list[str]
) -> None:
    groups: dict[str, list[str]] = {}
    for name, circuit in site.circuits.items():
        if circuit.redundancy:
            groups.setdefault(circuit.redundancy.group, []).append(name)
    plugged: dict[str, set[str]] = {}
    for cord in cords:
        plugged.setdefault(cord.machine, set()).add(cord.line)
    alone = {node: next(iter(feeds)) for node, feeds in plugged.items() if len(feeds) == 1}
    for group, members in groups.items():
        parents = [lines[member].parent for member in members]
        sources = [lines[member].source for member in members]
        if len(members) < 2:
            notices.append(f"circuits.{members[0]}: it is alone in group {group}; name the other feed")  # fmt: skip
        elif parents[0] is not None and len(set(parents)) == 1:
            notices.append(f"circuits.{members[0]}: {' and '.join(members)} are a {lines[members[0]].scheme} group on one panel, {parents[0]}: not independent. Feed them from two panels")  # fmt: skip
        elif sources[0] is not None and len(set(sources)) == 1:
            notices.append(f"circuits.{members[0]}: {' and '.join(members)} share the source {sources[0]}: not independent")  # fmt: skip
        notices += [
            f"nodes.{node}: one cord in redundant group {group}; it goes dark with its feed"
            for node, feed in alone.items()
            if feed in members
        ]


def _check_budgets(where: str, site: Site) -> None:
    for name, budget in site.budgets.items():
        for circuit in budget.circuits:
            if circuit not in site.circuits:
                raise ConfigError(f"{where}: budgets.{name}.circuits", f"there is no circuit {circuit!r}", did_you_mean(circuit, site.circuits))  # fmt: skip
