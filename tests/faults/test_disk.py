"""Faults of disks, on both sides: errors, half-done writes, and syncs that say no."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from tests.brokers import Mosquitto
from tests.faults.disk import FailingDisk, Mode
from tests.faults.plant import Plant
from tests.faults.record import Observe, fault
from tests.kit.waiting import wait_until

FAULTS = [mode for mode in get_args(Mode) if mode not in {"ok", "lag"}]


@pytest.fixture(params=["dgx-01", "aggregator"])
def failing(
    request: pytest.FixtureRequest, tmp_path: Path, mosquitto: Mosquitto, seed: int
) -> Iterator[tuple[Plant, FailingDisk, str]]:
    """A plant, one part of which has a disk that will fail."""
    part: str = request.param
    files = "/ring/" if part != "aggregator" else "/hot.duckdb"
    disk = FailingDisk(tmp_path, files)
    with Plant(tmp_path, mosquitto, seed) as plant:
        plant.environments[part] = disk.environment
        plant.start_all()
        yield plant, disk, part


@fault("17", "live view and frames go on; a file whose sync failed is never used again; nothing is lost")
def test_failing_disk(failing: tuple[Plant, FailingDisk, str], observe: Observe) -> None:
    """The disk of a ring, or of the store, fails writes, is read-only, is full, does half, and fails syncs."""
    plant, disk, part = failing
    for mode in FAULTS:
        before = Counter(disk.said("failed"))
        if part == "aggregator":
            _fail_store(plant, disk, mode)
        else:
            _fail_ring(plant, disk, mode)
        failed = Counter(disk.said("failed")) - before
        assert bool(failed) == (mode == "fsync"), mode
    account = plant.finish()
    assert account.lost == 0
    again = Counter(disk.said("again"))
    if part != "aggregator":
        assert not again, f"used after its sync had failed: {again}"
    observe(f"{part}, {', '.join(FAULTS)}: {sum(failed.values())} syncs failed; {account}")


def _fail_ring(plant: Plant, disk: FailingDisk, mode: Mode) -> None:
    """Let the disk of a ring fail for a while: frames go on, and the events say so but where a short write is
    finished by the next one."""
    before = _kinds(plant)
    down, up = before["ring_down"] + 1, before["ring_up"] + 1
    disk.be(mode)
    if mode in {"short", "nospace"}:
        plant.wait_for_more(20)
    else:
        if mode == "fsync":
            wait_until(lambda: disk.said("failed"), "failed syncs")
        wait_until(lambda: _kinds(plant)["ring_down"] >= down, f"the event of {mode}")
        plant.wait_for_more(5)
    disk.be("ok")
    if mode != "short":
        wait_until(lambda: _kinds(plant)["ring_up"] >= up, f"the ring after {mode}")


def _fail_store(plant: Plant, disk: FailingDisk, mode: Mode) -> None:
    """Let the disk of the store fail for a while."""
    folded = (plant.data / "hot.duckdb").stat().st_size
    disk.be(mode)
    if mode == "short":
        plant.wait_for_more(20)
    else:
        _store_fails(plant)
    disk.be("ok")
    wait_until(lambda: plant.sample("kilowatch_aggregator_store_ok") == 1, f"the store after {mode}")
    if mode == "fsync":  # the log is no longer valid: its content is in the file, written again
        assert (plant.data / "hot.duckdb").stat().st_size > folded


def _store_fails(plant: Plant) -> None:
    """Wait until the store has failed, and see that the fleet is shown nevertheless."""
    errors = plant.sample("kilowatch_aggregator_store_errors_total")
    wait_until(lambda: plant.sample("kilowatch_aggregator_store_errors_total") > errors, "an error")
    page = plant.get("/api/v1/nodes/dgx-01")
    seq = page["node"]["seq"]
    wait_until(lambda: (plant.get("/api/v1/nodes/dgx-01") or page)["node"]["seq"] > seq + 5, "newer readings")
    assert plant.sample("kilowatch_aggregator_store_ok") == 0


def _kinds(plant: Plant) -> Counter[str]:
    found = plant.get("/api/v1/events?limit=1000") or {"events": ()}
    return Counter(each["event"]["kind"] for each in found["events"])
