"""Supervisor of the probe processes of a source: the current one, abandoned ones, and the scout.

A process opens the driver once. When the driver does not open, goes away or stops answering,
another process tries, with growing pauses; the old one is left to end by itself, because killing a
process in a driver call has frozen GPUs. The number of abandoned processes is bounded.

A lost GPU of NVIDIA is found again only by initialising NVML again, which may hang. So a *scout* process does
that while the current one goes on with the other GPUs, and replaces it if it finds the GPU.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from collector.probe.parent import Probe
from collector.probe.protocol import ProbeNotice, ProbeReply
from collector.probed import states
from collector.probed.states import DriverState, Wording
from telemetry.runtime.backoff import STEADY, Backoff

log = logging.getLogger(__name__)

PROCESS_LIMIT = 3
"""Abandoned processes at which no other is started."""
REPLACE_AFTER = 4.0
"""Multiple of the open limit after which another process tries to open the driver."""
SCOUT_WAIT = 60.0
EXIT_WAIT = 1.0


class ProbeSupervisor:
    """Starts, watches and closes probe processes."""

    def __init__(
        self,
        driver: str,
        wording: Wording,
        environment: Mapping[str, str] | None,
        retry: tuple[float, float],
        scout: tuple[float, float],
        open_limit: float,
        silence_limit: float,
        tick: float,
    ) -> None:
        """`tick`: longest time in seconds between two calls of `supervise` by a caller that is not late."""
        self._driver = driver
        self._wording = wording
        self._environment = environment
        self._retry = Backoff(*retry, STEADY)
        self._scouting = Backoff(*scout, STEADY)
        self._open_limit = open_limit
        self._silence_limit = silence_limit
        self._tick = tick
        self._probe: Probe | None = None
        self._leaving: list[Probe] = []
        self._scout: asyncio.Task[tuple[Probe, ProbeReply] | None] | None = None
        self._missing: frozenset[str] = frozenset()
        self._drifted = False
        self._calls_before = 0
        self._calls = 0
        self._processes = 0
        self._notices: list[ProbeNotice] = []
        self.found: ProbeReply | None = None
        """The first reply of a scout that has become the current process."""

    @property
    def abandoned(self) -> int:
        """Driver calls and processes abandoned since the start."""
        return self._calls_before + self._calls + self._processes

    async def begin(self, seconds: float) -> None:
        """Start a process now, and wait so long for its report. With too many abandoned processes,
        `supervise` starts one later."""
        self._retry.reset()
        if not self._crowded():
            await self._start().reported(seconds)

    def supervise(self, missing: set[str]) -> tuple[Probe | None, DriverState | None]:
        """Supervise the processes without waiting: return the one whose driver is open, and the
        driver's state if it has changed. `missing` are the UUIDs of lost GPUs."""
        self._reap()
        self._send_scout(missing)
        probe = self._probe
        if probe is None:
            if self._retry.over(time.monotonic()) and not self._crowded():
                self._start()
            return None, None
        if probe.report is not None and not probe.report.up:
            self._drop(probe)
            return None, self._wording.after(probe.report)
        if probe.ended:
            if not probe.exited() and probe.ended_for() < EXIT_WAIT:
                return None, None  # the pipe closes shortly before the exit code is known
            self._drop(probe)
            return None, states.crashed(probe.exit_code)
        silent = probe.silent_for(self._tick)
        if probe.report is not None and silent > self._silence_limit:
            self._processes += 1
            self._drop(probe)
            return None, states.PROBE_SILENT
        if probe.report is None:
            if silent > self._open_limit * REPLACE_AFTER and len(self._leaving) < PROCESS_LIMIT - 1:
                self._processes += 1
                self._drop(probe)
            return None, states.opening_for(silent) if silent > self._open_limit else None
        return probe, None

    def note_reply(self, answer: ProbeReply) -> None:
        """Note from a reply that the process is healthy, and whether devices have changed."""
        self._retry.reset()
        self._calls = answer.abandoned
        self._drifted = self._drifted or answer.drifted

    def drain_notices(self) -> list[ProbeNotice]:
        """Return the events of the driver since the last call."""
        notices, self._notices = self._notices, []
        if self._probe is not None:
            notices += self._probe.notices
            self._probe.notices = []
        return notices

    async def close(self, seconds: float) -> bool:
        """Close all processes; return whether they have ended within `seconds`."""
        if self._scout is not None:
            self._scout.cancel()
            await asyncio.wait([self._scout], timeout=seconds / 4)
            self._finish_scout()
        if self._probe is not None:
            self._drop(self._probe)
        end = time.monotonic() + seconds
        ended = [await probe.gone(max(end - time.monotonic(), 0.0)) for probe in self._leaving]
        return all(ended)

    def free(self) -> bool:
        """Return whether no process holds the driver."""
        self._reap()
        return self._probe is None and not self._leaving

    def _reap(self) -> None:
        self._leaving = [probe for probe in self._leaving if not probe.exited()]

    def _crowded(self) -> bool:
        self._reap()
        return len(self._leaving) >= PROCESS_LIMIT

    def _start(self) -> Probe:
        self._probe = Probe(self._driver, self._environment)
        self.found = None
        return self._probe

    def _drop(self, probe: Probe) -> None:
        self._notices += probe.notices
        probe.close()
        self._leaving.append(probe)
        if probe is self._probe:
            self._probe = None
            self._calls_before += self._calls
            self._calls = 0
            self._retry.start(time.monotonic())

    def _send_scout(self, missing: set[str]) -> None:
        """Search for lost GPUs, and after a change of their number, with a scout process."""
        if self._scout is not None:
            if self._scout.done():
                self._finish_scout()
            return
        if not missing and not self._drifted:
            self._scouting.reset()
            return
        if self._probe is None or self._probe.report is None:
            return
        if self._scouting.until == 0.0:
            self._scouting.start(time.monotonic())
        elif self._scouting.over(time.monotonic()) and len(self._leaving) < PROCESS_LIMIT:
            self._scouting.start(time.monotonic())
            self._missing = frozenset(missing)
            self._scout = asyncio.create_task(self._scan(), name="driver scout")

    async def _scan(self) -> tuple[Probe, ProbeReply] | None:
        probe = Probe(self._driver, self._environment)
        answer: ProbeReply | None = None
        try:
            report = await probe.reported(SCOUT_WAIT)
            if report is not None and report.up:
                answer = await probe.ask(0, SCOUT_WAIT / 2)
        finally:
            if answer is None:
                probe.close()
                self._leaving.append(probe)
        return (probe, answer) if answer is not None else None

    def _finish_scout(self) -> None:
        """Replace the current process by a scout that found a GPU; close any other scout."""
        scout, self._scout = self._scout, None
        if scout is None or scout.cancelled():
            return
        if (error := scout.exception()) is not None:
            log.error("the search for lost GPUs failed; it is repeated", exc_info=error)
            return
        result = scout.result()
        if result is None:
            return
        probe, answer = result
        there = {description.gpu.uuid for description in answer.described.values()}
        if self._probe is None or not (self._drifted or there & self._missing) or probe.ended:
            probe.close()
            self._leaving.append(probe)
            return
        self._drop(self._probe)
        self._retry.reset()
        self._drifted = False
        self._probe, self.found = probe, answer
