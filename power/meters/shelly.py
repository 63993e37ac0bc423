"""Shelly devices of the second generation and newer: components with partial or full status.

`<prefix>/events/rpc` carries NotifyStatus with changed fields only, which are merged into the known
status; `<prefix>/status/<component>` carries a whole component (off by default); a request on
`<prefix>/rpc` is answered with a whole component, too. Energy is in watt-hours.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from power.devices.wall_power import WallSource
from power.meters.base import Decoder, MqttConfig
from power.meters.sample import POLES, TRIPPED, WHOLE, MeterSample, mean, number, of_poles, parse, table, total
from telemetry.errors import ConfigError, WireError

_WATT_HOUR = 3600.0
_COMPONENT = re.compile(r"(switch|pm1|em1|em|cover|light):(\d{1,3})")
_DATA = re.compile(r"(em1?)data:(\d{1,3})")
"""Energy of clamps is a component of its own: `emdata:0` belongs to `em:0`."""
_METHODS = {"switch": "Switch", "pm1": "PM1", "em1": "EM1", "em": "EM", "cover": "Cover", "light": "Light"}
_CLAMPS = {"em", "em1"}
_PHASES = tuple(zip("abc", POLES, strict=True))
_CUT_OFF = {"overpower", "overcurrent"}


class Shelly(MqttConfig, frozen=True, tag="shelly"):
    """A Shelly of the second generation. `topic` is its MQTT prefix (`shellyplusplugs-abc123`). Parts are components,
    `switch:0`, and the phases `a`, `b`, `c` of a three-phase meter."""

    component: str | None = None
    """Component that counts as the whole: `switch:1`. [the sum of all]"""
    poll: bool = True
    """Whether to poll each period, because a constant load is not published."""

    period_default: ClassVar[float] = 10.0

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        super().check(where)
        if self.component is not None and not _COMPONENT.fullmatch(self.component):
            raise ConfigError(
                f"{where}.component",
                f"{self.component!r} is no component",
                "Write switch:0, pm1:0, em:0 or em1:0, as the device's page shows it.",
            )

    def components(self) -> list[str]:
        """Return the components to poll; empty for all."""
        named = [self.component] if self.component else []
        named += [match[0] for key in self.map if (match := _COMPONENT.match(key))]
        if {"a", "b", "c"} & self.map.keys():
            named.append("em:0")
        return sorted(set(named))

    def decoder(self) -> Decoder:
        """Return a fresh decoder."""
        return ShellyDecoder(self.topic.rstrip("/"), self.component, self.components(), self.poll)


class ShellyDecoder(Decoder):
    """Decoder that merges each message into the known status of its component."""

    def __init__(self, prefix: str, main: str | None, asked: list[str] | None = None, poll: bool = True) -> None:
        self._prefix = prefix
        self._main = main
        self._asked = asked or []
        self._poll = poll
        self._known: dict[str, dict[str, Any]] = {}
        self._heard: Counter[str] = Counter()
        self._complete = False

    def filters(self) -> tuple[str, ...]:
        """Return the topics of notifications, whole components and the last will."""
        return tuple(f"{self._prefix}/{end}" for end in ("events/rpc", "status/+", "online"))

    def presence(self, topic: str, payload: bytes) -> bool | None:
        """Return the payload of the last will as a flag."""
        if topic != f"{self._prefix}/online":
            return None
        return payload.strip() == b"true"

    def forget(self) -> None:
        """Clear all known status: changes while the device was away were missed."""
        self._known.clear()
        self._heard.clear()
        self._complete = False

    def polls(self, reply: str) -> list[tuple[str, bytes]]:
        """Return a request for each component, or for all; the id relates an answer to its request."""
        if not self._poll:
            return []
        questions: list[dict[str, Any]] = [
            {
                "id": place + 1,
                "src": reply,
                "method": f"{_METHODS[name.partition(':')[0]]}.GetStatus",
                "params": {"id": int(name.partition(":")[2])},
            }
            for place, name in enumerate(self._asked)
        ] or [{"id": 0, "src": reply, "method": "Shelly.GetStatus"}]
        return [(f"{self._prefix}/rpc", msgspec.json.encode(one)) for one in questions]

    def samples(self, topic: str, payload: bytes) -> list[MeterSample]:
        """Return the samples of the components that a message updates."""
        message = table(parse(payload), "the message")
        place = topic.removeprefix(f"{self._prefix}/status/")
        if place != topic:
            return self._apply({place: message}, full=True)
        if topic == f"{self._prefix}/events/rpc":
            method = str(message.get("method"))
            if method not in {"NotifyStatus", "NotifyFullStatus"}:
                return []
            full = method == "NotifyFullStatus"
            self._complete |= full
            return self._apply(table(message.get("params"), "params"), full=full)
        if "error" in message:
            raise WireError("refused", f"{message['error']!r:.200}")
        answer = table(message.get("result"), "result")
        asked = message.get("id")
        if asked == 0:
            self._complete = True
            return self._apply(answer, full=True)
        if not isinstance(asked, int) or not 1 <= asked <= len(self._asked):
            raise WireError("unasked", f"an answer to question {asked!r:.40}")
        return self._apply({self._asked[asked - 1]: answer}, full=True)

    def _apply(self, components: dict[str, Any], *, full: bool) -> list[MeterSample]:
        changed: set[str] = set()
        for name, state in components.items():
            match = _COMPONENT.fullmatch(name)
            data = _DATA.fullmatch(name)
            if match is None and data is None:
                continue  # Wi-Fi, the clock, a button
            new = table(state, name)
            _check(name, new)
            self._known[name] = new if full else {**self._known.get(name, {}), **new}
            if match is not None:
                self._heard[name] += 1
                changed.add(name)
        found = [one for name in sorted(changed) for one in self._component(name)]
        return [*found, *self._whole()] if found else []

    def _component(self, name: str) -> list[MeterSample]:
        family, _, number_ = name.partition(":")
        state = self._known[name]
        energy = self._known.get(f"{family}data:{number_}", {})
        if family == "em":
            return [one for one in of_three(name, state, energy) if not one.empty]
        one = of_one(name, state, energy)
        return [] if one.empty else [one]

    def _whole(self) -> list[MeterSample]:
        """Return the component that is the whole, or the sum of all once all are known."""
        names = [name for name in self._known if name in self._heard]
        if self._main is not None:
            names = [name for name in names if name == self._main]
        elif not self._complete and min(self._heard[name] for name in names) < 2:
            return []
        parts = {name: self._component(name) for name in names}
        wholes = [samples[0] for samples in parts.values() if samples]
        if not wholes:
            return []
        if len(wholes) > 1:
            clamps = all(name.startswith("em1:") for name in names)
            phases = [replace(parts[name][0], channel=f"{name}.pole") for name in sorted(names) if parts[name]]
            return [_sum(wholes), *(of_poles(phases) if clamps else [])]
        poles = [
            replace(one, part_of=WHOLE, channel=one.channel.partition(".")[2])
            for samples in parts.values()
            for one in samples[1:]
        ]
        return [replace(wholes[0], channel=WHOLE), *poles]


def _sum(parts: list[MeterSample]) -> MeterSample:
    return MeterSample(
        channel=WHOLE,
        parts=len(parts),
        source=parts[0].source,
        watts=total(one.watts for one in parts),
        volt_amps=total(one.volt_amps for one in parts),
        amps=total(one.amps for one in parts),
        volts=mean(one.volts for one in parts),
        energy_joules=total(one.energy_joules for one in parts),
        flags=tuple({flag: None for one in parts for flag in one.flags}),
    )


def _check(name: str, state: dict[str, Any]) -> None:
    """Raise `WireError` before a state is kept that no sample can be made of."""
    if name.startswith("em:"):
        of_three(name, state, {})
    elif _COMPONENT.fullmatch(name):
        of_one(name, state, {})
    else:
        for key in ("total_act", "total_act_energy"):
            number(state.get(key), "energy_joules", _WATT_HOUR)


def of_one(name: str, state: dict[str, Any], energy: dict[str, Any]) -> MeterSample:
    """Return a relay, a meter in a line, or one clamp."""
    clamp = name.partition(":")[0] in _CLAMPS
    counter = state.get("aenergy")
    joules = energy.get("total_act_energy") if counter is None else table(counter, "aenergy").get("total")
    return MeterSample(
        channel=name,
        source=WallSource.CIRCUIT_METER if clamp else None,
        watts=number(state.get("act_power" if clamp else "apower"), "watts"),
        volt_amps=number(state.get("aprt_power" if clamp else "aprtpower"), "volt_amps"),
        amps=number(state.get("current"), "amps"),
        volts=number(state.get("voltage"), "volts"),
        power_factor=number(state.get("pf"), "power_factor"),
        energy_joules=number(joules, "energy_joules", _WATT_HOUR),
        flags=_flags(state.get("errors")),
    )


def of_three(name: str, state: dict[str, Any], energy: dict[str, Any]) -> list[MeterSample]:
    """Return a three-phase meter as a whole, then its phases."""
    whole = MeterSample(
        channel=name,
        source=WallSource.CIRCUIT_METER,
        watts=number(state.get("total_act_power"), "watts"),
        volt_amps=number(state.get("total_aprt_power"), "volt_amps"),
        neutral_amps=number(state.get("n_current"), "neutral_amps"),
        energy_joules=number(energy.get("total_act"), "energy_joules", _WATT_HOUR),
        flags=_flags(state.get("errors")),
    )
    phases = [
        MeterSample(
            channel=f"{name}.{letter}",
            part_of=name,
            pole=pole,
            source=WallSource.CIRCUIT_METER,
            watts=number(state.get(f"{letter}_act_power"), "watts"),
            volt_amps=number(state.get(f"{letter}_aprt_power"), "volt_amps"),
            amps=number(state.get(f"{letter}_current"), "amps"),
            volts=number(state.get(f"{letter}_voltage"), "volts"),
            power_factor=number(state.get(f"{letter}_pf"), "power_factor"),
            energy_joules=number(energy.get(f"{letter}_total_act_energy"), "energy_joules", _WATT_HOUR),
        )
        for letter, pole in _PHASES
    ]
    return [whole, *phases]


def _flags(errors: object) -> tuple[str, ...]:
    """Return the flags of a component's errors; a failed meter reports null values and needs no flag."""
    if not isinstance(errors, list):
        return ()
    return (TRIPPED,) if _CUT_OFF & {str(error) for error in errors} else ()
