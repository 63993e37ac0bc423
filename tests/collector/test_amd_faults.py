"""What becomes of the AMD source when GPUs, the driver or its library misbehave: real processes, real threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from collector.amd import AmdSource
from collector.amd.gpu import REFUSALS
from collector.combined.source import CombinedSource
from collector.nvml.source import NvmlSource
from telemetry.gap import Gap
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_FAST, SCHEMA
from tests.collector.nvml_ticks import BOTH, FAST, Ticks
from tests.fake_amd import FakeAmd
from tests.fake_nvml import FakeDriver
from tests.faults.record import Told
from tests.kit.waiting import FACTOR

POWER = SCHEMA.blocks[GPU_FAST].names.index("gpu_power_watts")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAmd]:
    """Four MI300X, each linked to the others."""
    with FakeAmd(tmp_path, gpus=4) as driver:
        yield driver


def made(fake: FakeAmd) -> AmdSource:
    """Return a source of the fake node that loses no time."""
    return AmdSource(fake.root, environment=fake.environment, open_wait=20.0, retry=(0.05, 0.2), scout=(0.05, 0.2))


@asynccontextmanager
async def ticking(fake: FakeAmd) -> AsyncIterator[Ticks]:
    """Read a fake node by hand."""
    async with Ticks(fake, made(fake)) as ticks:
        await ticks.tick()
        yield ticks


async def test_a_gpu_whose_files_block_costs_the_others_not_one_tick(fake: FakeAmd, record_property: Told) -> None:
    async with ticking(fake) as ticks:
        fake.set(2, state="hang")
        for _ in range(40):
            await ticks.tick(FAST)
            assert [gpu for gpu in range(4) if ticks.gap("gpu_power_watts", gpu)] == [2]
        assert ticks.gaps(2) == {Gap.TIMED_OUT}
        assert ticks.gaps(6, LINK_FAST) == {Gap.TIMED_OUT}  # its first link
        assert fake.hanging == 1
        assert [(event.kind, event.gpu) for event in ticks.events] == [("gpu_hung", fake.uuid(2))]
        fake.set(2, state="ok")
        await ticks.until(lambda: bool(ticks.of("gpu_answers")))
        assert ticks.gap("gpu_power_watts", 2) is None
        record_property("expected", "the other GPUs are read at every tick; one event; it comes back")
        record_property(
            "observed",
            "40 ticks with 3 of 4 GPUs of AMD read and one gap `timed_out`; 1 event; read again when it answered",
        )


async def test_a_library_that_hangs_delays_no_file(fake: FakeAmd) -> None:
    """It locks GPUs across processes: another program may hold the lock for ever."""
    fake.library("library_hang", 1)
    async with ticking(fake) as ticks:
        await ticks.until(lambda: fake.hanging > 0)
        begin = time.monotonic()
        for _ in range(5):
            await ticks.tick()
            assert not any(ticks.gap("gpu_power_watts", gpu) for gpu in range(4))
            assert ticks.gap("gpu_retired_pages_limit") is Gap.NOT_READ
        assert time.monotonic() - begin < 10  # five ticks, none of which waited for its deadline
        assert ticks.events == []
        assert ticks.state == "up"
        fake.library("library_hang", 0)
        await ticks.until(lambda: ticks.gap("gpu_retired_pages_limit") is None)


async def test_a_lost_gpu_is_one_event_and_all_gaps_until_it_is_back(fake: FakeAmd, record_property: Told) -> None:
    async with ticking(fake) as ticks:
        fake.set(1, state="lost")
        await ticks.until(lambda: ticks.gaps(1) == {Gap.DEVICE_LOST})
        for _ in range(3):
            await ticks.tick()
        assert ticks.gaps(1, GPU_SLOW) == {Gap.DEVICE_LOST}
        assert [gpu for gpu in range(4) if ticks.gap("gpu_power_watts", gpu)] == [1]
        assert [(event.kind, event.gpu) for event in ticks.events] == [("gpu_lost", fake.uuid(1))]
        assert [gpu.present for gpu in ticks.source.inventory.gpus] == [True, False, True, True]
        fake.set(1, state="ok")
        await ticks.until(lambda: bool(ticks.of("gpu_back")))
        assert ticks.gap("gpu_power_watts", 1) is None
        assert {event.kind for event in ticks.events} == {"gpu_lost", "gpu_back"}
        record_property("expected", "one event, gaps and never a number until it is back")
        record_property(
            "observed",
            f"events {[event.kind for event in ticks.events]}; gaps `device_lost` of one MI300X of 4, then numbers",
        )


async def test_a_reset_is_a_gap_and_one_that_does_not_end_is_a_lost_gpu(fake: FakeAmd, record_property: Told) -> None:
    """The driver refuses every file of a GPU in reset, and goes on to refuse them where the reset failed."""
    async with ticking(fake) as ticks:
        fake.set(3, state="reset")
        await ticks.tick(FAST)
        assert ticks.gap("gpu_power_watts", 3) is Gap.ERROR
        assert ticks.gap("gpu_temperature_celsius", 3) is Gap.ERROR
        fake.set(3, state="ok")
        fake.table(3, energy_accumulator=65536)  # its counters began again
        await ticks.tick(FAST)
        assert ticks.gap("gpu_power_watts", 3) is None
        assert [event.kind for event in ticks.events] == ["driver_reloaded"]
        fake.set(3, state="reset")
        for _ in range(REFUSALS):
            await ticks.tick(FAST)
        (lost,) = ticks.of("gpu_lost")
        assert "amd-smi reset" in lost.message
        assert ticks.gaps(3) == {Gap.DEVICE_LOST}
        assert not any(ticks.gap("gpu_power_watts", gpu) for gpu in range(3))
        fake.set(3, state="ok")
        await ticks.until(lambda: bool(ticks.of("gpu_back")))
        record_property("expected", "gaps while it is reset, no event; lost where the reset does not end")
        record_property(
            "observed",
            f"a gap `error` and a reset reported once; lost after {REFUSALS} refused readings; back afterwards",
        )


async def test_errors_that_ras_reports_are_counted_while_the_gpu_works(fake: FakeAmd) -> None:
    async with ticking(fake) as ticks:
        assert ticks.value("gpu_ecc_volatile_uncorrected_total", 2) == 0
        fake.errors(2, "umc", ue=1, de=2)
        fake.errors(2, "xgmi_wafl", ue=3)
        fake.file(2, "ras/gpu_vram_bad_pages", "0x1 : 0x1000 : P\n0x2 : 0x1000 : F\n")
        await ticks.tick()
        assert ticks.value("gpu_ecc_volatile_uncorrected_total", 2) == 4
        assert ticks.value("gpu_ecc_volatile_uncorrected_xgmi_wafl_total", 2) == 3
        assert ticks.value("gpu_ecc_volatile_deferred_total", 2) == 2
        assert ticks.value("gpu_retired_pages_pending", 2) == 1
        assert ticks.value("gpu_retired_pages_failed", 2) == 1
        assert ticks.value("gpu_ecc_volatile_uncorrected_total", 1) == 0


async def test_a_driver_that_is_gone_later_is_a_state_and_comes_back(fake: FakeAmd, record_property: Told) -> None:
    async with ticking(fake) as ticks:
        fake.unload()
        await ticks.until(lambda: ticks.state == "missing")
        assert "modprobe amdgpu" in ticks.source.inventory.driver_message
        assert all(ticks.gaps(gpu) == {Gap.ERROR} for gpu in range(4))
        assert len(ticks.of("driver_down")) == 1
        fake.load()
        await ticks.until(lambda: ticks.state == "up" and ticks.gap("gpu_power_watts") is None)
        assert len(ticks.of("driver_up")) == 1
        assert not ticks.of("gpu_lost")
        record_property("expected", "a state with its remedy and one event; it comes back by itself")
        record_property("observed", "driver state `missing`, then `up`; events driver_down, driver_up")


async def test_a_driver_that_is_gone_at_the_start_is_waited_for(fake: FakeAmd) -> None:
    fake.unload()
    async with Ticks(fake, made(fake)) as ticks:
        await ticks.until(lambda: ticks.state == "missing")
        assert ticks.rows[GPU_FAST] == []
        fake.load()
        await ticks.until(lambda: len(ticks.rows[GPU_FAST]) == 4 and ticks.state == "up")


async def test_a_node_with_both_makers_is_one_node(fake: FakeAmd, tmp_path: Path, record_property: Told) -> None:
    """Each driver has its own process: what hangs in one is no gap of the other."""
    with FakeDriver(tmp_path, gpus=2, links=2) as nvidia:
        source = CombinedSource([NvmlSource(environment=nvidia.environment, open_wait=20.0), made(fake)])
        await source.open()
        try:
            rows = await _until(source, lambda rows: len(rows[GPU_FAST]) == 6)
            inventory = source.inventory
            assert inventory.source == "nvml+amd"
            assert inventory.driver_state == "up"
            assert inventory.driver_version == "580.95.05 + of Linux 6.14.0-test"
            assert [gpu.index for gpu in inventory.gpus] == list(range(6))
            assert [gpu.name[:6] for gpu in inventory.gpus] == ["NVIDIA"] * 2 + ["AMD In"] * 4
            assert len(rows[LINK_FAST]) == len(inventory.links) == 2 * 2 + 4 * 3
            assert {pool.over for pool in inventory.pools} == {"nvswitch", "xgmi"}
            fake.unload()
            rows = await _until(source, lambda _: source.inventory.driver_state == "missing")
            assert source.inventory.driver_message.startswith("amd: ")
            assert [row[POWER] == row[POWER] for row in rows[GPU_FAST]] == [True] * 2 + [False] * 4
            assert {event.kind for event in source.drain_events()} == {"driver_down"}
            record_property("expected", "GPUs of both makers in one inventory; one driver gone hides no other")
            record_property("observed", "2 H100 and 4 MI300X on a node; amdgpu unloaded: the H100 are read on")
        finally:
            await source.close()


async def _until(source: CombinedSource, so: object) -> dict[int, list[list[float]]]:
    """Tick until it is so."""
    assert callable(so)
    for _ in range(round(400 * FACTOR)):
        rows = await source.read(BOTH, 0, time.time_ns(), 3.0)
        if so(rows):
            return rows
        await asyncio.sleep(0.05)
    raise AssertionError(f"never: {source.inventory.driver_state}")
