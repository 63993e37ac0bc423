"""NVML as a source: readings of all GPUs each tick, whatever becomes of the driver.

The driver is read by a probe process (`collector.probe`). Here it is started, watched, replaced
and let go; its answers become rows, and its troubles gaps, states and happenings.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from collector.nvml import states
from collector.nvml.assembly import Shape, assemble
from collector.nvml.edges import Edges
from collector.nvml.nursery import Nursery
from collector.nvml.roster import Roster
from collector.nvml.states import DriverState
from collector.nvml.topology import pools, with_peers
from collector.probe.parent import Probe
from collector.probe.protocol import FAST, SLOW, Answer, Notice, Reading, Report, Status
from collector.source import Happening, Rows
from telemetry.gap import Gap
from telemetry.inventory import Gpu, Inventory, Link
from telemetry.metric import Lane
from telemetry.schema import GPU_FAST

_BITS = {Lane.FAST: FAST, Lane.SLOW: SLOW}
_SILENT_TICKS = 2
_CLOSE_WAIT = 0.7


class NvmlSource:
    """Source `nvml`; see `collector.source.Source`."""

    def __init__(
        self,
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
    ) -> None:
        """Prepare; nothing is started before `open`. Times are in seconds.

        `interval` is that of the ticks; `environment` is added to the probe's; `expected` are GPUs
        and links that the node had before this start, so that one that is lost now has a row;
        `open_wait` is how long `open` and `resume` wait for the driver; `retry` the shortest and
        the longest pause between attempts to open it; `scout` the same between attempts to find
        lost GPUs again; a driver that has not opened after `open_limit` is said to hang; a probe
        process that does not run for `silence_limit` (10 s or 5 intervals) is replaced; `release`
        and `resume` take `command_wait` at most, for no tick is taken meanwhile.
        """
        silence = silence_limit or max(10.0, 5 * interval)
        self._nursery = Nursery("nvml", environment, retry, scout, open_limit, silence)
        self._open_wait = open_wait
        self._command_wait = command_wait
        self._roster = Roster(expected, expected_links)
        self._edges = Edges()
        self._state = states.OPENING
        self._report: Report | None = None
        self._news: list[Happening] = []
        self._told_up = True
        self._silent_ticks = 0
        self._released = False
        self._now = 0
        self.inventory = Inventory(node="", source="nvml")
        self._publish()

    @property
    def abandoned(self) -> int:
        """Driver calls and probe processes given up as hung since the start."""
        return self._nursery.abandoned

    async def open(self) -> None:
        """Start the probe, and give the driver a moment to open."""
        self._now = time.time_ns()
        await self._begin(self._open_wait)

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the GPU and link blocks of `lanes`, within `deadline` seconds."""
        del tick
        self._now = now_ns
        answer: Answer | None = None
        if self._released:
            if self._state == states.HELD and self._nursery.free():
                self._enter(states.RELEASED)
        else:
            probe = self._tend()
            if probe is not None:
                answer = await probe.ask(sum(_BITS[lane] for lane in lanes), deadline)
                self._follow(probe)
            for heard in self._nursery.heard():
                self._hear(heard)
        if answer is not None:
            self._take(answer)
        readings = self._readings(answer)
        shape = Shape(tuple(len(row.links) for row in self._roster.rows), lanes)
        rows = assemble(shape, readings, self._absent_gap(answer))
        if answer is not None and Lane.FAST in lanes:
            present = [
                (row.gpu, values)
                for row, values, reading in zip(
                    self._roster.rows, rows[GPU_FAST], readings, strict=True
                )
                if reading is not None and reading.status is Status.OK
            ]
            self._news += self._edges.look(present, now_ns)
        if self._roster.changed:
            self._publish()
        return rows

    def happenings(self) -> list[Happening]:
        """Return what happened since the last call, oldest first."""
        news, self._news = self._news, []
        return news

    async def release(self) -> None:
        """End the probe, so that the driver can be upgraded. A call that does not return holds the
        driver for longer than this waits: the state says so until it has returned."""
        self._released = True
        free = await self._nursery.close(self._command_wait)
        self._enter(states.RELEASED if free else states.HELD)
        self._publish()

    async def resume(self) -> None:
        """Take the driver again."""
        if self._released:
            self._released = False
            self._enter(states.OPENING)
            await self._begin(min(self._open_wait, self._command_wait))

    async def close(self) -> None:
        """End the probe. One that hangs ends by itself when its call returns."""
        self._released = True
        await self._nursery.close(_CLOSE_WAIT)

    # ---- the driver's state ----

    async def _begin(self, seconds: float) -> None:
        """Start a probe, and wait that long for what it has to tell."""
        end = time.monotonic() + seconds
        await self._nursery.begin(seconds)
        probe = self._tend()
        if probe is not None:
            answer = await probe.ask(0, max(end - time.monotonic(), seconds / 4))
            if answer is not None:
                self._take(answer)
        if self._roster.changed:
            self._publish()

    def _tend(self) -> Probe | None:
        """See to the probe process; return it if its driver is open."""
        probe, state = self._nursery.tend(self._roster.missing)
        if state is not None:
            self._enter(state)
        if probe is not None and probe.report is not None and probe.report is not self._report:
            self._meet_driver(probe.report)
            if self._nursery.found is not None:
                self._take(self._nursery.found)
        return probe

    def _meet_driver(self, report: Report) -> None:
        """Another process has opened the driver."""
        before, self._report = self._report, report
        self._news += self._roster.start(report.devices, self._now)
        self._enter(states.after(report))
        self._roster.changed = True
        if before is not None and before.driver_version != report.driver_version:
            self._edges.restart()
            data: dict[str, object] = {"from": before.driver_version, "to": report.driver_version}
            text = f"The driver is {report.driver_version} now."
            self._news.append(Happening("driver_reloaded", self._now, message=text, data=data))

    def _follow(self, probe: Probe) -> None:
        """The driver may have gone while it was asked."""
        if probe.ended or (probe.report is not None and not probe.report.up):
            self._tend()

    def _take(self, answer: Answer) -> None:
        """Learn from an answer who is there and how each does."""
        self._nursery.heed(answer)
        self._news += self._roster.meet(answer.described, self._now)
        statuses = [reading.status for reading in answer.readings]
        self._news += self._roster.judge(statuses, self._now)
        if statuses and all(status in {Status.HUNG, Status.LATE} for status in statuses):
            self._silent_ticks += 1
            if self._silent_ticks >= _SILENT_TICKS:
                self._enter(states.NOT_ANSWERING)
        else:
            self._silent_ticks = 0
            if self._report is not None:
                self._enter(states.after(self._report))

    def _enter(self, state: DriverState) -> None:
        """Be in a state: published when it changes, and told when it is better or worse."""
        before, self._state = self._state, state
        if state == before:
            return
        self._roster.changed = True
        kind = None
        if state.state == "up":
            kind = None if self._told_up else "driver_up"
            self._told_up = True
        elif self._told_up and state is not states.OPENING:
            kind = "driver_down"
            self._told_up = False
        if kind is not None:
            message = state.message or "The driver answers."
            data: dict[str, object] = {"state": state.state}
            if self._report is not None and self._report.driver_version is not None:
                data["version"] = self._report.driver_version
            self._news.append(Happening(kind, self._now, message=message, data=data))

    def _hear(self, notice: Notice) -> None:
        number = self._roster.row_of.get(notice.device) if notice.device is not None else None
        gpu = self._roster.rows[number].gpu if number is not None else None
        self._news.append(
            Happening(
                notice.kind,
                notice.at,
                gpu.uuid if gpu is not None else None,
                gpu.pci if gpu is not None else None,
                notice.message,
                dict(notice.data),
            )
        )

    # ---- rows and inventory ----

    def _readings(self, answer: Answer | None) -> list[Reading | None]:
        """The reading of each row; None where the driver has no such device."""
        readings: list[Reading | None] = [None] * len(self._roster.rows)
        if answer is not None:
            for device, row in self._roster.row_of.items():
                if device < len(answer.readings):
                    readings[row] = answer.readings[device]
        return readings

    def _absent_gap(self, answer: Answer | None) -> Gap:
        """Why rows without a reading are absent."""
        if answer is not None:
            return Gap.DEVICE_LOST
        if self._state.state == "up":
            return Gap.TIMED_OUT
        return Gap.NOT_READ if self._state == states.OPENING else self._state.gap

    def _publish(self) -> None:
        """Make the inventory anew."""
        self._roster.changed = False
        gpus = self._roster.gpus
        links = with_peers(self._roster.links, gpus)
        report = self._report
        self.inventory = Inventory(
            node="",
            source="nvml",
            driver_version=report.driver_version if report is not None else None,
            cuda_version=report.cuda_version if report is not None else None,
            driver_state=self._state.state,
            driver_message=self._state.message,
            gpus=gpus,
            links=links,
            pools=pools(gpus, links),
        )
