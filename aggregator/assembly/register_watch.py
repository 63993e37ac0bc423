"""The register of a running aggregator, compared with the nodes that are heard."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping

from aggregator.impairments import Impairments
from aggregator.ingest.router import MessageRouter
from aggregator.register.node_register import NodeRegister
from telemetry.errors import BusError, ConfigError, NodeError
from telemetry.fleet import Fleet
from telemetry.wire.topics import shard_of

log = logging.getLogger(__name__)


class RegisterWatch:
    """Reports the nodes that are declared and not heard, or heard and not declared, and follows new names."""

    def __init__(
        self,
        register: NodeRegister,
        fleet: Fleet,
        impairments: Impairments,
        *,
        forget: Callable[[str], Awaitable[bool]],
        now: Callable[[], float],
        wall: Callable[[], int],
    ) -> None:
        """`forget` removes a node; `now`: monotonic seconds; `wall`: ns since 1970."""
        self._register, self._fleet, self._impairments = register, fleet, impairments
        self._forget, self._now, self._wall = forget, now, wall

    async def compare(self, ingest: MessageRouter, started_at: int) -> None:
        """Compare the nodes that are declared with those that are heard; remove what has a new name now. `started_at`: ns
        since 1970."""
        await self._note_renamed(ingest)
        with contextlib.suppress(BusError):  # until NATS is back, which the member reports
            await self._register.follow()
        if not len(self._register):
            return
        now = self._now()
        began = now - (self._wall() - started_at) / 1e9
        for rule, parts in self._register.problems(self._fleet, now, began).items():
            self._impairments.update(rule, _of_shards(parts, ingest.shards))
        left: list[str] = []
        with contextlib.suppress(BusError):  # as above
            left = await self._register.note(self._fleet, self._wall())
        for old in left:
            with contextlib.suppress(BusError, NodeError):  # until the broker is back; it moves now
                await self._forget(old)
                log.info("node=%s left the fleet: it has another name now, or retired", old)

    async def _note_renamed(self, ingest: MessageRouter) -> None:
        """Declare the new names under which machines already send: their history is found under these."""
        pairs, ingest.renamed = ingest.renamed, []
        for old, new in pairs:
            node = self._fleet.nodes.get(new)
            if node is None or not math.isfinite(node.seen):
                ingest.renamed += [(old, new)] if node is not None else []  # until its first frame
                continue
            why = "the same machine sends under that name"
            try:
                await self._register.rename(old, new, self._fleet, "kilowatch", why, self._wall(), heard=True)
            except (NodeError, ConfigError, BusError) as error:
                if isinstance(error, BusError) or isinstance(error.__cause__, OSError):
                    # NATS is away, or a disk is full: again at the next look
                    ingest.renamed.append((old, new))
                    continue
                log.warning("node=%s sends as %s now, and its history stays under the old name: %s", old, new, error)
            else:
                log.warning("node=%s has the name %s now: %s", old, new, why)


def _of_shards(parts: Mapping[str, str], shards: set[str] | None) -> dict[str, str]:
    """Return the parts `node/NAME` of the nodes in some shards; None: all."""
    return {part: why for part, why in parts.items() if shards is None or shard_of(part.partition("/")[2]) in shards}
