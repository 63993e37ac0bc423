"""The base of all channels: settings, and the one method that sends a notice.

Retries, order, rates and expiry are the outbox's; a channel only makes the request. To add one,
write a class in a file of its own and add it to the union of `alerts.notifiers`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from alerts.message.page import Links, Page
from alerts.message.picture import picture_of
from alerts.notice import Notice
from alerts.notifiers import secret
from alerts.notifiers.result import Answer, Refused
from api.alerts import Action
from api.evidence import EvidenceReply
from telemetry.errors import ConfigError

if TYPE_CHECKING:  # reading settings loads no aiohttp
    from alerts.notifiers.http_sender import HttpSender


@dataclass(frozen=True, slots=True)
class Message:
    """A notice to send, with its text."""

    channel: str
    """Name of the channel."""
    notice: Notice
    page: Page
    links: Links
    now: int
    """ns since 1970."""
    evidence: EvidenceReply | None = None

    def cards(self) -> Any:
        """Return the cards of the evidence as plain values, for JSON."""
        return [] if self.evidence is None else msgspec.to_builtins(self.evidence.cards)

    def picture(self) -> bytes | None:
        """Return a PNG of the readings that go with a new page; None for a repetition, for any other
        notice, and where there are too few readings."""
        cards = () if self.evidence is None else self.evidence.cards
        if self.notice.action is not Action.TRIGGER or self.notice.reason == "repeat" or not cards:
            return None
        return picture_of(cards[0])

    def picture_url(self, base: str) -> str:
        """Return a link below a URL of the aggregator that opens the picture without a token; "" where
        there is none."""
        signer = self.links.pictures
        if not base or signer is None or self.evidence is None or self.picture() is None:
            return ""
        alert = self.evidence.cards[0].alert
        return signer.url(base, self.notice.incident.key, alert, self.now)


class HttpRequest(NamedTuple):
    """A POST request."""

    url: str
    body: bytes
    headers: dict[str, str]


class Channel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Settings of all channels."""

    timeout_seconds: float = 10.0
    """How long one try may take, from the connection to the answer."""
    at_once: int = 4
    """Concurrent messages; those of one incident never overtake each other."""
    per_minute: float = 600.0
    """Most messages a minute."""
    burst: int = 20
    """Messages that may go at once after a quiet time."""

    kind: ClassVar[str] = ""
    """The word in `type = `."""
    shows_updates: ClassVar[bool] = False
    """Whether it receives updates, when an incident grows or shrinks without being worse."""
    shows_notices: ClassVar[bool] = True
    """Whether it receives notices of incidents, and not single alerts."""
    receiver_settings: ClassVar[tuple[str, ...]] = ()
    """Names of the settings that say who receives its messages."""

    @property
    def fetches_pictures(self) -> bool:
        """Whether its receiver fetches pictures from the aggregator by signed links."""
        return False

    @property
    def receiver(self) -> str:
        """A digest of the settings that say who receives its messages: with another one, it is another channel."""
        its = [str(getattr(self, name)) for name in self.receiver_settings]
        return hashlib.sha256(msgspec.json.encode([self.kind, *its])).hexdigest()[:16]

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield invalid settings: the key, the problem, the remedy."""
        if not 0.1 <= self.timeout_seconds <= 300:
            yield "timeout_seconds", "it must be 0.1 to 300 seconds", ""
        if not 1 <= self.at_once <= 64:
            yield "at_once", "it must be 1 to 64", ""
        if not 0 < self.per_minute <= 60_000:
            yield "per_minute", "it must be more than 0 and at most 60000", ""
        if not 1 <= self.burst <= 1000:
            yield "burst", "it must be 1 to 1000", ""

    def open(self, where: str) -> None:
        """Read the secrets and load the packages that the settings name. Raises `ConfigError`."""

    async def send(self, message: Message, sender: HttpSender) -> Answer:
        """Send a message once. Never raises for an error of the receiver or the network."""
        try:
            request = self.request(message)
        except ConfigError as error:
            return Refused(str(error))
        return await sender.post(*request, seconds=self.timeout_seconds, now=message.now / 1e9)

    def request(self, message: Message) -> HttpRequest:
        """Return the request that sends a message. Raises `ConfigError` for an unreadable secret."""
        raise NotImplementedError


class TokenChannel(Channel, frozen=True):
    """A channel that may need a token."""

    token_file: Path | None = None
    """A file with a token, sent as `Authorization: Bearer`."""
    token_env: str = ""
    """Variable of the environment with the token."""

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield invalid settings."""
        yield from super().problems()
        if self.token_file is not None and self.token_env:
            yield "token_env", "there is a token_file too", "Give one of them."

    def open(self, where: str) -> None:
        """Read the token. Raises `ConfigError`."""
        self.headers(where)

    def headers(self, where: str = "token") -> dict[str, str]:
        """Return the header with the token, if there is one. Raises `ConfigError`."""
        if self.token_file is None and not self.token_env:
            return {}
        return {"Authorization": f"Bearer {secret.read(where, self.token_file, self.token_env)}"}


class UrlChannel(TokenChannel, frozen=True):
    """A channel with one URL, to which JSON is posted."""

    url: str = ""
    """URL of the receiver."""
    url_file: Path | None = None
    """A file with the URL, when the URL itself is a secret."""
    url_env: str = ""
    """The name of an environment variable with the URL."""

    receiver_settings: ClassVar[tuple[str, ...]] = ("url", "url_file", "url_env")
    secret_url: ClassVar[bool] = False
    """Whether anyone with the URL can post, so that it must not be in the settings."""

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield invalid settings."""
        yield from super().problems()
        given = [name for name in ("url", "url_file", "url_env") if getattr(self, name)]
        if len(given) != 1:
            wanted = "url_file or url_env" if self.secret_url else "url, url_file or url_env"
            problem = "there is no URL" if not given else f"there are {' and '.join(given)}"
            yield "url", problem, f"Give one of {wanted}."
        elif self.secret_url and self.url:
            yield (
                "url",
                "anyone with this URL can post",
                "Put it in a file that only kilowatch reads, and name the file in url_file.",
            )
        elif self.url:
            yield from url_problems("url", self.url)

    def open(self, where: str) -> None:
        """Read the URL and the token. Raises `ConfigError`."""
        problem = next(iter(url_problems("url", self.address(where))), None)
        if problem is not None:
            raise ConfigError(where, problem[1], problem[2])
        super().open(where)

    def address(self, where: str = "url") -> str:
        """Return the URL. Raises `ConfigError` when its file can't be read."""
        return self.url or secret.read(where, self.url_file, self.url_env)

    def body(self, message: Message) -> dict[str, Any]:
        """Return the JSON body of a message."""
        raise NotImplementedError

    def request(self, message: Message) -> HttpRequest:
        """Return the request that posts the body to the URL. Raises `ConfigError`."""
        return HttpRequest(self.address(), msgspec.json.encode(self.body(message)), self.headers())


def url_problems(key: str, url: str) -> Iterator[tuple[str, str, str]]:
    """Yield the problems of a URL: the key, the problem, the remedy."""
    scheme, _, rest = url.partition("://")
    if scheme not in {"http", "https"} or not rest.strip("/"):
        yield key, f"{url[:80]!r} is no URL", "Write it as https://host/path."
    elif not url.isascii() or any(character.isspace() for character in url):
        yield key, "a URL has no spaces, and only ASCII", "Write other characters as %XX."
    elif "@" in rest.partition("/")[0]:
        yield key, "a URL may hold no password", "Use token_file, or put the URL in url_file."
