"""The shard groups of a member in the shared storage: under which epochs, and what any member can read of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence

from aggregator.store.executor import StoreExecutor
from aggregator.store.shared.segment import SessionKey
from aggregator.store.shared.store import SharedStore
from aggregator.store.shared.upkeep import SharedUpkeep
from telemetry.wire.intervals import IntervalSet

PAUSE_SECONDS = 0.05
"""Seconds between two looks whether a group is in the storage."""


class SharedGroups:
    """The groups of one member, for its loop; the work is done in the store's threads."""

    def __init__(self, executor: StoreExecutor, store: SharedStore, upkeep: SharedUpkeep) -> None:
        """`store` is that of `executor`, and `upkeep` is of `store`."""
        self._executor, self._store, self.upkeep = executor, store, upkeep

    @property
    def highest_epoch(self) -> int:
        """The highest epoch of any segment, 0 for none: the next is higher, also where the coordination
        has lost its memory."""
        return self._store.highest_epoch()

    def close(self) -> None:
        """End the thread that works on the storage."""
        self.upkeep.threads.close(cancel=True)

    def hold(self, epochs: Mapping[str, int]) -> None:
        """Note that this member holds groups, each under its epoch."""
        for group, epoch in epochs.items():
            self._store.hold(group, epoch)

    def release(self, groups: Iterable[str]) -> None:
        """Note that this member no longer holds groups: what it has of them is spilled soon."""
        for group in groups:
            self._store.release(group)

    async def marks(self, groups: Sequence[str]) -> dict[str, dict[SessionKey, IntervalSet]]:
        """Return the frames of groups that any member can read, by a new listing. While the storage is away
        these are fewer than there are, so that more is requested than is needed."""
        await self.upkeep.threads.run(self._store.list_now)
        return {group: self._store.accounted_shared(group) for group in groups}

    async def settle(self, groups: Iterable[str] | None, seconds: float) -> bool:
        """Spill all that is committed of groups, None for all, and put it into the storage; return whether it
        is there."""
        wanted = None if groups is None else frozenset(groups)
        try:
            async with asyncio.timeout(seconds):
                while not await self._executor.run(self._store.request_spill, wanted):
                    await self._executor.maintain(time.time_ns())
                while self._store.waits(wanted):
                    await self.upkeep.threads.run(self._store.tend, time.time_ns())
                    await self._executor.maintain(time.time_ns())
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            return False
        return True
