"""What becomes of the NVML source when GPUs and drivers misbehave: real processes, real threads."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.nvml.events import HANGS_AFTER
from collector.nvml.source import NvmlSource
from telemetry.gap import Gap
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_FAST
from tests.collector.nvml_ticks import DEADLINE, FAST, Ticks
from tests.fake_nvml import FakeDriver
from tests.faults.record import Told
from tests.kit.waiting import end_of_patience, within


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDriver]:
    """Eight H100 with two links each."""
    with FakeDriver(tmp_path, gpus=8, links=2) as driver:
        yield driver


async def test_a_hung_gpu_costs_the_others_not_one_tick(fake: FakeDriver, record_property: Told) -> None:
    async with Ticks(fake) as ticks:
        # The thread that waits for events asks each GPU once, and would hang with it.
        await ticks.until(lambda: _all_registered(fake))
        fake.set(3, state="hang")
        for _ in range(60):
            await ticks.tick(FAST)
            assert [gpu for gpu in range(8) if ticks.gap("gpu_power_watts", gpu)] == [3]
        assert ticks.gaps(3) == {Gap.TIMED_OUT}
        assert ticks.gaps(6, LINK_FAST) == {Gap.TIMED_OUT}  # its first link
        assert fake.hanging == 1
        assert [(event.kind, event.gpu) for event in ticks.events] == [("gpu_hung", fake.uuid(3))]
        assert ticks.source.abandoned == 1
        assert ticks.state == "up"
        assert ticks.source.inventory.gpus[3].present
        fake.set(3, state="ok")
        await ticks.until(lambda: bool(ticks.of("gpu_answers")))
        assert ticks.gap("gpu_power_watts", 3) is None
        assert [event.kind for event in ticks.events] == ["gpu_hung", "gpu_answers"]
        record_property("expected", "the other GPUs are read at every tick; one event; it comes back")
        record_property(
            "observed",
            "60 ticks with 7 of 8 GPUs read and one gap `timed_out`; 1 event, 1 process left in the driver; read again when it answered",
        )


async def test_the_tick_of_the_hang_itself_is_whole_for_the_others(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: _all_registered(fake))
        fake.set(0, state="hang")
        fake.set(1, state="hang")
        begin = time.monotonic()
        await ticks.tick()
        assert time.monotonic() - begin < DEADLINE + 1
        assert [gpu for gpu in range(8) if ticks.gap("gpu_power_watts", gpu)] == [0, 1]
        assert fake.hanging == 2


async def test_a_driver_in_which_every_gpu_hangs_counts_as_hung(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        for gpu in range(8):
            fake.set(gpu, state="hang")
        await ticks.until(lambda: ticks.state == "hung", FAST)
        assert all(ticks.gaps(gpu) == {Gap.TIMED_OUT} for gpu in range(8))
        assert len(ticks.of("driver_down")) == 1
        for gpu in range(8):
            fake.set(gpu, state="ok")
        await ticks.until(lambda: ticks.state == "up", FAST)
        assert len(ticks.of("driver_up")) == 1


async def test_slow_gpus_are_read_last_and_read_well(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        fake.set(2, latency=25_000)  # some 15 calls: 0.4 s
        await ticks.until(lambda: ticks.value("gpu_driver_latency_seconds", 2) > 0.1, FAST)
        assert not ticks.of("gpu_lost")
        assert ticks.gap("gpu_power_watts", 7) is None


async def test_a_lost_gpu_is_one_event_and_all_gaps_until_it_is_back(fake: FakeDriver, record_property: Told) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        fake.set(5, state="lost")
        await ticks.until(lambda: ticks.gaps(5) == {Gap.DEVICE_LOST})
        for _ in range(5):
            await ticks.tick()
        assert ticks.gaps(5, GPU_SLOW) == {Gap.DEVICE_LOST}
        assert [gpu for gpu in range(8) if ticks.gap("gpu_power_watts", gpu)] == [5]
        assert [(event.kind, event.gpu) for event in ticks.events] == [("gpu_lost", fake.uuid(5))]
        assert ticks.events[0].pci == fake.pci(5)
        inventory = ticks.source.inventory
        assert [gpu.present for gpu in inventory.gpus] == [gpu != 5 for gpu in range(8)]
        assert [gpu.uuid for gpu in inventory.gpus] == [fake.uuid(gpu) for gpu in range(8)]
        # NVML finds it again only when it is initialised anew: a scout does that.
        fake.set(5, state="ok")
        await ticks.until(lambda: bool(ticks.of("gpu_back")))
        assert ticks.gap("gpu_power_watts", 5) is None
        assert ticks.source.inventory.gpus[5].present
        assert ticks.state == "up"
        assert {event.kind for event in ticks.events} == {"gpu_lost", "gpu_back"}
        record_property("expected", "one event, gaps and never a number until it is back")
        record_property(
            "observed",
            f"events {[event.kind for event in ticks.events]}; gaps `device_lost` of one GPU of 8 for 5 ticks, then numbers",
        )


async def test_a_gpu_that_needs_a_reset_is_reported(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        fake.set(1, state="reset_required")
        await ticks.until(lambda: bool(ticks.of("gpu_lost")))
        assert "reset" in ticks.events[0].message
        assert ticks.gaps(1) == {Gap.DEVICE_LOST}
        fake.set(1, state="ok")
        await ticks.until(lambda: bool(ticks.of("gpu_back")))


async def test_a_gpu_that_was_lost_before_the_start_hides_no_other(fake: FakeDriver) -> None:
    fake.set(0, state="lost")
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert len(ticks.source.inventory.gpus) == 7
        assert not any(ticks.gap("gpu_power_watts", row) for row in range(7))
        assert [event.data for event in ticks.of("gpu_lost")] == [{"index": 0}]


async def test_a_gpu_that_hangs_from_the_start_hides_no_other(fake: FakeDriver) -> None:
    fake.set(2, state="hang")
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert len(ticks.source.inventory.gpus) == 7
        assert [event.data for event in ticks.of("gpu_hung")] == [{"index": 2}]
        fake.set(2, state="ok")
        await ticks.until(lambda: len(ticks.rows[GPU_FAST]) == 8)
        assert not any(ticks.gap("gpu_power_watts", row) for row in range(8))


async def test_an_expected_gpu_keeps_its_row_though_the_driver_lists_it_no_more(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        known = ticks.source.inventory
    fake.driver(gpus=7)
    source = NvmlSource(environment=fake.environment, open_wait=20, expected=known.gpus, expected_links=known.links)
    async with Ticks(fake, source) as ticks:
        await ticks.tick()
        assert ticks.gaps(7) == {Gap.DEVICE_LOST}
        assert len(ticks.rows[LINK_FAST]) == 16
        assert [event.gpu for event in ticks.of("gpu_lost")] == [fake.uuid(7)]


async def test_more_gpus_are_noticed_without_a_restart(fake: FakeDriver, record_property: Told) -> None:
    fake.driver(gpus=6)
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert len(ticks.rows[GPU_FAST]) == 6
        fake.driver(gpus=8)
        await ticks.until(lambda: len(ticks.rows[GPU_FAST]) == 8)
        assert ticks.state == "up"
        record_property("expected", "new GPUs are read without a restart")
        record_property("observed", f"6 GPUs, then {len(ticks.rows[GPU_FAST])}, driver state {ticks.state}")


@pytest.mark.parametrize(
    ("code", "state", "gap", "cure"),
    [
        (9, "missing", Gap.ERROR, "modprobe"),
        (18, "mismatched", Gap.ERROR, "reboot"),
        (4, "no_permission", Gap.NO_PERMISSION, "/dev/nvidia"),
        (999, "unknown", Gap.ERROR, "999"),
    ],
)
async def test_a_driver_that_goes_away_comes_back(fake: FakeDriver, code: int, state: str, gap: Gap, cure: str) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        fake.driver(init=code, everything=9)
        await ticks.until(lambda: ticks.state == state)
        assert ticks.gaps(0) == {gap}
        assert len(ticks.rows[GPU_FAST]) == 8
        assert cure in ticks.source.inventory.driver_message
        assert next(event.data["state"] for event in ticks.of("driver_down")) in {state, "missing"}
        fake.driver(init=0, everything=0, version="590.10")
        await ticks.until(lambda: ticks.state == "up" and not ticks.gap("gpu_power_watts"))
        assert [event.kind for event in ticks.events] == ["driver_down", "driver_up", "driver_reloaded"]
        assert ticks.source.inventory.driver_version == "590.10"
        assert ticks.source.inventory.driver_message == ""


async def test_counters_that_begin_anew_are_a_reload(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        fake.field(83, 5000, gpu=2)
        await ticks.until(lambda: bool(ticks.of("driver_reloaded")))
        assert ticks.events[0].data == {"gpus": [fake.uuid(2)]}


async def test_a_driver_that_is_not_there_at_the_start_is_a_state(tmp_path: Path) -> None:
    empty = tmp_path / "no-library"
    empty.mkdir()
    source = NvmlSource(environment={"LD_LIBRARY_PATH": str(empty)}, open_wait=20)
    with FakeDriver(tmp_path, gpus=1) as fake:
        async with Ticks(fake, source) as ticks:
            assert ticks.state == "missing"
            assert "install" in ticks.source.inventory.driver_message
            assert (await ticks.tick())[GPU_FAST] == []
            assert [event.kind for event in ticks.events] == ["driver_down"]


async def test_a_driver_that_hangs_while_it_opens_is_a_state(fake: FakeDriver) -> None:
    fake.driver(init="hang")
    source = NvmlSource(environment=fake.environment, open_wait=0.1, open_limit=0.3)
    async with Ticks(fake, source) as ticks:
        await ticks.until(lambda: ticks.state == "hung")
        assert len(ticks.of("driver_down")) == 1
        fake.driver(init=0)
        await ticks.until(lambda: ticks.state == "up" and len(ticks.rows[GPU_FAST]) == 8)
        assert len(ticks.of("driver_up")) == 1


async def test_only_so_many_processes_wait_in_a_driver_that_hangs(fake: FakeDriver, record_property: Told) -> None:
    fake.driver(init="hang")
    source = NvmlSource(environment=fake.environment, open_wait=0.1, open_limit=0.05, retry=(0.01, 0.02))
    async with Ticks(fake, source) as ticks:
        await ticks.until(lambda: fake.hanging == 3)
        for _ in range(20):
            await ticks.tick()
            await asyncio.sleep(0.01)
        assert fake.hanging == 3
        assert fake.calls()["nvmlInitWithFlags"] == 3
        record_property("expected", "at most three processes wait in it")
        record_property(
            "observed",
            f"{fake.hanging} processes wait after 20 ticks, {fake.calls()['nvmlInitWithFlags']} calls to open it",
        )


async def test_a_probe_that_is_stopped_is_replaced_and_not_killed(fake: FakeDriver) -> None:
    source = NvmlSource(environment=fake.environment, open_wait=20, retry=(0.01, 0.1), silence_limit=0.3)
    async with Ticks(fake, source) as ticks:
        await ticks.tick()
        pid = _probe_pid(source)
        os.kill(pid, signal.SIGSTOP)
        try:
            await ticks.tick(deadline=0.2)
            assert ticks.gaps(0) == {Gap.LATE}  # no call to the driver is known to hang
            await ticks.until(lambda: bool(ticks.of("driver_up")))
            assert ticks.gap("gpu_power_watts") is None
            assert [event.data["state"] for event in ticks.of("driver_down")] == ["hung"]
            os.kill(pid, 0)  # it is still there
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_a_probe_that_crashes_is_started_again(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        os.kill(_probe_pid(ticks.source), signal.SIGSEGV)
        await ticks.until(lambda: bool(ticks.of("driver_up")))
        assert "signal" in ticks.of("driver_down")[0].message
        assert ticks.gap("gpu_power_watts") is None


async def test_closing_takes_no_longer_than_a_moment_in_the_middle_of_a_hang(fake: FakeDriver) -> None:
    ticks = Ticks(fake)
    await ticks.source.open()
    await ticks.tick()
    for gpu in range(4):
        fake.set(gpu, state="hang")
    await ticks.tick(deadline=1.0)
    pid = _probe_pid(ticks.source)
    begin = time.monotonic()
    await ticks.source.close()
    assert time.monotonic() - begin < 2
    os.kill(pid, 0)  # left alone in its call
    for gpu in range(4):
        fake.set(gpu, state="ok")
    await _ended(pid)


async def test_who_reads_the_collectors_output_does_not_wait_for_a_call_that_hangs(fake: FakeDriver) -> None:
    fake.driver(init="hang")
    command = [sys.executable, "-m", "collector.probe", "nvml"]
    environment = {**os.environ, **fake.environment}
    pipe = asyncio.subprocess.PIPE
    probe = await asyncio.create_subprocess_exec(*command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
    async with within():
        while not fake.hanging:  # noqa: ASYNC110 - it hangs in another process
            await asyncio.sleep(0.02)
        output = await _outputs(probe)
        assert output == (b"", b"")
        assert probe.returncode is None  # still in its call
        fake.driver(init=0)
        assert await probe.wait() == 0


async def test_the_driver_is_let_go_and_taken_again(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        pid = _probe_pid(ticks.source)
        await ticks.source.release()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert fake.calls()["nvmlShutdown"] == 1
        assert ticks.state == "released"
        for _ in range(3):
            await ticks.tick()
        assert ticks.gaps(0) == {Gap.NOT_READ}
        assert len(ticks.rows[GPU_FAST]) == 8
        assert fake.calls()["nvmlInitWithFlags"] == 1
        await ticks.source.resume()
        await ticks.tick()
        assert ticks.state == "up"
        assert ticks.gap("gpu_power_watts") is None
        assert [event.kind for event in ticks.events] == ["driver_down", "driver_up"]


async def test_releasing_a_driver_that_hangs_reports_that_a_call_keeps_it_open(fake: FakeDriver) -> None:
    source = NvmlSource(environment=fake.environment, open_wait=20, command_wait=0.5)
    async with Ticks(fake, source) as ticks:
        await ticks.tick()
        fake.set(0, state="hang")
        await ticks.tick(deadline=0.5)
        await ticks.source.release()
        assert "holds the driver" in ticks.source.inventory.driver_message
        fake.set(0, state="ok")
        await ticks.until(lambda: "holds the driver" not in ticks.source.inventory.driver_message)
        assert ticks.state == "released"


async def test_xids_arrive_with_the_gpu_that_had_them(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: _all_registered(fake))
        fake.xid(gpu=1, xid=79)
        fake.xid(gpu=6, xid=31)
        await ticks.until(lambda: len(ticks.of("xid")) == 2)
        assert [(event.gpu, event.pci, event.data) for event in ticks.of("xid")] == [
            (fake.uuid(1), fake.pci(1), {"xid": 79, "source": "nvml"}),
            (fake.uuid(6), fake.pci(6), {"xid": 31, "source": "nvml"}),
        ]


async def test_the_event_queue_is_made_anew_when_a_lost_gpu_spoils_it(fake: FakeDriver) -> None:
    fake.call("nvmlDeviceRegisterEvents", error=3, gpu=4)
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: _all_registered(fake))
        fake.driver(wait=15)
        await ticks.until(lambda: fake.calls().get("nvmlEventSetFree", 0) >= 2)
        fake.driver(wait=0)
        await ticks.until(lambda: _heard(fake, ticks))
        assert ticks.gap("gpu_power_watts") is None


async def test_the_event_queue_is_made_anew_without_a_gpu_that_hangs(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: _all_registered(fake))
        fake.set(7, state="hang")
        await ticks.until(lambda: fake.hanging == 1)
        begin = time.monotonic()
        await ticks.until(lambda: time.monotonic() - begin > HANGS_AFTER)
        fake.driver(wait=15)
        await ticks.until(lambda: fake.calls().get("nvmlEventSetFree", 0) >= 1)
        fake.driver(wait=0)
        await ticks.until(lambda: _heard(fake, ticks))
        assert fake.hanging == 1


async def test_a_clock_limit_by_hardware_is_a_transition(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        for bits in (0x8 | 0x40, 0x8 | 0x40, 0x4):
            fake.call("nvmlDeviceGetCurrentClocksEventReasons", bits, gpu=2)
            await ticks.until(lambda bits=bits: ticks.value(_THERMAL, 2) == float(bits != 0x4))  # type: ignore[misc]
        assert [(event.kind, event.gpu, event.data["reason"]) for event in ticks.events] == [
            ("clocks_down", fake.uuid(2), "hw_thermal_slowdown"),
            ("clocks_free", fake.uuid(2), "hw_thermal_slowdown"),
        ]


async def test_what_the_driver_asks_for_is_an_event(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        fake.field(230, 4, gpu=7, kind="u")
        await ticks.until(lambda: bool(ticks.of("recovery_action")))
        assert ticks.events[0].data == {"from": 0, "to": 4}
        assert "drain and reset" in ticks.events[0].message


async def test_switching_mig_is_an_event_and_probes_capabilities_again(fake: FakeDriver, record_property: Told) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        fake.call("nvmlDeviceGetUtilizationRates", error=3, gpu=0)
        fake.call("nvmlDeviceGetMigMode", 1, 1, gpu=0)
        await ticks.until(lambda: bool(ticks.of("mig_changed")))
        assert ticks.source.inventory.gpus[0].mig
        await ticks.until(lambda: ticks.gap("gpu_utilization_ratio") is Gap.NOT_SUPPORTED)
        fake.call("nvmlDeviceGetUtilizationRates", 50, 10, gpu=0)
        fake.call("nvmlDeviceGetMigMode", 0, 0, gpu=0)
        await ticks.until(lambda: ticks.gap("gpu_utilization_ratio") is None)
        assert [event.data["mig"] for event in ticks.of("mig_changed")] == [1, 0]
        record_property("expected", "an event each way; what MIG hides is a gap meanwhile")
        record_property(
            "observed", f"{len(ticks.of('mig_changed'))} events; utilisation was `not_supported` while it was on"
        )


async def _outputs(probe: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Close its input, and read what it says to the end."""
    assert probe.stdin is not None
    assert probe.stdout is not None
    assert probe.stderr is not None
    probe.stdin.close()
    return await probe.stdout.read(), await probe.stderr.read()


_THERMAL = "gpu_clocks_event_hw_thermal_slowdown"


def _all_registered(fake: FakeDriver) -> bool:
    """Whether each GPU has been asked for its events; only what comes after that is delivered."""
    return fake.calls().get("nvmlDeviceRegisterEvents", 0) >= 8


def _heard(fake: FakeDriver, ticks: Ticks) -> bool:
    """Send an XID; say whether one has arrived."""
    fake.xid(gpu=2, xid=45)
    return bool(ticks.of("xid"))


def _probe_pid(source: NvmlSource) -> int:
    probe = source._supervisor._probe
    assert probe is not None
    return probe.pid


async def _ended(pid: int) -> None:
    end = end_of_patience()
    while time.monotonic() < end:
        done, _ = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not block
        if done:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"process {pid} did not end")


# -- A GPU that is left alone --------------------------------------------------------------------


async def test_a_gpu_whose_firmware_has_stopped_is_left_alone_until_it_is_reset(fake: FakeDriver) -> None:
    """Not one call is made for it; the others are read at every tick."""
    source = NvmlSource(environment=fake.environment, open_wait=20.0, trial=3600.0)
    async with Ticks(fake, source) as ticks:
        await ticks.until(lambda: _all_registered(fake))
        fake.set(3, state="hang")  # a call for it would be seen
        source.pause(fake.uuid(3), "XID 119")
        for _ in range(20):
            await ticks.tick()
            assert ticks.gaps(3) == ticks.gaps(3, GPU_SLOW) == {Gap.PAUSED}
            assert [gpu for gpu in range(8) if ticks.gap("gpu_power_watts", gpu)] == [3]
        assert fake.hanging == 0
        assert [event.kind for event in ticks.events] == ["gpu_paused"]
        assert "XID 119" in ticks.of("gpu_paused")[0].message
        assert ticks.state == "up"
        assert ticks.source.inventory.gpus[3].present
        fake.set(3, state="ok")
        await source.resume()  # as `kilowatch resume` does
        await ticks.tick()
        assert ticks.gap("gpu_power_watts", 3) is None
        assert [event.kind for event in ticks.events] == ["gpu_paused", "gpu_resumed"]


async def test_a_paused_gpu_is_tried_now_and_then_and_goes_on_once_its_counters_restarted(fake: FakeDriver) -> None:
    source = NvmlSource(environment=fake.environment, open_wait=20.0, trial=0.2)
    async with Ticks(fake, source) as ticks:
        await ticks.until(lambda: ticks.gap("gpu_energy_joules_total", 2) is None)
        source.pause(fake.uuid(2), "XID 120")
        await ticks.tick()
        assert ticks.gaps(2) == {Gap.PAUSED}
        await ticks.until(lambda: ticks.gap("gpu_energy_joules_total", 2) is None)  # the trial
        await ticks.tick()
        assert ticks.gaps(2) == {Gap.PAUSED}
        fake.field(83, 5000, gpu=2)
        await ticks.until(lambda: bool(ticks.of("gpu_resumed")))
        for _ in range(3):
            await ticks.tick()
            assert ticks.gap("gpu_power_watts", 2) is None
        assert "reset" in ticks.of("gpu_resumed")[0].message
