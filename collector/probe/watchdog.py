"""Reads all devices with one thread at a time, and abandons a thread that does not return.

A driver call that hangs can be neither cancelled nor killed. So each tick is a *round* of device
turns on a worker thread; when a turn takes too long, its thread is abandoned with its device, and
another thread goes on with the rest of the same round. A device is read again when its thread has
returned, after a pause that doubles with each hang in a row.

A turn takes too long by the time in which its thread could have run (`collector.probe.available_time`).
On a machine without a free processor a turn may not end before the deadline without being a hang: it is
late, the reply is sent without it, and the next tick goes on watching it.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from collector.probe.available_time import AvailableTime, ReadThreads, thread_times
from collector.probe.driver import Driver
from collector.probe.protocol import (
    PROCESSES,
    SLOW,
    ProbeDescription,
    ProbeReading,
    ProbeReply,
    ProbeRequest,
    ProbeStatus,
)
from telemetry.errors import DriverError
from telemetry.runtime.backoff import STEADY, Backoff

log = logging.getLogger(__name__)

ABANDONED_LIMIT = 16
"""Abandoned threads at once; with one more hang the round ends there until one returns."""
SHORTEST_TURN = 0.05
"""Seconds that every device gets, even past the deadline."""
AVAILABLE = 0.5
"""Share of a turn's limit in which its thread must have been able to run before the turn is a hang."""
SLICE = 0.01
"""Seconds between two looks at a turn: short, so that a late look shows that processors are scarce."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 30.0
GOOD_READS = 3
"""Successful readings after which a device that hung counts as healthy."""
THE_DRIVER = -1
"""Number of a pseudo device, for calls that concern the driver as a whole."""


class Round:
    """A worker's share of a tick: the devices still to read, and the readings so far."""

    def __init__(self, devices: list[int], lanes: int, processes: frozenset[int]) -> None:
        self.device: int | None = devices[0]
        """Whose turn it is; None when the round is over."""
        self.waiting = deque(devices[1:])
        self.lanes = lanes
        self.processes = processes
        """Devices whose processes are read too."""
        self.abandoned = False
        self.readings: dict[int, ProbeReading] = {}
        self.drifted = False
        self.error: DriverError | None = None
        self._lock = Lock()

    def step(self) -> int | None:
        """Return the next device, or None when there is none or the thread was abandoned."""
        with self._lock:
            if self.abandoned or not self.waiting:
                self.device = None
            else:
                self.device = self.waiting.popleft()
            return self.device

    def abandon(self, device: int) -> bool:
        """Abandon the thread if it is still at `device`; return whether it was."""
        with self._lock:
            self.abandoned = self.device == device
            return self.abandoned

    def cut(self) -> None:
        """End the round with the turn that is under way."""
        with self._lock:
            self.waiting.clear()


def take(finished: SimpleQueue[Round], seconds: float) -> Round | None:
    """Return the next round that is over, or None when none is within `seconds`."""
    try:
        return finished.get(timeout=seconds)
    except Empty:
        return None


class _Record:
    """Hangs and failures of one device."""

    __slots__ = ("failed", "good", "hangs", "not_before", "stuck")

    def __init__(self) -> None:
        self.failed = False
        self.stuck = False
        self.hangs = 0
        self.good = 0
        self.not_before = 0.0


class Watchdog:
    """Serves requests from an open driver; owns the worker threads."""

    def __init__(
        self,
        driver: Driver,
        devices: int,
        monotonic: Callable[[], float] = time.monotonic,
        read: ReadThreads = thread_times,
        take: Callable[[SimpleQueue[Round], float], Round | None] = take,
    ) -> None:
        self._driver = driver
        self._monotonic = monotonic
        self._read = read
        self._take = take
        self._records = {device: _Record() for device in range(THE_DRIVER, devices)}
        self._devices = devices
        self._described: dict[int, ProbeDescription] = {}
        self._finished: SimpleQueue[Round] = SimpleQueue()
        self._jobs: SimpleQueue[Round | None] | None = None
        self._worker: Thread | None = None
        self._available = AvailableTime(dict)
        """Of the turn that is watched."""
        self._late: Round | None = None
        """Round of an earlier tick whose last turn was late, and may still be."""
        self._abandoned_threads: list[Thread] = []
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, STEADY)
        self.abandoned = 0
        """Threads abandoned since the start."""

    def serve(self, ask: ProbeRequest) -> ProbeReply:
        """Return the readings of all devices within `ask.budget`. Raises `DriverError`."""
        deadline = self._monotonic() + ask.budget
        readings: dict[int, ProbeReading] = {}
        drifted = False
        if (late := self._late) is not None:
            behind = [device for device in self._order(ask.lanes) if device != late.device]
            self._watch(late, deadline, behind)
            drifted = late.drifted  # its readings are those of an earlier tick
        devices = [device for device in self._order(ask.lanes) if device not in ask.without]
        while devices and self._late is None and self._may_start():
            turns = Round(devices, ask.lanes, frozenset(ask.processes))
            self._start(turns)
            self._watch(turns, deadline, turns.waiting)
            readings.update(turns.readings)
            drifted = drifted or turns.drifted
            devices = list(turns.waiting)
        self._remember(readings)
        answers = [
            readings.get(device) or self._absent(device, paused=device in ask.without)
            for device in range(self._devices)
        ]
        described = {}
        while self._described:  # an abandoned thread may add one at any time
            device, description = self._described.popitem()
            described[device] = description
        return ProbeReply(ask.seq, answers, described, self.abandoned, drifted)

    def finish(self) -> None:
        """End the worker, and wait for every thread that is still in a call, however long."""
        if self._jobs is not None:
            self._jobs.put(None)
        for thread in (*self._abandoned_threads, self._worker):
            if thread is not None:
                thread.join()

    def _order(self, lanes: int) -> list[int]:
        """Return the devices to read; those that hung lately come last, where they delay no other."""
        now = self._monotonic()
        ready = [device for device, record in self._records.items() if not record.stuck and record.not_before <= now]
        if not lanes & SLOW and THE_DRIVER in ready:
            ready.remove(THE_DRIVER)
        return sorted(ready, key=lambda device: (self._records[device].hangs, device == THE_DRIVER))

    def _may_start(self) -> bool:
        self._abandoned_threads = [thread for thread in self._abandoned_threads if thread.is_alive()]
        return len(self._abandoned_threads) < ABANDONED_LIMIT

    def _start(self, turns: Round) -> None:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            self._worker = Thread(target=self._work, args=(self._jobs,), name="driver", daemon=True)
            self._worker.start()
            thread = self._worker.native_id
            self._available = AvailableTime(partial(self._read, os.getpid(), thread))
        self._jobs.put(turns)

    def _watch(self, turns: Round, deadline: float, behind: Collection[int]) -> None:
        """Wait until the round is over, its thread is abandoned, or the deadline has passed and its turn is late.
        `behind`: devices that wait for the thread. Raises `DriverError`."""
        now = since = self._monotonic()
        device = turns.device
        if turns is not self._late:
            self._available.restart()
        self._late = None
        limit = self._limit(device, deadline - now, behind)
        while True:
            left = (since + limit if now < since + limit else deadline) - now
            pause = min(max(left, 0.001), SLICE)
            if self._take(self._finished, pause) is not None:
                break
            before, now = now, self._monotonic()
            self._available.add(pause, now - before)
            if now >= deadline:
                turns.cut()
            if turns.device != device:
                device, since = turns.device, now
                self._available.restart()
                limit = self._limit(device, deadline - now, behind)
            elif now >= since + limit:
                hangs = self._available.seconds >= limit * AVAILABLE
                if device is not None and hangs and self._abandon(turns, device):
                    break
                if now >= deadline:
                    self._late = turns
                    break
        if turns.error is not None:
            raise turns.error

    def _limit(self, device: int | None, left: float, behind: Collection[int]) -> float:
        """Return the seconds that a turn may take, of those left before the deadline."""
        others = device is not None and behind and not self._records[device].hangs
        return max(left / 3 if others else left, SHORTEST_TURN)

    def _abandon(self, turns: Round, device: int) -> bool:
        """Abandon the thread with its device, unless it moved on at this very moment."""
        record = self._records[device]
        record.stuck = True  # before the thread can return and reset it
        if not turns.abandon(device):
            record.stuck = False
            return False
        record.hangs += 1
        record.good = 0
        self.abandoned += 1
        if self._worker is not None:
            self._abandoned_threads.append(self._worker)
        self._worker = self._jobs = None
        return True

    def _absent(self, device: int, *, paused: bool) -> ProbeReading:
        record = self._records[device]
        if paused and not record.stuck:
            return ProbeReading(ProbeStatus.PAUSED)
        hung = record.stuck or record.not_before > self._monotonic()
        return ProbeReading(ProbeStatus.HUNG if hung else ProbeStatus.LATE)

    def _remember(self, readings: dict[int, ProbeReading]) -> None:
        for device, reading in readings.items():
            record = self._records[device]
            if record.hangs and reading.status is ProbeStatus.OK:
                record.good += 1
                if record.good >= GOOD_READS:
                    record.hangs = 0

    def _work(self, jobs: SimpleQueue[Round | None]) -> None:
        """Run rounds in the worker thread until it is abandoned or `finish` is called."""
        while (turns := jobs.get()) is not None:
            device = turns.device
            while device is not None:
                if not turns.abandoned:
                    self._turn(turns, device)
                if turns.abandoned:
                    self._returned(device)
                    return
                device = turns.step()
            if turns.abandoned:
                return
            self._finished.put(turns)

    def _turn(self, turns: Round, device: int) -> None:
        try:
            if device == THE_DRIVER:
                turns.drifted = self._driver.drifted()
                return
            description = self._driver.describe(device, turns)
            if description is not None:
                self._described[device] = description
            if not turns.abandoned:
                lanes = turns.lanes | (PROCESSES if device in turns.processes else 0)
                reading = self._driver.read(device, lanes, turns)
                if not turns.abandoned:
                    turns.readings[device] = reading
        except DriverError as error:
            turns.error = error
            turns.cut()
        except Exception:
            # One GPU with an unforeseen answer must not hide the others.
            record = self._records[device]
            if not record.failed:
                log.exception("device=%d can't be read", device)
            record.failed = True
            turns.readings[device] = ProbeReading(ProbeStatus.FAILED)

    def _returned(self, device: int) -> None:
        """Allow reading the device again: its abandoned thread has returned."""
        record = self._records[device]
        record.not_before = self._monotonic() + self._backoff.after(record.hangs - 1)
        record.stuck = False
