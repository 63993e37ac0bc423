"""Several brokers: while one of the list lets everybody in, nothing that was sampled is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.impairments import SHOWN, Impairments
from aggregator.ingest import sequence
from aggregator.mqtt.broker_watch import BrokerWatch
from aggregator.mqtt.client import FanInClient, filters
from api.stats import Stats
from collector.service import Linger
from kilowatch.doctor.checks import brokers as check_brokers
from kilowatch.settings import load
from telemetry.errors import BusError, ConfigError
from telemetry.text.connection_faults import NOBODY
from telemetry.wire.inventory import CommandKind
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from telemetry.wire.topics import Topic, shard_of, topic
from tests.aggregator.node import ScriptedNode
from tests.aggregator.test_service import config, running
from tests.brokers import Broker, Mosquitto, free_port, plain_client
from tests.collector.bus import NODE, collecting, config_of
from tests.fakes import FakeSource
from tests.kit.waiting import until, within


@pytest.fixture
def pair(mosquitto: Mosquitto, tmp_path: Path) -> Iterator[tuple[Mosquitto, Mosquitto]]:
    """Two mosquittos that share no messages; only the first runs."""
    folder = tmp_path / "second"
    folder.mkdir()
    second = Mosquitto(folder)
    yield mosquitto, second
    second.kill()


class Deaf(ScriptedNode):
    """A node whose inventory is unknown until it hears a command, of which the bus loses some."""

    def __init__(self, broker: BrokerConfig, name: str, deaf_to: int) -> None:
        super().__init__(broker, name)
        self._deaf_to = deaf_to

    async def hello(self) -> None:
        if len(self.commands) > self._deaf_to:
            await super().hello()


def both(pair: tuple[Mosquitto, Mosquitto]) -> BrokerConfig:
    return BrokerConfig(hosts=tuple(f"127.0.0.1:{one.port}" for one in pair))


async def more_frames(stats: Stats, count: int) -> None:
    """Wait until so many more have come."""
    before = stats.frames_received
    await until(lambda: stats.frames_received > before + count)


async def test_two_brokers_die_in_turn_and_no_frame_is_lost(pair: tuple[Mosquitto, Mosquitto], tmp_path: Path) -> None:
    """A real collector and a real aggregator follow each other; the ring refills what fell between."""
    first, second = pair
    broker = both(pair)
    async with running(config(broker, tmp_path / "data")) as aggregator:
        stats = aggregator.stats
        linger = Linger()
        async with collecting(config_of(broker, tmp_path), FakeSource(), linger) as collector:
            await until(lambda: stats.frames_stored > 20)
            for dying, next_one in ((first, second), (second, first)):
                dying.kill()
                await until(lambda: not stats.bus_connected)
                next_one.start()
                await more_frames(stats, 20)
            collector.stop.set()
            # Whoever has ended answers no request for frames that fell between.
            await until(lambda: stats.frames_stored == linger.frames)
            summary = await collector.end()
        assert stats.frames_stored == summary.frames
        assert stats.frames_lost == 0
        assert stats.frames_backfilled > 0
        assert stats.bus_connects == 3
        assert list(aggregator.fleet.nodes) == [NODE]


async def test_a_lost_command_is_sent_again(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are at QoS 0: neither a request for frames nor one for an inventory needs more."""
    monkeypatch.setattr(sequence, "REQUEST_INVENTORY_EVERY", 0.2)
    async with (
        running(config(broker.config, tmp_path / "data")) as aggregator,
        ScriptedNode(broker.config, "a") as node,
        plain_client(broker.config) as bus,
    ):
        await bus.subscribe(topic("default", "a", Topic.COMMAND), qos=1)

        def requests() -> int:
            return sum(each.kind is CommandKind.RESEND for each in node.commands)

        node.silent = True
        for number in range(5):
            await node.tick(lost=number == 2)
        await until(lambda: requests() >= 3)
        assert aggregator.stats.frames_stored < 5
        node.silent = False
        await until(lambda: aggregator.stats.frames_stored == 5)
        assert aggregator.stats.frames_lost == 0
        message = await asyncio.wait_for(anext(aiter(bus.messages)), 20)
        if isinstance(broker, Mosquitto):  # the embedded one delivers at the subscriber's QoS
            assert message.qos == 0
        async with Deaf(broker.config, "b", deaf_to=2) as deaf:
            async with within():
                while "b" not in aggregator.fleet.nodes:
                    await deaf.tick()
                    await asyncio.sleep(0.02)
            assert [each.kind for each in deaf.commands[:3]] == [CommandKind.INVENTORY] * 3


async def test_shards_come_and_go_with_one_subscription_each(broker: Broker) -> None:
    """By kinds, half of a cluster was 896 subscriptions. Nodes elsewhere are not heard."""
    half = [f"{number:02x}" for number in range(128)]
    assert len(filters("default", half)) == 128
    ours = next(name for name in map(str, range(99)) if shard_of(name) in half)
    other = next(name for name in map(str, range(99)) if shard_of(name) not in half)
    heard: list[str] = []
    stats = Stats()
    client = FanInClient(broker.config, "default", None, lambda topic, _: heard.append(topic.split("/")[4]), stats)
    running = asyncio.create_task(client.run())
    async with ScriptedNode(broker.config, other) as elsewhere, ScriptedNode(broker.config, ours) as node:
        await until(lambda: stats.bus_connected)
        assert await client.add_shards(half)
        await elsewhere.tick()
        await node.tick()
        await until(lambda: ours in heard)
        client.remove_shards(half)
        assert await client.add_shards([shard_of(other)])
        heard.clear()
        await node.tick()
        await elsewhere.tick()
        await until(lambda: other in heard)
        assert set(heard) == {other}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_message_that_raises_costs_neither_its_connection_nor_the_next(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    stats, kinds = Stats(), list[str]()

    def receive(topic: str, _: bytes) -> None:
        kinds.append(topic.rpartition("/")[2])
        if kinds.count("frame") == 1 and kinds[-1] == "frame":
            raise RuntimeError("of ours")

    client = FanInClient(broker.config, "default", (), receive, stats)
    running = asyncio.create_task(client.run())
    async with ScriptedNode(broker.config, "a") as node:
        await until(lambda: "inventory" in kinds)  # subscribed
        for _ in range(3):
            await node.tick()
        await until(lambda: kinds.count("frame") == 3)
    assert stats.bus_connects == 1
    assert "of ours" in caplog.text
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_client_says_which_broker_it_uses_and_which_it_passed_over(
    mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    here, gone = f"127.0.0.1:{mosquitto.port}", f"127.0.0.1:{free_port()}"
    with caplog.at_level(logging.WARNING):
        async with connect(BrokerConfig(hosts=(gone, here)), client_id("test")) as client:
            assert client.address == here
    assert f"MQTT broker {gone}: " in caplog.text
    assert f"{here} is used instead" in caplog.text
    caplog.clear()
    async with connect(BrokerConfig(hosts=(here, gone)), client_id("test")) as client:
        assert client.address == here
    assert "instead" not in caplog.text


async def test_an_error_names_every_broker_when_none_lets_us_in() -> None:
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    with pytest.raises(BusError) as found:
        async with connect(BrokerConfig(hosts=tuple(places)), client_id("test")):
            pass
    assert all(place in str(found.value) for place in places)
    client = FanInClient(BrokerConfig(hosts=tuple(places)), "default", (), lambda *_: None, Stats())
    with pytest.raises(BusError) as found:
        await client._session()
    assert all(place in str(found.value) for place in places)


async def test_a_broker_that_accepts_and_closes_is_passed_over(mosquitto: Mosquitto) -> None:
    """A load balancer without a broker behind it is no broker either."""

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    broker = BrokerConfig(hosts=(f"127.0.0.1:{port}", f"127.0.0.1:{mosquitto.port}"))
    stats = Stats()
    client = FanInClient(broker, "default", (), lambda *_: None, stats)
    task = asyncio.create_task(client.run())
    try:
        await until(lambda: stats.bus_connected)
        async with connect(broker, client_id("test")) as other:
            assert other.address == f"127.0.0.1:{mosquitto.port}"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        server.close()


async def test_an_error_of_a_connection_is_not_taken_for_one_of_connecting(mosquitto: Mosquitto) -> None:
    """What breaks while it is used is not tried again behind the user's back."""
    here = f"127.0.0.1:{mosquitto.port}"
    entered: list[str] = []

    async def use() -> None:
        broker = BrokerConfig(hosts=(here, f"localhost:{mosquitto.port}"))
        async with connect(broker, client_id("test")) as client:
            entered.append(client.address)
            raise BusError("gone")

    with pytest.raises(BusError, match="gone"):
        await use()
    assert entered == [here]


async def test_doctor_tries_each_and_warns_of_one_that_is_gone(mosquitto: Mosquitto) -> None:
    here, gone = f"127.0.0.1:{mosquitto.port}", f"127.0.0.1:{free_port()}"
    dead, alive = await check_brokers(BrokerConfig(hosts=(gone, here)))
    assert (dead.level, alive.level) == ("warning", "ok")
    assert gone in dead.text
    assert "another of broker.hosts is used" in dead.text
    assert dead.cure
    (alone,) = await check_brokers(BrokerConfig(hosts=(gone,)))
    assert alone.level == "fault"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[broker]\nhosts = ["a:1883"]\nhost = "127.0.0.1"\n', r"broker\.hosts: .*beside host.*remove host"),
        ('[broker]\nhosts = ["a:1883"]\nport = 1883\n', r"broker\.hosts: .*beside host"),
        ('[broker]\nhosts = ["a:1883"]\n[collector.broker]\nport = 9\n', r"collector\.broker\.hosts"),
        ('[broker]\nhosts = ["a"]\n', r"'a' is no address.*Write host:port"),
        ('[broker]\nhosts = ["a:0"]\n', "'a:0' is no address"),
        ('[broker]\nhosts = [":1883"]\n', "':1883' is no address"),
        ('[broker]\nhosts = ["::1:1883"]\n', "'::1:1883' is no address"),
        ('[broker]\nhosts = ["a:1883", "a:1883"]\n', "there twice"),
    ],
)
def test_what_is_no_list_of_brokers_is_an_error_with_its_remedy(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "kilowatch.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        load(file, {})


def test_a_list_holds_for_both_sides_unless_one_has_its_own(tmp_path: Path) -> None:
    file = tmp_path / "kilowatch.toml"
    file.write_text('[broker]\nhosts = ["a:1883", "[::1]:8883"]\nkeepalive = 7\n[aggregator.broker]\nhost = "near"\n')
    found = load(file, {})
    assert [(one.host, one.port) for one in found.collector.broker.each()] == [("a", 1883), ("::1", 8883)]
    assert {one.keepalive for one in found.collector.broker.each()} == {7}
    (near,) = found.aggregator.broker.each()
    assert (near.host, near.port, near.keepalive) == ("near", 1883, 7)
    flags = {"broker.host": "c", "broker.port": 5, "broker.hosts": []}  # as --broker c:5 does
    assert [(one.host, one.port) for one in load(file, {}, flags).broker.each()] == [("c", 5)]


async def test_a_broker_of_the_list_that_is_gone_is_known_before_it_is_needed(
    pair: tuple[Mosquitto, Mosquitto],
) -> None:
    """The one in use is known by its connection, and is not tried."""
    now = [100.0]
    known, brokers = Impairments(clock=lambda: now[0]), both(pair)
    first, second = brokers.hosts
    used = [first]
    watch = BrokerWatch(brokers, known, lambda: used[0])

    async def said() -> dict[str, str]:
        await watch.check()
        now[0] += SHOWN + 1
        return {one.part: one.reason for one in known.current() if one.rule == "broker_lost"}

    reason = f"{NOBODY}; {first} is used"
    assert await said() == {f"broker/{second}": reason}
    pair[1].start()
    assert await said() == {}
    pair[0].kill()
    assert await said() == {}, "the connection says so"
    used[0] = ""
    assert await said() == {f"broker/{first}": NOBODY}
    used[0] = second
    assert await said() == {f"broker/{first}": f"{NOBODY}; {second} is used"}


async def test_a_broker_without_tls_is_no_broker_where_tls_is_set(mosquitto: Mosquitto) -> None:
    hosts = (f"127.0.0.1:{mosquitto.port}", f"127.0.0.1:{free_port()}")
    known = Impairments()
    watch = BrokerWatch(BrokerConfig(hosts=hosts, tls=True), known, lambda: hosts[1])
    await watch.check()
    (found,) = known.current()
    assert (found.part, found.whole) == (f"broker/{hosts[0]}", False)
    assert found.reason.startswith(("it does not speak TLS", "it closed the connection"))


async def test_an_aggregator_with_a_dead_standby_works_and_says_so(
    pair: tuple[Mosquitto, Mosquitto], tmp_path: Path
) -> None:
    async with (
        running(config(both(pair), tmp_path)) as aggregator,
        ScriptedNode(BrokerConfig(port=pair[0].port), "a") as node,
    ):
        await until(lambda: [one.rule for one in aggregator.impairments.current()] == ["broker_lost"])
        await node.tick()
        await until(lambda: aggregator.stats.frames_received > 0)
        assert aggregator.stats.bus_connected
