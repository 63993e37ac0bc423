"""Cords of a machine that a plan adds or moves, as people write them: `R12-A+R12-B`."""

from __future__ import annotations

from power.site.circuit import parse_poles
from power.site.config import CordConfig, PowerConfig
from telemetry.errors import ConfigError, did_you_mean


def cords_into(where: str, text: str, site: PowerConfig) -> tuple[CordConfig, ...]:
    """Return the cords of `text`: circuits joined by `+`, or a redundancy group for one into each feed.

    `R12-A.L1-L2` is a cord on two poles of a circuit; a circuit that is named twice has two cords.
    Raises `ConfigError` for what does not exist, with the nearest that does.
    """
    if text in site.circuits:
        return (CordConfig(circuit=text),)
    groups = groups_of(site)
    if text in groups:
        return tuple(CordConfig(circuit=name) for name in groups[text])
    return tuple(_cord(where, part.strip(), site, groups) for part in text.split("+"))


def groups_of(site: PowerConfig) -> dict[str, list[str]]:
    """Return the feeds of each redundancy group, in the order of their roles."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, circuit in site.circuits.items():
        if circuit.redundancy is not None:
            found.setdefault(circuit.redundancy.group, []).append((circuit.redundancy.role, name))
    return {group: [name for _, name in sorted(feeds)] for group, feeds in found.items()}


def _cord(where: str, text: str, site: PowerConfig, groups: dict[str, list[str]]) -> CordConfig:
    if text in site.circuits:
        return CordConfig(circuit=text)
    name, dot, poles = text.rpartition(".")
    if dot and name in site.circuits:
        parse_poles(where, poles)
        return CordConfig(circuit=name, phase=poles)
    known = [*site.circuits, *groups]
    cure = did_you_mean(text, known) or f"Known: {', '.join(known[:20])}."
    raise ConfigError(where, f"there is no {text!r}", cure)
