"""Sends all alerts to Alertmanagers: every change at once, and everything again each minute.

As Prometheus does it: a firing alert is sent again each minute with an end four minutes ahead, so
that it ends by itself when the aggregator does; the end of an alert is sent again for 15 minutes,
because an Alertmanager that was restarted no longer knows that it fired.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Mapping

from alerts.delivery.alertmanager_state import AlertmanagerState
from alerts.delivery.channel_stats import ChannelStats
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.rate_limiter import RateLimiter
from alerts.message.page import Links
from alerts.notifiers.alertmanager import Alertmanager
from alerts.notifiers.http_sender import HttpSender
from alerts.notifiers.result import Delivered, Later, Refused
from api.alerts import Alert
from telemetry.runtime.isolation import FIRST_RETRY, Isolation

log = logging.getLogger(__name__)

_BAD_REQUEST = 400


class AlertmanagerFeed:
    """The alerts of one channel, and a sender for each of its Alertmanagers."""

    def __init__(
        self,
        name: str,
        channel: Alertmanager,
        links: Links,
        clock: DeliveryClock,
        stored: bytes | None,
        aside: Isolation,
    ) -> None:
        """`aside`: notes where kilowatch itself raises."""
        self.aside = aside
        self.name = name
        self.channel = channel
        self.state = AlertmanagerState(links, channel.keep_resolved_seconds, stored)
        self._clock = clock
        self._senders = [AlertSender(self, url, clock) for url in channel.urls]

    @property
    def stats(self) -> list[ChannelStats]:
        """Counters of each Alertmanager."""
        return [sender.stats for sender in self._senders]

    @property
    def waiting(self) -> int:
        """Number of alerts that began or ended and that some Alertmanager has not accepted yet."""
        return max((sender.waiting() for sender in self._senders), default=0)

    def update(self, alerts: Mapping[str, Alert]) -> None:
        """Set all alerts that are notified now, by key."""
        if self.state.update(alerts, self._clock.now()):
            for sender in self._senders:
                sender.changed.set()

    def works(self, http: HttpSender, dice: random.Random) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the work of each Alertmanager's sender, by a name for its task."""
        return {
            f"feed {self.name} {number}": functools.partial(sender.run, http, dice)
            for number, sender in enumerate(self._senders)
        }


class AlertSender:
    """Sends the alerts of a feed to one Alertmanager."""

    def __init__(self, feed: AlertmanagerFeed, url: str, clock: DeliveryClock) -> None:
        self.url = url
        self.stats = ChannelStats()
        self.changed = asyncio.Event()
        self._feed = feed
        self._clock = clock
        self._sent: dict[str, tuple[int, float]] = {}
        """By fingerprint: the version that it has accepted, and when (monotonic)."""
        self._bad: dict[str, int] = {}
        """By fingerprint: the version that it refuses."""

    def waiting(self) -> int:
        """Return the number of alerts whose newest version it has not accepted."""
        entries = self._feed.state.entries
        return sum(self._sent.get(mark, (-1,))[0] != one.version for mark, one in entries.items())

    async def run(self, http: HttpSender, dice: random.Random) -> None:
        """Send changes, and everything again each minute, until cancelled."""
        channel, clock = self._feed.channel, self._clock
        limiter = RateLimiter(channel.per_minute, channel.burst, 1, dice)
        while True:
            self.changed.clear()
            with self._feed.aside.attempt(self.url):  # costs this receiver one turn
                now = clock.monotonic()
                marks = self._due(now)
                pause = limiter.wait(now)
                if not marks:
                    await clock.wait(self.changed, self._until_next(now))
                elif pause > 0:
                    await clock.wait(asyncio.Event(), pause)
                else:
                    limiter.spend(now)
                    await self._post(marks[: channel.batch], http, limiter)
            if self.url in self._feed.aside:
                await clock.wait(asyncio.Event(), FIRST_RETRY)

    def _due(self, now: float) -> list[str]:
        """Return the fingerprints to send: changes, then what is due again."""
        state, resend = self._feed.state, self._feed.channel.resend_seconds
        state.forget(self._clock.now())
        for mark in [mark for mark in self._sent if mark not in state.entries]:
            del self._sent[mark]
        changed, again = [], []
        for mark, entry in state.entries.items():
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

    async def _post(self, marks: list[str], http: HttpSender, limiter: RateLimiter) -> None:
        state, channel = self._feed.state, self._feed.channel
        versions = {mark: state.entries[mark].version for mark in marks}
        bodies = state.bodies(marks, self._clock.wall(), round(4e9 * channel.resend_seconds))
        answer = await channel.post(self.url, bodies, http)
        now = self._clock.monotonic()
        match answer:
            case Delivered():
                limiter.succeeded()
                if self.stats.trouble_since is not None:
                    log.info("channel %s accepts alerts again", self._feed.name)
                    self._sent.clear()  # it may have been restarted, and have lost them
                self.stats.add_delivered(self._clock.wall(), len(marks))
            case Refused(reason, status) if status == _BAD_REQUEST:
                limiter.succeeded()
                if len(marks) > 1:  # it has accepted the valid ones; halves find the others
                    middle = len(marks) // 2
                    await self._post(_there(marks[:middle], state), http, limiter)
                    await self._post(_there(marks[middle:], state), http, limiter)
                    return
                self._bad[marks[0]] = versions[marks[0]]
                if self.stats.add_refusal(reason):
                    log.error("channel %s refuses an alert: %s", self._feed.name, reason)
            case Refused(reason) | Later(reason):
                limiter.failed(now, answer.after if isinstance(answer, Later) else None)
                if self.stats.add_failure(reason, now):
                    log.warning("channel %s fails: %s; it is retried", self._feed.name, reason)
                return
        self._sent.update((mark, (versions[mark], now)) for mark in marks)


def _there(marks: list[str], state: AlertmanagerState) -> list[str]:
    return [mark for mark in marks if mark in state.entries]
