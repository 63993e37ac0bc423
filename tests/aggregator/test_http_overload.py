"""HTTP under load: pages shrink, far viewers are refused, and all says so."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from aggregator.http import node_metrics, stream
from aggregator.http.exposition import ExpositionPages, joined, render
from aggregator.http.node_metrics import snapshots_of
from aggregator.http.rule_input_metrics import RuleInputMetrics
from aggregator.load.controller import ShedStep
from aggregator.remote.push import Gatherer
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import Door, door, small_cluster


async def test_pages_of_nodes_leave_out_devices_and_say_so() -> None:
    view = await small_cluster()
    view.shedding.step = ShedStep.DEVICE_METRICS
    async with door(view) as client:
        for path in ("/metrics/node/n1", "/metrics/nodes", "/metrics/dcgm/n1"):
            status, text, _ = await client.text(path)
            assert status == 200
            assert 'kilowatch_shed_active{what="device_metrics"} 1' in text
            assert "gpu_power_watts" not in text
            assert "DCGM_FI_DEV_POWER_USAGE" not in text
            if "dcgm" not in path:
                assert 'kilowatch_node_up{cluster="lab",node="n1"} 1' in text
        status, text, _ = await client.text("/metrics")
    assert 'kilowatch_cluster_nodes{cluster="lab",state="online"} 2' in text
    assert "kilowatch_shed_step 6" in text
    assert "kilowatch_shed_pages_total 3" in text


async def test_the_pages_come_back_when_the_load_falls() -> None:
    view = await small_cluster()
    async with door(view) as client:
        before = (await client.text("/metrics/nodes"))[1]
        view.shedding.step = ShedStep.DEVICE_METRICS
        assert len((await client.text("/metrics/nodes"))[1]) < len(before) / 4
        view.shedding.step = ShedStep.NOTHING
        assert (await client.text("/metrics/nodes"))[1] == before


async def test_a_page_made_in_pieces_is_the_page_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    view = FakeView()
    for number in range(7):
        view.add(inventory(f"n{number}"))
    await view.tick(0)
    view.fleet.nodes["n3"].online = False
    nodes = list(view.fleet.nodes.values())

    async def page() -> list[str]:
        parts = await snapshots_of(view, ExpositionPages(), RuleInputMetrics(), nodes, True)
        return sorted(render(joined(parts)).decode().splitlines())

    whole = await page()
    monkeypatch.setattr(node_metrics, "NODES_AT_ONCE", 2)
    assert await page() == whole
    types = [line for line in whole if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


async def test_a_node_that_leaves_while_a_page_is_made_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows may be another node's by then."""
    view = await small_cluster()
    monkeypatch.setattr(node_metrics, "NODES_AT_ONCE", 1)
    nodes = list(view.fleet.nodes.values())
    making = asyncio.ensure_future(snapshots_of(view, ExpositionPages(), RuleInputMetrics(), nodes, True))
    await asyncio.sleep(0)
    view.fleet.remove("n2")
    view.add(inventory("n9"))
    text = render(joined(await making)).decode()
    assert 'node="n1"' in text
    assert 'node="n2"' not in text


async def test_pages_of_all_nodes_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_metrics, "TURN_SECONDS", 0.05)
    lock = asyncio.Lock()
    await node_metrics.wait_for_turn(lock)
    with pytest.raises(Exception, match="another page of all nodes is being made") as found:
        await node_metrics.wait_for_turn(lock)
    assert found.value.headers["Retry-After"] == "30"  # type: ignore[attr-defined]  # RequestError
    lock.release()
    await node_metrics.wait_for_turn(lock)


async def test_remote_write_leaves_out_devices_too() -> None:
    view = await small_cluster()
    gatherer = Gatherer(view)
    assert any(part.rows for part in await gatherer.snapshots())
    view.shedding.step = ShedStep.DEVICE_METRICS
    parts = await gatherer.snapshots()
    assert not any(part.rows for part in parts)
    names = {family.name for part in parts for family in part.families}
    assert {"kilowatch_shed_active", "kilowatch_shed_step", "kilowatch_node_up"} <= names


def streamed(client: Door) -> aiohttp.client._WSRequestContextManager:
    return client.session.ws_connect(f"{client.url}/api/v1/stream", headers=client.bearer)


async def test_a_far_viewer_is_refused_and_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    view = await small_cluster()
    view.shedding.step, view.shedding.reason = (ShedStep.VIEWERS, "the event loop was held up for 1 s")
    async with door(view) as client:
        async with streamed(client) as near:
            assert not near.closed
        monkeypatch.setattr(stream, "is_far", lambda _: True)
        status, text, headers = await client.text("/api/v1/stream", headers=client.bearer)
        assert (status, headers["Retry-After"]) == (503, "30")
        assert "the event loop was held up" in json.loads(text)["error"]["what"]
        view.shedding.step = ShedStep.SLOW_VIEWERS
        async with streamed(client) as far:
            assert not far.closed
    assert view.shedding.viewers_refused == 1


@pytest.mark.parametrize(
    ("remote", "far"), [("127.0.0.1", False), ("::1", False), ("10.0.0.7", True), ("2001:db8::7", True), (None, True)]
)
def test_far_is_another_machine(remote: str | None, far: bool) -> None:
    assert stream.is_far(remote) is far


async def test_a_viewer_is_slowed_down() -> None:
    """Of nine ticks in nine seconds it gets the first only, and the one after ten."""
    view = await small_cluster()
    view.shedding.step = ShedStep.SLOW_VIEWERS
    async with door(view) as client, streamed(client) as socket:
        await socket.send_json({"table": "gpu", "columns": ["gpu_power_watts"], "every": 1})
        ticks = []
        for seq in range(1, 12):
            await view.tick(seq)
            if seq in {1, 11}:
                while True:
                    message = json.loads((await socket.receive(10)).data)
                    if message["type"] == "data":
                        break
                ticks.append(message["tick"])
            else:
                await asyncio.sleep(0)
    assert ticks[1] - ticks[0] >= 9


async def test_health_says_what_is_shed() -> None:
    view = await small_cluster()
    view.impairments.report("overloaded", "load/history", "messages wait")
    async with door(view) as client:
        status, body = await client.json("/healthz")
        assert (status, body["status"]) == (200, "impaired")
        assert body["impairments"][0]["part"] == "load/history"
        assert (await client.json("/readyz"))[0] == 200, "it is not blind"
