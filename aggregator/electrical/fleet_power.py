"""Power readings of the fleet as live inputs: a few sums over its matrices, one entry a machine.

Which row belongs to which machine changes only with the fleet's version; a tick is gathering and
summing. Nothing is filled in here: an unread GPU is reported as unread, and the live state counts
it with its power limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from power.live.inputs import PowerInputs
from power.report.cluster_parts import card_named
from power.wiring import Flags, Floats
from telemetry.devices import Gpu
from telemetry.fleet import STALE_INTERVALS, Fleet, Node
from telemetry.metric import Table
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, NODE_FAST

Index = npt.NDArray[np.intp]

RAPL_SECONDS = 5.0
"""CPU power is the growth of its counter over one to two times this: frames come in bunches, and
over a second the arrival times would dominate."""
_ONLY_MODULES = ("GH200",)
"""GPUs whose own watts are those of the module, as the driver reports them."""


@dataclass(slots=True)
class _MachineRows:
    """Rows of each machine for one version of the fleet."""

    version: int
    host: Index
    """Row of each machine in the table of nodes; 0 where the fleet has no such node."""
    here: Flags
    """Whether the fleet has a node of each machine's name."""
    owner: Index
    """Machine of each GPU row; the number of machines for rows of none."""
    fallback: Floats
    """Limit of each GPU row where the driver reports none; NaN when not known."""
    modules: Flags
    """Whether the watts of each GPU row are those of its module."""
    gpus: Floats
    """Number of GPUs of each machine; NaN where the fleet has no such node."""
    jobs: dict[str, str] = field(default_factory=dict)


class PowerReader(Protocol):
    """A reader of machines' power inputs: from the fleet, or from what members say."""

    faults: dict[str, Exception]
    """Exceptions by the node whose rows could not be read: its power is unknown."""

    def read(self, fleet: Fleet, now: float, listening_since: float = -np.inf) -> PowerInputs:
        """Return the inputs of all machines at `now`, the fleet's monotonic seconds; without meters."""


class FleetPowerReader:
    """Reader of machines' power inputs, in the order of their names."""

    def __init__(self, machines: Sequence[str]) -> None:
        self.machines = tuple(machines)
        self._rows: _MachineRows | None = None
        self._cpu = _Rate(len(self.machines))
        self._memory = _Rate(len(self.machines))
        self.faults: dict[str, Exception] = {}
        """Exceptions by the node whose rows could not be read: its power is unknown."""

    def read(self, fleet: Fleet, now: float, listening_since: float = -np.inf) -> PowerInputs:
        """Return the inputs of all machines at `now`, the fleet's monotonic seconds; without meters.

        `listening_since`: when the aggregator last reconnected to the bus; silence counts from then.
        """
        rows = self._rows
        if rows is None or rows.version != fleet.version:
            self.faults = {}
            rows = self._rows = _machine_rows(fleet, self.machines, self.faults)
        watts, known, module = _gpu_watts(fleet, rows, now)
        limit = _limits(fleet, rows, now)
        silent = _silence(fleet, rows, now, listening_since)
        nodes = fleet.matrices[NODE_FAST]
        heard = np.where(rows.here, nodes.seen[rows.host], -np.inf)
        interval = np.where(rows.here, nodes.max_age[rows.host] / STALE_INTERVALS, 1.0)
        cpu = self._cpu.step(self._of_nodes(fleet, rows, "node_cpu_package_energy_joules_total"), heard, now)
        memory = self._memory.step(self._of_nodes(fleet, rows, "node_memory_energy_joules_total"), heard, now)
        any_known = self._sum(rows, known) > 0
        unread = rows.gpus - self._sum(rows, known)
        return PowerInputs(
            gpu_watts=np.where(any_known, self._sum(rows, np.where(known, watts, 0.0)), np.nan),
            gpu_limit_watts=self._known(rows, limit),
            gpus_unread=np.where(rows.here, unread, 0.0),
            unread_limit_watts=self._known(rows, np.where(known, 0.0, limit)),
            gpus=rows.gpus,
            floor_watts=self._highest(rows, _column(fleet, GPU_SLOW, "gpu_power_limit_min_watts")),
            # Desktops have no counter of their memory: only the packages are known.
            host_watts=np.where(np.isnan(memory), cpu, cpu + memory),
            module_scope=self._sum(rows, module & known) > 0,
            wall_watts=self._of_nodes(fleet, rows, "node_wall_power_watts"),
            wall_age=now - heard,
            wall_period=interval,
            silent_seconds=silent,
            interval=interval,
            jobs=rows.jobs,
        )

    def _sum(self, rows: _MachineRows, values: Floats | Flags) -> Floats:
        count = len(self.machines)
        sums = np.bincount(rows.owner, values.astype(np.float64), count + 1)
        return sums[:count].astype(np.float64, copy=False)

    def _known(self, rows: _MachineRows, values: Floats) -> Floats:
        """Return sums; NaN where one of the values, or the node, is not known."""
        found: Floats = np.where(rows.here, self._sum(rows, values), np.nan)
        return found

    def _highest(self, rows: _MachineRows, values: Floats) -> Floats:
        found = np.full(len(self.machines) + 1, np.nan)
        np.fmax.at(found, rows.owner, values)
        return found[: len(self.machines)]

    def _of_nodes(self, fleet: Fleet, rows: _MachineRows, metric: str) -> Floats:
        column = _column(fleet, NODE_FAST, metric)
        if not len(column):
            return np.full(len(self.machines), np.nan)
        found: Floats = np.where(rows.here, column[rows.host], np.nan)
        return found


class _Rate:
    """Watts from counters of joules, over `RAPL_SECONDS` and more."""

    def __init__(self, count: int) -> None:
        self._old = self._newer = (np.full(count, np.nan), np.full(count, -np.inf))
        self._turned = -np.inf

    def step(self, joules: Floats, heard: Floats, now: float) -> Floats:
        """Return the watts of each counter; NaN until it is known, and after a reset."""
        if now - self._turned >= RAPL_SECONDS:
            self._old, self._newer = self._newer, (joules, heard)
            self._turned = now
        before, at = self._old
        with np.errstate(invalid="ignore", divide="ignore"):
            watts: Floats = (joules - before) / (heard - at)
            return np.where((heard > at) & (watts >= 0) & np.isfinite(watts), watts, np.nan)


def _machine_rows(fleet: Fleet, machines: Sequence[str], faults: dict[str, Exception]) -> _MachineRows:
    size, count = fleet.size(Table.GPU), len(machines)
    found = _MachineRows(
        fleet.version,
        np.zeros(count, np.intp),
        np.zeros(count, np.bool_),
        np.full(size, count, np.intp),
        np.full(size, np.nan),
        np.zeros(size, np.bool_),
        np.full(count, np.nan),
    )
    limits: dict[str, float] = {}
    for number, name in enumerate(machines):
        node = fleet.nodes.get(name)
        if node is None:
            continue
        try:
            _fill(found, number, name, node, limits)
        except Exception as error:  # noqa: BLE001 - kept by the node's name
            faults[name] = error
            found.here[number] = False
            found.gpus[number] = np.nan
            found.owner[node.rows[Table.GPU]] = count
    return found


def _fill(found: _MachineRows, number: int, name: str, node: Node, limits: dict[str, float]) -> None:
    """Set the rows of one machine."""
    rows = node.rows[Table.GPU]
    gpus = node.inventory.gpus
    found.here[number] = True
    found.host[number] = node.row
    found.owner[rows] = number
    found.gpus[number] = len(gpus)
    found.fallback[rows] = [_fallback(gpu, limits) for gpu in gpus]
    found.modules[rows] = [any(word in gpu.name for word in _ONLY_MODULES) for gpu in gpus]
    if job := node.inventory.host.get("job"):
        found.jobs[name] = job


def _fallback(gpu: Gpu, known: dict[str, float]) -> float:
    """Return the limit that a GPU had when its inventory was taken, else its model's."""
    if gpu.power_limit_watts is not None:
        return gpu.power_limit_watts
    if gpu.name not in known:
        card = card_named(gpu.name)
        known[gpu.name] = np.nan if card is None else card.tdp_watts
    return known[gpu.name]


def _silence(fleet: Fleet, rows: _MachineRows, now: float, listening_since: float) -> Floats:
    """Return seconds since each machine's last frame; inf for one that never sent any."""
    seen = fleet.matrices[NODE_FAST].seen[rows.host]
    heard = rows.here & np.isfinite(seen)
    found: Floats = np.where(heard, now - np.maximum(seen, listening_since), np.inf)
    return found


def _column(fleet: Fleet, block: int, metric: str) -> Floats:
    """Return one metric of every row, however old."""
    matrix = fleet.matrices[block]
    number, split = matrix.columns[metric], len(matrix.block.gauges)
    count = fleet.size(matrix.block.table)
    if number < split:
        return matrix.gauges[:count, number].astype(np.float64)
    return matrix.counters[:count, number - split].copy()


def _gpu_watts(fleet: Fleet, rows: _MachineRows, now: float) -> tuple[Floats, Flags, Flags]:
    """Return watts of each GPU row, whether they are fresh, and whether they are its module's."""
    matrix = fleet.matrices[GPU_FAST]
    count = len(rows.owner)
    fresh = now - matrix.seen[:count] <= matrix.max_age[:count]
    own = _column(fleet, GPU_FAST, "gpu_power_watts")
    whole = _column(fleet, GPU_FAST, "gpu_module_power_watts")
    module = ~np.isfinite(own) & np.isfinite(whole)
    watts = np.where(module, whole, own)
    return watts, fresh & np.isfinite(watts), module | rows.modules


def _limits(fleet: Fleet, rows: _MachineRows, now: float) -> Floats:
    """Return the limit of each GPU row; a lost GPU keeps its last limit."""
    known = fleet.column("gpu_power_limit_watts", now).astype(np.float64)
    found: Floats = np.where(np.isfinite(known), known, rows.fallback)
    return found
