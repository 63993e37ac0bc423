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


@fault(
    "17",
    "live view and frames go on; a file whose sync failed is never used again; nothing is lost",
)
@pytest.mark.parametrize("mode", FAULTS)
def test_failing_disk(
    failing: tuple[Plant, FailingDisk, str], mode: Mode, observe: Observe
) -> None:
    """The disk of a ring, or of the store, fails writes, is read-only, does half, or fails syncs."""
    plant, disk, part = failing
    folded = (plant.data / "hot.duckdb").stat().st_size
    disk.be(mode)
    if part == "aggregator" and mode != "short":
        _store_fails(plant)
    elif mode in {"eio", "rofs"}:
        wait_until(lambda: "ring_down" in _kinds(plant), "the event")
        plant.wait_for_more(5)
    elif mode == "fsync":
        wait_until(lambda: disk.said("failed"), "failed syncs")
        wait_until(lambda: "ring_down" in _kinds(plant), "the event")
        plant.wait_for_more(5)
    else:
        plant.wait_for_more(20)
    disk.be("ok")
    if part == "aggregator":
        wait_until(lambda: plant.sample("kilowatch_aggregator_store_ok") == 1, "the store")
        if mode == "fsync":  # the log is no longer valid: its content is in the file, written again
            assert (plant.data / "hot.duckdb").stat().st_size > folded
    elif mode != "short":
        wait_until(lambda: "ring_up" in _kinds(plant), "the ring")
    account = plant.finish()
    assert account.lost == 0
    failed, again = Counter(disk.said("failed")), Counter(disk.said("again"))
    assert bool(failed) == (mode == "fsync")
    if part != "aggregator":
        assert not again, f"used after its sync had failed: {again}"
    observe(f"{part}, {mode}: {sum(failed.values())} syncs failed; {account}")


def _store_fails(plant: Plant) -> None:
    """Wait until the store has failed, and see that the fleet is shown nevertheless."""
    wait_until(lambda: plant.sample("kilowatch_aggregator_store_errors_total") > 0, "an error")
    page = plant.get("/api/v1/nodes/dgx-01")
    seq = page["node"]["seq"]
    wait_until(
        lambda: (plant.get("/api/v1/nodes/dgx-01") or page)["node"]["seq"] > seq + 5,
        "newer readings",
    )
    assert plant.sample("kilowatch_aggregator_store_ok") == 0


def _kinds(plant: Plant) -> set[str]:
    found = plant.get("/api/v1/events?limit=1000")
    return set() if found is None else {each["event"]["kind"] for each in found["events"]}
