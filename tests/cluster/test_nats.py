"""Three real NATS servers keep what the protocol promises, also while one of them is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import nats
import pytest

from aggregator.cluster.nats import NatsCoordination
from aggregator.cluster.port import LEASE_SECONDS, Bucket, CoordinationError
from aggregator.settings.members import MembersConfig
from aggregator.site.leadership import Leadership
from aggregator.site.unfenced import UNFENCED_SECONDS
from tests.kit.waiting import within
from tests.nats_servers import NatsCluster

pytestmark = pytest.mark.systems


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    cluster = NatsCluster(tmp_path_factory.mktemp("nats"))
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture
async def pair(servers: NatsCluster) -> AsyncIterator[tuple[NatsCoordination, NatsCoordination]]:
    config = MembersConfig(nats=tuple(servers.urls), member="a")
    both = NatsCoordination(config, "lab.1"), NatsCoordination(config, "lab.1")
    await asyncio.wait_for(_ready(both[0]), 60)
    yield both
    for each in both:
        await each.close()


async def _ready(coordination: NatsCoordination) -> None:
    """Wait until the servers have elected a leader."""
    while True:
        try:
            await coordination.entries(Bucket.OWNERS)
        except CoordinationError:
            await asyncio.sleep(0.3)
        else:
            return


async def _patiently(make: object) -> object:
    """Repeat a call until the servers have a leader again."""
    for _ in range(60):
        try:
            return await make()  # type: ignore[operator]
        except CoordinationError:
            await asyncio.sleep(0.5)
    raise AssertionError("the servers did not come back")


async def test_no_reading_of_all_entries_lacks_any(pair: tuple[NatsCoordination, NatsCoordination]) -> None:
    """However busy this process is: an empty table would be taken for one that was lost."""
    a, b = pair
    keys = [f"{number:02x}" for number in range(256)]
    for key in keys:
        await _patiently(lambda key=key: a.put(Bucket.MARKS, key, b"x"))
    await a.put(Bucket.MARKS, "gone", b"x")
    await a.delete(Bucket.MARKS, "gone")
    for _ in range(30):
        many = await asyncio.gather(*(b.entries(Bucket.MARKS) for _ in range(4)))
        assert all(sorted(found) == keys for found in many)
    assert await b.entries(Bucket.CLAIMS) == {}


async def test_entries_log_and_requests(pair: tuple[NatsCoordination, NatsCoordination]) -> None:
    """What `tests/cluster/test_memory.py` asks of the fake holds for the servers."""
    a, b = pair
    first = await a.compare_and_set(Bucket.OWNERS, "2f", b"a", 0)
    assert first
    assert await b.compare_and_set(Bucket.OWNERS, "2f", b"b", 0) is None
    second: int | None = first
    async with b.watch(Bucket.OWNERS) as keys:
        hint = asyncio.ensure_future(anext(keys))
        for _ in range(60):  # the server of `a` may hear of the watch a moment later
            second = await a.compare_and_set(Bucket.OWNERS, "2f", b"b", second)
            await asyncio.wait([hint], timeout=1)
            if hint.done():
                break
        assert hint.done()
        assert hint.result() == "2f"
    for _ in range(60):  # a server may be some milliseconds behind
        if (found := await b.entries(Bucket.OWNERS)) == {"2f": (b"b", second)}:
            break
        await asyncio.sleep(0.5)
    assert found == {"2f": (b"b", second)}
    assert await b.read(Bucket.OWNERS, "30") is None
    await a.put(Bucket.LEADERS, "site", b"a")
    await a.delete(Bucket.LEADERS, "site")
    assert await b.entries(Bucket.LEADERS) == {}
    assert await b.compare_and_set(Bucket.LEADERS, "site", b"b", 0)

    # The stream has a leader of its own; what is appended again is known by its id.
    added = [await _patiently(lambda n=n: a.append("edges.a", b"%d" % n, f"id{n % 2}")) for n in range(3)]  # type: ignore[misc]
    assert added == [1, 2, 1]
    async with b.replay(1) as records:
        record = await asyncio.wait_for(anext(records), 10)
        assert (record.sequence, record.subject, record.payload) == (2, "edges.a", b"1")
    end = await b.log_end()
    assert end.sequence == 2
    born = await b.born(Bucket.CLAIMS)
    assert 0 < time.time_ns() - born < 10**9 * 3600
    assert born < end.born, "what the log tells was claimed in no other bucket"

    async def answer(payload: bytes) -> bytes:
        return payload + b"!"

    async with b.serve("ask.a", answer):
        assert await _patiently(lambda: a.request("ask.a", b"yes", 5.0)) == b"yes!"
    with pytest.raises(CoordinationError):
        await a.request("ask.nobody", b"", 1.0)


async def test_what_was_lost_and_is_made_anew_has_another_begin(
    servers: NatsCluster, pair: tuple[NatsCoordination, NatsCoordination]
) -> None:
    """Also for a member that has used it before, and that only looks."""
    a, b = pair
    await _patiently(lambda: a.put(Bucket.CLAIMS, "n-1.pager", b"sent"))
    await _patiently(lambda: a.append("lost.x", b"before", "l1"))
    before = await b.born(Bucket.CLAIMS), (await b.log_end()).born
    assert before == (await a.born(Bucket.CLAIMS), (await a.log_end()).born)
    async with await nats.connect(list(servers.urls)) as client:
        for name in ("KV_kw-lab_2e1-claims", "kw-lab_2e1-log"):
            await client.jetstream().delete_stream(name)
    after = [await _patiently(lambda: b.born(Bucket.CLAIMS)), await _patiently(b.log_end)]
    assert before[0] < after[0] < after[1].born  # type: ignore[operator, attr-defined]
    assert after[1].sequence == 0  # type: ignore[attr-defined]
    assert await _patiently(lambda: a.born(Bucket.CLAIMS)) == after[0]


async def test_entries_without_an_end_are_read_again_only_after_a_write(
    servers: NatsCluster, pair: tuple[NatsCoordination, NatsCoordination]
) -> None:
    """A second look at the owners costs no consumer; a write, or the removal of an entry, is seen."""
    a, b = pair

    async def seen(key: str) -> bytes | None:
        found = (await b.entries(Bucket.OWNERS)).get(key)
        return None if found is None else found.value

    def readers() -> set[str]:
        return {
            consumer["name"]
            for server in servers.servers
            for account in server.ask("jsz?consumers=1&accounts=1")["account_details"]
            for stream in account["stream_detail"]
            if stream["name"].endswith("-owners")
            for consumer in stream.get("consumer_detail") or ()
        }

    for value in (b"one", b"two", None):
        if value is None:
            await a.delete(Bucket.OWNERS, "77")
        else:
            await a.put(Bucket.OWNERS, "77", value)
        for _ in range(60):
            if await seen("77") == value:
                break
            await asyncio.sleep(0.2)
        assert await seen("77") == value
    before = readers()
    assert before
    for _ in range(3):
        await seen("77")
    assert readers() <= before


async def test_heartbeats_are_told_by_one_consumer_and_never_out_of_date(servers: NatsCluster) -> None:
    """Also where that consumer has ended without a word, or the whole bucket was lost and begins again."""
    config = MembersConfig(nats=tuple(servers.urls), member="a", dead_after_seconds=2)
    a, b = NatsCoordination(config, "beats"), NatsCoordination(config, "beats")
    name = "KV_kw-beats-members"

    async def round_of(number: int) -> dict[str, bytes]:
        await _patiently(lambda: b.put(Bucket.MEMBERS, "b", b"b%d" % number))
        await _patiently(lambda: a.put(Bucket.MEMBERS, "a", b"a%d" % number))
        return {key: one.value for key, one in (await a.entries(Bucket.MEMBERS)).items()}

    async with await nats.connect(list(servers.urls)) as client:
        js = client.jetstream()

        async def consumers() -> set[str]:
            return {one.name for one in await js.consumers_info(name)}

        await round_of(0)
        before = await consumers()
        for number in range(1, 5):
            assert await round_of(number) == {"a": b"a%d" % number, "b": b"b%d" % number}
        assert await consumers() == before
        for consumer in before:
            await js.delete_consumer(name, consumer)
        assert await round_of(5) == {"a": b"a5", "b": b"b5"}
        await js.delete_stream(name)
        assert await round_of(6) == {"a": b"a6", "b": b"b6"}
        async with within():  # `b` says no more
            while set(await a.entries(Bucket.MEMBERS)) != {"a"}:
                await a.put(Bucket.MEMBERS, "a", b"a7")
                await asyncio.sleep(0.2)
        await round_of(8)
        await b.delete(Bucket.MEMBERS, "b")
        await a.put(Bucket.MEMBERS, "a", b"a9")
        assert set(await a.entries(Bucket.MEMBERS)) == {"a"}
    await a.close()
    await b.close()


async def test_a_reader_of_the_log_outlives_the_leader_of_it(
    servers: NatsCluster, pair: tuple[NatsCoordination, NatsCoordination]
) -> None:
    """The server with the consumer of the replay may be the one that is killed."""
    a, b = pair
    async with b.replay(0, "outlive.>") as records:
        await _patiently(lambda: a.append("outlive.x", b"before", "o1"))
        assert (await asyncio.wait_for(anext(records), 20)).payload == b"before"
        victim = servers.stream_leader("kw-lab_2e1-log")
        victim.kill()
        await _patiently(lambda: a.append("outlive.x", b"after", "o2"))
        assert (await asyncio.wait_for(anext(records), 60)).payload == b"after"
        victim.start()


async def test_the_lease_can_t_be_read_without_a_quorum(
    servers: NatsCluster, pair: tuple[NatsCoordination, NatsCoordination]
) -> None:
    """No server answers from its own copy: a member notices that there is no quorum, and pages unfenced."""
    leadership = Leadership(pair[0], "quorum", "a", 1, lease_seconds=LEASE_SECONDS, clock=time.monotonic)
    await _patiently(leadership.look)
    assert leadership.failing_since is None
    gone = servers.servers[:2]
    for server in gone:
        server.kill()
    try:
        async with within(90):  # a server that leads goes on to answer for ten seconds
            while True:
                since = leadership.failing_since
                if since is not None and time.monotonic() - since >= UNFENCED_SECONDS:
                    break
                await leadership.step()
    finally:
        for server in gone:
            server.start()
    await _patiently(leadership.look)
    assert leadership.failing_since is None
