"""Inventories that frames in the ring were made with, and that no aggregator may have had."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from collector.sampling.known_devices import RememberedDevices, recall
from collector.sampling.past_inventories import KEPT_SECONDS, PastInventories
from telemetry.devices import Gpu, MigInstance
from telemetry.wire.inventory import MOST_BEFORE, NO_SCHEMA, Inventory, decode, encode
from telemetry.wire.schema import SCHEMA, Schema
from tests.brokers import Mosquitto
from tests.fake_nvml import FakeDriver
from tests.kit.services import Services
from tests.kit.waiting import PATIENCE, until, wait_until

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
ONE, TWO = (1,), (1, 2)
FRAMES = 8
"""Frames that are read with each split; each second one has readings of instances."""


def inventory(at: int, *instances: int, kernel: str = "6.8") -> Inventory:
    """A GPU that is split, taken so many seconds after the start."""
    return Inventory(
        node="n1",
        taken_at=START + at * SECOND,
        host={"kernel": kernel},
        gpus=(Gpu(uuid="GPU-0", index=0, name="H100", capabilities={"gpu_fan_ratio": "not_supported"}),),
        instances=tuple(
            MigInstance(uuid=f"MIG-{number}", gpu="GPU-0", gpu_instance=number, compute_instance=0)
            for number in instances
        ),
    )


def brought(past: PastInventories, *inventories: Inventory) -> list[tuple[int, int]]:
    """Return time and instances of what the last of some inventories brings, after the way to the aggregator."""
    last = [past.joined(each) for each in inventories][-1]
    found = decode(encode(last), Inventory).past()
    assert all(each.schema == SCHEMA and not each.host and not each.gpus[0].capabilities for each in found)
    return [((each.taken_at - START) // SECOND, len(each.instances)) for each in found]


def test_an_inventory_brings_those_before_it_whose_rows_are_others() -> None:
    past = PastInventories()
    assert brought(past, inventory(0), inventory(1, kernel="6.9")) == []
    assert brought(past, inventory(2, *ONE)) == [(0, 0)]
    assert brought(past, inventory(3, *TWO)) == [(2, 1), (0, 0)]
    assert brought(past, inventory(4, *ONE)) == [(3, 2), (2, 1), (0, 0)]
    # Frames since 4 were made with it too: facts alone have changed.
    assert brought(past, inventory(9, *ONE, kernel="6.9")) == [(4, 1), (3, 2), (2, 1), (0, 0)]


def test_it_brings_few_and_none_that_no_ring_has_frames_of() -> None:
    past = PastInventories()
    found = brought(past, *(inventory(at, *range(at)) for at in range(20)))
    assert found == [(at, at) for at in range(18, 18 - MOST_BEFORE, -1)]
    assert brought(past, inventory(17 + KEPT_SECONDS)) == [(19, 19), (18, 18), (17, 17), (16, 16)]
    assert brought(past, inventory(18 + 2 * KEPT_SECONDS)) == []


def test_a_schema_of_another_release_is_kept_whole() -> None:
    older = msgspec.structs.replace(inventory(0), schema=Schema(SCHEMA.blocks[:1]))
    past = PastInventories([older])
    (before,) = past.joined(inventory(1)).before
    assert before.schema == older.schema
    (before, _) = past.joined(inventory(2, *ONE)).before
    assert before.schema == NO_SCHEMA


async def test_a_start_knows_those_of_the_starts_before(tmp_path: Path) -> None:
    memory = RememberedDevices(tmp_path, START)
    for each in (inventory(0, *ONE), inventory(1, *TWO)):
        memory.inventory(memory.past.joined(each), each.taken_at)
    await until(lambda: len(recall(tmp_path, START).inventories) == 2)
    again = RememberedDevices(tmp_path, START)
    assert brought(again.past, inventory(5)) == [(1, 2), (0, 1)]


def ring_sizes(folder: Path) -> Iterator[int]:
    """Yield how often a ring was seen to grow since the first time."""
    sizes: set[int] = set()
    while True:
        sizes.add(sum(path.stat().st_size for path in folder.glob("*.seg")))
        yield len(sizes) - 1


def readings(services: Services, instance: str) -> list[float]:
    """Return the stored used memory of an instance, MiB."""
    path = f"/api/v1/history?instance={instance}&metric=instance_memory_used_bytes&from=-10m&step=0"
    found = services.get(path) or {}
    return [each / (1 << 20) for each in found.get("mean", ()) if each is not None]


def has_readings(services: Services, instance: str) -> bool:
    return len(readings(services, instance)) >= 3


@pytest.mark.systems
def test_what_was_read_before_the_broker_came_is_stored_however_often_the_gpu_was_split_anew(tmp_path: Path) -> None:
    """With a kill of the collector between: two splits that nobody heard of, and a GPU that is whole at last."""
    broker = Mosquitto(tmp_path)
    broker.kill()
    parts = [{"instance": number, "compute": 0, "used": 100 * number} for number in (1, 2, 3)]
    with FakeDriver(tmp_path, gpus=1) as driver:
        (tmp_path / "state").mkdir(mode=0o700)
        services = Services(tmp_path, broker)
        services.configure(
            "n1",
            f'[collector]\nnode = "n1"\nsource = "nvml"\ninterval = 0.2\nslow_interval = 0.4\n'
            f'state_dir = "{tmp_path / "state"}"\nnode_readings = false\n',
            driver.environment,
        )
        services.configure(
            "aggregator", f'[aggregator]\nlisten = "{services.http}"\ndata_dir = "{tmp_path / "data"}"\n'
        )
        try:
            services.start("n1")
            for number, shown in enumerate((parts[:1], parts, [])):
                driver.mig(0, *shown)

                def known(count: int = len(shown)) -> bool:
                    file = tmp_path / "state" / "gpus.json"
                    its = json.loads(file.read_bytes())["inventories"] if file.exists() else []
                    return bool(its) and len(its[0]["instances"]) == count

                wait_until(known, services.log)
                appended = ring_sizes(tmp_path / "state" / "ring")
                wait_until(lambda appended=appended: next(appended) > FRAMES, services.log)  # type: ignore[misc]
                if number == 1:
                    services.kill("n1")
                    services.start("n1")
            broker.start()
            services.start("aggregator")
            for part in parts:
                instance = driver.mig_uuid(0, part["instance"])
                # A request that is lost is made again, each time after longer.
                wait_until(partial(has_readings, services, instance), services.log, 3 * PATIENCE)
                assert set(readings(services, instance)) == {part["used"]}
            assert "frames are lost" not in services.log()
        finally:
            services.close()
            broker.kill()
