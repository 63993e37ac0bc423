"""Energy samples of the fleet: watts at the wall, energy by counters, idle GPUs."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from power.devices.supply import Tier, efficiency, points_of
from power.report.energy import gained
from power.report.energy_ledger import IDLE_BELOW, EnergySample
from power.site.config import NodeConfig
from power.site.machine import HOST_WATTS
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Flags, Floats
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire.schema import NODE_FAST

Index = npt.NDArray[np.intp]

NODE_SUMS = (
    "watts", "nodes", "gpu_joules", "gpus", "busy_gpus", "idle_gpus", "idle_watts", "unmapped_watts", "unmapped_nodes",
    "silent_watts",
)  # fmt: skip
"""Columns of `EnergySample.node_sums`: its fields, and how many nodes on no circuit are known."""
GPU_JOULES = NODE_SUMS.index("gpu_joules")
EFFICIENCY = efficiency(points_of(Tier.GOLD, 230.0), 0.5)


@dataclass(slots=True)
class NodeRows:
    """Rows of nodes and GPUs for one version of the fleet and one list of machines."""

    version: int
    machines: tuple[str, ...]
    names: tuple[str, ...]
    """Names of the nodes."""
    hosts: Index
    """Rows of the nodes."""
    machine: Index
    """Machine of each node; the number of machines for a node that is none."""
    fixed: Floats
    """Watts at the wall of each node that is described by them; NaN for all others."""
    host: Floats
    """Watts of everything but the GPUs, inside the case; NaN where not configured."""
    gpus: Floats
    """GPUs of each node's inventory."""
    owner: Index
    """Position in `hosts` of the node of each GPU row; the number of nodes for free rows."""
    last: Floats
    """Watts at the wall that each node on no circuit reported last; NaN before any."""


class EnergySampler:
    """Sampler of the fleet's power; keeps the GPUs' counters between two samples."""

    def __init__(self, specs: Mapping[str, NodeConfig] | None = None) -> None:
        """`specs`: the configured nodes."""
        self._specs = specs or {}
        self._rows: NodeRows | None = None
        self._counters: Floats = np.empty(0)
        self.last_unmapped: dict[str, float] = {}
        """Watts at the wall that nodes on no circuit reported last which the fleet does not know yet."""

    def forget(self, node: str) -> None:
        """Forget what a node drew last."""
        self.last_unmapped = {name: watts for name, watts in self.unmapped().items() if name != node}
        self._rows = None

    def unmapped(self) -> dict[str, float]:
        """Return the watts at the wall that each node on no circuit reported last."""
        rows = self._rows
        if rows is None:
            return dict(self.last_unmapped)
        known = zip(rows.names, rows.last.tolist(), strict=True)
        return self.last_unmapped | {name: watts for name, watts in known if math.isfinite(watts)}

    def sample(
        self,
        fleet: Fleet,
        now: float,
        machines: tuple[str, ...] = (),
        wall_watts: Floats | None = None,
        *,
        by_node: bool = False,
    ) -> EnergySample:
        """Return a sample of the fleet at `now`, monotonic seconds. `wall_watts`: watts at the wall of
        `machines` as the live electrical state has them, in place of the nodes' own. `by_node`: with all sums by
        node."""
        rows = self._rows
        moved = rows is None or rows.version != fleet.version
        if rows is None or moved or rows.machines != machines:
            rows = self._moved(fleet, machines)
        power = fleet.column("gpu_power_watts", now).astype(np.float64)
        busy = fleet.column("gpu_utilization_ratio", now)
        idle = busy < IDLE_BELOW
        known = np.empty(0) if wall_watts is None else wall_watts
        wall = wall_of(fleet, now, rows, power, of_nodes(rows, known))
        stray = rows.machine == len(machines)
        silent = rows.last[stray & ~np.isfinite(wall)]
        rows.last = np.where(stray & np.isfinite(wall), wall, rows.last)
        grown = np.zeros(len(power)) if moved else self._gained(fleet, now)
        sums = (
            _sums_by_node(rows, wall, stray, power, busy.astype(np.float64), idle, grown)
            if by_node
            else np.zeros((0, 0))
        )
        return EnergySample(
            watts=float(np.nansum(wall)) if np.isfinite(wall).any() else math.nan,
            nodes=int(np.isfinite(wall).sum()),
            gpu_joules=float(np.nansum(grown)),
            gpus=int(np.isfinite(busy).sum()),
            busy_gpus=float(np.nansum(busy)),
            idle_gpus=int(idle.sum()),
            idle_watts=float(np.nansum(power[idle])),
            unmapped_watts=_known_sum(wall[stray]),
            silent_watts=float(np.nansum(silent)) + sum(self.last_unmapped.values()),
            node_names=rows.names,
            node_watts=wall,
            node_idle=_idle_by_node(rows, power, np.isfinite(busy), idle),
            node_sums=sums,
        )

    def _moved(self, fleet: Fleet, machines: tuple[str, ...]) -> NodeRows:
        """Return the rows of a fleet or a configuration that has changed."""
        last = {name: watts for name, watts in self.unmapped().items() if name not in machines}
        rows = self._rows = node_rows(fleet, machines, self._specs)
        rows.last = np.array([last.pop(name, math.nan) for name in rows.names], float)
        self.last_unmapped = last
        return rows

    def _gained(self, fleet: Fleet, now: float) -> Floats:
        """Return the joules that each GPU's counter has counted since the last sample."""
        counters = fleet.column("gpu_energy_joules_total", now).astype(np.float64)
        before, self._counters = self._counters, counters
        return gained(before, counters) if len(before) == len(counters) else np.zeros(len(counters))


def _known_sum(watts: Floats) -> float:
    return float(np.nansum(watts)) if np.isfinite(watts).any() else math.nan


def _sums_by_node(
    rows: NodeRows, wall: Floats, stray: Flags, power: Floats, busy: Floats, idle: Flags, grown: Floats
) -> Floats:
    """Return what each node adds to a sample, of shape (nodes, `NODE_SUMS`)."""
    count, known = len(rows.hosts), np.isfinite(wall)
    if not count:
        return np.zeros((0, len(NODE_SUMS)))

    def of_gpus(values: Floats | Flags) -> Floats:
        found = np.bincount(rows.owner, np.nan_to_num(values.astype(np.float64)), count + 1)
        return found[:count].astype(np.float64, copy=False)

    drawn = np.where(known, wall, 0.0)
    columns = (
        drawn, known, of_gpus(grown), of_gpus(np.isfinite(busy)), of_gpus(busy), of_gpus(idle),
        of_gpus(np.where(idle, power, 0.0)), np.where(stray, drawn, 0.0), stray & known,
        np.where(stray & ~known, np.nan_to_num(rows.last), 0.0),
    )  # fmt: skip
    return np.stack([np.asarray(each, np.float64) for each in columns], axis=1)


def _idle_by_node(rows: NodeRows, power: Floats, known: Flags, idle: Flags) -> Floats:
    """Return each node's GPUs of known utilisation, its idle ones, and their watts at the wall."""
    count = len(rows.hosts)
    watts = np.where(idle & np.isfinite(power), power, 0.0) / EFFICIENCY
    sums = [np.bincount(rows.owner, values.astype(float), count + 1)[:count] for values in (known, idle, watts)]
    return np.stack(sums, axis=1) if count else np.zeros((0, 3))


def node_rows(fleet: Fleet, machines: tuple[str, ...], specs: Mapping[str, NodeConfig]) -> NodeRows:
    """Return the rows of a fleet. `specs`: the configured nodes."""
    nodes = [specs.get(name, NodeConfig()) for name in fleet.nodes]
    number = {name: index for index, name in enumerate(machines)}
    owner = np.full(fleet.size(Table.GPU), len(fleet.nodes), np.intp)
    for position, node in enumerate(fleet.nodes.values()):
        owner[node.rows[Table.GPU]] = position
    return NodeRows(
        fleet.version,
        machines,
        tuple(fleet.nodes),
        np.array([node.row for node in fleet.nodes.values()], np.intp),
        np.array([number.get(name, len(machines)) for name in fleet.nodes], np.intp),
        np.array([np.nan if node.watts is None else node.watts for node in nodes], float),
        np.array([np.nan if node.host_watts is None else node.host_watts for node in nodes], float),
        np.array([float(len(node.inventory.gpus)) for node in fleet.nodes.values()]),
        owner,
        np.full(len(fleet.nodes), np.nan),
    )


def wall_of(fleet: Fleet, now: float, rows: NodeRows, power: Floats, known: Floats) -> Floats:
    """Return watts at the wall of each node: `known` from the live electrical state, else from the node's own
    meter, else modelled from its GPUs and its host, or as configured without GPUs. NaN where nothing is known."""
    if not len(rows.hosts):
        return np.empty(0)
    own = fleet.column("node_wall_power_watts", now).astype(np.float64)[rows.hosts]
    drawn, read = drawn_by(rows, power)
    any_reported = read > 0
    host = np.where(np.isnan(rows.host), HOST_WATTS, rows.host)
    modelled = np.where(any_reported, (drawn + host) / EFFICIENCY, np.nan)
    # A node without GPUs draws what is configured for it, while it reports.
    table = fleet.matrices[NODE_FAST]
    here = now - table.seen[rows.hosts] <= table.max_age[rows.hosts]
    described = np.where(np.isnan(rows.fixed), rows.host / EFFICIENCY, rows.fixed)
    modelled = np.where((rows.gpus == 0) & here, described, modelled)
    found: Floats = np.where(np.isfinite(known), known, np.where(np.isfinite(own), own, modelled))
    return found


def of_nodes(rows: NodeRows, machines: Floats) -> Floats:
    """Return a value of each machine by node; NaN for a node that is none. Empty: none has one."""
    if not len(machines):
        return np.full(len(rows.hosts), np.nan)
    found: Floats = np.append(machines, np.nan)[rows.machine]
    return found


def drawn_by(rows: NodeRows, power: Floats) -> tuple[Floats, Floats]:
    """Return the watts of each node's GPUs that are read, and how many these are. `power`: of each GPU row."""
    known, count = np.isfinite(power), len(rows.hosts)
    sums = (np.where(known, power, 0.0), known.astype(np.float64))
    drawn, read = (np.bincount(rows.owner, each, count + 1)[:count].astype(np.float64, copy=False) for each in sums)
    return drawn, read


def reported_watts(supply: PowerSnapshot) -> Floats:
    """Return the watts at the wall of each machine without assumed power: only reported power costs
    money. NaN where nothing is reported."""
    watts = np.asarray(supply.column("supply_wall_watts"), float)
    assumed = np.asarray(supply.column("supply_assumed_watts"), float)
    return np.where(assumed < watts, watts - assumed, np.nan)


def zone_of(where: str, name: str | None) -> tzinfo:
    """Return the time zone of a site, else the machine's own. Raises `ConfigError`."""
    if name is None:
        return machine_zone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"{where}: site.timezone",
            f"there is no time zone {name!r}",
            "Write Europe/Berlin, or leave it out for the machine's.",
        ) from error


def machine_zone(link: Path = Path("/etc/localtime")) -> tzinfo:
    """Return the machine's time zone: of TZ, else of /etc/localtime, else UTC."""
    names = [os.environ.get("TZ", "").removeprefix(":")]
    names.append("/".join(link.resolve().parts).rpartition("zoneinfo/")[2])
    for name in filter(None, names):
        with contextlib.suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(name)
    with contextlib.suppress(ValueError, OSError), link.open("rb") as file:
        return ZoneInfo.from_file(file, "the machine's")
    return UTC


def zone_text(zone: tzinfo, configured: bool) -> str:
    """Return the name of a site's time zone, and whether it is only the machine's."""
    name = str(zone)
    return name if configured else f"{name}, the machine's: [power.site] timezone is not set"


def local(wall_ns: int, zone: tzinfo) -> tuple[str, int]:
    """Return the date and the minute of the week at a place."""
    there = datetime.fromtimestamp(wall_ns / 1e9, zone)
    return there.date().isoformat(), there.weekday() * 1440 + there.hour * 60 + there.minute
