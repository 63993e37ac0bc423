"""`kilowatch cluster nats-config`: what it refuses, and three real nats-servers that run what it wrote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import aiomqtt
import pytest
from click.testing import CliRunner, Result

from kilowatch.__main__ import main
from kilowatch.exit_codes import ExitCode
from kilowatch.pki.nats_configuration import CLIENT_PORT, MONITOR_PORT, ROUTE_PORT, check_version, subject
from telemetry.errors import BusError, ConfigError
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from telemetry.wire.topics import Topic, topic
from tests.brokers import free_port
from tests.kit.waiting import FACTOR, within

CLUSTER, NODE, OTHER, AGGREGATOR = "hall.1", "dgx.01", "dgx02", "kilowatch-aggregator"
MQTT_PORT = 8883
NATS_SERVER = Path(sys.executable).parent / "nats-server"
PATIENCE = 60.0


def cluster(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["cluster", "nats-config", "--folder", str(folder), *arguments])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with two nodes and an aggregator, whose servers are on this machine."""
    folder = tmp_path_factory.mktemp("authority") / "pki"
    for words in (
        ("init", "--cluster", CLUSTER, "--broker", "127.0.0.1", "--broker-folder", f"{folder}/broker"),
        ("node", NODE, OTHER),
        ("aggregator",),
    ):
        done = CliRunner().invoke(main, ["pki", words[0], "--folder", str(folder), *words[1:]])
        assert done.exit_code == 0, done.output
    return folder


def three(first: int) -> list[str]:
    """Return the arguments for three servers on this machine, from a port on."""
    return [word for number in range(3) for word in ("--server", f"nats-{number + 1}=127.0.0.1:{first + number}")]


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        (["a=127.0.0.1", "b=127.0.0.1:4223"], "2 servers are named"),
        (["a=127.0.0.1"] * 3, "named alike"),
        (["a=127.0.0.1", "b=127.0.0.1", "c=127.0.0.1:4224"], "named alike"),
        (["a=127.0.0.1", "b=127.0.0.1:4223", "c=elsewhere"], "does not name 'elsewhere'"),
        (["a=127.0.0.1", "b=127.0.0.1:4223", "c=127.0.0.1:65000"], "leaves no room"),
        (["a=::1", "b=127.0.0.1:4223", "c=127.0.0.1:4224"], "NAME=HOST"),
        (["a:127.0.0.1", "b=127.0.0.1:4223", "c=127.0.0.1:4224"], "NAME=HOST"),
        (["a=127.0.0.1:x", "b=127.0.0.1:4223", "c=127.0.0.1:4224"], "NAME=HOST"),
    ],
)
def test_servers_that_are_no_cluster_are_refused(authority: Path, servers: list[str], problem: str) -> None:
    done = cluster(authority, *(f"--server={each}" for each in servers), "--print", "a")
    assert done.exit_code == ExitCode.USAGE
    assert problem in done.output


@pytest.mark.parametrize("where", [(), ("--print", "nats-4"), ("--print", "nats-1", "--out", "x")])
def test_it_must_be_said_where_the_configuration_goes(authority: Path, where: tuple[str, ...]) -> None:
    done = cluster(authority, *three(CLIENT_PORT), *where)
    assert done.exit_code == ExitCode.USAGE
    assert "nats-1, nats-2, nats-3" in done.output


@pytest.mark.parametrize("text", ["nats-server: v2.9.10", "nats-server: v2.10.22", "unknown"])
def test_a_server_that_loses_streams_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="nats-server"):
        check_version(text)


@pytest.mark.parametrize("version", [(2, 10, 23), (2, 15, 1)])
def test_a_safe_server_is_let_in(version: tuple[int, ...]) -> None:
    assert check_version(f"nats-server: v{'.'.join(map(str, version))}") == version


@pytest.mark.parametrize(("version", "line"), [("2.10.23", "  # From 2.12.0 on: "), ("2.12.0", "  ")])
def test_the_mqtt_door_waits_for_no_whole_election_where_the_server_knows_how(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, line: str
) -> None:
    binary = tmp_path / "bin" / "nats-server"
    binary.parent.mkdir()
    binary.write_text(f"#!/bin/sh\necho nats-server: v{version}\n")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", f"{binary.parent}:/usr/bin:/bin")
    done = cluster(authority, *three(CLIENT_PORT), "--print", "nats-1")
    assert f'{line}js_api_timeout: "2s"' in done.output.splitlines()


def test_an_old_server_on_this_machine_is_refused_before_anything_is_written(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin" / "nats-server"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho nats-server: v2.9.10\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    done = cluster(authority, *three(CLIENT_PORT), "--out", str(tmp_path / "out"))
    assert done.exit_code == ExitCode.USAGE
    assert "2.9.10" in done.output
    assert not (tmp_path / "out").exists()


def test_a_dot_in_a_name_is_two_slashes_in_a_subject() -> None:
    assert subject("kilowatch/1/hall.1/ab/dgx.01/frame") == "kilowatch.1.hall//1.ab.dgx//01.frame"


def test_a_revoked_node_is_in_no_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    for words in (("init", "--cluster", "lab", "--broker", "127.0.0.1"), ("node", "a", "b"), ("revoke", "a")):
        CliRunner().invoke(main, ["pki", words[0], "--folder", str(folder), *words[1:]])
    text = cluster(folder, *three(CLIENT_PORT), "--print", "nats-1").output
    assert "CN=b,OU=node" in text
    assert "CN=a,OU=node" not in text


def test_a_brokers_certificate_that_opens_no_connection_is_renewed_first(authority: Path, tmp_path: Path) -> None:
    """Earlier releases made it for one end alone, and the servers would never find each other."""
    folder = tmp_path / "pki"
    shutil.copytree(authority, folder)
    shutil.copy(folder / "broker" / "ca.crt", folder / "broker" / "broker.crt")
    done = cluster(folder, *three(CLIENT_PORT), "--print", "nats-1")
    assert done.exit_code == ExitCode.USAGE
    assert "kilowatch pki renew --broker" in done.output


class Servers:
    """Three nats-servers with the files that the command wrote."""

    def __init__(self, authority: Path, folder: Path) -> None:
        self.first = _free_ports()
        self.authority = authority
        done = cluster(authority, *three(self.first), "--out", str(folder), "--data", str(folder / "data"))
        assert done.exit_code == ExitCode.CLEAN, done.output
        self.processes = [
            subprocess.Popen([NATS_SERVER, "-c", folder / f"nats-{number}.conf", "-l", folder / f"{number}.log"])
            for number in (1, 2, 3)
        ]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def broker(self, number: int, role: str, name: str) -> BrokerConfig:
        """Return how a member enters the MQTT listener of a server."""
        place = self.authority / f"{role}s" / name
        return BrokerConfig(
            host="127.0.0.1",
            port=MQTT_PORT + self.first + number - CLIENT_PORT,
            tls=True,
            ca_file=place / "ca.crt",
            cert_file=place / f"{role}.crt",
            key_file=place / f"{role}.key",
        )

    def monitor(self, number: int, page: str) -> dict[str, object]:
        """Return what a server says of itself."""
        port = MONITOR_PORT + self.first + number - CLIENT_PORT
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as reply:
            found = json.load(reply)
        assert isinstance(found, dict)
        return found


def _free_ports() -> int:
    """Return a client port whose server, and the two after it, find all of their ports free."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as held, contextlib.suppress(OSError, OverflowError):
            for usual in (CLIENT_PORT, ROUTE_PORT, MONITOR_PORT, MQTT_PORT):
                for number in range(3):
                    probe = held.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", usual + first + number - CLIENT_PORT))
            return first


@pytest.fixture(scope="module")
def servers(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    if shutil.which("openssl") is None:
        pytest.skip("apt-get install openssl")
    running = Servers(authority, tmp_path_factory.mktemp("nats"))
    try:
        yield running
    finally:
        running.stop()


async def until(wanted: Callable[[], bool]) -> None:
    """Wait for a condition of a server that may not answer yet."""
    async with asyncio.timeout(PATIENCE * FACTOR):
        while True:
            with contextlib.suppress(OSError, KeyError):
                if wanted():
                    return
            await asyncio.sleep(0.1)


def _ready(servers: Servers) -> bool:
    leaders = {servers.monitor(number, "jsz")["meta_cluster"]["leader"] for number in range(3)}  # type: ignore[index]
    return len(leaders) == 1 and leaders <= {"nats-1", "nats-2", "nats-3"}


async def _let_in(servers: Servers) -> None:
    """Wait until each server lets a member in: what MQTT keeps is made by the first that comes, and a server
    whose peers are not all there yet closes the connection."""
    await until(lambda: _ready(servers))
    async with within(PATIENCE):
        for number in range(3):
            while True:
                with contextlib.suppress(BusError):
                    broker = servers.broker(number, "aggregator", AGGREGATOR)
                    async with connect(broker, client_id(AGGREGATOR)):
                        break
                await asyncio.sleep(0.1)


async def _refused(client: aiomqtt.Client, where: str) -> bool:
    """Return whether a server lets a client not read some topics."""
    (answer,) = await client.subscribe(where)
    return int(answer if isinstance(answer, int) else answer.value) >= 128


async def _received(client: aiomqtt.Client) -> tuple[str, bytes]:
    message = await anext(aiter(client.messages))
    assert isinstance(message.payload, bytes)
    return str(message.topic), message.payload


async def test_three_servers_carry_each_nodes_own_topics_and_no_others(servers: Servers) -> None:
    """A node enters one server, an aggregator another; the node lies for another node in vain, and its
    commands come from the aggregator alone."""
    await _let_in(servers)
    watch = connect(servers.broker(0, "aggregator", AGGREGATOR), client_id(AGGREGATOR))
    async with within(PATIENCE), watch as aggregator:
        await aggregator.subscribe(f"kilowatch/1/{CLUSTER}/+/+/+")
        async with connect(servers.broker(1, "node", NODE), client_id(NODE)) as node:
            await node.subscribe(topic(CLUSTER, NODE, Topic.COMMAND))
            own = topic(CLUSTER, NODE, Topic.STATUS)
            await node.publish(own, b"online", qos=1, retain=True)
            assert await _received(aggregator) == (own, b"online")
            await aggregator.publish(topic(CLUSTER, NODE, Topic.COMMAND), b"resend")
            # The aggregator hears its own command, too: it reads the whole cluster.
            assert await _received(aggregator) == (topic(CLUSTER, NODE, Topic.COMMAND), b"resend")
            assert (await _received(node))[1] == b"resend"
            # Each lie, then a truth: what arrives next is the truth.
            for lie in (
                topic(CLUSTER, OTHER, Topic.FRAME),
                topic(CLUSTER, NODE, Topic.COMMAND),
                topic("other", NODE, Topic.FRAME),
                "$JS/API/STREAM/DELETE/$MQTT_rmsgs",
            ):
                with contextlib.suppress(aiomqtt.MqttError):
                    async with connect(servers.broker(2, "node", NODE), client_id(NODE)) as liar:
                        await liar.publish(lie, b"a lie", qos=0)
                        await liar.publish(own, lie.encode(), qos=1)
                found = await _received(aggregator)
                assert found[1] != b"a lie"
            for foreign in (topic(CLUSTER, OTHER, Topic.COMMAND), f"kilowatch/1/{CLUSTER}/+/+/+", "#"):
                async with connect(servers.broker(2, "node", NODE), client_id(NODE)) as thief:
                    assert await _refused(thief, foreign), foreign
    # What is retained outlives its server, and comes from any other.
    async with within(PATIENCE):
        reader = connect(servers.broker(2, "aggregator", AGGREGATOR), client_id(AGGREGATOR))
        async with reader as late:
            await late.subscribe(topic(CLUSTER, NODE, Topic.STATUS))
            assert (await _received(late))[0] == topic(CLUSTER, NODE, Topic.STATUS)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection, which the other side may have ended already, and wait until it is."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def test_a_nodes_certificate_opens_nothing_but_mqtt(servers: Servers) -> None:
    """By NATS's own protocol a node could read what MQTT's access list does not name."""
    await until(lambda: _ready(servers))
    place = servers.authority / "nodes" / NODE
    context = ssl.create_default_context(cafile=place / "ca.crt")
    context.load_cert_chain(place / "node.crt", place / "node.key")
    async with within(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", servers.first)
        assert (await reader.readline()).startswith(b"INFO ")
        await writer.start_tls(context)
        writer.write(b'CONNECT {"verbose":false,"tls_required":true}\r\nPING\r\n')
        assert b"Authorization Violation" in await reader.readline()
        await _closed(writer)


@pytest.mark.parametrize(("role", "name"), [("node", NODE), ("aggregator", AGGREGATOR)])
async def test_no_member_joins_as_a_server(servers: Servers, role: str, name: str) -> None:
    """A route carries all accounts, so that a member's certificate must not open one."""
    await until(lambda: _ready(servers))
    before = servers.monitor(0, "routez")["num_routes"]
    place = servers.authority / f"{role}s" / name
    context = ssl.create_default_context(cafile=place / "ca.crt")
    context.load_cert_chain(place / f"{role}.crt", place / f"{role}.key")
    port = servers.first + ROUTE_PORT - CLIENT_PORT
    async with within(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        info = {"server_id": "N" + "A" * 55, "server_name": "rogue", "cluster": CLUSTER, "version": "2.15.1"}
        writer.write(b"CONNECT {}\r\nINFO %s\r\nPING\r\n" % json.dumps(info).encode())
        answer = await reader.read()  # until the server closes the connection
        assert b"Authorization Violation" in answer
        await _closed(writer)
    assert servers.monitor(0, "routez")["num_routes"] == before
