"""A cluster as docs/deploy.md sets it up, and a thief with the certificate of one of its nodes.

The commands are the ones of that page, the broker is a real mosquitto with TLS, and collectors and
aggregator run from the settings that `kilowatch pki` wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from functools import reduce
from pathlib import Path

import aiomqtt
import pytest
from msgspec.structs import replace

from telemetry.devices import Event
from telemetry.errors import BusError
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, Command, CommandKind, Inventory, NodeState
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from telemetry.wire.topics import ROOT, Topic, state_topic, topic
from tests.brokers import free_port, wait_for_port
from tests.endtoend.cluster import PATIENCE
from tests.kit.waiting import until, wait_until, within

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy.md"
CLUSTER, HONEST, STOLEN, AGGREGATOR = "hall-1", "dgx01", "dgx02", "kilowatch-aggregator"
MOSQUITTO = shutil.which("mosquitto") or "/usr/sbin/mosquitto"

pytestmark = pytest.mark.skipif(
    not Path(MOSQUITTO).exists() or shutil.which("openssl") is None, reason="apt-get install mosquitto openssl"
)


class Site:
    """Broker, two nodes and an aggregator, each with the files that the page gives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.place = folder / "etc-mosquitto"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        first = re.search(r"(^    kilowatch pki .*\n)+", DEPLOY.read_text(), re.MULTILINE)
        assert first is not None
        for line in first[0].splitlines():  # later ones belong to the life of a node
            self.pki(
                line.strip().replace(
                    "--broker broker.example", f"--broker 127.0.0.1 --port {self.port} --broker-folder {self.place}"
                )
            )
        self.nodes = {name: self._put(name, f"nodes/{name}") for name in (HONEST, STOLEN)}
        self.nodes[AGGREGATOR] = self._put(AGGREGATOR, f"aggregators/{AGGREGATOR}")
        self.http = f"127.0.0.1:{free_port()}"
        for name, text in {
            HONEST: f'source = "simulated:two-dgx-h100/dgx-01"\ninterval = 0.2\nstate_dir = "{folder}/1"\n',
            STOLEN: f'source = "simulated:two-dgx-h100/dgx-02"\ninterval = 0.2\nstate_dir = "{folder}/2"\n',
            AGGREGATOR: f'[aggregator]\nlisten = "{self.http}"\ndata_dir = "{folder}/data"\n',
        }.items():
            with (self.nodes[name] / "kilowatch.toml").open("a") as file:
                file.write(text)

    def pki(self, line: str) -> None:
        """Run a command of the page beside the authority's folder."""
        arguments = shlex.split(line)
        assert arguments[0] == "kilowatch"
        subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.folder,
            check=True,
            timeout=PATIENCE,
            env={**os.environ, "PYTHONPATH": str(DEPLOY.parents[1])},
        )

    def kilowatch(self, *arguments: str) -> str:
        """Run a command, and return what it prints."""
        done = subprocess.run(
            (sys.executable, "-m", "kilowatch", *arguments), timeout=PATIENCE, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout

    def _put(self, name: str, made: str) -> Path:
        """Put what was made for a machine into its /etc/kilowatch, as the page does for a node."""
        place = self.folder / f"etc-{name}"
        role = "aggregator" if name == AGGREGATOR else "node"
        for line in re.findall(r"^    (install .*/etc/kilowatch/?.*)$", DEPLOY.read_text(), re.MULTILINE):
            names = {"/etc/kilowatch": str(place), "nodes/dgx01": made, "node.": f"{role}."}
            command = reduce(lambda text, pair: text.replace(*pair), names.items(), line)
            subprocess.run(shlex.split(command), cwd=self.folder / "kilowatch-pki", check=True)
        rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
        assert {each for each, mode in rights.items() if not mode & 0o004} == {
            f"{role}.key"
        }  # the service's user reads the rest, and the key by LoadCredential=
        settings = place / "kilowatch.toml"
        settings.write_text(settings.read_text().replace("/etc/kilowatch", str(place)))
        return place

    def put_broker(self) -> None:
        """Copy the broker's files to the broker."""
        shutil.copytree(self.folder / "kilowatch-pki" / "broker", self.place, dirs_exist_ok=True)

    def start_broker(self) -> None:
        self.put_broker()
        settings = self.folder / "mosquitto.conf"
        user = "user root\n" if os.geteuid() == 0 else ""  # else it drops to one without rights here
        settings.write_text(f"{user}include_dir {self.folder / 'conf.d'}\nlog_type error\n")
        (self.folder / "conf.d").mkdir()
        (self.folder / "conf.d" / "kilowatch.conf").symlink_to(self.place / "kilowatch.conf")
        self.run("mosquitto", MOSQUITTO, "-c", str(settings))
        wait_for_port(self.port)

    def reload_broker(self) -> None:
        self.put_broker()
        self.processes["mosquitto"].send_signal(signal.SIGHUP)

    def start(self, name: str) -> None:
        command = "aggregate" if name == AGGREGATOR else "collect"
        self.run(name, sys.executable, "-m", "kilowatch", command, "--config", str(self.nodes[name] / "kilowatch.toml"))

    def run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def end(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
            process.wait(PATIENCE)

    def broker(self, name: str) -> BrokerConfig:
        """Return how the owner of a certificate, or its thief, connects."""
        role = "aggregator" if name == AGGREGATOR else "node"
        place = self.nodes[name]
        return BrokerConfig(
            host="127.0.0.1",
            port=self.port,
            tls=True,
            ca_file=place / "ca.crt",
            cert_file=place / f"{role}.crt",
            key_file=place / f"{role}.key",
            keepalive=5,
        )


class Listener:
    """Everything that a client receives."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self.client = client
        self.messages: list[tuple[str, bytes, bool]] = []

    async def listen(self) -> None:
        async for message in self.client.messages:
            assert isinstance(message.payload, bytes)
            self.messages.append((str(message.topic), message.payload, message.retain))

    def payloads(self, name: str) -> list[bytes]:
        return [payload for at, payload, _ in self.messages if at == name]

    def seqs(self, node: str) -> list[int]:
        """Numbers of the live frames of a node, in the order in which they came."""
        name = topic(CLUSTER, node, Topic.FRAME)
        return [frames.decode(payload).seq for payload in self.payloads(name)]


@contextlib.asynccontextmanager
async def listening(broker: BrokerConfig, *filters: str, name: str = "listener") -> AsyncIterator[Listener]:
    async with connect(broker, client_id(name)) as client:
        listener = Listener(client)
        task = asyncio.create_task(listener.listen())
        try:
            for text in filters:
                await client.subscribe(text, qos=1)
            yield listener
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_stolen_certificate_can_do_nothing_to_the_others(site: Site) -> None:
    site.start_broker()
    try:
        for name in (AGGREGATOR, HONEST):
            site.start(name)
        async with listening(site.broker(AGGREGATOR), "#") as observer:
            await until(lambda: len(observer.seqs(HONEST)) > 3, "the node")
            await the_owners_tools(site, observer)
            await another_id(site, observer)
            await other_topics(site, observer)
            await last_wills(site, observer)
            await nothing_is_retained(site)
            await a_broker_of_its_own(site)
            await no_certificate(site)
            await revocation(site, observer)
            arrived = {payload for _, payload, _ in observer.messages}
            assert not arrived & {FORGED, RELEASE, XID, OFFLINE, b"will 0"}
            end = observer.seqs(HONEST)[-1]
            await until(lambda: observer.seqs(HONEST)[-1] > end + 3, "more frames")
        seqs = observer.seqs(HONEST)
        assert seqs == list(range(seqs[0], seqs[-1] + 1))  # none was lost, or sent twice
        status = topic(CLUSTER, HONEST, Topic.STATUS)
        found = [messages.decode(each, CollectorStatus) for each in observer.payloads(status)]
        assert {each.state for each in found} == {NodeState.ONLINE}
        assert len({each.session for each in found}) == 1
        wait_until(lambda: stored(site) >= seqs[-1], "what the node sent in the store")
    finally:
        site.end()


async def test_a_stolen_aggregators_certificate_releases_no_driver_and_forges_no_reading(site: Site) -> None:
    """The stolen certificate reads its cluster, sends commands that nodes obey in part, and writes what they retain; nothing else of theirs."""
    site.start_broker()
    names = {kind: topic(CLUSTER, HONEST, kind) for kind in Topic}
    try:
        site.start(HONEST)
        async with (
            listening(site.broker(HONEST), *(names[kind] for kind in Topic), name=HONEST) as node,
            listening(site.broker(AGGREGATOR), "#") as thief,
        ):
            await until(lambda: len(node.seqs(HONEST)) > 3, "the node")
            for name, payload in beyond_an_aggregator().items():
                for retain in (False, True):
                    await thief.client.publish(name, payload, qos=1, retain=retain)
            for kind in (CommandKind.RELEASE, CommandKind.RESUME):
                body = messages.encode(Command(kind=kind))
                await thief.client.publish(names[Topic.COMMAND], body, qos=1)
            await until(
                lambda: any(b"command_refused" in each for each in node.payloads(names[Topic.EVENT])), "the refusal"
            )
            session = frames.decode(node.payloads(names[Topic.FRAME])[-1]).session
            resend = Command(kind=CommandKind.RESEND, about=session, first=0, last=1)
            await thief.client.publish(names[Topic.COMMAND], messages.encode(resend), qos=1)
            await until(lambda: node.payloads(names[Topic.REPLY]), "the frames that are sent again")
            await thief.client.publish(names[Topic.STATUS], OFFLINE, qos=1, retain=True)
            await until(lambda: OFFLINE in node.payloads(names[Topic.STATUS]), "what it may write")

            def last_status() -> NodeState:
                return messages.decode(node.payloads(names[Topic.STATUS])[-1], CollectorStatus).state

            await until(lambda: last_status() is NodeState.ONLINE, "the node's answer")
            end = node.seqs(HONEST)[-1]
            await until(lambda: node.seqs(HONEST)[-1] > end + 3, "more frames")
            arrived = {payload for _, payload, _ in (*node.messages, *thief.messages)}
            assert not arrived & {FORGED, XID}
            for body in node.payloads(names[Topic.INVENTORY]):
                assert messages.decode(body, Inventory).driver_state == "up"
        seqs = node.seqs(HONEST)
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
    finally:
        site.end()


def beyond_an_aggregator() -> dict[str, bytes]:
    """Return what a thief of an aggregator's certificate would like to publish, and may not, by topic."""
    own = {Topic.COMMAND, Topic.STATUS, Topic.INVENTORY, Topic.JOBS}
    return {
        **{topic(CLUSTER, HONEST, kind): FORGED for kind in Topic if kind not in own},
        topic(CLUSTER, HONEST, Topic.EVENT): XID,
        **{topic("hall-2", HONEST, kind): FORGED for kind in Topic},
        state_topic("hall-2", "alerts", "gpu_lost/gpu"): FORGED,
        state_topic(CLUSTER, "inventions", "hall"): FORGED,
        f"kilowatch/2/{CLUSTER}/00/{HONEST}/status": FORGED,
        "tele/rack-1/SENSOR": FORGED,
        "kilowatch-meters/rack-1": FORGED,
    }


FORGED = b"forged"
RELEASE = messages.encode(Command(kind=CommandKind.RELEASE))
XID = messages.encode(Event(id="1", node=HONEST, kind="xid", at=1, message="forged"))
OFFLINE = messages.encode(CollectorStatus(state=NodeState.OFFLINE, session=1, reason="forged"))
ALLOWED = topic(CLUSTER, STOLEN, Topic.REPLY)
"""A topic that the owner of the stolen certificate may write."""


def forgeries() -> dict[str, bytes]:
    """Return what a thief would like to publish, by topic."""
    shard = topic(CLUSTER, STOLEN, Topic.FRAME).split("/")[3]
    other = f"{int(shard, 16) ^ 1:02x}"
    return {
        **{topic(CLUSTER, HONEST, kind): FORGED for kind in Topic},
        topic(CLUSTER, HONEST, Topic.EVENT): XID,
        topic(CLUSTER, HONEST, Topic.STATUS): OFFLINE,
        topic(CLUSTER, HONEST, Topic.COMMAND): RELEASE,
        topic(CLUSTER, STOLEN, Topic.COMMAND): RELEASE,  # the true owner of the name runs elsewhere
        topic("hall-2", STOLEN, Topic.FRAME): FORGED,
        f"{ROOT}/{CLUSTER}/{other}/{STOLEN}/frame": FORGED,
        f"{ROOT}/{CLUSTER}/{shard}/{STOLEN}/state": FORGED,
        f"kilowatch/2/{CLUSTER}/{shard}/{STOLEN}/status": FORGED,
        topic(CLUSTER, "dgx99", Topic.INVENTORY): FORGED,
        state_topic(CLUSTER, "alerts", "gpu_lost/gpu"): FORGED,
        state_topic(CLUSTER, "circuits", "panel-a/3"): FORGED,
        state_topic(CLUSTER, "budgets", "hall"): FORGED,
        "tele/rack-1/SENSOR": FORGED,
    }


async def the_owners_tools(site: Site, observer: Listener) -> None:
    """Run `tap` and `doctor` on the node, with its certificate, beside its collector."""
    settings = ("--config", str(site.nodes[HONEST] / "kilowatch.toml"))
    tapped = await asyncio.to_thread(site.kilowatch, "tap", *settings, "--count", "12")
    assert f"{HONEST}  frame" in tapped
    found = json.loads(await asyncio.to_thread(site.kilowatch, "doctor", *settings, "--json"))
    levels = {each["text"]: each["level"] for each in found if f":{site.port} " in each["text"]}
    assert levels == {
        f"127.0.0.1:{site.port} lets us in": "ok",
        f"127.0.0.1:{site.port} lets nobody publish as another node": "ok",
    }
    # The aggregator clears what a node retained that is forgotten.
    gone = topic(CLUSTER, "dgx98", Topic.STATUS)
    async with connect(site.broker(AGGREGATOR), client_id("forget")) as client:
        await client.publish(gone, b"", qos=1, retain=True)
    await until(lambda: b"" in observer.payloads(gone), "the clearing")


async def another_id(site: Site, observer: Listener) -> None:
    """Connect as other clients: by guesses, and by the form of a real id."""
    for guess in (HONEST, f"kilowatch-{CLUSTER}-{HONEST}", client_id(HONEST), AGGREGATOR):
        async with connect(site.broker(STOLEN), guess):
            before = observer.seqs(HONEST)[-1]
            await until(lambda before=before: observer.seqs(HONEST)[-1] > before, "frames")


async def other_topics(site: Site, observer: Listener) -> None:
    """Publish to topics of others, and read them."""
    filters = ("#", "$SYS/#", f"{ROOT}/#", f"{ROOT}/{CLUSTER}/+/+/frame",
               topic(CLUSTER, HONEST, Topic.FRAME), topic(CLUSTER, HONEST, Topic.COMMAND),
               f"$share/thief/{ROOT}/#")  # fmt: skip
    async with listening(site.broker(STOLEN), *filters, name=STOLEN) as thief:
        before = observer.seqs(HONEST)[-1]
        for name, payload in forgeries().items():
            for retain in (False, True):
                await thief.client.publish(name, payload, qos=1, retain=retain)
        await thief.client.publish(ALLOWED, b"what it may write", qos=1)
        await until(lambda: observer.payloads(ALLOWED), "what it may write")
        await until(lambda: observer.seqs(HONEST)[-1] > before + 3, "frames")
        own = topic(CLUSTER, STOLEN, Topic.FRAME).removesuffix(Topic.FRAME)
        assert thief.payloads(ALLOWED)  # it does receive
        assert {name for name, _, _ in thief.messages if not name.startswith(own)} == set()


async def last_wills(site: Site, observer: Listener) -> None:
    """Leave last wills on another's topic, and on an own one for comparison."""
    for number, name in enumerate([topic(CLUSTER, HONEST, Topic.STATUS), ALLOWED]):
        will = aiomqtt.Will(name, f"will {number}".encode(), 1, retain=True)
        with contextlib.suppress(BusError):
            async with connect(site.broker(STOLEN), client_id(STOLEN), will) as client:
                client._client.socket().shutdown(socket.SHUT_RDWR)
                await anext(aiter(client.messages))  # raises: the connection is gone
    await until(lambda: b"will 1" in observer.payloads(ALLOWED), "its own will")


async def nothing_is_retained(site: Site) -> None:
    """Connect later, as a dashboard would: only what may be there is there."""
    async with listening(site.broker(AGGREGATOR), "#") as later:
        await until(lambda: b"will 1" in later.payloads(ALLOWED), "what is retained")
        assert not {payload for _, payload, _ in later.messages} & {FORGED, RELEASE, XID, OFFLINE}


async def a_broker_of_its_own(site: Site) -> None:
    """Pretend to be the broker with a node's certificate: no client of it sends a byte."""
    port, place = free_port(), site.nodes[STOLEN]
    settings = site.folder / "pretended.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\ncafile {place}/ca.crt\n"
        f"certfile {place}/node.crt\nkeyfile {place}/node.key\n" + ("user root\n" if os.geteuid() == 0 else "")
    )
    site.run("pretended", MOSQUITTO, "-c", str(settings))
    wait_for_port(port)
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.open_connection("127.0.0.1", port, ssl=site.broker(HONEST).context())


async def no_certificate(site: Site) -> None:
    """Connect without a certificate."""
    bare = replace(site.broker(STOLEN), cert_file=None, key_file=None)
    with pytest.raises(BusError, match=r"it asks for a certificate|it closed the connection"):
        async with connect(bare, client_id(STOLEN)):
            pass


async def refused(broker: BrokerConfig) -> bool:
    """Return whether the broker refuses a client."""
    try:
        async with connect(broker, client_id(STOLEN)):
            return False
    except BusError:
        return True


async def revocation(site: Site, observer: Listener) -> None:
    """Withdraw the stolen certificate as the page says: an open connection is of no use, and a new
    one is refused."""
    stolen = site.broker(STOLEN)
    async with connect(stolen, client_id(STOLEN)) as client:
        await client.publish(ALLOWED, b"before", qos=1)
        await until(lambda: b"before" in observer.payloads(ALLOWED), "its last message")
        site.pki(f"kilowatch pki revoke {STOLEN}")
        site.reload_broker()
        async with within(PATIENCE):
            while not await refused(stolen):  # noqa: ASYNC110 - the broker is another process
                await asyncio.sleep(0.05)
        with contextlib.suppress(aiomqtt.MqttError):
            await client.publish(ALLOWED, b"after", qos=1)
        before = observer.seqs(HONEST)[-1]
        await until(lambda: observer.seqs(HONEST)[-1] > before + 1, "frames")
        assert b"after" not in observer.payloads(ALLOWED)


def stored(site: Site) -> float:
    """Return how many frames the aggregator has stored."""
    try:
        with urllib.request.urlopen(f"http://{site.http}/metrics", timeout=5) as answer:
            page = answer.read().decode()
    except OSError:
        return 0.0
    lines = [line for line in page.splitlines() if line.startswith("kilowatch_aggregator_frames_stored_total")]
    return float(lines[0].rsplit(" ", 1)[1]) if lines else 0.0
