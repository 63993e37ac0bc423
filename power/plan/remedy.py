"""Remedies of an overload: a cap per GPU and, where no card accepts it, alternatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from api.power import Cap
from power.devices.breaker import Curve
from power.devices.catalogue import clock_command
from power.site.layout import Circuit
from present.units import amperes, exact_watts

UL_SIZES = (15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90, 100, 110, 125)
_SIZES_IEC = (10, 13, 16, 20, 25, 32, 40, 50, 63, 80, 100, 125)


@dataclass(frozen=True, slots=True)
class RemedyPart:
    """The part of one machine in a circuit's load."""

    share: float
    limits: tuple[tuple[float, float], ...]
    """Number of GPUs with one limit, and that in force of each, watts."""
    wall: Callable[[float], float]
    """Watts at the wall for the watts of its GPUs."""
    floor_watts: float | None
    """Lowest cap that the driver accepts; None when not known."""
    models: tuple[str, ...] = ()
    """Of its GPUs, as far as they are known."""

    @property
    def gpus(self) -> float:
        """Number of its GPUs."""
        return sum(count for count, _ in self.limits)

    @property
    def limit_watts(self) -> float:
        """Highest limit in force of its GPUs; 0 without any."""
        return max((limit for _, limit in self.limits), default=0.0)

    def at(self, cap: float) -> float:
        """Return the machine's watts when each GPU draws `cap`, or its limit where that is less."""
        return self.share * self.wall(sum(count * min(cap, limit) for count, limit in self.limits))


def cap_of(circuit: Circuit, parts: Sequence[RemedyPart], allowed: float, amps_per_watt: float) -> Cap | None:
    """Return the cap per GPU that brings a circuit under its continuous limit; None without GPUs, and where
    their limits are not what exceeds it.

    `allowed`: watts of these parts at which the limit is met; `amps_per_watt` of the circuit's highest
    pole, which goes with the watts.
    """
    limits = [part.limit_watts for part in parts if part.gpus and part.share]
    if not limits or sum(part.at(part.limit_watts) for part in parts) <= allowed:
        return None
    found = _highest(parts, allowed, math.ceil(max(limits)))
    floors = [p.floor_watts for p in parts if p.gpus and p.floor_watts is not None]
    floor = max(floors, default=None)
    reachable = found > 0 and (floor is None or found >= floor)
    ways = () if reachable else _instead(circuit, parts, allowed, floor, amps_per_watt, found)
    return Cap(watts_per_gpu=found, floor_watts=floor, reachable=reachable, instead=ways)


def _highest(parts: Sequence[RemedyPart], allowed: float, most: int) -> int:
    """Return the highest whole cap below `most` at which the parts draw at most `allowed`; 0 if none."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        fits = sum(part.at(middle) for part in parts) <= allowed
        low, high = (middle, high) if fits else (low, middle)
    return low


def _instead(
    circuit: Circuit, parts: Sequence[RemedyPart], allowed: float, floor: float | None, amps_per_watt: float, cap: int
) -> tuple[str, ...]:
    fixed = sum(part.at(0.0) for part in parts)
    least = sum(part.at(part.limit_watts if floor is None else floor) for part in parts)
    most = sum(part.at(part.limit_watts) for part in parts) * amps_per_watt
    gpus = sum(part.gpus for part in parts)
    keep = max(0, int((allowed - fixed) // ((least - fixed) / gpus)))
    ways = []
    if floor is not None and cap > 0:
        command = clock_command(model for part in parts for model in part.models)
        ways.append(f"limit the clocks ({command}) until each GPU draws at most {exact_watts(cap)}")
    if keep:
        capped = "" if floor is None else f", each capped at {exact_watts(floor)}"
        ways.append(f"run {keep} of the {gpus:g} GPUs here{capped}")
    else:
        hosts = " and shut machines down" if fixed > allowed else ""
        ways.append(f"stop all work on the GPUs here{hosts}")
    if circuit.volts < 200 and len(circuit.poles) == 1:
        ways.append(f"move it to 240 V, where {amperes(most * circuit.volts / 240)} do")
    # Other loads of the circuit go through a larger breaker, too.
    most += circuit.continuous_amps - allowed * amps_per_watt
    limit = circuit.continuous_amps / circuit.rated_amps
    sizes = UL_SIZES if circuit.curve in {Curve.UL489, Curve.JIS} else _SIZES_IEC
    wanted = next((a for a in sizes if a * limit >= most), None)
    if wanted is not None and wanted > circuit.rated_amps:
        ways.append(f"a circuit of {amperes(wanted)} at this voltage, by an electrician")
    return tuple(ways)
