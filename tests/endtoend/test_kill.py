"""kill -9 of each part under way: nothing is lost, nothing stands twice, every bit is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.endtoend.audit import audit
from tests.endtoend.cluster import LOST_UNTIL, NODES, Cluster
from tests.kit.waiting import wait_until


@pytest.fixture
def cluster(tmp_path: Path, broker: Broker) -> Iterator[Cluster]:
    """Two nodes and an aggregator, on each of the two brokers."""
    cluster = Cluster(tmp_path, broker)
    for name in ("aggregator", *NODES):
        cluster.start(name)
    yield cluster
    cluster.end_all()


def stored(cluster: Cluster) -> float:
    """How many frames the running aggregator has stored."""
    return cluster.sample("kilowatch_aggregator_frames_stored_total")


def session(cluster: Cluster, node: str) -> int | None:
    """The session of which a node's newest frame is."""
    found = (cluster.get("/api/v1/nodes") or {}).get("nodes", ())
    return next((one["session"] for one in found if one["node"] == node), None)


def wait_for_more(cluster: Cluster, frames: int) -> None:
    """Wait until that many more frames are stored than now."""
    before = stored(cluster)
    wait_until(lambda: stored(cluster) >= before + frames, f"{frames} more frames")


@pytest.mark.parametrize("victim", ["aggregator", "dgx-01", "broker"])
def test_a_kill_loses_nothing_and_doubles_nothing(cluster: Cluster, victim: str) -> None:
    """Each part in turn; the audit compares every stored value with the simulation."""
    wait_until(lambda: stored(cluster) >= 20, "the first frames")
    before = session(cluster, victim)
    if victim == "broker":
        cluster.broker.kill()
        cluster.broker.start()
    else:
        cluster.kill(victim)
        cluster.start(victim)
    wait_until(lambda: stored(cluster) >= 1, "frames again")
    if victim in NODES:
        wait_until(lambda: session(cluster, victim) not in (None, before), "its new session")
    wait_for_more(cluster, 20)
    wait_until(lambda: cluster.sample("kilowatch_aggregator_holes_open") == 0, "no holes")
    for node in NODES:
        assert cluster.end(node) == 0
    wait_for_quiet(cluster)
    assert cluster.end("aggregator") == 0
    found = audit(cluster)
    assert len(found.stored) == len(set(found.stored)), "a frame stands twice"
    assert set(found.stored) == found.published
    assert found.lost == 0
    last_words = len(NODES)  # a planned end is a frame without readings
    assert found.values == (len(found.stored) - last_words) * 8 * 42
    seen = found.began["dgx-02"] < cluster.start_tick + LOST_UNTIL  # or this machine was too slow
    assert found.events.count("gpu_lost") == seen
    assert len(found.published) > 40


def wait_for_quiet(cluster: Cluster) -> None:
    """Wait until the aggregator stores nothing more: it has all that there is."""
    seen = -1.0

    def quiet() -> bool:
        nonlocal seen
        before, seen = seen, stored(cluster)
        return before == seen and cluster.sample("kilowatch_aggregator_holes_open") == 0

    wait_until(quiet, "quiet")
