"""The fleet as it was, over HTTP: real ingest, a real store, a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from aggregator.store.executor import StoreExecutor
from api.columns import PackedFramesReply
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.fake_view import FakeView
from tests.aggregator.feed import ARRIVAL, HOUR, Feed
from tests.aggregator.http_client import Door, door
from tests.aggregator.node import GAP_COLUMN, expected, inventory, sampled_at

SECOND = 10**9
NAMES = SCHEMA.blocks[GPU_FAST].names
POWER = NAMES.index("gpu_power_watts")


class Fed(FakeView):
    """A view of what a feed has: its fleet and its store."""

    def __init__(self, feed: Feed) -> None:
        super().__init__("default")
        self.feed = feed
        self.reopen()

    def now(self) -> float:
        """The feed's clock."""
        return self.feed.now

    def wall(self) -> int:
        """The feed's too."""
        return self.feed.wall

    def reopen(self) -> None:
        """At the beginning, and after a restart of the feed."""
        self.fleet, self.store = self.feed.fleet, StoreExecutor(self.feed.store, self.stats)


@pytest.fixture
async def past(tmp_path: Path) -> AsyncIterator[tuple[Door, Fed]]:
    """Node a from the beginning, node b from second 40 on, GPU 1 of node c gone since; it is second
    90 now."""
    feed = Feed(tmp_path / "data")
    feed.wall = sampled_at(0)
    for name in ("a", "c"):
        feed.hello(name)
        feed.send(name, *range(20), *range(30, 60 if name == "c" else 90))
    feed.commit()
    feed.wall = sampled_at(40)
    feed.hello("b")
    feed.send("b", *range(40, 90))
    feed.commit()
    feed.wall = sampled_at(90)
    feed.inventory(inventory("c", 1, version=1))
    feed.commit()
    view = Fed(feed)
    async with door(view) as client:
        yield client, view


def at(seq: int) -> str:
    """A time of a query."""
    return str(sampled_at(seq) // SECOND)


def column(body: Any, name: str = "gpu_power_watts") -> dict[str, float | None]:
    """One column by UUID."""
    return dict(zip(body["rows"]["uuid"], body["columns"][name], strict=True))


async def test_the_fleet_at_a_past_time_is_what_was_read_then(past: tuple[Door, Fed]) -> None:
    """In the form of the answer for now; `at` is the time that was asked for."""
    client, _ = past
    status, now = await client.json("/api/v1/fleet")
    status, body = await client.json(f"/api/v1/fleet?at={at(50)}&columns=gpu_power_watts")
    assert status == 200
    assert body.keys() == now.keys()
    assert (body["at"], body["version"]) == (sampled_at(50), 0)
    assert column(body) == {
        f"GPU-{node}-{row}": expected(node, row, [50])[0, POWER] for node in "acb" for row in range(2)
    }
    assert body["of"] == body["reporting"] == 6
    assert body["rows"]["present"] == [True] * 6
    assert set(body["rows"]["name"]) == {"NVIDIA Test 80GB"}


async def test_a_time_may_be_relative(past: tuple[Door, Fed]) -> None:
    """-40s is second 50."""
    client, _ = past
    _, body = await client.json("/api/v1/fleet?at=-40s&columns=gpu_power_watts")
    assert body["at"] == sampled_at(50)
    assert column(body)["GPU-a-1"] == expected("a", 1, [50])[0, POWER]


async def test_who_came_later_is_no_row_and_who_is_gone_is_one(past: tuple[Door, Fed]) -> None:
    """Today there is b, and no second GPU of c; then it was the other way round."""
    client, view = past
    assert "GPU-c-1" not in view.fleet.by_uuid
    _, body = await client.json(f"/api/v1/fleet?at={at(10)}")
    assert set(body["rows"]["node"]) == {"a", "c"}
    assert {"GPU-c-0", "GPU-c-1"} < set(body["rows"]["uuid"])


async def test_what_was_stale_then_is_a_gap_with_its_reason(past: tuple[Door, Fed]) -> None:
    """Never an old number: two seconds after the last frame it holds, three seconds after not."""
    client, _ = past
    name = NAMES[GAP_COLUMN]
    _, body = await client.json(f"/api/v1/fleet?at={at(21)}&columns=gpu_power_watts,{name}")
    assert column(body)["GPU-a-0"] == expected("a", 0, [19])[0, POWER]
    # Without a reason for those that are not read today: the store has none.
    assert body["gaps"][name] == {"*": "unknown", "0": "not_supported", "1": "not_supported"}
    _, body = await client.json(f"/api/v1/fleet?at={at(25)}&columns=gpu_power_watts")
    assert set(column(body).values()) == {None}
    assert body["gaps"]["gpu_power_watts"] == {"*": "stale"}
    assert (body["of"], body["reporting"]) == (3, 0)  # a GPU that is gone, and was silent, is none


async def test_several_frames_have_the_same_rows(past: tuple[Door, Fed]) -> None:
    """Who came in the midst of it had not been read before."""
    client, _ = past
    _, body = await client.json(
        f"/api/v1/fleet/frames?from={at(36)}&to={at(44)}&step=2s&columns=gpu_power_watts&node=a,b"
    )
    assert [frame["at"] for frame in body["frames"]] == [sampled_at(n) for n in range(36, 44, 2)]
    assert body["rows"]["node"] == ["a", "a", "b", "b"]
    got = [frame["columns"]["gpu_power_watts"] for frame in body["frames"]]
    assert got == [
        [
            *(expected("a", row, [seq])[0, POWER] for row in range(2)),
            *(expected("b", row, [seq])[0, POWER] if seq >= 40 else None for row in range(2)),
        ]
        for seq in range(36, 44, 2)
    ]
    assert body["frames"][0]["gaps"] == {"gpu_power_watts": {"*": "not_read"}}
    assert body["frames"][3]["gaps"] == {}
    assert [frame["reporting"] for frame in body["frames"]] == [2, 2, 4, 4]


@pytest.mark.parametrize("table", ["gpu", "node"])
async def test_it_is_the_same_after_sealing_and_a_restart(past: tuple[Door, Fed], table: str) -> None:
    """Wherever the readings are by then."""
    client, view = past
    metric = "gpu_power_watts" if table == "gpu" else "node_load_1m"
    path = f"/api/v1/fleet/frames?table={table}&columns={metric}&from={at(15)}&to={at(75)}&step=5s"
    _, before = await client.json(path)
    assert before["of"] == {"gpu": 6, "node": 3}[table]
    view.feed.wall += HOUR
    view.feed.seal()
    _, sealed = await client.json(path)
    view.feed.reopen()
    view.reopen()
    _, again = await client.json(path)
    for body in (sealed, again):
        rows = body["rows"]["uuid" if table == "gpu" else "node"]
        assert sorted(rows) == sorted(before["rows"]["uuid" if table == "gpu" else "node"])
        for one, other in zip(before["frames"], body["frames"], strict=True):
            assert one["reporting"] == other["reporting"]
            assert sorted(map(str, one["columns"][metric])) == sorted(map(str, other["columns"][metric]))


async def test_before_anything_was_stored_there_is_nobody(past: tuple[Door, Fed]) -> None:
    """Not even a row: they all came later."""
    client, _ = past
    status, body = await client.json("/api/v1/fleet?at=2020-01-01T00:00:00Z")
    assert status == 200
    assert (body["of"], body["reporting"], body["rows"]["uuid"]) == (0, 0, [])
    assert ARRIVAL > 0


async def test_a_node_that_is_gone_today_has_a_past(past: tuple[Door, Fed]) -> None:
    """By its name; an unknown name is a 404."""
    client, view = past
    view.fleet.remove("c")
    _, body = await client.json(f"/api/v1/fleet?at={at(50)}&node=c&columns=gpu_power_watts")
    assert column(body) == {f"GPU-c-{n}": expected("c", n, [50])[0, POWER] for n in range(2)}
    status, body = await client.json(f"/api/v1/fleet?at={at(50)}&node=d")
    assert (status, body["error"]["where"]) == (404, "node")


@pytest.mark.parametrize(
    ("query", "where", "said"),
    [
        ("fleet?at=yesterday", "at", "not a time"),
        ("fleet?at=2050-01-01T00:00:00Z", "at", "in the future"),
        ("fleet?at=-1m&columns=gpu_powr", "columns", "not known"),
        ("fleet?at=-1m&table=rack", "table", "not known"),
        ("fleet/frames?step=0", "step", "more than 0"),
        ("fleet/frames?from=-1d&step=1s", "step", "1000 frames"),
        ("fleet/frames?from=now&to=-1m", "from", "not before"),
        ("fleet/frames?from=2050-01-01T00:00:00Z&to=2050-01-01T00:01:00Z", "from", "in the future"),
        ("fleet/frames?step=soon", "step", "not a duration"),
        ("fleet/frames?at=-1m", "query at", "not known"),
    ],
)
async def test_a_question_that_can_not_be_answered_says_why(
    past: tuple[Door, Fed], query: str, where: str, said: str
) -> None:
    """Place, fault, cure."""
    client, _ = past
    status, body = await client.json(f"/api/v1/{query}")
    assert (status, body["error"]["where"]) == (400, where)
    assert said in body["error"]["what"]


async def test_too_much_at_once_is_refused_before_the_store_is_asked(
    past: tuple[Door, Fed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the number, and what to ask for instead."""
    client, _ = past
    monkeypatch.setattr("aggregator.http.past.MOST_CELLS", 100)
    status, body = await client.json("/api/v1/fleet/frames?from=-1m&step=1s")
    assert (status, body["error"]["where"]) == (400, "columns")
    assert "1,800 readings are more than 100" in body["error"]["what"]
    assert "fewer" in body["error"]["cure"]


async def test_the_page_of_a_node_and_of_a_gpu_is_of_then(past: tuple[Door, Fed]) -> None:
    """All readings of the instant; a node that was silent is said to be."""
    client, view = past
    status, body = await client.json(f"/api/v1/nodes/a?at={at(50)}")
    assert status == 200
    assert (body["at"], body["node"]["state"], body["node"]["age_seconds"]) == (sampled_at(50), "online", 0.0)
    _, today = await client.json("/api/v1/nodes/a")
    assert body.keys() == today.keys()
    table = expected("a", 1, [50])[0]
    readings = body["gpus"][1]["readings"]
    for column, name in enumerate(NAMES):
        assert readings.get(name) == (None if column == GAP_COLUMN else table[column]), name
    assert body["gpus"][1]["gaps"][NAMES[GAP_COLUMN]] == "not_supported"
    _, body = await client.json(f"/api/v1/gpus/GPU-a-1?at={at(50)}")
    assert body["readings"]["gpu_power_watts"] == table[POWER]
    assert body["node"]["state"] == "online"
    _, body = await client.json(f"/api/v1/nodes/a?at={at(25)}")
    assert body["node"]["state"] == "stale"
    assert body["gpus"][0]["readings"] == {}
    _, body = await client.json(f"/api/v1/gpus/GPU-b-0?at={at(10)}")  # it was not there yet
    assert (body["readings"], body["gaps"]) == ({}, {})
    for path in (f"nodes/d?at={at(10)}", f"gpus/GPU-x?at={at(10)}"):
        assert (await client.json(f"/api/v1/{path}"))[0] == 404
    assert (await client.json("/api/v1/nodes/a?at=soon"))[0] == 400
    assert view.feed.stats.frames_stored > 0


async def test_frames_say_where_the_store_begins_and_may_be_packed(past: tuple[Door, Fed]) -> None:
    """The same numbers in a quarter of the bytes."""
    client, view = past
    path = f"/api/v1/fleet/frames?from={at(15)}&to={at(45)}&step=5s"
    _, plain = await client.json(path)
    async with client.session.get(f"{client.url}{path}&packed=true") as answer:
        assert answer.content_type == "application/msgpack"
        small = msgspec.msgpack.decode(await answer.read(), type=PackedFramesReply)
    assert plain["begins"] == small.begins == sampled_at(0)
    assert small.rows.uuid == plain["rows"]["uuid"]
    for one, other in zip(plain["frames"], small.frames, strict=True):
        assert (one["at"], one["gaps"]) == (other.at, other.gaps)
        for name, values in one["columns"].items():
            got = np.frombuffer(other.columns[name], "<f4")
            wanted = np.array(values, np.float64).astype(np.float32)
            np.testing.assert_array_equal(got, wanted)
    view.feed.wall += HOUR
    view.feed.seal()
    _, sealed = await client.json(path)
    assert sealed["begins"] == sampled_at(0)
    assert (await client.json(f"{path}&packed=yes"))[0] == 400
