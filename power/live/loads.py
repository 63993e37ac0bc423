"""Loads of all circuits: from their meters where these are fresh, else the sum of the nodes.

A meter on a circuit replaces the sum of the circuits and nodes below it; the excess is undeclared
load, which its feeders carry, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from power.devices.wall_power import SIGMA_RATIO, WallSource
from power.live.metering import CIRCUIT, RANK, SOURCES, STALE_LEAST, Metering
from power.live.wall_power import WallPower
from power.network.feeds import add_currents, climb, cord_flow, sum_by_circuit
from power.network.flow import Climb, Flow, Ints
from power.network.topology import SiteTopology
from power.wiring import Complex, Flags, Floats, highest_of_three

_SIGMAS = np.array([SIGMA_RATIO[source] for source in SOURCES])
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class CircuitMeters:
    """Fresh readings of the circuits' meters; arrays over circuits, NaN without one."""

    watts: Floats
    amps: Floats
    """Shape (circuits, 3), as measured."""
    neutral: Floats
    """Amps of the neutral, as measured."""
    volts: Floats
    """Measured over nominal, mean of the poles."""
    rank: Ints
    stale: Flags
    """Whether a meter of the circuit is silent, or a configured one has never reported."""
    tripped: Flags
    input_lost: Flags
    limit_amps: Floats
    limit_watts: Floats
    """Limit of a plug in the circuit."""
    pole_watts: Floats
    energy: Floats
    """Counter, joules."""
    energy_at: Floats
    """Time of the counter's reading."""
    energy_slot: Ints
    """Slot of the meter with the counter: another meter's counter starts elsewhere."""
    power_factor: Floats
    """Shape (circuits, 3), as measured, or watts over volt-amperes; NaN without either."""
    heard_at: Floats
    """Time of the newest reading that is used; -inf without one."""
    changed_at: Floats
    """Time at which any quantity of it changed last."""
    missed: Flags
    """Whether a configured meter has not reported since the start."""

    def untold(self, topology: SiteTopology) -> Flags:
        """Return the circuits of whose load as a whole no meter tells."""
        found: Flags = np.isnan(self.watts) & (np.isnan(self.amps) & topology.poles).any(axis=1)
        return found


@dataclass(frozen=True, slots=True)
class Held:
    """Load that only meters knew which are silent now; arrays over circuits."""

    watts: Floats
    total: Floats
    """Last watts by the meter."""
    currents: Complex
    sigma: Floats
    expired: Flags
    """Whether it is too old to be the last known: unknown."""
    known: Flags
    """Whether a meter has ever reported."""
    deficit: Floats
    """Watts of the nodes' sum beyond the meter, at its last reading."""


@dataclass(frozen=True, slots=True)
class CircuitLoads:
    """Loads; arrays over circuits."""

    watts: Floats
    """NaN where not known."""
    sigma: Floats
    rank: Ints
    amps: Floats
    """Shape (circuits, 3)."""
    reported_amps: Floats
    """`amps` without what is assumed of each pole's load. Shape (circuits, 3)."""
    drawn_amps: Floats
    """`amps` with silent nodes at their last draw, not at what they may draw. Shape (circuits, 3)."""
    highest: Floats
    """Amps of the pole with the highest current."""
    reported_part: Floats
    """Part of `highest` that the pole with the highest reported current has: what is assumed of a pole says nothing of another."""
    currents: Complex
    """Phasors at the layout's voltage."""
    modelled: Floats
    """Sum of nodes and circuits below, without its own meter."""
    unknown: Floats
    """Meter less that sum: undeclared load. 0 without a meter."""
    unknown_nodes: Floats
    """Nodes of unknown draw; they are missing in the sum."""
    metered: Floats
    """Watts by its own meter; NaN without one."""
    assumed: Floats
    """Assumed part of `watts`: of silent nodes and unread GPUs. 0 with a meter of its own."""
    surplus: Floats
    """Part of `assumed` above the last reported draw."""
    last_known: Floats
    """Part of `assumed` that was measured or modelled last: of silent meters, and of silent nodes."""
    expired: Floats
    """Part of `assumed` that is unknown by now: its meter has been silent for too long."""
    silent_meters: Floats
    """Part of `assumed` that a silent meter knew."""
    unmeasured: Floats
    """Circuits below, and itself, of which nothing is known: a meter that never reported, and no node."""
    unread: Floats
    """Nodes below with a meter that does not report, by the part that each draws here. 0 with a meter of its own."""
    unheard: Floats
    """Part of `watts` of nodes that kilowatch itself does not hear. 0 with a meter of its own."""
    assumed_below: Floats
    """Assumed part of `modelled`."""
    excess_currents: Complex
    """Phasors of the meter less those of the sum below it."""


def read_meters(
    topology: SiteTopology, metering: Metering, now: float, metered: Flags, started: float
) -> CircuitMeters:
    """Return the readings of the circuits' meters. `metered`: circuits with a configured meter."""
    count = len(topology.network.names)
    kind, target, pole, rank = (metering.whole(n) for n in ("kind", "target", "pole", "rank"))
    fresh = metering.fresh(now)
    mine = kind == CIRCUIT
    # The best source is written last and replaces the others.
    order = np.flatnonzero(mine & fresh)
    order = order[np.argsort(-rank[order], kind="stable")]
    total = np.full(count, np.nan)
    by_pole, amps, volts, factors = (np.full((count, 3), np.nan) for _ in range(4))
    heard_at, changed_at = np.full(count, -np.inf), np.full(count, -np.inf)
    np.maximum.at(heard_at, target[order], metering.number("at")[order])
    np.maximum.at(changed_at, target[order], metering.number("changed_at")[order])
    ranks = np.full(count, RANK[WallSource.MODEL], dtype=np.int64)
    limit_amps, limit_watts, neutral = (np.full(count, np.nan) for _ in range(3))
    for name, table in (("watts", by_pole), ("amps", amps), ("volts", volts), ("power_factor", factors)):
        values = metering.factors() if name == "power_factor" else metering.number(name)
        use = order[~np.isnan(values[order])]
        of_pole, of_all = use[pole[use] >= 0], use[pole[use] < 0]
        table[target[of_pole], pole[of_pole]] = values[of_pole]
        if name == "watts":
            total[target[of_all]] = values[of_all]
        else:
            # One current of three poles can't be assigned to a pole; one voltage is that of all.
            most = 2 if name == "amps" else 3
            _spread(table, topology, target[of_all], values[of_all], most)
        if name != "power_factor":
            ranks[target[use]] = rank[use]
    for name, reported in (("limit_amps", limit_amps), ("limit_watts", limit_watts), ("neutral_amps", neutral)):
        values = metering.number(name)
        use = order[~np.isnan(values[order])]
        reported[target[use]] = values[use]
    energy, energy_at = np.full(count, np.nan), np.full(count, np.nan)
    counts = order[~np.isnan(metering.number("energy_joules")[order]) & (pole[order] < 0)]
    energy[target[counts]] = metering.number("energy_joules")[counts]
    energy_at[target[counts]] = metering.number("at")[counts]
    slot = np.full(count, -1, dtype=np.int64)
    slot[target[counts]] = counts
    complete = (~np.isnan(by_pole) | ~topology.poles).all(axis=1)
    total = np.where(np.isnan(total) & complete, np.nansum(by_pole, axis=1), total)
    heard = np.bincount(target[mine], minlength=count) > 0
    stale = np.bincount(target[mine & ~metering.reporting(now)], minlength=count) > 0
    # A meter that has told no load yet, as a counter before its second step.
    loaded = ~np.isnan(total) | ~np.isnan(amps).all(axis=1)
    missed = metered & ~(heard & (loaded | stale))
    stale |= missed & (now - started > STALE_LEAST)
    return CircuitMeters(
        total,
        amps,
        neutral,
        _voltage(topology, volts),
        ranks,
        stale,
        _any(count, target[mine & fresh & metering.flag("tripped")]),
        _any(count, target[mine & fresh & metering.flag("input_lost")]),
        limit_amps,
        limit_watts,
        by_pole,
        energy,
        energy_at,
        slot,
        factors,
        heard_at,
        changed_at,
        missed,
    )


def settle(
    topology: SiteTopology,
    wall_power: WallPower,
    shares: Floats,
    dead: Flags,
    meters: CircuitMeters,
    weights: Sequence[Floats] | None = None,
    held: Held | None = None,
) -> CircuitLoads:
    """Return the loads, from the deepest circuits up; a circuit's own meter replaces its sum. `weights`:
    what enters by each line (`weights_without`), as when everything has power if None. `held` counts
    where a meter is silent."""
    network = topology.network
    count = len(network.names)
    (watts, currents, linear, square, rank, blind, assumed, surplus, last_known, silent_meters, expired) = _from_cords(
        topology, wall_power, shares, dead
    )
    unread, unheard = (_of_nodes(topology, some, shares) for some in (wall_power.unread, wall_power.unheard))
    modelled, unknown, reported = np.zeros(count), np.zeros(count), meters.watts.copy()
    assumed_below, excess_currents = np.zeros(count), np.zeros_like(currents)
    empty = (topology.starts[1:] == topology.starts[:-1]) & (topology.other_below == 0)
    unmeasured = (meters.missed & empty & ~dead).astype(float)
    # Whether something is known to draw there: a meter, a cord in use, or a declared load.
    used = np.bincount(network.cord_circuit, shares > 0, count) + network.other_watts > 0
    if held is not None:
        unmeasured[held.known], used[held.known] = 0.0, True
    parts = _LoadParts.of(topology, wall_power, shares, dead, currents, held, meters)
    own = unmeasured.copy()  # a sum of what it feeds is something
    ratio = _inherit(topology, meters.volts)
    for number, level in enumerate(topology.levels):
        modelled[level], assumed_below[level], summed = (watts[level], assumed[level], currents[level])
        watts[level], currents[level], reported[level] = _measure(
            topology, meters, ratio, level, watts[level], summed, parts.below(level, watts[level] - surplus[level])
        )
        excess_currents[level] = currents[level] - summed
        unmeasured[level] -= np.where(modelled[level] > 0, own[level], 0.0)
        metered = level[~np.isnan(reported[level])]
        parts.measure(level, metered, summed, watts)
        unknown[metered] = watts[metered] - modelled[metered]
        if held is not None:
            quiet = level[np.isnan(reported[level]) & held.known[level] & ~dead[level]]
            kept, part, last_draw = _kept(topology, wall_power, held, quiet, watts[quiet], surplus[quiet])
            surplus[quiet] -= np.where(last_draw > 0, held.watts[quiet] * last_draw - kept, 0.0)
            unknown[quiet] = kept
            for total in (watts, assumed, silent_meters):
                total[quiet] += kept
            parts.hold(quiet, held, part, last_draw, watts[quiet] - surplus[quiet])
            last_known[quiet] += np.where(held.expired[quiet], 0.0, kept)
            expired[quiet] += np.where(held.expired[quiet], kept, 0.0)
            square[quiet] += np.square(held.sigma[quiet] * part)
        linear[metered], square[metered] = (0.0, np.square(_SIGMAS[meters.rank[metered]] * watts[metered]))
        rank[metered], blind[metered], used[metered] = meters.rank[metered], 0, True
        for total in (assumed, surplus, last_known, expired, silent_meters, unmeasured, unread, unheard):
            total[metered] = 0.0
        if number == len(network.climbs):
            break
        step = network.climbs[number]
        weight = step.weight if weights is None else weights[number]
        for total in (
            linear,
            square,
            blind,
            assumed,
            surplus,
            last_known,
            expired,
            silent_meters,
            unmeasured,
            unread,
            unheard,
        ):
            np.add(total, sum_by_circuit(step.parents, total[step.children] * weight, count), out=total)
        np.maximum.at(rank, step.parents, np.where(weight > 0, rank[step.children], 0))
        np.maximum.at(used, step.parents, used[step.children])
        parts.climb(step, weight, watts, assumed, surplus)
        climb(step, weight, watts, currents)
    heard = topology.count_below(~np.isnan(wall_power.watts)) > 0
    nothing = (blind > 0) & ~heard & (network.other_watts == 0)
    nothing |= (unmeasured > 0) & (watts == 0)
    rank[~used] = RANK[WallSource.MODEL]  # 0 W of an empty circuit are no reading of a meter
    amps, of_reported, drawn = parts.amps(ratio, nothing)
    return CircuitLoads(
        np.where(nothing, np.nan, watts),
        np.where(nothing, np.nan, linear + np.sqrt(square)),
        rank,
        amps,
        of_reported,
        drawn,
        highest_of_three(amps),
        _reported_part(amps, of_reported),
        currents,
        modelled,
        unknown,
        blind,
        reported,
        np.where(nothing, np.nan, assumed),
        surplus,
        last_known,
        expired,
        silent_meters,
        unmeasured,
        unread,
        unheard,
        assumed_below,
        excess_currents,
    )


def _reported_part(amps: Floats, reported: Floats) -> Floats:
    """Return the highest reported current of any pole over the highest current; 1 where nothing flows."""
    highest = highest_of_three(amps)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(highest > 0, highest_of_three(reported) / highest, 1.0)


def _kept(
    topology: SiteTopology, wall_power: WallPower, held: Held, rows: Ints, sums: Floats, surplus: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the held watts that count beside the sums of some circuits, what part of the held they are, and what part
    counts beside the last draws, which are less than the sums by a `surplus`."""
    kept = held.watts[rows]
    only = topology.single_feed[rows]
    if not len(wall_power.silent):
        return kept, np.ones(len(kept)), np.ones(len(kept))
    # The last draw of a silent node is what the meter of its circuit read: all of it. Else the meter of a
    # circuit with one node knew what is beyond its model, of which a meter of the node may measure some.
    alone, silent = only >= 0, wall_power.silent[only]
    whole = np.where(silent, held.total[rows], wall_power.modelled[only] + kept)
    known = alone & ~np.isnan(whole)
    result: Floats = np.where(known, np.maximum(whole - sums, 0.0), kept)
    last_draw = np.where(known, np.maximum(whole - (sums - surplus), 0.0), kept)
    with np.errstate(invalid="ignore", divide="ignore"):
        part, of_last_draw = (np.where(kept > 0, some / kept, 0.0) for some in (result, last_draw))
    return result, part, of_last_draw


def _from_cords(
    topology: SiteTopology, wall_power: WallPower, shares: Floats, dead: Flags
) -> tuple[Floats, Complex, Floats, Floats, Ints, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Return each circuit's own part of watts, currents, sigma (alike and apart), rank, unknown, assumed,
    surplus, last known, what silent meters knew, and what of it has expired."""
    network = topology.network
    count = len(network.names)
    at, machine = network.cord_circuit, network.cord_machine
    lost = np.isnan(wall_power.watts)
    sigma = np.where(lost, 0.0, wall_power.sigma)[machine] * shares

    def sums(watts: Floats) -> Floats:
        return sum_by_circuit(at, watts[machine] * shares, count) if watts.any() else np.zeros(count)

    # Model errors are correlated and add up; those of two meters partly cancel.
    alike = wall_power.rank[machine] >= RANK[WallSource.MODEL]
    own = cord_flow(topology, np.where(lost, 0.0, wall_power.watts), network.other_watts, shares, dead)
    rank = np.zeros(count, dtype=np.int64)
    ranks = np.where(shares > 0, wall_power.rank[machine], 0)
    for number in np.flatnonzero(np.bincount(ranks)).tolist():  # the highest last
        rank[np.bincount(at[ranks == number], minlength=count) > 0] = number
    empty = np.bincount(at, minlength=count) == 0
    rank[empty & (network.other_watts > 0)] = RANK[WallSource.MODEL]
    return (
        own.watts, own.currents, sum_by_circuit(at, np.where(alike, sigma, 0.0), count),
        sum_by_circuit(at, np.where(alike, 0.0, np.square(sigma)), count), rank,
        sum_by_circuit(at, np.where(lost[machine], 1.0, 0.0), count) if lost.any() else np.zeros(count),
        sums(wall_power.assumed), sums(wall_power.surplus), sums(wall_power.last_known),
        sums(wall_power.silent_meters), sums(wall_power.expired),
    )  # fmt: skip


def _of_nodes(topology: SiteTopology, values: Floats | Flags, shares: Floats) -> Floats:
    """Return the part of its own nodes' values that each circuit has."""
    network = topology.network
    if not values.any():
        return np.zeros(len(network.names))
    parts = values[network.cord_machine] * shares
    return sum_by_circuit(network.cord_circuit, parts, len(network.names))


@dataclass(frozen=True, slots=True)
class _Below:
    """Loads of some circuits by what is below them: each contains the one before it."""

    measured: Flow
    """Loads that meters below read."""
    last_read: Flow
    """Loads that they read now or, where they are silent, last."""
    whole: Flow
    """With silent nodes at their last draw."""

    def at(self, watts: Floats) -> Complex:
        """Return the phasors if it is `watts` in all: what nobody measures gives way first, then what nobody does now."""
        whole = self.whole
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = np.where(whole.watts > 0, watts / whole.watts, 1.0)
        flowing: Complex = scale[:, None] * whole.currents
        less = np.flatnonzero((scale < 1) & (self.last_read.watts > 0))
        if len(less):
            flowing[less] = self._in_order(less, watts[less])
        return flowing

    def _in_order(self, rows: Ints, watts: Floats) -> Complex:
        """Return the phasors of some circuits that carry less than the sum below them."""
        flowing: Complex = np.zeros((len(rows), 3), complex)
        before = Flow(np.zeros_like(flowing), np.zeros(len(rows)))
        for flow in (self.measured, self.last_read, self.whole):
            one = flow.rows(rows)
            of_all = one.watts - before.watts
            with np.errstate(invalid="ignore", divide="ignore"):
                part = np.where(of_all > _CLOSE, np.clip((watts - before.watts) / of_all, 0.0, 1.0), 0.0)
            flowing += part[:, None] * (one.currents - before.currents)
            before = one
        return flowing


class _LoadParts:
    """Currents of all circuits without what is assumed: on a panel's pole nothing says of another pole's load."""

    def __init__(
        self,
        currents: Complex,
        assumed: Complex | None,
        surplus: Complex | None,
        measured: Flow,
        last: tuple[Flow, Flow] | None,
    ) -> None:
        """`assumed`, `surplus`: phasors of each circuit's own nodes; None where there are none on the site. `measured`:
        by meters. `last`: with what silent ones read last, and the whole with that; None where no meter is silent."""
        self._currents = currents
        self.measured = measured
        self.last = last
        self.reported: Complex = currents if assumed is None else currents - assumed
        self.drawn: Complex = currents if surplus is None else currents - surplus
        """With silent nodes at their last draw."""

    @classmethod
    def of(
        cls,
        topology: SiteTopology,
        wall_power: WallPower,
        shares: Floats,
        dead: Flags,
        currents: Complex,
        held: Held | None,
        meters: CircuitMeters,
    ) -> _LoadParts:
        """Return the parts of what the circuits' own nodes draw."""
        nothing = np.zeros(len(currents))

        def flow(watts: Floats, local: Floats = nothing) -> Flow:
            return cord_flow(topology, np.nan_to_num(watts), local, shares, dead)

        kept = held is not None and bool((held.known & np.isnan(meters.watts) & (held.watts > 0)).any())
        some = kept or wall_power.assumed.any()
        last, read_last = None, ~np.isnan(wall_power.last_read)
        if read_last.any() or (held is not None and held.known[meters.untold(topology)].any()):
            read = np.where(read_last, wall_power.last_read, wall_power.metered)
            drawn = wall_power.watts - wall_power.surplus
            drawn = np.where(read_last, wall_power.last_read, drawn)
            last = flow(read), flow(drawn, topology.network.other_watts)
        return cls(
            currents,
            flow(wall_power.assumed).currents if some else None,
            flow(wall_power.surplus).currents if wall_power.surplus.any() else None,
            flow(wall_power.metered),
            last,
        )

    def hold(self, rows: Ints, held: Held, part: Floats, last_draw: Floats, drawn: Floats) -> None:
        """Add the parts that count of what only the silent meters of some circuits knew; nobody reports it. `drawn`: watts
        with last draws, and with these parts."""
        currents = held.currents[rows]
        self._currents[rows] += currents * part[:, None]
        if self.drawn is not self._currents:
            self.drawn[rows] += currents * last_draw[:, None]
        if self.last is None or not len(rows):
            return
        read, whole = self.last
        whole.currents[rows] += currents * last_draw[:, None]
        watts = whole.watts[rows] + held.watts[rows] * last_draw
        # What no meter reads of the sum errs as it did beside the last reading.
        moved = np.fmax(watts - held.deficit[rows], np.fmin(drawn, held.total[rows]))
        live = self.measured.rows(rows)
        rest = watts - live.watts
        with np.errstate(invalid="ignore", divide="ignore"):
            part = np.where(rest > _CLOSE, np.maximum(moved - live.watts, 0.0) / rest, 1.0)
        whole.currents[rows] = live.currents + part[:, None] * (whole.currents[rows] - live.currents)
        whole.watts[rows] = live.watts + part * rest
        read.watts[rows], read.currents[rows] = whole.watts[rows], whole.currents[rows]

    def below(self, level: Ints, drawn: Floats) -> _Below:
        """Return what some circuits carry before their own meters are read. `drawn`: watts with last draws."""
        measured = self.measured.rows(level)
        if self.last is None:
            return _Below(measured, measured, Flow(self.drawn[level], drawn))
        read, whole = self.last
        return _Below(measured, read.rows(level), whole.rows(level))

    def measure(self, level: Ints, metered: Ints, summed: Complex, watts: Floats) -> None:
        """Follow the meters of one level, of whole circuits and of single poles. `summed`: without them."""
        now = self._currents[level]
        for flow in (self.measured, *(self.last or ())):
            flow.watts[metered] = watts[metered]
            flow.currents[metered] = self._currents[metered]
        for part in self._differing():
            part[level] = np.where(now == summed, part[level], now)
            part[metered] = self._currents[metered]

    def climb(self, step: Climb, weight: Floats, watts: Floats, assumed: Floats, surplus: Floats) -> None:
        """Add what the children of a step carry to what feeds them."""
        for part, less in ((self.reported, assumed), (self.drawn, surplus)):
            if part is not self._currents:
                at = step.children
                _, above = step.lift((watts - less)[at], part[at])
                add_currents(step.parents, above * weight[:, None], part)
        for flow in (self.measured, *(self.last or ())):
            climb(step, weight, flow.watts, flow.currents)

    def amps(self, ratio: Floats, nothing: Flags) -> tuple[Floats, Floats, Floats]:
        """Return the amps of all loads, of the reported part, and with silent nodes at their last draw; NaN of
        circuits of which `nothing` is known."""
        amps = np.where(nothing[:, None], np.nan, np.abs(self._currents) / ratio[:, None])
        reported, drawn = (
            amps if part is self._currents else np.minimum(np.abs(part) / ratio[:, None], amps)
            for part in (self.reported, self.drawn)
        )
        return amps, reported, drawn

    def _differing(self) -> list[Complex]:
        parts = [part for part in (self.reported, self.drawn) if part is not self._currents]
        return parts if self.last is None else [*parts, self.last[1].currents]


def _measure(
    topology: SiteTopology,
    meters: CircuitMeters,
    ratio: Floats,
    level: Ints,
    sums: Floats,
    summed: Complex,
    below: _Below,
) -> tuple[Floats, Complex, Floats]:
    """Return watts and currents of one level's circuits by meter or sum, and the metered watts alone. `below`: by
    which the watts of a meter are on its poles."""
    reported = meters.watts[level]
    has = ~np.isnan(reported)
    flowing = np.where(has[:, None], below.at(reported), summed)
    fresh = has & (below.whole.watts <= 0)
    flowing[fresh] = topology.pattern[level][fresh] * reported[fresh, None]
    factor = (topology.volts * topology.power_factor)[level, None]
    # A meter that reports watts and a power factor has measured its current, too.
    measured_factor = meters.power_factor[level] / topology.power_factor[level, None]
    measured_factor = np.where(np.isnan(measured_factor), 1.0, measured_factor)
    flowing = np.where(has[:, None], flowing / measured_factor, flowing)
    amps = np.where(
        np.isnan(meters.amps[level]),
        meters.pole_watts[level] / (factor * measured_factor),
        meters.amps[level] * ratio[level, None],
    )
    poles = topology.poles[level]
    known = ~np.isnan(amps) & poles
    amps = np.where(known, amps, 0.0)
    # A measured current has the phase that the nodes below give it.
    like = np.where(np.abs(flowing) < _CLOSE, topology.pattern[level], flowing)
    direction = like / np.maximum(np.abs(like), _CLOSE)
    flowing = np.where(known, amps * direction, flowing)
    # The amps of all poles give the watts, too.
    reported = np.where(has | ~(known | ~poles).all(axis=1), reported, amps.sum(axis=1) * factor[:, 0])
    return np.where(np.isnan(reported), sums, reported), flowing, reported


def _spread(table: Floats, topology: SiteTopology, target: Ints, values: Floats, most: int) -> None:
    """Assign the value of a whole circuit to each of its poles, if it has at most `most`."""
    simple = topology.poles[target].sum(axis=1) <= most
    target, values = target[simple], values[simple]
    table[target] = np.where(topology.poles[target], values[:, None], table[target])


def over_nominal(volts: Floats, nominal: Floats, between: Floats) -> Floats:
    """Return measured over nominal volts, to neutral or between poles: whichever is nearer. `between`: volts between
    two poles over those to neutral."""
    to_neutral = volts / nominal
    of_poles = to_neutral / between
    nearer = np.abs(np.log(np.maximum(of_poles, _CLOSE))) < np.abs(np.log(np.maximum(to_neutral, _CLOSE)))
    return np.where(nearer, of_poles, to_neutral)


def _voltage(topology: SiteTopology, volts: Floats) -> Floats:
    """Return measured over nominal volts; a meter may measure to neutral or between poles."""
    ratio = over_nominal(volts, topology.nominal_volts[:, None], topology.between[:, None])
    known = ~np.isnan(ratio) & topology.poles & (ratio > 0.3)  # a dead feed has no usable voltage
    total = np.where(known, ratio, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        mean: Floats = total / known.sum(axis=1)
    return mean


def _inherit(topology: SiteTopology, measured: Floats) -> Floats:
    """Return measured volts over the layout's; a circuit without a reading has its feeder's."""
    ratio = np.clip(measured * topology.nominal_volts / topology.volts, 0.8, 1.2)
    for step in reversed(topology.network.climbs):
        own = ratio[step.children]
        ratio[step.children] = np.where(np.isnan(own), ratio[step.parents], own)
    return np.where(np.isnan(ratio), 1.0, ratio)


def _any(count: int, targets: Ints) -> Flags:
    found = np.zeros(count, dtype=bool)
    found[targets] = True
    return found
