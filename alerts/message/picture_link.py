"""Links to the picture of a card that open without a token, for receivers that fetch pictures by themselves.

A link names the incident, the alert and its own end, and is signed with a key that the aggregator alone has:
it opens this one picture until then, and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

LIFE_SECONDS = 7 * 86_400
"""How long a link opens its picture."""
PATH = "/evidence.png"
"""Path of the pictures; what is signed is in the query, since proxies rewrite a `%2F` in a path."""
KEY_BYTES = 32


class PictureLink(NamedTuple):
    """A signed link, as it is in the query."""

    incident: str
    """Whole key of the incident."""
    alert: str
    """Key of the alert whose card it shows."""
    expires: str
    """Seconds since 1970."""
    signature: str
    """HMAC-SHA-256 of the three before, in hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class PictureSigner:
    """Signs links to pictures, and checks them."""

    key: bytes = field(repr=False)

    def url(self, base: str, incident: str, alert: str, now: int) -> str:
        """Return a link below the URL of an aggregator; `now` in ns since 1970."""
        expires = str(now // 1_000_000_000 + LIFE_SECONDS)
        link = PictureLink(incident, alert, expires, self._signature(incident, alert, expires))
        return f"{base.rstrip('/')}{PATH}?{urlencode(link._asdict())}"

    def opens(self, link: PictureLink, now: int) -> bool:
        """Whether a link is one of ours and has not ended; `now` in ns since 1970. In constant time."""
        try:
            wanted = self._signature(link.incident, link.alert, link.expires)
        except UnicodeEncodeError:  # a lone surrogate, which no link of ours has
            return False
        signed = hmac.compare_digest(wanted.encode(), link.signature.encode("utf-8", "replace"))
        return signed and now < int(link.expires) * 1_000_000_000

    def _signature(self, incident: str, alert: str, expires: str) -> str:
        body = msgspec.json.encode(["picture", incident, alert, expires])  # no part runs into the next
        return hmac.new(self.key, body, hashlib.sha256).hexdigest()
