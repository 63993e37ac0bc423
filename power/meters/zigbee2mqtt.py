"""Plugs behind Zigbee2MQTT: one JSON of the device's state, energy in kWh."""

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
    """`topic` is `zigbee2mqtt/<name>`, or the device's friendly name alone."""

    @property
    def state(self) -> str:
        """The topic of the state."""
        return self.topic if "/" in self.topic else f"zigbee2mqtt/{self.topic}"

    def decoder(self) -> Decoder:
        """Return a fresh decoder."""
        return Zigbee2MqttDecoder(self.state)


class Zigbee2MqttDecoder(JsonDecoder):
    """The state, and whether the bridge reaches the device."""

    def __init__(self, state: str) -> None:
        super().__init__(state, _VALUES, partial=True)
        self._reached = f"{state}/availability"

    def filters(self) -> tuple[str, ...]:
        """The state and, where it is switched on, the availability."""
        return (*super().filters(), self._reached)

    def presence(self, topic: str, payload: bytes) -> bool | None:
        """`online`, or `{"state": "online"}` since 2.0."""
        return b"online" in payload if topic == self._reached else None
