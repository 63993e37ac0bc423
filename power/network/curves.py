"""Efficiency curves of many machines at once: watts inside the case to watts at the wall, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from power.devices.supply import Points, efficiency, wall_watts
from power.network.flow import Ints
from power.network.wiring import Floats
from power.site.machine import Machine

_LOADS = np.concatenate([np.linspace(0, 0.25, 101), np.linspace(0.25, 2.5, 400)[1:]])
"""Loads at which a curve is tabulated for its inverse; finest where it bends."""


@dataclass(frozen=True, slots=True)
class _CurveGroup:
    """Machines that share one curve."""

    members: Ints
    points: Points
    rated: Floats
    """Rating of all supplies of a machine together; NaN where not known."""
    at_wall: Floats
    """Wall over rating at each of `_LOADS`; empty without a rating."""


class EfficiencyCurves:
    """Efficiency curves of machines; those with the same points are computed together."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        kinds: dict[tuple[Points, bool], list[int]] = {}
        for number, machine in enumerate(machines):
            key = (machine.points, machine.supply_watts is not None)
            kinds.setdefault(key, []).append(number)
        self._groups = [
            _group(machines, np.array(members, dtype=np.int64), points)
            for (points, _), members in kinds.items()
        ]

    def wall(self, inside: Floats, working: Floats | None = None) -> Floats:
        """Return watts at the wall for watts inside the case; shape (machines,), NaN stays NaN. `working`:
        part of each machine's supplies that carries it, above 0; all if None."""
        result = np.full(len(inside), np.nan)
        for kind in self._groups:
            rated = kind.rated if working is None else kind.rated * working[kind.members]
            result[kind.members] = _wall(kind, inside[kind.members], rated)
        return result

    def inside(self, wall: Floats, working: Floats | None = None) -> Floats:
        """Return watts inside the case for watts at the wall."""
        result = np.full(len(wall), np.nan)
        for kind in self._groups:
            watts = wall[kind.members]
            if len(kind.at_wall):
                rated = kind.rated if working is None else kind.rated * working[kind.members]
                load = np.interp(watts / rated, kind.at_wall, _LOADS)
                result[kind.members] = np.where(np.isnan(watts), np.nan, load * rated)
            else:
                result[kind.members] = watts * _half(kind.points)
        return result


def _group(machines: Sequence[Machine], members: Ints, points: Points) -> _CurveGroup:
    first = machines[int(members[0])]
    rated = np.array([(machines[m].supply_watts or np.nan) * machines[m].supplies for m in members])
    if first.supply_watts is None or not points:
        return _CurveGroup(members, points, rated, np.zeros(0))
    table = np.array([wall_watts(float(load), points, 1.0) for load in _LOADS])
    return _CurveGroup(members, points, rated, table)


def _wall(kind: _CurveGroup, inside: Floats, rated: Floats) -> Floats:
    if not len(kind.at_wall):
        return inside / _half(kind.points)
    loads, values = np.array(kind.points).T
    load = inside / rated
    losses = loads[0] * rated * (1 / values[0] - 1)
    result: Floats = np.where(
        load < loads[0], inside + losses, inside / np.interp(load, loads, values)
    )
    return result


def _half(points: Points) -> float:
    """Return the efficiency at half load, for supplies without a rating."""
    return efficiency(points, 0.5) if points else 1.0
