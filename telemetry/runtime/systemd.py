"""The notification protocol of systemd: ready, status, reloading, stopping, and a watchdog.

The watchdog is fed by progress alone: only while no vital part (`telemetry.runtime.supervision.ProgressMarks`) has been
without progress for longer than its limit. Without systemd nothing is sent. Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TypeVar

from telemetry.runtime.supervision import ProgressMarks
from telemetry.runtime.tasks import end
from telemetry.text import duration

log = logging.getLogger(__name__)
Result = TypeVar("Result")

STATUS_SECONDS = 5.0
"""Longest pause between two looks at the progress; shorter with a short watchdog."""
FEEDS = 4
"""Looks at the progress in the time of the watchdog."""
SEND_SECONDS = 1.0


class ServiceManager:
    """systemd, if it started this process as a service of `Type=notify`."""

    def __init__(self, address: str = "", watchdog: float = 0.0) -> None:
        """`address`: of its socket; "" sends nothing. `watchdog`: seconds without a feed after which
        it ends this process; 0 for none."""
        self._address = address
        self.watchdog = watchdog

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """Return the manager that the environment names, and remove it from there: child processes
        must not notify in our name."""
        address = environment.pop("NOTIFY_SOCKET", "")
        limit = environment.pop("WATCHDOG_USEC", "")
        owner = environment.pop("WATCHDOG_PID", "")
        ours = limit.isdecimal() and owner in {"", str(os.getpid())}
        return cls(address, int(limit) / 1e6 if address and ours else 0.0)

    def send(self, **values: str | int) -> None:
        """Send assignments, as `READY=1`. A manager that does not receive them is logged, no error."""
        self._send(values, SEND_SECONDS)

    def feed(self, **values: str | int) -> None:
        """Send assignments that are soon sent again: without a wait for a manager that is behind, which would hold up
        the event loop, and with it the readings."""
        self._send(values, 0.0)

    def _send(self, values: Mapping[str, str | int], seconds: float) -> None:
        if not self._address:
            return
        # A leading @ stands for the zero byte of an abstract socket.
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        text = "\n".join(f"{name}={value}" for name, value in values.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(seconds)
                sender.sendto(text.encode(), address)
        except OSError as error:
            log.warning("systemd was not notified of %s: %s", text.replace("\n", ", "), error)

    def reload(self, apply: Callable[[], object]) -> None:
        """Apply changed settings, and notify before and after."""
        self.send(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
        try:
            apply()
        finally:
            self.send(READY=1)

    async def accompany(
        self,
        work: Awaitable[Result],
        stop: asyncio.Event,
        ready: asyncio.Event,
        marks: ProgressMarks,
        status: Callable[[], str],
    ) -> Result:
        """Do the work, and notify of it: ready, its progress until `stop` or its end, stopping."""
        notifying = asyncio.create_task(self._notify(stop, ready, marks, status), name="service manager")
        try:
            return await work
        finally:
            await end({notifying}, SEND_SECONDS)
            self.send(STOPPING=1)

    async def _notify(
        self, stop: asyncio.Event, ready: asyncio.Event, marks: ProgressMarks, status: Callable[[], str]
    ) -> None:
        """Notify until `stop`. A fault in here starves the watchdog: systemd then starts us again."""
        if not self._address:
            return
        await ready.wait()
        self.send(READY=1, STATUS=status())
        pause = min(STATUS_SECONDS, self.watchdog / FEEDS or STATUS_SECONDS)
        before: set[str] = set()
        while not stop.is_set():
            blocked = marks.vital_blocked()
            if blocked:
                text = ", ".join(f"{part} for {duration(age)}" for part, age in blocked.items())
                self.feed(STATUS=f"No progress of {text}")
                if blocked.keys() - before:
                    log.error("no progress of %s: the watchdog is not fed", text)
            else:
                self.feed(WATCHDOG=1, STATUS=status())
            before = set(blocked)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()
        self.send(STOPPING=1)
