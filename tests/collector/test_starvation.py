"""A busy machine is not a driver that hangs: what is late is called late, and a hang is found all the same.

Time is given to the watchdog, and the kernel's account of its threads too; only its threads are real.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue

import pytest

from collector.nvml.source import WORDING
from collector.probe.available_time import AvailableTime, ThreadTime, thread_times
from collector.probe.parent import Probe
from collector.probe.protocol import (
    FAST,
    ProbeDescription,
    ProbeReading,
    ProbeReply,
    ProbeReport,
    ProbeRequest,
    ProbeStatus,
    pack,
)
from collector.probe.watchdog import Round, Watchdog
from collector.probed.source import ProbedSource
from collector.sampling.reading import read
from collector.source import Rows
from telemetry.devices import Gpu
from telemetry.errors import DriverError
from telemetry.gap import Gap
from telemetry.metric import Lane
from tests.collector.test_probe import ScriptedDriver, driver, statuses
from tests.fakes import FakeSource
from tests.kit.waiting import wait_until

__all__ = ["driver"]

BUDGET = 0.136
"""That of a collector that reads five times a second."""

# The time in which threads could have run.


def thread(ran: float = 0.0, waited: float = 0.0, *, runnable: bool = False) -> ThreadTime:
    """An account of a thread."""
    return ThreadTime(ran, waited, runnable)


@pytest.mark.parametrize(
    ("before", "after", "asked", "passed", "available"),
    [
        pytest.param({}, {}, 1.0, 1.0, 1.0, id="no accounts, punctual"),
        pytest.param({}, {}, 1.0, 9.0, 1.0, id="no accounts, woken late"),
        pytest.param({}, {}, 1.0, 0.5, 0.5, id="no accounts, woken early"),
        pytest.param({7: thread()}, {7: thread()}, 1.0, 1.0, 1.0, id="blocked in a call"),
        pytest.param({7: thread()}, {7: thread(0.1, 0.7)}, 1.0, 1.0, 0.3, id="has waited"),
        pytest.param({7: thread()}, {7: thread(0.1, 3.0)}, 1.0, 1.0, 0.0, id="waited before too"),
        pytest.param({7: thread()}, {7: thread(0.1, runnable=True)}, 1.0, 1.0, 0.1, id="waits now"),
        pytest.param({7: thread()}, {7: thread(1.0, runnable=True)}, 1.0, 1.0, 1.0, id="runs"),
        pytest.param({7: thread()}, {7: thread(0, 0.5)}, 1.0, 9.0, 1.0, id="both are late"),
        pytest.param({7: thread()}, {8: thread(0, 0.9)}, 1.0, 1.0, 1.0, id="another thread"),
        pytest.param(
            {7: thread(), 8: thread()}, {7: thread(), 8: thread(0, 0.8)}, 1.0, 1.0, 0.2, id="the worst of two"
        ),
    ],
)
def test_time_is_available_unless_a_thread_had_no_processor_or_the_watcher_is_late(
    before: Mapping[int, ThreadTime], after: Mapping[int, ThreadTime], asked: float, passed: float, available: float
) -> None:
    accounts = iter([before, after])
    time = AvailableTime(lambda: next(accounts))
    time.restart()
    time.add(asked, passed)
    assert time.seconds == pytest.approx(available)


def test_the_kernel_keeps_accounts_of_threads() -> None:
    if not Path("/proc/self/task").is_dir() or not thread_times(os.getpid()):
        pytest.skip("this kernel keeps none")
    me = threading.get_native_id()
    before = thread_times(os.getpid(), me)
    assert before.keys() == {me} <= thread_times(os.getpid()).keys()
    assert before[me].runnable
    end = before[me].ran + 0.02
    wait_until(lambda: thread_times(os.getpid(), me)[me].ran >= end)


@pytest.mark.parametrize("thread", [None, 2**22 + 1], ids=["of no process", "of a thread that has ended"])
def test_without_accounts_there_are_none(thread: int | None) -> None:
    assert thread_times(2**22 + 1 if thread is None else os.getpid(), thread) == {}


# The watchdog.


class Machine:
    """A machine on which time passes only while the watchdog waits for a thread that does not return."""

    def __init__(self, driver: ScriptedDriver) -> None:
        self.driver = driver
        self.now = 100.0
        self.late = 0.0
        """Seconds by which the watchdog is woken later than it asked."""
        self.waiting = 0.0
        """Share of the time in which the worker waits for a processor."""
        self.spins = False
        """Whether the call that does not return uses a processor."""
        self.accounts = True
        self._waited = 0.0
        self._ran = 1.0
        self._others = set(threading.enumerate())

    def watchdog(self, devices: int) -> Watchdog:
        """A watchdog on this machine."""
        return Watchdog(self.driver, devices, lambda: self.now, self.read, self.take)

    def read(self, process: int, thread: int | None) -> Mapping[int, ThreadTime]:
        """Return the account of the worker."""
        assert process == os.getpid()
        assert thread is not None
        if not self.accounts:
            return {}
        return {thread: ThreadTime(self._ran, self._waited, self.spins)}

    def take(self, finished: SimpleQueue[Round], seconds: float) -> Round | None:
        """Return the round that is over; let time pass if its thread is in a call that does not return."""
        wait_until(lambda: not finished.empty() or self._all_blocked())
        if not finished.empty():
            return finished.get()
        passed = seconds + self.late
        self.now += passed
        self._waited += passed * self.waiting
        self._ran += passed * (1 - self.waiting) * self.spins
        return None

    def _all_blocked(self) -> bool:
        workers = [
            thread
            for thread in set(threading.enumerate()) - self._others
            if thread.name == "driver" and thread.is_alive()
        ]
        return len(workers) == len(self.driver.inside & self.driver.hangs.keys())


@pytest.fixture
def machine(driver: ScriptedDriver) -> Machine:
    """A machine with processors to spare."""
    return Machine(driver)


def test_a_hang_is_found_at_once_on_a_machine_with_time(machine: Machine) -> None:
    watchdog = machine.watchdog(4)
    machine.driver.hang(1)
    assert statuses(watchdog.serve(ProbeRequest(1, FAST, BUDGET))) == ["OK", "HUNG", "OK", "OK"]


@pytest.mark.parametrize("devices", [1, 4])
def test_a_worker_without_a_processor_is_late_for_as_long_as_it_lasts(machine: Machine, devices: int) -> None:
    watchdog = machine.watchdog(devices)
    machine.driver.hang(0)  # its thread is waiting for a processor in the middle of a call
    machine.waiting = 1.0
    for tick in range(100):
        begin = machine.now
        answer = watchdog.serve(ProbeRequest(tick, FAST, BUDGET))
        assert statuses(answer) == ["LATE"] * devices
        assert machine.now - begin == pytest.approx(BUDGET, abs=0.011)  # the reply is in time
        machine.now += 0.06
    assert watchdog.abandoned == 0
    machine.driver.release()
    answer = watchdog.serve(ProbeRequest(100, FAST, BUDGET))
    assert statuses(answer) == ["OK"] * devices
    watchdog.finish()


def test_devices_before_the_late_one_are_read_and_those_behind_it_are_late(machine: Machine) -> None:
    watchdog = machine.watchdog(4)
    machine.driver.hang(2)
    machine.waiting = 1.0
    answer = watchdog.serve(ProbeRequest(1, FAST, BUDGET))
    assert statuses(answer) == ["OK", "OK", "LATE", "LATE"]
    assert machine.driver.order == [0, 1, 2]


def test_a_watcher_that_is_woken_late_is_evidence_where_the_kernel_keeps_no_accounts(machine: Machine) -> None:
    watchdog = machine.watchdog(2)
    machine.accounts = False
    machine.driver.hang(0)
    machine.late = 0.3
    assert statuses(watchdog.serve(ProbeRequest(1, FAST, BUDGET))) == ["LATE", "LATE"]
    assert watchdog.abandoned == 0
    machine.driver.release()
    assert statuses(watchdog.serve(ProbeRequest(2, FAST, BUDGET))) == ["OK", "OK"]


@pytest.mark.parametrize(
    ("late", "waiting", "spins", "accounts", "ticks"),
    [
        pytest.param(0.0, 0.0, False, False, 1, id="no accounts"),
        pytest.param(0.03, 0.0, False, True, 2, id="in a call that sleeps"),
        pytest.param(0.3, 0.0, False, False, 4, id="starved, no accounts"),
        pytest.param(0.03, 0.9, True, True, 6, id="starved, in a call that spins"),
        pytest.param(0.0, 0.6, False, True, 2, id="starved and hung"),
    ],
)
def test_a_hang_is_found_within_some_ticks_on_a_machine_without_time(
    machine: Machine, late: float, waiting: float, spins: bool, accounts: bool, ticks: int
) -> None:
    watchdog = machine.watchdog(3)
    machine.driver.hang(1)
    machine.late, machine.waiting, machine.spins = late, waiting, spins
    machine.accounts = accounts
    found = []
    while "HUNG" not in found:
        found = statuses(watchdog.serve(ProbeRequest(1, FAST, BUDGET)))
        ticks -= 1
    assert ticks >= 0
    assert watchdog.abandoned == 1
    assert statuses(watchdog.serve(ProbeRequest(1, FAST, BUDGET))) == ["OK", "HUNG", "OK"]


def test_a_driver_that_is_found_gone_by_a_late_turn_is_reported_at_the_next_tick(machine: Machine) -> None:
    watchdog = machine.watchdog(2)
    machine.driver.hang(0)
    machine.driver.errors[0] = DriverError("gone", 9)
    machine.waiting = 1.0
    assert statuses(watchdog.serve(ProbeRequest(1, FAST, BUDGET))) == ["LATE", "LATE"]
    machine.driver.release()
    with pytest.raises(DriverError, match="gone"):
        watchdog.serve(ProbeRequest(2, FAST, BUDGET))


# The collector's end.


class Unspawned(Probe):
    """A probe without a process, whose pipe is the test's."""

    def _spawn(self, driver: str, environment: dict[str, str]) -> None:
        self.pid = 1
        self._from, self.child_out = os.pipe()
        self.child_in, self._to = os.pipe()
        os.set_blocking(self._from, False)


async def test_a_probe_is_silent_for_the_time_in_which_it_could_have_replied() -> None:
    now, waited = 100.0, 0.0
    probe = Unspawned("nvml", None, lambda: now, lambda *_: {1: thread(1.0, waited)})
    assert probe.silent_for(2.0) == 0.0
    for _ in range(60):  # its interpreter starts, but gets no processor
        now, waited = now + 1, waited + 1
        assert probe.silent_for(2.0) <= 1.0  # the first wait has no account before it
    probe.report = ProbeReport(up=True, devices=1)
    assert probe.silent_for(2.0) == 0.0
    assert await probe.ask(FAST, 0.0) is None
    for _ in range(60):
        now, waited = now + 1, waited + 1
        assert probe.silent_for(2.0) <= 1.0
    now += 60  # the collector itself had no processor
    assert probe.silent_for(2.0) == pytest.approx(2.0)
    for _ in range(8):
        now += 1
        silent = probe.silent_for(2.0)
    assert silent == pytest.approx(10.0)
    probe.close()
    os.close(probe.child_in)
    os.close(probe.child_out)


async def test_a_reply_that_lies_in_the_pipe_is_taken_by_a_collector_that_is_late() -> None:
    probe = Unspawned("nvml")
    probe.report = ProbeReport(up=True, devices=1)
    os.write(probe.child_out, pack(ProbeReply(1, [])))
    assert await probe.ask(FAST, 0.0) == ProbeReply(1, [])  # its deadline has passed
    probe.close()
    os.close(probe.child_in)
    os.close(probe.child_out)


async def test_a_description_in_a_reply_that_came_too_late_comes_with_the_next() -> None:
    probe = Unspawned("nvml")
    probe.report = ProbeReport(up=True, devices=2)
    assert await probe.ask(FAST, 0.0) is None
    first, second = (ProbeDescription(Gpu(uuid=f"GPU-{gpu}", index=gpu, name="scripted")) for gpu in range(2))
    os.write(probe.child_out, pack(ProbeReply(1, [], {0: first})))
    probe._readable()
    os.write(probe.child_out, pack(ProbeReply(2, [], {1: second})))
    assert await probe.ask(FAST, 0.0) == ProbeReply(2, [], {0: first, 1: second})
    probe.close()
    os.close(probe.child_in)
    os.close(probe.child_out)


def source_of(gpus: int) -> ProbedSource:
    """A source whose driver is open and has described its GPUs."""
    source = ProbedSource("nvml", WORDING)
    source._driver_opened(ProbeReport(up=True, devices=gpus))
    described = {gpu: ProbeDescription(Gpu(uuid=f"GPU-{gpu}", index=gpu, name="scripted")) for gpu in range(gpus)}
    source._apply(ProbeReply(0, [ProbeReading(ProbeStatus.OK)] * gpus, described))
    source.drain_events()
    return source


def told(source: ProbedSource, *ticks: str) -> list[str]:
    """Return the kinds of the events of some ticks, each with the first letter of a status for each GPU."""
    words = {"O": ProbeStatus.OK, "L": ProbeStatus.LATE, "H": ProbeStatus.HUNG}
    for tick in ticks:
        source._apply(ProbeReply(0, [ProbeReading(words[letter]) for letter in tick]))
    return [event.kind for event in source.drain_events()]


async def test_gpus_that_are_late_are_no_event_and_no_driver_that_hangs() -> None:
    source = source_of(2)
    assert told(source, *["LL"] * 50) == []
    assert told(source, *["HL"] * 50) == ["gpu_hung"]
    assert told(source, "OL") == ["gpu_answers"]
    assert told(source, "HH", "HL", "HH") == ["gpu_hung", "gpu_hung", "driver_down"]
    assert told(source, "LH", "LL") == []  # that the driver answers is not known either
    assert told(source, "OO") == ["gpu_answers", "gpu_answers", "driver_up"]


async def test_a_gap_of_a_late_gpu_says_so() -> None:
    source = source_of(1)
    assert source._absent_gap(None) is Gap.LATE


async def test_a_source_is_not_cancelled_because_this_process_was_late() -> None:
    class Punctual(FakeSource):
        async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
            asyncio.get_running_loop().call_soon(time.sleep, 1.2)  # the process has no processor
            await asyncio.sleep(deadline)
            return await super().read(lanes, tick, now_ns, deadline)

    rows, problem = await read(Punctual(), frozenset({Lane.FAST}), 1, 0, 0.02, 1.0)
    assert (bool(rows), problem) == (True, "")
