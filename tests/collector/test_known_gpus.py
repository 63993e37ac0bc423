"""What a node remembers of its GPUs from start to start."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collector.nvml.source import NvmlSource
from collector.sampling.known_devices import FILE, FORGOTTEN_AFTER, RememberedDevices, recall
from telemetry.devices import Gpu, Link
from telemetry.gap import Gap
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, LINK_FAST
from tests.collector.nvml_ticks import Ticks
from tests.fake_nvml import FakeDriver
from tests.kit.waiting import until

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def inventory(*absent: int, gpus: int = 3) -> Inventory:
    """GPUs with one link each."""
    return Inventory(
        node="n1",
        source="nvml",
        gpus=tuple(
            Gpu(uuid=f"GPU-{number}", index=number, name="H100", present=number not in absent) for number in range(gpus)
        ),
        links=tuple(Link(gpu=f"GPU-{number}", number=0) for number in range(gpus)),
    )


async def test_gpus_and_links_come_back_as_they_were(tmp_path: Path) -> None:
    memory = RememberedDevices(tmp_path, START)
    memory.inventory(inventory(), START)
    memory.inventory(inventory(1), START + SECOND)
    await until(lambda: recall(tmp_path, START).gone_since)
    known = recall(tmp_path, START + 2 * SECOND)
    assert known.gpus == inventory(1).gpus
    assert known.links == inventory().links
    assert known.gone_since == {"GPU-1": START + SECOND}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


async def test_a_gpu_that_has_been_gone_for_a_week_is_expected_no_more(tmp_path: Path) -> None:
    memory = RememberedDevices(tmp_path, START)
    memory.inventory(inventory(1), START)
    week = START + FORGOTTEN_AFTER * SECOND
    await until(lambda: recall(tmp_path, week).gone_since)
    # A start in between does not begin the week anew.
    RememberedDevices(tmp_path, week).inventory(inventory(0, 1), week)
    await until(lambda: len(recall(tmp_path, week).gone_since) == 2)
    known = recall(tmp_path, week + 1)
    assert [gpu.uuid for gpu in known.gpus] == ["GPU-0", "GPU-2"]
    assert [link.gpu for link in known.links] == ["GPU-0", "GPU-2"]
    assert known.gone_since == {"GPU-0": week}


def test_a_list_that_is_torn_or_absent_is_empty(tmp_path: Path) -> None:
    assert recall(tmp_path, START).gpus == ()
    (tmp_path / FILE).write_text('{"gpus": [{"uuid"')
    assert recall(tmp_path, START).gpus == ()


async def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    memory = RememberedDevices(tmp_path, START)
    memory.inventory(inventory(), START)
    await until((tmp_path / FILE).exists)
    await until(lambda: memory.written == 1)
    memory.inventory(msgspec.structs.replace(inventory(), driver_state="up"), START)
    memory.inventory(inventory(2), START)
    await until(lambda: recall(tmp_path, START).gone_since == {"GPU-2": START})
    await until(lambda: memory.written >= 2)
    assert memory.written == 2


async def test_a_replaced_gpu_takes_the_row_of_the_one_before(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=4, links=2) as fake:
        async with Ticks(fake) as ticks:
            await ticks.tick()
            known = ticks.source.inventory
        fake.call("nvmlDeviceGetUUID", "GPU-new", gpu=2)
        source = NvmlSource(environment=fake.environment, open_wait=20, expected=known.gpus, expected_links=known.links)
        async with Ticks(fake, source) as ticks:
            await ticks.tick()
            uuids = [gpu.uuid for gpu in ticks.source.inventory.gpus]
            assert uuids == [fake.uuid(0), fake.uuid(1), "GPU-new", fake.uuid(3)]
            assert {link.gpu for link in ticks.source.inventory.links} == set(uuids)
            assert len(ticks.rows[LINK_FAST]) == 8
            assert not any(ticks.gap("gpu_power_watts", row) for row in range(4))
            (event,) = ticks.events
            assert (event.kind, event.gpu) == ("gpu_replaced", "GPU-new")
            assert event.data == {"replaced": fake.uuid(2)}


async def test_gpus_that_have_changed_places_keep_their_rows(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=2, links=0) as fake:
        async with Ticks(fake) as ticks:
            await ticks.tick()
            known = ticks.source.inventory
        for gpu, other in ((0, 1), (1, 0)):
            fake.call("nvmlDeviceGetUUID", fake.uuid(other), gpu=gpu)
        source = NvmlSource(environment=fake.environment, open_wait=20, expected=known.gpus)
        async with Ticks(fake, source) as ticks:
            await ticks.tick()
            assert [gpu.uuid for gpu in ticks.source.inventory.gpus] == [fake.uuid(0), fake.uuid(1)]
            assert [gpu.index for gpu in ticks.source.inventory.gpus] == [1, 0]
            assert ticks.events == []


async def test_without_a_driver_the_gpus_that_were_there_are_gaps(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=2, links=0) as fake:
        async with Ticks(fake) as ticks:
            await ticks.tick()
            known = ticks.source.inventory
        fake.driver(init=9)
        source = NvmlSource(environment=fake.environment, open_wait=20, expected=known.gpus)
        async with Ticks(fake, source) as ticks:
            await ticks.tick()
            assert len(ticks.rows[GPU_FAST]) == 2
            assert ticks.gaps(0) == {Gap.ERROR}
