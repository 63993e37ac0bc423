"""One channel's deliveries: takes what is due from the journal, sends it, writes down what became
of it. Another channel that fails or hangs is none of its business.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from alerts.delivery.channel_stats import ChannelStats
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.rate_limiter import RateLimiter
from alerts.message.text import clean
from alerts.notice import Delivery, Notice
from alerts.notifiers.channel import Channel
from alerts.notifiers.result import Answer, Delivered, Later, Refused
from api.alerts import Action, Severity
from telemetry.backoff import Backoff

# What is still to be said of one incident on one channel, when several notices wait.
#
# Pure. A receiver that was away for an hour is not told the whole hour: it is told how things stand,
# in the order in which they came to be so.


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """What becomes of the deliveries of a chain now."""

    send: Delivery | None
    """The next to send, with the newest facts in it."""
    covered: tuple[int, ...] = ()
    """Contained in `send`, and settled with it."""
    rest: tuple[int, ...] = ()
    """Wait behind it."""
    superseded: tuple[int, ...] = ()
    """Need not be said any more."""
    expired: tuple[int, ...] = ()


def plan(chain: Sequence[Delivery], old: Callable[[Delivery], bool], started: int) -> DeliveryPlan:
    """Decide for all that wait of one incident on one channel, in the order of their numbers.

    `old`: whether one is too old to be of use. `started`: when this process began to send, for what
    an earlier one has sent may have arrived without being written down.
    """
    expired = tuple(one.id for one in chain if old(one))
    living = [one for one in chain if one.id not in expired]
    end = next((at for at, one in enumerate(living) if one.notice.action is Action.RESOLVE), None)
    if end is None:
        return _going_on(living, expired)
    over, before = living[end], living[:end]
    later = tuple(one.id for one in living[end + 1 :])
    gone = tuple(one.id for one in before)
    if before and _never_told(before[0], started):
        return DeliveryPlan(None, rest=later, superseded=(*gone, over.id), expired=expired)
    return DeliveryPlan(over, rest=later, superseded=gone, expired=expired)


def _never_told(first: Delivery, started: int) -> bool:
    """Whether the receiver has surely not heard of an incident whose first notice this is."""
    return (
        first.notice.action is Action.TRIGGER
        and first.notice.reason == "new"
        and first.tries == 0
        and (first.created >= started or first.due > started)
    )


def _going_on(living: list[Delivery], expired: tuple[int, ...]) -> DeliveryPlan:
    """Of an incident that is not over: one trigger or update with the newest facts, and the last
    acknowledgement."""
    told = [one for one in living if one.notice.action is not Action.ACKNOWLEDGE]
    notes = [one for one in living if one.notice.action is Action.ACKNOWLEDGE]
    superseded = [one.id for one in notes[:-1]]
    to_send = notes[-1:]
    covered: tuple[int, ...] = ()
    if told:
        triggers = [one for one in told if one.notice.action is Action.TRIGGER]
        carrier = triggers[0] if triggers else told[0]
        newest = told[-1]
        superseded += [one.id for one in told if one.id not in {carrier.id, newest.id}]
        if newest.id != carrier.id:
            covered = (newest.id,)
        to_send.append(_carrying(carrier, triggers, living[-1].notice))
    if not to_send:
        return DeliveryPlan(None, expired=expired)
    to_send.sort(key=lambda one: one.id)
    first, rest = to_send[0], tuple(one.id for one in to_send[1:])
    if first.notice.action is Action.ACKNOWLEDGE:  # what is covered belongs to the one behind it
        covered, rest = (), (*rest, *covered)
    return DeliveryPlan(first, covered, rest, tuple(superseded), expired)


def _carrying(carrier: Delivery, triggers: list[Delivery], newest: Notice) -> Delivery:
    """Return a delivery with its own place and key, and the newest facts."""
    reason = carrier.notice.reason
    if triggers and reason != "new":
        reason = triggers[-1].notice.reason
    notice = msgspec.structs.replace(carrier.notice, incident=newest.incident, reason=reason)
    return msgspec.structs.replace(carrier, notice=notice)


log = logging.getLogger(__name__)

FIRST_RETRY, LONGEST_RETRY = 2.0, 120.0
"""Seconds between two tries of a delivery: a page must not wait long for a receiver that is back."""
GRACE_SECONDS = 5.0
"""How long the end waits for what is under way."""
IDLE_SECONDS = 30.0
"""Looks at the journal at least so often, though whoever writes to it says so."""
RESOLVE_EXPIRY = 7 * 86_400.0
"""The end of an incident is worth telling for long: else it stays open at the receiver."""

Call = Callable[..., Awaitable[Any]]
"""Calls a function that writes to disk without holding up the loop."""


class DeliveryJournal(Protocol):
    """What the outbox asks of `alerts.journal.journal`. Reading costs no I/O; what writes is called in a
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

    def store_channel_state(self, channel: str, body: bytes | None) -> object:
        """Keep it; None forgets it."""


class ChannelWorker:
    """Works through one channel."""

    def __init__(
        self,
        name: str,
        channel: Channel,
        journal: DeliveryJournal,
        tell: Callable[[str, Channel, Notice], Awaitable[Answer]],
        *,
        expiry: Mapping[Severity, float],
        first_due: Callable[[str, Delivery], int],
        clock: DeliveryClock,
        call: Call,
        dice: random.Random,
    ) -> None:
        self.name = name
        self.channel = channel
        self.stats = ChannelStats()
        self._journal = journal
        self._tell = tell
        self._expiry = expiry
        self._first_due = first_due
        self._clock = clock
        self._call = call
        self._retry = Backoff(FIRST_RETRY, LONGEST_RETRY, dice=dice)
        self._pace = RateLimiter(channel.per_minute, channel.burst, channel.at_once, dice)
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

    async def _give_up(self, decided: DeliveryPlan) -> None:
        now = self._clock.wall()
        for number in decided.expired:
            self.stats.add_expiry()
            await self._call(self._journal.expired, number, now, self.stats.last_error)
        if decided.superseded:
            self.stats.superseded += len(decided.superseded)
            await self._call(self._journal.superseded, decided.superseded, now)

    async def _send(self, decided: DeliveryPlan, delivery: Delivery) -> None:
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

    async def _settle(self, decided: DeliveryPlan, delivery: Delivery, answer: Answer) -> None:
        journal, stats, now = self._journal, self.stats, self._clock.wall()
        match answer:
            case Delivered():
                self._pace.succeeded()
                if stats.add_delivered(now):
                    log.info("channel %s takes messages again", self.name)
                await self._call(journal.delivered, delivery.id, now, decided.covered)
            case Later(reason, after):
                self._pace.failed(self._clock.monotonic(), after)
                if stats.add_failure(reason, self._clock.monotonic()):
                    log.warning("channel %s fails: %s; it is tried again", self.name, reason)
                pause = max(self._retry.after(delivery.tries + 1), after or 0.0)
                due = self._clock.now() + round(pause * 1e9)
                others = (*decided.covered, *decided.rest)
                await self._call(journal.retry, delivery.id, due, reason, others)
            case Refused(reason):
                if stats.add_refusal(reason):
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

    plan: DeliveryPlan
    send: Delivery
