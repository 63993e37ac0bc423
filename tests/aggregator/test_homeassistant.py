"""GPUs and circuits in Home Assistant: what is announced, by the documented fields, and on a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import msgspec
import pytest
from click.testing import CliRunner

from aggregator.config import AggregatorConfig
from aggregator.homeassistant import entities, publisher
from aggregator.homeassistant.devices import MOST_DEVICES, DeviceReader, circuit_values
from aggregator.homeassistant.entities import Device, Topics, discovery, is_of, slug
from aggregator.settings.homeassistant import HomeAssistantConfig
from api.power import CircuitState, TripSeconds
from kilowatch.__main__ import main
from kilowatch.pki.access_list import access_list
from kilowatch.settings import load
from telemetry.errors import ConfigError
from telemetry.gap import NOT_SUPPORTED
from telemetry.wire.inventory import Inventory
from telemetry.wire.mqtt import BrokerConfig
from tests.aggregator.fake_view import FakeView
from tests.aggregator.node import ScriptedNode, inventory, value
from tests.aggregator.test_forget import end
from tests.aggregator.test_service import config, running
from tests.brokers import Mosquitto, free_port, plain_client
from tests.conftest import ROOT
from tests.kit.waiting import until

HOMEASSISTANT = Path(os.environ.get("KILOWATCH_HOMEASSISTANT", ROOT / ".homeassistant" / "bin" / "python"))
"""A Python that has the package `homeassistant`; `make homeassistant` installs one."""
COMMON = {
    "name", "unique_id", "state_topic", "value_template", "expire_after", "availability",
    "availability_mode", "device", "device_class", "origin", "icon", "json_attributes_topic",
    "json_attributes_template",
}  # fmt: skip
FIELDS = {
    "sensor": COMMON | {"state_class", "unit_of_measurement", "suggested_display_precision", "options"},
    "binary_sensor": COMMON,
}
"""The fields that Home Assistant documents, of those that are used."""
CARD = {"identifiers", "name", "manufacturer", "model", "serial_number"}
CLASSES: dict[str | None, tuple[object, set[str | None]]] = {
    # device class: unit, state classes
    "power": ("W", {"measurement"}),
    "energy": ("kWh", {"total", "total_increasing"}),
    "temperature": ("°C", {"measurement"}),
    "duration": ("s", {"measurement"}),
    "enum": (None, {None}),
    None: (..., {"measurement"}),
}
POWER = tomllib.loads("""
[site]
tariff = 0.25
currency = "EUR"
[circuits."living room"]
breaker = 16
volts = 230
curve = "IEC-B"
nodes = ["rig"]
""")
TOPICS = Topics("homeassistant", "lab", "all")


def rig() -> FakeView:
    """A node of two GPUs."""
    view = FakeView()
    view.add(inventory("rig", 2))
    return view


def circuit(**more: Any) -> Device:
    return Device(
        id="lab_circuit_a",
        name="Circuit a",
        model="Circuit",
        manufacturer="kilowatch",
        entities=(entities.POWER,),
        values=circuit_values(CircuitState(id="a", **more)),
        available=True,
    )


async def announced() -> dict[str, dict[str, Any]]:
    """Every message of a rig on a circuit, with a tariff."""
    view = rig()
    view.electrical = type(view.electrical)(POWER, Path("/nowhere"))
    await view.tick(1)
    view.electrical.snapshots(view.fleet, view.now(), view.wall())
    devices = DeviceReader(view).read()
    assert [device.name for device in devices] == ["Circuit living room", "rig GPU 0", "rig GPU 1"]
    found = {}
    for device in devices:
        for topic, payload in discovery(device, TOPICS, 90).items():
            found[topic] = json.loads(payload)
    return found


async def test_discovery_messages_have_documented_fields_alone() -> None:
    found = await announced()
    for topic, message in found.items():
        match = re.fullmatch(r"homeassistant/(sensor|binary_sensor)/[\w-]+/[\w-]+/config", topic)
        assert match, topic
        assert message.keys() <= FIELDS[match[1]], topic
        assert message["device"].keys() <= CARD
        assert message["device"]["identifiers"]
        assert message["expire_after"] == 90
        assert message["availability"][0] == {"topic": "kilowatch-homeassistant/lab/all/status"}
        if match[1] == "binary_sensor":
            assert message["device_class"] == "problem"
            continue
        unit, states = CLASSES[message.get("device_class")]
        assert message.get("state_class") in states, topic
        assert unit is ... or message.get("unit_of_measurement") == unit, topic
    assert {message.get("unit_of_measurement") for message in found.values()} >= {"EUR/h", "%"}
    ids = [message["unique_id"] for message in found.values()]
    assert len(set(ids)) == len(ids) == 7 + 2 * 5
    assert "kilowatch_lab_gpu_GPU-rig-0_power" in ids


needs_homeassistant = pytest.mark.skipif(
    not HOMEASSISTANT.exists(), reason="Home Assistant's package is not here: make homeassistant"
)


@needs_homeassistant
async def test_discovery_messages_are_valid_by_the_schemas_of_home_assistant() -> None:
    found = await announced()
    script = Path(__file__).with_name("homeassistant_schemas.py")
    ended = subprocess.run(  # noqa: ASYNC221 - nothing else runs
        [str(HOMEASSISTANT), str(script)], input=json.dumps(found), text=True, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == list(found)


async def test_a_state_has_values_and_gaps_are_null() -> None:
    view = rig()
    await view.tick(1)
    states = [json.loads(device.state()) for device in DeviceReader(view).read()]
    assert [state["power"] for state in states] == [301, 302]
    assert [state["temperature"] for state in states] == [60, 61]
    assert {state["problem"] for state in states} == {"OFF"}
    assert "cost" not in states[0], "there is no tariff"
    matrix = next(one for one in view.fleet.matrices if "gpu_power_watts" in one.columns)
    matrix.gauges[0, matrix.columns["gpu_power_watts"]] = NOT_SUPPORTED
    state = json.loads(DeviceReader(view).read()[0].state())
    assert state["power"] is None
    view.monotonic += 60
    state = json.loads(DeviceReader(view).read()[0].state())
    assert (state["power"], state["temperature"], state["available"]) == (None, None, "offline")


@pytest.mark.parametrize(
    ("known", "earliest", "trip"), [(True, 42.0, "in time"), (True, None, "never"), (False, None, "unknown")]
)
def test_never_and_not_known_are_no_number_of_seconds(known: bool, earliest: float | None, trip: str) -> None:
    values = circuit(trip_known=known, trip_seconds=TripSeconds(earliest=earliest)).values
    assert (values["trip"], values["trip_seconds"]) == (trip, earliest)


def test_names_that_topics_do_not_allow_stay_apart() -> None:
    assert slug("GPU-0a1b") == "GPU-0a1b"
    assert slug("living room") != slug("living/room")
    assert re.fullmatch(r"[\w-]+", slug("Küche + Bad"))


async def test_a_uuid_takes_neither_a_circuits_topics_nor_those_of_another_gpu(
    caplog: pytest.LogCaptureFixture,
) -> None:
    view = FakeView()
    view.electrical = type(view.electrical)(POWER, Path("/nowhere"))
    rig = inventory("rig", 3)
    circuit_id = f"{slug(view.cluster)}_circuit_{slug('living room')}"
    uuids = (circuit_id, "GPU a", slug("GPU a"))
    gpus = tuple(msgspec.structs.replace(gpu, uuid=uuid) for gpu, uuid in zip(rig.gpus, uuids, strict=True))
    view.add(msgspec.structs.replace(rig, gpus=gpus))
    await view.tick(1)
    view.electrical.snapshots(view.fleet, view.now(), view.wall())
    reader = DeviceReader(view)
    devices = reader.read()
    assert [one.name for one in devices] == ["Circuit living room", "rig GPU 0", "rig GPU 1"]
    assert devices[0].id == circuit_id
    assert len({one.id for one in devices}) == len(reader.read()) == 3
    assert caplog.text.count("the first one stays") == 1


async def test_devices_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    view = FakeView()
    view.add(inventory("rack", MOST_DEVICES + 3))
    await view.tick(1)
    reader = DeviceReader(view)
    assert len(reader.read()) == len(reader.read()) == MOST_DEVICES
    assert caplog.text.count("more than the 512") == 1


def test_a_password_that_cannot_be_read_is_found_by_the_check(tmp_path: Path) -> None:
    path = tmp_path / "kilowatch.toml"
    path.write_text(f'[homeassistant]\nenabled = true\nbroker = {{ password_file = "{tmp_path}/gone" }}\n')
    result = CliRunner().invoke(main, ["config", "check", "--config", str(path)])
    assert result.exit_code == 64
    assert "homeassistant.broker.password_file" in result.output


def test_settings_that_cannot_work_are_named(tmp_path: Path) -> None:
    path = tmp_path / "kilowatch.toml"
    for text, place in (
        ('prefix = "home/#"', "homeassistant.prefix"),
        ("every_seconds = 0.1", "homeassistant.every_seconds"),
        ("broker = { prot = 1 }", "homeassistant.broker.prot"),
    ):
        path.write_text(f"[homeassistant]\nenabled = true\n{text}\n")
        with pytest.raises(ConfigError, match=re.escape(place)):
            load(path, {})
    path.write_text('[homeassistant]\nenabled = true\nbroker = { host = "ha.example" }\n')
    found = load(path, {}).aggregator.homeassistant
    assert found.enabled
    assert found.broker == BrokerConfig(host="ha.example")


# -- On a real broker ----------------------------------------------------------------------------


class Home:
    """What Home Assistant sees: retained discovery messages, and states as they come."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.status: dict[str, str] = {}
        self.count = 0
        """Discovery messages received, with those that repeat."""

    def entity(self, unique_id: str) -> dict[str, Any] | None:
        """The discovery message of an entity, once it is there."""
        return next((one for one in self.found.values() if one["unique_id"] == unique_id), None)

    def value(self, unique_id: str) -> object:
        """What its entity shows."""
        message = self.entity(unique_id)
        if message is None or any(
            self.status.get(one["topic"], "online") != "online" for one in message["availability"]
        ):
            return "unavailable"
        key = re.fullmatch(r"{{ value_json\.(\w+) }}", message["value_template"])
        assert key
        return self.states.get(message["state_topic"], {}).get(key[1], "unavailable")

    async def listen(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            topic, payload = str(message.topic), bytes(message.payload)
            if topic.endswith("/config"):
                self.count += 1
                if payload:
                    self.found[topic] = json.loads(payload)
                else:
                    self.found.pop(topic, None)
            elif topic.endswith("/status"):
                self.status[topic] = payload.decode()
            else:
                self.states[topic] = json.loads(payload)


@contextlib.asynccontextmanager
async def home(broker: BrokerConfig, prefix: str = "homeassistant") -> AsyncIterator[Home]:
    found = Home()
    async with plain_client(broker) as client:
        await client.subscribe([(f"{prefix}/+/+/+/config", 1), ("kilowatch-homeassistant/#", 1)])
        task = asyncio.create_task(found.listen(client))
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def ticking(
    broker: BrokerConfig, name: str = "rig", made_of: Inventory | None = None
) -> AsyncIterator[ScriptedNode]:
    """A node that sends a frame ten times a second."""
    async with ScriptedNode(broker, name, made_of=made_of) as node:

        async def tick() -> None:
            while True:
                await node.tick()
                await asyncio.sleep(0.1)

        task = asyncio.create_task(tick())
        try:
            yield node
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def settings(broker: BrokerConfig, folder: Path, **more: Any) -> AggregatorConfig:
    fields: dict[str, Any] = {"homeassistant": HomeAssistantConfig(enabled=True, every_seconds=1.0), "power": POWER}
    return msgspec.structs.replace(config(broker, folder), **{**fields, **more})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for before entities are removed."""
    monkeypatch.setattr(publisher, "GRACE_SECONDS", 0.0)


GPU, CIRCUIT = "kilowatch_default_gpu_GPU-rig-0_power", "kilowatch_default_circuit_living_room"


@pytest.mark.systems
async def test_devices_appear_update_and_vanish(mosquitto: Mosquitto, tmp_path: Path, impatient: None) -> None:
    broker = mosquitto.config
    async with home(broker) as seen:
        async with running(settings(broker, tmp_path)) as aggregator:
            async with ticking(broker) as node:
                await until(lambda: seen.value(GPU) not in {"unavailable", None})
                first = seen.value(GPU)
                await until(lambda: seen.value(GPU) not in {"unavailable", first})
                assert seen.value(GPU) in {value("rig", 0, 0, seq) for seq in range(node.made[node.session])}
                circuits = [one for one in seen.found.values() if one["unique_id"].startswith(CIRCUIT)]
                assert len(circuits) == 7
            await end(mosquitto, "rig")
            await until(
                lambda: (
                    seen.value(GPU) == "offline"
                    or seen.states[seen.entity(GPU)["state_topic"]]["available"] == "offline"
                )
            )  # type: ignore[index]
            assert await aggregator.forget("rig")
            await until(lambda: all("circuit" in topic for topic in seen.found))
            assert seen.entity(GPU) is None
        await until(lambda: set(seen.status.values()) == {"offline"})
        assert seen.found, "what is announced stays while the aggregator is away, as unavailable"


@pytest.mark.systems
async def test_a_restart_announces_nothing_twice_and_clears_what_is_gone(
    mosquitto: Mosquitto, tmp_path: Path, impatient: None
) -> None:
    broker = mosquitto.config
    async with ticking(broker), home(broker) as seen:
        async with running(settings(broker, tmp_path)):
            await until(lambda: seen.value(GPU) not in {"unavailable", None})
            before, count = dict(seen.found), seen.count
        async with running(settings(broker, tmp_path)):
            await until(lambda: seen.count >= count + len(before), "all announced once more")
            await until(lambda: seen.value(GPU) not in {"unavailable", None})
            assert seen.found == before
        (tmp_path / publisher.NAME).unlink()  # the broker itself remembers what was announced
        async with running(settings(broker, tmp_path, power={})):
            await until(lambda: all(CIRCUIT not in str(one) for one in seen.found.values()))
            await until(lambda: seen.value(GPU) not in {"unavailable", None})
            gone = (CIRCUIT, "_cost")  # without a site there is no price either
            kept = {topic for topic, one in before.items() if not any(each in one["unique_id"] for each in gone)}
            assert seen.found.keys() == kept


@pytest.mark.systems
async def test_switched_off_or_moved_it_leaves_nothing(mosquitto: Mosquitto, tmp_path: Path) -> None:
    broker = mosquitto.config
    other = HomeAssistantConfig(enabled=True, every_seconds=1.0, prefix="elsewhere/discovery")
    async with ticking(broker), home(broker) as seen, home(broker, other.prefix) as moved:
        async with running(settings(broker, tmp_path)):
            await until(lambda: seen.value(GPU) not in {"unavailable", None})
        async with running(settings(broker, tmp_path, homeassistant=HomeAssistantConfig())):
            await until(lambda: not seen.found)
            await until(lambda: not (tmp_path / publisher.NAME).exists())
        async with running(settings(broker, tmp_path)):
            await until(lambda: seen.value(GPU) not in {"unavailable", None})
        assert not moved.found
        async with running(settings(broker, tmp_path, homeassistant=other)):
            await until(lambda: not seen.found)
            await until(lambda: moved.value(GPU) not in {"unavailable", None})
            assert not seen.found


@pytest.mark.parametrize("on", [True, False])
async def test_a_password_that_is_gone_hinders_the_removal_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, on: bool
) -> None:
    """The settings of an earlier run named it, and are not those of this one."""
    file = tmp_path / publisher.NAME
    was = publisher.Announced(
        broker=BrokerConfig(username="ha", password_file=Path("mqtt.password")), topics=["a/config"]
    )
    file.write_bytes(msgspec.json.encode(was, enc_hook=str))
    now = settings(BrokerConfig(port=free_port()), tmp_path, homeassistant=HomeAssistantConfig(enabled=on))
    one = publisher.HomeAssistantPublisher(FakeView(), now)
    assert one.wanted
    task = asyncio.create_task(one.run())
    await until(lambda: "entities can't be removed: broker.password_file: mqtt" in caplog.text)
    await until(lambda: file.exists() is not on)  # switched off, it tries until it succeeds
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})


def test_a_later_run_finds_the_password_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    broker = BrokerConfig(password_file=Path("mqtt.password"), ca_file=Path("~/ca.crt"))
    one = publisher.HomeAssistantPublisher(FakeView(), settings(broker, tmp_path))
    one._save({"a/config"})
    saved = publisher.load(tmp_path / publisher.NAME)
    assert saved is not None
    assert saved.broker.password_file == tmp_path / "mqtt.password"
    assert saved.broker.ca_file == Path("~/ca.crt")


@pytest.mark.systems
async def test_nothing_is_removed_in_the_first_minute(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """Nodes and circuits are not yet known then."""
    broker = mosquitto.config
    async with home(broker) as seen:
        async with ticking(broker), running(settings(broker, tmp_path / "a")):
            await until(lambda: seen.value(GPU) not in {"unavailable", None})
        async with running(settings(broker, tmp_path / "b")):
            await until(lambda: set(seen.status.values()) == {"online"})
            count = seen.count
            await until(lambda: seen.count > count or len(seen.states) > 0)
            assert seen.entity(GPU) is not None


@pytest.mark.systems
async def test_home_assistant_that_starts_is_sent_every_state(mosquitto: Mosquitto, tmp_path: Path) -> None:
    broker = mosquitto.config
    quiet = HomeAssistantConfig(enabled=True, every_seconds=2.0)
    async with running(settings(broker, tmp_path, homeassistant=quiet)) as aggregator, home(broker) as seen:
        await until(lambda: len(seen.found) == 7)
        topic = next(iter(seen.found.values()))["state_topic"]
        await until(lambda: topic in seen.states)
        async with plain_client(broker) as client:
            for _ in range(3):
                seen.states.clear()
                await client.publish("homeassistant/status", b"online", qos=1)
                await until(lambda: topic in seen.states)
        assert aggregator.supervisor.states["home assistant"].restarts == 0


@pytest.mark.systems
async def test_an_aggregator_that_is_killed_leaves_unavailable_entities(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """By the last will; and every entity expires, should the broker be gone too."""
    file = tmp_path / "kilowatch.toml"
    file.write_text(
        f"[broker]\nport = {mosquitto.port}\n[homeassistant]\nenabled = true\nevery_seconds = 1\n"
        f'[aggregator]\nlisten = ""\ndata_dir = "{tmp_path}/data"\n'
    )
    command = [sys.executable, "-m", "kilowatch", "aggregate", "--config", str(file)]
    async with ticking(mosquitto.config), home(mosquitto.config) as seen:
        process = await asyncio.create_subprocess_exec(*command)
        await until(lambda: seen.value(GPU) not in {"unavailable", None})
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await until(lambda: seen.value(GPU) == "unavailable")
        assert {one["expire_after"] for one in seen.found.values()} == {9}


async def test_the_access_list_lets_the_aggregator_announce_its_own_cluster_alone(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text(access_list("default", ["boss"], []) + "\nuser ha\ntopic readwrite #\n")
    broker = Mosquitto(tmp_path, f"acl_file {acl}\n")
    broker.start()
    try:
        own = msgspec.structs.replace(broker.config, username="boss")
        async with home(msgspec.structs.replace(broker.config, username="ha")) as seen:
            async with running(settings(own, tmp_path / "data")):
                await until(lambda: len(seen.found) == 7)
                await until(lambda: len(seen.states) == 1)
            await until(lambda: set(seen.status.values()) == {"offline"})
            async with plain_client(own) as client:
                await client.publish("homeassistant/sensor/kilowatch-other/a/config", b"{}", 1, True)
                topic = "homeassistant/sensor/kilowatch-default/a/config"
                await client.publish(topic, b'{"unique_id": "last"}', 1, True)
            await until(lambda: topic in seen.found)
            assert len(seen.found) == 8
    finally:
        broker.kill()


def test_only_messages_of_this_aggregator_are_its_own() -> None:
    device = circuit()
    other = Topics("homeassistant", "lab", "00-7f")
    payload = next(iter(discovery(device, TOPICS, 9).values()))
    assert is_of(TOPICS, payload)
    assert not is_of(other, payload)
    for text in (b"", b"{", b"[]", b'"\xff"', b'{"availability": 3}', b'{"availability": []}'):
        assert not is_of(TOPICS, text)
