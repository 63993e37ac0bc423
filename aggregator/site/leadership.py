"""The lease of a role that one member at a time has: the site.

A lease is an entry that ends by itself. Its holder writes it again and again by compare-and-set; where it
has ended, whoever writes first has it, under an epoch above all before it: the highest is kept beside it, for all
members may have been restarted since. By this machine's monotonic
clock the holder acts until a moment before others may see the lease end, so that a leader that was
stopped and wakes up does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from aggregator.cluster.port import Bucket, BucketEntry, Coordination, CoordinationError
from telemetry.text.decoders import of_json

log = logging.getLogger(__name__)


class Lease(msgspec.Struct, frozen=True):
    """The value of the entry."""

    member: str
    epoch: int
    run: int
    """Random per start: a member that was restarted does not take its old lease for its own."""


class Leadership:
    """Whether this member leads a role."""

    def __init__(
        self,
        coordination: Coordination,
        role: str,
        member: str,
        run: int,
        *,
        lease_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """`lease_seconds`: life time of the bucket's entries; `clock`: monotonic seconds."""
        self._coordination, self._role = coordination, role
        self._lease = Lease(member, 0, run)
        self._seconds = lease_seconds
        self.clock = clock
        """Returns monotonic seconds."""
        self._revision = 0
        self._until = -float("inf")
        """Monotonic seconds until which the lease surely lasts."""
        self._not_before = -float("inf")
        """Monotonic seconds before which nothing is taken from another: what seems to have ended may be a blackout."""
        self.failing_since: float | None = None
        """When the lease could not be read or kept for the first time since it was, monotonic seconds; None where
        that succeeded the last time. Not how long ago that was: a process that stood still has asked nobody."""
        self.leader: Lease | None = None
        """Who led when it was looked at last."""
        self.highest = 0
        """Highest epoch seen; the next is above it, also after the coordination lost its memory."""

    @property
    def epoch(self) -> int:
        """Epoch under which this member leads or led."""
        return self._lease.epoch

    def leads(self, margin: float = 0.0) -> bool:
        """Return whether this member leads, and surely will for `margin` seconds: the time-out of what it
        is about to do."""
        return self.clock() + margin < self._until

    async def step(self) -> bool:
        """Take the lease where nobody has it, keep one that is ours; return whether we lead. Call it a
        few times per lease. Raises nothing: without an answer a lease runs out by itself."""
        began = self.clock()
        try:
            await self._try(began)
        except CoordinationError as error:
            log.warning("%s: the lease can't be read or written: %s", self._role, error)
            self._not_before = self.clock() + self._seconds
        return self.leads()

    async def _try(self, began: float) -> None:
        if self.leads() and await self._keep(began):
            return
        entry = await self.look()
        holder = self.leader
        self.highest = max(self.highest, 0 if holder is None else holder.epoch)
        ours = holder is not None and (holder.member, holder.run) == (self._lease.member, self._lease.run)
        if holder is not None and not ours:
            self._until = -float("inf")
            return
        if holder is None:
            led_last = 0 < self._lease.epoch == self.highest
            if began < self._not_before and not led_last:
                return
            epoch = await self._next_epoch()
            if epoch is None:
                return
            self._lease = msgspec.structs.replace(self._lease, epoch=epoch)
        value = msgspec.json.encode(self._lease)
        revision = 0 if entry is None else entry.revision
        written = await self._coordination.compare_and_set(Bucket.LEADERS, self._role, value, revision)
        if written is None:
            self._until = -float("inf")
            return
        if holder is None:
            log.warning("%s: this member leads, epoch %d", self._role, self._lease.epoch)
        self.leader, self.highest = self._lease, max(self.highest, self._lease.epoch)
        self._revision = written
        self._until = began + self._seconds  # the lease began no earlier than we asked

    async def _next_epoch(self) -> int | None:
        """Return an epoch above all before it, also where no member remembers those: all were restarted, and the
        lease has ended. None where another wrote meanwhile."""
        key = f"epoch-{self._role}"
        entry = await self._coordination.read(Bucket.MARKS, key)
        known, revision = (0, 0) if entry is None else (int(entry.value), entry.revision)
        epoch = max(self.highest, known) + 1
        written = await self._coordination.compare_and_set(Bucket.MARKS, key, b"%d" % epoch, revision)
        return None if written is None else epoch

    async def _keep(self, began: float) -> bool:
        """Write our lease over our last write of it, without a look: that is refused where it has ended, or
        another wrote. Return whether it was written."""
        value = msgspec.json.encode(self._lease)
        with self._failing():
            written = await self._coordination.compare_and_set(Bucket.LEADERS, self._role, value, self._revision)
        if written is None:
            return False
        self._revision, self._until = written, began + self._seconds
        return True

    async def look(self) -> BucketEntry | None:
        """Read who leads. Raises `CoordinationError`."""
        with self._failing():
            entry = await self._coordination.read(Bucket.LEADERS, self._role)
        self.leader = None if entry is None else of_json(Lease).decode(entry.value)
        return entry

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Note whether a request about the lease was answered."""
        try:
            yield
        except CoordinationError:
            if self.failing_since is None:
                self.failing_since = self.clock()
            raise
        self.failing_since = None

    async def resign(self) -> None:
        """Give the lease back, so that another takes it at once."""
        if not self.leads():
            return
        self._until = -float("inf")
        try:
            await self._coordination.delete(Bucket.LEADERS, self._role)
        except CoordinationError as error:
            log.warning("%s: the lease could not be given back: %s", self._role, error)
