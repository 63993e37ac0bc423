"""Prometheus' Alertmanager: it is told of single alerts, again and again, as Prometheus does it.

It keeps alerts in memory only and takes them for resolved when it hears of them no more; grouping,
silences and repetition are its own. So nothing is queued for it: `alerts.notifiers.alertmanager_feed` holds what
is true now and sends that, each minute and at every change.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from alerts.notifiers import secret
from alerts.notifiers.channel import Channel, Message, url_problems
from alerts.notifiers.labels import identity_of, remarks_of
from alerts.notifiers.result import Answer, Delivered, Later, Refused
from api.alerts import Action
from telemetry.errors import ConfigError
from telemetry.text import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alerts.notifiers.http_sender import HttpSender

PATH = "/api/v2/alerts"


class Alertmanager(Channel, frozen=True, kw_only=True, tag="alertmanager"):
    """All Alertmanagers of one cluster: each is told by itself, never through a load balancer."""

    urls: tuple[str, ...]
    """Each as `http://host:9093`, with a path before `/api` where there is one."""
    token_file: Path | None = None
    """A file with a token, sent as `Authorization: Bearer`."""
    token_env: str = ""
    resend_seconds: float = 60.0
    """How often what fires is sent again; it ends by itself after four times that."""
    keep_resolved_seconds: float = 900.0
    """How long the end of an alert is sent again: an Alertmanager may have been away."""
    batch: int = 256
    """Alerts in one request."""

    kind: ClassVar[str] = "alertmanager"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """What can't work."""
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
        if self.token_file is not None and self.token_env:
            yield "token_env", "there is a token_file too", "Give one of them."

    def open(self, where: str) -> None:
        """Read the token."""
        self.headers(where)

    def headers(self, where: str = "token") -> dict[str, str]:
        """Return what says who we are. Raises `ConfigError`."""
        if self.token_file is None and not self.token_env:
            return {}
        return {"Authorization": f"Bearer {secret.read(where, self.token_file, self.token_env)}"}

    async def send(self, message: Message, sender: HttpSender) -> Answer:
        """Send the alerts of one incident once, for a test of the channel: all must take them."""
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
        """Post alerts to one of them. What it refuses of a batch is said; the rest it has taken."""
        from alerts.notifiers.http_sender import judge  # noqa: PLC0415 - aiohttp is for those who send

        try:
            headers = self.headers()
        except ConfigError as error:
            return Refused(str(error))
        reply = await sender.post(
            url.rstrip("/") + PATH,
            msgspec.json.encode(alerts),
            headers,
            seconds=self.timeout_seconds,
        )
        answer = judge(reply)
        if isinstance(answer, Later | Refused):
            return replace(answer, reason=f"{url}: {answer.reason}")
        return answer
