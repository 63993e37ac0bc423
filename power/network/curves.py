"""Efficiency curves of many machines at once: watts inside the case to watts at the wall, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from power.devices.supply import Points, efficiency, wall_watts
from power.network.flow import Ints
from power.site.machine import Machine
from power.wiring import Flags, Floats

_LOADS = np.concatenate([np.linspace(0, 0.25, 101), np.linspace(0.25, 2.5, 400)[1:]])
"""Loads at which a curve is tabulated for its inverse; finest where it bends."""
_CELLS = 8192
"""Equal parts of a curve by which the piece of a value is looked up."""


class _Interpolation:
    """A piecewise linear function of many values at once: `np.interp` searches the piece of each value; where
    there are many, and no piece is narrow, it is looked up."""

    def __init__(self, at: Floats, values: Floats) -> None:
        self._at, self._values = at, values
        self._ends, self._slopes = np.append(at[1:], np.inf), np.zeros(len(at))
        self._scale = 0.0
        self._pieces: Ints | None = None
        """Piece at the start of each part; None before it is needed, empty where pieces are too narrow."""

    def _look_up(self) -> Ints:
        widths = np.diff(self._at)
        span = float(self._at[-1] - self._at[0])
        if not len(widths) or widths.min() * _CELLS < 2 * span:
            return np.zeros(0, np.int64)
        self._scale = _CELLS / span
        self._slopes[:-1] = np.diff(self._values) / widths
        starts = self._at[0] + np.arange(_CELLS + 1) / self._scale
        pieces: Ints = np.searchsorted(self._at, starts, "right") - 1
        return pieces

    def __call__(self, x: Floats) -> Floats:
        """Return the function of each value; beyond its ends that of the end, NaN stays NaN."""
        if self._pieces is None and len(x) > _CELLS:
            self._pieces = self._look_up()
        if self._pieces is None or not len(self._pieces) or len(x) <= _CELLS:
            return np.interp(x, self._at, self._values)
        x = np.clip(x, self._at[0], self._at[-1])
        cell = np.fmax((x - self._at[0]) * self._scale, 0.0).astype(np.int64)  # NaN to the first
        piece = self._pieces.take(cell, mode="clip")
        piece += x >= self._ends.take(piece)
        piece -= x < self._at.take(piece)
        found: Floats = self._values.take(piece) + self._slopes.take(piece) * (x - self._at.take(piece))
        return found


@dataclass(frozen=True, slots=True)
class _CurveGroup:
    """Machines that share one curve."""

    members: Ints
    points: Points
    rated: Floats
    """Rating of all supplies of a machine together; NaN where not known."""
    to_wall: _Interpolation | None = None
    """Efficiency at a load; None without a rating."""
    to_load: _Interpolation | None = None
    """Load for watts at the wall over the rating; None without one."""


class EfficiencyCurves:
    """Efficiency curves of machines; those with the same points are computed together."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        kinds: dict[tuple[Points, bool], list[int]] = {}
        for number, machine in enumerate(machines):
            key = (machine.points, machine.supply_watts is not None)
            kinds.setdefault(key, []).append(number)
        self._groups = [
            _group(machines, np.array(members, dtype=np.int64), points) for (points, _), members in kinds.items()
        ]

    def wall(self, inside: Floats, working: Floats | None = None) -> Floats:
        """Return watts at the wall for watts inside the case; shape (machines,), NaN stays NaN. `working`:
        part of each machine's supplies that carries it, above 0; all if None."""
        if len(self._groups) == 1 and working is None:
            return _wall(self._groups[0], inside, self._groups[0].rated)
        result = np.full(len(inside), np.nan)
        for kind in self._groups:
            rated = kind.rated if working is None else kind.rated * working[kind.members]
            result[kind.members] = _wall(kind, inside[kind.members], rated)
        return result

    def wall_again(self, before: Floats, inside: Floats, changed: Flags) -> Floats:
        """Return watts at the wall, computed anew only for the machines that are marked; of the others what
        was found before."""
        result = before.copy()
        for kind in self._groups:
            mine = changed[kind.members]
            members = kind.members[mine]
            result[members] = _wall(kind, inside[members], kind.rated[mine])
        return result

    def inside(self, wall: Floats, working: Floats | None = None) -> Floats:
        """Return watts inside the case for watts at the wall."""
        if len(self._groups) == 1 and working is None:
            return _inside(self._groups[0], wall, self._groups[0].rated)
        result = np.full(len(wall), np.nan)
        for kind in self._groups:
            rated = kind.rated if working is None else kind.rated * working[kind.members]
            result[kind.members] = _inside(kind, wall[kind.members], rated)
        return result


def _group(machines: Sequence[Machine], members: Ints, points: Points) -> _CurveGroup:
    first = machines[int(members[0])]
    rated = np.array([(machines[m].supply_watts or np.nan) * machines[m].supplies for m in members])
    if first.supply_watts is None or not points:
        return _CurveGroup(members, points, rated)
    table = np.array([wall_watts(float(load), points, 1.0) for load in _LOADS])
    return _CurveGroup(members, points, rated, _Interpolation(*np.array(points).T), _Interpolation(table, _LOADS))


def _wall(kind: _CurveGroup, inside: Floats, rated: Floats) -> Floats:
    if kind.to_wall is None:
        return inside / _half(kind.points)
    first, value = kind.points[0]
    load = inside / rated
    losses = first * rated * (1 / value - 1)
    result: Floats = np.where(load < first, inside + losses, inside / kind.to_wall(load))
    return result


def _inside(kind: _CurveGroup, wall: Floats, rated: Floats) -> Floats:
    if kind.to_load is None:
        return wall * _half(kind.points)
    return kind.to_load(wall / rated) * rated


def _half(points: Points) -> float:
    """Return the efficiency at half load, for supplies without a rating."""
    return efficiency(points, 0.5) if points else 1.0
