"""A simulated node as a source, equal to a real one for the collector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collector.jobs.source import JobSource
from collector.simulated.cluster import SimulatedCluster, SimulatedNode, cluster
from collector.simulated.course import WARM_UP
from collector.simulated.faults import SILENT, FaultKind, SimulatedFault
from collector.simulated.inventory import inventory, pci_of, uuid_of
from collector.simulated.owners import SimulatedJobs
from collector.simulated.scenario import Scenario
from collector.source import DeviceEvent, Rows
from telemetry.gap import NOT_READ
from telemetry.metric import Lane
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import NODE_FAST, NODE_SLOW, PORT_SLOW

# Events of a simulated node: beginnings and ends of its faults, in order.

_XID = {
    FaultKind.XID79: (79, "GPU has fallen off the bus."),
    FaultKind.REMAP_PENDING: (63, "Row Remapper: New row marked for remapping, reset gpu to activate."),
}

_Edge = tuple[int, str, str, dict[str, object]]
"""Second, kind, message, data."""


def _edges(fault: SimulatedFault) -> Iterator[_Edge]:
    """Yield the events of a fault, worded as by the driver and the kernel."""
    start, end = fault.start, fault.end
    yield start, "fault", f"simulated: {fault}", {"fault": fault.kind.value}
    if fault.kind in _XID:
        number, text = _XID[fault.kind]
        yield start, "xid", text, {"xid": number}
    match fault.kind:
        case FaultKind.XID79:
            yield start, "gpu_lost", "the GPU has left the bus", {}
            yield end, "gpu_back", "the GPU answers again", {}
        case FaultKind.HUNG:
            yield start, "gpu_hung", "the driver doesn't answer for this GPU", {}
            yield end, "gpu_answers", "the driver answers again", {}
        case FaultKind.THERMAL if end > start + WARM_UP:
            reason: dict[str, object] = {"reason": "hw_thermal_slowdown"}
            yield start + WARM_UP, "clocks_down", "hardware limits the clocks: heat", reason
            yield end, "clocks_free", "no clock limit", reason
        case FaultKind.POWER_BRAKE:
            power_brake: dict[str, object] = {"reason": "hw_power_brake_slowdown"}
            yield (start, "clocks_down", "hardware limits the clocks: power brake", power_brake)
            yield end, "clocks_free", "no clock limit", power_brake
        case _:
            pass


def events_between(node: SimulatedNode, after: int, until: int) -> list[DeviceEvent]:
    """Return the events after second `after` and up to second `until`, oldest first.

    A silent node reports no events; faults that still last when it is back show in its readings
    only, as after a boot.
    """
    out: list[tuple[int, DeviceEvent]] = []
    for fault in node.faults:
        for second, kind, message, data in _edges(fault):
            if not after < second <= until:
                continue
            if node.silent(second) and fault.kind not in SILENT:
                continue
            out += [(second, _event(node, index, second, kind, message, data)) for index in _about(node, fault, kind)]
    return [event for _, event in sorted(out, key=lambda entry: entry[0])]


def _about(node: SimulatedNode, fault: SimulatedFault, kind: str) -> Sequence[int | None]:
    """Return the GPUs that an event is about; (None,) when it is about the node."""
    if fault.kind is FaultKind.POWER_BRAKE and kind != "fault":
        return range(len(node.gpus))
    return (fault.gpu,)


def _event(
    node: SimulatedNode, index: int | None, second: int, kind: str, message: str, data: dict[str, object]
) -> DeviceEvent:
    scenario = node.scenario
    return DeviceEvent(
        kind=kind,
        at=scenario.at_ns(second),
        gpu=None if index is None else uuid_of(scenario.seed, node.name, index),
        pci=None if index is None else pci_of(scenario.name, index),
        message=message,
        data=dict(data),
    )


class SimulatedSource:
    """Source of one node of a scenario, with the `node` blocks; `collector.simulated.host.SELF` lists
    the columns that it leaves to the collector as gaps `not_read`."""

    inventory: Inventory

    def __init__(self, scenario: Scenario, node: str) -> None:
        """Raises `ConfigError` when the scenario has no such node."""
        self.scenario = scenario
        self._cluster: SimulatedCluster = cluster(scenario)
        self._node: SimulatedNode = self._cluster.node(node)
        self._lost: tuple[int, ...] = ()
        self._released = False
        self._read_until: int | None = None
        self._events: list[DeviceEvent] = []
        self.inventory = inventory(self._cluster, self._node)
        self.job_source: JobSource = SimulatedJobs(scenario, self._node, self._cluster.nodes_of_jobs)

    async def open(self) -> None:
        """Do nothing."""

    def silent(self, tick: int) -> bool:
        """Return whether the node is down at this tick (`node_loss`, `feed_loss`): the sampler then
        publishes nothing."""
        return self._node.silent(self.scenario.second(tick))

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the rows of a tick; they depend on the scenario, the node and the tick alone."""
        second = self.scenario.second(tick)
        after = second - 1 if self._read_until is None else self._read_until
        if second > after:
            self._read_until = second
            self._events += events_between(self._node, after, second)
        lost = self._node.lost(second)
        if lost != self._lost:
            self._lost = lost
            self._update_inventory()
        rows: Rows = {}
        if Lane.FAST in lanes:
            rows |= self._node.fast(second)
        if Lane.SLOW in lanes:
            rows |= self._node.slow(second)
        if self._released:
            for block in rows.keys() - {NODE_FAST, NODE_SLOW, PORT_SLOW}:
                rows[block] = [[NOT_READ] * len(row) for row in rows[block]]
        return rows

    def drain_events(self) -> list[DeviceEvent]:
        """Return the events since the last call, oldest first."""
        events, self._events = self._events, []
        return events

    async def release(self) -> None:
        """Return gaps from now on, as a node whose driver is being upgraded."""
        self._released = True
        self._update_inventory()

    async def resume(self) -> None:
        """Return readings again."""
        self._released = False
        self._update_inventory()

    async def close(self) -> None:
        """Do nothing."""

    def _update_inventory(self) -> None:
        self.inventory = inventory(self._cluster, self._node, self._lost, self._released)
