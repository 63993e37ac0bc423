"""One channel's deliveries: takes what is due from the journal, sends it, writes down what became
of it. Another channel that fails or hangs is none of its business."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from alerts.alert import Severity
from alerts.chain import Plan, plan
from alerts.clock import Clock
from alerts.notice import Action, Delivery, Notice
from alerts.notifiers.answer import Answer, Delivered, Later, Refused
from alerts.notifiers.channel import Channel
from alerts.pace import Pace, retry_after
from alerts.plain import clean
from alerts.tally import Tally

log = logging.getLogger(__name__)

GRACE_SECONDS = 5.0
"""How long the end waits for what is under way."""
IDLE_SECONDS = 30.0
"""Looks at the journal at least so often, though whoever writes to it says so."""
RESOLVE_EXPIRY = 7 * 86_400.0
"""The end of an incident is worth telling for long: else it stays open at the receiver."""

Call = Callable[..., Awaitable[Any]]
"""Calls a function that writes to disk without holding up the loop."""


class Journal(Protocol):
    """What the outbox asks of `alerts.journal`. Reading costs no I/O; what writes is called in a
    thread."""

    def due(self, wall_ns: int, limit: int, channel: str) -> Sequence[Delivery]:
        """Return one delivery of each incident of which any is due: pages first, then oldest."""

    def chain(self, channel: str, incident: str) -> Sequence[Delivery]:
        """Return all that wait of one incident on a channel, in their order."""

    def next_due(self, channel: str) -> int | None:
        """Return when the next is due on a channel; None when none waits."""

    def backlog(self) -> Mapping[str, tuple[int, int]]:
        """Return by channel how many wait, and when the oldest was made."""

    def delivered(self, number: int, wall_ns: int, superseded: Sequence[int] = ()) -> object:
        """It has arrived, and what `superseded` says with it."""

    def retry(self, number: int, due: int, error: str, others: Sequence[int] = ()) -> object:
        """It has not; try it again at `due`, and `others` not before."""

    def refused(self, number: int, wall_ns: int, error: str) -> object:
        """It never will."""

    def expired(self, number: int, wall_ns: int, error: str) -> object:
        """It is too old to be of use."""

    def superseded(self, numbers: Sequence[int], wall_ns: int) -> object:
        """They need not be said any more."""

    def channel_state(self, channel: str) -> bytes | None:
        """Return what a channel keeps for itself."""

    def keep_channel_state(self, channel: str, body: bytes | None) -> object:
        """Keep it; None forgets it."""


class Courier:
    """Works through one channel."""

    def __init__(
        self,
        name: str,
        channel: Channel,
        journal: Journal,
        tell: Callable[[str, Channel, Notice], Awaitable[Answer]],
        *,
        expiry: Mapping[Severity, float],
        first_due: Callable[[str, Delivery], int],
        clock: Clock,
        call: Call,
        dice: random.Random,
    ) -> None:
        self.name = name
        self.channel = channel
        self.tally = Tally()
        self._journal = journal
        self._tell = tell
        self._expiry = expiry
        self._first_due = first_due
        self._clock = clock
        self._call = call
        self._dice = dice
        self._pace = Pace(channel.per_minute, channel.burst, channel.at_once, dice)
        self._flying: dict[str, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()
        self._started = clock.now()

    def wake(self) -> None:
        """Say that there may be something new to send."""
        self._woken.set()

    async def run(self) -> None:
        """Send for ever. Cancelled, it gives what is under way a little time; what is not sent
        then waits for the next start."""
        try:
            while True:
                self._woken.clear()
                pause = await self._turn()
                await self._clock.wait(self._woken, pause)
        finally:
            await self._land()

    async def _turn(self) -> float:
        """Start all that may go now, and return how long there is nothing to do."""
        while len(self._flying) < self._pace.at_once:
            pause = self._pace.wait(self._clock.monotonic())
            if pause > 0:
                return min(pause, IDLE_SECONDS)
            found = await self._pick()
            if found is None:
                return self._until_due()
            self._pace.take(self._clock.monotonic())
            key = found.send.notice.incident.key
            task = asyncio.create_task(self._send(found.plan, found.send), name=f"send {self.name}")
            self._flying[key] = task
            task.add_done_callback(functools.partial(self._landed, key))
        return IDLE_SECONDS

    async def _pick(self) -> _Picked | None:
        """Return the most urgent that is not under way; settle on the way what need not be sent."""
        now = self._clock.now()
        for head in self._journal.due(now, len(self._flying) + 8, self.name):
            key = head.notice.incident.key
            if key in self._flying:
                continue
            chain = self._journal.chain(self.name, key)
            decided = plan(chain, self._is_old, self._started)
            await self._give_up(decided)
            if decided.send is not None:
                return _Picked(decided, decided.send)
            self._woken.set()  # the next turn sees what is behind these
        return None

    def _until_due(self) -> float:
        if self._woken.is_set():
            return 0.0
        due = self._journal.next_due(self.name)
        if due is None:
            return IDLE_SECONDS
        least = 0.5 if self._flying else 0.05  # what is under way is still due
        return min(max((due - self._clock.now()) / 1e9, least), IDLE_SECONDS)

    def _is_old(self, delivery: Delivery) -> bool:
        notice = delivery.notice
        limit = self._expiry[notice.incident.severity]
        if notice.action is Action.RESOLVE:
            limit = max(limit, RESOLVE_EXPIRY)
        if self._clock.age(delivery.created) <= limit:
            return False
        # A ticket that was held until Monday is as old as its time in working hours.
        return self._clock.age(self._first_due(self.name, delivery)) > limit

    async def _give_up(self, decided: Plan) -> None:
        now = self._clock.wall()
        for number in decided.expired:
            self.tally.expires()
            await self._call(self._journal.expired, number, now, self.tally.last_error)
        if decided.superseded:
            self.tally.superseded += len(decided.superseded)
            await self._call(self._journal.superseded, decided.superseded, now)

    async def _send(self, decided: Plan, delivery: Delivery) -> None:
        limit = 2 * self.channel.timeout_seconds + 5
        try:
            async with asyncio.timeout(limit):
                answer = await self._tell(self.name, self.channel, delivery.notice)
        except TimeoutError:
            answer = Later(f"no answer within {limit:g} s")
        except Exception as error:
            log.exception("channel %s: a message could not be made", self.name)
            answer = Later(f"{type(error).__name__}: {clean(str(error), 200)}")
        # What has arrived must be written down even if the end comes now.
        await asyncio.shield(self._settle(decided, delivery, answer))

    async def _settle(self, decided: Plan, delivery: Delivery, answer: Answer) -> None:
        journal, tally, now = self._journal, self.tally, self._clock.wall()
        match answer:
            case Delivered():
                self._pace.succeeded()
                if tally.took(now):
                    log.info("channel %s takes messages again", self.name)
                await self._call(journal.delivered, delivery.id, now, decided.covered)
            case Later(reason, after):
                self._pace.failed(self._clock.monotonic(), after)
                if tally.fails(reason, self._clock.monotonic()):
                    log.warning("channel %s fails: %s; it is tried again", self.name, reason)
                pause = retry_after(delivery.tries, after, self._dice)
                due = self._clock.now() + round(pause * 1e9)
                others = (*decided.covered, *decided.rest)
                await self._call(journal.retry, delivery.id, due, reason, others)
            case Refused(reason):
                if tally.refuses(reason):
                    log.error("channel %s refuses %s: %s", self.name, delivery.notice.incident.key,
                              reason)  # fmt: skip
                await self._call(journal.refused, delivery.id, now, reason)
                if decided.covered:
                    await self._call(journal.superseded, decided.covered, now)

    def _landed(self, key: str, _: asyncio.Task[None]) -> None:
        self._flying.pop(key, None)
        self._woken.set()

    async def _land(self) -> None:
        tasks = list(self._flying.values())
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Picked:
    """What goes next."""

    plan: Plan
    send: Delivery
