"""Validate discovery messages by the schemas of Home Assistant's own package.

Run by a Python that has the package `homeassistant` (`make homeassistant`). It reads a JSON object of payloads by topic
from standard input, and prints the topics that it found valid.
"""

import asyncio
import json
import sys
import tempfile

from homeassistant.components.mqtt import binary_sensor, sensor
from homeassistant.components.mqtt.discovery import TOPIC_MATCHER
from homeassistant.components.sensor.const import DEVICE_CLASS_STATE_CLASSES, DEVICE_CLASS_UNITS, SensorDeviceClass
from homeassistant.core import HomeAssistant
from homeassistant.helpers import frame

SCHEMAS = {"sensor": sensor.DISCOVERY_SCHEMA, "binary_sensor": binary_sensor.DISCOVERY_SCHEMA}


def check(topic: str, payload: dict[str, object]) -> None:
    """Raise for a message that Home Assistant would refuse or warn of."""
    _, rest = topic.split("/", 1)
    match = TOPIC_MATCHER.match(rest)
    assert match is not None, f"{topic}: no discovery topic"
    found = SCHEMAS[match["component"]](dict(payload))
    unknown = payload.keys() - found.keys() - {"options"}  # `options` came with 2024.12
    assert not unknown, f"{topic}: fields that are ignored: {unknown}"
    kind = payload.get("device_class")
    if match["component"] == "sensor" and kind is not None:
        kind = SensorDeviceClass(kind)
        units = DEVICE_CLASS_UNITS.get(kind, {None})
        assert payload.get("unit_of_measurement") in units, f"{topic}: {units}"
        states = DEVICE_CLASS_STATE_CLASSES.get(kind, set())
        assert payload.get("state_class") in {None, *states}, f"{topic}: {states}"


async def main() -> None:
    """Check all of them; newer schemas ask for a Home Assistant to complain to."""
    with tempfile.TemporaryDirectory() as folder:
        hass = HomeAssistant(folder)
        if setup := getattr(frame, "async_setup", None):
            setup(hass)
        for name, body in json.load(sys.stdin).items():
            check(name, body)
            print(name)


asyncio.run(main())
