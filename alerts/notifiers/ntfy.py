"""ntfy: a push to phones, by a server of one's own or ntfy.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from alerts.message.formats import text
from alerts.message.text import cut, cut_bytes
from alerts.notifiers.channel import Addressed, Message
from alerts.notifiers.result import Answer, Refused
from api.alerts import Action, Severity
from telemetry.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alerts.notifiers.http_sender import HttpSender

TITLE = 250
BODY = 4000
"""Bytes of a message; from 4096 on ntfy makes an attachment of it."""
_PRIORITY = {Severity.PAGE: 5, Severity.TICKET: 3, Severity.INFO: 2}
_TAG = {
    Severity.PAGE: "rotating_light",
    Severity.TICKET: "warning",
    Severity.INFO: "information_source",
}


class Ntfy(Addressed, frozen=True, kw_only=True, tag="ntfy"):
    """A topic; the URL is the server's with the topic behind it: `https://ntfy.example/gpus`."""

    per_minute: float = 12.0
    """ntfy gives a visitor 60 at once, and then one each 5 s."""
    burst: int = 50
    at_once: int = 2

    kind: ClassVar[str] = "ntfy"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """What can't work."""
        yield from super().problems()
        if self.url and not _split(self.url)[1]:
            yield "url", "it names no topic", "Write it as https://host/topic."

    async def send(self, message: Message, sender: HttpSender) -> Answer:
        """Publish to the topic."""
        from alerts.notifiers.http_sender import judge  # noqa: PLC0415 - aiohttp is for those who send

        try:
            (server, topic), headers = _split(self.address()), self.headers()
        except ConfigError as error:
            return Refused(str(error))
        raw = msgspec.json.encode(body(message, topic))
        return judge(
            await sender.post(
                server, raw, headers, seconds=self.timeout_seconds, now=message.now / 1e9
            )
        )


def body(message: Message, topic: str) -> dict[str, Any]:
    """Return what ntfy publishes."""
    page, notice = message.page, message.notice
    over = notice.action in {Action.RESOLVE, Action.ACKNOWLEDGE}
    found: dict[str, Any] = {
        "topic": topic,
        "title": cut(page.headline, TITLE),
        "message": cut_bytes(text(page).partition("\n")[2] or page.title, BODY),
        "priority": 2 if over else _PRIORITY[notice.incident.severity],
        "tags": ["white_check_mark" if over else _TAG[notice.incident.severity]],
    }
    if page.links:
        found["click"] = page.links[-1].value
    return found


def _split(url: str) -> tuple[str, str]:
    """Return the server's root and the topic."""
    scheme, _, rest = url.partition("://")
    server, _, topic = rest.rstrip("/").rpartition("/")
    return (f"{scheme}://{server}/", topic) if server else (url, "")
