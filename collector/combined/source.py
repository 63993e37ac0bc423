"""Sources of one node, read side by side: the rows of the first, then those of the next.

Each source keeps its own probe process, states and deadlines; one whose driver hangs delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from collector.probed.source import ProbedSource
from collector.source import DeviceEvent, ListedProcesses, Rows
from telemetry.metric import Lane
from telemetry.wire.inventory import Inventory

WORST = ("hung", "mismatched", "missing", "no_permission", "unknown", "released", "up")
"""States of drivers, the worst first: a node is as well as its worst driver."""


class CombinedSource:
    """Sources of several makers, as in `collector.source.Source`."""

    def __init__(self, sources: Sequence[ProbedSource]) -> None:
        self._sources = tuple(sources)
        self._seen: tuple[Inventory, ...] = ()
        self.inventory = Inventory(node="")
        self._merge()

    async def open(self) -> None:
        """Open all sources at once."""
        await asyncio.gather(*(source.open() for source in self._sources))
        self._merge()

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the rows of all sources, each read within the same `deadline`."""
        parts = await asyncio.gather(*(source.read(lanes, tick, now_ns, deadline) for source in self._sources))
        rows: Rows = {}
        for part in parts:
            for block, found in part.items():
                rows.setdefault(block, []).extend(found)
        self._merge()
        return rows

    def drain_events(self) -> list[DeviceEvent]:
        """Return the events since the last call, oldest first."""
        events = [event for source in self._sources for event in source.drain_events()]
        return sorted(events, key=lambda event: event.at)

    async def release(self) -> None:
        """Close all drivers."""
        await asyncio.gather(*(source.release() for source in self._sources))
        self._merge()

    async def resume(self) -> None:
        """Open all drivers again."""
        await asyncio.gather(*(source.resume() for source in self._sources))
        self._merge()

    async def close(self) -> None:
        """Close everything."""
        await asyncio.gather(*(source.close() for source in self._sources))

    def pause(self, gpu: str, reason: str) -> None:
        """Read a GPU seldom."""
        for source in self._sources:
            source.pause(gpu, reason)

    def list_processes(self, seconds: float) -> None:
        """Read the processes of each GPU once in so many seconds."""
        for source in self._sources:
            source.list_processes(seconds)

    def listed_processes(self) -> Mapping[str, ListedProcesses]:
        """Return the processes by UUID of the GPU."""
        found: dict[str, ListedProcesses] = {}
        for source in self._sources:
            found.update(source.listed_processes())
        return found

    def _merge(self) -> None:
        """Merge the inventories where one has changed."""
        parts = tuple(source.inventory for source in self._sources)
        if len(parts) == len(self._seen) and all(one is other for one, other in zip(parts, self._seen, strict=True)):
            return
        self._seen = parts
        worst = min(parts, key=lambda part: _rank(part.driver_state))
        offset = 0
        gpus = []
        for part in parts:  # an index names one GPU of the node
            gpus += [msgspec.structs.replace(gpu, index=gpu.index + offset) for gpu in part.gpus]
            offset = max((gpu.index + 1 for gpu in gpus), default=0)
        self.inventory = Inventory(
            node="",
            source="+".join(part.source for part in parts),
            driver_version=" + ".join(part.driver_version for part in parts if part.driver_version) or None,
            cuda_version=next((part.cuda_version for part in parts if part.cuda_version), None),
            nvml_version=next((part.nvml_version for part in parts if part.nvml_version), None),
            excluded=next((part.excluded for part in parts if part.excluded is not None), None),
            driver_state=worst.driver_state,
            driver_message=" ".join(f"{part.source}: {part.driver_message}" for part in parts if part.driver_message),
            gpus=tuple(gpus),
            links=tuple(link for part in parts for link in part.links),
            instances=tuple(each for part in parts for each in part.instances),
            pools=tuple(pool for part in parts for pool in part.pools),
        )


def _rank(state: str) -> int:
    return WORST.index(state) if state in WORST else WORST.index("unknown")
