"""Fit: where some machines may be plugged in, ranked by what is left after the worst single loss."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

import numpy as np
from msgspec.structs import replace

from api.power import FitPlace, FitRequest, FitResult, FitRoom
from power.devices.catalogue import CARD_BY_ID, SYSTEM_BY_ID, counted_models, find_card, key_of
from power.devices.supply import set_load
from power.network.flow import Ints
from power.plan.confirmation import Binding, Confirmation, ConfirmedPlace, is_needed
from power.plan.cords import groups_of
from power.plan.room import LimitKind, Room, SiteRoom, no_room
from power.plan.spread import spread
from power.site.config import NodeConfig, PowerConfig
from power.site.layout import Circuit, SiteLayout, lay_out
from power.site.machine import Machine, build
from power.site.plausible import POWER
from telemetry.errors import ConfigError, did_you_mean

MOST_MACHINES, MOST_PLACES = 1_000, 10_000
_MOST_PAIRS = 10_000
"""Pairs of circuits without a redundancy group that are compared in full."""
_CONFIRMED = 30
"""Places at least that are confirmed by the contingencies of the whole site."""
_ROUNDING_WATTS = 1e-3
_WATTS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKM]?)[wW]\s*")
_FACTOR = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Legal places: numbers of their feeds, and the machine as it is at their voltage."""

    circuits: list[tuple[str, ...]]
    feeds: Ints
    """Shape (places, cords)."""
    room: Room
    machines: list[Machine]

    def left(self, count: int) -> np.ndarray:
        """Return the watts that are left at the worst of normal state and losses."""
        watts = np.array([machine.committed_watts for machine in self.machines])
        least: np.ndarray = np.minimum(self.room.normal, self.room.after) - count * watts
        return least


def fit(where: str, site: PowerConfig, asked: FitRequest, drawn: Mapping[str, float] | None = None) -> FitResult:
    """Return the best places for the machines. Every other machine counts with its power commitment, or
    with its watts of `drawn` where they are more; one with neither has an unknown draw.

    Where no place takes all of several, the answer says how they spread over places. Raises `ConfigError` for what
    is not in the catalogue, and for what can't be.
    """
    found = _together(where, site, asked, drawn)
    if asked.count == 1 or not found.places or any(place.fits is not False for place in found.places):
        return found
    find = partial(_together, where, drawn=drawn)
    return replace(found, spread=spread(site, _node(asked), asked, find))


def _together(where: str, site: PowerConfig, asked: FitRequest, drawn: Mapping[str, float] | None = None) -> FitResult:
    """Return the best places that all machines share."""
    node = _node(asked)
    layout = lay_out(where, site)
    cords = asked.feeds or _feeds(node)
    drawn = drawn or {}
    watts = {
        name: max(machine.committed_watts if machine.planned else 0.0, drawn.get(name, 0.0))
        for name, machine in layout.machines.items()
        if machine.planned or name in drawn
    }
    finder = _Finder(layout, SiteRoom(layout, watts), node, cords, asked)
    found = finder.best()
    places = finder.places(found, watts)
    notices = [
        f"{name}: its draw is not known: write gpus, profile or watts" for name in layout.machines if name not in watts
    ]
    unknown = [c.id for c in layout.circuits.values() if math.isinf(c.rated_amps)]
    if unknown:
        notices.append(f"the main breaker of {_few(unknown)} is not known, and limits nothing here")
    if finder.skipped:
        notices.append(f"{finder.skipped:,} pairs of circuits could not be the best and were left out")
    if not finder.compared:
        notices.append(_nowhere(cords))
    return FitResult(
        what=asked.what,
        count=asked.count,
        feeds=cords,
        machine_watts=round(found.machines[0].committed_watts, 1) if found.machines else None,
        compared=finder.compared,
        places=places,
        notices=notices,
    )


def parse_watts(text: str) -> float | None:
    """Return watts of `3.5kW`, `3500W` or `1.2MW`; None where it is no power."""
    match = _WATTS.fullmatch(text)
    return None if match is None else float(match[1]) * _FACTOR[match[2]]


def _node(asked: FitRequest) -> NodeConfig:
    for key, value, most in (("--count", asked.count, MOST_MACHINES), ("--top", asked.top, MOST_PLACES)):
        if not 1 <= value <= most:
            raise ConfigError(key, f"{value} is out of range", f"Write 1 to {most:,}.")
    if asked.feeds is not None and asked.feeds not in {1, 2, 4}:
        raise ConfigError("--feeds", f"{asked.feeds} cords are not planned with", "Write 1, 2 or 4.")
    host = asked.host_watts
    if host is not None and not (math.isfinite(host) and host >= 0):
        raise ConfigError("--host-watts", f"{host:g} is no power", "Write 250.")
    if host is not None:
        POWER.check("--host-watts", host, "--host-watts {}")
    watts = parse_watts(asked.what)
    amount = asked.what.strip().removeprefix("-")
    if watts is None and parse_watts(amount) is not None:
        raise ConfigError("fit", f"{asked.what} is below 0: a machine draws power", f"Write {amount}.")
    if watts == 0:
        raise ConfigError("fit", "a machine of 0 W fits anywhere", "Write what it draws: 3.5kW.")
    if watts is not None:
        POWER.check("fit", watts, "{}W")
        return NodeConfig(watts=watts)
    parts = counted_models("fit", asked.what)
    number, model = parts[0]
    if key_of(model) in SYSTEM_BY_ID:
        if number > 1:
            raise ConfigError("fit", f"{asked.what!r} is {number} machines", f"Write {model} --count {number}.")
        return NodeConfig(profile=model)
    for _, model in parts:
        try:
            find_card("fit", model)
        except ConfigError:
            cure = did_you_mean(key_of(model), [*SYSTEM_BY_ID, *CARD_BY_ID])
            raise ConfigError(
                "fit", f"there is no {model!r}", cure or "Write a system, GPUs or watts: dgx-h100, rtx-5090:4, 3.5kW."
            ) from None
    return NodeConfig(gpus=tuple(f"{n}x {model}" for n, model in parts), host_watts=host)


def _feeds(node: NodeConfig) -> int:
    """Return how many circuits a machine is made for: two for redundant supplies."""
    system = SYSTEM_BY_ID.get(key_of(node.profile or ""))
    if system is not None and system.feeds is not None:
        return system.feeds
    return 2 if build("fit", "new", node, 230.0, 2).supplies > 1 else 1


class _Finder:
    """The legal places of a site, and their room."""

    def __init__(self, layout: SiteLayout, room: SiteRoom, node: NodeConfig, cords: int, asked: FitRequest) -> None:
        self._layout, self._room, self._node = layout, room, node
        self._cords, self._asked = cords, asked
        self._machines: dict[float, Machine | None] = {}
        self._short: dict[int, float | None] = {}
        """By identity of a machine, of which there is one for each voltage."""
        self.compared = 0
        self.skipped = 0
        """Pairs that can't be among the best, by the room of their circuits alone."""

    def best(self) -> _Candidates:
        """Return the places that may be among the best."""
        declared = self._of_groups()
        found = self._compare(declared)
        if self._cords != 2:
            return found
        return _joined(found, self._of_pairs())

    def first(self, found: _Candidates, top: int) -> list[int]:
        """Return the numbers of the best places: those that fit, then those where that is not known;
        independent feeds first, then what is left."""
        left = found.left(self._asked.count)
        short = np.array([self._short_of_supplies(one) is not None for one in found.machines], dtype=bool)
        fits = (left >= -_ROUNDING_WATTS) & ~short
        known = np.where(fits, np.where(found.room.unknown, 1, 2), 0)
        dark = (found.room.dark >= 0) & (self._cords > 1)
        order = np.lexsort((-left, dark, -known))
        return [int(number) for number in order[:top]]

    def places(self, found: _Candidates, watts: Mapping[str, float]) -> list[FitPlace]:
        """Return the best places, the best first."""
        top = self._asked.top
        if not found.machines or not is_needed(self._layout, found.machines[0]):
            return [self.place(found, number) for number in self.first(found, top)]
        first = self.first(found, max(top, _CONFIRMED))
        confirmation = Confirmation(
            self._layout,
            watts,
            self._room.carriers,
            [(found.circuits[n], found.machines[n]) for n in first],
            self._asked.count,
        )
        places = [self.place(found, number, confirmation.place(position)) for position, number in enumerate(first)]
        return sorted(places, key=_rank, reverse=True)[:top]

    def place(self, found: _Candidates, number: int, confirmed: ConfirmedPlace | None = None) -> FitPlace:
        """Return one place in words."""
        machine, room = found.machines[number], found.room
        count, feeds = self._asked.count, found.feeds[number].tolist()
        watts = count * machine.committed_watts
        normal = self._left(feeds, watts, room.normal[number], room.normal_carrier[number], -1)
        after = self._left(feeds, watts, room.after[number], room.after_carrier[number], room.lost[number])
        dark = self._room.element_of(int(room.dark[number]))
        if confirmed is not None:
            normal = _lesser(confirmed.normal, normal, {LimitKind.BUDGET, LimitKind.NEUTRAL})
            after = _lesser(confirmed.after, after, {LimitKind.NEUTRAL})
            if dark not in confirmed.fatal:
                dark = min(confirmed.fatal, default=None)
        left = min((part.watts for part in (normal, after) if part.watts is not None), default=None)
        takes = None
        if left is not None and machine.committed_watts:
            takes = max(0, math.floor((watts + left) / machine.committed_watts + 1e-6))
        short = self._short_of_supplies(machine)
        if short is not None and (after.watts is None or after.watts >= short):
            after, takes = FitRoom(watts=short, limit=LimitKind.SUPPLY, where="the machine"), 0
        fits = all(part.watts is None or part.watts >= -_ROUNDING_WATTS for part in (normal, after))
        names = list(found.circuits[number])
        return FitPlace(
            feeds=names,
            fits=None if room.unknown[number] and fits else fits,
            takes=takes,
            normal=normal,
            after_loss=after,
            lost_with=dark,
            plug=f"--add '{self._asked.what}@{'+'.join(names)}'",
        )

    def _left(self, feeds: list[int], watts: float, room: float, carrier: int, lost: int) -> FitRoom:
        if carrier < 0:
            return FitRoom(watts=None)
        what = self._room.carriers[carrier]
        amps = None
        if what.amps:
            amps = round(what.limit - self._room.amps(feeds, carrier, lost, watts), 3)
        return FitRoom(
            watts=round(float(room) - watts, 1) + 0.0,
            amps=amps,
            limit=what.kind.value,
            where=what.name,
            lost=self._room.element_of(lost),
        )

    def _short_of_supplies(self, machine: Machine) -> float | None:
        """Return the (negative) watts that the supplies of the other feeds lack when a feed is lost; None
        where they suffice, or are not known."""
        if id(machine) not in self._short:
            self._short[id(machine)] = self._lacking(machine)
        return self._short[id(machine)]

    def _lacking(self, machine: Machine) -> float | None:
        if machine.supply_watts is None or self._cords < 2 or machine.supplies < self._cords:
            return None
        working = machine.supplies - round(machine.supplies / self._cords)
        inside = machine.dc(machine.committed_watts)
        load = set_load(inside, machine.supply_watts, working, machine.needed)
        if load <= 1.0:
            return None
        return round(inside / load - inside, 1)

    # -- Legal places ------------------------------------------------------------------------------

    def _machine(self, circuits: tuple[str, ...]) -> Machine | None:
        """Return the machine at the voltage of these circuits; None where it can't run there."""
        volts = min(_outlet(self._layout.circuits[name]) for name in circuits)
        if volts not in self._machines:
            try:
                machine = build("fit", "new", self._node, volts, len(circuits))
            except ConfigError:
                machine = None
            self._machines[volts] = machine
        return self._machines[volts]

    def _of_groups(self) -> list[tuple[str, ...]]:
        """Return the places that the site declares: single circuits, or feeds of redundancy groups."""
        site = self._layout.site
        if self._cords == 1:
            return [(name,) for name in site.circuits]
        groups = groups_of(site)
        found = [
            some
            for members in groups.values()
            if len(members) >= self._cords
            for some in combinations(members, self._cords)
            if _even(some, self._layout)
        ]
        if self._cords == 4:
            racks: dict[str, list[list[str]]] = {}
            for members in groups.values():
                rack = site.circuits[members[0]].rack
                if rack is not None and len(members) == 2:
                    racks.setdefault(rack, []).append(members)
            found += [
                (*one, *two)
                for pairs in racks.values()
                for one, two in combinations(pairs, 2)
                if _even((*one, *two), self._layout)
            ]
        return [some for some in found if _alike([self._layout.circuits[name] for name in some])]

    def _compare(self, places: list[tuple[str, ...]]) -> _Candidates:
        usable = [(some, machine) for some in places if (machine := self._machine(some)) is not None]
        numbers = [[self._feed(name) for name in some] for some, _ in usable]
        feeds = np.array(numbers, dtype=np.int64).reshape(len(usable), self._cords)
        self.compared += len(usable)
        return _Candidates([some for some, _ in usable], feeds, self._room.evaluate(feeds), [m for _, m in usable])

    def _feed(self, name: str) -> int:
        return self._room.feed(name, self._layout.circuits[name].poles)

    def _of_pairs(self) -> _Candidates:
        """Return the best pairs of circuits without a group that share nothing above them.

        Pairs come in the order of what their lesser circuit would take alone, which no pair exceeds: once
        enough are found that are better than that, the others can't be among the best.
        """
        site = self._layout.site
        alone = [name for name, spec in site.circuits.items() if spec.redundancy is None]
        names = [name for name in alone if self._machine((name,)) is not None]
        feeds = np.array([[self._feed(name)] for name in names], dtype=np.int64).reshape(-1, 1)
        most = self._room.bound(feeds)
        most = np.where(self._room.blind(feeds), -np.inf, most)
        order = np.argsort(-most, kind="stable")
        chains = [frozenset(row[row >= 0].tolist()) for row in self._room.chains(feeds[:, 0])]
        best: list[float] = []
        found = _empty(self._cords)
        batch: list[tuple[str, ...]] = []
        seen = 0
        for position, second in enumerate(order.tolist()):
            enough = len(best) >= self._asked.top
            machine = self._machine((names[second],))
            assert machine is not None  # noqa: S101 - filtered above
            bound = float(most[second]) - self._asked.count * machine.committed_watts
            if seen > _MOST_PAIRS or (enough and best[0] >= bound - _ROUNDING_WATTS):
                self.skipped += (len(order) * (len(order) - 1) - position * (position - 1)) // 2
                break
            batch += [
                (names[first], names[second])
                for first in order[:position].tolist()
                if not chains[first] & chains[second] and self._legal(names[first], names[second])
            ]
            if len(batch) >= 256 or position == len(order) - 1:
                part = self._compare(batch)
                seen += len(batch)
                for left in part.left(self._asked.count).tolist():
                    heapq.heappush(best, left)
                    if len(best) > self._asked.top:
                        heapq.heappop(best)
                found, batch = _joined(found, part), []
        return _joined(found, self._compare(batch)) if batch else found

    def _legal(self, one: str, two: str) -> bool:
        site, circuits = self._layout.site, self._layout.circuits
        return site.circuits[one].rack == site.circuits[two].rack and _alike([circuits[one], circuits[two]])


def _outlet(circuit: Circuit) -> float:
    return circuit.volts * (1 if len(circuit.poles) == 1 else 3**0.5)


def _alike(circuits: list[Circuit]) -> bool:
    """Return whether circuits have the same voltage and number of poles, as cords of one machine must."""
    return all(
        len(one.poles) == len(two.poles) and math.isclose(one.nominal_volts, two.nominal_volts)
        for one, two in pairwise(circuits)
    )


def _even(names: tuple[str, ...], layout: SiteLayout) -> bool:
    """Return whether each side has as many of these feeds, and there are two sides at least.

    Roles are sides of their own in schemes that don't lose a side as a whole.
    """
    sides: dict[str, int] = {}
    for name in names:
        redundancy, circuit = layout.site.circuits[name].redundancy, layout.circuits[name]
        role = redundancy.role if redundancy else ""
        side = circuit.side or role if circuit.scheme in {"2N", "2(N+1)"} else role
        sides[side] = sides.get(side, 0) + 1
    return len(sides) > 1 and len(set(sides.values())) == 1


def _joined(one: _Candidates, two: _Candidates) -> _Candidates:
    if not two.circuits:
        return one
    room = Room(*(np.concatenate([getattr(one.room, name), getattr(two.room, name)]) for name in Room.__slots__))
    return _Candidates(
        one.circuits + two.circuits, np.concatenate([one.feeds, two.feeds]), room, one.machines + two.machines
    )


def _empty(cords: int) -> _Candidates:
    return _Candidates([], np.zeros((0, cords), dtype=np.int64), no_room(), [])


def _lesser(confirmed: Binding, line: FitRoom, kinds: set[LimitKind]) -> FitRoom:
    """Return what binds first: the confirmed limit, or one of the kinds that only the line knows."""
    mine = line.limit in kinds and line.watts is not None
    if mine and line.watts is not None and line.watts < confirmed.left:
        return line
    if confirmed.kind is None:
        return FitRoom(watts=None)
    return FitRoom(
        watts=round(confirmed.left, 1) + 0.0,
        amps=confirmed.amps,
        limit=confirmed.kind.value,
        where=confirmed.where,
        lost=confirmed.lost,
    )


def _rank(place: FitPlace) -> tuple[int, bool, float]:
    left = [part.watts for part in (place.normal, place.after_loss) if part.watts is not None]
    known = {True: 2, None: 1, False: 0}[place.fits]
    alone = len(place.feeds) > 1 and place.lost_with is not None
    return known, not alone, min(left, default=math.inf)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _nowhere(cords: int) -> str:
    if cords == 1:
        return "no circuit has the voltage that it needs"
    return (
        f"no {cords} independent feeds of one voltage are declared; give circuits a redundancy group, or "
        "ask with --feeds 1"
    )
