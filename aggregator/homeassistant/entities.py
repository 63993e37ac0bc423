"""The entities of a GPU and of a circuit, and the discovery messages that announce them. Pure.

Each entity has a discovery message of its own, which every version of Home Assistant reads; all
entities of a device take their values from one JSON message. Fields are those of
https://www.home-assistant.io/integrations/sensor.mqtt/ and binary_sensor.mqtt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from telemetry.text.decoders import of_json

ORIGIN = "kilowatch"
STATES = "kilowatch-homeassistant"
"""First level of the topics of states and availability."""
TRIP_STATES = ("never", "in time", "unknown")
"""Whether a breaker trips if its load stays: a duration can't say that it never does, or that its
curve is not known."""
_OTHER = re.compile(r"[^A-Za-z0-9_-]")

Value = float | str | list[str] | None
"""None: not known, which Home Assistant shows as such."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A row of the table: an entity of every device of a kind."""

    key: str
    """Field of the state, and end of the unique id."""
    name: str
    platform: str = "sensor"
    fields: Mapping[str, object] = field(default_factory=dict)
    digits: int = 0
    """Decimal places of the state: a value that is the same when rounded has not changed."""


POWER = Entity(
    "power", "Power", fields={"device_class": "power", "unit_of_measurement": "W", "state_class": "measurement"}
)
ENERGY = Entity(
    "energy",
    "Energy",
    digits=3,
    fields={"device_class": "energy", "unit_of_measurement": "kWh", "state_class": "total_increasing"},
)
TEMPERATURE = Entity(
    "temperature",
    "Temperature",
    fields={"device_class": "temperature", "unit_of_measurement": "°C", "state_class": "measurement"},
)
COST = Entity("cost", "Cost", digits=4, fields={"state_class": "measurement", "icon": "mdi:cash"})
"""Money an hour at the present price; its unit is the currency of the site."""
LOAD = Entity(
    "load", "Load", digits=1, fields={"unit_of_measurement": "%", "state_class": "measurement", "icon": "mdi:gauge"}
)
TRIP_SECONDS = Entity(
    "trip_seconds",
    "Time to trip",
    fields={"device_class": "duration", "unit_of_measurement": "s", "state_class": "measurement"},
)
TRIP = Entity("trip", "Trip", fields={"device_class": "enum", "options": list(TRIP_STATES)})
PROBLEM = Entity("problem", "Problem", "binary_sensor", {"device_class": "problem"})
GPU_ENTITIES = (POWER, ENERGY, TEMPERATURE, PROBLEM)
CIRCUIT_ENTITIES = (POWER, ENERGY, LOAD, TRIP_SECONDS, TRIP, PROBLEM)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or circuit as Home Assistant sees it."""

    id: str
    """Stable: the cluster, the kind, and a GPU's UUID or a circuit's name."""
    name: str
    model: str
    manufacturer: str
    entities: tuple[Entity, ...]
    values: Mapping[str, Value]
    available: bool
    """False where nothing is known of it now: a silent node, a GPU that is gone."""
    serial: str | None = None
    currency: str = ""

    def state(self) -> bytes:
        """Return the JSON of its state topic: every value, rounded as it is shown."""
        found: dict[str, Value] = {"available": "online" if self.available else "offline"}
        for entity in self.entities:
            value = self.values.get(entity.key)
            found[entity.key] = round(value, entity.digits or None) if isinstance(value, float) else value
        found["alerts"] = self.values.get("alerts") or []
        return msgspec.json.encode(found)


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of one aggregator."""

    prefix: str
    """Home Assistant's discovery prefix."""
    cluster: str
    by: str
    """The aggregator: its shards, or `all`."""

    @property
    def status(self) -> str:
        """Topic of the availability of everything that this aggregator publishes."""
        return f"{STATES}/{quote(self.cluster, safe=':')}/{quote(self.by, safe=',')}/status"

    @property
    def birth(self) -> str:
        """Topic on which Home Assistant says that it has started."""
        return f"{self.prefix}/status"

    @property
    def announced(self) -> str:
        """Filter of all discovery messages of the cluster."""
        return f"{self.prefix}/+/{self._node_id}/+/config"

    @property
    def _node_id(self) -> str:
        return node_id(self.cluster)

    def state(self, device: Device) -> str:
        """Return the topic of a device's values."""
        return f"{STATES}/{quote(self.cluster, safe=':')}/{device.id}/state"

    def config(self, device: Device, entity: Entity) -> str:
        """Return the topic of an entity's discovery message."""
        return f"{self.prefix}/{entity.platform}/{self._node_id}/{device.id}_{entity.key}/config"


def node_id(cluster: str) -> str:
    """Return the level of discovery topics that names the cluster."""
    return f"{ORIGIN}-{slug(cluster)}"


def slug(name: str) -> str:
    """Return a name in the characters that discovery topics allow; another name has another slug."""
    plain = _OTHER.sub("_", name)
    if plain == name:
        return name
    return f"{plain}-{hashlib.blake2b(name.encode(), digest_size=3).hexdigest()}"


def discovery(device: Device, topics: Topics, expire_seconds: int) -> dict[str, bytes]:
    """Return the discovery messages of a device, by topic."""
    card: dict[str, object] = {
        "identifiers": [f"{ORIGIN}_{device.id}"],
        "name": device.name,
        "manufacturer": device.manufacturer,
        "model": device.model,
    }
    if device.serial is not None:
        card["serial_number"] = device.serial
    state = topics.state(device)
    found = {}
    for entity in device.entities:
        message: dict[str, object] = {
            "name": entity.name,
            "unique_id": f"{ORIGIN}_{device.id}_{entity.key}",
            "state_topic": state,
            "value_template": f"{{{{ value_json.{entity.key} }}}}",
            "expire_after": expire_seconds,
            "availability": [
                {"topic": topics.status},
                {"topic": state, "value_template": "{{ value_json.available }}"},
            ],
            "availability_mode": "all",
            "device": card,
            "origin": {"name": ORIGIN},
            **entity.fields,
        }
        if entity is COST:
            message["unit_of_measurement"] = f"{device.currency}/h"
        if entity is PROBLEM:
            message["json_attributes_topic"] = state
            message["json_attributes_template"] = "{{ {'alerts': value_json.alerts} | tojson }}"
        if entity.platform == "sensor" and "state_class" in entity.fields:
            message["suggested_display_precision"] = entity.digits
        found[topics.config(device, entity)] = msgspec.json.encode(message)
    return found


class _Availability(msgspec.Struct):
    topic: str = ""


class _Announced(msgspec.Struct):
    availability: list[_Availability] = []


def is_of(topics: Topics, payload: bytes) -> bool:
    """Return whether a discovery message was written by this aggregator, in this run or an earlier."""
    try:
        found = of_json(_Announced).decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return bool(found.availability) and found.availability[0].topic == topics.status
