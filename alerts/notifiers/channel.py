"""A channel: its settings and the one method by which it tells somebody.

Retries, order, rates and expiry are the outbox's; a channel only says what is sent and what the
answer means. To add one, write a class in a file of its own and name it in the union of
`alerts.notifiers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

from alerts.message.page import Links, Page
from alerts.notice import Notice
from alerts.notifiers import secret
from alerts.notifiers.result import Answer
from telemetry.errors import ConfigError

if TYPE_CHECKING:  # aiohttp is loaded by what sends, not by what reads settings
    from alerts.notifiers.http_sender import HttpSender


@dataclass(frozen=True, slots=True)
class Message:
    """What a channel is given to tell."""

    channel: str
    """The name of the channel."""
    notice: Notice
    page: Page
    links: Links
    now: int
    """ns since 1970."""


class Channel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"
):
    """What all channels have."""

    timeout_seconds: float = 10.0
    """How long one try may take, from the connection to the answer."""
    at_once: int = 4
    """Messages under way at a time; those of one incident never overtake each other."""
    per_minute: float = 600.0
    """Most messages a minute."""
    burst: int = 20
    """Messages that may go at once after a quiet time."""

    kind: ClassVar[str] = ""
    """The word in `type = `."""
    shows_updates: ClassVar[bool] = False
    """Whether it is told that an incident grew or shrank without being worse."""

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """What can't work: the key, what is wrong, what to write instead."""
        if not 0.1 <= self.timeout_seconds <= 300:
            yield "timeout_seconds", "it must be 0.1 to 300 seconds", ""
        if not 1 <= self.at_once <= 64:
            yield "at_once", "it must be 1 to 64", ""
        if not 0 < self.per_minute <= 60_000:
            yield "per_minute", "it must be more than 0 and at most 60000", ""
        if not 1 <= self.burst <= 1000:
            yield "burst", "it must be 1 to 1000", ""

    def open(self, where: str) -> None:
        """Read what the settings name: secrets, extras. Raises `ConfigError`."""

    async def send(self, message: Message, sender: HttpSender) -> Answer:
        """Tell it once. Never raises for what a receiver or a network does."""
        raise NotImplementedError


class Addressed(Channel, frozen=True):
    """A channel with a URL, and maybe a token."""

    url: str = ""
    url_file: Path | None = None
    """A file with the URL, when the URL itself is a secret."""
    url_env: str = ""
    """The name of an environment variable with the URL."""
    token_file: Path | None = None
    """A file with a token, sent as `Authorization: Bearer`."""
    token_env: str = ""

    secret_url: ClassVar[bool] = False
    """Whether whoever knows the URL can post: then it may not stand in the settings."""

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """What can't work."""
        yield from super().problems()
        given = [name for name in ("url", "url_file", "url_env") if getattr(self, name)]
        if len(given) != 1:
            wanted = "url_file or url_env" if self.secret_url else "url, url_file or url_env"
            problem = "there is no URL" if not given else f"there are {' and '.join(given)}"
            yield "url", problem, f"Give one of {wanted}."
        elif self.secret_url and self.url:
            yield (
                "url",
                "whoever knows this URL can post",
                "Put it in a file that only kilowatch reads, and name the file in url_file.",
            )
        elif self.url:
            yield from url_problems("url", self.url)
        if self.token_file is not None and self.token_env:
            yield "token_env", "there is a token_file too", "Give one of them."

    def open(self, where: str) -> None:
        """Read the URL and the token."""
        problem = next(iter(url_problems("url", self.address(where))), None)
        if problem is not None:
            raise ConfigError(where, problem[1], problem[2])
        self.headers(where)

    def address(self, where: str = "url") -> str:
        """Return the URL. Raises `ConfigError` when its file can't be read."""
        return self.url or secret.read(where, self.url_file, self.url_env)

    def headers(self, where: str = "token") -> dict[str, str]:
        """Return what says who we are. Raises `ConfigError`."""
        if self.token_file is None and not self.token_env:
            return {}
        return {"Authorization": f"Bearer {secret.read(where, self.token_file, self.token_env)}"}


def url_problems(key: str, url: str) -> Iterator[tuple[str, str, str]]:
    """What is wrong with a URL that is posted to."""
    scheme, _, rest = url.partition("://")
    if scheme not in {"http", "https"} or not rest.strip("/"):
        yield key, f"{url[:80]!r} is no URL", "Write it as https://host/path."
    elif not url.isascii() or any(character.isspace() for character in url):
        yield key, "a URL has no spaces, and only ASCII", "Write other characters as %XX."
    elif "@" in rest.partition("/")[0]:
        yield key, "a URL may hold no password", "Use token_file, or put the URL in url_file."
