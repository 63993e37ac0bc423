"""The aggregator's MQTT client: the only file that knows gmqtt.

gmqtt receives a message in 10 µs, aiomqtt in 83; those at QoS 0 are cut out of what it reads by `packets`. Its own
reconnecting is switched off: every connection is a new client, made by one loop with full jitter, so that
one place decides, and no state of a broken connection remains.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import time
from collections.abc import Callable, Sequence

from gmqtt import Client, Subscription
from gmqtt.mqtt.constants import MQTTv311
from gmqtt.mqtt.handler import MQTTConnectError

from aggregator.load.meter import BacklogClock, unread_bytes
from aggregator.mqtt.packets import LongPublish, PacketReader
from api.stats import Stats
from telemetry.errors import BusError
from telemetry.runtime.backoff import STEADY, Backoff
from telemetry.text.connection_faults import connection_fault
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import Command
from telemetry.wire.mqtt import FIRST_PAUSE, BrokerConfig, client_id, passed_over, pause, unreachable
from telemetry.wire.topics import Topic, pattern, topic

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
REFUSED_SECONDS = 0.5, 5.0
"""Seconds after which a subscription that was refused is asked for again, at first and at most: a NATS server refuses while
its streams have no leader, for some seconds after one that led has died."""
WATCH_SECONDS = 0.5
LONGEST_PAUSE = 3.0
"""Seconds between two tries to connect: aggregators are few, and no herd."""
KINDS = {
    Topic.STATUS: 1,
    Topic.INVENTORY: 1,
    Topic.JOBS: 1,
    Topic.EVENT: 1,
    Topic.REPLY: 1,
    Topic.FRAME: 0,
    Topic.BACKFILL: 0,
}
"""Kinds of message to subscribe to, with the QoS; retained ones first: frames need the inventory."""
_NO_RECONNECT = -2  # gmqtt compares it with its count of failures; -1 means forever
_FILTERS_AT_ONCE = 64
_PUBACK = 0x40


def filters(cluster: str, shards: Sequence[str]) -> list[tuple[str, int]]:
    """Return the subscription filters of a cluster or of some of its shards, with their QoS.

    The status is subscribed to in all versions of the topic tree, so that a collector of another
    release is noticed (`version` among the dropped) instead of just missing. A shard has one filter for
    everything: by kinds, half of a cluster would be 896, more than some brokers grant a client. Its
    frames may so come before their inventory, and wait for it.
    """
    if shards:
        return [(_any_version(pattern(cluster, shard)), 1) for shard in shards]
    return [
        (_any_version(text) if kind is Topic.STATUS else text, qos)
        for kind, qos in KINDS.items()
        for text in [pattern(cluster, kind=kind)]
    ]


def _any_version(text: str) -> str:
    """Return a filter for all versions of the topic tree."""
    root, _, rest = text.partition("/")
    return f"{root}/+/{rest.partition('/')[2]}"


class FanInClient:
    """Subscribes to a cluster, calls `receive` with every message, and publishes commands."""

    def __init__(
        self,
        broker: BrokerConfig,
        cluster: str,
        shards: Sequence[str] | None,
        receive: Callable[[str, bytes], None],
        stats: Stats,
        more: Sequence[str] = (),
        too_long: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        """`too_long`: is told topic and size of a message that is longer than any may be and was left unread. `shards`: those to subscribe to, all where it is empty; None where they come and go by
        `add_shards` and `remove_shards`. `more`: further filters to subscribe to, at QoS 1."""
        self._broker = broker
        self._cluster = cluster
        self._filters = [*([] if shards is None else filters(cluster, shards)), *((text, 1) for text in more)]
        self._granted: dict[int, asyncio.Future[None]] = {}
        """Subscriptions that wait for the broker's answer, by message id."""
        self._asked: dict[int, list[tuple[str, int]]] = {}
        """Filters of subscriptions that the broker has not answered, by message id."""
        self._refused: set[str] = set()
        """Filters that it refused, and is asked for again."""
        self._asking = Backoff(*REFUSED_SECONDS, STEADY)
        self._receive = receive
        self._too_long = too_long
        self._stats = stats
        self._client: Client | None = None
        self._address = ""
        """Broker of the newest connection."""
        self._backlog = BacklogClock()

    @property
    def used(self) -> str:
        """Address of the broker that we are connected to; "" without one."""
        return "" if self._client is None else self._address

    def backlog(self, now: float) -> float:
        """Return for how many seconds messages have been waiting unread in the connection, without
        a moment in which none did. `now`: monotonic seconds."""
        unread = 0 if self._client is None else _unread(self._client)
        return self._backlog.update(now, unread, self._stats.bytes_received)

    async def run(self) -> None:
        """Stay connected until cancelled."""
        logging.getLogger("gmqtt").setLevel(logging.CRITICAL)  # logged here, in our words
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._session()
            except BusError as error:
                backoff.lasted(loop.time() - began)
                await pause(backoff, error)
            finally:
                self._stats.bus_connected = False

    def command(self, node: str, command: Command) -> bool:
        """Send a command to a node; False when there is no connection to send it on. At QoS 0: what a
        lost one would have brought is requested again."""
        name = topic(self._cluster, node, Topic.COMMAND)
        return self.publish(name, messages.encode(command), qos=0)

    def publish(self, name: str, payload: bytes, *, retain: bool = False, qos: int = 1) -> bool:
        """Send a message; False when there is no connection to send it on. An empty payload clears a
        retained message."""
        client = self._client
        if client is None or not client.is_connected:
            return False
        client.publish(name, payload, qos=qos, retain=retain)
        return True

    async def add_shards(self, shards: Sequence[str]) -> bool:
        """Subscribe to shards, at QoS 0: QoS 1 would cost a NATS broker a consumer each. Return whether the
        broker has granted it; without a connection it is done with the next."""
        new = [(text, 0) for text, _ in filters(self._cluster, shards)] if shards else []
        new = [each for each in new if each not in self._filters]
        self._filters += new
        client = self._client
        if client is None or not client.is_connected:
            return False
        waiting = []
        for start in range(0, len(new), _FILTERS_AT_ONCE):
            granted = asyncio.get_running_loop().create_future()
            self._granted[self._ask(client, new[start : start + _FILTERS_AT_ONCE])] = granted
            waiting.append(granted)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.gather(*waiting)
        except TimeoutError:
            return False
        finally:
            for granted in waiting:
                granted.cancel()
            self._granted = {mid: one for mid, one in self._granted.items() if not one.done()}
        return True

    def remove_shards(self, shards: Sequence[str]) -> None:
        """End the subscriptions to shards."""
        gone = {text for text, _ in filters(self._cluster, shards)} if shards else set()
        self._filters = [each for each in self._filters if each[0] not in gone]
        client = self._client
        if gone and client is not None and client.is_connected:
            client.unsubscribe(sorted(gone))

    async def _session(self) -> None:
        """Connect, subscribe, and stay until the connection breaks. Raises `BusError`."""
        failures: list[BusError] = []
        for broker in self._broker.each():
            client, lost = self._make_client(broker), asyncio.Event()
            client.on_disconnect = lambda *_, lost=lost: lost.set()
            try:
                await self._connect(client, lost, broker)
            except BusError as error:
                failures.append(error)
                await _drop(client)
            except BaseException:
                await _drop(client)
                raise
            else:
                passed_over(failures, broker.address)
                await self._serve(client, lost, broker.address)
        raise unreachable(failures)

    async def _serve(self, client: Client, lost: asyncio.Event, address: str) -> None:
        """Subscribe on a new connection, and stay until it breaks. Raises `BusError`."""
        where = f"MQTT broker {address}"
        self._address = address
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        self._shorten(client)
        try:
            self._asked.clear()
            self._refused.clear()
            self._asking.reset()
            for start in range(0, len(self._filters), _FILTERS_AT_ONCE):
                self._ask(client, self._filters[start : start + _FILTERS_AT_ONCE])
            self._client = client
            self._stats.bus_connects += 1
            self._stats.bus_connected = True
            log.info("%s: connected", where)
            while not lost.is_set() and client.is_connected:
                # A dead peer is noticed by gmqtt's keepalive, which then only begins to close: on a
                # connection whose buffer can't be sent, that would never end.
                try:
                    async with asyncio.timeout(WATCH_SECONDS):
                        await lost.wait()
                except TimeoutError:
                    continue
            raise BusError(f"{where}: the connection is gone")
        finally:
            self._client = None
            await _drop(client)

    async def _connect(self, client: Client, lost: asyncio.Event, broker: BrokerConfig) -> None:
        where = f"MQTT broker {broker.address}"
        # gmqtt gives up a silent connection after two to two and a half of its keepalives: this
        # keeps the promise of `BrokerConfig.keepalive`, one and a half of the setting.
        keepalive = max(1, math.ceil(0.6 * broker.keepalive))
        connecting = asyncio.ensure_future(
            client.connect(
                broker.host, broker.port, ssl=broker.context() or False, keepalive=keepalive, version=MQTTv311
            )
        )
        losing = asyncio.ensure_future(lost.wait())
        try:
            await asyncio.wait({connecting, losing}, timeout=CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                if not losing.done():
                    raise BusError(f"{where}: no answer in {CONNECT_SECONDS} s")
                what, cure = connection_fault(_lost_by(client))
                raise BusError(f"{where}: {what}", cure)
            try:
                connecting.result()
            except (OSError, MQTTConnectError) as error:
                what, cure = connection_fault(error)
                raise BusError(f"{where}: {what}", cure) from error
        finally:
            for task in (connecting, losing):
                task.cancel()
            await asyncio.gather(connecting, losing, return_exceptions=True)

    def _make_client(self, broker: BrokerConfig) -> Client:
        client = Client(client_id("kilowatch-aggregator"), clean_session=True, logger=logging.getLogger("gmqtt"))
        client.set_config({"reconnect_retries": _NO_RECONNECT})
        username, password = broker.login()
        if username is not None:
            client.set_auth_credentials(username, password)
        return client

    def _ask(self, client: Client, part: list[tuple[str, int]]) -> int:
        """Subscribe to filters; return the id of the message."""
        mid: int = client.subscribe([Subscription(text, qos) for text, qos in part])
        self._asked[mid] = part
        return mid

    def _ask_again(self, client: Client, part: list[tuple[str, int]]) -> None:
        """Subscribe to filters that were refused, those that are still wanted on this connection."""
        wanted = [each for each in part if each in self._filters]
        current = self._client
        if wanted and current is not None and current is client and current.is_connected:
            self._ask(current, wanted)

    def _on_subscribe(self, client: Client, mid: int, granted: Sequence[int], _properties: object) -> None:
        waiting = self._granted.pop(mid, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        asked = self._asked.pop(mid, [])
        refused = [each for each, qos in zip(asked, granted, strict=False) if qos >= 0x80]
        before = len(self._refused)
        self._refused -= {text for text, _ in asked}
        self._refused |= {text for text, _ in refused}
        if refused:
            loop = asyncio.get_running_loop()
            loop.call_later(self._asking.next(), self._ask_again, client, refused)
        if len(self._refused) > before:
            log.error(
                "MQTT broker %s refuses a subscription to cluster %s: nothing of that kind comes until it is "
                "granted. Allow this user to read kilowatch/+/%s/#.",
                self._address,
                self._cluster,
                self._cluster,
            )
        elif before and not self._refused:
            log.warning("MQTT broker %s grants all subscriptions now", self._address)

    def _shorten(self, client: Client) -> None:
        """Have messages at QoS 0 passed on as they are read: gmqtt takes 2.8 us for each, `packets` 0.4."""
        connection = client._connection  # noqa: SLF001 - there is no public way to what it reads
        protocol = connection._protocol  # noqa: SLF001
        others = protocol._read_packet  # noqa: SLF001

        def receive(name: str, payload: bytes) -> None:
            if self._client is client:  # not of a connection that has ended
                try:
                    self._receive(name, payload)
                except Exception:  # it would end the connection
                    log.exception("a message on %s", name)

        def too_long(found: LongPublish) -> None:
            if found.qos == 1:  # else the broker holds it as one of the few that may be under way
                protocol.send_command_with_mid(_PUBACK, found.message_id, False)
            if self._client is client:
                self._too_long(found.topic, found.size)

        reader = PacketReader(receive, others, too_long)

        def read(data: bytes) -> int:
            connection._last_data_in = time.monotonic()  # noqa: SLF001 - for its keepalive
            return reader.read(data)

        protocol._read_packet = read  # noqa: SLF001

    def _on_message(self, _client: Client, name: str, payload: bytes, _qos: int, _properties: object) -> int:
        self._receive(name, payload)
        return 0


def _unread(client: Client) -> int:
    connection = client._connection  # noqa: SLF001 - there is no public way to its socket
    try:
        return unread_bytes(connection._transport.get_extra_info("socket").fileno())  # noqa: SLF001
    except (AttributeError, OSError, ValueError):  # it is just closing: no socket, or number -1
        return 0


def _lost_by(client: Client) -> Exception:
    """Return the error that ended a connection; TLS tells in it, after the handshake, why it refuses our certificate."""
    closed = getattr(getattr(client._connection, "_protocol", None), "_closed", None)  # noqa: SLF001
    error = closed.exception() if closed is not None and closed.done() else None
    return error if isinstance(error, Exception) else ConnectionResetError(errno.ECONNRESET, "")


async def _drop(client: Client) -> None:
    """End a connection, whatever state it is in."""
    client.on_message = lambda *_: 0
    connection = client._connection  # noqa: SLF001 - there is no public way to end it at once
    if connection is None:
        return
    try:
        async with asyncio.timeout(0.5):
            await client.disconnect()
    except (TimeoutError, OSError, AttributeError):
        log.debug("the old connection did not end by itself")
    connection._transport.abort()  # noqa: SLF001
