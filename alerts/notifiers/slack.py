"""Slack, and receivers of Slack's incoming webhooks: Mattermost, Rocket.Chat, Discord's `/slack`."""

from __future__ import annotations

from typing import Any, ClassVar

from alerts.message.page import Fact, Page
from alerts.message.text import cut
from alerts.notifiers.channel import Message, UrlChannel
from api.alerts import Action, Severity

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

    kind: ClassVar[str] = "slack"
    shows_updates: ClassVar[bool] = True
    secret_url: ClassVar[bool] = True

    def body(self, message: Message) -> dict[str, Any]:
        """Return a headline for notifications, and blocks with the whole text."""
        page, notice = message.page, message.notice
        over = notice.action is Action.RESOLVE
        return {
            "text": cut(escaped(page.headline), SECTION),
            "attachments": [
                {
                    "color": _GOOD if over else _COLOUR[notice.incident.severity],
                    "fallback": cut(escaped(page.headline), SECTION),
                    "blocks": _blocks(page),
                }
            ],
        }


def escaped(words: str) -> str:
    """Return words without markup and mentions of Slack."""
    plain = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("@", "@\u2060")  # Mattermost reads a bare `@channel` as a mention


def _blocks(page: Page) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for start in range(0, len(page.facts), FIELDS):
        fields = [_pair(fact) for fact in page.facts[start : start + FIELDS]]
        blocks.append({"type": "section", "fields": fields})
    if page.advice:
        blocks.append(_section(escaped(page.advice)))
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
