"""Meters that report and are wrong: frozen, in a wrong unit, below the GPUs that they feed, or above what can be.

Such a reading is not used: the next source counts, as when the meter is silent, and the fault is named.
A contradiction ends when its witness agrees, or a frozen reading moves: that the nodes fall silent, or the
meter for a while, is no agreement.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from power import thresholds
from power.live.inputs import PowerInputs
from power.live.metering import CIRCUIT, NODE, STALE_LEAST, STALE_PERIODS, Key, Metering
from power.live.too_high import TooHigh
from power.live.wall_power import SILENT_LEAST
from power.network.feeds import sum_by_circuit
from power.network.flow import Ints
from power.network.topology import SiteTopology
from power.wiring import Flags, Floats
from present.units import exact_watts
from telemetry.text import duration

FROZEN_SECONDS = 300.0
"""Time without any change of a reading from which its nodes' load may not have moved."""
APART_SECONDS = 60.0
"""Time, and three of the meter's periods, for which its nodes' load may be another than at the last change
of the reading."""
_SETTLING_SECONDS = 15.0
"""Time after a change of a reading in which its nodes' load follows: not all are read at one instant."""
_AT_THE_WALL = 1.08
"""Watts at the wall for one more inside: supplies of about 92 %."""
LOW_SECONDS = 15.0
"""Time below the GPUs' watts: those of a node that lost its power are older by then and do not count."""
LOW_RATIO = 0.5
"""Part of the GPUs' watts that a meter must read: drivers err by a few percent."""
LEAST_WATTS = 100.0
"""GPU watts from which a meter is compared."""
_WHOLE = 0.999
"""Part of a machine's power from which on a cord is its only one."""
_KILO = (0.8, 3.0)
"""Watts over GPU watts of a reading in kW taken for watts: the host and losses are in it."""


_FROZEN, _UNIT, _LOW, _HIGH = 1, 2, 3, 4
_OWN = {_LOW: "less than half of what its GPUs measure", _HIGH: "more than it may draw"}
"""Faults of a machine's own meter, in words."""


@dataclass(frozen=True, slots=True)
class _Named:
    """Meters at fault, by row of the circuit that names them."""

    slots: Mapping[int, set[int]]
    machines: Mapping[int, set[int]]
    """Machines whose own meter is at fault, by row."""
    watts: Floats
    """Readings of all slots, W. Shape (slots,)."""


class MeterFaults:
    """Faults of each meter's reading; slots as in `Metering`."""

    def __init__(self, topology: SiteTopology, committed: Floats) -> None:
        """`committed`: most that each machine draws by the configuration, watts; NaN where that says nothing."""
        self._topology = topology
        self._high = TooHigh(topology, committed)
        circuits, _, _ = topology.below
        whole = np.bincount(circuits[topology.whole], minlength=len(topology.single_feed))
        self._nodes = np.ones(len(topology.network.machines)), whole.astype(float)
        """Nodes behind each node and each circuit alone."""
        self._low_since: Floats = np.zeros(0)
        """Monotonic time since which a meter reads less than its GPUs; NaN where it does not."""
        self._less_since: Floats = np.zeros(0)
        """The same of the meters of what hangs on it."""
        self._trusted: Flags = np.zeros(0, bool)
        self._least: Floats = np.zeros(0)
        self._most: Floats = np.zeros(0)
        """Lowest and highest load of its nodes since the reading changed."""
        self._reference: Floats = np.zeros(0)
        """Load of its nodes when the reading changed."""
        self._apart_since: Floats = np.zeros(0)
        """Monotonic time since which their load is another one; NaN where it is not."""
        self._risen: Floats = np.zeros(0)
        """Watts by which it is higher, at the wall."""
        self._changed: Floats = np.zeros(0)
        self._refused: Floats = np.zeros(0)
        """Fault of each slot that lasts until its witness agrees; 0 without one."""
        self._witnesses: Floats = np.zeros(0)
        """Nodes whose GPUs were measured behind its target when it was refused."""
        self._since: Floats = np.zeros(0)
        """Monotonic time since which each slot is at fault; NaN where it is not."""
        self._now = 0.0
        self._restored: dict[Key, tuple[float, float, float]] = {}
        """Refusals of before a restart whose meters have not reported since."""
        self._own_watts: Floats = np.full(len(topology.network.machines), np.nan)
        """What the machines' own meters read."""
        self.measured: Floats = np.zeros(0)
        """Watts measured behind each slot's target: in GPUs, or by meters."""
        self._by_meters: Flags = np.zeros(0, bool)
        """Whether by meters."""
        self._named: _Named | None = None
        """What is at fault since the last update, once it has been asked for."""

    def update(self, now: float, tick: PowerInputs, metering: Metering, left: Flags | None = None) -> None:
        """Find the meters at fault, and note them in `metering.faults`. `left`: circuits that don't carry
        what hangs on them by their usual input; their meters are not compared."""
        self._named, self._now = None, now
        self._find_own(tick, metering)
        count = len(metering)
        if not count:
            return
        known = len(self._refused)
        self._grow(count)
        self._recall(metering, known)
        kind, target = metering.whole("kind"), metering.whole("target")
        gpus, load, heard = self._below(tick)
        node = kind == NODE
        witnesses = _behind(node, target, *heard)
        gpu = _behind(node, target, *gpus)
        drawn = _behind(node, target, *load)
        watts, reporting = self.sums(metering), metering.reporting(now)
        below, read_at = self._metered_below(now, tick, metering, watts, reporting)
        if left is not None and left.any():
            apart = ~node & left[np.where(node, 0, target)]
            gpu, drawn, below = (np.where(apart, np.nan, values) for values in (gpu, drawn, below))
            self._refused = np.where(apart, 0, self._refused)  # the switch has moved: it was right
        self.measured, self._by_meters = np.fmax(gpu, below), below > np.nan_to_num(gpu)
        reported = metering.flag("tripped") | metering.flag("input_lost")
        with np.errstate(invalid="ignore", divide="ignore"):
            low = reporting & (gpu > LEAST_WATTS) & (watts < LOW_RATIO * gpu)
            less = reporting & (below > LEAST_WATTS) & (watts < LOW_RATIO * below) & ~reported
            kilo = 1000 * watts / self.measured
        high = self._high.find(now, tick, metering, reporting)
        fine = reporting & (watts >= LOW_RATIO * self.measured)
        self._trusted |= fine
        self._low_since = np.where(low, np.fmin(self._low_since, now), np.nan)
        self._less_since = np.where(less, np.fmin(self._less_since, now), np.nan)
        # What meters read before says nothing of a breaker that opened: they went off with their loads.
        outlasted = less & (read_at - self._less_since >= LOW_SECONDS)
        long = outlasted | (low & (~self._trusted | (now - self._low_since >= LOW_SECONDS)))
        unit = long & (kilo >= _KILO[0]) & (kilo <= _KILO[1])

        frozen, fresh = self._frozen(now, drawn, metering, reporting)
        found = np.select([high, unit, long, frozen], [_HIGH, _UNIT, _LOW, _FROZEN], 0)
        # A node that is mapped elsewhere since is no witness that is missing.
        wanted = np.fmin(self._witnesses, _behind(node, target, *self._nodes))
        agrees = fine & (self.measured > LEAST_WATTS) & (witnesses >= wanted)
        ends = np.where(self._refused == _FROZEN, fresh | (~np.isnan(drawn) & ~frozen), agrees)
        ends = np.where(self._refused == _HIGH, self._high.possible_for(now) >= LOW_SECONDS, ends)
        self._refused = np.where(ends, 0, self._refused)
        lasts = (found > 0) & (high | frozen | outlasted | (now - self._low_since >= LOW_SECONDS))
        self._witnesses = np.where(lasts & (self._refused != found), witnesses, self._witnesses)
        self._refused = np.where(lasts, found, self._refused)
        kept = np.where(reporting, self._refused, 0).astype(np.int64)
        metering.faults = np.where(found > 0, found, kept)
        # Silence ends no refusal.
        self._since = np.where((metering.faults > 0) | (self._refused > 0), np.fmin(self._since, now), np.nan)
        # Neither the load nor what is held follows such a reading: a meter that fails would erase both.
        metering.suspected = low & ~reported

    def _metered_below(
        self, now: float, tick: PowerInputs, metering: Metering, watts: Floats, reporting: Flags
    ) -> tuple[Floats, Floats]:
        """Return the watts that other meters measure behind each circuit's slot, and the time of the oldest of
        their readings; NaN where none does. Machines with cords on several circuits are not counted."""
        network = self._topology.network
        kind, target, at = metering.whole("kind"), metering.whole("target"), metering.number("at")
        used = reporting & ~np.isnan(watts)
        used[: len(metering.faults)] &= metering.faults == 0
        best, read = [], []
        for of, count in ((NODE, len(network.machines)), (CIRCUIT, len(network.names))):
            rows = np.flatnonzero(used & (kind == of))
            best.append(np.zeros(count))
            read.append(np.full(count, np.inf))
            np.maximum.at(best[-1], target[rows], watts[rows])
            np.minimum.at(read[-1], target[rows], at[rows])
        own = (metering.own_faults == 0) & (tick.wall_age <= STALE_LEAST) & (self._own_watts > best[0])
        node = np.where(own, self._own_watts, best[0])
        node_at = np.where(own, now - tick.wall_age, read[0])
        alone = np.flatnonzero(network.cord_share > _WHOLE)
        circuits, machines = network.cord_circuit[alone], network.cord_machine[alone]
        below = sum_by_circuit(circuits, node[machines], len(network.names))
        oldest = np.full(len(network.names), np.inf)
        np.minimum.at(oldest, circuits, np.where(node[machines] > 0, node_at[machines], np.inf))
        for step in network.climbs:
            children, metered = step.children, best[1][step.children] > below[step.children]
            carried = np.where(metered, best[1][children], below[children]) * step.weight
            carried_at = np.where(metered, read[1][children], oldest[children])
            np.add.at(below, step.parents, carried)
            np.minimum.at(oldest, step.parents, np.where(carried > 0, carried_at, np.inf))
        row = np.where(kind == NODE, 0, target)
        known = (kind != NODE) & (below[row] > 0)
        return np.where(known, below[row], np.nan), np.where(known, oldest[row], np.nan)

    def _frozen(self, now: float, drawn: Floats, metering: Metering, reporting: Flags) -> tuple[Flags, Flags]:
        """Return the slots whose reading stands still though the load behind it moves, and those whose reading
        has just changed."""
        changed = metering.number("changed_at")
        fresh = (changed != self._changed) | (now - changed < _SETTLING_SECONDS)
        self._changed = changed.copy()
        self._least = np.where(fresh, drawn, np.fmin(self._least, drawn))
        self._most = np.where(fresh, drawn, np.fmax(self._most, drawn))
        moved = self._most - self._least
        may = np.fmax(thresholds.DEVIATION_RATIO * self._most, thresholds.DEVIATION_WATTS)
        with np.errstate(invalid="ignore"):
            frozen = reporting & (now - changed >= FROZEN_SECONDS) & (moved > may)
        return frozen | (reporting & self._apart(now, fresh, drawn, metering)), fresh

    def _find_own(self, tick: PowerInputs, metering: Metering) -> None:
        """Find the meters in the machines that are at fault: the same collector reads them and their GPUs at once."""
        watts = np.where(tick.silent_seconds <= SILENT_LEAST, np.abs(tick.wall_watts), np.nan)
        self._own_watts, before = watts, metering.own_faults
        loaded = tick.gpu_watts > LEAST_WATTS
        with np.errstate(invalid="ignore"):
            low = loaded & (watts < LOW_RATIO * tick.gpu_watts)
            agrees = loaded & (watts >= LOW_RATIO * tick.gpu_watts)
        retained = np.where(agrees | (before == _HIGH), 0, before)
        metering.own_faults = np.select([self._high.own(tick), low], [_HIGH, _LOW], retained)

    def _apart(self, now: float, fresh: Flags, drawn: Floats, metering: Metering) -> Flags:
        """Return the slots whose reading stays as it was though their nodes' load has moved for long."""
        self._reference = np.where(fresh, drawn, self._reference)
        risen = drawn - self._reference
        most = np.fmax(drawn, self._reference)
        with np.errstate(invalid="ignore"):
            apart = np.abs(risen) > np.fmax(thresholds.DEVIATION_RATIO * most, thresholds.DEVIATION_WATTS)
            self._apart_since = np.where(apart, np.fmin(self._apart_since, now), np.nan)
            long = np.fmax(APART_SECONDS, STALE_PERIODS * metering.number("period"))
            self._risen = np.where(apart & (risen > 0), _AT_THE_WALL * risen, 0.0)
            found: Flags = now - self._apart_since >= long
        return found

    def risen(self, metering: Metering) -> Floats:
        """Return the watts by which the load of each circuit's nodes has risen since its meter's reading
        changed last: what a slow or frozen meter has not said. 0 where its meter is not used."""
        found = np.zeros(len(self._topology.single_feed))
        risen = self._risen[: len(metering)]
        if risen.any():
            kind, target = metering.whole("kind"), metering.whole("target")
            unused = (metering.faults > 0) | metering.suspected
            use = np.flatnonzero((kind != NODE) & ~unused[: len(risen)])
            np.maximum.at(found, target[use], risen[use])
        return found

    def by_circuit(self, metering: Metering) -> Floats:
        """Return the fault about any meter of each circuit or of a node on it, as `power.meters.reading.MeterFault` numbers them."""
        found = np.zeros(len(self._topology.single_feed))
        faults = metering.faults
        rows = np.flatnonzero(faults)
        if not len(rows) and not metering.own_faults.any():
            return found
        kind, target = metering.whole("kind")[rows], metering.whole("target")[rows]
        node = kind == NODE
        np.maximum.at(found, target[~node], faults[rows][~node])
        network = self._topology.network
        worst = metering.own_faults.astype(float)
        np.maximum.at(worst, target[node], faults[rows][node])
        np.maximum.at(found, network.cord_circuit, worst[network.cord_machine])
        return found

    def words(self, metering: Metering, row: int) -> str:
        """Return which meters of a circuit are at fault, and why; empty without one."""
        if self._named is None:
            self._named = self._name(metering)
        found = self._named
        texts = [self._one(metering, slot, found.watts) for slot in sorted(found.slots.get(row, ()))]
        texts += [
            f"the meter in {self._topology.network.machines[machine]} reads {exact_watts(float(self._own_watts[machine]))}, {_OWN[int(metering.own_faults[machine])]}"
            for machine in sorted(found.machines.get(row, ()))
        ]
        return "; ".join(dict.fromkeys(texts))

    def by_meter(self, metering: Metering) -> dict[str, str]:
        """Return why the readings of each meter at fault are not used, and for how long by now, by its name."""
        read, found = self._watts(metering), {}
        for slot in np.flatnonzero(metering.faults).tolist():
            since = duration(self._now - self._since[slot])
            found[metering.meter_of(slot)] = f"{self._one(metering, slot, read)}, for {since}"
        upss = [metering.ups[name] for name in metering.ups_refused if name in metering.ups]
        return found | {one.meter: f"the load of {one.target} contradicts what is measured behind it" for one in upss}

    def _name(self, metering: Metering) -> _Named:
        """Return the meters at fault by circuit, in a time that grows with the faults alone."""
        kind, target = metering.whole("kind"), metering.whole("target")
        network = self._topology.network
        slots: dict[int, set[int]] = defaultdict(set)
        machines: dict[int, set[int]] = defaultdict(set)
        meters: dict[int, list[int]] = defaultdict(list)
        for slot in np.flatnonzero(metering.faults).tolist():
            if kind[slot] == NODE:
                meters[int(target[slot])].append(slot)
            else:
                slots[int(target[slot])].add(slot)
        concerned = metering.own_faults > 0
        concerned[list(meters)] = True
        cords = np.flatnonzero(concerned[network.cord_machine])
        for circuit, machine in zip(
            network.cord_circuit[cords].tolist(), network.cord_machine[cords].tolist(), strict=True
        ):
            slots[circuit].update(meters.get(machine, ()))
            if metering.own_faults[machine]:
                machines[circuit].add(machine)
        return _Named(slots, machines, self._watts(metering))

    def _one(self, metering: Metering, slot: int, read: Floats) -> str:
        fault, name = int(metering.faults[slot]), metering.meter_of(slot)
        if fault == _HIGH:
            return self._high.words(metering, slot)
        watts, gpu = float(read[slot]), float(self.measured[slot])
        if fault == _FROZEN:
            return f"{name} has read {exact_watts(watts)} without any change while its nodes' load moved by {exact_watts(self._most[slot] - self._least[slot])}"
        if not gpu > LEAST_WATTS or watts >= LOW_RATIO * gpu:
            return f"{name} reads {exact_watts(watts)}, and read less than half of what the GPUs behind it measured when they were heard last"
        by = "meters" if self._by_meters[slot] else "GPUs"
        less = f"{name} reads {exact_watts(watts)} where the {by} behind it measure {exact_watts(gpu)}"
        return f"{less} (kW taken for W?)" if fault == _UNIT else less

    def checkpoint(self, metering: Metering) -> list[dict[str, Any]]:
        """Return the meters that are refused; a frozen one shows again that it is."""
        found = {
            metering.key_of(slot): (self._refused[slot], self._witnesses[slot], self._now - self._since[slot])
            for slot in np.flatnonzero(self._refused > _FROZEN).tolist()
        }
        return [
            {"key": list(key), "fault": float(fault), "witnesses": float(witnesses), "seconds": float(seconds)}
            for key, (fault, witnesses, seconds) in (self._restored | found).items()
        ]

    def restore(self, refused: Any, gap: float) -> None:
        """Restore what `checkpoint` returned `gap` seconds ago; meters are refused again once they report. Raises
        `KeyError`, `TypeError` or `ValueError` for anything else."""
        for one in refused:
            meter, kind, target, pole = one["key"]
            fault, witnesses, seconds = int(one["fault"]), float(one["witnesses"]), gap + float(one.get("seconds", 0.0))
            if fault in {_UNIT, _LOW, _HIGH} and math.isfinite(seconds):
                self._restored[meter, kind, target, pole] = (float(fault), witnesses, max(seconds, 0.0))

    def _recall(self, metering: Metering, known: int) -> None:
        """Refuse the meters that were refused before a restart, as they report first; `known`: slots so far."""
        if self._restored:
            for slot in range(known, len(metering)):
                before = self._restored.pop(metering.key_of(slot), None)
                if before is not None:
                    self._refused[slot], self._witnesses[slot], seconds = before
                    self._since[slot] = self._now - seconds

    def _below(self, tick: PowerInputs) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return the watts measured in GPUs, the load that moves, and the number of nodes that were read, of each
        node and of each circuit: the GPUs of nodes that hang on the circuit alone, and the load of all of its nodes."""
        circuits, machines, shares = self._topology.below
        whole, count = self._topology.whole, len(self._topology.single_feed)
        heard = tick.silent_seconds <= SILENT_LEAST
        gpu = np.where(heard, tick.gpu_watts, np.nan)
        host = np.where(tick.module_scope, 0.0, np.nan_to_num(tick.host_watts))
        own = np.where(tick.gpus_unread > 0, np.nan, gpu + host)
        known = np.nan_to_num(gpu)[machines[whole]]
        sums = sum_by_circuit(circuits[whole], known, count)
        drawn = sum_by_circuit(circuits, own[machines] * shares, count)
        read = (~np.isnan(gpu)).astype(float)
        return ((gpu, sums), (own, drawn), (read, sum_by_circuit(circuits[whole], read[machines[whole]], count)))

    def sums(self, metering: Metering) -> Floats:
        """Return the watts of each slot's target by its meters: of all poles, or of all outlets. NaN
        where some are missing."""
        kind, target, pole = (metering.whole(name) for name in ("kind", "target", "pole"))
        watts, rank = self._watts(metering), metering.whole("rank")
        part = (pole >= 0) | (kind == NODE)
        if not part.any():
            return watts
        found = watts.copy()
        rows = np.flatnonzero(part)
        keys = np.stack([kind[rows], target[rows], rank[rows], (pole[rows] >= 0).astype(np.int64)])
        _, inverse, number = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
        inverse = inverse.reshape(-1)
        total = np.bincount(inverse, watts[rows])[inverse]
        poles: Ints = self._topology.poles.sum(axis=1)
        clamps = pole[rows] >= 0
        wanted = np.where(clamps & (kind[rows] != NODE), poles[np.where(kind[rows] != NODE, target[rows], 0)], 1)
        found[rows] = np.where(number[inverse] >= wanted, total, np.nan)
        return found

    def _watts(self, metering: Metering) -> Floats:
        """Return the watts of each slot, of a clamp by its amps."""
        watts, amps = metering.number("watts"), metering.number("amps")
        kind, target, pole = (metering.whole(name) for name in ("kind", "target", "pole"))
        rows = np.flatnonzero(np.isnan(watts) & ~np.isnan(amps) & (kind != NODE))
        if not len(rows):
            return watts
        topology, row = self._topology, target[rows]
        poles = np.where(pole[rows] >= 0, 1, topology.poles[row].sum(axis=1))
        found = watts.copy()
        found[rows] = amps[rows] * topology.volts[row] * topology.power_factor[row] * poles
        return found

    def _grow(self, count: int) -> None:
        for name, empty in (
            ("_low_since", np.nan),
            ("_less_since", np.nan),
            ("_least", np.nan),
            ("_most", np.nan),
            ("_changed", np.nan),
            ("_reference", np.nan),
            ("_apart_since", np.nan),
            ("_risen", 0.0),
            ("_refused", 0.0),
            ("_witnesses", 0.0),
            ("_since", np.nan),
            ("_trusted", False),
        ):
            old = getattr(self, name)
            if len(old) < count:
                setattr(self, name, np.concatenate([old, np.full(count - len(old), empty)]))


def _behind(node: Flags, target: Ints, nodes: Floats, circuits: Floats) -> Floats:
    """Return the value of each slot's target."""
    found = np.full(len(node), np.nan)
    found[node] = nodes[target[node]]
    found[~node] = circuits[target[~node]]
    return found


def fault_facts(faults: MeterFaults, metering: Metering, row: int) -> Mapping[str, str]:
    """Return the fact about a circuit's meters at fault, if there are any."""
    known = len(metering.faults) or metering.own_faults.any()
    words = faults.words(metering, row) if known else ""
    return {"meter": f"{words}; it is not used"} if words else {}
