"""The door to the bus for everyone but the aggregator's fan-in: one broker, patient reconnects.

The collector, `tap` and `record` come through here (aiomqtt); the aggregator, which takes a whole
fleet, has a cheaper client of its own in `aggregator.mqtt.client`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import msgspec

from telemetry.backoff import Backoff
from telemetry.errors import BusError, ConfigError

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds between two tries to connect."""
LOOK_EVERY = 1.5
"""Seconds between two looks at whether the broker still answers, where nothing is sent."""


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the MQTT broker is and how to enter."""

    host: str = "127.0.0.1"
    port: int = 1883
    username: str | None = None
    password_file: Path | None = None
    """A file with the password alone, so that it stands in no process list and no log."""
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    keepalive: int = 10
    """Seconds; a dead connection is noticed after one and a half. rumqttd refuses 0."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for what no broker has."""
        if not 1 <= self.port <= 65535:
            raise ConfigError("broker.port", f"{self.port} is no port", "Write 1 to 65535.")
        if not 1 <= self.keepalive <= 65535:
            raise ConfigError(
                "broker.keepalive", f"{self.keepalive} s is out of range", "10 is usual."
            )

    def password(self) -> str | None:
        """Read the password. Raises `ConfigError` when its file can't be read."""
        if self.password_file is None:
            return None
        try:
            return self.password_file.read_text().strip()
        except OSError as error:
            raise ConfigError(
                "broker.password_file", f"{self.password_file} can't be read: {error.strerror}"
            ) from error

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for a plain connection."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("broker", f"the TLS files can't be used: {error}") from error
        return context


class MqttClient(aiomqtt.Client):
    """aiomqtt with fewer wake-ups: at one message a second they are most of what it costs.

    What is published is written at once, where aiomqtt waits for the loop to find the socket
    writable; and who publishes looks after the pings on the way, for which aiomqtt has a timer.
    """

    _look: asyncio.TimerHandle | None = None

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:
        if asyncio._get_running_loop() is not self._loop:  # noqa: SLF001 - None in a thread
            super()._on_socket_register_write(client, userdata, sock)
            return
        try:
            client.loop_write()
        except Exception as error:  # noqa: BLE001 - as aiomqtt does when the loop calls it
            if not self._disconnected.done():
                self._disconnected.set_exception(error)
            return
        if client.want_write():  # the kernel has no room: when it has, the loop goes on
            super()._on_socket_register_write(client, userdata, sock)
        elif self._look is not None and self._look.when() - self._loop.time() < LOOK_EVERY / 2:
            self._look_after()

    async def _misc_loop(self) -> None:
        try:
            self._look_after()
            await self._loop.create_future()  # until the socket closes
        finally:
            if self._look is not None:
                self._look.cancel()
                self._look = None

    def _look_after(self) -> None:
        """Ping, and notice that no answer came, if it is time; look again a little later."""
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.call_later(LOOK_EVERY, self._look_after)
        self._client.loop_misc()


@asynccontextmanager
async def connect(
    broker: BrokerConfig,
    client_id: str,
    will: aiomqtt.Will | None = None,
    send_buffer: int | None = None,
) -> AsyncIterator[aiomqtt.Client]:
    """Connect once. Raises `BusError` when the broker can't be reached, refuses, or goes away.

    `send_buffer` bounds how many bytes the kernel holds for a slow connection.
    """
    client = MqttClient(
        broker.host,
        broker.port,
        identifier=client_id,
        username=broker.username,
        password=broker.password(),
        will=will,
        # paho gives up a silent connection after up to two of its keepalives, and two looks: this
        # keeps the promise of `BrokerConfig.keepalive`, one and a half of what the operator says.
        keepalive=max(1, int(0.6 * broker.keepalive)),
        tls_context=broker.context(),
        protocol=aiomqtt.ProtocolVersion.V311,
        timeout=10,
        max_queued_incoming_messages=10_000,
        socket_options=[(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)] if send_buffer else (),
    )
    entered = False
    try:
        async with client:
            entered = True
            yield client
    except aiomqtt.MqttError as error:
        raise BusError(f"MQTT broker {broker.host}:{broker.port}: {error}") from error
    finally:
        if not entered:  # aiomqtt leaves the socket of a connection that nobody waits for open
            client._client.disconnect()  # noqa: SLF001


async def pause(backoff: Backoff, why: object) -> None:
    """Wait before the next try to connect, and say so once."""
    seconds = backoff.next()
    log.warning("bus: %s; next try in %.1f s", why, seconds)
    await asyncio.sleep(seconds)
