"""MIG instances: real nvidia-ml-py in a real process, scripted library; from the driver to a fleet's rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.gap import Gap, reason_of
from telemetry.wire.schema import GPU_SLOW, INSTANCE_SLOW, LINK_SLOW, SCHEMA
from tests.collector.nvml_ticks import Ticks
from tests.fake_nvml import FakeDriver

NAMES = SCHEMA.blocks[INSTANCE_SLOW].names
MIB = 1 << 20
SMALL = {
    "instance": 7,
    "profile": "1g.10gb",
    "used": 512,
    "processes": 1,
    "gpm 1": 90,
    "gpm 2": 80,
    "gpm 10": 12.5,
    "gpm 13": 25,
}
LARGE = {"instance": 1, "profile": "3g.40gb", "slices": 3, "memory": 40_192, "used": 30_000}


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDriver]:
    """Two H100 with four links each."""
    with FakeDriver(tmp_path, gpus=2, links=4) as driver:
        yield driver


def shown(ticks: Ticks, row: int) -> dict[str, float | Gap | None]:
    """The readings of an instance, or the reasons why they are absent."""
    values = ticks.rows[INSTANCE_SLOW][row]
    return {
        name: reason_of(value) if value != value else value  # noqa: PLR0124
        for name, value in zip(NAMES, values, strict=True)
    }


async def test_an_instance_has_its_place_where_the_driver_tells_it(fake: FakeDriver) -> None:
    """Root alone may ask; asked once for each instance, whose place never changes."""
    fake.mig(0, LARGE | {"placement": 4}, SMALL)
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: len(ticks.source.inventory.instances) == 2)
        assert [each.placement for each in ticks.source.inventory.instances] == [4, None]
        fake.mig(0, LARGE | {"placement": 5}, SMALL | {"instance": 8, "placement": 2})
        await ticks.until(lambda: ticks.source.inventory.instances[-1].gpu_instance == 8)
        assert [each.placement for each in ticks.source.inventory.instances] == [4, 2]


async def test_instances_have_rows_of_their_own(fake: FakeDriver) -> None:
    fake.mig(1, LARGE, SMALL)
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: len(ticks.source.inventory.instances) == 2)
        await ticks.sampled()
        large, small = ticks.source.inventory.instances
        assert (large.gpu, large.name, large.memory_bytes) == (fake.uuid(1), "1/0 3g.40gb", 40_192 * MIB)
        assert (small.uuid, small.name, small.multiprocessors) == (fake.mig_uuid(1, 7), "7/0 1g.10gb", 16)
        assert shown(ticks, 1) == {
            "instance_memory_used_bytes": 512 * MIB,
            "instance_memory_total_bytes": 9856 * MIB,
            "instance_processes": 1,
            "instance_sm_active_ratio": pytest.approx(0.8),
            "instance_sm_occupancy_ratio": Gap.NOT_SUPPORTED,
            "instance_tensor_active_ratio": Gap.NOT_SUPPORTED,
            "instance_dram_active_ratio": pytest.approx(0.125),
            "instance_graphics_active_ratio": pytest.approx(0.9),
            "instance_fp64_active_ratio": Gap.NOT_SUPPORTED,
            "instance_fp32_active_ratio": Gap.NOT_SUPPORTED,
            "instance_fp16_active_ratio": pytest.approx(0.25),
        }
        assert shown(ticks, 0)["instance_memory_used_bytes"] == 30_000 * MIB
        assert shown(ticks, 0)["instance_sm_active_ratio"] is Gap.NOT_SUPPORTED  # not the other's
        assert len(ticks.rows[GPU_SLOW]) == 2
        assert len(ticks.rows[LINK_SLOW]) == 8
        assert ticks.gap("gpu_mig_mode", 1) is None
        assert [gpu.mig for gpu in ticks.source.inventory.gpus] == [False, True]


async def test_instances_come_and_go_while_it_runs(fake: FakeDriver) -> None:
    """A tick in which they change is a tick of the old rows: never one instance's readings as another's."""
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: ticks.gap("gpu_power_watts") is None)
        assert ticks.source.inventory.instances == ()
        fake.mig(0, SMALL)
        await ticks.until(lambda: len(ticks.source.inventory.instances) == 1)
        await ticks.until(lambda: shown(ticks, 0)["instance_processes"] == 1)
        fake.mig(0, LARGE, {"instance": 2, "profile": "1g.10gb", "used": 7})
        await ticks.until(lambda: len(ticks.source.inventory.instances) == 2)
        await ticks.until(lambda: shown(ticks, 1)["instance_memory_used_bytes"] == 7 * MIB)
        assert shown(ticks, 0)["instance_memory_used_bytes"] == 30_000 * MIB
        fake.mig(0)
        await ticks.until(lambda: not ticks.source.inventory.instances)
        await ticks.tick()
        assert ticks.rows[INSTANCE_SLOW] == []
        assert ticks.gap("gpu_power_watts") is None
        assert [event.data["mig"] for event in ticks.of("mig_changed")] == [1, 0]


async def test_a_gpu_that_hangs_or_is_lost_takes_its_instances_along(fake: FakeDriver) -> None:
    fake.mig(1, SMALL)
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: len(ticks.source.inventory.instances) == 1)
        await ticks.until(lambda: shown(ticks, 0)["instance_processes"] == 1)
        fake.set(1, state="lost")
        await ticks.until(lambda: set(shown(ticks, 0).values()) == {Gap.DEVICE_LOST})
        assert ticks.gap("gpu_power_watts", 0) is None
        assert [each.uuid for each in ticks.source.inventory.instances] == [fake.mig_uuid(1, 7)]


async def test_without_permission_the_readings_say_so(fake: FakeDriver) -> None:
    fake.mig(0, SMALL)
    fake.call("mig1 nvmlDeviceGetMemoryInfo_v2", error=4, gpu=0)
    fake.call("nvmlGpmMigSampleGet", error=4, gpu=0)
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: len(ticks.source.inventory.instances) == 1)
        await ticks.until(lambda: shown(ticks, 0)["instance_memory_used_bytes"] is Gap.NO_PERMISSION)
        assert shown(ticks, 0)["instance_sm_active_ratio"] is Gap.NO_PERMISSION
        assert shown(ticks, 0)["instance_processes"] == 1
        await ticks.until(lambda: ticks.gap("gpu_sm_active_ratio") is None)


@pytest.mark.parametrize(
    ("slices", "own", "memory", "profile"), [(1, 1, 9856, "1g.10gb"), (3, 1, 40_192, "1c.3g.40gb")]
)
async def test_a_driver_that_names_no_profile_has_it_made_of_the_sizes(
    fake: FakeDriver, slices: int, own: int, memory: int, profile: str
) -> None:
    fake.mig(0, {"instance": 1})
    fake.call("mig1 nvmlDeviceGetAttributes_v2", 16 * own, slices, own, memory, gpu=0)
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: len(ticks.source.inventory.instances) == 1)
        assert ticks.source.inventory.instances[0].profile == profile
