"""Base classes of meters: settings, attachments, and the decoder of a meter on MQTT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from power.devices.wall_power import WallSource
from power.meters.sample import MeterSample
from telemetry.errors import ConfigError
from telemetry.text import parse_duration

Kind = Literal["circuit", "node", "ups"]


class MeterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """The settings of one meter. `on` or `map` names what it measures."""

    on: str | None = None
    """The circuit, node or UPS that it measures as a whole: `office`, `R12-A.L1`, `node:rig1`."""
    map: dict[str, str] = {}
    """Its parts, and what each measures: `{ a = "R12-A.L1", b = "R12-A.L2" }`."""
    every: float | str | None = None
    """Seconds between two readings, 10 or "10s". [polled that often, or learnt where it publishes]"""
    source: WallSource | None = None
    """Rank of its readings: `circuit meter`, `pdu`, `plug`, `bmc`, `ups`. [by its type]"""
    limit_watts: float | None = None
    """The plug's own limit: it cuts off by itself."""
    limit_amps: float | None = None
    """The same in amps."""

    period_default: ClassVar[float] = 10.0

    @property
    def period(self) -> float:
        """Seconds between two readings as configured, or the type's usual."""
        return self.period_default if self.every is None else seconds("", self.every)

    def source_of(self, kind: Kind, sample: MeterSample) -> WallSource:
        """Return the source, and so the rank, of a reading of this sample."""
        return self.source or sample.source or self.usual_source(kind)

    def usual_source(self, kind: Kind) -> WallSource:
        """Return the rank of this type of meter."""
        raise NotImplementedError

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        if self.on is not None and self.map:
            raise ConfigError(where, "it has on and map", "Keep one: on for the whole meter, map for its parts.")
        if self.every is not None and not 1 <= seconds(f"{where}.every", self.every) <= 3600:
            raise ConfigError(
                f"{where}.every", f"{self.every} is out of range", "Write 1 to 3600 seconds; 10 is usual."
            )
        if self.source in {WallSource.MODEL, WallSource.COMMITTED}:
            raise ConfigError(f"{where}.source", f"{self.source.value!r} is no meter", "Remove it, or write plug.")
        for name in ("limit_watts", "limit_amps"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(
                    f"{where}.{name}", f"{value:g} is no limit", "Write what is printed on the plug, or remove it."
                )


@dataclass(frozen=True, slots=True)
class Attachment:
    """Attachment of a part of a meter to its target."""

    channel: str
    """The part; "" is the whole meter."""
    kind: Kind
    target: str
    pole: str | None = None


@dataclass(frozen=True, slots=True)
class AttachedMeter:
    """A meter with its attachments."""

    name: str
    """Entry of [power.meters], followed by the node where it has many; or `circuits.lab` for a short form
    there."""
    config: MeterConfig
    attachments: tuple[Attachment, ...]


class Decoder:
    """Decoder of one MQTT meter's messages; completes partial ones from earlier ones."""

    def filters(self) -> tuple[str, ...]:
        """Return the topic filters to subscribe to."""
        raise NotImplementedError

    def presence(self, topic: str, payload: bytes) -> bool | None:
        """Return whether the device reports itself online; None for any other message."""
        del topic, payload
        return None

    def samples(self, topic: str, payload: bytes) -> list[MeterSample]:
        """Return the samples of a message; none when it has no power reading. Raises `WireError`."""
        raise NotImplementedError

    def forget(self) -> None:
        """Clear the known state: the device was away and may have changed."""

    def polls(self, reply: str) -> list[tuple[str, bytes]]:
        """Return topic and payload of each request that polls the device.

        Answers are published below the topic `reply`.
        """
        del reply
        return []


class MqttConfig(MeterConfig, frozen=True):
    """A meter that publishes over MQTT."""

    topic: str
    """Its topic; see the text above the table."""
    broker: str | None = None
    """Name of an entry of [power.brokers]. [`meter_broker`, else kilowatch's own]"""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        super().check(where)
        check_topic(f"{where}.topic", self.topic)

    def decoder(self) -> Decoder:
        """Return a fresh decoder."""
        raise NotImplementedError

    def usual_source(self, kind: Kind) -> WallSource:
        """Return `PLUG`, unless the type of meter overrides it."""
        del kind
        return WallSource.PLUG


def check_topic(where: str, topic: str) -> None:
    """Raise `ConfigError` unless `topic` is the topic of one device."""
    if not topic.strip("/") or "\0" in topic or len(topic) > 1000:
        raise ConfigError(
            where, f"{topic!r} is no topic", "Write the one that the device publishes, as mosquitto_sub -v shows it."
        )
    if "+" in topic or "#" in topic:
        raise ConfigError(
            where, f"{topic!r} has a wildcard", "Write one device's topic; each device is a meter of its own."
        )


def seconds(where: str, value: float | str) -> float:
    """Return seconds of 5, "5s" or "2m". Raises `ConfigError`."""
    if isinstance(value, str):
        parsed = parse_duration(value)
        if parsed is None:
            raise ConfigError(where, f"{value!r} is no time", 'Write 10 or "10s".')
        return parsed
    return float(value)
