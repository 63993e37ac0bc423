"""A webhook with the body of Alertmanager's webhooks, version 4."""

from __future__ import annotations

from typing import Any, ClassVar

from alerts.notifiers.channel import Message, UrlChannel
from alerts.notifiers.labels import common, posted
from api.alerts import Action


class Webhook(UrlChannel, frozen=True, kw_only=True, tag="webhook"):
    """Any receiver of Alertmanager's webhooks."""

    kind: ClassVar[str] = "webhook"
    shows_updates: ClassVar[bool] = True

    def body(self, message: Message) -> dict[str, Any]:
        """Return the body that Alertmanager posts for a group of alerts, with the incident's title and the
        evidence beside them."""
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
            "title": incident.title,
            **({"evidence": cards} if (cards := message.cards()) else {}),
        }
