"""Beginning and end of shard groups within a running aggregator: ingest, fleet, rules and store.

The marks of a group are the frames of it that are stored, by node and session, whoever stored them. A
member that begins with a group requests from the nodes' rings what is behind its marks, and no more.
With a shared storage only frames that lie there count: any member can read those, whoever dies.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from aggregator.ingest.held_messages import when_idle
from aggregator.ingest.router import MessageRouter
from aggregator.mqtt.client import FanInClient
from aggregator.store.executor import StoreExecutor
from aggregator.store.shared.groups import SharedGroups
from telemetry.text.decoders import of_msgpack
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.topics import shard_of

COMMIT_SECONDS = 5.0
"""Seconds that the hand-over of groups may wait for their last commit."""
SPILL_SECONDS = 6.0
"""Seconds that it may then wait until the shared storage has their frames; else these are requested again."""
Marks = dict[tuple[str, int], IntervalSet]
"""Frames that are stored, by node and session."""


def encode_marks(marks: Mapping[tuple[str, int], IntervalSet]) -> bytes:
    """Return marks as they are sent to another member."""
    return msgspec.msgpack.encode([(*key, list(spans)) for key, spans in marks.items()])


def decode_marks(body: bytes) -> Marks:
    """Return the marks that another member has sent; none for what can't be read, so that all is requested."""
    try:
        found = of_msgpack(list[tuple[str, int, list[tuple[int, int]]]]).decode(body)
    except msgspec.DecodeError:
        return {}
    return {(node, session): IntervalSet(spans) for node, session, spans in found}


def join_marks(*parts: Mapping[tuple[str, int], IntervalSet]) -> Marks:
    """Return the frames that are in any of `parts`."""
    found: Marks = {}
    for part in parts:
        for key, spans in part.items():
            own = found.setdefault(key, IntervalSet())
            for first, last in spans:
                own.add_span(first, last)
    return found


class GroupHolder:
    """Starts and stops groups in one aggregator."""

    def __init__(
        self,
        ingest: MessageRouter,
        bus: FanInClient,
        store: StoreExecutor,
        *,
        idle: asyncio.Event,
        moved: Callable[[str], None],
        committed: Callable[[], Awaitable[object]],
        now: Callable[[], float],
        left: Callable[[str], bool] = lambda _: False,
        shared: SharedGroups | None = None,
    ) -> None:
        """`idle`: set while no rule is evaluated. `moved`: called with each node that left. `committed`:
        waits for the end of the store's next commit. `left`: whether a node has left the cluster, which the store may
        still know from an earlier time with its group."""
        self._ingest = ingest
        self._bus = bus
        self._store = store
        self._idle = idle
        self._moved = moved
        self._committed = committed
        self._now = now
        self._left = left
        self._shared = shared
        self._inherited: dict[str, Marks] = {}
        """By group, what members before us had stored."""

    @property
    def nodes(self) -> int:
        """How many nodes the groups of this aggregator have."""
        return len(self._ingest.nodes)

    @property
    def shares(self) -> bool:
        """Whether a shared storage has the marks."""
        return self._shared is not None

    @property
    def highest_epoch(self) -> int:
        """The highest epoch that the shared storage has seen, 0 for none."""
        return 0 if self._shared is None else self._shared.highest_epoch

    def hold(self, epochs: Mapping[str, int]) -> None:
        """Note the epochs under which groups are held: what is stored from now on is of these."""
        if self._shared is not None:
            self._shared.hold(epochs)

    async def shared_marks(self, groups: list[str]) -> dict[str, Marks]:
        """Return which frames of groups the shared storage has."""
        return {group: {} for group in groups} if self._shared is None else await self._shared.marks(groups)

    async def acquire(self, marks: Mapping[str, Marks]) -> bool:
        """Begin to receive groups, each with its marks; return whether their messages come from now on.
        Nothing is requested of them before `confirm`."""
        groups = list(marks)
        known = await self._store.inventories()
        stored = await self._stored(groups)
        await when_idle(self._idle)  # last: no rule may begin before the fleet has its new rows
        for group, theirs in marks.items():
            self._inherited[group] = theirs
            found = [each for each in known if shard_of(each.node) == group and not self._left(each.node)]
            self._ingest.acquire(group, found, join_marks(theirs, stored[group]), self._now())
        return await self._bus.add_shards(groups)

    async def confirm(self, marks: Mapping[str, Marks]) -> None:
        """Request what is missing of groups: no other member receives them any more, and `marks` is all that
        was stored of them elsewhere."""
        for group, theirs in marks.items():
            self._inherited[group] = join_marks(self._inherited.get(group, {}), theirs)
            self._ingest.confirm(group, self._inherited[group], self._now())

    async def unsubscribe(self, groups: list[str]) -> dict[str, Marks]:
        """End receiving groups, store what came of them, and return their marks."""
        self._bus.remove_shards(groups)
        with contextlib.suppress(TimeoutError):  # a store that fails: less is in the marks
            async with asyncio.timeout(COMMIT_SECONDS):
                for _ in range(2):  # the first may have begun before the last frame came
                    await self._committed()
        if self._shared is None:
            return await self.marks(groups)
        settled = await self._shared.settle(groups, SPILL_SECONDS)
        return await (self.marks(groups) if settled else self.shared_marks(groups))

    async def drop(self, groups: list[str]) -> None:
        """Drop groups from memory, without a word about their alerts: they have moved."""
        self._bus.remove_shards(groups)
        if self._shared is not None:
            self._shared.release(groups)
        await when_idle(self._idle)
        for group in groups:
            for name in self._ingest.release(group):
                self._moved(name)
            self._inherited.pop(group, None)

    async def marks(self, groups: list[str]) -> dict[str, Marks]:
        """Return which frames of groups are stored, by us or by members that had them before."""
        stored = await self._stored(groups)
        return {group: join_marks(self._inherited.get(group, {}), stored[group]) for group in groups}

    async def _stored(self, groups: list[str]) -> dict[str, Marks]:
        found: dict[str, Marks] = {group: {} for group in groups}
        for key, spans in (await self._store.accounted()).items():
            its = found.get(shard_of(key[0]))
            if its is not None:
                its[key] = spans
        return found
