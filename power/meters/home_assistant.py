"""Sensors that Home Assistant publishes with its MQTT statestream: a bare number a topic."""

from __future__ import annotations

from power.meters.base import Decoder, MqttConfig, check_topic
from power.meters.json_path import ABSENT, UNITS
from power.meters.sample import WHOLE, MeterSample, bare, filled
from telemetry.errors import ConfigError


class HomeAssistant(MqttConfig, frozen=True, tag="home-assistant"):
    """`topic` is the power sensor's (`homeassistant/sensor/rig_power/state`); the others are those of
    its sisters, if it has any."""

    unit: str = "W"
    """Unit of the power, `W` or `kW`."""
    current: str | None = None
    """Topic of the current in A."""
    voltage: str | None = None
    """Topic of the voltage in V."""
    energy: str | None = None
    """Topic of the energy in kWh."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for what can't work."""
        super().check(where)
        if self.unit not in {"W", "kW"}:
            raise ConfigError(
                f"{where}.unit", f"{self.unit!r} is no unit of power", "Write W or kW, as the sensor has it."
            )
        for name in ("current", "voltage", "energy"):
            topic = getattr(self, name)
            if topic is not None:
                check_topic(f"{where}.{name}", topic)

    def decoder(self) -> Decoder:
        """Return a fresh decoder."""
        topics = {self.topic: self.unit, self.current: "A", self.voltage: "V", self.energy: "kWh"}
        return HomeAssistantDecoder({topic: unit for topic, unit in topics.items() if topic})


class HomeAssistantDecoder(Decoder):
    """Decoder that collects single numbers; a power value completes a sample."""

    def __init__(self, topics: dict[str, str]) -> None:
        self._topics = {topic: UNITS[unit] for topic, unit in topics.items()}
        self._main = next(iter(topics))
        self._known: dict[str, float | None] = {}

    def filters(self) -> tuple[str, ...]:
        """Return the topics of all sensors."""
        return tuple(self._topics)

    def forget(self) -> None:
        """Clear all known numbers."""
        self._known.clear()

    def samples(self, topic: str, payload: bytes) -> list[MeterSample]:
        """Return the known quantities after a power value."""
        quantity, scale = self._topics[topic]
        if payload.strip().lower() in ABSENT:
            self._known.pop(quantity, None)
            return []
        self._known[quantity] = bare(payload, quantity, scale)
        return [filled(WHOLE, self._known)] if topic == self._main else []
