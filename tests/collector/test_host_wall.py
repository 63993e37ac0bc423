"""Power at the wall: from hwmon, from a BMC, from neither, and from one that hangs."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.host.wall import UnsupportedError, WallMeter, dcmi, hwmon
from telemetry.gap import Gap, reason_of
from tests.kit.waiting import end_of_patience

DCMI = """
    Instantaneous power reading:                  8423 Watts
    Minimum during sampling period:                 12 Watts
    Maximum during sampling period:               9999 Watts
    Average power reading over sample period:     8401 Watts
    IPMI timestamp:                           Sat Nov 21 09:00:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated
"""

FREE = """
Current Power                        : 430 Watts
Minimum Power over sampling duration : 12 watts
Maximum Power over sampling duration : 994 watts
Average Power over sampling duration : 433 watts
Time Stamp                           : 11/21/2026 - 09:00:00
Statistics reporting time period     : 1000 milliseconds
Power Measurement                    : Active
"""
Make = Callable[..., WallMeter]


@pytest.fixture
def meter(tmp_path: Path) -> Iterator[Make]:
    """Make meters of a machine below `tmp_path`, whose ipmitool is a shell script."""
    made: list[WallMeter] = []

    def make(script: str | None = None, device: bool = True, name: str = "ipmitool", **options: float) -> WallMeter:
        program = None
        if script is not None:
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
            program = str(path)
        if device:
            (tmp_path / "dev").mkdir(exist_ok=True)
            (tmp_path / "dev/ipmi0").touch()
        made.append(WallMeter(tmp_path, program, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.close()


def answer(meter: WallMeter) -> float:
    """Wait for the thread's first answer; a tick itself never waits."""
    end = end_of_patience()
    value = meter.watts()
    while reason_of(value) is Gap.NOT_READ and time.monotonic() < end:
        time.sleep(0.01)
        value = meter.watts()
    return value


def power_meter(root: Path, name: str, file: str, microwatts: str) -> None:
    folder = root / f"sys/class/hwmon/hwmon{len(list(root.glob('sys/class/hwmon/*')))}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / file).write_text(f"{microwatts}\n")


def test_the_first_tick_does_not_wait(meter: Make) -> None:
    assert reason_of(meter("sleep 30").watts()) is Gap.NOT_READ


def test_the_acpi_power_meter_is_the_machine_and_nothing_else_is(tmp_path: Path, meter: Make) -> None:
    power_meter(tmp_path, "amdgpu", "power1_average", "33000000")
    power_meter(tmp_path, "power_meter", "power1_average", "412500000")
    assert hwmon(tmp_path) == 412.5
    assert answer(meter(f"cat <<'END'\n{DCMI}\nEND")) == 412.5


def test_a_bmc_is_asked_where_there_is_no_meter(tmp_path: Path, meter: Make) -> None:
    script = f'[ "$*" = "dcmi power reading" ] || exit 9\ncat <<"END"\n{DCMI}\nEND'
    assert answer(meter(script)) == 8423


def test_free_ipmi_is_asked_in_its_own_words(meter: Make) -> None:
    script = f'[ "$*" = "--get-system-power-statistics" ] || exit 9\ncat <<"END"\n{FREE}\nEND'
    assert answer(meter(script, name="ipmi-dcmi")) == 430


@pytest.mark.parametrize("text", [FREE.replace("Active", "Not Available"), FREE.replace("430", "0")])
def test_free_ipmi_without_a_measurement_is_no_reading(text: str) -> None:
    with pytest.raises(UnsupportedError):
        dcmi(text)


def test_other_power_sensors_of_the_board_are_not_the_machine(tmp_path: Path) -> None:
    """A rail, a drive, a supply's output: each is a part, or the other side of the losses."""
    for name in ("ina3221", "nvme", "pmbus", "amdgpu", "coretemp"):
        power_meter(tmp_path, name, "power1_input", "90000000")
    with pytest.raises(UnsupportedError):
        hwmon(tmp_path)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'Could not open device: Permission denied' >&2; exit 1", Gap.NO_PERMISSION),
        ("echo 'DCMI request failed because: Invalid command (c1)' >&2; exit 1", Gap.NOT_SUPPORTED),
        ("echo 'Power reading state is: deactivated'", Gap.NOT_SUPPORTED),
        ("echo 'Unable to establish session' >&2; exit 1", Gap.ERROR),
        ("exec /nowhere/at/all", Gap.ERROR),
    ],
)
def test_a_bmc_without_a_reading_is_a_gap_with_its_reason(meter: Make, script: str, reason: Gap) -> None:
    assert reason_of(answer(meter(script))) is reason


def test_without_a_bmc_nothing_is_started(tmp_path: Path, meter: Make) -> None:
    ran = tmp_path / "ran"
    assert reason_of(answer(meter(f"touch {ran}", device=False))) is Gap.NOT_SUPPORTED
    assert reason_of(answer(meter(None))) is Gap.NOT_SUPPORTED
    assert not ran.exists()


def test_a_bmc_that_hangs_times_out_and_is_ended(tmp_path: Path, meter: Make) -> None:
    assert reason_of(answer(meter("exec sleep 60", timeout=0.2))) is Gap.TIMED_OUT


def test_closing_does_not_wait_for_a_bmc_that_hangs(tmp_path: Path, meter: Make) -> None:
    started = tmp_path / "started"
    hung = meter(f"touch {started}; exec sleep 60", timeout=50.0)
    hung.watts()
    end = end_of_patience()
    while not started.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert started.exists()
    hung.close()
    end = end_of_patience()
    while hung._thread.alive and time.monotonic() < end:
        time.sleep(0.01)
    assert not hung._thread.alive


def test_an_answer_that_is_too_old_is_a_gap(meter: Make) -> None:
    now = [100.0]
    old = meter(f"cat <<'END'\n{DCMI}\nEND", monotonic=lambda: now[0], period=1000.0, timeout=10.0)
    assert answer(old) == 8423
    now[0] += 3000.0
    assert old.watts() == 8423
    now[0] += 11.0
    assert reason_of(old.watts()) is Gap.TIMED_OUT


def test_answers_follow_the_machine(tmp_path: Path, meter: Make) -> None:
    power_meter(tmp_path, "power_meter", "power1_input", "100000000")
    live = meter(period=0.01)
    assert answer(live) == 100
    (tmp_path / "sys/class/hwmon/hwmon0/power1_input").write_text("250000000\n")
    end = end_of_patience()
    while live.watts() != 250 and time.monotonic() < end:
        time.sleep(0.01)
    assert live.watts() == 250


def test_zero_watts_is_no_reading() -> None:
    """Some BMCs say 0 W where they measure nothing; a machine that answers draws power."""
    with pytest.raises(UnsupportedError):
        dcmi(DCMI.replace("8423", "0"))


def test_a_child_that_begins_while_it_is_closed_is_ended(meter: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` finds no child yet, for the thread is about to start one."""
    late = meter("exec sleep 60", timeout=50.0)
    begin, begun = subprocess.Popen, threading.Event()

    def slowly(*args: Any, **more: Any) -> subprocess.Popen[str]:
        begun.set()
        late._thread.wait(10)
        child: subprocess.Popen[str] = begin(*args, **more)
        return child

    monkeypatch.setattr("collector.host.program_thread.subprocess.Popen", slowly)
    late.watts()
    assert begun.wait(20)
    late.close()
    end = end_of_patience()
    while late._thread.alive and time.monotonic() < end:
        time.sleep(0.01)
    assert not late._thread.alive


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", [KeyError, SystemExit])
def test_a_thread_that_ends_by_a_fault_is_started_again(
    meter: Make, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """A value that is too old would be a gap for ever."""
    wall = meter(None, device=False, period=0.01)
    faults = iter([kind("injected")])

    def fail_once(_: Path) -> float:
        for fault in faults:
            raise fault
        return 430.0

    monkeypatch.setattr("collector.host.wall.hwmon", fail_once)
    end = end_of_patience()
    while wall.watts() != 430.0:
        assert time.monotonic() < end
        time.sleep(0.01)
