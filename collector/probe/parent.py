"""The collector's end of a probe process: sends requests, and waits for a limited time."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from collector.probe.available_time import AvailableTime, ReadThreads, thread_times
from collector.probe.protocol import (
    ProbeDescription,
    ProbeNotice,
    ProbeReply,
    ProbeReport,
    ProbeRequest,
    ToParent,
    Unpacker,
    pack,
)
from telemetry.text.decoders import of_msgpack

log = logging.getLogger(__name__)

_HOME = Path(__file__).resolve().parents[2]
_CHUNK = 1 << 16
_MARGIN = 0.15
"""Share of a deadline that is kept for the way there and back."""


class Probe:
    """A probe process. It ends when its pipe is closed, and is never killed."""

    def __init__(
        self,
        driver: str,
        environment: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        read: ReadThreads = thread_times,
    ) -> None:
        self.report: ProbeReport | None = None
        """Newest report whether the driver is open."""
        self.notices: list[ProbeNotice] = []
        """Events of the driver; drained by the supervisor."""
        self.ended = False
        """Whether the pipe is closed: the process has ended, or failed to start."""
        self.exit_code: int | None = None
        self.asked_at: float | None = None
        """Monotonic time of a request without a reply."""
        self._seq = 0
        self._ended_at = 0.0
        self._answer: ProbeReply | None = None
        self._described: dict[int, ProbeDescription] = {}
        """Descriptions that no caller has yet: each is sent once, and its reply may come too late for a tick."""
        self._waiter: asyncio.Future[None] | None = None
        self._decoder: msgspec.msgpack.Decoder[ToParent] = of_msgpack(ToParent)
        self._unpacker = Unpacker()
        self._loop = asyncio.get_running_loop()
        merged = {**os.environ, **(environment or {})}
        # The folder of this package, and (-P) not the working directory.
        paths = [str(_HOME), *filter(None, [merged.get("PYTHONPATH")])]
        self._spawn(driver, {**merged, "PYTHONPATH": os.pathsep.join(paths)})
        self._monotonic = monotonic
        self._silence = AvailableTime(partial(read, self.pid, None))
        self._looked_at = monotonic()
        """When the silence was last looked at, or began."""

    def _spawn(self, driver: str, environment: dict[str, str]) -> None:
        """Start a fresh interpreter: a fork would inherit the event loop and the broker's socket."""
        try:
            child_in, self._to = os.pipe()
            self._from, child_out = os.pipe()
        except OSError as error:  # too many open files: treated as a probe that has ended
            self._fail(error)
            return
        try:
            # Not subprocess: its Popen objects warn or kill when they outlive their owner.
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", "collector.probe", driver],
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, child_in, 0), (os.POSIX_SPAWN_DUP2, child_out, 1)],
            )
        except OSError as error:
            os.close(self._to)
            os.close(self._from)
            self._fail(error)
            return
        finally:
            os.close(child_in)
            os.close(child_out)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._loop.add_reader(self._from, self._readable)

    def _fail(self, error: OSError) -> None:
        log.error("the probe process can't be started: %s", error)
        self._to = self._from = -1
        self.pid, self.exit_code = 0, error.errno
        self._end()

    async def ask(
        self, lanes: int, seconds: float, without: tuple[int, ...] = (), processes: tuple[int, ...] = ()
    ) -> ProbeReply | None:
        """Return the readings on `lanes`, or None when none came within `seconds`. `without`: devices
        that are not read; `processes`: devices whose processes are read too."""
        deadline = self._loop.time() + seconds
        if not await self._answered(deadline):  # a late reply to the request before is out of the way
            return None
        self._seq += 1
        self._answer = None
        left = deadline - self._loop.time()
        budget = max(left * (1 - _MARGIN), 0.001)
        if not self._write(pack(ProbeRequest(self._seq, lanes, budget, without, processes))):
            return None
        self.asked_at = self._looked_at = self._monotonic()
        self._silence.seconds = 0.0
        if not await self._answered(deadline):
            return None
        answer = self._answer
        if answer is not None and self._described:
            answer = msgspec.structs.replace(answer, described=self._described)
            self._described = {}
        return answer

    async def _answered(self, deadline: float) -> bool:
        """Wait until no request is open; return False at the deadline."""
        while self.asked_at is not None and not self.ended:
            if not await self._wake(deadline):
                if not self.ended:
                    self._readable()  # this process may be the late one, and the reply in the pipe
                return self.asked_at is None
        return True

    async def reported(self, seconds: float) -> ProbeReport | None:
        """Wait until the driver is open, or known not to open."""
        deadline = self._loop.time() + seconds
        while self.report is None and not self.ended and await self._wake(deadline):
            pass
        return self.report

    def silent_for(self, longest: float) -> float:
        """Return the seconds since the start or a request without a report or reply, less those in which the process
        had no processor. Called at each tick: of the time since the last call `longest` counts, because a
        caller that is later than that had no processor either."""
        if self.report is not None and self.asked_at is None:
            return 0.0
        before, self._looked_at = self._looked_at, self._monotonic()
        self._silence.add(longest, self._looked_at - before)
        return self._silence.seconds

    def ended_for(self) -> float:
        """Return the seconds since the pipe closed."""
        return time.monotonic() - self._ended_at if self.ended else 0.0

    def exited(self) -> bool:
        """Return whether the process has ended, and collect its exit code."""
        if self.exit_code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.exit_code = 0
            else:
                if pid:
                    self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code is not None

    def close(self) -> None:
        """Close the pipes: the process ends by itself once its calls have returned."""
        if self._to < 0:
            return
        self._loop.remove_reader(self._from)
        os.close(self._to)
        os.close(self._from)
        self._to = self._from = -1
        self._end()

    async def gone(self, seconds: float) -> bool:
        """After `close`: wait for the process to end; return whether it did."""
        deadline = self._loop.time() + seconds
        while not self.exited():
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(0.01)
        return True

    def _write(self, data: bytes) -> bool:
        if self.ended:
            return False
        try:
            return os.write(self._to, data) == len(data)
        except OSError:  # it has ended, or has not read its pipe for a thousand ticks
            return False

    def _readable(self) -> None:
        try:
            data = os.read(self._from, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._from)
            self._end()
            return
        try:
            for body in self._unpacker.feed(data):
                self._receive(self._decoder.decode(body))
        except msgspec.DecodeError:  # not our probe, or a torn message: close it
            self._loop.remove_reader(self._from)
            self._end()

    def _receive(self, message: ToParent) -> None:
        match message:
            case ProbeReply():
                self.asked_at = None
                self._answer = message
                self._described |= message.described
            case ProbeReport():
                self.report = message
                self.asked_at = None
            case ProbeNotice():
                self.notices.append(message)
                return
        self._call_waiter()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._ended_at = time.monotonic()
        self._call_waiter()

    def _call_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wake(self, deadline: float) -> bool:
        """Wait for a message; return False at the deadline."""
        if self._loop.time() >= deadline:
            return False
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._call_waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
        return self._loop.time() < deadline or self.asked_at is None
