"""Meters over real brokers: what comes, what goes, what is nonsense, and what was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiomqtt
import pytest

from aggregator.meters import MeterHub
from aggregator.meters.mqtt import matches
from telemetry.errors import ConfigError
from telemetry.wire.mqtt import BrokerConfig, connect
from tests.aggregator.meter_hub import newer, reading, running, site_of, state
from tests.brokers import Broker, Mosquitto
from tests.kit.waiting import until

PLUG = '[meters.plug]\ntype = "tasmota"\ntopic = "plug"\non = "office"\n'
STRIP = '[meters.strip]\ntype = "shelly"\ntopic = "strip"\ncomponent = "switch:0"\nevery = 1\non = "lab"\n'
SENSOR = "tele/plug/SENSOR"


def energy(watts: object) -> str:
    return json.dumps({"Time": "x", "ENERGY": {"Power": watts, "Voltage": 119}})


def seen(hub: MeterHub, name: str) -> bool:
    """Whether the meter's subscriptions stand: a device may publish now."""
    return state(hub, name).online is True


@asynccontextmanager
async def devices(broker: Broker) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Something that publishes as the meters do."""
    async with connect(broker.config, "devices") as client:

        async def say(topic: str, payload: str | bytes, *, retain: bool = False) -> None:
            await client.publish(topic, payload, qos=1, retain=retain)

        yield say


async def test_a_plug_is_read_through_any_broker(broker: Broker) -> None:
    """mosquitto and the embedded one."""
    async with devices(broker) as say, running(PLUG, broker.config) as hub:
        await say("tele/plug/LWT", "Online", retain=True)
        await until(lambda: seen(hub, "plug"))
        await say(SENSOR, energy(845))
        found = await until(lambda: reading(hub, "office"))
        assert (found.watts, found.volts, found.amps, found.meter) == (845, 119, None, "plug")
        await say("tele/plug/LWT", "Offline", retain=True)
        await until(lambda: "offline" in found_flags(hub))


def found_flags(hub: MeterHub) -> tuple[str, ...]:
    found = reading(hub, "office")
    return found.flags if found else ()


async def test_a_retained_reading_is_of_no_known_age_and_is_no_reading(mosquitto: Mosquitto) -> None:
    async with devices(mosquitto) as say:
        await say(SENSOR, energy(500), retain=True)
        await say("tele/plug/LWT", "Online", retain=True)
        async with running(PLUG, mosquitto.config) as hub:
            await until(lambda: seen(hub, "plug"))
            await say(SENSOR, energy(845))
            found = await until(lambda: reading(hub, "office"))
            assert found.watts == 845
            assert state(hub, "plug").readings == 1


async def test_nonsense_is_counted_said_once_and_never_a_value(
    mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with devices(mosquitto) as say, running(PLUG + STRIP, mosquitto.config) as hub:
        await say("tele/plug/LWT", "Online", retain=True)
        await until(lambda: seen(hub, "plug"))
        for payload in ("nonsense", energy("x"), "nonsense", b"\xff", b"x" * 70_000, b"x" * 1_000_000, "nonsense"):
            await say(SENSOR, payload)
        await until(lambda: state(hub, "plug").malformed == 7)
        assert reading(hub, "office") is None
        said = [record for record in caplog.records if "meter plug" in record.getMessage()]
        assert len(said) == 3  # not_json, no_number, too_long: each once
        assert SENSOR in state(hub, "plug").message
        await say(SENSOR, energy(845))
        assert (await until(lambda: reading(hub, "office"))).watts == 845
        assert state(hub, "plug").message == ""


async def test_a_shelly_is_asked_so_that_a_steady_load_stays_fresh(mosquitto: Mosquitto) -> None:
    """A real round through the broker: question on its topic, answer on ours."""
    async with connect(mosquitto.config, "strip") as device, running(STRIP, mosquitto.config) as hub:
        await device.subscribe("strip/rpc", qos=1)
        asked = 0

        async def answer() -> None:
            nonlocal asked
            async for message in device.messages:
                asked += 1
                assert isinstance(message.payload, bytes)
                question = json.loads(message.payload)
                assert question["method"] == "Switch.GetStatus"
                result = {"id": 0, "apower": 77.5, "voltage": 230.0}
                told = {"id": question["id"], "src": "strip", "dst": question["src"], "result": result}
                await device.publish(f"{question['src']}/rpc", json.dumps(told))

        answering = asyncio.create_task(answer())
        first = await until(lambda: reading(hub, "lab"))
        assert first.watts == 77.5
        later = await until(lambda: newer(hub, "lab", first))
        assert (later.watts, asked >= 2) == (77.5, True)
        answering.cancel()


async def test_a_device_that_takes_no_questions_is_told_of(mosquitto: Mosquitto) -> None:
    async with running(STRIP, mosquitto.config) as hub:
        await until(lambda: "does not answer on strip/rpc" in state(hub, "strip").message)


async def test_meters_of_another_broker_and_one_broker_down(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """The house's own broker; ours is dead, and theirs goes on."""
    (tmp_path / "dead").mkdir()
    house = f'[brokers.house]\nhost = "127.0.0.1"\nport = {mosquitto.port}\n'
    other = PLUG.replace("plug", "other").replace("office", "lab")
    dead = Mosquitto(tmp_path / "dead")  # not started
    meters = PLUG + 'broker = "house"\n' + other + house
    async with devices(mosquitto) as say, running(meters, dead.config) as hub:
        await say("tele/plug/LWT", "Online", retain=True)
        await until(lambda: seen(hub, "plug"))
        await say(SENSOR, energy(845))
        await until(lambda: reading(hub, "office"))
        await until(lambda: f":{dead.port}" in state(hub, "other").message)
        assert state(hub, "other").errors >= 1


async def test_a_broker_that_dies_and_comes_back(mosquitto: Mosquitto) -> None:
    """Nothing is made up meanwhile, and a partial state from before is void."""
    async with running(STRIP + "poll = false\n", mosquitto.config) as hub:
        async with devices(mosquitto) as say:
            await say("strip/online", "true", retain=True)
            await until(lambda: seen(hub, "strip"))
            await say("strip/status/switch:0", '{"apower":100,"voltage":230}')
            before = await until(lambda: reading(hub, "lab"))
        mosquitto.kill()
        await until(lambda: "broker" in state(hub, "strip").message)
        mosquitto.start()
        await until(lambda: state(hub, "strip").message == "")
        async with devices(mosquitto) as say:
            await say("strip/online", "true", retain=True)
            partial = {"method": "NotifyStatus", "params": {"switch:0": {"voltage": 231.0}}}

            async def again() -> None:
                await say("strip/events/rpc", json.dumps(partial))

            await again()
            after = await until(lambda: newer(hub, "lab", before))
        assert (after.watts, after.volts) == (None, 231)


async def test_another_configuration_keeps_what_is_measured_as_before(mosquitto: Mosquitto) -> None:
    async with devices(mosquitto) as say, running(PLUG, mosquitto.config) as hub:
        await say("tele/plug/LWT", "Online", retain=True)
        await until(lambda: seen(hub, "plug"))
        await say(SENSOR, energy(845))
        await until(lambda: reading(hub, "office"))
        hub.configure(site_of(PLUG + STRIP + "poll = false\n"))
        assert reading(hub, "office") is not None
        await say("strip/online", "true", retain=True)
        await until(lambda: seen(hub, "strip"))
        await say("strip/status/switch:0", '{"apower":100}')
        assert (await until(lambda: reading(hub, "lab"))).watts == 100
        with pytest.raises(ConfigError, match=r"meters\.house\.password_file: /nowhere can't be read"):
            hub.configure(site_of('[meters.house]\ntype = "nut"\nusername = "u"\npassword_file = "/nowhere"\n'))
        assert [one.name for one in hub.states()] == ["plug", "strip"]


async def test_a_refused_subscription_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """mosquitto with an ACL file grants and then stays silent; others answer 0x80, as this one."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind = (await reader.readexactly(1))[0] >> 4
                size = shift = 0
                while True:
                    byte = (await reader.readexactly(1))[0]
                    size |= (byte & 0x7F) << shift
                    shift += 7
                    if not byte & 0x80:
                        break
                body = await reader.readexactly(size)
                if kind == 1:
                    writer.write(b"\x20\x02\x00\x00")
                elif kind == 8:
                    writer.write(b"\x90\x04" + body[:2] + b"\x80\x80")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, running(PLUG, BrokerConfig(port=port)) as hub:
        await until(lambda: "refuses to let us read tele/plug/LWT, tele/plug/SENSOR" in caplog.text)
        assert "may not read" in state(hub, "plug").message


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [("a/+/c", "a/b/c", True), ("a/+", "a/b/c", False), ("a/b", "a/b", True), ("a/+/c", "a/b/d", False)],
)
def test_filters(pattern: str, topic: str, fits: bool) -> None:
    assert matches(pattern, topic) is fits
    assert aiomqtt.Topic(topic).matches(pattern) is fits  # as the standard says
