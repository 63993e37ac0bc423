"""The protocol of the system through which a cluster of aggregators agrees.

A `Coordination` has four things, and everything of `aggregator.cluster` is built of them alone: entries
that are changed by compare-and-set, a log of messages with ids, messages that nobody keeps, and requests.
`aggregator.cluster.nats` has them by JetStream, `aggregator.cluster.memory` in memory with a clock of the
test's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import NamedTuple, Protocol

from telemetry.errors import KilowattError

LEASE_SECONDS = 4.0
"""Life time of a role's lease."""


class CoordinationError(KilowattError):
    """The coordination service can't be reached, has no quorum, or refuses a request. Whether a write
    that raised it was carried out is not known."""


class Bucket(StrEnum):
    """A set of entries with one life time."""

    MEMBERS = "members"
    """MemberBeat of each member, by its name; gone `dead_after_seconds` after the last one."""
    OWNERS = "owners"
    """Owner and epoch of each shard group, by its two hex digits. No end."""
    LEADERS = "leaders"
    """Leases of roles that one member at a time has (`site`); gone `LEASE_SECONDS` after the last write."""
    MARKS = "marks"
    """Marks of each group (`aggregator.cluster.holder`), once a minute: a copy, not the only one; and the highest epoch
    of each role. No end."""
    CLAIMS = "claims"
    """Whatever is claimed once and then done, as the sending of a page. Thirty days."""
    NODES = "nodes"
    """Records of what people declared of nodes (`aggregator.cluster.cluster_register`), by the hex digits of the name:
    members have copies. No end."""


class BucketEntry(NamedTuple):
    """A value of a bucket, and the revision that a change of it names."""

    value: bytes
    revision: int
    """Rises with each write of the bucket; begins again where the bucket was lost."""


class LogEnd(NamedTuple):
    """Age and length of the log."""

    born: int
    """When the log was created, ns since 1970: one that was lost and begins anew has another time."""
    sequence: int
    """Sequence number of the newest message, 0 for none."""


class LoggedMessage(NamedTuple):
    """A message of the log."""

    sequence: int
    """1, 2, ... without order of subjects; a number may be left out."""
    subject: str
    payload: bytes
    at: int
    """When the log took it, ns since 1970, by the clock of the log's leader: the same for all readers."""


Handler = Callable[[bytes], Awaitable[bytes | None]]
"""Receives a message; what it returns is the answer to a request, None for no answer."""


class Coordination(Protocol):
    """The system that members agree through. All methods raise `CoordinationError`.

    Keys have letters, digits, `-`, `_`, `=` and `.`. Subjects are words joined by `.`, and are the cluster's
    own: two clusters on one server don't hear each other.
    """

    async def entries(self, bucket: Bucket) -> dict[str, BucketEntry]:
        """Return all entries of a bucket, by key. They may be some milliseconds old: a change of one that
        is outdated is refused."""

    async def read(self, bucket: Bucket, key: str) -> BucketEntry | None:
        """Return the newest entry, or None."""

    async def put(self, bucket: Bucket, key: str, value: bytes) -> int:
        """Write an entry whatever was there; return its revision."""

    async def compare_and_set(self, bucket: Bucket, key: str, value: bytes, revision: int) -> int | None:
        """Write an entry if its revision is still `revision`, 0 for none; return the new revision, or None
        where another write came first."""

    async def delete(self, bucket: Bucket, key: str) -> None:
        """Remove an entry."""

    async def born(self, bucket: Bucket) -> int:
        """Return when a bucket was created, ns since 1970, by a clock of the servers as that of the log: one that
        was lost and begins anew has another time."""

    def watch(self, bucket: Bucket) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Yield the keys of entries that somebody writes, from now on. A hint only: writes may be missed
        (the end of a life time always is), and refused ones shown. Read the entries again, and now and
        then without a hint."""

    async def append(self, subject: str, payload: bytes, message_id: str) -> int:
        """Append a message to the log once it is on most servers; return its sequence number. A message whose
        id was appended in the last hours is not appended again, so a call that raised can be repeated."""

    def replay(self, after: int, subject: str = ">") -> AbstractAsyncContextManager[AsyncIterator[LoggedMessage]]:
        """Yield the messages of the log behind sequence number `after`, in order, then new ones as they come,
        without an end. `subject` may end in `>`. The iterator survives the end of a server."""

    async def log_end(self) -> LogEnd:
        """Return when the log was created, and how far it is."""

    async def publish(self, subject: str, payload: bytes) -> None:
        """Send a message to those who listen now; nobody keeps it, and no quorum is needed."""

    async def request(self, subject: str, payload: bytes, seconds: float) -> bytes:
        """Return the first answer to a request. Raises `CoordinationError` also where nobody answers in
        `seconds`."""

    def serve(self, subject: str, handler: Handler, *, beside: bool = False) -> AbstractAsyncContextManager[None]:
        """Have messages and requests of a subject handled, each after the one before, or beside others."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a server; not whether it has a quorum."""
