"""The coordination service of the tests keeps what its protocol promises."""

from __future__ import annotations

import asyncio

import pytest

from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import Bucket, Coordination, CoordinationError


class Time:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def servers(clock: Time) -> MemoryServers:
    return MemoryServers(clock, {Bucket.MEMBERS: 10.0})


async def test_one_of_two_writes_of_a_revision_is_refused(servers: MemoryServers) -> None:
    """Compare-and-set is all that keeps two members from one epoch."""
    a: Coordination = servers.connect("a")
    b: Coordination = servers.connect("b")
    first = await a.compare_and_set(Bucket.OWNERS, "2f", b"a", 0)
    assert first is not None
    assert await b.compare_and_set(Bucket.OWNERS, "2f", b"b", 0) is None
    assert await b.compare_and_set(Bucket.OWNERS, "2f", b"b", first) == first + 1
    assert (await a.entries(Bucket.OWNERS))["2f"] == (b"b", first + 1)


async def test_heartbeats_end_and_owners_stay(servers: MemoryServers, clock: Time) -> None:
    """A dead member is gone from the list; what it held is still written down."""
    a = servers.connect("a")
    await a.put(Bucket.MEMBERS, "a", b"")
    await a.put(Bucket.OWNERS, "2f", b"a")
    clock.now = 10.0
    assert await a.entries(Bucket.MEMBERS) == {}
    assert list(await a.entries(Bucket.OWNERS)) == ["2f"]


async def test_the_log_has_each_id_once_and_is_read_from_any_number(servers: MemoryServers) -> None:
    """A publisher that got no answer repeats the message under its id."""
    a, b = servers.connect("a"), servers.connect("b")
    assert [await a.append("edges.a", b"%d" % n, f"id{n % 2}") for n in range(3)] == [1, 2, 1]
    async with b.replay(1) as records:
        assert (await anext(records)).payload == b"1"
        waiting = asyncio.ensure_future(anext(records))
        await a.append("edges.a", b"new", "id2")
        assert (await waiting).payload == b"new"
    assert await b.log_end() == (0, 3)


async def test_what_is_lost_begins_at_another_time(servers: MemoryServers, clock: Time) -> None:
    """Only so does a member see that entries that are missing were lost."""
    a = servers.connect("a")
    await a.append("edges.a", b"", "1")
    assert (await a.born(Bucket.CLAIMS), await a.log_end()) == (0, (0, 1))
    clock.now = 7.0
    servers.wipe()
    assert (await a.born(Bucket.CLAIMS), await a.log_end()) == (7 * 10**9, (7 * 10**9, 0))


async def test_messages_need_no_quorum_and_entries_do(servers: MemoryServers) -> None:
    """A beacon is heard while two of three servers are gone."""
    a, b = servers.connect("a"), servers.connect("b")
    heard: list[bytes] = []

    async def hear(payload: bytes) -> bytes:
        heard.append(payload)
        return b"yes"

    servers.no_quorum = True
    async with b.serve("beacon.>", hear):
        await a.publish("beacon.site", b"1")
        assert await a.request("beacon.site", b"2", 1.0) == b"yes"
        servers.cut_off.add("b")
        with pytest.raises(CoordinationError):
            await a.request("beacon.site", b"3", 1.0)
    assert heard == [b"1", b"2"]
    with pytest.raises(CoordinationError, match="quorum"):
        await a.entries(Bucket.OWNERS)


async def test_a_watcher_gets_a_hint_of_each_write(servers: MemoryServers) -> None:
    """A member reads the table at once instead of at its next heartbeat."""
    a, b = servers.connect("a"), servers.connect("b")
    async with b.watch(Bucket.OWNERS) as keys:
        await a.put(Bucket.OWNERS, "2f", b"a")
        assert await anext(keys) == "2f"
