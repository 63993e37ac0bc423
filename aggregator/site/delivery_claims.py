"""Claims of deliveries: each is claimed before it is sent and marked after, by compare-and-set.

Every candidate has the same deliveries waiting, from the same log, and the leader alone sends. Between
the sending and the mark there is one request: who takes over sends again what was claimed and not marked,
with the same dedup key. So nothing is lost, and twice is only what was under way at a crash.

Where NATS has lost the claims, members mark again what their journals have as settled, and nothing is claimed until
they had the time to. A delivery of before that no member has settled may have been under way: it is sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from enum import StrEnum

import msgspec

from aggregator.cluster.port import LEASE_SECONDS, Bucket, Coordination, CoordinationError
from aggregator.site.leadership import Leadership
from aggregator.site.unfenced import PREFIX
from alerts.delivery.gate import ClaimAnswer
from alerts.notice import Notice
from telemetry.text.decoders import of_json

log = logging.getLogger(__name__)

MARGIN_SECONDS = 1.0
"""Seconds that the lease must last when a request begins."""
RESTORE_SECONDS = LEASE_SECONDS
"""Seconds for which nothing is claimed in a bucket that is new to this member: the others mark in it what they have
settled."""


class ClaimState(StrEnum):
    """How far a delivery is."""

    CLAIMED = "claimed"
    SENT = "sent"


class Claim(msgspec.Struct, frozen=True):
    """The entry of a delivery."""

    epoch: int
    """Epoch of the leader that claimed it."""
    state: ClaimState


class DeliveryClaims:
    """The gate of a member's outbox: open while it leads."""

    def __init__(self, coordination: Coordination, leadership: Leadership) -> None:
        self._coordination, self._leadership = coordination, leadership
        self._unmarked: dict[str, None] = {}
        """Keys of deliveries that are settled here and could not be marked yet."""
        self._born, self._restored_at = 0, 0.0
        """When the bucket of claims was created, and until which monotonic seconds others mark in it anew."""
        self._lost_until = 0
        """Time of the newest notice whose claim may be lost though the bucket was not made anew."""
        self.settled_before: Callable[[int], Awaitable[list[tuple[str, str]]]] = _nothing
        """Returns notice and channel of deliveries of before a time that this member has settled."""
        self.unfenced: Callable[[], bool] = lambda: False
        """Whether pages go out without claims: NATS has no quorum."""
        self.speaks_unfenced: Callable[[], bool] = lambda: False
        """Whether those of the log do so too that wait here: this member led last."""
        self.again = 0
        """Deliveries that were sent though a leader before may have done so."""

    def is_open(self) -> bool:
        """Return whether this member leads, or nobody can."""
        return self._leads() or self.unfenced()

    def _leads(self) -> bool:
        return self._leadership.leads(MARGIN_SECONDS)

    async def claim(self, notice: Notice, channel: str) -> ClaimAnswer:
        """Claim a delivery before it is sent."""
        if notice.id.startswith(PREFIX):
            return ClaimAnswer.SEND
        key = claim_key(notice.id, channel)
        if self.speaks_unfenced():
            return ClaimAnswer.DONE if key in self._unmarked else ClaimAnswer.AGAIN
        try:
            return await self._claim(key, notice.at)
        except CoordinationError as error:
            log.warning("%s to %s waits: %s", notice.id, channel, error)
            return ClaimAnswer.WAIT

    def note_lost(self, at: int) -> None:
        """Note that claims of notices up to a time may be lost."""
        self._lost_until = max(self._lost_until, at)

    async def restore(self) -> None:
        """Mark again what is settled here where the bucket of claims is new. Raises `CoordinationError`."""
        born = await self._coordination.born(Bucket.CLAIMS)
        if born == self._born:
            return
        self._born, self._restored_at = born, self._leadership.clock() + RESTORE_SECONDS
        for notice, channel in await self.settled_before(born):
            self._unmarked[claim_key(notice, channel)] = None

    async def mark(self, notice: str, channel: str) -> None:
        """Mark a delivery as settled."""
        if notice.startswith(PREFIX):
            return
        await self._mark_all([claim_key(notice, channel)])

    async def mark_settled(self) -> None:
        """Mark what could not be marked before."""
        await self._mark_all(list(self._unmarked))

    async def _mark_all(self, keys: Collection[str]) -> None:
        self._unmarked.update(dict.fromkeys(keys))
        for key in keys:
            try:
                await self._mark(key)
            except CoordinationError as error:
                log.warning("%s is marked later: %s", key, error)
                return
            self._unmarked.pop(key, None)

    async def is_sent(self, notice: str, channel: str) -> bool:
        """Return whether a delivery is marked. Raises `CoordinationError`."""
        entry = await self._coordination.read(Bucket.CLAIMS, claim_key(notice, channel))
        return entry is not None and _claim(entry.value).state is ClaimState.SENT

    async def _claim(self, key: str, at: int) -> ClaimAnswer:
        if not self._leads():
            return ClaimAnswer.WAIT
        if key in self._unmarked:
            return ClaimAnswer.DONE
        epoch = self._leadership.epoch
        entry = await self._coordination.read(Bucket.CLAIMS, key)
        claim = None if entry is None else _claim(entry.value)
        if claim is not None and claim.state is ClaimState.SENT:
            return ClaimAnswer.DONE
        if claim is not None and claim.epoch > epoch:
            return ClaimAnswer.WAIT
        if claim is None:
            await self.restore()
            if self._leadership.clock() < self._restored_at:
                return ClaimAnswer.WAIT
        if claim is None or claim.epoch < epoch:
            value = msgspec.json.encode(Claim(epoch, ClaimState.CLAIMED))
            revision = 0 if entry is None else entry.revision
            if await self._coordination.compare_and_set(Bucket.CLAIMS, key, value, revision) is None:
                return ClaimAnswer.WAIT  # somebody wrote meanwhile: look again next time
        await self.restore()  # after the claim: a bucket that is lost later does not matter to it
        if not self._leads():
            return ClaimAnswer.WAIT
        taken_over = claim is not None and claim.epoch < epoch
        again = taken_over or at <= max(self._born, self._lost_until)
        self.again += again
        return ClaimAnswer.AGAIN if again else ClaimAnswer.SEND

    async def _mark(self, key: str) -> None:
        value = msgspec.json.encode(Claim(self._leadership.epoch, ClaimState.SENT))
        for _ in range(3):
            entry = await self._coordination.read(Bucket.CLAIMS, key)
            if entry is not None and _claim(entry.value).state is ClaimState.SENT:
                return
            revision = 0 if entry is None else entry.revision
            if await self._coordination.compare_and_set(Bucket.CLAIMS, key, value, revision):
                return


async def _nothing(_before: int) -> list[tuple[str, str]]:
    """Return no deliveries."""
    return []


def claim_key(notice: str, channel: str) -> str:
    """Return the key of a delivery's claim: ids have letters that keys may not have."""
    return f"n-{_letters(notice)}.{_letters(channel)}"


def _letters(text: str) -> str:
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter == "-") else f"={ord(letter):x}=" for letter in text
    )


def _claim(value: bytes) -> Claim:
    return of_json(Claim).decode(value)
