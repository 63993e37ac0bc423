"""Redfish: a server's management controller, or a rack's power distribution unit.

Each resource has a type, and is decoded by it. Sensors are in excerpts: the number is in
`Reading`. A circuit's `RatedCurrentAmps` is after derating.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from power.devices.wall_power import WallSource
from power.meters.base import Kind, MeterConfig
from power.meters.sample import INPUT_LOST, POLES, TRIPPED, MeterSample, filled, number, table, total
from telemetry.errors import ConfigError, WireError
from telemetry.notations.redfish import ROOT, part, parts, type_of

EQUIPMENT = f"{ROOT}/PowerEquipment"
_KWH = 3.6e6
_LINES = tuple((f"Line{place + 1}", pole) for place, pole in enumerate(POLES))


class Redfish(MeterConfig, frozen=True, tag="redfish"):
    """A Redfish service at `url`, or one on each of `hosts`, the controllers of nodes.

    Parts are paths below /redfish/v1/PowerEquipment, `RackPDUs/1/Branches/A`, or whole paths.
    """

    url: str | None = None
    """URL of one service, `https://bmc.example`."""
    hosts: tuple[str, ...] | dict[str, str] = ()
    """Nodes whose controllers are asked: names that are hosts too, or { node = "https://..." }."""
    scope: Literal["node"] | None = None
    """Kind of target of `hosts`; only `node` is possible."""
    path: str | None = None
    """The chassis or resource with the power reading. [discovered]"""
    username: str | None = None
    """User, with `password_file`."""
    password_file: str | None = None
    """A file with the password alone."""
    login: Literal["basic", "session"] = "basic"
    """Whether each request carries the password, or a session is opened."""
    verify: bool = True
    """Whether the certificate must be one that this machine trusts."""
    ca_file: str | None = None
    """Certificates to trust in addition to those of this machine."""
    timeout: float = 10.0
    """Seconds for one whole round of requests."""

    period_default: ClassVar[float] = 10.0

    def services(self) -> dict[str, str]:
        """Return the base URL of each service by the node it represents; "" for `url`."""
        if self.url is not None:
            return {"": self.url.rstrip("/")}
        if isinstance(self.hosts, dict):
            return {node: url.rstrip("/") for node, url in self.hosts.items()}
        return {node: f"https://{node}" for node in self.hosts}

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        super().check(where)
        if (self.url is None) == (not self.hosts):
            raise ConfigError(
                where,
                "it has neither url nor hosts" if self.url is None else "it has url and hosts",
                'Write url = "https://10.0.0.11", or hosts = ["dgx-01"].',
            )
        if self.hosts and (self.on is not None or self.map):
            raise ConfigError(
                where, "hosts name the nodes already; on and map repeat them", "Remove on and map, or write url."
            )
        for node, url in self.services().items():
            check_url(f"{where}.{f'hosts.{node}' if node else 'url'}", url)
        for key in [*self.map, *([self.path] if self.path is not None else [])]:
            path_of(f"{where}.{'map' if key in self.map else 'path'}", key)
        if (self.password_file is None) != (self.username is None):
            raise ConfigError(where, "a login needs username and password_file", "Write both or neither.")
        if ":" in (self.username or ""):
            raise ConfigError(f"{where}.username", "a name can't hold a colon", "Write the name alone.")
        if not 0.1 <= self.timeout <= 60:
            raise ConfigError(f"{where}.timeout", f"{self.timeout:g} s is out of range", "Write 0.1 to 60.")

    def usual_source(self, kind: Kind) -> WallSource:
        """Return `BMC` for a node, `PDU` otherwise."""
        return WallSource.BMC if kind == "node" else WallSource.PDU


def check_url(where: str, url: str) -> None:
    """Raise `ConfigError` unless `url` is the base of a service."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment:
        raise ConfigError(where, f"{url!r} is no address of a service", 'Write "https://10.0.0.11".')
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            where, "it holds a name or a password, and would be logged with them", "Write username and password_file."
        )


def path_of(where: str, key: str) -> str:
    """Return the whole path of a part. Raises `ConfigError`."""
    path = key if key.startswith("/") else f"{EQUIPMENT}/{key}"
    if not re.fullmatch(r"/redfish/[\w.~%+:@()/-]+", path) or ".." in path:
        raise ConfigError(where, f"{key!r} is no path", 'Write "RackPDUs/1/Branches/A" or "/redfish/v1/Chassis/1".')
    return path.rstrip("/")


def reading(body: dict[str, Any], key: str, quantity: str, scale: float = 1.0) -> float | None:
    """Return a number, bare or in a sensor's excerpt."""
    value = body.get(key)
    if isinstance(value, dict):
        value = value.get("Reading")
    return number(value, quantity, scale)


def of_resource(channel: str, body: dict[str, Any]) -> list[MeterSample]:
    """Return the power samples of a resource. Raises `WireError` for one without power readings."""
    kind = type_of(body)
    decode = DECODERS.get(kind)
    if decode is None:
        raise WireError("unknown_type", f"a {kind or 'nameless'} resource has no power reading")
    return [one for one in decode(channel, body) if not one.empty]


def _circuit(channel: str, body: dict[str, Any]) -> list[MeterSample]:
    """Return the samples of a main, branch, feeder or outlet."""
    power = body.get("PowerWatts")
    excerpt = power if isinstance(power, dict) else {}
    whole = MeterSample(
        channel=channel,
        source=WallSource.PDU,
        watts=reading(body, "PowerWatts", "watts"),
        volt_amps=number(excerpt.get("ApparentVA"), "volt_amps"),
        power_factor=number(excerpt.get("PowerFactor"), "power_factor"),
        amps=reading(body, "CurrentAmps", "amps"),
        volts=reading(body, "Voltage", "volts"),
        neutral_amps=reading(part(body, "PolyPhaseCurrentAmps"), "Neutral", "neutral_amps"),
        energy_joules=reading(body, "EnergykWh", "energy_joules", _KWH),
        flags=(TRIPPED,) if body.get("BreakerState") == "Tripped" else (),
    )
    amps, volts, watts = (part(body, f"PolyPhase{word}") for word in ("CurrentAmps", "Voltage", "PowerWatts"))
    poles = [
        MeterSample(
            channel=f"{channel}.{pole}",
            part_of=channel,
            pole=pole,
            source=WallSource.PDU,
            watts=reading(watts, f"{line}ToNeutral", "watts"),
            amps=reading(amps, line, "amps"),
            volts=reading(volts, f"{line}ToNeutral", "volts"),
        )
        for line, pole in _LINES
    ]
    return [whole, *poles]


def _environment(channel: str, body: dict[str, Any]) -> list[MeterSample]:
    return [
        MeterSample(
            channel=channel,
            watts=reading(body, "PowerWatts", "watts"),
            energy_joules=reading(body, "EnergykWh", "energy_joules", _KWH),
        )
    ]


def _distribution(channel: str, body: dict[str, Any]) -> list[MeterSample]:
    """Return the sample of a whole unit's PowerDistributionMetrics."""
    return [replace(one, source=WallSource.PDU) for one in _environment(channel, body)]


def _old_power(channel: str, body: dict[str, Any]) -> list[MeterSample]:
    """Return the sample of `Chassis/x/Power`, which older services have in place of PowerSubsystem."""
    controls = body.get("PowerControl")
    reported = [table(one, "PowerControl") for one in controls] if isinstance(controls, list) else []
    # Some services list CPU and memory after the chassis: the first entry is the whole.
    watts = number(reported[0].get("PowerConsumedWatts"), "watts") if reported else None
    flags = _lost(parts(body, "PowerSupplies"))
    return [MeterSample(channel=channel, watts=watts, flags=flags)]


def _supply_metrics(channel: str, body: dict[str, Any]) -> list[MeterSample]:
    return [
        MeterSample(
            channel=channel,
            watts=reading(body, "InputPowerWatts", "watts"),
            amps=reading(body, "InputCurrentAmps", "amps"),
            volts=reading(body, "InputVoltage", "volts"),
            energy_joules=reading(body, "EnergykWh", "energy_joules", _KWH),
        )
    ]


def _sensor(channel: str, body: dict[str, Any]) -> list[MeterSample]:
    quantity = {"Power": "watts", "Current": "amps", "Voltage": "volts"}.get(str(body.get("ReadingType")))
    if quantity is None:
        raise WireError("unknown_type", f"a sensor of {body.get('ReadingType')!r:.40} has no power reading")
    return [filled(channel, {quantity: number(body.get("Reading"), quantity)})]


DECODERS: dict[str, Callable[[str, dict[str, Any]], list[MeterSample]]] = {
    "Circuit": _circuit,
    "Outlet": _circuit,
    "EnvironmentMetrics": _environment,
    "PowerDistributionMetrics": _distribution,
    "Power": _old_power,
    "PowerSupplyMetrics": _supply_metrics,
    "Sensor": _sensor,
}
"""Decoders by type of resource."""


def of_supplies(channel: str, supplies: list[dict[str, Any]], metrics: list[list[MeterSample]]) -> MeterSample:
    """Return a chassis as the sum of its supplies' inputs; a supply without input draws nothing."""
    reported = [samples[0].watts if samples else None for samples in metrics]
    dark = [bool(_lost([supply])) for supply in supplies]
    watts = total(0.0 if lost and one is None else one for one, lost in zip(reported, dark, strict=True))
    return MeterSample(channel=channel, watts=watts, flags=_lost(supplies))


def _lost(supplies: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the flag of a supply without input, where it reports LineInputStatus."""
    return (INPUT_LOST,) if any(one.get("LineInputStatus") == "LossOfInput" for one in supplies) else ()
