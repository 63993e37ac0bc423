"""Plugs behind Zigbee2MQTT: a JSON object of the device's state, energy in kWh."""

from __future__ import annotations

from power.meters.base import Decoder, MqttConfig
from power.meters.json_path import JsonDecoder, Value

_VALUES = (
    Value(path="power", unit="W"),
    Value(path="current", unit="A"),
    Value(path="voltage", unit="V"),
    Value(path="energy", unit="kWh"),
    Value(path="power_factor", unit="pf"),
)


class Zigbee2Mqtt(MqttConfig, frozen=True, tag="zigbee2mqtt"):
    """A device behind Zigbee2MQTT. `topic` is `zigbee2mqtt/<name>`, or the friendly name alone."""

    @property
    def state(self) -> str:
        """The topic of the state."""
        return self.topic if "/" in self.topic else f"zigbee2mqtt/{self.topic}"

    def decoder(self) -> Decoder:
        """Return a fresh decoder."""
        return Zigbee2MqttDecoder(self.state)


class Zigbee2MqttDecoder(JsonDecoder):
    """Decoder of the device's state and availability."""

    def __init__(self, state: str) -> None:
        super().__init__(state, _VALUES, partial=True)
        self._reached = f"{state}/availability"

    def filters(self) -> tuple[str, ...]:
        """Return the topics of state and availability."""
        return (*super().filters(), self._reached)

    def presence(self, topic: str, payload: bytes) -> bool | None:
        """Return whether the availability is `online`, or `{"state": "online"}` since 2.0."""
        return b"online" in payload if topic == self._reached else None
