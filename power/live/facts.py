"""Facts of a circuit in words, for alerts and pages: its breaker, its load, and remedies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from api.power import Cap
from power import thresholds
from power.devices.breaker import Curve
from power.devices.catalogue import limit_command
from power.devices.wall_power import WallSource
from power.live.heat import BreakerHeat
from power.live.inputs import PowerInputs
from power.live.load_state import STATES
from power.live.loads import CircuitLoads
from power.live.meter_faults import MeterFaults, fault_facts
from power.live.metering import Metering
from power.live.transfers import TransferPositions
from power.live.wall_power import WallPower
from power.network.flow import Flow, inputs_of
from power.network.topology import SiteTopology
from power.plan.remedy import RemedyPart, cap_of
from power.site.layout import Circuit, SiteLayout
from power.snapshot.quantities import SOURCES
from power.wiring import POLES, Flags, Floats
from present.circuit.outlook import trip_band
from present.circuit.rows import OR
from present.units import amperes, exact_watts, volts
from telemetry.text import duration, estimated_duration

log = logging.getLogger(__name__)

# Facts of a power snapshot's rows, put into words only when they are read.


class LazyFacts(Sequence[Mapping[str, str]]):
    """Sequence of mappings that are made on access, so that 2,000 circuits cost nothing until read."""

    def __init__(self, size: int, words: Callable[[int], Mapping[str, str]]) -> None:
        self._size, self._words = size, words
        self._made: dict[int, Mapping[str, str]] = {}
        """Facts of rows that were read: a circuit near its limit has an alert of several rules."""
        self.fault: Exception | None = None
        """Why the facts of a row were left out; its numbers are there all the same."""

    def _say(self, row: int) -> Mapping[str, str]:
        made = self._made.get(row)
        if made is None:
            try:
                made = self._words(row)
            except Exception as error:
                if self.fault is None:
                    log.exception("the facts of a circuit can't be told")
                self.fault = error
                made = {}
            self._made[row] = made
        return made

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Mapping[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, str]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, str] | Sequence[Mapping[str, str]]:
        if isinstance(index, slice):
            return [self._say(row) for row in range(*index.indices(self._size))]
        row = index + self._size if index < 0 else index
        if not 0 <= row < self._size:
            raise IndexError(index)
        return self._say(row)

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        return (self._say(row) for row in range(self._size))


# Lists in words.

NO_RATING = "not known: the breaker's own rating is not configured"
NO_BAND = "not known: {}. It may trip at any load above its rating, and no time can be promised"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return the first names joined by commas, and the number of further ones."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def per_pole(amps: Floats, poles: Sequence[int]) -> str:
    """Return `L1 47.2 A, L2 47.1 A`."""
    return ", ".join(
        f"{POLES[p]} {amperes(float(amps[p]))}" if not np.isnan(amps[p]) else f"{POLES[p]} not known" for p in poles
    )


_SOURCE_NAMES = dict(SOURCES)


@dataclass(frozen=True, slots=True)
class FactContext:
    """Results of one tick that the facts are made of."""

    layout: SiteLayout
    topology: SiteTopology
    tick: PowerInputs
    wall_power: WallPower
    loads: CircuitLoads
    undeclared: Floats
    committed: Flow
    survivor: Floats
    worst_loss: Callable[[int], str | None]
    """Name of the loss that puts most on a row."""
    trips: Floats
    above: Floats
    breaker_heat: BreakerHeat
    assumed: Flags
    suspected: Flags
    off: Flags
    before: Floats
    notes: Mapping[str, Sequence[str]]
    """Notes on the configuration of each circuit that has any."""
    state: Floats
    state_seconds: Floats
    meter_faults: MeterFaults
    metering: Metering
    transfers: TransferPositions

    def facts(self, row: int) -> dict[str, str]:
        """Return the facts of one circuit."""
        circuit = self.layout.circuits[self.topology.network.names[row]]
        facts = _what(circuit, self) | self._carries(row, circuit) | self._people(row)
        facts |= fault_facts(self.meter_faults, self.metering, row)
        if row in self.transfers.moved:
            usual, other = inputs_of(circuit)[:2]
            facts["input"] = f"{other}, not {usual}, as their meters show"
        survivor = float(self.survivor[row])
        if not np.isnan(survivor):
            loss = self.worst_loss(row) or f"another feed of {circuit.group}"
            facts["loss"] = loss
            facts["failover"] = f"{amperes(survivor)} on {circuit.id} ({amperes(circuit.rated_amps)})"
        facts["committed"] = f"{exact_watts(self.committed.watts[row])}, {amperes(float(self.committed.highest[row]))}"
        cap = self.cap(row, circuit, failing=survivor > circuit.continuous_amps)
        models = [name for m in self.topology.machines_below(row) for name in self._models(int(m))]
        facts["remedy"] = _remedy(cap, self._move(row, circuit), models)
        if cap is not None:
            facts["cap"] = exact_watts(cap.watts_per_gpu)
            facts["floor"] = "not known" if cap.floor_watts is None else exact_watts(cap.floor_watts)
        if circuit.id in self.notes:
            facts["notices"] = "; ".join(self.notes[circuit.id])
        if self.suspected[row] or self.off[row]:
            facts |= self._after_trip(row)
        return facts

    def _carries(self, row: int, circuit: Circuit) -> dict[str, str]:
        loads = self.loads
        watts, sigma = float(loads.watts[row]), float(loads.sigma[row])
        source = _SOURCE_NAMES[int(loads.rank[row])]
        rough = "not known" if np.isnan(watts) else f"± {exact_watts(sigma)}"
        facts = {
            "amps": per_pole(loads.amps[row], circuit.poles),
            "limits": f"{amperes(circuit.continuous_amps)} continuous, {amperes(circuit.rated_amps)} rated",
            "source": source,
            "load_state": f"{STATES[int(self.state[row])]}, for {duration(float(self.state_seconds[row]))}",
            "uncertainty": rough,
            "above": duration(float(np.nan_to_num(self.above[row]))),
            "band": self._band(row, circuit),
        }
        if circuit.curve is not None and circuit.effective_amps < circuit.rated_amps:
            facts["limits"] += f", {amperes(circuit.effective_amps)} in this heat and grouping"
        if self.assumed[row] and circuit.band.known:
            facts["band"] += "; its heat at the start is assumed from its load"
        assumed = float(loads.assumed[row])
        if assumed > 0:
            part = "all" if assumed >= watts else exact_watts(assumed)
            facts["assumed"] = f"{part} of it is assumed: {self._unheard(row)}"
            if np.isnan(self.trips[row, 0]) and circuit.curve is not None and circuit.band.known:
                facts["band"] = "not known, as part of its load is assumed"
        unknown = float(self.undeclared[row])
        if abs(unknown) > max(thresholds.DEVIATION_RATIO * watts, thresholds.DEVIATION_WATTS):
            more = "more" if unknown > 0 else "less"
            facts["unknown_load"] = f"{exact_watts(abs(unknown))} {more} than its nodes and declared loads add up to"
        return facts

    def _band(self, row: int, circuit: Circuit) -> str:
        if circuit.curve is None:
            return NO_RATING
        return (
            trip_band(*map(float, self.trips[row])) if circuit.band.known else NO_BAND.format(circuit.band.why_unknown)
        )

    def _unheard(self, row: int) -> str:
        """Return why part of a circuit's load is assumed."""
        wall_power, below = self.wall_power, self.topology.machines_below(row)
        machines, quiet = self.topology.network.machines, wall_power.silent_meters
        names = [machines[m] for m in below if wall_power.assumed[m] > quiet[m]]
        metered = [machines[m] for m in below if quiet[m] > 0]
        undeclared = float(self.loads.silent_meters[row])
        if undeclared > 0 and not names:
            whose = f"the silent meters of {listed(metered)}" if metered else "a silent meter"
            rest = "their models" if metered else "its nodes"
            return f"what {whose} measured last beyond {rest}, {exact_watts(undeclared)}"
        why = "silent, counted with what was drawn last"
        if _SOURCE_NAMES[int(self.loads.rank[row])] == WallSource.COMMITTED:
            why = "silent, counted with all that may be drawn"
        elif not any(wall_power.silent[m] for m in below if wall_power.assumed[m] > quiet[m]):
            why = "GPUs that were not read, counted with their limits"
        return f"{listed(names)}: {why}"

    def _people(self, row: int) -> dict[str, str]:
        """Return the nodes on a circuit: all, the largest, the silent ones."""
        names, wall_power = self.topology.network.machines, self.wall_power
        below = self.topology.machines_below(row)
        share = self.topology.below[2][self.topology.starts[row] : self.topology.starts[row + 1]]
        watts = np.nan_to_num(wall_power.watts[below]) * share
        top = [k for k in np.argsort(-watts, kind="stable")[:3] if watts[k] > 0]
        facts = {
            "nodes": ", ".join(names[m] for m in below),
            "contributors": ", ".join(self._one(int(below[k]), float(watts[k])) for k in top),
        }
        silent = [names[m] for m in below if wall_power.silent[m]]
        if silent:
            facts["silent"] = listed(silent)
        blind = [names[m] for m in below if np.isnan(wall_power.watts[m])]
        if blind:
            facts["unknown_nodes"] = listed(blind)
        return facts

    def _one(self, machine: int, watts: float) -> str:
        name = self.topology.network.machines[machine]
        gpus, job = self.wall_power.gpus[machine], self.tick.jobs.get(name)
        about = [f"{gpus:.0f} GPUs"] if gpus > 0 else []
        about += [f"job {job}"] if job else []
        return f"{name} {exact_watts(watts)}" + (f" ({', '.join(about)})" if about else "")

    def cap(self, row: int, circuit: Circuit, *, failing: bool) -> Cap | None:
        """Return the cap that keeps a circuit below its limit, if the commitment or a loss exceeds it."""
        watts, amps = float(self.committed.watts[row]), float(self.committed.highest[row])
        if not amps > 0 or not (amps > circuit.continuous_amps or failing):
            return None
        wall_power, below = self.wall_power, self.topology.machines_below(row)
        share = self.topology.below[2][self.topology.starts[row] : self.topology.starts[row + 1]]
        parts = [self._part(int(m), 1.0 if failing else float(s)) for m, s in zip(below, share, strict=True)]
        known = [part for part in parts if part is not None]
        drawn = float((np.nan_to_num(wall_power.committed[below]) * share).sum())
        other = max(watts - drawn, 0.0)
        if len(known) < len(parts):  # machines without a known limit can't be capped
            other += drawn - sum(p.at(p.limit_watts) for p in known) if not failing else 0.0
        return cap_of(circuit, known, watts * circuit.continuous_amps / amps - other, amps / watts)

    def _part(self, machine: int, share: float) -> RemedyPart | None:
        wall_power = self.wall_power
        committed = float(wall_power.committed[machine])
        limit, gpus = float(wall_power.limit_watts[machine]), float(wall_power.gpus[machine])
        if np.isnan(committed):
            return None
        found = self.layout.machines.get(self.topology.network.machines[machine])
        if found is None or not gpus > 0 or not limit > 0:
            return RemedyPart(share, (), lambda _: committed, None)
        rest = max(found.dc(committed) - limit, 0.0)
        floor = float(wall_power.floor_watts[machine])
        return RemedyPart(
            share,
            ((gpus, limit / gpus),),
            lambda watts: found.at_wall(rest + watts),
            None if np.isnan(floor) else floor,
            tuple(part.card.name for part in found.parts),
        )

    def _models(self, machine: int) -> tuple[str, ...]:
        """Return the configured models of a machine's GPUs."""
        found = self.layout.machines.get(self.topology.network.machines[machine])
        return () if found is None else tuple(part.card.name for part in found.parts)

    def _move(self, row: int, circuit: Circuit) -> str:
        """Return a move of one node after which both circuits are below their limits."""
        over = float(self.loads.highest[row]) - circuit.continuous_amps
        if not over > 0:
            return ""
        network = self.topology.network
        below = self.topology.machines_below(row)
        whole = self.topology.whole[self.topology.starts[row] : self.topology.starts[row + 1]]
        room = network.continuous - self.loads.highest
        same = (self.topology.volts == self.topology.volts[row]) & (
            self.topology.poles.sum(axis=1) == len(circuit.poles)
        )
        same &= ~np.isnan(room) & (self.topology.parent != row)
        same[row] = False
        per_watt = float(self.loads.highest[row] / self.loads.watts[row])
        for machine in sorted(below[whole], key=lambda m: float(np.nan_to_num(self.wall_power.watts[m]))):
            amps = float(self.wall_power.watts[machine]) * per_watt
            if amps >= over and same.any():
                best = int(np.argmax(np.where(same, room, -np.inf)))
                target = self.layout.circuits[network.names[best]]
                if room[best] >= amps and not target.is_panel:
                    return f"move {network.machines[machine]} ({amperes(amps)}) to {target.id}, which has {amperes(float(room[best]))} left"
        return ""

    def _after_trip(self, row: int) -> dict[str, str]:
        wait = self.breaker_heat.cool_seconds(row)
        facts = {
            "before": amperes(float(self.before[row])) if not np.isnan(self.before[row]) else "not known",
            "reset": "how long it must cool is not known"
            if np.isnan(wait)
            else "cool enough to be switched on again"
            if wait == 0
            else f"let it cool for about {estimated_duration(wait)} before it is switched on again, an estimate",
        }
        circuit = self.layout.circuits[self.topology.network.names[row]]
        if circuit.curve in {Curve.BS1362, Curve.GG}:
            facts["reset"] = "replace the fuse-link with one of the same rating, after its cause is removed"
        facts["restart"] = "start its nodes one by one, 10 s apart: their supplies' inrush adds up"
        return facts


def _what(circuit: Circuit, context: FactContext) -> dict[str, str]:
    """Return the facts of a circuit that never change."""
    curve = "unknown curve" if circuit.curve is None else circuit.curve.value
    facts = {
        "breaker": f"{amperes(circuit.rated_amps)} {curve}, {len(circuit.poles)}-pole, {volts(circuit.nominal_volts)}",
        "kind": "panel" if circuit.is_panel else "circuit",
    }
    if circuit.parent is not None:
        facts["parent"] = circuit.parent
    spec = context.layout.site.circuits.get(circuit.id)
    if spec is not None and spec.rack is not None:
        facts["rack"] = spec.rack
    top = circuit
    while top.parent is not None:
        top = context.layout.circuits[top.parent]
    if top is not circuit and top.is_panel:
        facts["fed_by"] = top.id
    if circuit.group is not None:
        facts["group"], facts["role"] = circuit.group, circuit.role or ""
        others = [o.id for o in context.layout.circuits.values() if o.group == circuit.group and o is not circuit]
        facts["partners"] = ", ".join(others)
    return facts


def _remedy(cap: Cap | None, move: str, models: Sequence[str]) -> str:
    """Return what lowers the load, the gentlest first; a cap that the cards do not take is said last."""
    ways, note = [], ""
    if cap is not None and cap.reachable:
        command = limit_command(models, cap.watts_per_gpu)
        ways.append(f"cap each GPU at {exact_watts(cap.watts_per_gpu)} ({command})")
    elif cap is not None and cap.watts_per_gpu > 0:
        note = f" (a cap would have to be {exact_watts(cap.watts_per_gpu)} per GPU, below the {exact_watts(cap.floor_watts or 0.0)} that these cards take)"
    if move:
        ways.append(move)
    if cap is not None:
        ways += cap.instead
    return (OR.join(ways) if ways else "move load to another circuit") + note
