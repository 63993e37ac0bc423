"""A coordination service in memory, whose clock and failures the test decides.

`MemoryServers` is what all members share; each has a `MemoryCoordination` of its own, so that one can be
cut off from the others. Nothing is kept on disk, and nothing waits for real time but `request`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase

from aggregator.cluster.port import Bucket, BucketEntry, CoordinationError, Handler, LogEnd, LoggedMessage


class MemoryServers:
    """The servers of a coordination service, without a network.

    `clock` returns seconds; the life times of entries are counted with it. `ttl` has the life time of the
    entries of a bucket, where they have one.
    """

    def __init__(self, clock: Callable[[], float], ttl: Mapping[Bucket, float]) -> None:
        self.clock = clock
        self.ttl = ttl
        self.down = False
        """Whether nothing is answered: the servers are gone."""
        self.no_quorum = False
        """Whether entries and the log are away while messages still come through: a minority is left."""
        self.cut_off: set[str] = set()
        """Members that reach no server."""
        self.born = int(clock() * 1e9)
        """When the entries and the log began, ns since 1970."""
        self.records: list[LoggedMessage] = []
        self._entries: dict[Bucket, dict[str, tuple[BucketEntry, float]]] = {}
        self._revisions = dict.fromkeys(Bucket, 0)
        self._ids: dict[str, int] = {}
        self._watchers: dict[Bucket, list[tuple[str, asyncio.Queue[str]]]] = {bucket: [] for bucket in Bucket}
        self._readers: list[asyncio.Event] = []
        self._handlers: list[tuple[str, str, Handler]] = []

    def connect(self, name: str) -> MemoryCoordination:
        """Return the connection of a member."""
        return MemoryCoordination(self, name)

    def wipe(self) -> None:
        """Lose all entries and the log: revisions and sequence numbers begin again."""
        self.born = int(self.clock() * 1e9)
        self._entries.clear()
        self._revisions = dict.fromkeys(Bucket, 0)
        self.records.clear()
        self._ids.clear()

    def living(self, bucket: Bucket) -> dict[str, BucketEntry]:
        """Return the entries of a bucket whose life time is not over."""
        held, now = self._entries.setdefault(bucket, {}), self.clock()
        life = self.ttl.get(bucket)
        if life is not None:
            for key in [key for key, (_, at) in held.items() if now - at >= life]:
                del held[key]
        return {key: entry for key, (entry, _) in held.items()}

    def write(self, bucket: Bucket, key: str, value: bytes) -> int:
        """Write an entry and tell those who watch."""
        self._revisions[bucket] += 1
        revision = self._revisions[bucket]
        self._entries.setdefault(bucket, {})[key] = BucketEntry(value, revision), self.clock()
        self.notify(bucket, key)
        return revision

    def remove(self, bucket: Bucket, key: str) -> None:
        """Remove an entry and tell those who watch."""
        if self._entries.setdefault(bucket, {}).pop(key, None) is not None:
            self._revisions[bucket] += 1
            self.notify(bucket, key)

    def notify(self, bucket: Bucket, key: str) -> None:
        """Give those who watch a bucket a hint."""
        for name, queue in self._watchers[bucket]:
            if name not in self.cut_off:
                queue.put_nowait(key)

    def append(self, subject: str, payload: bytes, message_id: str) -> int:
        """Append to the log, once for each id."""
        found = self._ids.get(message_id)
        if found is None:
            found = self._ids[message_id] = len(self.records) + 1
            self.records.append(LoggedMessage(found, subject, payload, int(self.clock() * 1e9)))
            for reader in self._readers:
                reader.set()
        return found

    def handlers(self, subject: str) -> list[Handler]:
        """Return who hears a subject."""
        return [
            handler
            for name, pattern, handler in self._handlers
            if name not in self.cut_off and _matches(pattern, subject)
        ]

    def reachable(self, name: str, *, quorum: bool = True) -> None:
        """Raise `CoordinationError` where a member reaches nothing, or there is no quorum."""
        if self.down or name in self.cut_off:
            raise CoordinationError("no server can be reached")
        if quorum and self.no_quorum:
            raise CoordinationError("the servers have no quorum")


class MemoryCoordination:
    """The connection of one member to `MemoryServers`."""

    def __init__(self, servers: MemoryServers, name: str) -> None:
        self._servers = servers
        self._name = name

    @property
    def connected(self) -> bool:
        """Whether a server can be reached."""
        return not self._servers.down and self._name not in self._servers.cut_off

    async def entries(self, bucket: Bucket) -> dict[str, BucketEntry]:
        """Return all entries of a bucket, by key."""
        self._servers.reachable(self._name)
        return self._servers.living(bucket)

    async def read(self, bucket: Bucket, key: str) -> BucketEntry | None:
        """Return the newest entry, or None."""
        return (await self.entries(bucket)).get(key)

    async def put(self, bucket: Bucket, key: str, value: bytes) -> int:
        """Write an entry whatever was there."""
        self._servers.reachable(self._name)
        return self._servers.write(bucket, key, value)

    async def compare_and_set(self, bucket: Bucket, key: str, value: bytes, revision: int) -> int | None:
        """Write an entry if its revision is still `revision`, 0 for none."""
        found = await self.read(bucket, key)
        if (0 if found is None else found.revision) != revision:
            return None
        return self._servers.write(bucket, key, value)

    async def delete(self, bucket: Bucket, key: str) -> None:
        """Remove an entry."""
        self._servers.reachable(self._name)
        self._servers.remove(bucket, key)

    async def born(self, bucket: Bucket) -> int:
        """Return when a bucket was created, ns since 1970."""
        del bucket  # all at once
        self._servers.reachable(self._name)
        return self._servers.born

    @asynccontextmanager
    async def watch(self, bucket: Bucket) -> AsyncIterator[AsyncIterator[str]]:
        """Yield the keys of entries that somebody writes, from now on."""
        self._servers.reachable(self._name, quorum=False)
        queue: asyncio.Queue[str] = asyncio.Queue()
        watchers, own = self._servers._watchers[bucket], (self._name, queue)  # noqa: SLF001
        watchers.append(own)

        async def keys() -> AsyncIterator[str]:
            while True:
                yield await queue.get()

        try:
            yield keys()
        finally:
            watchers.remove(own)

    async def append(self, subject: str, payload: bytes, message_id: str) -> int:
        """Append a message to the log, once for each id."""
        self._servers.reachable(self._name)
        return self._servers.append(subject, payload, message_id)

    @asynccontextmanager
    async def replay(self, after: int, subject: str = ">") -> AsyncIterator[AsyncIterator[LoggedMessage]]:
        """Yield the messages of the log behind `after`, then new ones as they come."""
        self._servers.reachable(self._name)
        more = asyncio.Event()
        readers, servers = self._servers._readers, self._servers  # noqa: SLF001
        readers.append(more)

        async def records() -> AsyncIterator[LoggedMessage]:
            position = after
            while True:
                more.clear()
                while self.connected and position < len(servers.records):
                    position += 1
                    record = servers.records[position - 1]
                    if _matches(subject, record.subject):
                        yield record
                await more.wait()

        try:
            yield records()
        finally:
            readers.remove(more)

    async def log_end(self) -> LogEnd:
        """Return when the log was created, and how far it is."""
        self._servers.reachable(self._name)
        return LogEnd(self._servers.born, len(self._servers.records))

    async def publish(self, subject: str, payload: bytes) -> None:
        """Send a message to those who listen now."""
        self._servers.reachable(self._name, quorum=False)
        for handler in self._servers.handlers(subject):
            await handler(payload)

    async def request(self, subject: str, payload: bytes, seconds: float) -> bytes:
        """Return the first answer to a request."""
        self._servers.reachable(self._name, quorum=False)
        for handler in self._servers.handlers(subject):
            try:
                async with asyncio.timeout(seconds):
                    answer = await handler(payload)
            except TimeoutError as error:
                raise CoordinationError(f"{subject}: no answer in {seconds} s") from error
            if answer is not None:
                return answer
        raise CoordinationError(f"{subject}: nobody answers")

    @asynccontextmanager
    async def serve(self, subject: str, handler: Handler, *, beside: bool = False) -> AsyncIterator[None]:
        """Have messages and requests of a subject handled."""
        handlers, own = self._servers._handlers, (self._name, subject, handler)  # noqa: SLF001
        handlers.append(own)
        try:
            yield
        finally:
            handlers.remove(own)


def _matches(pattern: str, subject: str) -> bool:
    """Return whether a subject fits a pattern whose last word may be `>`, and any word `*`."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, found = wanted[:-1], found[: len(wanted) - 1] if len(found) >= len(wanted) else []
        if not found and wanted:
            return False
    return len(wanted) == len(found) and all(map(fnmatchcase, found, wanted))
