"""The probe: framing, and a watchdog that gives up threads and not devices."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.probe.driver import Turn, load
from collector.probe.protocol import (
    FAST,
    SLOW,
    ProbeDescription,
    ProbeNotice,
    ProbeReading,
    ProbeReply,
    ProbeReport,
    ProbeRequest,
    ProbeStatus,
    ToParent,
    Unpacker,
    pack,
)
from collector.probe.watchdog import ABANDONED_LIMIT, THE_DRIVER, Watchdog
from telemetry.devices import Gpu, Link
from telemetry.errors import ConfigError, DriverError
from tests.kit.waiting import wait_until

PATIENCE = 30.0


class ScriptedDriver:
    """A driver whose devices hang, fail or answer as the test says."""

    def __init__(self) -> None:
        self.hangs: dict[int, threading.Event] = {}
        self.errors: dict[int, Exception] = {}
        self.order: list[int] = []
        self.inside: set[int] = set()
        self.events = True

    def open(self) -> ProbeReport:
        """Open at once."""
        return ProbeReport(up=True)

    def describe(self, device: int, turn: Turn) -> ProbeDescription | None:
        """Say what each device is, once."""
        if not self.events:
            return None
        return ProbeDescription(Gpu(uuid=f"GPU-{device}", index=device, name="scripted"))

    def read(self, device: int, lanes: int, turn: Turn) -> ProbeReading:
        """Answer with the lanes, or hang, or fail."""
        assert device not in self.inside, "two threads in one device"
        self.inside.add(device)
        self.order.append(device)
        try:
            if device in self.hangs:
                self.hangs[device].wait()
            if device in self.errors:
                raise self.errors[device]
        finally:
            self.inside.remove(device)
        return ProbeReading(ProbeStatus.OK, bytes([lanes]))

    def drifted(self) -> bool:
        """Say that there are other devices, on the slow lane."""
        self.order.append(THE_DRIVER)
        return True

    def wait(self, seconds: float) -> list[ProbeNotice]:
        """Say nothing."""
        return []

    def close(self) -> None:
        """Close at once."""

    def hang(self, *devices: int) -> None:
        """Make calls for these devices hang."""
        self.hangs |= {device: threading.Event() for device in devices}

    def release(self) -> None:
        """End all hangs."""
        hangs, self.hangs = self.hangs, {}
        for event in hangs.values():
            event.set()


@pytest.fixture
def driver() -> Iterator[ScriptedDriver]:
    """A driver whose hanging calls return when the test ends."""
    scripted = ScriptedDriver()
    yield scripted
    scripted.release()


def statuses(answer: ProbeReply) -> list[str]:
    """The status of each device, by name."""
    return [reading.status.name for reading in answer.readings]


def test_all_devices_are_read_in_order(driver: ScriptedDriver) -> None:
    watchdog = Watchdog(driver, 3)
    answer = watchdog.serve(ProbeRequest(7, FAST, PATIENCE))
    assert answer.seq == 7
    assert statuses(answer) == ["OK"] * 3
    assert [reading.values for reading in answer.readings] == [bytes([FAST])] * 3
    assert sorted(answer.described) == [0, 1, 2]
    assert driver.order == [0, 1, 2]
    assert not answer.drifted
    assert watchdog.serve(ProbeRequest(8, FAST | SLOW, PATIENCE)).drifted
    watchdog.finish()


def test_a_hang_costs_only_its_device_and_its_thread(driver: ScriptedDriver) -> None:
    driver.hang(1)
    watchdog = Watchdog(driver, 4)
    answer = watchdog.serve(ProbeRequest(1, FAST, 3.0))
    assert statuses(answer) == ["OK", "HUNG", "OK", "OK"]
    assert answer.abandoned == 1
    for seq in range(10):
        answer = watchdog.serve(ProbeRequest(seq, FAST, PATIENCE))
        assert statuses(answer) == ["OK", "HUNG", "OK", "OK"]
    assert driver.order.count(1) == 1
    assert watchdog.abandoned == 1
    driver.release()
    wait_until(lambda: statuses(watchdog.serve(ProbeRequest(0, FAST, PATIENCE))) == ["OK"] * 4)
    assert driver.order[-1] == 1  # trusted last, for a while
    watchdog.serve(ProbeRequest(0, FAST, PATIENCE))
    watchdog.serve(ProbeRequest(0, FAST, PATIENCE))
    watchdog.serve(ProbeRequest(0, FAST, PATIENCE))
    assert driver.order[-4:] == [0, 1, 2, 3]
    watchdog.finish()


def test_a_description_that_came_late_is_not_lost(driver: ScriptedDriver) -> None:
    driver.hang(0)
    watchdog = Watchdog(driver, 1)
    wait_until(lambda: sorted(watchdog.serve(ProbeRequest(1, FAST, 0.1)).described) == [0])
    driver.events = False
    assert watchdog.serve(ProbeRequest(2, FAST, 0.1)).described == {}


def test_a_device_that_hangs_again_and_again_is_left_in_peace(driver: ScriptedDriver) -> None:
    watchdog = Watchdog(driver, 1)
    for _ in range(2):
        driver.hang(0)
        wait_until(lambda: statuses(watchdog.serve(ProbeRequest(1, FAST, 0.1))) == ["HUNG"] and bool(driver.inside))
        driver.release()
        wait_until(lambda: not driver.inside)
    asked = len(driver.order)
    begin = time.monotonic()
    wait_until(lambda: statuses(watchdog.serve(ProbeRequest(1, FAST, PATIENCE))) == ["OK"])
    assert len(driver.order) == asked + 1
    assert time.monotonic() - begin > 1  # the pause after the second hang is 2 s


def test_only_so_many_threads_are_given_up(driver: ScriptedDriver) -> None:
    devices = ABANDONED_LIMIT + 4
    driver.hang(*range(devices))
    watchdog = Watchdog(driver, devices)
    wait_until(lambda: watchdog.serve(ProbeRequest(1, FAST, 0.2)).abandoned == ABANDONED_LIMIT)
    answer = watchdog.serve(ProbeRequest(1, FAST, 0.2))
    assert statuses(answer).count("HUNG") == ABANDONED_LIMIT
    assert statuses(answer).count("LATE") == 4
    driver.release()
    wait_until(lambda: statuses(watchdog.serve(ProbeRequest(1, FAST, PATIENCE))) == ["OK"] * devices)


def test_a_driver_that_is_gone_ends_the_round(driver: ScriptedDriver) -> None:
    driver.errors[1] = DriverError("gone", 9)
    with pytest.raises(DriverError, match="gone"):
        Watchdog(driver, 3).serve(ProbeRequest(1, FAST, PATIENCE))
    assert driver.order == [0, 1]


def test_a_fault_of_ours_costs_one_device_and_is_logged_once(
    driver: ScriptedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.errors[0] = ZeroDivisionError("odd answer")
    watchdog = Watchdog(driver, 2)
    for _ in range(3):
        assert statuses(watchdog.serve(ProbeRequest(1, FAST, PATIENCE))) == ["FAILED", "OK"]
    assert len(caplog.records) == 1


MESSAGES: list[ToParent] = [
    ProbeReport(up=False, code=18, message="mismatch"),
    ProbeNotice("xid", 5, 1, "XID 79", {"xid": 79}),
    ProbeReply(
        3,
        [ProbeReading(ProbeStatus.OK, bytes(16)), ProbeReading(ProbeStatus.HUNG)],
        {1: ProbeDescription(Gpu(uuid="a", index=1, name="b"), (Link(gpu="a", number=0),))},
    ),
]


@given(st.lists(st.sampled_from(MESSAGES), max_size=6), st.lists(st.integers(1, 40), max_size=50))
def test_messages_survive_any_cut_of_the_stream(messages: list[ToParent], cuts: list[int]) -> None:
    stream = b"".join(pack(message) for message in messages)
    unpacker = Unpacker()
    bodies: list[bytes] = []
    for cut in cuts:
        bodies += unpacker.feed(stream[:cut])
        stream = stream[cut:]
    bodies += unpacker.feed(stream)
    decoder = msgspec.msgpack.Decoder(ToParent)
    assert [decoder.decode(body) for body in bodies] == messages


def test_an_unknown_driver_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="nvml"):
        load("nvlm")


ILL = """
import sys
from collector.probe.child import run
from tests.collector.test_probe import ScriptedDriver

class Ill(ScriptedDriver):
    def open(self):
        if sys.argv[1] == "open":
            raise KeyError("a bug")
        return super().open()

    def wait(self, seconds):
        raise KeyError("a bug")

run(Ill())
"""


@pytest.mark.parametrize("where", ["open", "wait"])
def test_a_fault_in_a_thread_of_the_probe_is_reported_and_the_probe_is_of_no_use(where: str) -> None:
    """Without the thread of events no XID would come from NVML any more, unseen."""
    with subprocess.Popen(
        [sys.executable, "-c", ILL, where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        decoder: msgspec.msgpack.Decoder[ToParent] = msgspec.msgpack.Decoder(ToParent)
        unpacker, reports = Unpacker(), []
        while not reports or reports[-1].up:
            data = os.read(child.stdout.fileno(), 1 << 16)
            assert data, "it ended without a report"
            found = [decoder.decode(body) for body in unpacker.feed(data)]
            reports += [each for each in found if isinstance(each, ProbeReport)]
        assert "a bug" in reports[-1].message
        child.stdin.close()
        assert child.wait(60) == 0  # it ends by itself, with every call returned
