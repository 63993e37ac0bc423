"""The outbox: brings what the journal holds to the channels, however long a receiver is away.

At least once, in the order of each incident, with one dedup key from its first page to its end. A
delivery is written down before it is sent and settled after; whoever dies in between sends it again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from alerts.config import HOUR, AlertsConfig
from alerts.delivery.channel_stats import ChannelStats
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.routing import Router
from alerts.delivery.worker import Call, ChannelWorker, DeliveryJournal
from alerts.message.page import Links, page_of
from alerts.notice import Delivery, Notice
from alerts.notifiers.alertmanager import Alertmanager
from alerts.notifiers.alertmanager_feed import AlertmanagerFeed
from alerts.notifiers.channel import Channel, Message
from alerts.notifiers.http_sender import HttpSender, doors
from alerts.notifiers.result import Answer, Later
from api.alerts import Action, Alert, AlertState, Incident, Severity, Subject
from telemetry.errors import ConfigError, did_you_mean

# Telling one channel of one notice, and the message that says it is a test.


async def tell(
    name: str, channel: Channel, notice: Notice, links: Links, now: int, door: HttpSender
) -> Answer:
    """Tell one channel of one notice, once."""
    message = Message(name, notice, page_of(notice, links, now), links, now)
    return await channel.send(message, door)


async def deliver_test(
    config: AlertsConfig,
    channel: str,
    *,
    cluster: str = "",
    action: Action = Action.TRIGGER,
    version: str = "",
) -> Answer:
    """Send a message that says it is a test to one channel, past routes and outbox; with
    `Action.RESOLVE` end it. Raises `ConfigError` for a channel that there is not."""
    channels = config.notifiers()
    if channel not in channels:
        hint = did_you_mean(channel, channels) or f"Channels: {', '.join(channels) or 'none'}."
        raise ConfigError("alerts.channels", f"there is no channel {channel!r}", hint)
    channels[channel].open(f"alerts.channels.{channel}")
    now = DeliveryClock().wall()
    async with doors(config.proxy, version) as door:
        notice = trial(channel, cluster, action, now)
        return await tell(channel, channels[channel], notice, config.links(cluster), now, door)


def trial(channel: str, cluster: str, action: Action, now: int) -> Notice:
    """Return a notice that says it is a test; all tests of a channel are one incident."""
    over = action is Action.RESOLVE
    title = f"Test of the channel {channel}: kilowatch can reach you, and nothing is wrong"
    alert = Alert(
        key=f"test/channel/{channel}",
        rule="kilowatch_test",
        state=AlertState.RESOLVED if over else AlertState.FIRING,
        severity=Severity.INFO,
        node="",
        subject=Subject.NODE,
        name=channel,
        labels={"cluster": cluster} if cluster else {},
        since=now,
        changed=now,
        summary=title,
        description="Nobody need do anything.",
    )
    incident = Incident(
        key=f"kilowatch-test/{cluster}/{channel}",
        group={"rule": alert.rule},
        severity=Severity.INFO,
        title=title,
        began=now,
        changed=now,
        ended=now if over else None,
        alerts=(alert,),
        firing=0 if over else 1,
        total=1,
    )
    return Notice(id=f"test-{now}", action=action, incident=incident, at=now, reason="test")


__all__ = ["ChannelHealth", "Outbox", "deliver_test"]

_KEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """How one channel does, counted since the start."""

    name: str
    kind: str
    delivered: int
    failed: int
    """Tries that are repeated."""
    refused: int
    expired: int
    superseded: int
    waiting: int
    oldest_seconds: float | None
    """Age of the oldest that waits; None when none does."""
    failing: str
    """Why it fails; "" while it does not."""
    last_error: str
    last_delivered: int | None
    """ns since 1970."""


class Outbox:
    """All channels of the settings; `run` it once."""

    def __init__(
        self,
        config: AlertsConfig,
        journal: DeliveryJournal,
        *,
        cluster: str = "",
        version: str = "",
        call: Call = asyncio.to_thread,
        clock: DeliveryClock | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self._config = config
        self._journal = journal
        self._links = config.links(cluster)
        self._version = version
        self._call = call
        self._clock = clock or DeliveryClock()
        self._dice = dice or random.Random()  # noqa: S311 - spreads tries, guards nothing
        self._door: HttpSender | None = None
        self._router = Router(config)
        self._ways: dict[str, tuple[Alert, list[str]]] = {}
        """The Alertmanagers of each alert that is fed, by its key."""
        self._couriers: dict[str, ChannelWorker] = {}
        self._feeds: dict[str, AlertmanagerFeed] = {}
        for name, channel in config.notifiers().items():
            self._add(name, channel)

    async def run(self) -> None:
        """Send until cancelled. What is under way then gets a few seconds; the rest stays waiting."""
        async with doors(self._config.proxy, self._version) as door, asyncio.TaskGroup() as group:
            self._door = door
            for courier in self._couriers.values():
                group.create_task(courier.run(), name=f"channel {courier.name}")
            for feed in self._feeds.values():
                group.create_task(feed.run(door, self._dice), name=f"feed {feed.name}")
            if self._feeds:
                group.create_task(self._keep(), name="channel states")

    def wake(self) -> None:
        """Say that deliveries were written down; call it on the loop."""
        for courier in self._couriers.values():
            courier.wake()

    def feed(self, alerts: Iterable[Alert]) -> None:
        """Take all alerts that fire and are told to people, and those that have just resolved: for
        Alertmanagers, which are told of alerts one by one. Call it after each turn of the rules."""
        if not self._feeds:
            return
        told: dict[str, dict[str, Alert]] = {name: {} for name in self._feeds}
        ways: dict[str, tuple[Alert, list[str]]] = {}
        for alert in alerts:
            known = self._ways.get(alert.key)
            same = known is not None and known[0].labels == alert.labels
            if known is None or not same or known[0].severity is not alert.severity:
                known = (alert, self._router.managers_of(alert))
            ways[alert.key] = known
            for name in known[1]:
                told[name][alert.key] = alert
        self._ways = ways
        for name, feed in self._feeds.items():
            feed.take(told[name])

    def health(self) -> list[ChannelHealth]:
        """Return how each channel does."""
        now = self._clock.monotonic()
        backlog = self._journal.backlog()
        found = []
        for name, courier in self._couriers.items():
            waiting, oldest = backlog.get(name, (0, None))
            age = None if oldest is None else max(0.0, self._clock.age(oldest))
            found.append(_health(name, courier.channel, [courier.tally], now, waiting, age))
        for name, feed in self._feeds.items():
            found.append(_health(name, feed.channel, feed.tallies, now, feed.waiting, None))
        return found

    def _add(self, name: str, channel: Channel) -> None:
        if isinstance(channel, Alertmanager):
            state = self._journal.channel_state(name)
            self._feeds[name] = AlertmanagerFeed(name, channel, self._links, self._clock, state)
            return
        config = self._config
        self._couriers[name] = ChannelWorker(
            name,
            channel,
            self._journal,
            self._tell,
            expiry={
                Severity.PAGE: config.page_expiry_hours * HOUR,
                Severity.TICKET: config.ticket_expiry_hours * HOUR,
                Severity.INFO: config.ticket_expiry_hours * HOUR,
            },
            first_due=self._first_due,
            clock=self._clock,
            call=self._call,
            dice=self._dice,
        )

    def _first_due(self, channel: str, delivery: Delivery) -> int:
        due = self._router.route(delivery.notice, delivery.created, (channel,))
        return due.get(channel, delivery.created)

    async def _tell(self, name: str, channel: Channel, notice: Notice) -> Answer:
        if self._door is None:
            return Later("the outbox is not running")
        return await tell(name, channel, notice, self._links, self._clock.wall(), self._door)

    async def _keep(self) -> None:
        """Write down what feeds must know after a restart."""
        while True:
            for name, feed in self._feeds.items():
                if feed.roll.unsaved:
                    state = feed.roll.state()
                    await self._call(self._journal.keep_channel_state, name, state)
            await self._clock.wait(asyncio.Event(), _KEEP_SECONDS)


def _health(
    name: str,
    channel: Channel,
    tallies: Sequence[ChannelStats],
    now: float,
    waiting: int,
    oldest: float | None,
) -> ChannelHealth:
    told = [one.last_delivered for one in tallies if one.last_delivered is not None]
    return ChannelHealth(
        name=name,
        kind=channel.kind,
        delivered=sum(one.delivered for one in tallies),
        failed=sum(one.failed for one in tallies),
        refused=sum(one.refused for one in tallies),
        expired=sum(one.expired for one in tallies),
        superseded=sum(one.superseded for one in tallies),
        waiting=waiting,
        oldest_seconds=oldest,
        failing=next(filter(None, (one.failing(now) for one in tallies)), ""),
        last_error=next((one.last_error for one in tallies if one.last_error), ""),
        last_delivered=max(told, default=None),
    )
