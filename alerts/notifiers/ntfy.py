"""ntfy: push messages to phones, through ntfy.sh or a server of one's own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from alerts.message.formats import text
from alerts.message.text import cut, cut_bytes
from alerts.notifiers.channel import HttpRequest, Message, UrlChannel
from alerts.notifiers.result import Answer, Delivered
from api.alerts import Action, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alerts.notifiers.http_sender import HttpSender

log = logging.getLogger(__name__)
TITLE = 250
BODY = 4000
"""Bytes of a message; from 4096 on ntfy makes an attachment of it."""
_PICTURE_SECONDS = 5.0
"""Longest wait for an answer to a picture: the page before it has arrived."""
_PRIORITY = {Severity.PAGE: 5, Severity.TICKET: 3, Severity.INFO: 2}
_TAG = {Severity.PAGE: "rotating_light", Severity.TICKET: "warning", Severity.INFO: "information_source"}


class Ntfy(UrlChannel, frozen=True, kw_only=True, tag="ntfy"):
    """A topic of ntfy; its name is the last part of the URL: `https://ntfy.example/gpus`."""

    per_minute: float = 12.0
    """The limit of ntfy.sh is 60 at once, then one each 5 s."""
    burst: int = 50
    at_once: int = 2

    picture: bool = True
    """Whether a picture of the readings follows a page as an attachment, where the server takes any."""

    kind: ClassVar[str] = "ntfy"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield invalid settings."""
        yield from super().problems()
        if self.url and not _split(self.url)[1]:
            yield "url", "it names no topic", "Write it as https://host/topic."

    async def send(self, message: Message, sender: HttpSender) -> Answer:
        """Send a message, and after it a silent one with a picture of the readings. That the server
        takes no attachment costs the picture, not the page."""
        answer = await super().send(message, sender)
        if not isinstance(answer, Delivered) or not self.picture:
            return answer
        try:
            attached = self.attachment(message)
            if attached is not None:
                await sender.post(*attached, seconds=min(_PICTURE_SECONDS, self.timeout_seconds))
        except Exception:  # the page has arrived: it must not be sent again
            log.exception("ntfy: no picture of the readings")
        return answer

    def attachment(self, message: Message) -> HttpRequest | None:
        """Return the request that publishes the picture of a page; None where there is none. Raises
        `ConfigError`."""
        picture = message.picture()
        if picture is None:
            return None
        headers = {
            "Content-Type": "image/png",
            "Filename": "readings.png",
            "Title": "Readings around the moment",
            "Priority": "1",
        }
        return HttpRequest(self.address(), picture, {**self.headers(), **headers})

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
        found["click"] = page.links[0].value
    return found


def _split(url: str) -> tuple[str, str]:
    """Return the server's root and the topic."""
    scheme, _, rest = url.partition("://")
    server, _, topic = rest.rstrip("/").rpartition("/")
    return (f"{scheme}://{server}/", topic) if server else (url, "")
