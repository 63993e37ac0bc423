"""Attachment of meters: configured names, checked against circuits, nodes and UPSs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from power.meters.base import AttachedMeter, Attachment, Kind, MeterConfig, MqttConfig
from power.meters.config import short_form
from power.meters.nut import Nut
from power.meters.redfish import Redfish
from power.meters.sample import POLES, WHOLE
from power.site.config import PowerConfig
from telemetry.errors import ConfigError, did_you_mean

KINDS: tuple[Kind, ...] = ("circuit", "node", "ups")


def attach(where: str, site: PowerConfig) -> tuple[AttachedMeter, ...]:
    """Return all meters of a site. Raises `ConfigError` with place and cure."""
    if site.meter_broker is not None and site.meter_broker not in site.brokers:
        raise _no_broker(f"{where}: meter_broker", site.meter_broker, site)
    found = [
        each for name, meter in site.meters.items() for each in _entry(f"{where}: meters.{name}", name, meter, site)
    ]
    found += _short_forms(where, site)
    _check_once(where, found)
    return tuple(found)


def _no_broker(place: str, name: str, site: PowerConfig) -> ConfigError:
    cure = did_you_mean(name, site.brokers) or f"Write [power.brokers.{name}] and its host."
    return ConfigError(place, f"there is no broker {name!r}", cure)


def _entry(place: str, name: str, meter: MeterConfig, site: PowerConfig) -> list[AttachedMeter]:
    if isinstance(meter, MqttConfig) and meter.broker is not None and meter.broker not in site.brokers:
        raise _no_broker(f"{place}.broker", meter.broker, site)
    if isinstance(meter, Redfish) and meter.hosts:
        for node in meter.hosts:
            _known(f"{place}.hosts", "node", node, site)
        return [
            AttachedMeter(
                f"{name}.{node}", msgspec.structs.replace(meter, hosts={}, url=url), (Attachment(WHOLE, "node", node),)
            )
            for node, url in meter.services().items()
        ]
    texts = {WHOLE: meter.on} if meter.on is not None else meter.map
    attachments = [_put(f"{place}.{'map.' + part if part else 'on'}", part, text, site) for part, text in texts.items()]
    attachments += _named_by(name, site)
    if not attachments and not isinstance(meter, Nut):
        raise ConfigError(
            f"{place}.on", "it is on nothing", f'Write on = "the circuit", or meter = "{name}" on the circuit.'
        )
    return [AttachedMeter(name, meter, tuple(attachments))]


def _named_by(name: str, site: PowerConfig) -> list[Attachment]:
    """Return the circuits and nodes that name a meter: `meter = "plug-lab"`."""
    found = [Attachment(WHOLE, "circuit", key) for key, one in site.circuits.items() if one.meter == name]
    found += [Attachment(WHOLE, "node", key) for key, one in site.nodes.items() if one.meter == name]
    return found


def _short_forms(where: str, site: PowerConfig) -> Iterator[AttachedMeter]:
    written = [("circuits", key, one.meter) for key, one in site.circuits.items()]
    written += [("nodes", key, one.meter) for key, one in site.nodes.items()]
    for section, key, text in written:
        if text is None or text in site.meters:
            continue
        place = f"{where}: {section}.{key}.meter"
        if ":" not in text:
            raise ConfigError(
                place,
                f"there is no meter {text!r}",
                did_you_mean(text, site.meters)
                or f'Write [power.meters.{text}], or a short form: "tasmota:tele/plug/SENSOR".',
            )
        kind: Kind = "circuit" if section == "circuits" else "node"
        config = short_form(place, text, f"{kind}:{key}")
        channel = next(iter(config.map), WHOLE)
        yield AttachedMeter(f"{section}.{key}", config, (Attachment(channel, kind, key),))


def _put(place: str, channel: str, text: str, site: PowerConfig) -> Attachment:
    kind, colon, name = text.partition(":")
    if colon and kind in KINDS:
        return _resolve(place, channel, kind, name, site)
    kinds = [one for one in KINDS if _split(one, text, site) is not None]
    if len(kinds) > 1:
        raise ConfigError(
            place, f"{text!r} is a {' and a '.join(kinds)}", f'Write "{kinds[0]}:{text}" or "{kinds[1]}:{text}".'
        )
    if kinds:
        return _resolve(place, channel, kinds[0], text, site)
    names = [*site.circuits, *_nodes(site), *site.ups]
    raise ConfigError(
        place,
        f"there is no circuit, node or UPS {text!r}",
        did_you_mean(text, names) or f"Known: {', '.join(names) or 'none'}.",
    )


def _resolve(place: str, channel: str, kind: str, text: str, site: PowerConfig) -> Attachment:
    checked: Kind = next(one for one in KINDS if one == kind)
    split = _split(checked, text, site)
    if split is None:
        _known(place, checked, text, site)
        raise AssertionError  # the line above raises
    return Attachment(channel, checked, *split)


def _split(kind: Kind, text: str, site: PowerConfig) -> tuple[str, str | None] | None:
    """Return name and pole of `R12-A.L1`; None when there is no such thing."""
    names = _names(kind, site)
    if text in names:
        return text, None
    name, dot, pole = text.rpartition(".")
    if kind == "circuit" and dot and pole in POLES and name in names:
        return name, pole
    return None


def _names(kind: Kind, site: PowerConfig) -> set[str]:
    match kind:
        case "circuit":
            return {*site.circuits, *site.panels}
        case "node":
            return _nodes(site)
        case "ups":
            return set(site.ups)


def _nodes(site: PowerConfig) -> set[str]:
    plugged = {node for circuit in site.circuits.values() for node in circuit.nodes}
    return {*site.nodes, *plugged}


def _known(place: str, kind: Kind, name: str, site: PowerConfig) -> str:
    names = _names(kind, site)
    if name not in names:
        raise ConfigError(
            place,
            f"there is no {kind} {name!r}",
            did_you_mean(name, names) or f"Known: {', '.join(sorted(names)) or 'none'}.",
        )
    return name


def _check_once(where: str, found: list[AttachedMeter]) -> None:
    """Refuse a meter that is attached to one target twice; two meters on one target are fine."""
    for meter in found:
        targets = [(attachment.kind, attachment.target, attachment.pole) for attachment in meter.attachments]
        for kind, target, pole in targets:
            if targets.count((kind, target, pole)) > 1:
                what = f"{target}.{pole}" if pole else target
                raise ConfigError(f"{where}: meters.{meter.name}", f"it is on {kind} {what} twice", "Keep one of both.")
