"""`Coordination` by NATS JetStream: the only file that knows nats-py.

Entries are JetStream's key-value buckets and the log is a stream, each on three servers where there are
three. A client of nats-py notices a dead server after two minutes by default; a lost table would move
groups until then, so that here it is two seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    KeyValueConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue

from aggregator.cluster.port import (
    LEASE_SECONDS,
    Bucket,
    BucketEntry,
    CoordinationError,
    Handler,
    LogEnd,
    LoggedMessage,
)
from aggregator.settings.members import MembersConfig
from telemetry.files.secrets import read_secret
from telemetry.runtime.tasks import keeping_cancellation
from telemetry.text.decoders import of_json

log = logging.getLogger(__name__)

OLDEST_SERVER = (2, 10, 23)
"""Servers before lose whole streams when they are killed (jepsen.io, NATS 2.12.1)."""
READER_SECONDS = 5.0
"""Seconds after which a server forgets the consumer of a reading of all entries. With nats-py's five minutes
thousands add up, until it refuses more."""
FOLLOW_SECONDS = 1.0
"""Seconds in which a followed bucket must show our own last write; it takes some milliseconds. Else all is read."""
DAY = 86_400.0
LIFE = {Bucket.LEADERS: LEASE_SECONDS, Bucket.CLAIMS: 30 * DAY}
LOG_SECONDS = 30 * DAY
DUPLICATE_SECONDS = 7200.0
CONNECT_SECONDS = 4.0
ANSWER_SECONDS = 2.0
"""Seconds in which the servers must answer; a new leader is elected in about four."""
_REMOVED = frozenset({"KV-Operation", "Nats-Marker-Reason"})
"""Headers of messages that say that an entry is gone."""
REPLAY_CHECK_SECONDS = 2.0
"""Seconds without a message after which the log's end is asked for: a server may have ended."""
_BEGIN_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class _AllEntries(NamedTuple):
    """Entries of a bucket, as they were read."""

    entries: dict[str, BucketEntry]
    newest: int
    """Revision of the newest write, also of one that removed an entry."""


class _LastSequence(msgspec.Struct, frozen=True):
    last_seq: int = 0


class _StreamState(msgspec.Struct, frozen=True):
    """State of a stream, of the answer about it."""

    created: datetime = _BEGIN_OF_TIME
    state: _LastSequence = _LastSequence()
    error: dict[str, Any] | None = None

    @property
    def born(self) -> int:
        """When it was created, ns since 1970, to the microsecond."""
        return (self.created - _BEGIN_OF_TIME) // timedelta(microseconds=1) * 1000


class _FollowedBucket:
    """A bucket whose entries end by themselves, as one consumer tells its writes, in their order.

    It is believed once it has told our own last write: one that ended, or is of a stream that was lost, never
    does, and one that left something out says so by its numbers.
    """

    def __init__(self, prefix: str, life: float) -> None:
        self.subscription: Subscription | None = None
        self._prefix, self._life = prefix, life
        self._entries: dict[str, tuple[BucketEntry, float]] = {}
        """With when each was written."""
        self._last, self._at = 0, 0.0
        """Number of the last write that was told, and when it was written."""
        self._broken = False
        self._moved = asyncio.Event()

    async def note(self, message: Msg) -> None:
        """Take a write in."""
        meta = message.metadata
        self._broken |= meta.sequence.consumer != self._last + 1
        self._last, self._at = meta.sequence.consumer, meta.timestamp.timestamp()
        key = message.subject.removeprefix(self._prefix)
        if _REMOVED.isdisjoint(message.headers or ()):
            self._entries[key] = BucketEntry(message.data, meta.sequence.stream), self._at
        else:
            self._entries.pop(key, None)
        self._moved.set()

    async def up_to(self, key: str, revision: int) -> dict[str, BucketEntry] | None:
        """Return the entries once our last write was told; None where it is not, or others are missing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FOLLOW_SECONDS):
                while not self._has(key, revision) and not self._broken:
                    self._moved.clear()
                    await self._moved.wait()
        if self._broken or not self._has(key, revision):
            return None
        # As the servers do it: an entry ends so long after its own write, by the clock of who leads the stream.
        self._entries = {key: each for key, each in self._entries.items() if self._at - each[1] < self._life}
        return {key: entry for key, (entry, _) in self._entries.items()}

    def _has(self, key: str, revision: int) -> bool:
        return key in self._entries and self._entries[key][0].revision == revision


class NatsCoordination:
    """A connection to the NATS servers of a cluster, made at the first use and again whenever it breaks."""

    def __init__(self, config: MembersConfig, cluster: str) -> None:
        self._config = config
        self._token = re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}", cluster)
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._buckets: dict[Bucket, KeyValue] = {}
        self._known: dict[Bucket, tuple[datetime, _AllEntries]] = {}
        """Buckets whose entries have no end: when each was created, and what it had when it was read last."""
        self._written: dict[Bucket, tuple[str, int]] = {}
        """Key and revision of our last `put` to each bucket whose entries end."""
        self._followed: dict[Bucket, _FollowedBucket] = {}
        self._left: list[Subscription] = []
        """Subscriptions of those that are followed no longer, to be ended."""
        self._has_log = False
        self._connecting = asyncio.Lock()

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a server; not whether it has a quorum."""
        return self._client is not None and self._client.is_connected

    @property
    def server(self) -> str:
        """Address and version of the server in use; "" without one."""
        client = self._client
        if client is None or not client.is_connected or client.connected_url is None:
            return ""
        return f"{client.connected_url.netloc} ({_version(client)})"

    async def close(self) -> None:
        """End the connection."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await client.close()

    # -- Entries ---------------------------------------------------------------------------------

    async def entries(self, bucket: Bucket) -> dict[str, BucketEntry]:
        """Return all entries of a bucket, by key. Where nothing ends by itself, they are read again only after
        a write: the owners of 256 groups rarely change, and are looked at by every member each second. Where
        entries end, and we write there ourselves, one consumer tells the others' writes."""
        with self._errors():
            await self._bucket(bucket)
            life = self._life(bucket)
            if life is not None:
                written = self._written.get(bucket)
                found = None if written is None else await self._follow(bucket, life, *written)
                return (await self._read_all(bucket)).entries if found is None else found
            state = await self._state(f"KV_{self._name(bucket)}")
            known = self._known.get(bucket)
            if known is None or known[0] != state.created or known[1].newest != state.state.last_seq:
                known = self._known[bucket] = state.created, await self._read_all(bucket)
            return dict(known[1].entries)

    async def _state(self, stream: str) -> _StreamState:
        """Return the state of a stream, by its leader: a stream without one does not answer. By hand, for nats-py
        makes objects of all the settings in the answer."""
        client = await self._connected()
        answer = await client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=ANSWER_SECONDS)
        found = of_json(_StreamState).decode(answer.data)
        if found.error is not None:
            raise APIError.from_error(found.error)
        return found

    async def _follow(self, bucket: Bucket, life: float, key: str, revision: int) -> dict[str, BucketEntry] | None:
        """Return the entries of a bucket up to our own last write, told by a consumer; None where it does not
        tell that."""
        followed = self._followed.get(bucket)
        if followed is None:
            followed = self._followed[bucket] = await self._follower(bucket, life)
        found = await followed.up_to(key, revision)
        if found is None:
            self._leave(bucket)
        while self._left:
            await _end(self._left.pop())
        return found

    def _leave(self, bucket: Bucket) -> None:
        followed = self._followed.pop(bucket, None)
        if followed is not None and followed.subscription is not None:
            self._left.append(followed.subscription)

    async def _follower(self, bucket: Bucket, life: float) -> _FollowedBucket:
        """Return what a new consumer tells: the newest write of each key, then all."""
        client = await self._connected()
        assert self._js is not None  # noqa: S101 - for the type checker
        followed = _FollowedBucket(f"$KV.{self._name(bucket)}.", life)
        inbox = client.new_inbox()
        followed.subscription = await client.subscribe(inbox, cb=followed.note)
        await self._js.add_consumer(
            f"KV_{self._name(bucket)}",
            ConsumerConfig(
                deliver_subject=inbox,
                deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
                ack_policy=AckPolicy.NONE,
                filter_subject=f"$KV.{self._name(bucket)}.>",
                inactive_threshold=READER_SECONDS,
                max_deliver=1,
                mem_storage=True,
                num_replicas=1,
            ),
        )
        return followed

    async def _read_all(self, bucket: Bucket) -> _AllEntries:
        """Read a bucket from one of the servers, which may be some milliseconds behind.

        Not by nats-py's `watchall`: where the server has sent all before it is asked how much is left, and
        none of it was handled yet, that says that there is nothing.
        """
        prefix = f"$KV.{self._name(bucket)}."
        found: dict[str, BucketEntry] = {}
        newest = 0
        assert self._js is not None  # noqa: S101 - for the type checker
        subscription = await self._js.subscribe(
            f"{prefix}>",
            stream=f"KV_{self._name(bucket)}",
            ordered_consumer=True,
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
            inactive_threshold=READER_SECONDS,
        )
        try:
            left = await _rest(subscription)
            while left:
                try:
                    message = await subscription.next_msg(timeout=ANSWER_SECONDS)
                except NatsTimeoutError:
                    if (await subscription.consumer_info()).num_pending:
                        raise
                    break  # what was left has ended meanwhile
                left = message.metadata.num_pending
                key, sequence = (message.subject.removeprefix(prefix), message.metadata.sequence.stream)
                newest = max(newest, sequence)
                if _REMOVED.isdisjoint(message.headers or ()):
                    found[key] = BucketEntry(message.data, sequence)
                else:
                    found.pop(key, None)
            return _AllEntries(found, newest)
        finally:
            await _end(subscription)

    async def read(self, bucket: Bucket, key: str) -> BucketEntry | None:
        """Return the newest entry, or None."""
        with self._errors():
            try:
                entry = await (await self._bucket(bucket)).get(key)
            except KeyNotFoundError:
                return None
            return BucketEntry(entry.value or b"", entry.revision or 0)

    async def put(self, bucket: Bucket, key: str, value: bytes) -> int:
        """Write an entry whatever was there; return its revision."""
        with self._errors():
            revision = await (await self._bucket(bucket)).put(key, value)
            if self._life(bucket) is not None:
                if revision <= self._written.get(bucket, ("", 0))[1]:  # the stream was lost
                    self._leave(bucket)
                self._written[bucket] = key, revision
            return revision

    async def compare_and_set(self, bucket: Bucket, key: str, value: bytes, revision: int) -> int | None:
        """Write an entry if its revision is still `revision`, 0 for none."""
        with self._errors():
            held = await self._bucket(bucket)
            try:
                if revision == 0:  # also over the mark that a removed one leaves
                    return await held.create(key, value)
                return await held.update(key, value, last=revision)
            except KeyWrongLastSequenceError:
                return None

    async def delete(self, bucket: Bucket, key: str) -> None:
        """Remove an entry."""
        with self._errors():
            await (await self._bucket(bucket)).delete(key)

    async def born(self, bucket: Bucket) -> int:
        """Return when a bucket was created, ns since 1970."""
        with self._errors():
            await self._bucket(bucket)
            return (await self._state(f"KV_{self._name(bucket)}")).born

    @asynccontextmanager
    async def watch(self, bucket: Bucket) -> AsyncIterator[AsyncIterator[str]]:
        """Yield the keys of entries that somebody writes, from now on."""
        prefix = f"$KV.{self._name(bucket)}."
        queue: asyncio.Queue[str] = asyncio.Queue()

        async def note(message: Msg) -> None:
            queue.put_nowait(message.subject.removeprefix(prefix))

        async def keys() -> AsyncIterator[str]:
            while True:
                yield await queue.get()

        with self._errors():
            client = await self._connected()
            subscription = await client.subscribe(f"{prefix}>", cb=note)
            await client.flush()  # our server has it; the others a moment later
        try:
            yield keys()
        finally:
            await _end(subscription)

    # -- The log ---------------------------------------------------------------------------------

    async def append(self, subject: str, payload: bytes, message_id: str) -> int:
        """Append a message to the log, once for each id."""
        with self._errors():
            js = await self._with_log()
            answer = await js.publish(
                self._log_subject(subject), payload, timeout=ANSWER_SECONDS, headers={"Nats-Msg-Id": message_id}
            )
            return answer.seq

    @asynccontextmanager
    async def replay(self, after: int, subject: str = ">") -> AsyncIterator[AsyncIterator[LoggedMessage]]:
        """Yield the messages of the log behind `after`, then new ones as they come."""
        async with contextlib.aclosing(self._records(after, subject)) as records:
            yield records

    async def _records(self, after: int, subject: str) -> AsyncGenerator[LoggedMessage, None]:
        prefix, position = self._log_subject(""), after
        while True:
            try:
                with self._errors():
                    js = await self._with_log()
                    subscription = await js.subscribe(
                        self._log_subject(subject),
                        ordered_consumer=True,
                        config=ConsumerConfig(
                            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=position + 1
                        ),
                    )
            except CoordinationError:
                await asyncio.sleep(0.5)
                continue
            try:
                while True:
                    try:
                        with keeping_cancellation():
                            message = await subscription.next_msg(timeout=REPLAY_CHECK_SECONDS)
                    except (NatsError, TimeoutError):
                        with contextlib.suppress(CoordinationError):
                            if await self._newest(subject) <= position:
                                continue
                        break  # a server ended with our consumer
                    meta = message.metadata
                    if meta.sequence.stream <= position:
                        continue
                    position = meta.sequence.stream
                    yield LoggedMessage(
                        position,
                        message.subject.removeprefix(prefix),
                        message.data,
                        int(meta.timestamp.timestamp() * 1e9),
                    )
            finally:
                await _end(subscription)

    async def _newest(self, subject: str) -> int:
        """Return the sequence number of the newest message of a subject of the log."""
        with self._errors():
            js = await self._with_log()
            try:
                message = await js.get_last_msg(self._log_name, self._log_subject(subject))
            except NotFoundError:
                return 0
            return message.seq or 0

    async def log_end(self) -> LogEnd:
        """Return when the log was created, and how far it is."""
        with self._errors():
            await self._with_log()
            found = await self._state(self._log_name)
            return LogEnd(found.born, found.state.last_seq)

    # -- Messages --------------------------------------------------------------------------------

    async def publish(self, subject: str, payload: bytes) -> None:
        """Send a message to those who listen now."""
        with self._errors():
            await (await self._connected()).publish(self._subject(subject), payload)

    async def request(self, subject: str, payload: bytes, seconds: float) -> bytes:
        """Return the first answer to a request."""
        with self._errors():
            client = await self._connected()
            return (await client.request(self._subject(subject), payload, timeout=seconds)).data

    @asynccontextmanager
    async def serve(self, subject: str, handler: Handler, *, beside: bool = False) -> AsyncIterator[None]:
        """Have messages and requests of a subject handled, each after the one before, or beside others."""
        under_way: set[asyncio.Task[None]] = set()

        async def handle(message: Msg) -> None:
            if not beside:
                await answer_to(message)
                return
            task = asyncio.create_task(answer_to(message), name=subject)
            under_way.add(task)
            task.add_done_callback(under_way.discard)

        async def answer_to(message: Msg) -> None:
            try:
                answer = await handler(message.data)
                if answer is not None and message.reply:
                    await message.respond(answer)
            except Exception:  # it would end the subscription
                log.exception("cluster: a message of %s", message.subject)

        with self._errors():
            client = await self._connected()
            subscription = await client.subscribe(self._subject(subject), cb=handle)
            await client.flush()  # our server has it; the others a moment later
        try:
            yield
        finally:
            for task in under_way:
                task.cancel()
            await _end(subscription)

    # -- The connection --------------------------------------------------------------------------

    def _life(self, bucket: Bucket) -> float | None:
        """Return the seconds after which an entry ends; None where it does not."""
        return self._config.dead_after_seconds if bucket is Bucket.MEMBERS else LIFE.get(bucket)

    def _name(self, bucket: Bucket) -> str:
        return f"kw-{self._token}-{bucket.value}"

    @property
    def _log_name(self) -> str:
        return f"kw-{self._token}-log"

    def _subject(self, subject: str) -> str:
        return f"kw.{self._token}.{subject}"

    def _log_subject(self, subject: str) -> str:
        return f"kw.{self._token}.log.{subject}"

    @property
    def _copies(self) -> int:
        return 3 if len(self._config.nats) >= 3 else 1

    async def _bucket(self, bucket: Bucket) -> KeyValue:
        found = self._buckets.get(bucket)
        if found is not None:
            return found
        await self._connected()
        assert self._js is not None  # noqa: S101 - for the type checker
        wanted = KeyValueConfig(
            bucket=self._name(bucket), ttl=self._life(bucket), replicas=self._copies, storage=StorageType.FILE
        )
        try:
            found = await self._js.key_value(wanted.bucket)
        except NotFoundError:
            found = await self._js.create_key_value(wanted)
        self._buckets[bucket] = found
        return found

    async def _with_log(self) -> JetStreamContext:
        await self._connected()
        assert self._js is not None  # noqa: S101 - for the type checker
        if not self._has_log:
            try:
                await self._js.stream_info(self._log_name)
            except NotFoundError:
                # No younger than the log: whatever this log tells was never claimed in a bucket that was lost.
                await self._bucket(Bucket.CLAIMS)
                await self._js.add_stream(
                    StreamConfig(
                        name=self._log_name,
                        subjects=[self._log_subject(">")],
                        retention=RetentionPolicy.LIMITS,
                        max_age=LOG_SECONDS,
                        duplicate_window=DUPLICATE_SECONDS,
                        num_replicas=self._copies,
                        storage=StorageType.FILE,
                        allow_direct=True,
                    )
                )
            self._has_log = True
        return self._js

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
                self._js = self._client.jetstream(timeout=ANSWER_SECONDS)
                self._forget()
            if not self._client.is_connected:
                raise CoordinationError("NATS: no server can be reached")
            return self._client

    async def _connect(self) -> Client:
        config = self._config
        where = f"NATS {', '.join(config.nats)}"
        password = None if config.password_file is None else read_secret("cluster.password_file", config.password_file)

        async def quiet(_error: Exception) -> None:
            """Say nothing: what fails is reported where it was wanted."""

        async with asyncio.timeout(CONNECT_SECONDS):
            client = await nats.connect(
                list(config.nats),
                name=f"kilowatch {config.name}",
                user=config.username,
                password=password,
                tls=self._context(),
                error_cb=quiet,
                ping_interval=1,
                max_outstanding_pings=2,
                connect_timeout=1,
                reconnect_time_wait=0.25,
                max_reconnect_attempts=1,  # nats-py would never give up the first connection
            )
        client.options["max_reconnect_attempts"] = -1
        found = client.connected_server_version
        if (found.major, found.minor, found.patch) < OLDEST_SERVER:
            await client.close()
            oldest = ".".join(map(str, OLDEST_SERVER))
            raise CoordinationError(
                f"{where}: the server is {_version(client)}, and loses its streams when it is killed. "
                f"Install {oldest} or newer"
            )
        return client

    def _context(self) -> ssl.SSLContext | None:
        config = self._config
        if not any(text.startswith("tls:") for text in config.nats):
            return None
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.cert_file is not None:
            context.load_cert_chain(config.cert_file, config.key_file)
        return context

    def _forget(self) -> None:
        self._buckets.clear()
        self._known.clear()
        self._written.clear()
        for bucket in list(self._followed):
            self._leave(bucket)
        self._has_log = False

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise `CoordinationError` for what nats-py raises, and a cancellation that it loses: by
        `asyncio.wait_for`, and where it flushes."""
        try:
            with keeping_cancellation():
                yield
        except (NatsError, OSError, TimeoutError) as error:
            self._forget()  # the streams may be gone
            text = str(error) or type(error).__name__
            raise CoordinationError(text if text.startswith("NATS") else f"NATS: {text}") from error


async def _end(subscription: Subscription) -> None:
    """End a subscription; where the connection is lost it has ended."""
    with contextlib.suppress(NatsError, OSError):
        await subscription.unsubscribe()


async def _rest(subscription: JetStreamContext.PushSubscription) -> int:
    """Return how many messages a new consumer has for us: sent, or still to be sent."""
    info = await subscription.consumer_info()
    sent = 0 if info.delivered is None else info.delivered.consumer_seq
    return sent + (info.num_pending or 0)


def _version(client: Client) -> str:
    """Return the version of the server in use."""
    found = client.connected_server_version
    return f"{found.major}.{found.minor}.{found.patch}"
