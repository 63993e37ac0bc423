"""Channels: the types of receivers, one file each. The union is the registry.

A channel's settings are its class; `type` names it:

    [alerts.channels.oncall]
    type = "pagerduty"
    key_file = "/etc/kilowatch/pagerduty.key"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from alerts.notifiers.alertmanager import Alertmanager
from alerts.notifiers.apprise import Apprise
from alerts.notifiers.channel import Channel
from alerts.notifiers.ntfy import Ntfy
from alerts.notifiers.pagerduty import PagerDuty
from alerts.notifiers.slack import Slack
from alerts.notifiers.webhook import Webhook
from telemetry.errors import ConfigError, did_you_mean
from telemetry.text.settings import Fault, convert

AnyChannel = PagerDuty | Alertmanager | Webhook | Slack | Ntfy | Apprise
"""The registry: a union read by `channel` and by the type checker."""

KINDS: dict[str, type[Channel]] = {member.kind: member for member in get_args(AnyChannel)}


def channel(name: str, raw: Mapping[str, Any]) -> Channel:
    """Return a channel from its settings. Raises `ConfigError`."""
    where = f"alerts.channels.{name}"
    if not isinstance(raw, Mapping):
        raise ConfigError(where, "it is a section, not a value", f"Write [{where}].")
    word = raw.get("type")
    if not isinstance(word, str) or word not in KINDS:
        problem = "it has no type" if word is None else f"there is no channel of type {word!r}"
        hint = did_you_mean(str(word), KINDS) or f"Types: {', '.join(KINDS)}."
        raise ConfigError(f"{where}.type", problem, hint)
    member = KINDS[word]
    found = convert(member, dict(raw), where, strict=False, hint=_hint)
    for key, problem, cure in found.problems():
        raise ConfigError(f"{where}.{key}", problem, cure)
    return found


def _hint(fault: Fault) -> str:
    """Return where a secret belongs that was written into the settings, else the closest key."""
    key, fields = fault.unknown, fault.known
    if f"{key}_file" in fields:
        return f"Secrets are in a file: name it in {key}_file, or a variable in {key}_env."
    if key in {"routing_key", "integration_key", "service_key", "password", "api_key", "secret"}:
        named = [field for field in fields if field.endswith(("_file", "_env"))]
        return f"Secrets are in a file or in the environment: {', '.join(named)}."
    return fault.hint
