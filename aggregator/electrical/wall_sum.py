"""Watts at the wall of the whole fleet at the instant at which its GPUs are read too.

The electrical state is computed once a second, and frames come between: a sum of the last tick beside GPUs of now
would be two instants in one line. What follows the node's own frames is taken from the newest of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from aggregator.electrical.energy_sampler import (
    EFFICIENCY,
    NodeRows,
    drawn_by,
    node_rows,
    of_nodes,
    reported_watts,
    wall_of,
)
from api.power import LoadState
from power.site.config import NodeConfig
from power.snapshot.quantities import LOAD_STATES
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Floats
from present.fleet.wall import WallSum
from telemetry.fleet import Fleet
from telemetry.wire.schema import NODE_FAST

_FOLLOWED = [number for number, word in LOAD_STATES if word in {LoadState.MODELLED, LoadState.ASSUMED}]
"""States of a node's power in which what is reported of it follows its GPUs."""


@dataclass(frozen=True, slots=True)
class _Tick:
    """The fleet as the last tick knew it. Arrays over machines, then over the nodes of that version of the fleet."""

    at: float = -math.inf
    fleet: Fleet | None = None
    version: int = -1
    machines: tuple[str, ...] = ()
    reported: Floats = field(default_factory=lambda: np.zeros(0))
    partial: Floats = field(default_factory=lambda: np.zeros(0))
    """1 where a part of its power is assumed."""
    modelled: Floats = field(default_factory=lambda: np.zeros(0))
    """1 where what is reported follows its GPUs."""
    own: Floats = field(default_factory=lambda: np.zeros(0))
    """Reading of each node's own meter, watts."""
    drawn: Floats = field(default_factory=lambda: np.zeros(0))
    """Watts of each node's GPUs."""


_FLEETS = 2
"""Fleets of which the rows are kept."""


class FleetWall:
    """The sum at any instant, from the last tick and the frames since."""

    def __init__(self, specs: Mapping[str, NodeConfig]) -> None:
        """`specs`: the configured nodes."""
        self._specs = specs
        self._rows: dict[int, tuple[Fleet, NodeRows]] = {}
        """By the `id` of the fleet: a member has its own, and a copy of all members' nodes."""
        self._tick = _Tick()

    def tick(self, fleet: Fleet, now: float, supply: PowerSnapshot | None) -> None:
        """Remember a tick. `supply`: what it found of each machine; None without circuits."""
        if supply is None:
            self._tick = _Tick()
            return
        rows, power, own = self._read(fleet, now, supply.names)
        self._tick = _Tick(
            now,
            fleet,
            fleet.version,
            supply.names,
            reported_watts(supply),
            (supply.column("supply_assumed_watts") > 0).astype(float),
            np.isin(supply.column("supply_load_state"), _FOLLOWED).astype(float),
            own,
            drawn_by(rows, power)[0],
        )

    def sum(self, fleet: Fleet, now: float) -> WallSum:
        """Return the sum at `now`, the fleet's monotonic seconds."""
        tick = self._tick
        rows, power, own = self._read(fleet, now, tick.machines)
        drawn, read = drawn_by(rows, power)
        unread = read < rows.gpus
        known, partly = (of_nodes(rows, each) for each in (tick.reported, tick.partial))
        newer = np.isfinite(known) & (fleet.matrices[NODE_FAST].seen[rows.hosts] > tick.at)
        partial = (partly > 0) & unread & np.isfinite(known)
        if tick.fleet is fleet and tick.version == fleet.version:
            by_own = newer & np.isfinite(own) & np.isclose(known, np.abs(tick.own))
            by_model = newer & ~by_own & (of_nodes(rows, tick.modelled) > 0)
            known = np.where(by_model, known + (drawn - tick.drawn) / EFFICIENCY, known)
            known = np.where(by_own, np.abs(own), known)
            newer &= ~by_own & ~by_model
        else:  # what was read of it then can't be told from what is read now
            known = np.where(partly > 0, np.nan, known)
        wall = wall_of(fleet, now, rows, power, known)
        here = np.isfinite(wall)
        partial |= here & ~np.isfinite(known) & ~np.isfinite(own) & unread
        if not here.any():
            return WallSum(None, 0)
        age = now - tick.at if newer.any() else 0.0
        return WallSum(float(wall[here].sum()), int(here.sum()), int((partial & here).sum()), age)

    def _read(self, fleet: Fleet, now: float, machines: tuple[str, ...]) -> tuple[NodeRows, Floats, Floats]:
        """Return the rows of the fleet, the watts of its GPUs, and what each node's own meter reads."""
        of, rows = self._rows.get(id(fleet), (None, None))
        if of is not fleet or rows is None or rows.version != fleet.version or rows.machines != machines:
            if len(self._rows) > _FLEETS:
                self._rows.clear()
            rows = node_rows(fleet, machines, self._specs)
            self._rows[id(fleet)] = fleet, rows
        power = fleet.column("gpu_power_watts", now).astype(np.float64)
        own = fleet.column("node_wall_power_watts", now).astype(np.float64)[rows.hosts]
        return rows, power, own
