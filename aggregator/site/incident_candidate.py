"""A member's fold of the log of incidents: follows the log, and ticks while it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aggregator.cluster.port import Coordination, CoordinationError
from aggregator.site.edges import SUBJECT, Edge, TickEdge, encode
from aggregator.site.incident_fold import FoldStep, IncidentFold
from aggregator.site.leadership import Leadership

log = logging.getLogger(__name__)

Folded = Callable[[int, FoldStep], None]
"""Receives the sequence number of an edge and what it changed."""
LOG_CHECK_SECONDS = 10.0
"""Seconds between two looks whether the log begins anew."""


class IncidentCandidate:
    """The fold of a member. Every member runs `follow`, and `step` some times a second."""

    def __init__(
        self,
        coordination: Coordination,
        fold: IncidentFold,
        leadership: Leadership,
        *,
        wall: Callable[[], int],
        folded: Folded = lambda *_: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`wall`: ns since 1970; when a tick is needed depends on it, what the tick does on the log's. `lost`: called
        where NATS has lost the log."""
        self._coordination = coordination
        self.fold, self.leadership = fold, leadership
        self._wall = wall
        self._folded, self._lost = folded, lost
        self._ticked: int | None = None
        """The time for which a tick was appended last."""

    async def append(self, edge: Edge, message_id: str) -> int:
        """Append an edge to the log, from any member; return its sequence number. Raises
        `CoordinationError`; then the call is repeated with the same id, and the edge counts once."""
        return await self._coordination.append(SUBJECT, encode(edge), message_id)

    async def follow(self) -> None:
        """Fold every edge in, until cancelled, or until the log begins anew. Raises `CoordinationError`."""
        await self._check_log()
        replay = asyncio.create_task(self._replay(), name="replay of incidents")
        try:
            while not replay.done():
                await asyncio.wait([replay], timeout=LOG_CHECK_SECONDS)
                if not replay.done() and await self._check_log():
                    return
            await replay
        finally:
            replay.cancel()
            await asyncio.gather(replay, return_exceptions=True)

    async def _check_log(self) -> bool:
        """Return whether the log begins anew, and begin there too."""
        if self.fold.goes_on(await self._coordination.log_end()):
            return False
        log.warning("the log of incidents begins anew: what fires is said again by its evaluators")
        self._lost()
        return True

    async def _replay(self) -> None:
        async with self._coordination.replay(self.fold.mark, SUBJECT) as messages:
            async for message in messages:
                step = self.fold.apply(message)
                if step is not None:
                    self._folded(message.sequence, step)

    async def step(self) -> None:
        """Append a tick where this member leads and something is due."""
        if not self.leadership.leads():
            return
        due = self.fold.next_due()
        if due is None or due > self._wall() or due == self._ticked:
            return
        try:
            await self.append(TickEdge(), f"tick-{due}")
            self._ticked = due
        except CoordinationError as error:
            log.warning("a tick of incidents could not be appended: %s", error)
