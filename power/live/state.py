"""The live electrical state of one site, advanced by `LivePower.tick` in array operations."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from api.power import LoadState, SnapshotKind
from power import thresholds
from power.forecast import seconds_until, trends
from power.live.budgets import MonthlyBudgets, reactive_power
from power.live.columns import TickResult, columns
from power.live.confidence import above, heating_amps, uncertain
from power.live.energy import CircuitEnergy
from power.live.facts import FactContext, LazyFacts
from power.live.heat import BreakerHeat
from power.live.held_load import HeldLoad
from power.live.inputs import PowerInputs, PowerSnapshots
from power.live.isolation import copied, culprits, without_nodes
from power.live.load_state import STATES, LoadStateTimer, hidden, load_states, node_states, worst
from power.live.loads import CircuitLoads, CircuitMeters, read_meters, settle
from power.live.meter_faults import MeterFaults
from power.live.metering import STALE_LEAST, Metering
from power.live.supplies import Supplies
from power.live.taken_over import TakenOver
from power.live.transfers import TransferPositions
from power.live.trips import Trips
from power.live.undeclared import UndeclaredLoad, undeclared
from power.live.ups import UpsFaults, build_ups, expected, heard, input_watts, ups_snapshot, ups_states
from power.live.wall_power import Behind, WallPower, WallPowerModel
from power.live.windows import MEAN_SECONDS, Windows, swings
from power.live.worst_losses import WorstLosses, survivor_amps, ups_survivors
from power.network.feeds import Cords, carry, dead_below, lost_by_load
from power.network.outcome import Outcome
from power.network.topology import SiteTopology, build_topology
from power.report.energy import LONGEST_GAP
from power.report.month_ledger import MonthLedger
from power.site.circuit import ElementKind
from power.site.layout import SiteLayout
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Flags, Floats
from telemetry.runtime.isolation import Isolation, PartKind

T = TypeVar("T")

# How long each circuit has been above its continuous limit; a short dip does not restart it.

DIP_SECONDS = 60.0
"""Seconds below the limit after which the timer restarts: a breaker has not cooled earlier."""


class AboveLimit:
    """Timer above the continuous limit, for every circuit."""

    def __init__(self, circuits: int) -> None:
        self.above: Floats = np.full(circuits, np.nan)
        """Monotonic time of exceeding the limit; NaN below it."""
        self._below: Floats = np.full(circuits, np.nan)
        """Monotonic time of dipping below it."""

    def update(self, now: float, ratio: Floats, lately: Floats) -> Floats:
        """Return seconds above the limit, from a minute's mean over it. Unknown changes nothing.

        `lately`: the mean of some seconds, because a deep dip stays in the minute's mean for long.
        """
        with np.errstate(invalid="ignore"):
            again = ~np.isnan(self.above) & (lately > 1.0)
            over, under = (ratio > 1.0) | again, (ratio <= 1.0) & ~again
        self.above = np.where(over & np.isnan(self.above), now, self.above)
        self._below = np.where(over, np.nan, self._below)
        dips = under & ~np.isnan(self.above) & np.isnan(self._below)
        self._below = np.where(dips, now, self._below)
        ended = now - self._below >= DIP_SECONDS
        self.above = np.where(ended, np.nan, self.above)
        self._below = np.where(ended, np.nan, self._below)
        return np.where(np.isnan(self.above), np.where(np.isnan(ratio), np.nan, 0.0), now - self.above)


# Notes on a configuration (E24), at the circuits that they are about.

_ABOUT = re.compile(r"(circuits|nodes)\.(.+?): ")


def notes_of(layout: SiteLayout) -> dict[str, list[str]]:
    """Return the notes by circuit; a note about a node is listed at all of its feeds."""
    feeds: dict[str, set[str]] = {}
    for cord in layout.cords:
        feeds.setdefault(cord.machine, set()).add(cord.circuit)
    found: dict[str, list[str]] = {}
    for notice in layout.notices:
        about = _ABOUT.match(notice)
        if about is None:
            continue
        circuits = {about[2]} if about[1] == "circuits" else feeds.get(about[2], set())
        for circuit in circuits & layout.circuits.keys():
            found.setdefault(circuit, []).append(notice)
    return found


_TURNS, _AT_ONCE = 5, 400
"""Trends of a large site are computed in so many turns, a tick each, of at least so many circuits."""
RESTORED_SECONDS = 600.0
"""Seconds after a start for which the first reading of a load still tells how its breaker spent the gap."""


class LivePower:
    """Heat, load, energy and timers of all circuits of a site."""

    def __init__(self, layout: SiteLayout, version: int = 0, ledger: MonthLedger | None = None) -> None:
        """`version`: number of the configuration; the power snapshots' version. `ledger`: of the month, in
        the site's time zone. [a fresh one, in UTC]"""
        self.layout, self.version = layout, version
        self.topology: SiteTopology = build_topology(layout)
        self.machines: tuple[str, ...] = self.topology.network.machines
        """Nodes on a circuit, in the order of a tick's arrays."""
        names = self.topology.network.names
        self._at = {name: number for number, name in enumerate(names)}
        self._machine_at = {name: number for number, name in enumerate(self.machines)}
        self.metering = Metering(self._at, self._machine_at, self.topology.poles)
        """Readings of the meters; `metering.unplaced` names unknown targets."""
        self.model = WallPowerModel(layout.machines)
        self.breaker_heat, self.windows = BreakerHeat(self.topology), Windows(len(names))
        self.timer, self.trips = AboveLimit(len(names)), Trips(self.topology)
        self.reported = Windows(len(names))
        """Windows of the reported part of each circuit's load."""
        rated = self.topology.network.rated * self.topology.volts * self.topology.poles.sum(axis=1)
        self.energy, self.months = (
            CircuitEnergy(rated),
            MonthlyBudgets(layout, self.topology, ledger or MonthLedger()),
        )
        specs = [layout.site.nodes.get(name) for name in self.machines]
        self._supplies = Supplies(
            list(layout.machines.values()),
            self.topology,
            [c.supplies for c in layout.cords],
            [None if spec is None else spec.cap_watts for spec in specs],
        )
        self._ups = build_ups(
            layout.site.ups, self.topology, [c.id for c in layout.circuits.values() if c.kind is ElementKind.UPS]
        )
        self._losses, self._cords = WorstLosses(layout, self.topology), Cords(self.topology)
        self._outcome: Outcome | None = None
        self._undeclared = UndeclaredLoad(self.topology)
        self.held, self.load_state = HeldLoad(self.topology), LoadStateTimer(len(names))
        self._other_states = {
            SnapshotKind.BUDGET: LoadStateTimer(len(self.months.ceilings)),
            SnapshotKind.UPS: LoadStateTimer(len(self._ups)),
            SnapshotKind.SUPPLY: LoadStateTimer(len(self.machines)),
        }
        self.meter_faults, self.ups_faults = (MeterFaults(self.topology, _configured(self.layout)), UpsFaults())
        self.transfers = TransferPositions(layout, self.topology)
        self.taken_over = TakenOver(self.topology, self._cords)
        self._notes = notes_of(layout)
        self._notices: Floats = np.array([float(len(self._notes.get(name, ()))) for name in names])
        self._watts: Floats = np.full(len(names), np.nan)
        """Loads of the last tick."""
        self.feeds_lost: Flags = np.zeros(len(names), dtype=bool)
        self.restored: Flags = np.zeros(len(names), dtype=bool)
        """Circuits with heat restored from before the start whose load has not been reported since."""
        self.started: float | None = None
        self.last: float | None = None
        """Monotonic time of the last tick."""
        self.wall_ns = 0
        self._ahead = (np.full(len(names), np.inf), np.full(len(names), np.inf))
        self._swing: Floats = np.zeros(len(names))
        self._known_heat: Floats = np.full(len(names), np.nan)
        """Heat of each breaker when most of its load was reported last: what it is warmer since, nobody measured."""
        self._turn = -1
        self.aside = Isolation(PartKind.POWER)
        """Nodes, meters, UPSs, budgets, circuits and steps that raised: unknown, and tried again."""
        self._noted: set[str] = set()
        self._facts: LazyFacts | None = None

    def tick(self, now: float, wall_ns: int, tick: PowerInputs) -> PowerSnapshots:
        """Return the power snapshots at `now` (monotonic seconds of the aggregator; `wall_ns` since 1970)."""
        self.started = now if self.started is None else self.started
        seconds = 0.0 if self.last is None else max(now - self.last, 0.0)
        self.last, self.wall_ns = now, wall_ns
        topology, names = self.topology, self.topology.network.names
        faults = {f"meter/{name}": error for name, error in self.metering.absorb(tick.readings).items()}
        self._part(
            "meter faults", lambda: self.meter_faults.update(now, tick, self.metering, self.transfers.left()), None
        )
        meters = read_meters(topology, self.metering, now, self._metered(tick, "circuit"), self.started)
        self._part("UPS faults", lambda: self._refuse_ups(now, tick, meters), None)
        behind: Behind = self._part("UPSs", lambda: heard(self._ups, self.metering, now), [])
        metered = self._metered(tick, "node") | expected(self._ups, self.metering, tick.metered, len(self.machines))
        wall_power = self.model.estimate(tick, topology, self.metering, now, behind, metered)
        taken = self._part("feeds taken over", lambda: self.taken_over.update(now, wall_power, meters), None)
        dead, loads = self._settle(wall_power, meters, taken)
        self._part("transfer switches", lambda: self._transfer(now, loads), None)
        self._part("trips", lambda: self.trips.update(now, tick, wall_power, loads, meters), None)
        self._watts = loads.watts
        first = self.held.learn(now, wall_power, loads, meters)
        result = self._follow(now, seconds, tick, wall_power, meters, loads, dead, first)
        context = FactContext(
            self.layout,
            topology,
            tick,
            wall_power,
            loads,
            result.undeclared,
            result.committed,
            result.survivor,
            _no_loss if self._outcome is None else self._outcome.worst_loss,
            result.trips,
            result.above,
            self.breaker_heat,
            result.assumed,
            self.trips.suspected,
            self.trips.off,
            self.trips.before,
            self._notes,
            self.load_state.state,
            result.state_seconds,
            self.meter_faults,
            self.metering,
            self.transfers,
        )
        ups_faults: dict[str, Exception] = {}
        facts = LazyFacts(len(names), context.facts)
        found = PowerSnapshots(
            PowerSnapshot(SnapshotKind.CIRCUIT, self.version, names, columns(topology, result), facts),
            self._part(
                "budgets",
                lambda: self._budgets(now, seconds, loads),
                self._unknown(SnapshotKind.BUDGET, tuple(c.name for c in self.months.ceilings)),
            ),
            self._part(
                "UPS loads",
                lambda: ups_snapshot(
                    self._ups,
                    self.metering,
                    now,
                    self.version,
                    wall_power,
                    loads,
                    topology.power_factor,
                    ups_faults,
                    {} if self._outcome is None else ups_survivors(self._outcome, self.layout.site.ups),
                ),
                self._unknown(SnapshotKind.UPS, tuple(one.name for one in self._ups)),
            ),
            self._part(
                "supplies",
                lambda: self._supplies.snapshot(wall_power, self.model, dead, self.version, self.machines),
                self._unknown(SnapshotKind.SUPPLY, self.machines),
            ),
        )
        found = self._part("states of loads", lambda: self._with_states(found, now, tick, wall_power), found)
        faults |= {f"ups/{name}": error for name, error in ups_faults.items()}
        faults |= {f"budget/{name}": error for name, error in self.months.faults.items()}
        faults |= {f"circuit/{name}": error for name, error in self.trips.faults.items()}
        if self._facts is not None and self._facts.fault is not None:
            faults["circuits/facts"] = self._facts.fault
        self._facts = facts
        self._note(faults)
        return found

    def _refuse_ups(self, now: float, tick: PowerInputs, meters: CircuitMeters) -> None:
        """Compare the UPSs with the loads that were measured behind them at the last tick."""
        measured = np.where(self.load_state.state == STATES.index(LoadState.MEASURED), self._watts, np.nan)
        self.ups_faults.update(
            now, self._ups, self.metering, tick, meters, measured, self.model.measured.at, self.transfers.left()
        )

    def _budgets(self, now: float, seconds: float, loads: CircuitLoads) -> PowerSnapshot:
        """Return the budget snapshot after adding the energy of this tick to the month."""
        reactive = reactive_power(self.metering, now, len(loads.watts))
        self.months.count(self.wall_ns / 1e9, seconds, self.energy, self.energy.known, reactive)
        return self.months.snapshot(self.wall_ns, loads.watts, self.version, loads.assumed)

    def _with_states(
        self, found: PowerSnapshots, now: float, tick: PowerInputs, wall_power: WallPower
    ) -> PowerSnapshots:
        """Return the snapshots with the states of the loads of budgets, UPSs and nodes."""
        circuits, nodes = self.load_state.state, node_states(wall_power)
        none = np.nan
        states = (
            (found.budget, worst(circuits, self.months.rows), none),
            (found.ups, ups_states(self._ups, self.metering, now, circuits, nodes), none),
            (
                found.supply,
                nodes,
                np.where(wall_power.silent_meters > 0, now - self.model.measured.at, tick.silent_seconds),
            ),
        )
        fresh = []
        for snapshot, state, silent in states:
            kind = snapshot.kind
            seconds = self._other_states[kind].update(now, state, np.broadcast_to(silent, state.shape))
            columns = {f"{kind}_load_state": state, f"{kind}_load_state_seconds": seconds}
            fresh.append(replace(snapshot, columns={**snapshot.columns, **columns}))
        return replace(found, budget=fresh[0], ups=fresh[1], supply=fresh[2])

    # -- Faults of our own -----------------------------------------------------------------------

    def _part(self, part: str, compute: Callable[[], T], unknown: T) -> T:
        """Return a part of the result, or `unknown`: the other parts are computed all the same."""
        return self.aside.run(f"circuits/{part}", self.last or 0.0, compute, unknown)

    def _unknown(self, kind: SnapshotKind, names: tuple[str, ...]) -> PowerSnapshot:
        return PowerSnapshot(kind, self.version, names, {}, ({},) * len(names))

    def _note(self, faults: Mapping[str, Exception]) -> None:
        """Note the meters, UPSs, budgets and circuits that raised in this tick, and those that did not
        any more."""
        for part, error in faults.items():
            self.aside.fail(part, error, self.last or 0.0)
        if self._noted:
            for part in self._noted - faults.keys():
                self.aside.works(part)
        self._noted = set(faults)

    def machines_without(self, tick: PowerInputs, now: float) -> PowerInputs:
        """Return the inputs without the nodes and meters that are set aside."""
        if not len(self.aside):
            return tick
        waiting = {part.partition("/")[::2] for part in self.aside.waiting(now)}
        rows = [self._machine_at[name] for kind, name in waiting if kind == "node" and name in self._machine_at]
        meters = {name for kind, name in waiting if kind == "meter"}
        if meters:
            self.metering.drop(meters)
            tick = replace(tick, readings=[one for one in tick.readings if one.meter not in meters])
        return without_nodes(tick, rows)

    def blame(self, error: Exception, tick: PowerInputs, now: float, wall_ns: int) -> bool:
        """Set aside the nodes and meters without which a tick works that raised `error`; return False
        where it does not work without any."""
        shared = (self.layout, self.topology, tick)

        def works(nodes: Collection[str], meters: Collection[str]) -> bool:
            ledger = self.months.ledger
            trial = copied(self, shared, [(ledger, MonthLedger(ledger.zone))])
            trial.aside = Isolation(None)
            trial.metering.drop(meters)
            readings = [one for one in tick.readings if one.meter not in meters]
            rows = [self._machine_at[name] for name in nodes]
            try:
                trial.tick(now, wall_ns, without_nodes(replace(tick, readings=readings), rows))
            except Exception:  # noqa: BLE001 - the answer to the question
                return False
            return True

        meters = sorted({one.meter for one in tick.readings})
        nodes = culprits(self.machines, lambda some: works(some, ()))
        found = {f"node/{name}" for name in nodes}
        if not found:
            found = {f"meter/{name}" for name in culprits(meters, lambda some: works((), some))}
        for part in found:
            self.aside.fail(part, error, now)
        return bool(found)

    def recovered(self, now: float) -> None:
        """Note that a tick worked with the nodes and meters that were tried again in it."""
        if len(self.aside):
            waiting = set(self.aside.waiting(now)) | self._noted
            for part in self.aside.reasons():
                if part.startswith(("node/", "meter/")) and part not in waiting:
                    self.aside.works(part)

    def forget(self, machine: str) -> None:
        """Forget what a machine reported last: it counts as one that never reported."""
        row = self._machine_at.get(machine)
        if row is not None:
            self.model.forget(row)

    def counted_joules(self) -> dict[str, float]:
        """Return the energy of each circuit, as `checkpoint` has it."""
        names = self.topology.network.names
        return dict(zip(names, self.energy.joules.tolist(), strict=True))

    def checkpoint(self) -> dict[str, Any]:
        """Return heat, energy, timers and calibration as JSON can hold them, for a restart.

        Keyed by the names of circuits and nodes, so that they survive a changed configuration.
        """
        return _checkpoint(self)

    def restore(self, memory: Mapping[str, Any], now: float, wall_ns: int) -> None:
        """Restore what `checkpoint` returned before a restart; call this before the first tick.

        Breakers cool over the gap. Parts that do not decode are left out and start cold.
        """
        _restore(self, memory, now, wall_ns)

    def _transfer(self, now: float, loads: CircuitLoads) -> None:
        """Follow the transfer switches; one that has moved counts from the next tick on."""
        if not len(self.transfers):
            return
        outputs = input_watts(self._ups, self.metering, now)
        self.transfers.update(now, loads, self.metering, self.meter_faults, outputs)

    def _settle(
        self, wall_power: WallPower, meters: CircuitMeters, taken: tuple[Flags, Flags] | None = None
    ) -> tuple[Flags, CircuitLoads]:
        """Return which circuits are dead, and the loads; the load of a lost feed moves to its partners.
        `taken`: feeds that their partner has taken over, and given back."""
        topology = self.topology
        if taken is not None:
            lost, back = taken
            self.feeds_lost = (self.feeds_lost & ~back) | lost
            for values in (meters.watts, meters.energy):  # the last reading of a meter that is gone
                values[lost] = np.nan
            for poles in (meters.amps, meters.pole_watts):
                poles[lost] = np.nan
        reported = meters.tripped | meters.input_lost | self._input_lost(meters)
        held = None if self.last is None else self.held.held(self.last)
        for _ in range(2):
            dead = dead_below(topology, reported | self.feeds_lost)
            state = self._losses.switch(dead, self.transfers.moved)
            loads = settle(topology, wall_power, state.shares, dead, meters, state.weights, held)
            lost = self._feeds_lost(wall_power, loads)
            if (lost == self.feeds_lost).all():
                break
            self.feeds_lost = lost
        return dead, loads

    def _feeds_lost(self, wall_power: WallPower, loads: CircuitLoads) -> Flags:
        """Return the lost feeds. Only a meter can show that a feed carries nothing."""
        topology = self.topology
        if not topology.groups:
            return self.feeds_lost
        metered = ~np.isnan(loads.metered)
        # A lost feed whose meter falls silent, too, is not back.
        kept = self.feeds_lost & ~metered
        if not metered.any():
            return kept
        network = topology.network
        # What a silent node may draw is expected of no feed: that it carries less is no loss.
        usual = carry(
            topology,
            np.nan_to_num(wall_power.drawn),
            network.other_watts,
            network.cord_share,
            np.zeros_like(self.feeds_lost),
        )
        return lost_by_load(topology, loads.highest, usual.highest) & metered | kept

    def _input_lost(self, meters: CircuitMeters) -> Flags:
        """Return the circuits on which a node reports a supply without input, unless their meter reads a load."""
        metering, topology = self.metering, self.topology
        reported = metering.flag("input_lost")
        found = np.zeros(len(topology.network.names), dtype=bool)
        if not reported.any() or self.last is None:
            return found
        fresh = metering.fresh(self.last) & reported & (metering.whole("kind") == 1)
        machines = np.zeros(len(self.machines), dtype=bool)
        machines[metering.whole("target")[fresh]] = True
        grouped = np.zeros(len(found), dtype=bool)
        for group in topology.groups:
            grouped[group] = True
        network = topology.network
        cords = machines[network.cord_machine] & grouped[network.cord_circuit]
        carries = meters.watts > thresholds.FEED_GONE * network.rated * topology.volts
        # Only a meter can show which of two feeds it is; without one, neither is lost.
        metered = ~np.isnan(meters.watts)
        found[network.cord_circuit[cords]] = True
        return found & metered & ~carries

    def _follow(
        self,
        now: float,
        seconds: float,
        tick: PowerInputs,
        wall_power: WallPower,
        meters: CircuitMeters,
        loads: CircuitLoads,
        dead: Flags,
        first: Flags,
    ) -> TickResult:
        """Advance windows, heat, energy and timers to now, and compute commitment and survivors."""
        topology, network = self.topology, self.topology.network
        highest = loads.highest
        self.windows.add(now, loads.amps)
        started = now if self.started is None else self.started
        unsure = np.isnan(loads.watts) | uncertain(loads.watts, loads.watts - loads.assumed)
        off = self.trips.off | dead
        if self.restored.any():
            reported_again = self.restored & (~unsure | off)
            self.breaker_heat.bridge(now, highest, reported_again)
            self.restored &= ~reported_again & (now - started < RESTORED_SECONDS)
        amps = heating_amps(loads, self.breaker_heat.begun)
        risen = self.meter_faults.risen(self.metering)
        if risen.any():  # a slow or frozen meter has not said it
            with np.errstate(invalid="ignore", divide="ignore"):
                amps = np.where((risen > 0) & (loads.watts > 0), amps * (1 + risen / loads.watts), amps)
        # Before the first reading of its meter a load may be any.
        waits = (meters.missed | (loads.unmeasured > 0)) & (now - started <= STALE_LEAST)
        amps = np.where(waits & ~self.breaker_heat.begun, np.nan, amps)
        self.reported.add(now, loads.reported_amps)
        unsure |= uncertain(highest, loads.reported_part * highest)
        self.breaker_heat.update(now, amps, off, unsure)
        self.breaker_heat.warm(now, amps, first)
        used = self.breaker_heat.used()
        self._known_heat = np.where(unsure & ~np.isnan(self._known_heat), self._known_heat, used)
        minute, ten = self.windows.rms(now, 60.0), self.windows.rms(now, MEAN_SECONDS)
        sustained = self.windows.sustained(now, ten)
        minute_reported, ten_reported = (self.reported.rms(now, 60.0), self.reported.rms(now, MEAN_SECONDS))
        sustained_reported = self.reported.sustained(now, ten_reported)
        sustained = np.where(self.trips.off | dead, 0.0, sustained)
        reported = loads.watts - loads.assumed
        self.energy.update(
            now,
            self.wall_ns / 1e9,
            seconds,
            reported,
            ~uncertain(loads.watts, reported) & ~np.isnan(loads.watts),
            meters,
            self.metering,
        )
        self._part("forecasts", lambda: self._forecast(now), None)
        extra, theirs = self._undeclared.of(now, wall_power, loads)
        local = network.other_watts + extra
        may = np.nan_to_num(wall_power.committed) + theirs
        seconds_in_state = self.load_state.update(
            now, load_states(loads), np.where(loads.silent_meters > 0, self._silent_seconds(now), np.nan)
        )
        gone = hidden(loads)
        could = carry(topology, may, local, self._losses.state.shares, dead, self._losses.state.weights)
        held = np.nan_to_num(wall_power.held) + theirs
        outcome = self._part("losses", lambda: self._losses.outcome(held, local), None)
        self._outcome = outcome
        return TickResult(
            now=now,
            tick=tick,
            wall_power=wall_power,
            meters=meters,
            loads=loads,
            undeclared=undeclared(topology, wall_power, loads),
            dead=dead,
            committed=could,
            survivor=np.full(len(dead), np.nan) if outcome is None else survivor_amps(outcome),
            survivor_limits={} if outcome is None else outcome.circuit_limits(),
            sustained=sustained,
            trips=self._trips(sustained, sustained_reported, gone, used),
            hidden=gone,
            heating=amps,
            state=self.load_state.state,
            state_seconds=seconds_in_state,
            fault=self.meter_faults.by_circuit(self.metering),
            minute_reported=minute_reported,
            ten_reported=ten_reported,
            used=used,
            assumed=self.breaker_heat.assumed(now),
            minute=minute,
            ten=ten,
            peak=self.windows.peak(now, MEAN_SECONDS),
            above=self.timer.update(
                now, above(minute, minute_reported, network.continuous), above(ten, ten_reported, network.continuous)
            ),
            ahead=(self._ahead[0].copy(), self._ahead[1].copy()),
            swing=self._swing.copy(),
            joules=self.energy.joules,
            missing_seconds=self.energy.missing_seconds,
            suspected=self.trips.suspected,
            off=self.trips.off,
            inrush=self._supplies.inrush,
            lost=(self.feeds_lost | meters.tripped | meters.input_lost | (dead & self._input_lost(meters))),
            cords=self._cords,
            metered_nodes=self._metered(tick, "node"),
            metering=self.metering,
            started=self.started or now,
            notices=self._notices,
        )

    def _silent_seconds(self, now: float) -> Floats:
        """Return the seconds since the last reading of what silent meters of each circuit or its nodes knew."""
        at, network = self.held.at.copy(), self.topology.network
        np.fmax.at(at, network.cord_circuit, self.model.measured.at[network.cord_machine])
        return now - at

    def _trips(self, sustained: Floats, reported: Floats, gone: Flags, used: Floats) -> Floats:
        """Return seconds to each edge; NaN where only assumed power, or the heat that it has made, would trip the breaker."""
        trips = self.breaker_heat.trips(sustained)
        unsure = (uncertain(sustained, reported) & np.isfinite(trips[:, 0])) | gone
        if unsure.any():
            least = self.breaker_heat.trips(np.where(unsure, reported, np.nan))[:, 0]
            trips = np.where((unsure & ~np.isfinite(least))[:, None], np.nan, trips)
        with np.errstate(invalid="ignore"):
            warmed = (used >= 1) & (self._known_heat < 1)
            warmed &= ~(reported > self.topology.network.effective)
        return np.where(warmed[:, None], np.nan, trips)

    def _forecast(self, now: float) -> None:
        """Update trends and swings; each tick computes a part of a large site's circuits."""
        turns = max(1, min(_TURNS, len(self.layout.circuits) // _AT_ONCE))
        self._turn = (self._turn + 1) % turns
        rows = slice(self._turn, None, turns)
        network, windows = self.topology.network, self.windows
        at, slow = windows.steps(now)
        level, slope = trends(at, slow[:, rows])
        self._ahead[0][rows] = seconds_until(level, slope, network.continuous[rows])
        self._ahead[1][rows] = seconds_until(level, slope, network.effective[rows])
        span, cycles = windows.swing(now, 60.0, rows)
        self._swing[rows] = swings(span, cycles, network.rated[rows], thresholds.SWING_CYCLES)

    def _metered(self, tick: PowerInputs, kind: str) -> Flags:
        at = self._at if kind == "circuit" else self._machine_at
        found = np.zeros(len(at), dtype=bool)
        for what, name in tick.metered:
            if what == kind and name in at:
                found[at[name]] = True
        return found


def _no_loss(_row: int) -> None:
    """Name no loss: where they could not be computed."""


# The checkpoint of a live state, as plain JSON.

VERSION = 1


def _configured(layout: SiteLayout) -> Floats:
    """Return the most that each machine draws by the configuration, watts; NaN where that says nothing."""
    return np.array([one.committed_watts if one.planned else np.nan for one in layout.machines.values()])


def _checkpoint(live: LivePower) -> dict[str, Any]:
    """Return the checkpoint of a live state."""
    names, breaker_heat = live.topology.network.names, live.breaker_heat
    circuits = {}
    for row, name in enumerate(names):
        circuit: dict[str, Any] = live.energy.checkpoint(row)
        if not math.isnan(breaker_heat.ratio[row]):
            circuit |= {
                "fast": breaker_heat.heat.fast[row].tolist(),
                "slow": breaker_heat.heat.slow[row].tolist(),
                "ratio": float(breaker_heat.ratio[row]),
            }
            rating = float(live.topology.network.effective[row])
            if math.isfinite(rating):
                circuit["effective_amps"] = rating
            assumed = breaker_heat.assumed_seconds(row)
            if assumed is not None:
                circuit["assumed_seconds"] = assumed
        if live.last is not None and (held := live.held.checkpoint(row, live.last)) is not None:
            circuit["held"] = held
        if (state := live.load_state.checkpoint(row, live.last or 0.0, live.wall_ns / 1e9)) is not None:
            circuit["load_state"] = state
        if live.feeds_lost[row]:
            circuit["feed_lost"] = True
        if row in live.transfers.moved:
            circuit["on_alternate"] = True
        if live.last is not None and not math.isnan(live.timer.above[row]):
            circuit["above_seconds"] = float(live.last - live.timer.above[row])
        circuits[name] = circuit
    machines = {}
    for row, name in enumerate(live.machines):
        found: dict[str, Any] = {}
        for key, values in (("watts", live.model.last), ("limit_watts", live.model.limits), ("gpus", live.model.gpus)):
            if not math.isnan(values[row]):
                found[key] = float(values[row])
        lesson = live.model.calibration.checkpoint(row)
        if lesson is not None:
            found["calibration"] = lesson
        if live.last is not None and (measured := live.model.measured.checkpoint(row, live.last)) is not None:
            found["measured"] = measured
        if found:
            machines[name] = found
    return {
        "version": VERSION,
        "wall_ns": live.wall_ns,
        "lines": circuits,
        "machines": machines,
        "refused": live.meter_faults.checkpoint(live.metering),
        "refused_ups": live.ups_faults.checkpoint(),
    }


def _restore(live: LivePower, memory: Mapping[str, Any], now: float, wall_ns: int) -> None:
    """Restore the circuits and machines that still exist; parts that do not decode are left out."""
    if memory.get("version") != VERSION:
        return
    try:
        gap = max((wall_ns - int(memory["wall_ns"])) / 1e9, 0.0)
    except (KeyError, TypeError, ValueError):
        return
    circuits, machines = _table(memory.get("lines")), _table(memory.get("machines"))
    for row, name in enumerate(live.topology.network.names):
        if name in circuits:
            _try(_restore_circuit, live, row, _table(circuits[name]), now, wall_ns / 1e9, gap)
    _try(live.meter_faults.restore, memory.get("refused", ()), gap)
    _try(live.ups_faults.restore, _table(memory.get("refused_ups")))
    for row, name in enumerate(live.machines):
        if name in machines:
            _try(_restore_machine, live, row, _table(machines[name]), now - gap)


def _restore_circuit(
    live: LivePower, row: int, circuit: Mapping[str, Any], now: float, wall: float, gap: float
) -> None:
    live.energy.restore(row, circuit, wall - gap, wall)
    if "above_seconds" in circuit and gap <= LONGEST_GAP:
        live.timer.above[row] = now - gap - _number(circuit["above_seconds"])
    live.feeds_lost[row] = circuit.get("feed_lost") is True
    if circuit.get("on_alternate") is True:
        live.transfers.place(row)
    if "held" in circuit:
        _try(live.held.restore, row, circuit["held"], now - gap)
    if "load_state" in circuit:
        known = _table(circuit["load_state"])
        _try(live.load_state.restore, row, str(known.get("state")), float(known.get("since", math.nan)), now, wall)
    if "fast" in circuit:
        fast, slow = ([_number(v) for v in circuit[key]] for key in ("fast", "slow"))
        if len(fast) != 3 or len(slow) != 3:
            raise ValueError("three edges")
        assumed = _number(circuit["assumed_seconds"]) if "assumed_seconds" in circuit else None
        rating = _number(circuit["effective_amps"]) if "effective_amps" in circuit else None
        live.breaker_heat.restore(row, fast, slow, _number(circuit["ratio"]), now - gap, assumed, rating)
        live.restored[row] = True


def _restore_machine(live: LivePower, row: int, found: Mapping[str, Any], before: float) -> None:
    for key, values in (("watts", live.model.last), ("limit_watts", live.model.limits), ("gpus", live.model.gpus)):
        if key in found:
            values[row] = _number(found[key])
    if "measured" in found:
        _try(live.model.measured.restore, row, found["measured"], before)
    if "calibration" in found:
        live.model.calibration.restore(row, found["calibration"])


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError("no quantity")
    return number


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _try(restore: Callable[..., None], *arguments: Any) -> None:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        restore(*arguments)
