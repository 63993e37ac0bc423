"""Room for one more machine on some feeds: in normal state, and after the loss of any single element.

Everything that limits a feed is a *carrier*: circuits, neutrals, UPSs and budgets. A watt on a feed
causes a fixed phasor on each carrier above it, so that the load of a carrier is a straight line over the
watts of the new machine, and its room is where that line reaches the limit. A loss (of a circuit, a panel
or a source) moves the load of other machines: those differences are computed once for all losses, and
only where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from power.devices.breaker import Curve, default_curve
from power.devices.connectors import find_connector
from power.network.flow import Ints, has_neutral
from power.site.ceilings import ceilings
from power.site.config import PowerConfig
from power.site.layout import Circuit, SiteLayout
from power.wiring import Complex, Flags, Floats, amps_per_watt

_CHUNK = 1024
"""Candidates that are evaluated at once, for the memory."""
_UPS_POWER_FACTOR = 0.9
"""Watts over volt-amperes of a UPS whose second rating is not given."""


class LimitKind(StrEnum):
    """Kind of a limit."""

    CONTINUOUS = "continuous limit"
    BREAKER = "breaker"
    """The rating that heat and grouping leave, where it is below the continuous limit."""
    PANEL = "panel"
    CONNECTOR = "connector"
    """A plug's own limit."""
    NEUTRAL = "neutral"
    UPS = "UPS"
    TRANSFORMER = "transformer"
    SOURCE = "source"
    """The kW or kVA that a utility or a generator delivers."""
    BUDGET = "budget"
    SUPPLY = "supply"
    """The machine's own supplies, when those of a lost feed are missing."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """Something with a limit that a feed's load goes through."""

    name: str
    kind: LimitKind
    limit: float
    """Amps; watts of UPSs and budgets; infinite where not known."""
    amps: bool = True


Feed = tuple[str, tuple[int, ...]]
"""A circuit, and the poles of it that a cord uses."""


@dataclass(frozen=True, slots=True)
class Room:
    """Room of each candidate: watts of all new machines on it together, not of what is there.

    Negative where the limit is exceeded already. `carrier` is the index of what binds, -1 where nothing
    does; `lost` the element whose loss is the worst, -1 without one.
    """

    normal: Floats
    normal_carrier: Ints
    after: Floats
    after_carrier: Ints
    lost: Ints
    dark: Ints
    """An element that feeds all of the candidate, so that its loss is the machine's; -1 without one."""
    unknown: Flags
    """Whether a machine of unknown draw is below a carrier of the candidate."""


def no_room() -> Room:
    """Return the room of no candidates."""
    none, whole = np.zeros(0), np.zeros(0, dtype=np.int64)
    return Room(none, whole, none, whole, whole, whole, whole.astype(bool))


class SiteRoom:
    """Loads of a site's carriers with the machines' given watts, and how every single loss changes them."""

    def __init__(self, layout: SiteLayout, watts: Mapping[str, float]) -> None:
        """`watts`: at the wall, by machine. A machine that is not in it has an unknown draw."""
        self._layout = layout
        self._circuits = list(layout.circuits)
        self._at = {name: number for number, name in enumerate(self._circuits)}
        sources = dict.fromkeys(c.source for c in layout.circuits.values() if c.source is not None)
        beside = {name: ups for name, ups in layout.site.ups.items() if name not in self._at}
        failing = [name for name, ups in beside.items() if not ups.bypass]
        self.elements: list[str] = [*self._circuits, *sources, *failing]
        """What can be lost: circuits and panels, sources, and UPSs without a bypass."""
        self._source_at = {name: len(self._circuits) + n for n, name in enumerate(sources)}
        after = len(self._circuits) + len(sources)
        self._ups_of: dict[str, list[int]] = {}
        for number, name in enumerate(failing):
            for circuit in beside[name].circuits:
                self._ups_of.setdefault(circuit, []).append(after + number)
        self.carriers: list[Carrier] = [_of_circuit(c, layout.site) for c in layout.circuits.values()]
        self._special = self._specials()
        self._first_budget = len(self.carriers)
        self._budgets_of = self._budgets()
        self._limit = np.array([one.limit for one in self.carriers])
        self._kinds: dict[Feed, int] = {}
        self._rows: list[tuple[list[int], list[int], list[list[complex]]]] = []
        cords = self._cords(watts)
        self._table()
        self._flow(*cords)

    # -- The site as arrays ------------------------------------------------------------------------

    def _specials(self) -> dict[str, list[tuple[int, bool]]]:
        """Return, by circuit, its further carriers, and whether each counts amps of a neutral."""
        found: dict[str, list[tuple[int, bool]]] = {}
        for circuit in self._layout.circuits.values():
            neutral = has_neutral(circuit.wiring, len(circuit.poles))
            if neutral and math.isfinite(circuit.neutral_amps):
                found.setdefault(circuit.id, []).append((len(self.carriers), True))
                self.carriers.append(Carrier(circuit.id, LimitKind.NEUTRAL, circuit.neutral_amps))
        for name, ups in self._layout.site.ups.items():
            behind = [self._layout.circuits[c] for c in ups.circuits]
            factor = min((c.power_factor for c in behind), default=1.0)
            limit = min(ups.watts, (ups.volt_amps or ups.watts / _UPS_POWER_FACTOR) * factor)
            for circuit in behind:
                found.setdefault(circuit.id, []).append((len(self.carriers), False))
            self.carriers.append(Carrier(name, LimitKind.UPS, limit, amps=False))
        return found

    def _budgets(self) -> dict[str, list[tuple[int, bool]]]:
        found: dict[str, list[tuple[int, bool]]] = {}
        for ceiling in ceilings(self._layout):
            if math.isnan(ceiling.kw):
                continue
            for name in ceiling.circuits:
                found.setdefault(name, []).append((len(self.carriers), False))
            limit = ceiling.kw * 1000
            self.carriers.append(Carrier(ceiling.name, LimitKind.BUDGET, limit, amps=False))
        return found

    def feed(self, circuit: str, poles: tuple[int, ...]) -> int:
        """Return the number of a kind of feed."""
        known = self._kinds.get((circuit, poles))
        if known is not None:
            return known
        elements: list[int] = []
        carriers: dict[int, list[complex]] = {}
        here: Circuit | None = self._layout.circuits[circuit]
        assert here is not None  # noqa: S101 - for the type checker
        phasor = amps_per_watt(poles, here.volts, here.power_factor, here.wiring)
        while here is not None:
            elements += [self._at[here.id], *self._ups_of.get(here.id, ())]
            carriers[self._at[here.id]] = phasor.tolist()
            for number, neutral in (*self._special.get(here.id, ()), *self._budgets_of.get(here.id, ())):
                carriers.setdefault(number, [complex(phasor.sum()) if neutral else 1.0, 0, 0])
            above = self._layout.circuits[here.parent] if here.parent else None
            if above is not None:
                phasor = phasor * (here.volts / above.volts)
            elif here.source is not None:
                elements.append(self._source_at[here.source])
            here = above
        self._kinds[circuit, poles] = len(self._rows)
        self._rows.append((elements, list(carriers), list(carriers.values())))
        return len(self._rows) - 1

    def _cords(self, watts: Mapping[str, float]) -> tuple[Ints, Ints, Floats, Floats, Flags]:
        """Return machine, kind of feed and share of each cord, and the machines' watts and whether they
        are known. Declared loads of circuits are machines with one cord."""
        names = {name: number for number, name in enumerate(self._layout.machines)}
        cords = [(names[c.machine], self.feed(c.circuit, c.poles), c.share) for c in self._layout.cords]
        drawn = [watts.get(name, math.nan) for name in names]
        for circuit in self._layout.circuits.values():
            kind = self.feed(circuit.id, circuit.poles)
            if circuit.other_watts > 0:
                cords.append((len(drawn), kind, 1.0))
                drawn.append(circuit.other_watts)
        behind = self._behind_ups(names)
        draws = np.array(drawn, dtype=float)
        self._ups_watts = [(ups, np.array(nodes, dtype=np.int64)) for ups, nodes in behind]
        machine, kind_, share = zip(*cords, strict=True) if cords else ((), (), ())
        return (
            np.array(machine, dtype=np.int64), np.array(kind_, dtype=np.int64), np.array(share, dtype=float),
            np.nan_to_num(draws), ~np.isnan(draws),
        )  # fmt: skip

    def _behind_ups(self, names: Mapping[str, int]) -> list[tuple[int, list[int]]]:
        at = {one.name: n for n, one in enumerate(self.carriers) if one.kind is LimitKind.UPS}
        return [
            (at[name], [names[node] for node in ups.nodes if node in names])
            for name, ups in self._layout.site.ups.items()
            if ups.nodes
        ]

    def _table(self) -> None:
        """Pad what each kind of feed goes through into arrays; -1 is nothing."""
        depth = max((len(elements) for elements, _, _ in self._rows), default=1)
        wide = max((len(carriers) for _, carriers, _ in self._rows), default=1)
        self._elements: Ints = np.full((len(self._rows), depth), -1, dtype=np.int64)
        self._carrier: Ints = np.full((len(self._rows), wide), -1, dtype=np.int64)
        self._phasor: Complex = np.zeros((len(self._rows), wide, 3), dtype=complex)
        for number, (elements, carriers, phasors) in enumerate(self._rows):
            self._elements[number, : len(elements)] = elements
            self._carrier[number, : len(carriers)] = carriers
            self._phasor[number, : len(carriers)] = phasors

    def _flow(self, machine: Ints, kind: Ints, share: Floats, watts: Floats, known: Flags) -> None:
        count = len(self.carriers)
        normal = self._climb(kind, share * watts[machine])
        self._base: Complex = np.zeros((count, 3), dtype=complex)
        np.add.at(self._base, normal[0], normal[1])
        for ups, nodes in self._ups_watts:
            self._base[ups, 0] += watts[nodes].sum()
        blind = self._carrier[kind[~known[machine]]]
        self._blind: Flags = np.zeros(count, dtype=bool)
        self._blind[blind[blind >= 0]] = True
        self._blind &= np.isfinite(self._limit)
        row, cord, lost = self._losses(machine, kind)
        dead = (self._elements[kind[cord]] == lost[row][:, None]).any(axis=1)
        left = np.bincount(row, np.where(dead, 0.0, share[cord]), len(lost))
        alive = np.bincount(row, ~dead, len(lost))
        even = 1.0 / np.maximum(alive[row], 1)
        taken = np.divide(share[cord], left[row], out=even, where=left[row] > 0)
        change = (np.where(dead, 0.0, taken) - share[cord]) * watts[machine[cord]]
        moved = np.flatnonzero(change)
        carrier, phasor, origin = self._climb(kind[cord[moved]], change[moved])
        some = carrier < self._first_budget
        keys = lost[row[moved[origin[some]]]] * count + carrier[some]
        phasor = phasor[some]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        self._keys: Ints = keys[starts]
        self._change: Complex = np.add.reduceat(phasor[order], starts) if len(starts) else phasor[:0]
        self._by_carrier()

    def _climb(self, kind: Ints, watts: Floats) -> tuple[Ints, Complex, Ints]:
        """Return carrier, phasor and origin of loads on feeds."""
        carrier = self._carrier[kind]
        valid = carrier >= 0
        origin = np.nonzero(valid)[0]
        return carrier[valid], (self._phasor[kind] * watts[:, None, None])[valid], origin

    def _losses(self, machine: Ints, kind: Ints) -> tuple[Ints, Ints, Ints]:
        """Return every pair of a lost element and a machine below it, by the machine's cords: row of the
        pair and cord; and the element of each row."""
        machines = int(machine.max(initial=-1)) + 1
        elements = self._elements[kind]
        valid = elements >= 0
        pairs = np.unique(elements[valid] * machines + np.repeat(machine, valid.sum(axis=1)))
        lost, whose = pairs // max(machines, 1), pairs % max(machines, 1)
        order = np.argsort(machine, kind="stable")
        starts = np.searchsorted(machine[order], np.arange(machines + 1))
        row, position = _ragged(starts[whose], starts[whose + 1])
        return row, order[position], lost

    def _by_carrier(self) -> None:
        """Sort, by carrier, the losses that add load to it: all others leave it less than it has now."""
        count = len(self.carriers)
        carrier = self._keys % count
        base = np.abs(self._base[carrier])
        more = np.flatnonzero((np.abs(self._base[carrier] + self._change) > base + 1e-9).any(axis=1))
        order = more[np.argsort(carrier[more], kind="stable")]
        self._worse = order
        self._worse_starts = np.searchsorted(carrier[order], np.arange(count + 1))

    # -- Candidates --------------------------------------------------------------------------------

    def element_of(self, number: int) -> str | None:
        """Return the name of an element; None for -1."""
        return None if number < 0 else self.elements[number]

    def chains(self, feeds: Ints) -> Ints:
        """Return the elements above each feed; -1 is nothing."""
        return self._elements[feeds]

    def bound(self, feeds: Ints) -> Floats:
        """Return what no pair of independent feeds that each feed is part of exceeds, budgets aside: all of
        the load in normal state, as each must bear the loss of the other; half of it after a loss elsewhere."""
        carrier, added = self._carrier[feeds[:, 0]], self._phasor[feeds[:, 0]]
        valid = (carrier >= 0) & (carrier < self._first_budget)
        rooms = _room(self._base[carrier], added, self._limit[carrier])
        least: Floats = np.where(valid, rooms, np.inf).min(axis=1, initial=np.inf)
        return np.minimum(least, self._other_losses(self._elements[feeds[:, 0]], carrier, 0.5 * added, valid)[0])

    def blind(self, feeds: Ints) -> Flags:
        """Return whether a machine of unknown draw is below anything that limits each feed."""
        carrier = self._carrier[feeds[:, 0]]
        return np.asarray((self._blind[carrier] & (carrier >= 0)).any(axis=1))

    def evaluate(self, feeds: Ints) -> Room:
        """Return the room of candidates with one cord into each of their feeds, evenly loaded; `feeds` is
        of shape (candidates, cords), of the numbers that `feed` gave before the first evaluation."""
        if not len(feeds):
            return no_room()
        parts = [self._some(feeds[n : n + _CHUNK]) for n in range(0, len(feeds), _CHUNK)]
        return Room(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _some(self, feeds: Ints) -> tuple[Floats, Ints, Floats, Ints, Ints, Ints, Flags]:
        rows, cords = feeds.shape
        own = self._elements[feeds]
        shape = (rows, cords * self._carrier.shape[1])
        carrier = self._carrier[feeds].reshape(shape)
        even = np.full((rows, cords), 1.0 / max(cords, 1))
        nothing = np.full(rows, -1, dtype=np.int64)
        usual = self._added(feeds, even)
        rooms = _room(self._base[carrier], usual, self._limit[carrier])
        normal, normal_carrier = _least(np.where(carrier >= 0, rooms, np.inf), carrier)
        lossy = (carrier >= 0) & (carrier < self._first_budget)
        # Most losses are elsewhere and change nothing here: none is better than the normal state.
        after, after_carrier = _least(np.where(lossy, rooms, np.inf), carrier)
        lost, dark = nothing.copy(), nothing.copy()
        for cord in range(cords):
            for level in range(own.shape[2]):
                element = own[:, cord, level]
                alive = ~(own == element[:, None, None]).any(axis=2)
                some = alive.any(axis=1)
                dark = np.where((element >= 0) & ~some & (dark < 0), element, dark)
                shares = alive / np.maximum(alive.sum(axis=1), 1)[:, None]
                loads = self._base[carrier] + self._changed(element[:, None], carrier)
                bears = lossy & (np.repeat(shares, self._carrier.shape[1], axis=1) > 0)
                rooms = _room(loads, self._added(feeds, shares), self._limit[carrier])
                rooms = np.where(bears & ((element >= 0) & some)[:, None], rooms, np.inf)
                found, which = _least(rooms, carrier)
                worse = found < after
                after = np.where(worse, found, after)
                after_carrier = np.where(worse, which, after_carrier)
                lost = np.where(worse, element, lost)
        others = self._other_losses(own.reshape(rows, -1), carrier, usual, lossy)
        worse = others[0] < after
        after, after_carrier, lost = (
            np.where(worse, one, before) for one, before in zip(others, (after, after_carrier, lost), strict=True)
        )
        unknown: Flags = np.asarray((self._blind[carrier] & (carrier >= 0)).any(axis=1))
        return normal, normal_carrier, after, after_carrier, lost, dark, unknown

    def _added(self, feeds: Ints, shares: Floats) -> Complex:
        """Return the phasor of one new watt on each carrier of the candidates, over all their feeds."""
        rows = len(feeds)
        wide = feeds.shape[1] * self._carrier.shape[1]
        carrier = self._carrier[feeds].reshape(rows, wide)
        phasor = (self._phasor[feeds] * shares[:, :, None, None]).reshape(rows, wide, 3)
        same = (carrier[:, :, None] == carrier[:, None, :]).astype(float)
        summed: Complex = same @ phasor
        return summed

    def _changed(self, element: Ints, carrier: Ints) -> Complex:
        """Return the change of load of carriers when an element is lost."""
        keys = element * len(self.carriers) + carrier
        if not len(self._keys):
            return np.zeros((*keys.shape, 3), dtype=complex)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where((self._keys[at] == keys)[..., None], self._change[at], 0.0)

    def _other_losses(self, own: Ints, carrier: Ints, usual: Complex, lossy: Flags) -> tuple[Floats, Ints, Ints]:
        """Return the least room after losses elsewhere, which move load of others to these carriers."""
        rows, wide = carrier.shape
        flat = np.where(lossy, carrier, 0).ravel()
        begin = self._worse_starts[flat]
        end = np.where(lossy.ravel(), self._worse_starts[flat + 1], begin)
        cell, position = _ragged(begin, end)
        entry = self._worse[position]
        element = self._keys[entry] // len(self.carriers)
        row = cell // wide
        elsewhere = ~(own[row] == element[:, None]).any(axis=1)
        cell, entry, element, row = (one[elsewhere] for one in (cell, entry, element, row))
        load = self._base[flat[cell]] + self._change[entry]
        rooms = _room(load, usual.reshape(-1, 3)[cell], self._limit[flat[cell]])
        found = np.full(rows, np.inf)
        which, lost = np.full(rows, -1, dtype=np.int64), np.full(rows, -1, dtype=np.int64)
        order = np.lexsort((rooms, row))
        first = order[np.flatnonzero(np.diff(row[order], prepend=-1))]
        found[row[first]], which[row[first]], lost[row[first]] = (rooms[first], flat[cell[first]], element[first])
        return found, which, lost

    def amps(self, feeds: Sequence[int], carrier: int, lost: int, watts: float) -> float:
        """Return what a carrier carries of all, in its unit, with `watts` on a candidate after a loss."""
        rows = np.array([feeds], dtype=np.int64)
        own = self._elements[rows]
        alive = ~(own == lost).any(axis=2) if lost >= 0 else np.ones(rows.shape, dtype=bool)
        shares = alive / max(int(alive.sum()), 1)
        new = self._added(rows, shares)[0]
        at = int(np.flatnonzero(self._carrier[rows].reshape(-1) == carrier)[0])
        load = self._base[carrier] + watts * new[at]
        if lost >= 0:
            load = load + self._changed(np.array(lost), np.array(carrier))
        return float(np.abs(load).max())


def _of_circuit(circuit: Circuit, site: PowerConfig) -> Carrier:
    limit = min(circuit.continuous_amps, circuit.effective_amps)
    kind = LimitKind.CONTINUOUS if limit < circuit.effective_amps else LimitKind.BREAKER
    if circuit.effective_amps >= circuit.rated_amps:
        kind = LimitKind.CONTINUOUS
    if circuit.is_panel:
        kind = LimitKind.PANEL
    plug = min(_connector_amps(circuit, site), circuit.plug_amps or math.inf)
    if plug <= limit and math.isfinite(plug):
        limit, kind = plug, LimitKind.CONNECTOR
    return Carrier(circuit.id, kind, limit)


def _connector_amps(circuit: Circuit, site: PowerConfig) -> float:
    spec = site.circuits.get(circuit.id)
    if spec is None or spec.connector is None:
        return math.inf
    usual = default_curve(round(circuit.nominal_volts), site.region)
    return find_connector(circuit.id, spec.connector).limit_amps(usual is Curve.UL489)


def _room(load: Complex, added: Complex, limit: Floats) -> Floats:
    """Return x of |load + x * added| = limit, the least over the poles: infinite where nothing is added or
    there is no limit."""
    square = np.abs(added) ** 2
    half = (np.conj(added) * load).real
    over = np.abs(load) ** 2 - np.square(np.where(np.isfinite(limit), limit, 0.0))[..., None]
    root = half**2 - square * over
    with np.errstate(divide="ignore", invalid="ignore"):
        reached = (np.sqrt(np.maximum(root, 0.0)) - half) / square
        # A load that never comes down to the limit by less of this machine: by how much it is above it.
        reached = np.where(root < 0, -(np.sqrt(np.maximum(over, 0.0))) / np.sqrt(square), reached)
    bound = (square > 0) & np.isfinite(limit)[..., None]
    least: Floats = np.where(bound, reached, np.inf).min(axis=-1)
    return least


def _least(rooms: Floats, carrier: Ints) -> tuple[Floats, Ints]:
    """Return the least room of each row and its carrier; -1 where nothing binds."""
    at = rooms.argmin(axis=1)
    rows = np.arange(len(rooms))
    found = rooms[rows, at]
    return found, np.where(np.isfinite(found), carrier[rows, at], -1)


def _ragged(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return, for rows of `begin` to `end`, the row of each item and its position."""
    counts = end - begin
    row = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return row, np.arange(len(row)) - before[row] + begin[row]
