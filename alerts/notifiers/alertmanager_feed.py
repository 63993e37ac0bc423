"""What an Alertmanager is told: all that is true now, each minute and at every change.

The rules are Prometheus' own: an alert that fires is sent again each minute with an end four minutes
ahead, so that it ends by itself when we do; the end of an alert is sent again for 15 minutes,
because an Alertmanager that was restarted has forgotten that it ever fired.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping

from alerts.delivery.channel_stats import ChannelStats
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.rate_limiter import RateLimiter
from alerts.message.page import Links
from alerts.notifiers.alertmanager import Alertmanager
from alerts.notifiers.alertmanager_state import AlertmanagerState
from alerts.notifiers.http_sender import HttpSender
from alerts.notifiers.result import Delivered, Later, Refused
from api.alerts import Alert

log = logging.getLogger(__name__)

_BAD_REQUEST = 400


class AlertmanagerFeed:
    """One channel: its alerts, and one sender to each of its Alertmanagers."""

    def __init__(
        self,
        name: str,
        channel: Alertmanager,
        links: Links,
        clock: DeliveryClock,
        state: bytes | None,
    ) -> None:
        self.name = name
        self.channel = channel
        self.roll = AlertmanagerState(links, channel.keep_resolved_seconds, state)
        self._clock = clock
        self._senders = [AlertSender(self, url, clock) for url in channel.urls]

    @property
    def tallies(self) -> list[ChannelStats]:
        """One of each Alertmanager."""
        return [sender.tally for sender in self._senders]

    @property
    def waiting(self) -> int:
        """Alerts that began or ended and that not all Alertmanagers have heard of."""
        return max((sender.waiting() for sender in self._senders), default=0)

    def take(self, alerts: Mapping[str, Alert]) -> None:
        """Take all alerts that are told now, by key."""
        if self.roll.take(alerts, self._clock.now()):
            for sender in self._senders:
                sender.changed.set()

    async def run(self, door: HttpSender, dice: random.Random) -> None:
        """Keep all of them informed."""
        async with asyncio.TaskGroup() as group:
            for sender in self._senders:
                group.create_task(sender.run(door, dice), name=f"feed {sender.url}")


class AlertSender:
    """Keeps one Alertmanager informed."""

    def __init__(self, feed: AlertmanagerFeed, url: str, clock: DeliveryClock) -> None:
        self.url = url
        self.tally = ChannelStats()
        self.changed = asyncio.Event()
        self._feed = feed
        self._clock = clock
        self._sent: dict[str, tuple[int, float]] = {}
        """By fingerprint: which version it has, and since when (monotonic)."""
        self._bad: dict[str, int] = {}
        """Versions that it refuses."""

    def waiting(self) -> int:
        """How many it has not heard of."""
        entries = self._feed.roll.entries
        return sum(self._sent.get(mark, (-1,))[0] != one.version for mark, one in entries.items())

    async def run(self, door: HttpSender, dice: random.Random) -> None:
        """Send what has changed, and all of it again each minute."""
        channel, clock = self._feed.channel, self._clock
        pace = RateLimiter(channel.per_minute, channel.burst, 1, dice)
        while True:
            self.changed.clear()
            now = clock.monotonic()
            marks = self._due(now)
            pause = pace.wait(now)
            if not marks:
                await clock.wait(self.changed, self._until_next(now))
            elif pause > 0:
                await clock.wait(asyncio.Event(), pause)
            else:
                pace.take(now)
                await self._post(marks[: channel.batch], door, pace)

    def _due(self, now: float) -> list[str]:
        """Fingerprints to send: what has changed, then what is to be sent again."""
        roll, resend = self._feed.roll, self._feed.channel.resend_seconds
        roll.forget(self._clock.now())
        for mark in [mark for mark in self._sent if mark not in roll.entries]:
            del self._sent[mark]
        changed, again = [], []
        for mark, entry in roll.entries.items():
            version, at = self._sent.get(mark, (-1, 0.0))
            if version != entry.version:
                changed.append(mark)
            elif now - at >= resend and self._bad.get(mark) != version:
                again.append(mark)
        return changed + again

    def _until_next(self, now: float) -> float:
        oldest = min((at for _, at in self._sent.values()), default=now)
        resend = self._feed.channel.resend_seconds
        return min(max(0.05, oldest + resend - now), resend)

    async def _post(self, marks: list[str], door: HttpSender, pace: RateLimiter) -> None:
        roll, channel = self._feed.roll, self._feed.channel
        versions = {mark: roll.entries[mark].version for mark in marks}
        bodies = roll.bodies(marks, self._clock.wall(), round(4e9 * channel.resend_seconds))
        answer = await channel.post(self.url, bodies, door)
        now = self._clock.monotonic()
        match answer:
            case Delivered():
                pace.succeeded()
                if self.tally.trouble_since is not None:
                    log.info("channel %s takes alerts again", self._feed.name)
                    self._sent.clear()  # it may have been restarted, and know nothing any more
                self.tally.took(self._clock.wall(), len(marks))
            case Refused(reason, status) if status == _BAD_REQUEST:
                pace.succeeded()
                if len(marks) > 1:  # it has taken what is good of them; halves find what is not
                    middle = len(marks) // 2
                    await self._post(_there(marks[:middle], roll), door, pace)
                    await self._post(_there(marks[middle:], roll), door, pace)
                    return
                self._bad[marks[0]] = versions[marks[0]]
                if self.tally.refuses(reason):
                    log.error("channel %s refuses an alert: %s", self._feed.name, reason)
            case Refused(reason) | Later(reason):
                pace.failed(now, answer.after if isinstance(answer, Later) else None)
                if self.tally.fails(reason, now):
                    log.warning("channel %s fails: %s; it is tried again", self._feed.name, reason)
                return
        self._sent.update((mark, (versions[mark], now)) for mark in marks)


def _there(marks: list[str], roll: AlertmanagerState) -> list[str]:
    return [mark for mark in marks if mark in roll.entries]
