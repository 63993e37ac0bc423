"""Machines: nodes with their power commitment, and how it follows from their GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TypedDict

from power.devices.catalogue import Card, System, counted, find_card, find_system
from power.devices.supply import Points, check_points, dc_watts, efficiency, points_of, wall_watts
from power.site.config import NodeConfig, SupplyConfig
from telemetry.errors import ConfigError

HOST_WATTS = 250.0
"""Everything but the GPUs of a desktop under load, inside the case."""
CPU_SHARE = 0.5
"""Of a desktop's host: processors and memory; the rest is fans, board, disks and network."""
SYSTEM_CPU_SHARE = 0.15
"""Of a complete system's: two processors of 350 W beside 3.9 kW of fans, switches and network."""
INRUSH_AMPS = 30.0
"""Peak of one supply in the half cycle after it is switched on: tens of amps, an estimate."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node. `fixed_watts` and `watts_per_gpu_watt` give wall watts as a line over GPU watts."""

    id: str
    gpus: int
    card: Card | None
    limit_watts: float
    """Enforced limit per GPU."""
    fixed_watts: float
    """At the wall, with GPUs at nothing."""
    watts_per_gpu_watt: float
    """Wall watts per watt of a GPU: what the supplies lose."""
    floor_watts: float | None
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

    @property
    def committed_watts(self) -> float:
        """Power commitment at the wall, with the limits in force."""
        return self.fixed_watts + self.gpus * self.limit_watts * self.watts_per_gpu_watt

    def capped(self, watts: float) -> Machine:
        """Return the machine with a lower limit per GPU; never below the card's floor."""
        limit = min(self.limit_watts, max(watts, self.floor_watts or 0.0))
        return replace(self, limit_watts=limit)

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
        raise ConfigError(
            where, "it has a profile and gpus", "Keep one: a profile includes its GPUs."
        )
    if node.profile is not None:
        return _of_profile(f"{where}.profile", name, node, volts)
    supply = node.supply or SupplyConfig()
    points = _points(f"{where}.supply", supply, volts)
    if node.gpus is None:
        watts = node.watts or 0.0
        host = HOST_WATTS if node.host_watts is None else node.host_watts
        return Machine(name, 0, None, 0.0, watts, 1.0, node.floor_watts, node.watts is not None,
                       points, supply.watts, supply.count, supply.needed or supply.count,
                       0.0 if node.watts is not None else host, **_of_supply(supply))  # fmt: skip
    number, model = counted(f"{where}.gpus", node.gpus)
    card = find_card(f"{where}.gpus", model)
    limit = node.cap_watts if node.cap_watts is not None else card.tdp_watts
    host = HOST_WATTS if node.host_watts is None else node.host_watts
    full = host + number * limit
    wall = wall_watts(full, points, supply.watts, supply.count)
    per_watt = wall / full if full else 1.0
    return Machine(name, number, card, limit, host * per_watt, per_watt,
                   node.floor_watts or card.floor_watts, True, points, supply.watts, supply.count,
                   supply.needed or max(1, supply.count - (feeds > 1)), host,
                   **_of_supply(supply))  # fmt: skip


def _of_profile(where: str, name: str, node: NodeConfig, volts: float) -> Machine:
    system = find_system(where, node.profile or "")
    card = find_card(where, system.card) if system.card else None
    points = points_of(system.tier, volts, redundant=system.supplies > 1)
    per_watt = 1 / efficiency(points, 0.5)
    gpus = system.gpus if card else 0
    tdp = card.tdp_watts if card else 0.0
    # The power of a whole system is known at the wall; all but the GPUs' part of it is fixed.
    fixed = system.max_watts - gpus * tdp * per_watt
    limit = min(tdp, node.cap_watts) if node.cap_watts is not None else tdp
    return Machine(name, gpus, card, limit, fixed, per_watt,
                   node.floor_watts or (card.floor_watts if card else None), True, points,
                   system.supply_watts, system.supplies, system.needed,
                   _host_inside(system.max_watts, points, system, gpus * tdp), SYSTEM_CPU_SHARE)  # fmt: skip


@cache
def _host_inside(max_watts: float, points: Points, system: System, gpu_watts: float) -> float:
    """Return what is left for the host inside the case when the whole draws its maximum."""
    return dc_watts(max_watts, points, system.supply_watts, system.supplies) - gpu_watts


def _of_supply(supply: SupplyConfig) -> _OfSupply:
    return {
        "bears_spikes": supply.atx is None or supply.atx >= 3.0,
        "inrush_amps": INRUSH_AMPS if supply.inrush_amps is None else supply.inrush_amps,
    }


def _points(where: str, supply: SupplyConfig, volts: float) -> Points:
    if supply.points is None:
        return points_of(supply.tier, volts, redundant=supply.count > 1 and supply.needed is not None)  # fmt: skip
    try:
        return check_points(supply.points)
    except ValueError as error:
        raise ConfigError(f"{where}.points", str(error), "Write [[0.2, 0.9], [0.5, 0.92], [1.0, 0.9]].") from error  # fmt: skip
