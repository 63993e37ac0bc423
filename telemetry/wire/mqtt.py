"""The MQTT client of the collector, `tap`, `record` and the meters (aiomqtt), and its settings.

The aggregator, which receives a whole fleet, has a cheaper client in `aggregator.mqtt.client`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import aiomqtt
import msgspec
from paho.mqtt.enums import LogLevel

from telemetry.errors import BusError, ConfigError
from telemetry.files import local_token
from telemetry.files.secrets import check_readable, read_secret, secret_path
from telemetry.runtime.backoff import Backoff
from telemetry.text.connection_faults import connection_fault

log = logging.getLogger(__name__)
_QUIET = logging.getLogger("kilowatch.paho")
_QUIET.setLevel(logging.CRITICAL)  # it logs as an error of its own what is raised too
T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds between two tries to connect."""
EMBEDDED_USER = "kilowatch"
"""User of the broker of `kilowatch run`."""
CHECK_SECONDS = 1.5
"""Seconds between two checks whether the broker still answers, where nothing is sent."""
PIECE_BYTES = 64 * 1024
"""Bytes that are read at once: paho asks for all of a message, for which as much is allocated before it has come."""
LEAST_BYTES = 128 * 1024
"""A message is cut behind its topic, which has 64 KiB at most."""
LONGEST_BYTES = 16 * 1024 * 1024 + LEAST_BYTES
"""Bytes that are kept of a message where whoever connects says no less: more than any kind of message may have."""


DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 1883
BOTH_GIVEN = "it is given beside host or port, and only one of them can be meant"
BOTH_REMEDY = 'Write all addresses in hosts, as ["a:1883", "b:1883"], and remove host and port.'


def client_id(name: str) -> str:
    """Return an MQTT client id that only its maker and the broker know: a name and 128 random bits.

    A broker drops a client when another connects with its id, so an id that can be guessed lets any
    user of the broker throw off any other. Make it once and keep it: a client that returns with its
    own id replaces its old connection, and the last will of that one is sent before anything new.
    """
    # nats-server refuses an id with a dot, which node names have.
    return f"{name.replace('.', '_')}-{secrets.token_hex(16)}"


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address and credentials of the MQTT broker."""

    host: str = DEFAULT_HOST
    """Name or address of the broker."""
    port: int = DEFAULT_PORT
    """1883 is usual, 8883 with TLS."""
    hosts: tuple[str, ...] = ()
    """Brokers of one cluster in place of `host` and `port`, as `["a:1883", "b:1883"]`: the first that
    lets us in is used."""
    username: str | None = None
    """User of the broker, where it asks for one."""
    password_file: Path | None = None
    """File with the password alone, which so appears in no process list and no log."""
    tls: bool = False
    """Whether the connection is encrypted; the three files below need it."""
    ca_file: Path | None = None
    """Authority that the broker's certificate must be signed by. [the system's]"""
    cert_file: Path | None = None
    """Our certificate, for a broker that asks for one."""
    key_file: Path | None = None
    """The key of `cert_file`."""
    keepalive: int = 10
    """Seconds; a dead connection is noticed after one and a half. rumqttd refuses 0."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for values that no broker has."""
        if not 1 <= self.port <= 65535:
            raise ConfigError("broker.port", f"{self.port} is no port", "Write 1 to 65535.")
        if self.hosts and (self.host, self.port) != (DEFAULT_HOST, DEFAULT_PORT):
            raise ConfigError("broker.hosts", BOTH_GIVEN, BOTH_REMEDY)
        for text in self.hosts:
            _address(text)
        if len(set(self.hosts)) < len(self.hosts):
            raise ConfigError("broker.hosts", "an address is there twice", "Write each once.")
        if not 1 <= self.keepalive <= 65535:
            raise ConfigError("broker.keepalive", f"{self.keepalive} s is out of range", "10 is usual.")

    @property
    def address(self) -> str:
        """Addresses as a person writes them."""
        return ", ".join(self.hosts) or f"{self.host}:{self.port}"

    def each(self) -> list[BrokerConfig]:
        """Return the settings for each address, in the order in which they are tried.

        It is the order of the list, from its first address at each try, and the same for all: brokers
        that share no messages, of which one stands by, so still bring nodes and aggregator together.
        """
        if not self.hosts:
            return [self]
        found = []
        for text in self.hosts:
            host, port = _address(text)
            found.append(msgspec.structs.replace(self, host=host, port=port, hosts=()))
        return found

    def password(self) -> str | None:
        """Read the password. Raises `ConfigError` when its file can't be read."""
        if self.password_file is None:
            return None
        return read_secret("broker.password_file", self.password_file, "password")

    def login(self) -> tuple[str | None, str | None]:
        """Return user and password. Without any in the settings, those of the broker that this user
        runs at this address (`kilowatch run`). Raises `ConfigError`."""
        if self.username is None and self.password_file is None and self.cert_file is None:
            password = local_token.find_at(self.host, self.port, local_token.BROKERS)
            if password is not None:
                return EMBEDDED_USER, password
        return self.username, self.password()

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for a plain connection."""
        if not self.tls:
            return None
        ca_file, cert_file, key_file = (self._tls_file(name) for name in ("ca_file", "cert_file", "key_file"))
        try:
            context = ssl.create_default_context(cafile=ca_file)
            if cert_file is not None:
                # Without a password openssl would ask for one on the terminal.
                context.load_cert_chain(cert_file, key_file, password="")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("broker", f"the TLS files can't be used: {error}") from error
        return context

    def _tls_file(self, name: str) -> Path | None:
        """Return the path of a TLS file. Raises `ConfigError` when it can't be read."""
        path: Path | None = getattr(self, name)
        if path is None:
            return None
        found = secret_path(f"broker.{name}", path)
        check_readable(f"broker.{name}", found)
        return found


def _address(text: str) -> tuple[str, int]:
    """Split `a.example:1883` or `[::1]:1883`. Raises `ConfigError`."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if (
        not bare
        or (":" in bare and host != f"[{bare}]")
        or not colon
        or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535)
    ):
        raise ConfigError("broker.hosts", f"{text!r} is no address", "Write host:port, as a:1883.")
    return bare, int(port)


class _CutPacket(bytearray):
    """Body of a packet that keeps its first bytes, and drops what comes behind them."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self._longest = longest

    def __iadd__(self, data: Any) -> Self:  # type: ignore[misc]
        return super().__iadd__(data[: self._longest - len(self)])


class MqttClient(aiomqtt.Client):
    """aiomqtt with fewer wake-ups: at one message a second they are most of what it costs.

    A message is written at once, where aiomqtt waits for the loop to find the socket writable; and
    publishing handles the pings too, for which aiomqtt has a timer. A connection that the broker
    closes before it answers, as for a certificate that it refuses, is an error at once.

    A message of any length is read to its end and acknowledged, but only its beginning is kept and passed on: whoever
    receives it refuses it, as any that is broken or too long.
    """

    address = ""
    """Broker that it is for, as `host:port`."""
    _check_timer: asyncio.TimerHandle | None = None
    _failure = "it closed the connection unanswered: does it ask for a password or a certificate?"

    def __init__(self, *arguments: Any, longest: int = LONGEST_BYTES, **named: Any) -> None:
        """`longest`: bytes that are kept of a packet, which is a message with its topic; `LEAST_BYTES` or more."""
        super().__init__(*arguments, **named)
        self._client.on_log = self._on_log
        self._bound(max(longest, LEAST_BYTES))

    def _bound(self, longest: int) -> None:
        """Have paho read in pieces, and keep `longest` bytes of a packet: it has no setting for either."""
        client: Any = self._client
        receive, read = client._sock_recv, client._packet_read  # noqa: SLF001

        def read_packet() -> int:
            packet = client._in_packet  # noqa: SLF001 - a new one each time that a packet is done
            if not packet["packet"]:
                packet["packet"] = _CutPacket(longest)
            return cast("int", read())

        client._sock_recv = lambda most: receive(min(most, PIECE_BYTES))  # noqa: SLF001
        client._packet_read = read_packet  # noqa: SLF001

    def _on_log(self, _client: Any, _userdata: Any, level: int, text: str) -> None:
        if level == LogLevel.MQTT_LOG_ERR:  # the only place that has TLS's reason
            self._failure = text

    def _on_disconnect(self, *arguments: Any, **named: Any) -> None:
        if not self._connected.done():
            self._loop.call_soon_threadsafe(self._fail_connecting)
        super()._on_disconnect(*arguments, **named)

    def _fail_connecting(self) -> None:
        if not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError(self._failure))

    def _on_socket_open(self, client: Any, _userdata: Any, sock: Any) -> None:
        self._loop.call_soon_threadsafe(self._attend, client, sock)

    def _attend(self, client: Any, sock: Any) -> None:
        """Read from a connection. Its socket is asked for in the loop: it may be closed by now, and its number be another's."""
        if sock.fileno() >= 0:
            self._loop.add_reader(sock.fileno(), self._read_all, client)
            self._misc_task = self._loop.create_task(self._misc_loop())

    def _read_all(self, client: Any) -> None:
        """Read what there is, what TLS has decrypted already included, as aiomqtt does."""
        try:
            client.loop_read()
            while isinstance(client._sock, ssl.SSLSocket) and client._sock.pending():  # noqa: SLF001
                client.loop_read()
        except Exception as error:  # noqa: BLE001 - as aiomqtt: the connection is broken
            self._break(error)

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:
        if asyncio._get_running_loop() is not self._loop:  # noqa: SLF001 - None in a thread
            self._loop.call_soon_threadsafe(self._on_socket_register_write, client, userdata, sock)
            return
        self._write_rest(client, sock)
        if self._check_timer is not None and self._check_timer.when() - self._loop.time() < CHECK_SECONDS / 2:
            self._check()

    def _write_rest(self, client: Any, sock: Any) -> None:
        """Write what is to be sent, now and, while the kernel's buffer is full, when it no longer is."""
        try:
            client.loop_write()
        except Exception as error:  # noqa: BLE001 - as aiomqtt: the connection is broken
            self._break(error)
            return
        if client.want_write() and sock.fileno() >= 0:
            self._loop.add_writer(sock.fileno(), self._write_rest, client, sock)

    def _break(self, error: Exception) -> None:
        if not self._disconnected.done():
            self._disconnected.set_exception(error)

    async def _wait_for(self, fut: Awaitable[T], timeout: float | None) -> T:  # noqa: ASYNC109 - as its parent
        """Wait as aiomqtt does, but with `asyncio.timeout`: on Python 3.11 `asyncio.wait_for` loses a
        cancellation that comes together with the result (python/cpython#86296), and a task group, which
        cancels once, then waits for ever."""
        seconds = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                return await fut
        except TimeoutError:
            raise aiomqtt.MqttError("Operation timed out") from None

    async def _misc_loop(self) -> None:
        try:
            self._check()
            await self._loop.create_future()  # until the socket closes
        finally:
            if self._check_timer is not None:
                self._check_timer.cancel()
                self._check_timer = None

    def _check(self) -> None:
        """Ping, or detect a missing answer, if it is time; check again later."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._check_timer = self._loop.call_later(CHECK_SECONDS, self._check)
        self._client.loop_misc()


@asynccontextmanager
async def connect(
    broker: BrokerConfig,
    client_id: str,
    will: aiomqtt.Will | None = None,
    send_buffer: int | None = None,
    longest: int = LONGEST_BYTES,
) -> AsyncIterator[MqttClient]:
    """Connect once, to the first of the brokers that lets us in. Raises `BusError` when none can be
    reached, all refuse, or the one that is used goes away.

    `send_buffer` bounds how many bytes the kernel holds for a slow connection, `longest` how many are kept of a
    message that comes.
    """
    failures: list[BusError] = []
    async with AsyncExitStack() as stack:
        for one in broker.each():
            try:
                client = await stack.enter_async_context(_connect_one(one, client_id, will, send_buffer, longest))
            except BusError as error:
                failures.append(error)
                continue
            passed_over(failures, client.address)
            yield client
            return
        raise unreachable(failures)


def passed_over(failures: Sequence[BusError], used: str) -> None:
    """Log the brokers of the list that did not let us in before the one that did."""
    for failure in failures:
        log.warning("bus: %s; %s is used instead", failure.problem, used)


def unreachable(failures: Sequence[BusError]) -> BusError:
    """Return the error of a list of brokers of which none lets us in."""
    cures = dict.fromkeys(each.cure for each in failures if each.cure)
    return BusError("; ".join(each.problem for each in failures), " ".join(cures))


@asynccontextmanager
async def _connect_one(
    broker: BrokerConfig, client_id: str, will: aiomqtt.Will | None, send_buffer: int | None, longest: int
) -> AsyncIterator[MqttClient]:
    """Connect to one address. Raises `BusError`."""
    username, password = broker.login()
    client = MqttClient(
        broker.host,
        broker.port,
        identifier=client_id,
        username=username,
        password=password,
        will=will,
        # paho gives up a silent connection after up to two of its keepalives, and two checks: this
        # yields what `BrokerConfig.keepalive` documents, one and a half of the configured seconds.
        keepalive=max(1, int(0.6 * broker.keepalive)),
        tls_context=broker.context(),
        protocol=aiomqtt.ProtocolVersion.V311,
        timeout=10,
        max_queued_incoming_messages=10_000,
        socket_options=[(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)] if send_buffer else (),
        longest=longest,
        logger=_QUIET,
    )
    client.address = broker.address
    entered = cancelled = False
    try:
        async with client:
            entered = True
            try:
                yield client
            except asyncio.CancelledError:
                cancelled = True
                raise
    except aiomqtt.MqttError as error:
        if cancelled:  # and the broker did not answer our farewell
            raise asyncio.CancelledError from error
        what, cure = connection_fault(error)
        raise BusError(f"MQTT broker {broker.address}: {what}", cure) from error
    finally:
        if not entered:  # aiomqtt leaves the socket of an abandoned connection open
            client._client.disconnect()  # noqa: SLF001


async def pause(backoff: Backoff, why: object) -> None:
    """Log why a connection ended, and wait before the next try."""
    seconds = backoff.next()
    log.warning("bus: %s; next try in %.1f s", why, seconds)
    await asyncio.sleep(seconds)
