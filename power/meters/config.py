"""The union of all meter types, and the decoding of configured meters.

    [power.meters.plug-lab]
    type = "tasmota"
    topic = "tele/plug-lab/SENSOR"
    on = "lab"

The short form is in the circuit or node itself: `meter = "tasmota:tele/plug-lab/SENSOR"`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from power.devices.wall_power import WallSource
from power.meters.base import MeterConfig
from power.meters.home_assistant import HomeAssistant
from power.meters.json_path import Json
from power.meters.nut import Nut
from power.meters.redfish import Redfish
from power.meters.shelly import Shelly
from power.meters.shelly_gen1 import ShellyGen1
from power.meters.tasmota import Tasmota
from power.meters.zigbee2mqtt import Zigbee2Mqtt
from telemetry.errors import ConfigError, did_you_mean
from telemetry.text.settings import Fault, convert

Meter = Tasmota | Shelly | ShellyGen1 | Zigbee2Mqtt | HomeAssistant | Json | Redfish | Nut
"""The registry of meter types."""

TYPES: dict[str, type[MeterConfig]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (Tasmota, Shelly, ShellyGen1, Zigbee2Mqtt, HomeAssistant, Json, Redfish, Nut)
}
_SAME = {"shelly-3em": "shelly", "shelly-gen2": "shelly", "mqtt": "json", "number": "json"}
"""Alternative names of types."""
_SNMP = 'Read it with Network UPS Tools (its snmp-ups driver) and write type = "nut"; or publish it over MQTT and write type = "json".'


MEASURED = [source.value for source in WallSource if source not in {WallSource.MODEL, WallSource.COMMITTED}]
"""Ranks that a meter can have."""


class MeterBroker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MQTT broker of meters, beside kilowatch's own."""

    host: str
    """Name or address of the broker."""
    port: int = 1883
    """1883 is usual, 8883 with TLS."""
    username: str | None = None
    """User of the broker, where it asks for one."""
    password_file: str | None = None
    """A file with the password alone."""
    tls: bool = False
    """Whether the connection is encrypted."""
    ca_file: str | None = None
    """Authority that the broker's certificate must be signed by. [the system's]"""
    cert_file: str | None = None
    """Our certificate, for a broker that asks for one."""
    key_file: str | None = None
    """The key of `cert_file`."""
    keepalive: int = 30
    """Seconds."""


def decode_meter(where: str, raw: object) -> MeterConfig:
    """Return one meter. Raises `ConfigError` with place and cure."""
    if not isinstance(raw, dict):
        raise ConfigError(
            where, "it is a section, not a value", f'Write [{where.rpartition(": ")[2]}] and type = "tasmota".'
        )
    fields = dict(raw)
    preset = fields.pop("preset", None)
    word = fields.pop("type", None) if preset is None else preset
    fields.pop("type", None)
    kind = _kind(f"{where}.{'type' if preset is None else 'preset'}", word)
    fields["type"] = kind.__struct_config__.tag
    meter = convert(kind, fields, where, hint=_hint)
    meter.check(where)
    return meter


def _hint(fault: Fault) -> str:
    if fault.unknown is not None:
        return fault.hint or f"Known: {', '.join(sorted(fault.known))}."
    if fault.missing is not None:
        return f"Write {fault.missing} = ..., see docs/meters.md."
    return f"Known: {', '.join(MEASURED)}." if fault.place == "source" else ""


def _kind(where: str, word: object) -> type[MeterConfig]:
    text = _SAME.get(str(word), str(word))
    if word == "snmp":
        raise ConfigError(where, "SNMP is not spoken here", _SNMP)
    if word is None or text not in TYPES:
        problem = "the type is missing" if word is None else f"there is no type {word!r}"
        raise ConfigError(where, problem, did_you_mean(text, TYPES) or f"Known: {', '.join(TYPES)}.")
    return TYPES[text]


def short_form(where: str, text: str, target: str) -> MeterConfig:
    """Return the meter that `meter = "tasmota:tele/plug-lab/SENSOR"` on `target` describes.

    `#` separates a part: a channel, a component, a path in JSON. Raises `ConfigError`.
    """
    word, _, rest = text.partition(":")
    rest, _, part = rest.partition("#")
    kind = _kind(where, word)
    if not rest:
        raise ConfigError(where, f"{text!r} does not name the {word}", f'Write "{word}:" and its topic or address.')
    fields: dict[str, Any] = {"type": word}
    if part and kind is Json:
        fields["path"], part = part, ""
    if kind is Redfish:
        fields["url"] = rest
    elif kind is Nut:
        server, _, fields["ups"] = rest.rpartition("/")
        host, _, port = server.partition(":")
        fields |= {"host": host} if host else {}
        fields |= {"port": int(port)} if port.isdigit() else {}
    else:
        fields["topic"] = rest
    fields |= {"map": {part: target}} if part else {"on": target}
    return decode_meter(where, fields)
