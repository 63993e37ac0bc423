"""ntfy: push messages to phones, through ntfy.sh or a server of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from alerts.message.formats import text
from alerts.message.text import cut, cut_bytes
from alerts.notifiers.channel import HttpRequest, Message, UrlChannel
from api.alerts import Action, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

TITLE = 250
BODY = 4000
"""Bytes of a message; from 4096 on ntfy makes an attachment of it."""
_PRIORITY = {Severity.PAGE: 5, Severity.TICKET: 3, Severity.INFO: 2}
_TAG = {
    Severity.PAGE: "rotating_light",
    Severity.TICKET: "warning",
    Severity.INFO: "information_source",
}


class Ntfy(UrlChannel, frozen=True, kw_only=True, tag="ntfy"):
    """A topic of ntfy; its name is the last part of the URL: `https://ntfy.example/gpus`."""

    per_minute: float = 12.0
    """The limit of ntfy.sh is 60 at once, then one each 5 s."""
    burst: int = 50
    at_once: int = 2

    kind: ClassVar[str] = "ntfy"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield invalid settings."""
        yield from super().problems()
        if self.url and not _split(self.url)[1]:
            yield "url", "it names no topic", "Write it as https://host/topic."

    def request(self, message: Message) -> HttpRequest:
        """Return the request that publishes to the topic. Raises `ConfigError`."""
        server, topic = _split(self.address())
        return HttpRequest(server, msgspec.json.encode(body(message, topic)), self.headers())


def body(message: Message, topic: str) -> dict[str, Any]:
    """Return the JSON that ntfy publishes."""
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
