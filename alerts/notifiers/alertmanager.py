"""Prometheus' Alertmanager, which receives single alerts again and again, as from Prometheus.

It keeps alerts in memory only, and treats them as resolved when they are no longer sent; grouping,
silences and repetition are its own. So nothing is queued for it: `alerts.delivery.alertmanager_feed`
sends the present alerts each minute and at every change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from alerts.notifiers.channel import Message, TokenChannel, url_problems
from alerts.notifiers.labels import identity_of, remarks_of
from alerts.notifiers.result import Answer, Delivered, Later, Refused
from api.alerts import Action
from telemetry.errors import ConfigError
from telemetry.text import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alerts.notifiers.http_sender import HttpSender

PATH = "/api/v2/alerts"


class Alertmanager(TokenChannel, frozen=True, kw_only=True, tag="alertmanager"):
    """The Alertmanagers of one cluster, each by its own URL, never through a load balancer."""

    urls: tuple[str, ...]
    """Each as `http://host:9093`, with a path before `/api` where there is one."""
    resend_seconds: float = 60.0
    """How often firing alerts are sent again; they end by themselves after four times that."""
    keep_resolved_seconds: float = 900.0
    """How long the end of an alert is sent again: an Alertmanager may have been away."""
    batch: int = 256
    """Alerts in one request."""

    kind: ClassVar[str] = "alertmanager"
    shows_notices: ClassVar[bool] = False

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield invalid settings."""
        yield from super().problems()
        if not self.urls:
            yield "urls", "there is none", 'Write urls = ["http://127.0.0.1:9093"].'
        for number, url in enumerate(self.urls):
            yield from url_problems(f"urls[{number}]", url)
            if "/api/" in url:
                yield f"urls[{number}]", "it names the API", "Leave /api/... away."
        if not 1 <= self.resend_seconds <= 3600:
            yield "resend_seconds", "it must be 1 to 3600 seconds", ""
        if not 0 <= self.keep_resolved_seconds <= 86_400:
            yield "keep_resolved_seconds", "it must be 0 to 86400 seconds", ""
        if not 1 <= self.batch <= 10_000:
            yield "batch", "it must be 1 to 10000", ""

    async def send(self, message: Message, sender: HttpSender) -> Answer:
        """Send the alerts of one incident once, for a test of the channel; all must accept them."""
        over = message.notice.action is Action.RESOLVE
        end = message.now if over else message.now + round(4e9 * self.resend_seconds)
        bodies = [
            {
                "labels": identity_of(alert, message.links.cluster),
                "annotations": remarks_of(alert, message.links),
                "startsAt": rfc3339(alert.since),
                "endsAt": rfc3339(end),
            }
            for alert in message.notice.incident.alerts
        ]
        answers = [await self.post(url, bodies, sender) for url in self.urls]
        worst = next((one for one in answers if not isinstance(one, Delivered)), None)
        return worst or Delivered(f"{len(answers)} of {len(answers)}")

    async def post(self, url: str, alerts: list[dict[str, Any]], sender: HttpSender) -> Answer:
        """Post alerts to one Alertmanager; of a refused batch it has accepted the valid ones."""
        try:
            headers = self.headers()
        except ConfigError as error:
            return Refused(str(error))
        result = await sender.post(
            url.rstrip("/") + PATH, msgspec.json.encode(alerts), headers, seconds=self.timeout_seconds
        )
        if isinstance(result, Later | Refused):
            return replace(result, reason=f"{url}: {result.reason}")
        return result
