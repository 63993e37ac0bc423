"""The worker of one channel: sends its due deliveries, and stores the outcomes.

Each channel has its own, so that one that fails or hangs delays no other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from alerts.delivery.channel_stats import ChannelStats
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.gate import ClaimAnswer, DeliveryGate
from alerts.delivery.rate_limiter import LONGEST_PAUSE, RateLimiter
from alerts.journal.journal import Journal
from alerts.message.text import clean
from alerts.notice import Delivery, Notice
from alerts.notifiers.channel import Channel
from alerts.notifiers.result import Answer, Delivered, Later, Refused
from api.alerts import Action, DeliveryOutcome, Severity
from telemetry.runtime.backoff import Backoff
from telemetry.runtime.isolation import FIRST_RETRY as FAULT_PAUSE
from telemetry.runtime.isolation import Isolation

# Coalescing: which of several waiting notices of one incident are still sent to a channel.
#
# Pure. A receiver that was away for an hour gets the present state, not all that happened meanwhile.


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """Decision about the waiting deliveries of an incident on a channel."""

    send: Delivery | None
    """The next to send, with the newest content."""
    covered: tuple[int, ...] = ()
    """Contained in `send`, and settled with it."""
    rest: tuple[int, ...] = ()
    """Sent after it."""
    superseded: tuple[int, ...] = ()
    """Not sent, because another supersedes it."""
    expired: tuple[int, ...] = ()


def plan(chain: Sequence[Delivery], old: Callable[[Delivery], bool], started: int) -> DeliveryPlan:
    """Return what to do with the waiting deliveries of an incident, in the order of their numbers.

    `old`: whether a delivery has expired. `started`: when this process began to send; a delivery of
    an earlier process may have arrived without being stored as such.
    """
    expired = tuple(one.id for one in chain if old(one))
    valid = [one for one in chain if one.id not in expired]
    end = next((at for at, one in enumerate(valid) if one.notice.action is Action.RESOLVE), None)
    if end is None:
        return _open_incident(valid, expired)
    over, before = valid[end], valid[:end]
    later = tuple(one.id for one in valid[end + 1 :])
    gone = tuple(one.id for one in before)
    if before and _never_sent(before[0], started):
        return DeliveryPlan(None, rest=later, superseded=(*gone, over.id), expired=expired)
    return DeliveryPlan(over, rest=later, superseded=gone, expired=expired)


def _never_sent(first: Delivery, started: int) -> bool:
    """Whether the receiver certainly has no notice of an incident whose first one this is."""
    return (
        first.notice.action is Action.TRIGGER
        and first.notice.reason in {"new", "new_channel"}
        and first.tries == 0
        and (first.created >= started or first.due > started)
    )


def _open_incident(valid: list[Delivery], expired: tuple[int, ...]) -> DeliveryPlan:
    """Return the plan for an incident that is not over: one trigger or update with the newest
    content, and the last acknowledgement."""
    changes = [one for one in valid if one.notice.action is not Action.ACKNOWLEDGE]
    notes = [one for one in valid if one.notice.action is Action.ACKNOWLEDGE]
    superseded = [one.id for one in notes[:-1]]
    to_send = notes[-1:]
    covered: tuple[int, ...] = ()
    if changes:
        triggers = [one for one in changes if one.notice.action is Action.TRIGGER]
        carrier = triggers[0] if triggers else changes[0]
        newest = changes[-1]
        superseded += [one.id for one in changes if one.id not in {carrier.id, newest.id}]
        if newest.id != carrier.id:
            covered = (newest.id,)
        to_send.append(_carrying(carrier, triggers, valid[-1].notice))
    if not to_send:
        return DeliveryPlan(None, expired=expired)
    to_send.sort(key=lambda one: one.id)
    first, rest = to_send[0], tuple(one.id for one in to_send[1:])
    if first.notice.action is Action.ACKNOWLEDGE:  # the covered one belongs to the one behind it
        covered, rest = (), (*rest, *covered)
    return DeliveryPlan(first, covered, rest, tuple(superseded), expired)


def _carrying(carrier: Delivery, triggers: list[Delivery], newest: Notice) -> Delivery:
    """Return a delivery with its own number and action, and the newest content."""
    reason = carrier.notice.reason
    if triggers and reason != "new":
        reason = triggers[-1].notice.reason
    notice = msgspec.structs.replace(carrier.notice, incident=newest.incident, reason=reason)
    return msgspec.structs.replace(carrier, notice=notice)


log = logging.getLogger(__name__)

FIRST_RETRY, LONGEST_RETRY = 2.0, LONGEST_PAUSE
"""Seconds between two tries of a delivery: a page must not wait for a receiver that is back longer than its channel
does, and there may be no later one that finds it."""
GRACE_SECONDS = 5.0
"""How long requests in flight have at the end."""
IDLE_SECONDS = 3.0
"""Longest pause between two reads of the journal, whose writer wakes the worker anyway."""
RESOLVE_EXPIRY = 7 * 86_400.0
"""Seconds: a resolve is sent for long, else the incident stays open at the receiver."""

CLAIM_SECONDS = 0.5
"""Seconds until a delivery is claimed again that could not be."""
UNSETTLED_SECONDS = 10.0
"""Seconds until a delivery is sent again whose outcome could not be stored."""

Call = Callable[..., Awaitable[Any]]
"""Calls a function that writes to disk without blocking the loop."""


class ChannelWorker:
    """Sends the deliveries of one channel."""

    def __init__(
        self,
        name: str,
        channel: Channel,
        journal: Journal,
        send: Callable[[str, Channel, Notice], Awaitable[Answer]],
        *,
        expiry: Mapping[Severity, float],
        first_due: Callable[[str, Delivery], int],
        clock: DeliveryClock,
        call: Call,
        dice: random.Random,
        aside: Isolation,
        gate: DeliveryGate | None = None,
    ) -> None:
        """`aside`: notes where kilowatch itself raises. `gate`: where several processes have the same
        deliveries."""
        self._aside = aside
        self._gate = gate
        self._fault: Exception | None = None
        """The last exception of a turn."""
        self._unsettled: dict[str, float] = {}
        """By incident, when it may be sent again: its last outcome could not be stored."""
        self.name = name
        self.channel = channel
        self.stats = ChannelStats()
        self._journal = journal
        self._send_notice = send
        self._expiry = expiry
        self._first_due = first_due
        self._clock = clock
        self._call = call
        self._retry = Backoff(FIRST_RETRY, LONGEST_RETRY, dice=dice)
        self._limiter = RateLimiter(channel.per_minute, channel.burst, channel.at_once, dice)
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()
        self._started = clock.now()

    def wake(self) -> None:
        """Note that there may be a new delivery."""
        self._woken.set()

    async def run(self) -> None:
        """Send until cancelled. Requests in flight then get a few seconds; deliveries that are not
        sent wait for the next start."""
        try:
            while True:
                self._woken.clear()
                try:
                    self._fault = None
                    pause = await self._turn()
                    if self._fault is None:
                        self._aside.works(self.name)
                    else:
                        pause = min(pause, FAULT_PAUSE)
                except Exception as error:  # noqa: BLE001 - costs this channel one turn
                    self._aside.fail(self.name, error, self._clock.monotonic())
                    pause = FAULT_PAUSE
                await self._clock.wait(self._woken, pause)
        finally:
            await self._drain()

    async def _turn(self) -> float:
        """Start all deliveries that may be sent now, and return how long to wait."""
        for key in [key for key, task in self._in_flight.items() if task.done()]:
            del self._in_flight[key]
        now = self._clock.monotonic()
        self._unsettled = {key: at for key, at in self._unsettled.items() if at > now}
        if not self._unsettled:
            self._aside.works(f"{self.name}/outcomes")
        if self._gate is not None and not self._gate.is_open():
            return IDLE_SECONDS
        while len(self._in_flight) < self._limiter.at_once:
            pause = self._limiter.wait(self._clock.monotonic())
            if pause > 0:
                return min(pause, IDLE_SECONDS)
            found = await self._pick()
            if found is None:
                return self._until_due()
            self._limiter.spend(self._clock.monotonic())
            key = found.send.notice.incident.key
            task = asyncio.create_task(self._send(found.plan, found.send), name=f"send {self.name}")
            self._in_flight[key] = task
            task.add_done_callback(lambda _: self._woken.set())
        return IDLE_SECONDS

    async def _pick(self) -> _Picked | None:
        """Return the most urgent incident that is not in flight; settle what need not be sent."""
        now = self._clock.now()
        for head in self._journal.due(now, len(self._in_flight) + 8, self.name):
            key = head.notice.incident.key
            if key in self._in_flight or self._clock.monotonic() < self._unsettled.get(key, 0.0):
                continue
            try:
                chain = self._journal.chain(self.name, key)
                decided = plan(chain, self._is_old, self._started)
                await self._give_up(decided)
            except Exception as error:  # noqa: BLE001 - costs what is around the next delivery
                self._fault = error
                self._aside.fail(self.name, error, self._clock.monotonic())
                decided = DeliveryPlan(head)
            if decided.send is not None:
                return _Picked(decided, decided.send)
            self._woken.set()  # the next turn sees the deliveries behind these
        return None

    def _until_due(self) -> float:
        if self._woken.is_set():
            return 0.0
        due = self._journal.next_due(self.name)
        if due is None:
            return IDLE_SECONDS
        least = 0.5 if self._in_flight else 0.05  # deliveries in flight are still due
        return min(max((due - self._clock.now()) / 1e9, least), IDLE_SECONDS)

    def _is_old(self, delivery: Delivery) -> bool:
        notice = delivery.notice
        limit = self._expiry[notice.incident.severity]
        if notice.action is Action.RESOLVE:
            limit = max(limit, RESOLVE_EXPIRY)
        if self._clock.age(delivery.created) <= limit:
            return False
        # The age of a ticket that waited until Monday counts from its time in working hours.
        return self._clock.age(self._first_due(self.name, delivery)) > limit

    async def _give_up(self, decided: DeliveryPlan) -> None:
        settle = self._journal.settle
        await self._mark((*decided.expired, *decided.superseded))
        for number in decided.expired:
            self.stats.add_expiry()
            error = self.stats.last_error
            await self._call(settle, [number], DeliveryOutcome.EXPIRED, error)
        if decided.superseded:
            self.stats.superseded += len(decided.superseded)
            await self._call(settle, decided.superseded, DeliveryOutcome.SUPERSEDED)

    async def _send(self, decided: DeliveryPlan, delivery: Delivery) -> None:
        limit = 2 * self.channel.timeout_seconds + 5
        claimed = ClaimAnswer.SEND
        if self._gate is not None:
            claimed = await self._gate.claim(delivery.notice, self.name)
        if claimed is ClaimAnswer.WAIT:
            self._unsettled[delivery.notice.incident.key] = self._clock.monotonic() + CLAIM_SECONDS
            return
        if claimed is ClaimAnswer.DONE:
            numbers = [delivery.id, *decided.covered]
            await self._call(self._journal.settle, numbers, DeliveryOutcome.DELIVERED)
            return
        if claimed is ClaimAnswer.AGAIN:
            delivery = _sent_again(delivery)
        try:
            async with asyncio.timeout(limit):
                answer = await self._send_notice(self.name, self.channel, delivery.notice)
            self._aside.works(f"{self.name}/messages")
        except TimeoutError:
            answer = Later(f"no answer within {limit:g} s")
        except Exception as error:
            log.exception("channel %s: a message could not be built", self.name)
            self._aside.fail(f"{self.name}/messages", error, self._clock.monotonic())
            answer = Later(f"{type(error).__name__}: {clean(str(error), 200)}")
        # An arrival must be stored even if the service is stopped now.
        key = delivery.notice.incident.key
        try:
            await asyncio.shield(self._settled(decided, delivery, answer))
            self._unsettled.pop(key, None)
            self._aside.works(f"{self.name}/outcomes")
        except Exception as error:  # noqa: BLE001 - it is sent again, but not at once
            now = self._clock.monotonic()
            self._unsettled[key] = now + UNSETTLED_SECONDS
            self._aside.fail(f"{self.name}/outcomes", error, now)

    async def _settled(self, decided: DeliveryPlan, delivery: Delivery, answer: Answer) -> None:
        names = self._names((delivery.id, *decided.covered))
        await self._settle(decided, delivery, answer)
        if not isinstance(answer, Later) and self._gate is not None:
            for name in names:
                await self._gate.mark(name, self.name)

    async def _mark(self, numbers: Sequence[int]) -> None:
        """Mark deliveries that are not sent, so that no other process sends them."""
        if self._gate is not None:
            for name in self._names(numbers):
                await self._gate.mark(name, self.name)

    def _names(self, numbers: Sequence[int]) -> list[str]:
        """Return the ids of the notices of deliveries."""
        if self._gate is None:
            return []
        return [one.notice.id for one in self._journal.waiting() if one.id in numbers and one.channel == self.name]

    async def _settle(self, decided: DeliveryPlan, delivery: Delivery, answer: Answer) -> None:
        settle, stats = self._journal.settle, self.stats
        match answer:
            case Delivered():
                self._limiter.succeeded()
                if stats.add_delivered(self._clock.wall()):
                    log.info("channel %s accepts messages again", self.name)
                await self._call(settle, [delivery.id], DeliveryOutcome.DELIVERED, "", decided.covered)
            case Later(reason, after):
                self._limiter.failed(self._clock.monotonic(), after)
                if stats.add_failure(reason, self._clock.monotonic()):
                    log.warning("channel %s fails: %s; it is retried", self.name, reason)
                pause = max(self._retry.after(delivery.tries + 1), after or 0.0)
                due = self._clock.now() + round(pause * 1e9)
                others = (*decided.covered, *decided.rest)
                await self._call(self._journal.retry, delivery.id, due, reason, others)
            case Refused(reason):
                if stats.add_refusal(reason):
                    log.error("channel %s refuses %s: %s", self.name, delivery.notice.incident.key, reason)
                await self._call(settle, [delivery.id], DeliveryOutcome.REFUSED, reason, decided.covered)

    async def _drain(self) -> None:
        tasks = list(self._in_flight.values())
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _sent_again(delivery: Delivery) -> Delivery:
    """Return a delivery whose title says that it may have come before."""
    incident = delivery.notice.incident
    title = f"{incident.title} (again, after a take-over)"
    notice = msgspec.structs.replace(delivery.notice, incident=msgspec.structs.replace(incident, title=title))
    return msgspec.structs.replace(delivery, notice=notice)


@dataclass(frozen=True, slots=True)
class _Picked:
    """The next delivery, with the plan that it is from."""

    plan: DeliveryPlan
    send: Delivery
