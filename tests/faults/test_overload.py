"""An aggregator that can't carry what comes: its store takes seconds for what it must do in one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from aggregator.store.provisional import PREFIX
from tests.brokers import Mosquitto
from tests.faults.disk import FailingDisk
from tests.faults.plant import Plant
from tests.faults.record import Observe, fault
from tests.kit.waiting import wait_until


@pytest.fixture
def lagging(tmp_path: Path, mosquitto: Mosquitto, seed: int) -> Iterator[tuple[Plant, FailingDisk]]:
    """A plant whose store has a disk that will need eight seconds for each commit."""
    disk = FailingDisk(tmp_path, "/hot.duckdb")
    with Plant(tmp_path, mosquitto, seed) as plant:
        plant.environments["aggregator"] = disk.environment
        plant.start_all()
        yield plant, disk


def overloads(plant: Plant) -> set[str]:
    """Return the parts that /healthz lists as shed."""
    page = plant.get("/healthz") or {"impairments": []}
    return {one["part"] for one in page["impairments"] if one["rule"] == "overloaded"}


@fault(
    "35",
    "history is stored as means, rules and pages go on, and all says so; afterwards it recovers by itself and every frame is stored once",
)
def test_overload(lagging: tuple[Plant, FailingDisk], observe: Observe) -> None:
    """The store is far too slow for a while."""
    plant, disk = lagging
    disk.be("lag")
    wait_until(lambda: plant.sample("kilowatch_shed_frames_total") > 20, "shed frames")
    assert "load/history" in overloads(plant)
    assert plant.get("/healthz")["status"] == "impaired"
    runs = plant.sample("kilowatch_aggregator_rules_seconds_count")
    wait_until(lambda: plant.sample("kilowatch_aggregator_rules_seconds_count") > runs + 3, "more runs of the rules")
    seq = plant.get("/api/v1/nodes/dgx-01")["node"]["seq"]
    wait_until(lambda: plant.get("/api/v1/nodes/dgx-01")["node"]["seq"] > seq + 5, "newer readings")
    wait_until(lambda: any(one["rule"] == "overloaded" for one in plant.get("/api/v1/alerts")["alerts"]), "the alert")
    disk.be("ok")
    wait_until(lambda: plant.sample("kilowatch_shed_step") == 0, "the end", seconds=240)
    assert not overloads(plant)
    shed = plant.sample("kilowatch_shed_frames_total")
    plant.wait_for_whole(120)
    account = plant.finish()
    assert account.lost == 0
    with duckdb.connect(str(plant.data / "hot.duckdb"), read_only=True) as store:
        tables = [name for (name,) in store.execute("select table_name from duckdb_tables()").fetchall()]
        left = {
            name: store.execute(f"select count(*) from {name}").fetchall()[0][0]
            for name in tables
            if name.startswith(PREFIX)
        }
    assert left
    assert set(left.values()) == {0}, "each mean is replaced by its frames"
    observe(f"{shed:.0f} frames shed and refilled; {account}")
