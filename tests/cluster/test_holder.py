"""Groups that begin in a running aggregator do so between two evaluations of the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aggregator.cluster.holder import GroupHolder


class GroupNotes:
    """Notes whether rules were evaluated as a group began: the fleet gets rows then."""

    def __init__(self, idle: asyncio.Event) -> None:
        self._idle = idle
        self.began: list[tuple[str, bool]] = []

    def acquire(self, group: str, *_: object) -> None:
        self.began.append((group, self._idle.is_set()))


class InstantBus:
    """Subscribes to everything at once."""

    async def add_shards(self, _groups: list[str]) -> bool:
        return True


class UnhurriedStore:
    """Takes its time, in which an evaluation begins."""

    def __init__(self, idle: asyncio.Event) -> None:
        self._idle = idle

    async def inventories(self) -> list[Any]:
        self._idle.clear()
        asyncio.get_running_loop().call_later(0.05, self._idle.set)
        return []

    async def accounted(self) -> Mapping[tuple[str, int], Any]:
        return {}


async def test_a_group_begins_when_no_rule_is_evaluated() -> None:
    """Its nodes are rows of arrays that the rules compare with those of the evaluation before."""
    idle = asyncio.Event()
    idle.set()
    ingest = GroupNotes(idle)

    async def committed() -> None:
        """End at once."""

    found: Any = ingest
    bus: Any = InstantBus()
    store: Any = UnhurriedStore(idle)
    holder = GroupHolder(found, bus, store, idle=idle, moved=print, committed=committed, now=lambda: 0.0)
    await holder.acquire({"0a": {}, "0b": {}})
    assert ingest.began == [("0a", True), ("0b", True)]
