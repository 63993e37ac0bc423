"""Tasmota plugs and meters: a JSON object of sensors every TelePeriod.

Energy is in kWh; a device with several channels sends lists. `Time` is the device's clock without a
zone, so the time of arrival counts instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from power.meters.base import Decoder, MqttConfig
from power.meters.sample import WHOLE, MeterSample, filled, mean, number, of_poles, parse, table, total
from telemetry.errors import WireError

_KWH = 3.6e6
_KEYS = {
    "watts": ("Power", 1.0),
    "volt_amps": ("ApparentPower", 1.0),
    "amps": ("Current", 1.0),
    "volts": ("Voltage", 1.0),
    "power_factor": ("Factor", 1.0),
    "energy_joules": ("Total", _KWH),
}


class Tasmota(MqttConfig, frozen=True, tag="tasmota"):
    """A Tasmota device. `topic` is the whole topic (`tele/plug-lab/SENSOR`), or the device's name alone.
    Parts are its channels: `1`, `2`, as in POWER1 and POWER2."""

    @property
    def sensor(self) -> str:
        """The topic of the readings."""
        return self.topic if "/" in self.topic else f"tele/{self.topic}/SENSOR"

    def decoder(self) -> Decoder:
        """Return a fresh decoder."""
        return TasmotaDecoder(self.sensor)


class TasmotaDecoder(Decoder):
    """Decoder of complete messages, without state."""

    def __init__(self, sensor: str) -> None:
        self._sensor = sensor
        self._will = f"{sensor.rpartition('/')[0]}/LWT"

    def filters(self) -> tuple[str, ...]:
        """Return the topics of readings and the last will."""
        return (self._sensor, self._will)

    def presence(self, topic: str, payload: bytes) -> bool | None:
        """Return whether the last will is Online."""
        if topic != self._will:
            return None
        return payload.strip() == b"Online"

    def samples(self, topic: str, payload: bytes) -> list[MeterSample]:
        """Return the whole meter, then its channels where there are several."""
        del topic
        reported = table(parse(payload), "the message")
        energy = reported.get("ENERGY")
        if energy is None:
            return []  # a temperature, a button: nothing of power
        return of_energy(table(energy, "ENERGY"))


def of_energy(energy: dict[str, Any]) -> list[MeterSample]:
    """Return the samples of an `ENERGY` object. Raises `WireError`."""
    reported = {quantity: _numbers(energy.get(key), key, quantity, scale) for quantity, (key, scale) in _KEYS.items()}
    lists = [value for value in reported.values() if isinstance(value, list)]
    count = max(map(len, lists), default=0)
    if any(len(value) != count for value in lists):
        raise WireError("bad_shape", "its lists have different lengths")
    channels = [
        filled(str(place + 1), {name: _part(name, value, place) for name, value in reported.items()})
        for place in range(count)
    ]
    whole = filled(WHOLE, {name: _whole(name, value) for name, value in reported.items()})
    return [replace(whole, parts=count if count > 1 else 0), *of_poles(channels)]


Reported = float | list[float | None] | None


def _numbers(value: object, key: str, quantity: str, scale: float) -> Reported:
    if not isinstance(value, list):
        return number(value, quantity, scale)
    if len(value) > 64:
        raise WireError("bad_shape", f"{key} is a list of {len(value)}")
    return [number(one, quantity, scale) for one in value]


def _part(quantity: str, reported: Reported, place: int) -> float | None:
    """Return a channel's value. Beside lists, a single number is shared by all channels (volts), or the
    sum of all, which belongs to none."""
    if isinstance(reported, list):
        return reported[place]
    return reported if quantity == "volts" else None


def _whole(quantity: str, reported: Reported) -> float | None:
    if not isinstance(reported, list):
        return reported
    if quantity == "power_factor":
        return reported[0] if len(reported) == 1 else None
    return mean(reported) if quantity == "volts" else total(reported)
