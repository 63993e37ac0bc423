"""A webhook with the body that Alertmanager sends, version 4: all that takes that takes ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from alerts.notifiers.channel import Addressed, Message
from alerts.notifiers.labels import common, posted
from alerts.notifiers.result import Answer, Refused
from api.alerts import Action
from telemetry.errors import ConfigError

if TYPE_CHECKING:
    from alerts.notifiers.http_sender import HttpSender


class Webhook(Addressed, frozen=True, kw_only=True, tag="webhook"):
    """Any receiver of Alertmanager's webhooks."""

    kind: ClassVar[str] = "webhook"
    shows_updates: ClassVar[bool] = True

    async def send(self, message: Message, sender: HttpSender) -> Answer:
        """Post the incident as a group of alerts."""
        from alerts.notifiers.http_sender import judge  # noqa: PLC0415 - aiohttp is for those who send

        try:
            url, headers = self.address(), self.headers()
        except ConfigError as error:
            return Refused(str(error))
        raw = msgspec.json.encode(body(message))
        return judge(
            await sender.post(
                url, raw, headers, seconds=self.timeout_seconds, now=message.now / 1e9
            )
        )


def body(message: Message) -> dict[str, Any]:
    """Return what Alertmanager would post of a group of alerts."""
    incident = message.notice.incident
    alerts = [posted(alert, message.links) for alert in incident.alerts]
    over = message.notice.action is Action.RESOLVE
    return {
        "version": "4",
        "groupKey": incident.key,
        "truncatedAlerts": max(0, incident.total - len(alerts)),
        "status": "resolved" if over else "firing",
        "receiver": message.channel,
        "groupLabels": dict(incident.group),
        "commonLabels": common([alert["labels"] for alert in alerts]),
        "commonAnnotations": common([alert["annotations"] for alert in alerts]),
        "externalURL": message.links.external,
        "alerts": alerts,
    }
