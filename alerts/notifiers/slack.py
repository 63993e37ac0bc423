"""Slack, and receivers of Slack's incoming webhooks: Mattermost, Rocket.Chat, Discord's `/slack`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from alerts.message.page import Fact, Page
from alerts.message.text import cut
from alerts.notifiers.channel import Message, UrlChannel, url_problems
from alerts.notifiers.result import Answer, Refused
from api.alerts import Action, Severity

if TYPE_CHECKING:
    from alerts.notifiers.http_sender import HttpSender

log = logging.getLogger(__name__)

SECTION = 3000
FIELD = 2000
FIELDS = 10
"""Fields of one section."""
_COLOUR = {Severity.PAGE: "#c9362e", Severity.TICKET: "#d9a21b", Severity.INFO: "#6b7280"}
_GOOD = "#2e8b57"


class Slack(UrlChannel, frozen=True, kw_only=True, tag="slack"):
    """An incoming webhook, which accepts about one message a second."""

    per_minute: float = 55.0
    burst: int = 5
    at_once: int = 1

    public_url: str = ""
    """URL under which Slack's servers reach the aggregator, for a picture of the readings: they fetch it by
    a signed link, without a token. [none: no picture]"""

    kind: ClassVar[str] = "slack"
    shows_updates: ClassVar[bool] = True
    secret_url: ClassVar[bool] = True

    @property
    def fetches_pictures(self) -> bool:
        """Whether Slack may fetch pictures."""
        return bool(self.public_url)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield invalid settings."""
        yield from super().problems()
        if self.public_url:
            yield from url_problems("public_url", self.public_url)

    async def send(self, message: Message, sender: HttpSender) -> Answer:
        """Send a message, with a link to the picture of the readings where there is one. Slack refuses a
        message whose picture it can't fetch: that costs the picture, not the page."""
        answer = await super().send(message, sender)
        refused = isinstance(answer, Refused) and answer.status == 400
        if not refused or not message.picture_url(self.public_url):
            return answer
        log.warning(
            "channel %s: refused with its picture, and sent without: can %s be reached from there?",
            message.channel,
            self.public_url,
        )
        bare = replace(message, links=replace(message.links, pictures=None))
        return await super().send(bare, sender)

    def body(self, message: Message) -> dict[str, Any]:
        """Return a headline for notifications, and blocks with the whole text."""
        page, notice = message.page, message.notice
        over = notice.action is Action.RESOLVE
        blocks = _blocks(page)
        if url := message.picture_url(self.public_url):
            picture = {"type": "image", "image_url": url, "alt_text": "Readings around the moment"}
            blocks.append(picture)
        return {
            "text": cut(escaped(page.headline), SECTION),
            "attachments": [
                {
                    "color": _GOOD if over else _COLOUR[notice.incident.severity],
                    "fallback": cut(escaped(page.headline), SECTION),
                    "blocks": blocks,
                }
            ],
        }


def escaped(words: str) -> str:
    """Return words without markup and mentions of Slack."""
    plain = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("@", "@\u2060")  # Mattermost reads a bare `@channel` as a mention


def _blocks(page: Page) -> list[dict[str, Any]]:
    blocks = [_section(escaped(part)) for part in page.head]
    for start in range(0, len(page.facts), FIELDS):
        fields = [_pair(fact) for fact in page.facts[start : start + FIELDS]]
        blocks.append({"type": "section", "fields": fields})
    if page.evidence:
        lines = [f"*{escaped(fact.name)}* {escaped(fact.value)}" for fact in page.evidence]
        blocks.append(_section("\n".join(lines)))
    if page.others:
        blocks.append(_section("\n".join(f"• {escaped(other)}" for other in page.others)))
    if page.links:
        blocks.append(_section(" · ".join(f"<{link.value}|{link.name}>" for link in page.links)))
    if page.commands:
        lines = [f"{fact.name}: `{escaped(fact.value).replace('`', '')}`" for fact in page.commands]
        blocks.append(_section("\n".join(lines)))
    return blocks


def _pair(fact: Fact) -> dict[str, str]:
    return {"type": "mrkdwn", "text": cut(f"*{fact.name}*\n{escaped(fact.value)}", FIELD)}


def _section(words: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": cut(words, SECTION)}}
