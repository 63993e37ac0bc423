"""The outbox: sends the deliveries of the journal to the channels, and retries them.

At least once, in the order of each incident, with one dedup key from its first page to its end. A
delivery is stored before it is sent and settled after; after a crash in between it is sent again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from alerts.config import HOUR, AlertsConfig
from alerts.delivery.alertmanager_feed import AlertmanagerFeed
from alerts.delivery.channel_stats import ChannelStats
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.gate import DeliveryGate
from alerts.delivery.routing import Router
from alerts.delivery.worker import Call, ChannelWorker
from alerts.journal.journal import Journal
from alerts.message.page import Links, page_of, plain_page
from alerts.message.picture_link import PictureSigner
from alerts.notice import Delivery, Notice
from alerts.notifiers.alertmanager import Alertmanager
from alerts.notifiers.channel import Channel, Message
from alerts.notifiers.http_sender import HttpSender, open_sender
from alerts.notifiers.result import Answer, Later
from api.alerts import Action, Alert, AlertState, ChannelRow, Incident, Severity, Subject
from api.evidence import EvidenceReply
from telemetry.errors import ConfigError, did_you_mean
from telemetry.runtime.isolation import Isolation, PartFault, PartKind
from telemetry.runtime.supervision import Supervisor
from telemetry.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)
_STORE_SECONDS = 1.0

EvidenceOf = Callable[[Notice], Awaitable[EvidenceReply | None]]
"""Returns the evidence of a notice, within a short time; None where it has none."""


async def send(
    name: str,
    channel: Channel,
    notice: Notice,
    links: Links,
    now: int,
    sender: HttpSender,
    fault: Callable[[Exception | None], None] = lambda _: None,
    evidence: EvidenceReply | None = None,
) -> Answer:
    """Send a notice to a channel, once; without the parts of its text that can't be made, or with a plain one.
    `fault` is called with the reason for that, or None."""
    faults: list[Exception] = []

    def left_out(part: str, error: Exception) -> None:
        log.error("channel %s: %s lacks in its text: %s", name, notice.incident.key, part, exc_info=error)
        faults.append(error)

    try:
        page = page_of(notice, links, now, evidence, left_out)
    except Exception as error:
        log.exception("channel %s: the text of %s is plain", name, notice.incident.key)
        faults.append(error)
        page = plain_page(notice)
    fault(faults[0] if faults else None)
    return await channel.send(Message(name, notice, page, links, now, evidence), sender)


async def deliver_test(
    config: AlertsConfig, channel: str, *, cluster: str = "", action: Action = Action.TRIGGER, version: str = ""
) -> Answer:
    """Send a test message to one channel, without routes and outbox; with `Action.RESOLVE` its
    end. Raises `ConfigError` for an unknown channel."""
    channels = config.notifiers()
    if channel not in channels:
        hint = did_you_mean(channel, channels) or f"Channels: {', '.join(channels) or 'none'}."
        raise ConfigError("alerts.channels", f"there is no channel {channel!r}", hint)
    channels[channel].open(f"alerts.channels.{channel}")
    now = DeliveryClock().wall()
    async with open_sender(config.proxy, version) as sender:
        notice = sample_notice(channel, cluster, action, now)
        return await send(channel, channels[channel], notice, config.links(cluster), now, sender)


def sample_notice(channel: str, cluster: str, action: Action, now: int) -> Notice:
    """Return the notice of a test; all tests of a channel are one incident."""
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
        description="No action is needed.",
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


class Outbox:
    """Sends to all channels of the settings; `run` it once."""

    def __init__(
        self,
        config: AlertsConfig,
        journal: Journal,
        *,
        cluster: str = "",
        version: str = "",
        call: Call = asyncio.to_thread,
        clock: DeliveryClock | None = None,
        dice: random.Random | None = None,
        evidence: EvidenceOf | None = None,
        pictures: PictureSigner | None = None,
        gate: DeliveryGate | None = None,
    ) -> None:
        """`gate`: where several processes have the same deliveries."""
        self._evidence = evidence
        self._gate = gate
        self._config = config
        self._journal = journal
        self._links = replace(config.links(cluster), pictures=pictures)
        self._version = version
        self._call = call
        self._clock = clock or DeliveryClock()
        self._dice = dice or random.Random()  # noqa: S311 - spreads retries, no secret
        self._sender: HttpSender | None = None
        self._router = Router(config)
        self._aside = Isolation(PartKind.CHANNEL)
        self._receivers: dict[str, tuple[Alert, list[str]]] = {}
        """By key: an alert, and the Alertmanagers that receive it."""
        self._workers: dict[str, ChannelWorker] = {}
        self._feeds: dict[str, AlertmanagerFeed] = {}
        for name, channel in config.notifiers().items():
            self._add(name, channel)

    async def run(self, supervisor: Supervisor | None = None) -> None:
        """Send until cancelled. Requests in flight then get a few seconds; the rest stays waiting.

        `supervisor` runs the task of each channel.
        """
        supervisor = supervisor or Supervisor()
        async with open_sender(self._config.proxy, self._version) as sender, TaskGroup() as group:
            self._sender = sender
            works: dict[str, Callable[[], Awaitable[None]]] = {
                f"channel {worker.name}": worker.run for worker in self._workers.values()
            }
            for feed in self._feeds.values():
                works |= feed.works(sender, self._dice)
            if self._feeds:
                works["channel states"] = self._store_states
            for name, work in works.items():
                group.create_task(supervisor.run(name, work), name=name)
            await asyncio.Event().wait()  # without a channel too

    def wake(self) -> None:
        """Note that deliveries were stored; called on the loop."""
        now = self._clock.monotonic()
        for name, worker in self._workers.items():
            self._aside.run(f"{name}/wake", now, worker.wake, None, pressing=True)

    def feed(self, alerts: Iterable[Alert]) -> None:
        """Give Alertmanagers all alerts that are notified, and those that have just resolved; called
        after each evaluation of the rules."""
        if not self._feeds:
            return
        firing: dict[str, dict[str, Alert]] = {name: {} for name in self._feeds}
        receivers: dict[str, tuple[Alert, list[str]]] = {}
        for alert in alerts:
            known = self._receivers.get(alert.key)
            same = known is not None and known[0].labels == alert.labels
            if known is None or not same or known[0].severity is not alert.severity:
                known = (alert, self._managers_of(alert))
            receivers[alert.key] = known
            for name in known[1]:
                firing[name][alert.key] = alert
        self._receivers = receivers
        for name, feed in self._feeds.items():
            self._aside.run(name, self._clock.monotonic(), partial(feed.update, firing[name]), None)

    def faults(self) -> Iterator[PartFault]:
        """Yield the channels on which kilowatch itself raises, or has raised since the last call."""
        yield from self._aside.faults()
        yield from self._router.aside.faults()

    def _managers_of(self, alert: Alert) -> list[str]:
        """Return the Alertmanagers that an alert is sent to: all, where that can't be told."""
        find, every = partial(self._router.managers_of, alert), list(self._feeds)
        now = self._clock.monotonic()
        return self._aside.run(f"routes/{alert.rule}", now, find, every, pressing=True)

    def channels(self) -> list[ChannelRow]:
        """Return the state of each channel."""
        now = self._clock.monotonic()
        backlog = self._journal.backlog()
        found = []
        for name, worker in self._workers.items():
            waiting, oldest = backlog.get(name, (0, None))
            age = None if oldest is None else max(0.0, self._clock.age(oldest))
            found.append(_row(name, worker.channel, [worker.stats], now, waiting, age))
        for name, feed in self._feeds.items():
            number = self._aside.run(f"{name}/waiting", now, partial(getattr, feed, "waiting"), 0)
            found.append(_row(name, feed.channel, feed.stats, now, number, None))
        return found

    def _add(self, name: str, channel: Channel) -> None:
        if isinstance(channel, Alertmanager):
            state = self._journal.channel_state(name)
            self._feeds[name] = AlertmanagerFeed(name, channel, self._links, self._clock, state, self._aside)
            return
        config = self._config
        self._workers[name] = ChannelWorker(
            name,
            channel,
            self._journal,
            self._send,
            expiry={
                Severity.PAGE: config.page_expiry_hours * HOUR,
                Severity.TICKET: config.ticket_expiry_hours * HOUR,
                Severity.INFO: config.ticket_expiry_hours * HOUR,
            },
            first_due=self._first_due,
            clock=self._clock,
            call=self._call,
            dice=self._dice,
            aside=self._aside,
            gate=self._gate,
        )

    def _first_due(self, channel: str, delivery: Delivery) -> int:
        due = self._router.route(delivery.notice, delivery.created, (channel,))
        return due.get(channel, delivery.created)

    async def _send(self, name: str, channel: Channel, notice: Notice) -> Answer:
        if self._sender is None:
            return Later("the outbox is not running")

        def note(error: Exception | None) -> None:
            if error is None:
                self._aside.works(f"{name}/texts")
            else:
                self._aside.fail(f"{name}/texts", error, self._clock.monotonic())

        found = await self._evidence_of(name, notice)
        return await send(name, channel, notice, self._links, self._clock.wall(), self._sender, note, found)

    async def _evidence_of(self, name: str, notice: Notice) -> EvidenceReply | None:
        """Return the evidence of a notice; a fault in it costs the evidence, not the page."""
        found = None
        if self._evidence is not None:
            with self._aside.attempt(f"{name}/evidence", self._clock.monotonic()):
                found = await self._evidence(notice)
        return found

    async def _store_states(self) -> None:
        """Store the state of feeds that must survive a restart."""
        while True:
            for name, feed in self._feeds.items():
                body = self._aside.run(f"{name}/state", self._clock.monotonic(), partial(_unsaved, feed), None)
                if body is not None:
                    await self._call(self._journal.store_channel_state, name, body)
            await self._clock.wait(asyncio.Event(), _STORE_SECONDS)


def _unsaved(feed: AlertmanagerFeed) -> bytes | None:
    return feed.state.encode() if feed.state.unsaved else None


def _row(
    name: str, channel: Channel, stats: Sequence[ChannelStats], now: float, waiting: int, oldest: float | None
) -> ChannelRow:
    delivered = [one.last_delivered for one in stats if one.last_delivered is not None]
    return ChannelRow(
        name=name,
        kind=channel.kind,
        delivered=sum(one.delivered for one in stats),
        failed=sum(one.failed for one in stats),
        refused=sum(one.refused for one in stats),
        expired=sum(one.expired for one in stats),
        superseded=sum(one.superseded for one in stats),
        waiting=waiting,
        oldest_seconds=oldest,
        failing=next(filter(None, (one.failing(now) for one in stats)), ""),
        last_error=next((one.last_error for one in stats if one.last_error), ""),
        last_delivered=max(delivered, default=None),
    )
