"""What was stored in one run is there in the next: over HTTP, and in Parquet for any engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from collector.sampling.sampler import passed
from collector.simulated import value
from telemetry.wire.topics import phase_of
from tests.brokers import Mosquitto
from tests.endtoend.cluster import INTERVAL, NODES, Cluster
from tests.kit.waiting import wait_until


class Sealing(Cluster):
    """Its periods are short."""

    seal_seconds = 3.0


@pytest.fixture
def cluster(tmp_path: Path, mosquitto: Mosquitto) -> Iterator[Cluster]:
    """One node and an aggregator that seals every three seconds."""
    cluster = Sealing(tmp_path, mosquitto)
    cluster.start("aggregator")
    cluster.start(NODES[0])
    yield cluster
    cluster.end_all()


def readings(cluster: Cluster, uuid: str) -> dict[int, float]:
    """All stored power readings of one GPU, by time in ns."""
    found = cluster.get(f"/api/v1/history?gpu={uuid}&metric=gpu_power_watts&from=-10m&step=0")
    return dict(zip(found["at"], found["mean"], strict=True)) if found else {}


def test_a_restart_keeps_history_and_sealed_files_are_plain_parquet(cluster: Cluster) -> None:
    """Every reading of the first run is there in the second, sealed or not, and is the right one."""
    sealed = cluster.data / "sealed" / "gpu_fast"
    wait_until(lambda: list(sealed.glob("*.parquet")), "a sealed file")
    uuid = cluster.get("/api/v1/fleet?columns=gpu_power_watts")["rows"]["uuid"][0]
    wait_until(lambda: len(readings(cluster, uuid)) > 10, "history")
    before = readings(cluster, uuid)
    assert cluster.end(NODES[0]) == 0
    assert cluster.end("aggregator") == 0
    cluster.start("aggregator")
    wait_until(lambda: cluster.get("/api/v1/status"), "an answer")
    after = readings(cluster, uuid)
    assert before.items() <= after.items()
    for at, watts in after.items():
        # A late tick may fall behind a multiple of the interval: ask the grid of the node for its number.
        tick = passed(at / 1e9, INTERVAL, phase_of(NODES[0]))
        wanted = value(cluster.scenario, NODES[0], 0, "gpu_power_watts", tick)
        assert watts == pytest.approx(wanted, rel=1e-6)
    with duckdb.connect() as plain:
        rows = plain.execute(
            f"select epoch_ns(ts), gpu_power_watts from '{sealed}/*.parquet' where device = ?", [uuid]
        ).fetchall()
    assert rows
    assert {at: after.get(at) for at, _ in rows} == pytest.approx(dict(rows), rel=1e-6)
    assert all(re.match(r"\d{4}-\d\d-\d\dT", path.name) for path in sealed.glob("*.parquet"))
