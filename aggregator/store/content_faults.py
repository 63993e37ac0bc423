"""Isolation of nodes whose content the store can't write: one node's rows must not block the others'.

A disk that is full fails for every batch, and is waited for. Content that can't be written fails at
every try: the batch is then written by halves, and what remains of single nodes is set aside.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from aggregator.store.batch_parts import NodeOfRun, means_of_others, nodes_of, part_of
from aggregator.store.protocol import Batch, CollectorRun, ContentError, StoredDevice
from telemetry.errors import StoreError
from telemetry.runtime.isolation import Isolation, PartKind

TRIES = 2
"""Tries of a whole batch before it is written by halves: a fault may be over at the second."""
MOST_FAULTS = 8
"""Nodes that fail one by one, before any part is written, from which it is no node's content."""

Write = Callable[[Batch], Awaitable[int]]
Lost = Callable[[str, Batch, str], None]
"""Receives what is not stored of a node, with the reason."""


def is_content(error: Exception) -> bool:
    """Return whether an error is about what is written rather than about the disk."""
    return isinstance(error, ContentError) or not isinstance(error, StoreError)


class ContentFaults:
    """Nodes whose content could not be written."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.run_of: NodeOfRun = lambda _: None
        """Returns the session of a run's number."""
        self.lost: Lost = lambda *_: None
        self.aside = Isolation(PartKind.STORE)
        self._clock = clock
        self._names: dict[str, tuple[list[CollectorRun], list[StoredDevice]]] = {}
        """Runs and devices without which no frame of their node may be stored."""

    def before(self, batch: Batch) -> Batch:
        """Return a batch with the names that could not be stored before, or without their nodes
        while these are set aside."""
        withheld = set()
        for node, (runs, devices) in list(self._names.items()):
            if self.aside.due(node, self._clock()):
                batch.runs, batch.devices = runs + batch.runs, devices + batch.devices
                del self._names[node]
            else:
                withheld.add(node)
        if not withheld:
            return batch
        here = nodes_of(batch, self.run_of)
        for node in withheld.intersection(here):
            part = part_of(batch, [node], self.run_of)
            self._keep_names(node, part)
            self.lost(node, part, self.aside.reasons().get(node, ""))
        rest = part_of(batch, [name for name in here if name not in withheld], self.run_of)
        rest.means = means_of_others(batch.means, withheld, self.run_of)
        return rest

    def works(self, batch: Batch) -> None:
        """Note that a batch was stored."""
        if len(self.aside):
            for node in nodes_of(batch, self.run_of):
                self.aside.works(node)

    async def write(self, batch: Batch, write: Write) -> int | None:
        """Write a batch node by node as far as need be; return how many frames were new, or None
        where nothing of it can be written."""
        nodes = nodes_of(batch, self.run_of)
        failed: dict[str, Exception] = {}
        parts, new, stored = [nodes], 0, False
        while parts:
            names = parts.pop()
            part = part_of(batch, names, self.run_of)
            try:
                new += await write(part)
                stored = True
                self.works(part)
            except Exception as error:  # noqa: BLE001 - kept by the node's name
                if not is_content(error):
                    return None  # the disk: the whole batch is tried again
                if len(names) > 1:
                    parts += [names[len(names) // 2 :], names[: len(names) // 2]]
                    continue
                failed.update(dict.fromkeys(names, error))
                if not stored and len(failed) > MOST_FAULTS:
                    return None
        if not stored and not await self._writes(write):
            return None
        if batch.means:
            await self._stored(Batch(means=batch.means, at=batch.at), write)
        for node, fault in failed.items():
            new += await self._set_aside(node, part_of(batch, [node], self.run_of), fault, write)
        return new

    async def _writes(self, write: Write) -> bool:
        """Return whether the store writes at all."""
        try:
            await write(Batch())
        except Exception:  # noqa: BLE001 - the answer to the question
            return False
        return True

    async def _set_aside(self, node: str, part: Batch, error: Exception, write: Write) -> int:
        """Store what can be stored of a node, kind by kind, and report the rest as lost."""
        self.aside.fail(node, error, self._clock())
        rest, new = Batch(at=part.at), 0
        named = await self._stored(Batch(runs=part.runs, devices=part.devices, at=part.at), write)
        if named is None:
            self._keep_names(node, part)
        for kind in ("frames", "removed_nodes", "inventories", "events", "holes", "ended_runs"):
            one = Batch(at=part.at)
            for field in (kind, "blocks") if kind == "frames" else (kind,):
                setattr(one, field, getattr(part, field))
            count = None if kind == "frames" and named is None else await self._stored(one, write)
            if count is not None:
                new += count
                continue
            for field in (kind, "blocks") if kind == "frames" else (kind,):
                setattr(rest, field, getattr(part, field))
        self.lost(node, rest, str(error))
        return new

    async def _stored(self, part: Batch, write: Write) -> int | None:
        try:
            return await write(part)
        except Exception:  # noqa: BLE001 - it is reported with its node
            return None

    def _keep_names(self, node: str, part: Batch) -> None:
        runs, devices = self._names.get(node, ([], []))
        if part.runs or part.devices or node in self._names:
            self._names[node] = (runs + part.runs, devices + part.devices)


def sample_of(part: Batch) -> bytes:
    """Return a part that could not be stored as text, for a dead letter."""
    lines = [f"{kind}: {getattr(part, kind)!r}" for kind in ("frames", "events", "inventories", "holes", "runs", "devices", "blocks")]  # fmt: skip
    return "\n".join(lines).encode("utf-8", "backslashreplace")
