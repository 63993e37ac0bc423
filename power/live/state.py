"""The live state of one site: one `tick` an instant, in array work over machines and circuits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from power import levels
from power.board import Board, BoardKind
from power.feeds import Cords, Losses, carry, dead_below, lost_by_load
from power.fixed import Fixed, fix
from power.forecast import seconds_until, trends
from power.layout import Layout
from power.live.beyond import Beyond, undeclared
from power.live.budgets import Months
from power.live.columns import Seen, columns
from power.live.doubt import above, doubted, likely_amps, told_of
from power.live.energy import Energies
from power.live.heat import Heats
from power.live.lazy import Facts
from power.live.lines import Carried, LineMeters, read_lines, settle
from power.live.memory import recall, remember
from power.live.metering import Metering
from power.live.notes import notes_of
from power.live.supplies import Supplies
from power.live.tick import Boards, Tick
from power.live.timers import AboveLimit
from power.live.trips import Trips
from power.live.ups import fix_ups, heard, ups_board
from power.live.walls import WallModel, Walls
from power.live.windows import Windows, swings
from power.live.words import Scene
from power.wiring import Flags, Floats

_TURNS, _AT_ONCE = 5, 400
"""Trends of a large site are worked out in so many turns, a tick each, of so many lines at least."""
HELD_SECONDS = 3.0
"""A load that has lasted so long counts in full, before the mean of 10 s has followed it."""


class Live:
    """What the breakers have been through, and what they carry now."""

    def __init__(self, layout: Layout, version: int = 0) -> None:
        """`version`: another number for another configuration; it is the boards' version."""
        self.layout, self.version = layout, version
        self.fixed: Fixed = fix(layout)
        self.machines: tuple[str, ...] = self.fixed.network.machines
        """Nodes that hang on a circuit, in the order of a tick's arrays."""
        names = self.fixed.network.names
        self._at = {name: number for number, name in enumerate(names)}
        self._machine_at = {name: number for number, name in enumerate(self.machines)}
        self.metering = Metering(self._at, self._machine_at)
        """What the meters said; `metering.unplaced` names what no configuration knows."""
        self.model = WallModel(layout.machines)
        self.heats, self.windows = Heats(self.fixed), Windows(len(names))
        self.timer, self.trips = AboveLimit(len(names)), Trips(self.fixed)
        self.told = Windows(len(names))
        """What of each line's load somebody told."""
        self.energies, self.months = Energies(len(names)), Months(layout, self.fixed)
        specs = [layout.site.nodes.get(name) for name in self.machines]
        self._supplies = Supplies(
            list(layout.machines.values()), self.fixed, [c.supplies for c in layout.cords],
            [None if spec is None else spec.cap_watts for spec in specs],
        )  # fmt: skip
        self._ups = fix_ups(layout.site.ups, self.fixed)
        self._losses, self._cords = Losses(self.fixed), Cords(self.fixed)
        self._beyond = Beyond(self.fixed)
        self._notes = notes_of(layout)
        self._notices: Floats = np.array([float(len(self._notes.get(name, ()))) for name in names])
        self._lost: Flags = np.zeros(len(names), dtype=bool)
        self.restored: Flags = np.zeros(len(names), dtype=bool)
        """Lines whose heat is of before the start; none after the first tick."""
        self.started: float | None = None
        self.last: float | None = None
        """Of the last tick, monotonic."""
        self.wall_ns = 0
        self._ahead = (np.full(len(names), np.inf), np.full(len(names), np.inf))
        self._swing: Floats = np.zeros(len(names))
        self._turn = -1

    def tick(self, now: float, wall_ns: int, tick: Tick) -> Boards:
        """Return the boards at `now` (monotonic seconds of the aggregator; `wall_ns` since 1970)."""
        self.started = now if self.started is None else self.started
        seconds = 0.0 if self.last is None else max(now - self.last, 0.0)
        self.last, self.wall_ns = now, wall_ns
        fixed, names = self.fixed, self.fixed.network.names
        self.metering.absorb(tick.readings)
        walls = self.model.estimate(tick, fixed, self.metering, now, heard(self._ups, self.metering, now))  # fmt: skip
        meters = read_lines(fixed, self.metering, now, self._metered(tick, "circuit"), self.started)
        dead, carried = self._settle(walls, meters)
        self.trips.update(tick, walls, carried, meters)
        seen = self._follow(now, seconds, tick, walls, meters, carried, dead)
        scene = Scene(
            self.layout, fixed, tick, walls, carried, seen.undeclared, seen.committed, seen.survivor, seen.trips,
            seen.above, self.heats, seen.assumed, self.trips.suspected, self.trips.off,
            self.trips.before, self._notes,
        )  # fmt: skip
        return Boards(
            Board(BoardKind.CIRCUIT, self.version, names, columns(fixed, seen), Facts(len(names), scene.facts)),
            self.months.board(wall_ns, seconds, carried.watts, self.version, carried.assumed),
            ups_board(self._ups, self.metering, now, self.version, walls, carried, fixed.power_factor),
            self._supplies.board(walls, self.model, dead, self.version, self.machines),
        )  # fmt: skip

    def memory(self) -> dict[str, Any]:
        """Return what must survive a restart, as JSON can hold it: heat, energy, timers, calibration.

        It is keyed by the names of circuits and nodes, so that a changed configuration keeps what
        still exists.
        """
        return remember(self)

    def restore(self, memory: Mapping[str, Any], now: float, wall_ns: int) -> None:
        """Take up what `memory` returned before a restart; call it before the first tick.

        Breakers cool over the gap. What does not decode is left out: a lost memory is a cold start.
        """
        recall(self, memory, now, wall_ns)

    def _settle(self, walls: Walls, meters: LineMeters) -> tuple[Flags, Carried]:
        """Return which lines are dead and what flows; a feed that is lost hands its load over."""
        fixed = self.fixed
        told = meters.tripped | meters.input_lost | self._input_lost(meters)
        for _ in range(2):
            dead = dead_below(fixed, told | self._lost)
            self._losses.prepare(dead)
            carried = settle(fixed, walls, self._losses.shares, dead, meters)
            lost = self._feeds_lost(walls, carried)
            if (lost == self._lost).all():
                break
            self._lost = lost
        return dead, carried

    def _feeds_lost(self, walls: Walls, carried: Carried) -> Flags:
        """Without a meter nobody can tell that a feed carries nothing: its share is assumed."""
        fixed = self.fixed
        if not fixed.groups:
            return self._lost
        metered = ~np.isnan(carried.metered)
        if not metered.any():
            return np.zeros_like(self._lost)
        network = fixed.network
        usual = carry(fixed, np.nan_to_num(walls.held), network.other_watts, network.cord_share, np.zeros_like(self._lost))  # fmt: skip
        return lost_by_load(fixed, carried.highest, usual.highest) & metered

    def _input_lost(self, meters: LineMeters) -> Flags:
        """Lines on which a node says that a supply has no input, unless their meter says they carry."""
        metering, fixed = self.metering, self.fixed
        told = metering.flag("input_lost")
        found = np.zeros(len(fixed.network.names), dtype=bool)
        if not told.any() or self.last is None:
            return found
        fresh = metering.fresh(self.last) & told & (metering.whole("kind") == 1)
        machines = np.zeros(len(self.machines), dtype=bool)
        machines[metering.whole("target")[fresh]] = True
        grouped = np.zeros(len(found), dtype=bool)
        for group in fixed.groups:
            grouped[group] = True
        network = fixed.network
        cords = machines[network.cord_machine] & grouped[network.cord_line]
        carries = meters.watts > levels.FEED_GONE * network.rated * fixed.volts
        # Which of two feeds it is, only a meter can tell; without one, neither is called lost.
        told_apart = ~np.isnan(meters.watts)
        found[network.cord_line[cords]] = True
        return found & told_apart & ~carries

    def _follow(
        self, now: float, seconds: float, tick: Tick, walls: Walls, meters: LineMeters,
        carried: Carried, dead: Flags,
    ) -> Seen:  # fmt: skip
        """Carry all that has a memory on to now, and work out what could be."""
        fixed, network = self.fixed, self.fixed.network
        highest = carried.highest
        self.windows.add(now, carried.amps)
        if self.restored.any():
            self.heats.bridge(now, highest, self.restored)
            self.restored = np.zeros_like(self.restored)
        self.told.add(now, told_of(carried.amps.T, carried.watts, carried.assumed).T)
        self.heats.update(now, likely_amps(carried, self.heats.begun), self.trips.off | dead)
        minute, ten = self.windows.rms(now, 60.0), self.windows.rms(now, 10.0)
        lasting = np.fmax(ten, self.windows.least(now, HELD_SECONDS))
        minute_told, ten_told = self.told.rms(now, 60.0), self.told.rms(now, 10.0)
        lasting_told = np.fmax(ten_told, self.told.least(now, HELD_SECONDS))
        lasting = np.where(self.trips.off | dead, 0.0, lasting)
        self.energies.update(seconds, carried.watts - carried.assumed, meters)
        self._look_ahead(now)
        beyond, theirs = self._beyond.of(now, walls, carried)
        local = network.other_watts + beyond
        may = np.nan_to_num(walls.committed) + theirs
        could = carry(fixed, may, local, self._losses.shares, dead)
        return Seen(
            now=now, tick=tick, walls=walls, meters=meters, carried=carried,
            undeclared=undeclared(fixed, walls, carried), dead=dead,
            committed=could,
            survivor=self._survivors(np.nan_to_num(walls.held) + theirs, local, dead),
            lasting=lasting, trips=self._trips(lasting, lasting_told),
            minute_told=minute_told, ten_told=ten_told,
            used=self.heats.used(), assumed=self.heats.assumed(now),
            minute=minute, ten=ten, peak=self.windows.peak(now, 10.0),
            above=self.timer.update(
                now,
                above(minute, minute_told, network.continuous),
                above(ten, ten_told, network.continuous),
            ),
            ahead=(self._ahead[0].copy(), self._ahead[1].copy()), swing=self._swing.copy(), joules=self.energies.joules,
            suspected=self.trips.suspected, off=self.trips.off, inrush=self._supplies.inrush,
            lost=(self._lost | meters.tripped | meters.input_lost | (dead & self._input_lost(meters))),
            cords=self._cords,
            metered_nodes=self._metered(tick, "node"), metering=self.metering, started=self.started or now,
            notices=self._notices,
        )  # fmt: skip

    def _trips(self, lasting: Floats, told: Floats) -> Floats:
        """Return seconds to each edge; where only what is assumed would trip it, nobody knows."""
        trips = self.heats.trips(lasting)
        unsure = doubted(lasting, told) & np.isfinite(trips[:, 0])
        if unsure.any():
            least = self.heats.trips(np.where(unsure, told, np.nan))[:, 0]
            trips = np.where((unsure & ~np.isfinite(least))[:, None], np.nan, trips)
        return trips

    def _survivors(self, held: Floats, local: Floats, dead: Flags) -> Floats:
        """A feed that is lost itself has nothing to take over."""
        amps = self._losses.survivors(held, local)
        return np.where(dead & self._losses.members, 0.0, amps)

    def _look_ahead(self, now: float) -> None:
        """Trends and swings change slowly: each tick looks at a part of a large site's lines."""
        turns = max(1, min(_TURNS, len(self.layout.lines) // _AT_ONCE))
        self._turn = (self._turn + 1) % turns
        rows = slice(self._turn, None, turns)
        network, windows = self.fixed.network, self.windows
        at, slow = windows.steps(now)
        level, slope = trends(at, slow[:, rows])
        self._ahead[0][rows] = seconds_until(level, slope, network.continuous[rows])
        self._ahead[1][rows] = seconds_until(level, slope, network.rated[rows])
        span, cycles = windows.swing(now, 60.0, rows)
        self._swing[rows] = swings(span, cycles, network.rated[rows], levels.SWING_CYCLES)

    def _metered(self, tick: Tick, kind: str) -> Flags:
        at = self._at if kind == "circuit" else self._machine_at
        found = np.zeros(len(at), dtype=bool)
        for what, name in tick.metered:
            if what == kind and name in at:
                found[at[name]] = True
        return found
