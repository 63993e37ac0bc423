"""The task that publishes devices to Home Assistant, and removes those that are gone.

A connection of its own, so that its last will marks every entity as unavailable when the aggregator
dies. Discovery messages are retained; states are not: Home Assistant receives all of them again when
it says that it has started. The file `homeassistant.json` in the data folder lists what is announced and
where, so that it is removed when the setting is switched off or names another broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from pathlib import Path
from typing import NamedTuple

import aiomqtt
import msgspec

from aggregator.config import AggregatorConfig, shard_names
from aggregator.folder import kinds
from aggregator.homeassistant.devices import PAGE, DeviceReader
from aggregator.homeassistant.entities import Device, Topics, discovery, is_of
from aggregator.view import AggregatorView, parts_of
from telemetry.errors import BusError, ConfigError
from telemetry.files.state_file import json_of, replace_file
from telemetry.runtime.backoff import Backoff
from telemetry.wire.mqtt import FIRST_PAUSE, LONGEST_PAUSE, BrokerConfig, client_id, connect, pause

log = logging.getLogger(__name__)

NAME = "homeassistant.json"
GRACE_SECONDS = 60.0
"""Seconds after the start in which nothing is removed: nodes and circuits come back one by one."""
LONGEST_REMOVAL_PAUSE = 600.0
"""Seconds between two tries to remove what is announced, where its broker is away."""
LAST_SECONDS = 2.0
"""Seconds that the farewell may take."""
LONGEST_BYTES = 256 * 1024
"""Bytes that are kept of a message; a discovery message, the longest that is read, has a thousand."""


class Announced(msgspec.Struct, kw_only=True):
    """Content of the file: what is announced, and where."""

    broker: BrokerConfig = BrokerConfig()
    prefix: str = ""
    status: str = ""
    """Topic of the availability."""
    topics: list[str] = []
    """Topics of the discovery messages."""
    version: int = 1


class MadeDevice(NamedTuple):
    """Messages of a device."""

    id: str
    messages: dict[str, bytes]
    """Discovery messages by topic."""
    topic: str
    """Of its state."""
    state: bytes


class HomeAssistantPublisher:
    """Publishes while the setting is on; removes what an earlier run has published when it is off."""

    def __init__(self, view: AggregatorView, config: AggregatorConfig) -> None:
        self._view = view
        self._settings = config.homeassistant
        self._broker = _whole_paths(config.homeassistant.broker or config.broker)
        self._topics = Topics(
            config.homeassistant.prefix, config.cluster, ",".join(shard_names(config.shards)) or "all"
        )
        self._file = config.data_dir / NAME
        self._reader = DeviceReader(view)
        self._published: dict[str, bytes] = {}
        """Discovery messages that were sent over the present connection."""
        self._leftover: set[str] = set()
        """Discovery messages of an earlier run that the broker retains."""
        self._sent: dict[str, tuple[bytes, float]] = {}
        """The last state of each device, and when it was sent."""
        self._began = math.inf

    @property
    def wanted(self) -> bool:
        """Whether there is anything to do: the setting is on, or it was before."""
        return self._settings.enabled or self._file.exists()

    async def run(self) -> None:
        """Publish until cancelled."""
        await self._remove_elsewhere()
        if not self._settings.enabled:
            await asyncio.Event().wait()
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        while True:
            began = loop.time()
            try:
                await self._session()
            except BusError as error:
                backoff.lasted(loop.time() - began)
                await pause(backoff, f"home assistant: {error}")

    # -- What an earlier run has announced -------------------------------------------------------

    async def _remove_elsewhere(self) -> None:
        """Remove what is announced where it is not wanted: anywhere when the setting is off, else at
        another broker or as another aggregator. With the setting off, this tries until it succeeds."""
        found = load(self._file)
        off = not self._settings.enabled
        backoff = Backoff(FIRST_PAUSE, LONGEST_REMOVAL_PAUSE)
        place = (self._broker, self._topics.prefix, self._topics.status)
        while found is not None and (off or (found.broker, found.prefix, found.status) != place):
            try:
                await _remove(found)
            except (BusError, ConfigError) as error:  # `ConfigError`: its password is gone
                why = f"home assistant: {len(found.topics)} entities can't be removed: {error}"
                if off:
                    await pause(backoff, why)
                    continue
                log.warning("%s; they stay there as unavailable", why)
            found = None
            self._file.unlink(missing_ok=True)

    def _save(self, topics: set[str]) -> None:
        """Note what is announced, before it is."""
        record = Announced(
            broker=self._broker,
            prefix=self._topics.prefix,
            status=self._topics.status,
            topics=sorted(topics | self._leftover),
        )
        replace_file(self._file, msgspec.json.encode(record, enc_hook=str))

    # -- A connection ----------------------------------------------------------------------------

    async def _session(self) -> None:
        """Publish until the connection breaks. Raises `BusError`."""
        topics = self._topics
        will = aiomqtt.Will(topics.status, b"offline", qos=1, retain=True)
        self._published.clear()
        self._sent.clear()
        async with connect(self._broker, client_id("kilowatch-homeassistant"), will, longest=LONGEST_BYTES) as client:
            await client.subscribe([(topics.announced, 1), (topics.birth, 1)])
            log.info("home assistant: MQTT broker %s: connected", client.address)
            receiving = asyncio.create_task(self._receive(client), name="home assistant messages")
            try:
                await client.publish(topics.status, b"online", qos=1, retain=True)
                while True:
                    await self._update(client, asyncio.get_running_loop().time())
                    await asyncio.wait({receiving}, timeout=self._settings.every_seconds)
                    if receiving.done():
                        receiving.result()
            finally:
                receiving.cancel()
                with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
                    async with asyncio.timeout(LAST_SECONDS):
                        await client.publish(topics.status, b"offline", qos=1, retain=True)
                await asyncio.gather(receiving, return_exceptions=True)

    async def _receive(self, client: aiomqtt.Client) -> None:
        """Note what an earlier run has left, and when Home Assistant has started."""
        async for message in client.messages:
            name, payload = str(message.topic), message.payload
            if name == self._topics.birth:
                if bytes(payload) == b"online":
                    self._sent.clear()  # it has no states: the next update sends all
            elif name not in self._published and is_of(self._topics, bytes(payload)):
                self._leftover.add(name)

    async def _update(self, client: aiomqtt.Client, now: float) -> None:
        """Send what has changed: discovery messages, removals, states."""
        devices = self._reader.read()
        made = self._made(devices)
        wanted: dict[str, bytes] = {}
        fresh = set()
        for one in made:
            wanted |= one.messages
            if any(self._published.get(topic) != message for topic, message in one.messages.items()):
                fresh.add(one.id)
        self._leftover -= wanted.keys()
        gone = self._published.keys() - wanted.keys() | self._leftover
        unmade = self._reader.unmade | {device.id for device in devices} - {one.id for one in made}
        if unmade:  # it is there all the same, and its history with it
            gone = {topic for topic in gone if not any(f"/{each}_" in topic for each in unmade)}
        if now - self._began < GRACE_SECONDS:
            gone = set()
        if wanted.keys() - self._published.keys() or gone:
            await asyncio.to_thread(self._save, wanted.keys() | self._published.keys())
        for topic in sorted(gone):
            await client.publish(topic, b"", qos=1, retain=True)
            self._published.pop(topic, None)
            self._leftover.discard(topic)
        for topic, message in wanted.items():
            if self._published.get(topic) != message:
                await client.publish(topic, message, qos=1, retain=True)
                self._published[topic] = message
        await self._send_states(client, made, fresh, now)

    def _made(self, devices: list[Device]) -> list[MadeDevice]:
        """Return the messages of the devices, of each by itself."""

        def make(place: int) -> MadeDevice:
            device, topics = devices[place], self._topics
            messages = discovery(device, topics, self._settings.expire_seconds)
            return MadeDevice(device.id, messages, topics.state(device), device.state())

        names = [device.name for device in devices]
        return parts_of(self._view, PAGE).each("device", names, make)

    async def _send_states(self, client: aiomqtt.Client, made: list[MadeDevice], fresh: set[str], now: float) -> None:
        """Send the states that have changed or are due again. `fresh`: devices that were announced just
        now; Home Assistant may not listen to them yet, so that their states are sent at the next
        update too."""
        again = self._settings.again_seconds - self._settings.every_seconds / 2
        sent = {}
        for one in made:
            before, at = self._sent.get(one.id, (b"", -math.inf))
            if one.state != before or now - at >= again:
                await client.publish(one.topic, one.state, qos=0)
                at = now
            sent[one.id] = (b"" if one.id in fresh else one.state, at)
        self._sent = sent


def _whole_paths(broker: BrokerConfig) -> BrokerConfig:
    """Return the settings with paths that hold in any working directory: a later run reads them from
    the file. `~` and systemd's credentials are looked up by their reader."""
    paths = {
        name: path.absolute()
        for name in ("password_file", "ca_file", "cert_file", "key_file")
        if (path := getattr(broker, name)) is not None and not str(path).startswith(("~", "$"))
    }
    return msgspec.structs.replace(broker, **paths)


async def _remove(found: Announced) -> None:
    """Remove everything that is announced. Raises `BusError`."""
    async with connect(found.broker, client_id("kilowatch-homeassistant")) as client:
        for topic in [*found.topics, found.status]:
            await client.publish(topic, b"", qos=1, retain=True)
    log.info("home assistant: %d entities were removed", len(found.topics))


def load(path: Path) -> Announced | None:
    """Return what an earlier run has announced; None where there is nothing, or no way to know."""
    return kinds.read(path, json_of(Announced, _path))


def _path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(kind)
