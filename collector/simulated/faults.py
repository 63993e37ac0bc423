"""Scripted faults: kind, place, and time after the scenario's start.

As text, one fault is `KIND@NODE[/GPU]+START[:DURATION]`, several are joined by commas:
`xid79@dgx-01/3+30s, thermal@dgx-02/0+2m:90s, feed_loss@rack-02+5m:1m`. NODE is a node's name, a
rack's name or a pattern such as `node-0000*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from telemetry.errors import ConfigError, did_you_mean
from telemetry.text import parse_duration

EXAMPLE = "Write for example 'xid79@dgx-01/3+30s' or 'thermal@dgx-01/3+2m:90s'."


class FaultKind(StrEnum):
    """Kind of fault."""

    XID79 = "xid79"
    """The GPU falls off the bus; its job stalls, then goes on without it."""
    ECC_STORM = "ecc_storm"
    """Corrected memory errors by the thousand a second, only under load; the driver answers late."""
    REMAP_PENDING = "remap_pending"
    """A memory row waits for a reset to be replaced."""
    THERMAL = "thermal"
    """The GPU warms up within a minute until hardware limits its clocks."""
    POWER_BRAKE = "power_brake"
    """The supply asks all GPUs of the node to slow down."""
    HUNG = "hung"
    """The driver doesn't answer for this GPU."""
    NODE_LOSS = "node_loss"
    """The node sends nothing, then boots."""
    FEED_LOSS = "feed_loss"
    """Several nodes lose their supply at once, then boot."""
    STRAGGLER = "straggler"
    """The GPU runs 15 % slower than its peers at the same utilisation."""
    PORT_DOWN = "port_down"
    """The network port beside the GPU loses its link."""
    PORT_SLOW = "port_slow"
    """That port runs on half its lanes."""


OF_A_NODE = frozenset({FaultKind.POWER_BRAKE, FaultKind.NODE_LOSS, FaultKind.FEED_LOSS})
SILENT = frozenset({FaultKind.NODE_LOSS, FaultKind.FEED_LOSS})

_DURATION: dict[FaultKind, int | None] = {
    FaultKind.XID79: None,
    FaultKind.ECC_STORM: 300,
    FaultKind.REMAP_PENDING: None,
    FaultKind.THERMAL: 180,
    FaultKind.POWER_BRAKE: 30,
    FaultKind.HUNG: 60,
    FaultKind.NODE_LOSS: 60,
    FaultKind.FEED_LOSS: 60,
    FaultKind.STRAGGLER: 300,
    FaultKind.PORT_DOWN: 300,
    FaultKind.PORT_SLOW: 600,
}
"""Default duration in seconds; None until the scenario ends."""

_FOREVER = 1 << 40
_TIME = r"(\d+[smh]?)"
_FAULT = re.compile(rf"([\w-]+)@([^/+:,\s]+)(?:/(\d+))?\+{_TIME}(?::{_TIME})?")


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """Fault of a GPU or of a node."""

    kind: FaultKind
    node: str
    """Name; in an unplaced script also a rack's name or a pattern."""
    gpu: int | None
    """Index; None for a fault of the whole node."""
    start: int
    """Seconds after the scenario's start."""
    duration: int | None = None
    """Seconds; None until the scenario ends."""

    @property
    def end(self) -> int:
        """First second after the fault."""
        return _FOREVER if self.duration is None else self.start + self.duration

    def __str__(self) -> str:
        gpu = "" if self.gpu is None else f"/{self.gpu}"
        duration = "" if self.duration is None else f":{self.duration}s"
        return f"{self.kind.value}@{self.node}{gpu}+{self.start}s{duration}"


def parse(text: str, where: str = "faults") -> tuple[SimulatedFault, ...]:
    """Parse a script; `none` means no fault. Raises `ConfigError` that names the fault and shows
    the right form."""
    if text.strip() == "none":
        return ()
    faults = []
    for part in filter(None, re.split(r"[,\s]+", text)):
        match = _FAULT.fullmatch(part)
        if match is None:
            raise ConfigError(where, f"{part!r} is no fault", EXAMPLE)
        word, node, gpu, start, length = match.groups()
        kinds = [kind.value for kind in FaultKind]
        if word not in kinds:
            hint = did_you_mean(word, kinds) or f"Known are {', '.join(kinds)}."
            raise ConfigError(where, f"there is no fault {word!r}", hint)
        kind = FaultKind(word)
        faults.append(
            SimulatedFault(
                kind,
                node,
                None if gpu is None else int(gpu),
                _seconds(start),
                _DURATION[kind] if length is None else _seconds(length),
            )
        )
    return tuple(faults)


def _seconds(text: str) -> int:
    return round(parse_duration(text) or 0)


def place(
    faults: Iterable[SimulatedFault], nodes: Sequence[str], racks: dict[str, str], gpus: int, where: str = "faults"
) -> tuple[SimulatedFault, ...]:
    """Replace racks and patterns by nodes, and check nodes and GPUs.

    Raises `ConfigError` for a node or a GPU that the scenario doesn't have.
    """
    placed = []
    known = set(nodes)
    for fault in faults:
        if fault.node in known:
            hit = [fault.node]
        else:
            hit = [name for name in nodes if fault.node == racks.get(name)]
            hit = hit or [name for name in nodes if fnmatchcase(name, fault.node)]
        if not hit:
            hint = did_you_mean(fault.node, [*nodes, *racks.values()]) or f"The first is {nodes[0]}."
            raise ConfigError(where, f"{fault}: there is no node {fault.node!r}", hint)
        if fault.kind in OF_A_NODE and fault.gpu is not None:
            raise ConfigError(where, f"{fault}: it hits whole nodes", "Leave out the GPU.")
        if fault.kind not in OF_A_NODE and fault.gpu is None:
            raise ConfigError(where, f"{fault}: it needs a GPU", EXAMPLE)
        if fault.gpu is not None and not 0 <= fault.gpu < gpus:
            raise ConfigError(where, f"{fault}: there is no GPU {fault.gpu}", f"They are 0 to {gpus - 1}.")
        if fault.duration is not None and fault.duration <= 0:
            raise ConfigError(where, f"{fault}: it lasts no time", "Give it a second or more.")
        placed += [replace(fault, node=name) for name in hit]
    return tuple(placed)
