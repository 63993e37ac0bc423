"""Energy samples of the fleet: watts at the wall, energy by counters, idle GPUs."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from power.devices.supply import Tier, efficiency, points_of
from power.network.wiring import Floats
from power.report.energy import counted
from power.report.energy_ledger import IDLE_BELOW, EnergySample
from power.site.machine import HOST_WATTS
from power.snapshot.snapshot import PowerSnapshot
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.metric import Table

Index = npt.NDArray[np.intp]

_EFFICIENCY = efficiency(points_of(Tier.GOLD, 230.0), 0.5)


@dataclass(slots=True)
class _NodeRows:
    """Rows of nodes and GPUs for one version of the fleet and one list of machines."""

    version: int
    machines: tuple[str, ...]
    hosts: Index
    """Rows of the nodes."""
    machine: Index
    """Machine of each node; the number of machines for a node that is none."""
    owner: Index
    """Position in `hosts` of the node of each GPU row; the number of nodes for free rows."""


class EnergySampler:
    """Sampler of the fleet's power; keeps the GPUs' counters between two samples."""

    def __init__(self) -> None:
        self._rows: _NodeRows | None = None
        self._counters: Floats = np.empty(0)

    def sample(
        self,
        fleet: Fleet,
        now: float,
        machines: tuple[str, ...] = (),
        wall_watts: Floats | None = None,
    ) -> EnergySample:
        """Return a sample of the fleet at `now`, monotonic seconds. `wall_watts`: watts at the wall of
        `machines` as the live electrical state has them, in place of the nodes' own."""
        rows = self._rows
        moved = rows is None or rows.version != fleet.version
        if rows is None or moved or rows.machines != machines:
            rows = self._rows = _node_rows(fleet, machines)
        power = fleet.column("gpu_power_watts", now).astype(np.float64)
        busy = fleet.column("gpu_utilization_ratio", now)
        idle = busy < IDLE_BELOW
        wall = _wall(fleet, now, rows, power, np.empty(0) if wall_watts is None else wall_watts)
        return EnergySample(
            watts=float(np.nansum(wall)) if np.isfinite(wall).any() else math.nan,
            nodes=int(np.isfinite(wall).sum()),
            gpu_joules=0.0 if moved else self._joules(fleet, now),
            gpus=int(np.isfinite(busy).sum()),
            busy_gpus=float(np.nansum(busy)),
            idle_gpus=int(idle.sum()),
            idle_watts=float(np.nansum(power[idle])),
        )

    def _joules(self, fleet: Fleet, now: float) -> float:
        counters = fleet.column("gpu_energy_joules_total", now).astype(np.float64)
        before, self._counters = self._counters, counters
        return counted(before, counters) if len(before) == len(counters) else 0.0


def _node_rows(fleet: Fleet, machines: tuple[str, ...]) -> _NodeRows:
    number = {name: index for index, name in enumerate(machines)}
    owner = np.full(fleet.size(Table.GPU), len(fleet.nodes), np.intp)
    for position, node in enumerate(fleet.nodes.values()):
        owner[node.rows[Table.GPU]] = position
    return _NodeRows(
        fleet.version,
        machines,
        np.array([node.rows[Table.NODE].start for node in fleet.nodes.values()], np.intp),
        np.array([number.get(name, len(machines)) for name in fleet.nodes], np.intp),
        owner,
    )


def _wall(fleet: Fleet, now: float, rows: _NodeRows, power: Floats, wall_watts: Floats) -> Floats:
    """Return watts at the wall of each node: from the live electrical state, else from the node's own
    meter, else modelled from its GPUs and a plain host. NaN where nothing is known."""
    if not len(rows.hosts):
        return np.empty(0)
    own = fleet.column("node_wall_power_watts", now).astype(np.float64)[rows.hosts]
    known = np.isfinite(power)
    count = len(rows.hosts)
    drawn = np.bincount(rows.owner, np.where(known, power, 0.0), count + 1)[:count]
    any_reported = np.bincount(rows.owner, known.astype(np.float64), count + 1)[:count] > 0
    modelled = np.where(any_reported, (drawn + HOST_WATTS) / _EFFICIENCY, np.nan)
    known = (
        np.append(wall_watts, np.nan)[rows.machine] if len(wall_watts) else np.full(count, np.nan)
    )
    found: Floats = np.where(np.isfinite(known), known, np.where(np.isfinite(own), own, modelled))
    return found


def reported_watts(supply: PowerSnapshot) -> Floats:
    """Return the watts at the wall of each machine without assumed power: only reported power costs
    money. NaN where nothing is reported."""
    watts = np.asarray(supply.column("supply_wall_watts"), float)
    assumed = np.asarray(supply.column("supply_assumed_watts"), float)
    return np.where(assumed < watts, watts - assumed, np.nan)


def zone_of(where: str, name: str | None) -> tzinfo | None:
    """Return the time zone of a site; None for the machine's own. Raises `ConfigError`."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"{where}: site.timezone", f"there is no time zone {name!r}", "Write Europe/Berlin, or leave it out for the machine's.") from error  # fmt: skip


def local(wall_ns: int, zone: tzinfo | None) -> tuple[str, int]:
    """Return the date and the minute of the week at a place."""
    if zone is None:
        at = time.localtime(wall_ns // 1_000_000_000)
        return time.strftime("%Y-%m-%d", at), at.tm_wday * 1440 + at.tm_hour * 60 + at.tm_min
    there = datetime.fromtimestamp(wall_ns / 1e9, zone)
    return there.date().isoformat(), there.weekday() * 1440 + there.hour * 60 + there.minute
