"""Channels: who can be told, one file each. The union is the registry.

A channel's settings are its class; `type` names it:

    [alerts.channels.oncall]
    type = "pagerduty"
    key_file = "/etc/kilowatch/pagerduty.key"
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from alerts.notifiers.alertmanager import Alertmanager
from alerts.notifiers.apprise import Apprise
from alerts.notifiers.channel import Channel
from alerts.notifiers.ntfy import Ntfy
from alerts.notifiers.pagerduty import PagerDuty
from alerts.notifiers.slack import Slack
from alerts.notifiers.webhook import Webhook
from telemetry.errors import ConfigError, did_you_mean

AnyChannel = PagerDuty | Alertmanager | Webhook | Slack | Ntfy | Apprise
"""The registry: a union read by `channel` and by the type checker."""

KINDS: dict[str, type[Channel]] = {member.kind: member for member in get_args(AnyChannel)}


def channel(name: str, raw: Mapping[str, Any]) -> Channel:
    """Return a channel from what stands in the settings. Raises `ConfigError`."""
    where = f"alerts.channels.{name}"
    if not isinstance(raw, Mapping):
        raise ConfigError(where, "it is a section, not a value", f"Write [{where}].")
    word = raw.get("type")
    if word not in KINDS:
        problem = "it has no type" if word is None else f"there is no channel of type {word!r}"
        hint = did_you_mean(str(word), KINDS) or f"Types: {', '.join(KINDS)}."
        raise ConfigError(f"{where}.type", problem, hint)
    member = KINDS[word]
    fields = list(member.__struct_fields__)
    for key, value in raw.items():
        if key != "type" and key not in fields:
            raise ConfigError(f"{where}.{key}", "there is no such key", _cure(key, value, fields))
    try:
        found = msgspec.convert(dict(raw), member, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        key = place.strip("`").removeprefix("$").removeprefix(".")
        raise ConfigError(
            f"{where}.{key}" if key else where, problem[0].lower() + problem[1:]
        ) from error
    for key, problem, cure in found.problems():
        raise ConfigError(f"{where}.{key}", problem, cure)
    return found


def _cure(key: str, value: object, fields: list[str]) -> str:
    """A secret that was written down gets its own answer; a typo gets the closest key."""
    if f"{key}_file" in fields:
        return f"Secrets stand in a file: name it in {key}_file, or a variable in {key}_env."
    if key in {"routing_key", "integration_key", "service_key", "password", "api_key", "secret"}:
        named = [field for field in fields if field.endswith(("_file", "_env"))]
        return f"Secrets stand in a file or in the environment: {', '.join(named)}."
    return did_you_mean(key, fields)


def _path(kind: type, value: object) -> object:
    if kind is not Path:
        raise TypeError(f"no setting is a {kind}")
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a path as text, got {value!r}")
    return Path(value).expanduser()
