"""A scenario: the parameters that determine every value of a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from collector.simulated.boards import H100, RTX_5090, GpuBoard
from collector.simulated.chassis import DGX, WORKSTATION, NodeChassis
from collector.simulated.faults import OF_A_NODE, FaultKind, SimulatedFault, parse, place
from collector.simulated.random import draw
from telemetry.errors import ConfigError, did_you_mean

EPOCH = 1_767_225_600
"""Default start of a scenario: 2026-01-01 00:00 UTC, in seconds since 1970."""
MAX_NODES, MAX_GPUS = 100_000, 72


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Default size and hardware of a scenario."""

    nodes: int
    gpus: int
    board: GpuBoard
    chassis: NodeChassis
    pattern: str
    """Node name by number, from 1."""
    alone: str | None
    """Name of the only node, where that has no number."""
    rack: str | None
    """Rack name by number, from 1."""
    rack_size: int
    links: bool
    ports: bool
    """Whether the nodes have network adapters, with a port for each GPU."""
    script: str
    """Default faults."""


KINDS: dict[str, NodeKind] = {
    "desktop-4x5090": NodeKind(
        nodes=1,
        gpus=4,
        board=RTX_5090,
        chassis=WORKSTATION,
        pattern="desktop-{:02d}",
        alone="desktop",
        rack=None,
        rack_size=1,
        links=False,
        ports=False,
        script="thermal@desktop/1+4m:3m, straggler@desktop/2+10m:5m, hung@desktop/3+18m:1m",
    ),
    "two-dgx-h100": NodeKind(
        nodes=2,
        gpus=8,
        board=H100,
        chassis=DGX,
        pattern="dgx-{:02d}",
        alone=None,
        rack="rack-{:02d}",
        rack_size=2,
        links=True,
        ports=True,
        script="straggler@dgx-01/5+3m:3m, ecc_storm@dgx-02/2+7m:4m, remap_pending@dgx-02/2+9m,"
        " thermal@dgx-01/1+12m:3m, power_brake@dgx-02+16m:30s, xid79@dgx-01/3+20m:10m",
    ),
    "fleet": NodeKind(
        nodes=16,
        gpus=8,
        board=H100,
        chassis=DGX,
        pattern="node-{:05d}",
        alone=None,
        rack="rack-{:03d}",
        rack_size=4,
        links=False,
        ports=True,
        script="",
    ),
}
"""The scenarios by name."""

_FLEET_SCRIPT: tuple[tuple[FaultKind, int, int | None], ...] = (
    (FaultKind.REMAP_PENDING, 5, None),
    (FaultKind.STRAGGLER, 10, 900),
    (FaultKind.ECC_STORM, 20, 600),
    (FaultKind.XID79, 30, 600),
    (FaultKind.HUNG, 60, 60),
    (FaultKind.THERMAL, 90, 180),
    (FaultKind.POWER_BRAKE, 240, 30),
    (FaultKind.NODE_LOSS, 360, 90),
)
"""Faults of a fleet: kind, start, duration; nodes and GPUs are drawn from the seed."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Parameters of a simulated cluster. Equal scenarios publish identical bytes."""

    name: str
    nodes: tuple[str, ...]
    gpus: int
    """GPUs of each node."""
    seed: int
    start_tick: int
    """Tick, in intervals since 1970, from which the script of faults and the jobs count."""
    interval: float
    """Seconds from tick to tick."""
    faults: tuple[SimulatedFault, ...]
    links: bool
    """Whether NVLinks have rows of their own: 18 a GPU, most of a frame."""
    racks: tuple[str | None, ...] = field(repr=False)
    """Rack of each node."""

    @property
    def kind(self) -> NodeKind:
        """Defaults of the scenario."""
        return KINDS[self.name]

    def second(self, tick: int) -> int:
        """Return the second since the start; the simulation moves in whole seconds."""
        return int((tick - self.start_tick) * self.interval // 1)

    def at_ns(self, second: int) -> int:
        """Return the wall clock of a second since the start, ns since 1970."""
        return int(self.start_tick * self.interval * 1e9) + second * 1_000_000_000


def scenario(
    name: str,
    nodes: int | None = None,
    gpus: int | None = None,
    seed: int = 0,
    *,
    start_tick: int | None = None,
    interval: float = 1.0,
    faults: str | Iterable[SimulatedFault] | None = None,
    links: bool | None = None,
    where: str = "scenario",
) -> Scenario:
    """Return a scenario; None means its default.

    `faults` replaces the scenario's own script ("" for none). Raises `ConfigError` for an
    invalid name, number or fault.
    """
    if name not in KINDS:
        hint = did_you_mean(name, KINDS) or f"Known are {', '.join(KINDS)}."
        raise ConfigError(where, f"there is no scenario {name!r}", hint)
    kind = KINDS[name]
    count = _checked(where, "nodes", kind.nodes if nodes is None else nodes, MAX_NODES)
    gpus = _checked(where, "gpus", kind.gpus if gpus is None else gpus, MAX_GPUS)
    if interval <= 0:
        raise ConfigError(where, f"an interval of {interval} s is not possible", "Use 1.")
    names = tuple(kind.pattern.format(number) for number in range(1, count + 1))
    if count == 1 and kind.alone is not None:
        names = (kind.alone,)
    racks = tuple(
        None if kind.rack is None else kind.rack.format(1 + number // kind.rack_size) for number in range(count)
    )
    if faults is None:
        faults = _own_script(kind, names, gpus, seed)
    elif isinstance(faults, str):
        faults = parse(faults, where)
    by_node = {node: rack for node, rack in zip(names, racks, strict=True) if rack is not None}
    return Scenario(
        name,
        names,
        gpus,
        seed,
        round(EPOCH / interval) if start_tick is None else start_tick,
        interval,
        place(faults, names, by_node, gpus, where),
        kind.links if links is None else links,
        racks,
    )


def _checked(where: str, word: str, number: int, most: int) -> int:
    if not 1 <= number <= most:
        raise ConfigError(where, f"{number} {word} are not possible", f"Use 1 to {most}.")
    return number


def _own_script(kind: NodeKind, names: tuple[str, ...], gpus: int, seed: int) -> list[SimulatedFault]:
    """Return the scenario's default faults, for nodes and GPUs that exist."""
    if kind.script:
        return [
            fault for fault in parse(kind.script) if fault.node in names and (fault.gpu is None or fault.gpu < gpus)
        ]
    script = []
    for what, start, duration in _FLEET_SCRIPT:
        node = names[draw(seed, "victim", what.value) % len(names)]
        gpu = None if what in OF_A_NODE else draw(seed, "victim", what.value, 1) % gpus
        script.append(SimulatedFault(what, node, gpu, start, duration))
    if len(names) >= 2 * kind.rack_size and kind.rack is not None:
        rack = kind.rack.format(1 + draw(seed, "victim", "rack") % (len(names) // kind.rack_size))
        script += parse(f"feed_loss@{rack}+8m:90s")
    return script
