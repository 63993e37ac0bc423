"""Claims of deliveries: each is claimed before it is sent and marked after, by compare-and-set.

Every candidate has the same deliveries waiting, from the same log, and the leader alone sends. Between
the sending and the mark there is one request: who takes over sends again what was claimed and not marked,
with the same dedup key. So nothing is lost, and twice is only what was under way at a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum

import msgspec

from aggregator.cluster.port import Bucket, Coordination, CoordinationError
from aggregator.site.leadership import Leadership
from aggregator.site.unfenced import PREFIX
from alerts.delivery.gate import ClaimAnswer

log = logging.getLogger(__name__)

MARGIN_SECONDS = 1.0
"""Seconds that the lease must last when a request begins."""


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
        self.unfenced: Callable[[], bool] = lambda: False
        """Whether pages go out without claims: NATS has no quorum."""
        self.speaks_unfenced: Callable[[], bool] = lambda: False
        """Whether those of the log do so too that wait here: this member led last."""
        self._perhaps_sent: set[str] = set()
        """Keys of deliveries that waited here when NATS had lost what is claimed and sent."""
        self.again = 0
        """Deliveries that were sent though a leader before may have done so."""

    def is_open(self) -> bool:
        """Return whether this member leads, or nobody can."""
        return self._leads() or self.unfenced()

    def _leads(self) -> bool:
        return self._leadership.leads(MARGIN_SECONDS)

    async def claim(self, notice: str, channel: str) -> ClaimAnswer:
        """Claim a delivery before it is sent."""
        if notice.startswith(PREFIX):
            return ClaimAnswer.SEND
        if self.speaks_unfenced():
            done = claim_key(notice, channel) in self._unmarked
            return ClaimAnswer.DONE if done else ClaimAnswer.AGAIN
        try:
            return await self._claim(claim_key(notice, channel))
        except CoordinationError as error:
            log.warning("%s to %s waits: %s", notice, channel, error)
            return ClaimAnswer.WAIT

    def note_lost(self, notice: str, channel: str) -> None:
        """Note that a delivery may have been sent by a member whose claim is lost."""
        self._perhaps_sent.add(claim_key(notice, channel))

    async def mark(self, notice: str, channel: str) -> None:
        """Mark a delivery as settled."""
        self._perhaps_sent.discard(claim_key(notice, channel))
        if notice.startswith(PREFIX):
            return
        self._unmarked[claim_key(notice, channel)] = None
        await self.mark_settled()

    async def mark_settled(self) -> None:
        """Mark what could not be marked before."""
        for key in list(self._unmarked):
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

    async def _claim(self, key: str) -> ClaimAnswer:
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
        if claim is None or claim.epoch < epoch:
            value = msgspec.json.encode(Claim(epoch, ClaimState.CLAIMED))
            revision = 0 if entry is None else entry.revision
            if (
                await self._coordination.compare_and_set(Bucket.CLAIMS, key, value, revision)
                is None
            ):
                return ClaimAnswer.WAIT  # somebody wrote meanwhile: look again next time
        if not self._leads():
            return ClaimAnswer.WAIT
        again = (claim is not None and claim.epoch < epoch) or key in self._perhaps_sent
        self.again += again
        return ClaimAnswer.AGAIN if again else ClaimAnswer.SEND

    async def _mark(self, key: str) -> None:
        value = msgspec.json.encode(Claim(self._leadership.epoch, ClaimState.SENT))
        for _ in range(3):
            entry = await self._coordination.read(Bucket.CLAIMS, key)
            revision = 0 if entry is None else entry.revision
            if await self._coordination.compare_and_set(Bucket.CLAIMS, key, value, revision):
                return


def claim_key(notice: str, channel: str) -> str:
    """Return the key of a delivery's claim: ids have letters that keys may not have."""
    return f"n-{_letters(notice)}.{_letters(channel)}"


def _letters(text: str) -> str:
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter == "-") else f"={ord(letter):x}="
        for letter in text
    )


def _claim(value: bytes) -> Claim:
    return msgspec.json.decode(value, type=Claim)
