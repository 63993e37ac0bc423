"""A driver in a probe process as a source: readings of all GPUs each tick, even when the driver fails.

A probe process (`collector.probe`) reads the driver. The source supervises the process, and turns
its replies into rows, and its failures into gaps, states and events.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from collector.probe.parent import Probe
from collector.probe.protocol import (
    FAST,
    SLOW,
    ProbeNotice,
    ProbeProcesses,
    ProbeReading,
    ProbeReply,
    ProbeReport,
    ProbeStatus,
)
from collector.probe.watchdog import ABANDONED_LIMIT
from collector.probed import states
from collector.probed.gpu_table import GpuTable
from collector.probed.probe_supervisor import ProbeSupervisor
from collector.probed.states import DriverState, Wording
from collector.probed.transitions import TransitionDetector
from collector.source import DeviceEvent, ListedProcess, ListedProcesses, Rows
from telemetry.devices import Gpu, Link, MemoryPool
from telemetry.gap import GAP, Gap
from telemetry.metric import Lane
from telemetry.text import duration
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, INSTANCE_SLOW, LINK_FAST, LINK_SLOW, SCHEMA

# Topology: the peers of links, and memory pools. Pure.


def with_peers(links: Iterable[Link], gpus: Sequence[Gpu]) -> tuple[Link, ...]:
    """Return the links with the UUID of the GPU at the far end, where it is one of this node."""
    by_pci = {gpu.pci: gpu.uuid for gpu in gpus if gpu.pci is not None}
    return tuple(
        msgspec.structs.replace(link, peer=by_pci.get(link.peer_pci)) if link.peer_pci is not None else link
        for link in links
    )


def pools(gpus: Sequence[Gpu], links: Iterable[Link], over: str = "nvlink") -> tuple[MemoryPool, ...]:
    """Return the memory pools of a node: all GPUs on switches form one, GPUs linked to each other
    form one, and every other GPU is a pool of its own. `over` is the word for links between GPUs."""
    switched: set[str] = set()
    parent = {gpu.uuid: gpu.uuid for gpu in gpus}

    def root(uuid: str) -> str:
        while parent[uuid] != uuid:
            uuid = parent[uuid]
        return uuid

    for link in links:
        if link.gpu not in parent:
            continue
        if link.peer_kind == "switch":
            switched.add(link.gpu)
        elif link.peer is not None and link.peer in parent:
            parent[root(link.gpu)] = root(link.peer)
    first = min(switched, default=None)
    for uuid in switched:
        parent[root(uuid)] = root(first or uuid)
    members: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        members.setdefault(root(gpu.uuid), []).append(gpu)
    return tuple(_pool(group, switched, over) for group in members.values())


def _pool(group: list[Gpu], switched: set[str], linked: str) -> MemoryPool:
    sizes = [gpu.memory_bytes for gpu in group]
    known = [size for size in sizes if size is not None]
    over = "none"
    if len(group) > 1:
        over = "nvswitch" if any(gpu.uuid in switched for gpu in group) else linked
    return MemoryPool(
        gpus=tuple(gpu.uuid for gpu in group), bytes=sum(known) if len(known) == len(sizes) else None, over=over
    )


# From the probe's packed readings to rows of a frame, with gaps for missing ones. Pure.

_LAYOUT = ((Lane.FAST, (GPU_FAST, LINK_FAST)), (Lane.SLOW, (GPU_SLOW, LINK_SLOW, INSTANCE_SLOW)))
"""The order of a reading's values: lane by lane, the GPU's row, one for each link and MIG instance."""
_WIDTH = tuple(len(block.names) for block in SCHEMA.blocks)
_GAPS = {
    ProbeStatus.LOST: Gap.DEVICE_LOST,
    ProbeStatus.RESET_REQUIRED: Gap.DEVICE_LOST,
    ProbeStatus.HUNG: Gap.TIMED_OUT,
    ProbeStatus.LATE: Gap.LATE,
    ProbeStatus.PAUSED: Gap.PAUSED,
}


class Shape(NamedTuple):
    """Rows that a tick needs."""

    devices: tuple[tuple[int, int], ...]
    """Links and MIG instances of each GPU, in the order of the rows."""
    lanes: frozenset[Lane]


def assemble(shape: Shape, readings: Sequence[ProbeReading | None], absent: Gap) -> Rows:
    """Return the blocks of `shape` from one reading per GPU; None is a GPU that is `absent`."""
    rows: Rows = {}
    for lane, blocks in _LAYOUT:
        if lane in shape.lanes:
            rows |= {block: [] for block in blocks}
    for devices, reading in zip(shape.devices, readings, strict=True):
        values: list[float] | None = None
        reason = absent
        if reading is not None:
            if reading.status is ProbeStatus.OK:
                packed = array("d")
                packed.frombytes(reading.values)
                values = packed.tolist()
            reason = _GAPS.get(reading.status, Gap.ERROR)
        _add(rows, devices, values, GAP[reason])
    return rows


def _add(rows: dict[int, list[list[float]]], devices: tuple[int, int], values: list[float] | None, gap: float) -> None:
    """Add the rows of one GPU; values of another shape than expected are gaps."""
    places = [
        (block, count)
        for _, blocks in _LAYOUT
        for block, count in zip(blocks, (1, *devices), strict=False)
        if block in rows
    ]
    size = sum(_WIDTH[block] * count for block, count in places)
    if values is None or len(values) != size:
        values = [gap] * size
    start = 0
    for block, count in places:
        width = _WIDTH[block]
        stop = start + count * width
        rows[block] += [values[at : at + width] for at in range(start, stop, width)]
        start = stop


def _listed(found: ProbeProcesses, now: int) -> ListedProcesses:
    """Return processes in the collector's own words."""
    rows = (ListedProcess(row.pid, row.type, row.memory_bytes, row.instance, row.sm_ratio) for row in found.rows)
    return ListedProcesses(now, tuple(rows), found.problem)


def _gpus(change: DeviceEvent) -> list[str]:
    """Return the UUIDs of the GPUs whose counters went back."""
    found = change.data.get("gpus")
    return [str(gpu) for gpu in found] if isinstance(found, list) else []


_BITS = {Lane.FAST: FAST, Lane.SLOW: SLOW}
_SILENT_TICKS = 2
_CLOSE_WAIT = 0.7
TRIAL_SECONDS = 300.0
"""Seconds between two readings of a GPU that is paused: one of them shows that it was reset."""


class ProbedSource:
    """Source of one vendor's GPUs, as in `collector.source.Source`."""

    def __init__(
        self,
        driver: str,
        wording: Wording,
        *,
        interval: float = 1.0,
        environment: Mapping[str, str] | None = None,
        expected: Iterable[Gpu] = (),
        expected_links: Iterable[Link] = (),
        open_wait: float = 2.0,
        retry: tuple[float, float] = (1.0, 30.0),
        scout: tuple[float, float] = (5.0, 300.0),
        open_limit: float = 30.0,
        silence_limit: float | None = None,
        command_wait: float = 5.0,
        trial: float = TRIAL_SECONDS,
    ) -> None:
        """Prepare the source; `open` starts it. Times are in seconds.

        `driver` is that of the probe, as in `collector.probe.driver`; `wording` what the vendor calls its states;
        `interval` is that of the ticks; `environment` is added to the probe's; `expected` are GPUs
        and links that the node had before this start, so that one that is lost now has a row;
        `open_wait` is how long `open` and `resume` wait for the driver; `retry` the shortest and
        the longest pause between attempts to open it; `scout` the same between attempts to find
        lost GPUs again; a driver that has not opened after `open_limit` counts as hung; a probe
        process that does not run for `silence_limit` (10 s or 5 intervals) is replaced; `release`
        and `resume` take `command_wait` at most, because no tick runs meanwhile; a GPU that is
        paused is read once in `trial`.
        """
        silence = silence_limit or max(10.0, 5 * interval)
        self._wording = wording
        self._supervisor = ProbeSupervisor(
            driver, wording, environment, retry, scout, open_limit, silence, 2 * interval
        )
        self._open_wait = open_wait
        self._command_wait = command_wait
        self._table = GpuTable(expected, expected_links, wording.reset_hint)
        self._transitions = TransitionDetector()
        self._state = states.OPENING
        self._report: ProbeReport | None = None
        self._events: list[DeviceEvent] = []
        self._reported_up = True
        self._silent_ticks = 0
        self._released = False
        self._paused: dict[str, float] = {}
        """By UUID of a GPU that is not read: when it is next tried, monotonic seconds."""
        self._trial = trial
        self._now = 0
        self._interval = interval
        self._process_ticks = 0
        """Ticks between two readings of the processes of a GPU; 0: they are not read."""
        self._ticks = 0
        """Ticks since the driver was opened."""
        self._listed: dict[str, ListedProcesses] = {}
        self.inventory = Inventory(node="", source=wording.source)
        self._publish()

    @property
    def abandoned(self) -> int:
        """Driver calls and probe processes abandoned as hung since the start."""
        return self._supervisor.abandoned

    async def open(self) -> None:
        """Start the probe, and wait a moment for the driver to open."""
        self._now = time.time_ns()
        await self._begin(self._open_wait)

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the GPU, link and instance blocks of `lanes`, within `deadline` seconds."""
        del tick
        self._now = now_ns
        answer: ProbeReply | None = None
        if self._released:
            if self._state == states.HELD and self._supervisor.free():
                self._enter(states.RELEASED)
        else:
            probe = self._supervise()
            if probe is not None:
                bits = sum(_BITS[lane] for lane in lanes)
                answer = await probe.ask(bits, deadline, self._without(), self._due_processes())
                self._check_alive(probe)
            for notice in self._supervisor.drain_notices():
                self._add_notice(notice)
        if answer is not None:
            self._apply(answer)
        readings = self._readings(answer)
        self._list(readings)
        devices = tuple((len(row.links), len(row.instances)) for row in self._table.rows)
        shape = Shape(devices, lanes)
        rows = assemble(shape, readings, self._absent_gap(answer))
        if answer is not None and Lane.FAST in lanes:
            present = [
                (row.gpu, values)
                for row, values, reading in zip(self._table.rows, rows[GPU_FAST], readings, strict=True)
                if reading is not None and reading.status is ProbeStatus.OK
            ]
            changes = self._transitions.detect(present, now_ns)
            self._events += changes
            for change in changes:
                if change.kind == "driver_reloaded":  # its counters went back: it was reset
                    self._unpause(_gpus(change), "It was reset.")
        if self._table.changed:
            self._publish()
        return rows

    def list_processes(self, seconds: float) -> None:
        """Read the processes of each GPU once in so many seconds."""
        self._process_ticks = max(1, round(seconds / self._interval))

    def listed_processes(self) -> Mapping[str, ListedProcesses]:
        """Return the processes of each GPU at their newest reading, by UUID."""
        return self._listed

    def _due_processes(self) -> tuple[int, ...]:
        """Return the devices whose processes are read at this tick: all or none, so that their owners are
        looked up once for all."""
        ticks = self._process_ticks
        if not ticks or self._report is None:
            return ()
        number, self._ticks = self._ticks, self._ticks + 1
        return () if number % ticks else tuple(range(self._report.devices))

    def _list(self, readings: Sequence[ProbeReading | None]) -> None:
        """Keep the processes that came with the readings of a tick."""
        for row, reading in zip(self._table.rows, readings, strict=True):
            if reading is not None and reading.processes is not None:
                self._listed[row.gpu.uuid] = _listed(reading.processes, self._now)

    def drain_events(self) -> list[DeviceEvent]:
        """Return the events since the last call, oldest first."""
        events, self._events = self._events, []
        return events

    async def release(self) -> None:
        """End the probe, so that the driver can be upgraded. A call that does not return keeps the
        driver open for longer: the state reports that until it has returned."""
        self._released = True
        free = await self._supervisor.close(self._command_wait)
        self._enter(states.RELEASED if free else states.HELD)
        self._publish()

    async def resume(self) -> None:
        """Open the driver again."""
        self._unpause(list(self._paused), "A person resumed it.")
        if self._released:
            self._released = False
            self._enter(states.OPENING)
            await self._begin(min(self._open_wait, self._command_wait))

    def pause(self, gpu: str, reason: str) -> None:
        """Read a GPU no more but once in `trial` seconds, until it is reset, the driver is loaded again
        or `resume` is called: its firmware does not answer, and each call would wait for it."""
        row = next((row for row in self._table.rows if row.gpu.uuid == gpu), None)
        if row is None or gpu in self._paused:
            return
        self._paused[gpu] = time.monotonic() + self._trial
        text = f"It is read once in {duration(self._trial)} until it is reset: {reason}."
        self._events.append(DeviceEvent("gpu_paused", self._now, gpu, row.gpu.pci, text, {"reason": reason}))

    def _unpause(self, gpus: Iterable[str], why: str) -> None:
        """Read GPUs at every tick again."""
        for gpu in [gpu for gpu in gpus if self._paused.pop(gpu, None) is not None]:
            text = f"It is read at every tick again. {why}"
            self._events.append(DeviceEvent("gpu_resumed", self._now, gpu, message=text))

    def _without(self) -> tuple[int, ...]:
        """Return the devices of the probe that are not read at this tick."""
        if not self._paused:
            return ()
        now = time.monotonic()
        due = {gpu for gpu, at in self._paused.items() if now >= at}
        self._paused |= dict.fromkeys(due, now + self._trial)
        rows = self._table.rows
        skipped = self._paused.keys() - due
        return tuple(device for device, row in self._table.row_of.items() if rows[row].gpu.uuid in skipped)

    async def close(self) -> None:
        """End the probe. One that hangs ends by itself when its call returns."""
        self._released = True
        await self._supervisor.close(_CLOSE_WAIT)

    # ---- the driver's state ----

    async def _begin(self, seconds: float) -> None:
        """Start a probe, and wait so long for its report."""
        end = time.monotonic() + seconds
        await self._supervisor.begin(seconds)
        probe = self._supervise()
        if probe is not None:
            answer = await probe.ask(0, max(end - time.monotonic(), seconds / 4))
            if answer is not None:
                self._apply(answer)
        if self._table.changed:
            self._publish()

    def _supervise(self) -> Probe | None:
        """Supervise the probe process; return it if its driver is open."""
        probe, state = self._supervisor.supervise(self._table.missing)
        if state is not None:
            self._enter(state)
        if probe is not None and probe.report is not None and probe.report is not self._report:
            self._driver_opened(probe.report)
            if self._supervisor.found is not None:
                self._apply(self._supervisor.found)
        return probe

    def _driver_opened(self, report: ProbeReport) -> None:
        """Start over with the report of a new process that has opened the driver."""
        before, self._report = self._report, report
        self._ticks = 0
        self._events += self._table.start(report.devices, self._now)
        self._enter(self._wording.after(report))
        self._table.changed = True
        if before is not None and before.driver_version != report.driver_version:
            self._transitions.restart()
            self._unpause(list(self._paused), "The driver was replaced.")
            data: dict[str, object] = {"from": before.driver_version, "to": report.driver_version}
            text = f"The driver is {report.driver_version} now."
            self._events.append(DeviceEvent("driver_reloaded", self._now, message=text, data=data))

    def _check_alive(self, probe: Probe) -> None:
        """Update the state if the driver went away during the request."""
        if probe.ended or (probe.report is not None and not probe.report.up):
            self._supervise()

    def _apply(self, answer: ProbeReply) -> None:
        """Apply descriptions and statuses of a reply."""
        self._supervisor.note_reply(answer)
        self._events += self._table.apply_descriptions(answer.described, self._now)
        statuses = [reading.status for reading in answer.readings]
        self._events += self._table.apply_statuses(statuses, self._now)
        if statuses and all(status in {ProbeStatus.HUNG, ProbeStatus.LATE} for status in statuses):
            # A device that is late tells nothing, unless it waits for threads that all hang.
            if statuses.count(ProbeStatus.HUNG) >= min(len(statuses), ABANDONED_LIMIT):
                self._silent_ticks += 1
            if self._silent_ticks >= _SILENT_TICKS:
                self._enter(states.NOT_ANSWERING)
        else:
            self._silent_ticks = 0
            if self._report is not None:
                self._enter(self._wording.after(self._report))

    def _enter(self, state: DriverState) -> None:
        """Enter a state: publish a change, and add an event when the driver goes up or down."""
        before, self._state = self._state, state
        if state == before:
            return
        self._table.changed = True
        kind = None
        if state.state == "up":
            kind = None if self._reported_up else "driver_up"
            self._reported_up = True
            if kind is not None:
                self._unpause(list(self._paused), "The driver was loaded again.")
        elif self._reported_up and state is not states.OPENING:
            kind = "driver_down"
            self._reported_up = False
        if kind is not None:
            message = state.message or "The driver answers."
            data: dict[str, object] = {"state": state.state}
            if self._report is not None and self._report.driver_version is not None:
                data["version"] = self._report.driver_version
            self._events.append(DeviceEvent(kind, self._now, message=message, data=data))

    def _add_notice(self, notice: ProbeNotice) -> None:
        number = self._table.row_of.get(notice.device) if notice.device is not None else None
        gpu = self._table.rows[number].gpu if number is not None else None
        self._events.append(
            DeviceEvent(
                notice.kind,
                notice.at,
                gpu.uuid if gpu is not None else None,
                gpu.pci if gpu is not None else None,
                notice.message,
                dict(notice.data),
            )
        )

    # ---- rows and inventory ----

    def _readings(self, answer: ProbeReply | None) -> list[ProbeReading | None]:
        """Return the reading of each row; None where the driver has no such device."""
        readings: list[ProbeReading | None] = [None] * len(self._table.rows)
        if answer is not None:
            for device, row in self._table.row_of.items():
                if device < len(answer.readings):
                    readings[row] = answer.readings[device]
        return readings

    def _absent_gap(self, answer: ProbeReply | None) -> Gap:
        """Return the reason of rows without a reading."""
        if answer is not None:
            return Gap.DEVICE_LOST
        if self._state.state == "up":
            return Gap.LATE  # the thread that replies calls no driver: it had no processor
        return Gap.NOT_READ if self._state == states.OPENING else self._state.gap

    def _publish(self) -> None:
        """Rebuild the inventory."""
        self._table.changed = False
        gpus = self._table.gpus
        links = with_peers(self._table.links, gpus)
        report = self._report
        self.inventory = Inventory(
            node="",
            source=self._wording.source,
            driver_version=report.driver_version if report is not None else None,
            cuda_version=report.cuda_version if report is not None else None,
            nvml_version=report.nvml_version if report is not None else None,
            excluded=report.excluded if report is not None else None,
            driver_state=self._state.state,
            driver_message=self._state.message,
            gpus=gpus,
            links=links,
            instances=self._table.instances,
            pools=pools(gpus, links, self._wording.links),
        )
