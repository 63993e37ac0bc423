"""Shelly devices of the first generation: one number a topic, below `shellies/<id>/`.

Energy of relays and meters is in watt-minutes; `total` of an energy meter is in watt-hours.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from power.devices.wall_power import WallSource
from power.meters.base import Decoder, MqttConfig
from power.meters.sample import POLES, TRIPPED, WHOLE, MeterSample, bare, total

_WATT_MINUTE, _WATT_HOUR = 60.0, 3600.0
_RELAY = {"power": ("watts", 1.0), "energy": ("energy_joules", _WATT_MINUTE)}
_EMETER = {
    "power": ("watts", 1.0),
    "voltage": ("volts", 1.0),
    "current": ("amps", 1.0),
    "pf": ("power_factor", 1.0),
    "total": ("energy_joules", _WATT_HOUR),
}
_COUNTS = (("shellyem3", 3), ("shellyem", 2), ("shellyplug", 1), ("shelly1", 1), ("shellyswitch25", 2))
"""Number of a device's parts, by the prefix of its id."""
_PART = re.compile(r"/(relay|emeter)/(\d{1,2})(?:/(\w+))?$")


class ShellyGen1(MqttConfig, frozen=True, tag="shelly-gen1"):
    """A Shelly of the first generation. `topic` is `shellies/<id>`, or the id alone. Parts are `relay/0`,
    `emeter/1`, or `a`, `b`, `c` of a three-phase meter."""

    period_default = 30.0  # the device's own update_period

    @property
    def prefix(self) -> str:
        """The common prefix of its topics."""
        return self.topic if "/" in self.topic else f"shellies/{self.topic}"

    def decoder(self) -> Decoder:
        """Return a fresh decoder."""
        return ShellyGen1Decoder(self.prefix)


class ShellyGen1Decoder(Decoder):
    """Decoder that collects single numbers; a power value completes a sample."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._known: dict[str, MeterSample] = {}
        self._heard: Counter[str] = Counter()
        name = prefix.rpartition("/")[2]
        self._expected = next((n for start, n in _COUNTS if name.startswith(start)), None)

    def filters(self) -> tuple[str, ...]:
        """Return the topics of relays and clamps, their state, and the last will."""
        found = [f"{self._prefix}/online", f"{self._prefix}/relay/+"]
        found += [f"{self._prefix}/relay/+/{word}" for word in _RELAY]
        found += [f"{self._prefix}/emeter/+/{word}" for word in _EMETER]
        return tuple(found)

    def presence(self, topic: str, payload: bytes) -> bool | None:
        """Return the payload of the last will as a flag."""
        if topic != f"{self._prefix}/online":
            return None
        return payload.strip() == b"true"

    def samples(self, topic: str, payload: bytes) -> list[MeterSample]:
        """Return the part and the whole after a power value."""
        match = _PART.search(topic)
        if match is None:
            return []
        family, place, word = match[1], int(match[2]), match[3]
        channel = f"{family}/{place}"
        known = self._known.get(channel) or _new(family, place)
        if word is None:
            self._known[channel] = replace(known, flags=_state(payload))
            return []
        names = _RELAY if family == "relay" else _EMETER
        if word not in names:
            return []
        quantity, scale = names[word]
        changes: dict[str, Any] = {quantity: bare(payload, quantity, scale)}
        self._known[channel] = known = replace(known, **changes)
        if quantity != "watts":
            return []
        self._heard[channel] += 1
        return [known, *self._phases(known), *self._whole(family)]

    def forget(self) -> None:
        """Clear all known numbers."""
        self._known.clear()
        self._heard.clear()

    def _whole(self, family: str) -> list[MeterSample]:
        """Return the sum of all parts once all are known. Where their number is not known from the id, that
        is when each has reported twice."""
        names = [name for name in self._known if name.startswith(family) and self._heard[name]]
        parts = [self._known[name] for name in names]
        if len(parts) != self._expected and min(self._heard[name] for name in names) < 2:
            return []
        alone = len(parts) == 1
        return [
            MeterSample(
                channel=WHOLE,
                source=parts[0].source,
                parts=0 if alone else len(parts),
                watts=total(part.watts for part in parts),
                amps=parts[0].amps if alone else None,
                volts=parts[0].volts if alone else None,
                power_factor=parts[0].power_factor if alone else None,
                energy_joules=total(part.energy_joules for part in parts),
                flags=tuple({flag for part in parts for flag in part.flags}),
            )
        ]

    def _phases(self, part: MeterSample) -> list[MeterSample]:
        """Return a clamp as a pole of the whole meter, named by one letter."""
        if part.pole is None:
            return []
        letter = "abc"[POLES.index(part.pole)]
        return [replace(part, channel=letter, part_of=WHOLE, parts=self._expected or 0)]


def _new(family: str, place: int) -> MeterSample:
    if family == "relay":
        return MeterSample(channel=f"relay/{place}")
    pole = POLES[place] if place < len(POLES) else None
    return MeterSample(channel=f"emeter/{place}", pole=pole, source=WallSource.CIRCUIT_METER)


def _state(payload: bytes) -> tuple[str, ...]:
    """Return the flags of a relay's state: on, off or overpower."""
    return (TRIPPED,) if payload.strip() == b"overpower" else ()
