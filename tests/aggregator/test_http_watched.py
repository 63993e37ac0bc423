"""What Prometheus' rules look at beside readings: events, silence, clocks, and why a GPU is unread."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aggregator.http.rule_input_metrics import MOST_KINDS
from telemetry.devices import Event
from telemetry.gap import DEVICE_LOST
from telemetry.metric import Table
from telemetry.wire.schema import SCHEMA
from tests.aggregator.fake_view import START, FakeView, readings
from tests.aggregator.http_client import Door, door, small_cluster

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def read(client: Door, path: str) -> Series:
    """The series of a page that are not readings."""
    status, text, _ = await client.text(path)
    assert status == 200
    return {
        (sample.name.removeprefix("kilowatch_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(("kilowatch_event", "kilowatch_node_", "kilowatch_gpu_unread"))
    }


def xid(number: int, at: int, name: str) -> Event:
    """An XID of the second GPU of n1."""
    return Event(id=name, node="n1", at=at, kind="xid", gpu="GPU-n1-1", data={"xid": number})


async def test_an_event_stands_there_with_its_meaning_and_the_second_in_which_it_last_came() -> None:
    view = await small_cluster()
    view.happened = [xid(79, START, "7-1")]
    async with door(view) as client:
        its = {
            ("cluster", "lab"), ("node", "n1"), ("gpu", "1"), ("uuid", "GPU-n1-1"),
            ("kind", "xid"), ("code", "79"), ("fault", "gpu_lost"), ("severity", "page"),
        }  # fmt: skip
        key = "event_timestamp_seconds", frozenset(its)
        found = await read(client, "/metrics/node/n1")
        assert found[key] == START / 1e9
        view.happened = [xid(13, START, "7-3"), xid(79, START + 5 * 10**9, "7-2"), *view.happened]
        found = await read(client, "/metrics/nodes")
        assert found[key] == START / 1e9 + 5
        assert sum(name == "event_timestamp_seconds" for name, _ in found) == 2
        # Later ones have pushed it out of the memory of recent events; it is known all the same.
        view.happened = [xid(13, START, "7-4")]
        found = await read(client, "/metrics/node/n1?labels=device")
        bare = frozenset(its - {("cluster", "lab"), ("node", "n1")})
        assert found["event_timestamp_seconds", bare] == START / 1e9 + 5
        assert not [1 for name, _ in await read(client, "/metrics/node/n2") if name == "event_timestamp_seconds"]


async def test_a_flood_of_kinds_is_bounded() -> None:
    view = await small_cluster()
    view.happened = [xid(1000 + number, START + number, f"7-{number}") for number in range(200)]
    async with door(view) as client:
        found = await read(client, "/metrics/node/n1")
        assert sum(name == "event_timestamp_seconds" for name, _ in found) == MOST_KINDS


async def test_a_gpu_that_is_unread_says_why_and_a_node_says_how_it_stands() -> None:
    view = await small_cluster()
    what = view.fleet.nodes["n1"].inventory
    lost = readings(what, 0)
    for number, block in enumerate(SCHEMA.blocks):
        if block.table is Table.GPU:
            lost[number][1] = [DEVICE_LOST] * len(block.names)
    view.put("n1", lost, 99)
    await view.flush()
    async with door(view) as client:
        found = await read(client, "/metrics/node/n1")
        node = frozenset({("cluster", "lab"), ("node", "n1")})
        unread = [dict(its) for name, its in found if name == "gpu_unread"]
        assert [(its["gpu"], its["reason"]) for its in unread] == [("1", "device_lost")]
        assert found["node_ended", node] == 0
        assert found["node_frame_interval_seconds", node] == view.fleet.nodes["n1"].interval
        skew = found["node_clock_skew_seconds", node]
        view.fleet.nodes["n1"].sampled_at += 7 * 10**9
        found = await read(client, "/metrics/node/n1")
        assert found["node_clock_skew_seconds", node] == pytest.approx(skew + 7, abs=0.01)
        end(view)
        found = await read(client, "/metrics/node/n1")
        assert found["node_ended", node] == 1
        assert not [1 for name, _ in found if name == "gpu_unread"]


def end(view: FakeView) -> None:
    """The collector of n1 says goodbye."""
    node = view.fleet.nodes["n1"]
    node.online, node.ended = False, True
