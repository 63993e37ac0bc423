"""PagerDuty, by its Events API v2: an incident has one dedup key from trigger to resolve."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from alerts.message.formats import details
from alerts.message.text import clean, cut
from alerts.notifiers import secret
from alerts.notifiers.channel import Channel, HttpRequest, Message, url_problems
from api.alerts import Action, Severity
from present.alert.incident import place_of
from present.device.gpu import gpu_name
from telemetry.text import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

URLS = {"us": "https://events.pagerduty.com/v2/enqueue", "eu": "https://events.eu.pagerduty.com/v2/enqueue"}
SUMMARY = 1024
"""Characters of a summary; what is longer is refused."""
BODY = 512_000
"""Bytes of an event; the documented limit is 512 KB."""
KEY = 255
_FIELD = 255
_SEVERITY = {Severity.PAGE: "critical", Severity.TICKET: "warning", Severity.INFO: "info"}


class PagerDuty(Channel, frozen=True, kw_only=True, tag="pagerduty"):
    """An integration of the type Events API v2."""

    key_file: Path | None = None
    """A file with the integration key, 32 characters."""
    key_env: str = ""
    """The name of an environment variable with it."""
    region: Literal["us", "eu"] = "us"
    """The service region of the account."""
    url: str = ""
    """Another place that speaks the same. [that of `region`]"""
    at_once: int = 2
    per_minute: float = 108.0
    """PagerDuty takes about 120 a minute of one key, in any 60 seconds."""
    burst: int = 10

    kind: ClassVar[str] = "pagerduty"
    receiver_settings: ClassVar[tuple[str, ...]] = ("key_file", "key_env", "region", "url")

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield invalid settings."""
        yield from super().problems()
        if (self.key_file is None) == (not self.key_env):
            problem = "there is no integration key" if not self.key_env else "there are two keys"
            yield "key_file", problem, "Give one of key_file or key_env."
        if self.url:
            yield from url_problems("url", self.url)

    def open(self, where: str) -> None:
        """Read the key. Raises `ConfigError`."""
        self._key(where)

    def request(self, message: Message) -> HttpRequest:
        """Return the request that triggers, acknowledges or resolves. Raises `ConfigError`."""
        body = encoded(event(message, self._key("key_file")))
        return HttpRequest(self.url or URLS[self.region], body, {})

    def _key(self, where: str) -> str:
        return secret.read(where, self.key_file, self.key_env)


def event(message: Message, key: str) -> dict[str, Any]:
    """Return the event; acknowledge and resolve need only the dedup key."""
    notice = message.notice
    action = "trigger" if notice.action is Action.UPDATE else notice.action.value
    body: dict[str, Any] = {"routing_key": key, "event_action": action, "dedup_key": dedup_key(notice.incident.key)}
    if action != "trigger":
        return body
    incident, page = notice.incident, message.page
    lead = incident.alerts[0] if incident.alerts else None
    labels = {} if lead is None else lead.labels
    body["payload"] = {
        "summary": cut(page.headline, SUMMARY),
        "source": clean(place_of(lead), _FIELD) if lead else "kilowatch",
        "severity": _SEVERITY[incident.severity],
        "timestamp": rfc3339(incident.began),
        "component": _component(labels),
        "group": clean(labels.get("cluster", ""), _FIELD),
        "class": clean(lead.rule, _FIELD) if lead else "",
        "custom_details": details(page) | ({"Evidence": cards} if (cards := message.cards()) else {}),
    }
    body["payload"] = {name: value for name, value in body["payload"].items() if value}
    body["client"] = "kilowatch"
    if message.links.external:
        about = message.links.incident_of(incident.key)
        body["client_url"] = message.links.external if notice.reason == "test" else about
    if page.links:
        body["links"] = [{"href": link.value, "text": link.name} for link in page.links]
    return body


def dedup_key(key: str) -> str:
    """Return the dedup key of an incident; the end of a long key is replaced by its hash."""
    if len(key) <= KEY:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return f"{key[: KEY - 1 - len(digest)]}-{digest}"


def encoded(body: dict[str, Any]) -> bytes:
    """Return an event as JSON; if it is too large for PagerDuty, without its evidence, then without
    its details."""
    raw = msgspec.json.encode(body)
    if len(raw) <= BODY:
        return raw
    short = {name: value for name, value in body["payload"]["custom_details"].items() if name != "Evidence"}
    raw = msgspec.json.encode({**body, "payload": {**body["payload"], "custom_details": short}})
    if len(raw) <= BODY:
        return raw
    note = f"left out: the event had {len(raw)} bytes, and PagerDuty takes {BODY}"
    payload = {**body["payload"], "custom_details": {"Details": note}}
    return msgspec.json.encode({**body, "payload": payload})


def _component(labels: dict[str, str]) -> str:
    gpu = labels.get("gpu", "")
    return clean(gpu_name("", gpu) if gpu else labels.get("circuits", ""), _FIELD)
