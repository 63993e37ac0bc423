"""Telling one channel of one notice, and the message that says it is a test."""

from __future__ import annotations

from alerts.alert import Alert, Severity, State, Subject
from alerts.clock import Clock
from alerts.config import AlertsConfig
from alerts.notice import Action, Incident, Notice
from alerts.notifiers.answer import Answer
from alerts.notifiers.channel import Channel, Message
from alerts.notifiers.door import Door, doors
from alerts.page import Links, page_of
from telemetry.errors import ConfigError, did_you_mean


async def tell(
    name: str, channel: Channel, notice: Notice, links: Links, now: int, door: Door
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
    now = Clock().wall()
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
        state=State.RESOLVED if over else State.FIRING,
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
