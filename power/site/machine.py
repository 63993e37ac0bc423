"""Machines: nodes with their power commitment, and how it follows from their GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TypedDict

from msgspec import structs

from power.devices.catalogue import Card, System, counted, find_card, find_system, key_of
from power.devices.supply import LOW_LINE_VOLTS, Points, check_points, dc_watts, points_of, wall_watts
from power.site.config import NodeConfig, SupplyConfig
from telemetry.errors import ConfigError

HOST_WATTS = 250.0
"""Everything but the GPUs of a desktop under load, inside the case."""
CPU_SHARE = 0.5
"""Of a desktop's host: processors and memory; the rest is fans, board, disks and network."""
SYSTEM_CPU_SHARE = 0.15
"""Of a complete system's: two processors of 350 W beside 3.9 kW of fans, switches and network."""
_SEVERAL = re.compile(r"\s*[,;+&]\s*")
"""Signs between models that were written as one text."""
INRUSH_AMPS = 30.0
"""Peak of one supply in the half cycle after it is switched on: tens of amps, an estimate."""


@dataclass(frozen=True, slots=True)
class GpuPart:
    """The GPUs of one model in a machine."""

    count: int
    card: Card
    limit_watts: float
    """Enforced limit of each."""
    floor_watts: float | None
    """Lowest cap that each takes; None where not known."""

    def capped(self, watts: float) -> GpuPart:
        """Return the part with a lower limit; never below the floor."""
        return replace(self, limit_watts=min(self.limit_watts, max(watts, self.floor_watts or 0.0)))


@dataclass(frozen=True, slots=True)
class Machine:
    """A node. `wall` is the one place where watts of its GPUs become watts at the wall."""

    id: str
    gpus: int
    card: Card | None
    """The model of its GPUs; of several, the first."""
    limit_watts: float
    """Enforced limit per GPU; of several models, the mean."""
    fixed_watts: float
    """At the wall, of a node without GPUs; 0 for others."""
    floor_watts: float | None
    """Lowest cap that all of its GPUs take."""
    known: bool = True
    """False for a node of which nothing but the name is known."""
    points: Points = ()
    supply_watts: float | None = None
    supplies: int = 1
    needed: int = 1
    host_watts: float = 0.0
    """Everything but the GPUs at full load, inside the case."""
    cpu_share: float = 0.5
    """Part of `host_watts` that processors and memory draw: what RAPL measures."""
    bears_spikes: bool = True
    """False for supplies older than ATX 3.0."""
    inrush_amps: float = INRUSH_AMPS
    most_watts: float | None = None
    """Maximum at the wall by the maker, with any number of supplies working."""
    parts: tuple[GpuPart, ...] = ()
    """Its GPUs by model."""

    @property
    def planned(self) -> bool:
        """Whether a plan has watts for it: its own, or those of its host."""
        return self.known or self.fixed_watts > 0

    @property
    def committed_watts(self) -> float:
        """Power commitment at the wall, with the limits in force."""
        return self.wall(self.gpus * self.limit_watts)

    def capped(self, watts: float) -> Machine:
        """Return the machine with a lower limit per GPU; never below a card's floor."""
        parts = tuple(part.capped(watts) for part in self.parts)
        return replace(self, parts=parts, limit_watts=_mean_limit(parts))

    def wall(self, gpu_watts: float) -> float:
        """Return the watts at the wall while its GPUs draw `gpu_watts` and the rest all that it may."""
        if not self.gpus:
            return self.fixed_watts
        return self.at_wall(self.host_watts + gpu_watts)

    def at_wall(self, inside: float) -> float:
        """Return the watts at the wall for `inside` watts inside the case, by the curve of its supplies."""
        return wall_watts(inside, self.points, self.supply_watts, self.supplies)

    def dc(self, at_wall: float) -> float:
        """Return the watts inside the case."""
        return dc_watts(at_wall, self.points, self.supply_watts, self.supplies)


class _OfSupply(TypedDict):
    bears_spikes: bool
    inrush_amps: float


def build(where: str, name: str, node: NodeConfig | None, volts: float, feeds: int = 1) -> Machine:
    """Return the machine of a configuration. Raises `ConfigError` with place and cure."""
    node = node or NodeConfig()
    if sum(x is not None for x in (node.profile, node.gpus)) > 1:
        raise ConfigError(where, "it has a profile and gpus", "Keep one: a profile includes its GPUs.")
    if node.profile is not None:
        return _of_profile(f"{where}.profile", name, node, volts)
    supply = _at_line(node.supply or SupplyConfig(), volts)
    points = supply_points(f"{where}.supply", supply, volts)
    if node.gpus is None:
        host = HOST_WATTS if node.host_watts is None else node.host_watts
        # A server without GPUs draws what its host does; GPUs that its collector finds come on top.
        alone = 0.0 if node.host_watts is None else wall_watts(host, points, supply.watts, supply.count)
        watts = alone if node.watts is None else node.watts
        return Machine(
            name,
            0,
            None,
            0.0,
            watts,
            node.floor_watts,
            node.watts is not None,
            points,
            supply.watts,
            supply.count,
            supply.needed or supply.count,
            0.0 if node.watts is not None else host,
            **_of_supply(supply),
        )
    parts = gpu_parts(where, node)
    number, limit = sum(part.count for part in parts), _mean_limit(parts)
    host = HOST_WATTS if node.host_watts is None else node.host_watts
    return Machine(
        name,
        number,
        parts[0].card,
        limit,
        0.0,
        _floor(parts),
        True,
        points,
        supply.watts,
        supply.count,
        supply.needed or max(1, supply.count - (feeds > 1)),
        host,
        parts=parts,
        **_of_supply(supply),
    )


def _at_line(supply: SupplyConfig, volts: float) -> SupplyConfig:
    """Return supplies with the rating that they have at this input voltage."""
    if volts > LOW_LINE_VOLTS or supply.low_line_watts is None:
        return supply
    return structs.replace(supply, watts=supply.low_line_watts)


def gpu_parts(where: str, node: NodeConfig) -> tuple[GpuPart, ...]:
    """Return the GPUs of a configured node by model, with the limits in force."""
    texts = (node.gpus,) if isinstance(node.gpus, str) else node.gpus or ()
    if isinstance(node.gpus, str) and len(models := _SEVERAL.split(node.gpus.strip())) > 1:
        wanted = ", ".join(f'"{each}"' for each in models)
        raise ConfigError(f"{where}.gpus", "several models are a list, not one text", f"Write [{wanted}].")
    if not texts:
        raise ConfigError(f"{where}.gpus", "the list is empty", 'Write ["2x RTX 4090", "1x A6000"], or remove it.')
    if node.tdp_watts is not None and len(texts) > 1:
        raise ConfigError(
            f"{where}.tdp_watts", "it is for one model, and gpus lists several", "Write it on a node of one model."
        )
    parts = []
    for number, text in enumerate(texts):
        place = f"{where}.gpus" if isinstance(node.gpus, str) else f"{where}.gpus[{number}]"
        count, model = counted(place, text)
        card = _card(place, model, node.tdp_watts)
        floor = node.floor_watts or card.floor_watts
        limit = card.tdp_watts
        if node.cap_watts is not None:
            # A single model may be set above its usual limit, as some boards allow.
            most = node.cap_watts if len(texts) == 1 else min(limit, node.cap_watts)
            limit = max(most, min(floor or 0.0, card.tdp_watts))
        parts.append(GpuPart(count, card, limit, floor))
    return tuple(parts)


def _card(where: str, model: str, tdp_watts: float | None) -> Card:
    if tdp_watts is None:
        return find_card(where, model)
    try:
        return replace(find_card(where, model), tdp_watts=tdp_watts)
    except ConfigError:
        return Card(key_of(model), model, 0.0, tdp_watts, source="tdp_watts of the configuration")


def _mean_limit(parts: tuple[GpuPart, ...]) -> float:
    count = sum(part.count for part in parts)
    return sum(part.count * part.limit_watts for part in parts) / count if count else 0.0


def _floor(parts: tuple[GpuPart, ...]) -> float | None:
    return max((part.floor_watts for part in parts if part.floor_watts is not None), default=None)


def lowest_cap(node: NodeConfig) -> float | None:
    """Return the lowest limit that all GPUs of a node take, as written or by the catalogue; None where it is
    not known. A lower `cap_watts` is planned with this, as the driver would refuse it. Raises `ConfigError`."""
    if node.floor_watts is not None:
        return node.floor_watts
    if node.profile is not None:
        model = find_system("profile", node.profile).card
        return find_card("profile", model).floor_watts if model else None
    return None if node.gpus is None else _floor(gpu_parts("node", node))


def _of_profile(where: str, name: str, node: NodeConfig, volts: float) -> Machine:
    system = find_system(where, node.profile or "")
    card = find_card(where, system.card) if system.card else None
    points = points_of(system.tier, volts, redundant=system.supplies > 1)
    gpus = system.gpus if card else 0
    tdp = card.tdp_watts if card else 0.0
    floor = lowest_cap(node)
    parts: tuple[GpuPart, ...] = (GpuPart(gpus, card, tdp, floor),) if card else ()
    if node.cap_watts is not None:
        parts = tuple(part.capped(node.cap_watts) for part in parts)
    return Machine(
        name,
        gpus,
        card,
        _mean_limit(parts),
        0.0 if gpus else system.max_watts,
        floor,
        True,
        points,
        system.supply_watts,
        system.supplies,
        system.needed,
        _host_inside(system.max_watts, points, system, gpus * tdp),
        SYSTEM_CPU_SHARE,
        most_watts=system.max_watts,
        parts=parts,
    )


@cache
def _host_inside(max_watts: float, points: Points, system: System, gpu_watts: float) -> float:
    """Return what is left for the host inside the case when the whole draws its maximum: the power of a
    complete system is known at the wall."""
    return dc_watts(max_watts, points, system.supply_watts, system.supplies) - gpu_watts


def _of_supply(supply: SupplyConfig) -> _OfSupply:
    return {
        "bears_spikes": supply.atx is None or supply.atx >= 3.0,
        "inrush_amps": INRUSH_AMPS if supply.inrush_amps is None else supply.inrush_amps,
    }


def supply_points(where: str, supply: SupplyConfig, volts: float) -> Points:
    """Return [load, efficiency] of a node's supplies. Raises `ConfigError`."""
    if supply.points is None:
        return points_of(supply.tier, volts, redundant=supply.count > 1 and supply.needed is not None)
    try:
        return check_points(supply.points)
    except ValueError as error:
        raise ConfigError(f"{where}.points", str(error), "Write [[0.2, 0.9], [0.5, 0.92], [1.0, 0.9]].") from error
