"""Health derives from the age of data, and says why it is bad."""

from __future__ import annotations

from aggregator.http.health import Liveness
from aggregator.store.protocol import StoreStatus
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import door, small_cluster


async def test_an_aggregator_that_waits_for_its_first_node_is_alive_and_ready() -> None:
    """No node is expected, so readiness needs none."""
    async with door(FakeView()) as client:
        for path in ("/healthz", "/readyz"):
            status, body = await client.json(path)
            assert (status, body["ok"], body["reasons"]) == (200, True, [])
            assert body["newest_frame_age_seconds"] is None


async def test_a_cluster_whose_frames_arrive_is_ready() -> None:
    """The age of the newest frame is reported."""
    view = await small_cluster()
    view.monotonic += 0.5
    async with door(view) as client:
        status, body = await client.json("/readyz")
    assert status == 200
    assert body["newest_frame_age_seconds"] == 0.5
    assert (body["nodes_expected"], body["nodes_online"]) == (2, 2)


async def test_when_no_expected_node_is_fresh_it_is_alive_but_not_ready() -> None:
    """A restart would not help, so healthz stays 200."""
    view = await small_cluster()
    async with door(view) as client:
        view.monotonic += 3.5
        status, body = await client.json("/readyz")
        assert status == 503
        assert body["reasons"] == ["No frame of 2 expected node(s) is younger than three intervals."]
        assert (await client.json("/healthz"))[0] == 200


async def test_nodes_that_said_good_bye_are_not_expected() -> None:
    """A cluster that was switched off on purpose is no fault of the aggregator."""
    view = await small_cluster()
    for node in view.fleet.nodes.values():
        node.online = False
    view.monotonic += 100
    async with door(view) as client:
        assert (await client.json("/readyz"))[0] == 200


async def test_a_count_of_the_nodes_serves_for_half_a_second() -> None:
    """Of 20,000 nodes it takes milliseconds, and a probe may ask often."""
    view = await small_cluster()
    async with door(view) as client:
        assert (await client.json("/healthz"))[1]["nodes_expected"] == 2
        for node in view.fleet.nodes.values():
            node.online = False
        view.monotonic += 0.4
        assert (await client.json("/healthz"))[1]["nodes_expected"] == 2
        view.monotonic += 0.1
        assert (await client.json("/healthz"))[1]["nodes_expected"] == 0


async def test_without_the_bus_it_is_alive_but_not_ready() -> None:
    """Restarting the aggregator does not bring the broker back."""
    view = await small_cluster()
    view.stats.bus_connected = False
    async with door(view) as client:
        status, body = await client.json("/readyz")
        assert (status, body["reasons"]) == (503, ["The bus is not connected."])
        assert (await client.json("/healthz"))[0] == 200


async def test_a_store_that_fails_makes_it_unready_at_once_and_dead_after_ten_seconds() -> None:
    """And alive again when the store works."""
    view = await small_cluster()
    async with door(view) as client:
        view.stats.store_ok = False
        assert (await client.json("/healthz"))[0] == 200
        assert (await client.json("/readyz"))[0] == 503
        view.monotonic += 11
        status, body = await client.json("/healthz")
        assert (status, body["reasons"]) == (503, ["The store has failed for 11 s."])
        view.stats.store_ok = True
        assert (await client.json("/healthz"))[0] == 200


async def test_a_flush_loop_that_stands_still_while_frames_come_is_dead() -> None:
    """Without frames there is nothing to flush, and silence is no fault."""
    view = FakeView()
    view.add(inventory("n1"))
    await view.tick(0)
    liveness = Liveness(view)
    view.monotonic += 100
    liveness.check()
    assert liveness.faults() == []
    view.stats.frames_received += 1
    liveness.check()
    view.monotonic += 9
    liveness.check()
    assert liveness.faults() == []
    view.monotonic += 2
    assert liveness.faults() == ["Frames come in, and none was flushed for 111 s."]
    await view.flush()
    liveness.check()
    assert liveness.faults() == []


async def test_a_database_that_takes_no_data_is_a_warning_and_no_reason_to_restart() -> None:
    """The words of the problem have an address in them: they are for those who may log in."""
    view = await small_cluster()
    async with door(view) as client:
        view.memory.state = StoreStatus(
            "influxdb", "http://secret:8086: connection refused", "InfluxDB accepts no data"
        )
        status, body = await client.json("/healthz")
        assert (status, body["ok"]) == (200, True)
        (warning,) = body["warnings"]
        assert warning == "InfluxDB accepts no data"
        view.memory.state = StoreStatus("influxdb")
        assert (await client.json("/healthz"))[1]["warnings"] == []
