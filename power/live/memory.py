"""What must survive a restart, as plain JSON, and how it is taken up again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from power.live.state import Live

VERSION = 1
_LONGEST = 3600.0
"""Seconds; above a limit before a longer pause says nothing of now."""


def remember(live: Live) -> dict[str, Any]:
    """Return what a restart must not lose."""
    names, heats = live.fixed.network.names, live.heats
    lines = {}
    for row, name in enumerate(names):
        line: dict[str, Any] = {"energy_joules": float(live.energies.joules[row])}
        if not math.isnan(heats.ratio[row]):
            line |= {
                "fast": heats.heat.fast[row].tolist(),
                "slow": heats.heat.slow[row].tolist(),
                "ratio": float(heats.ratio[row]),
            }
            assumed = heats.assumed_seconds(row)
            if assumed is not None:
                line["assumed_seconds"] = assumed
        if live.last is not None and not math.isnan(live.timer.above[row]):
            line["above_seconds"] = float(live.last - live.timer.above[row])
        lines[name] = line
    machines = {}
    for row, name in enumerate(live.machines):
        found: dict[str, Any] = {}
        for key, values in (("watts", live.model.last), ("limit_watts", live.model.limits), ("gpus", live.model.gpus)):  # fmt: skip
            if not math.isnan(values[row]):
                found[key] = float(values[row])
        lesson = live.model.calibration.memory(row)
        if lesson is not None:
            found["calibration"] = lesson
        if found:
            machines[name] = found
    return {
        "version": VERSION,
        "wall_ns": live.wall_ns,
        "lines": lines,
        "machines": machines,
        "budgets": live.months.memory(),
    }


def recall(live: Live, memory: Mapping[str, Any], now: float, wall_ns: int) -> None:
    """Take up what still exists; a part that does not decode is left out by itself."""
    if memory.get("version") != VERSION:
        return
    try:
        gap = max((wall_ns - int(memory["wall_ns"])) / 1e9, 0.0)
    except (KeyError, TypeError, ValueError):
        return
    lines, machines = _table(memory.get("lines")), _table(memory.get("machines"))
    for row, name in enumerate(live.fixed.network.names):
        if name in lines:
            _try(lambda row=row, name=name: _line(live, row, _table(lines[name]), now, gap))  # type: ignore[misc]  # bound now
    for row, name in enumerate(live.machines):
        if name in machines:
            _try(lambda row=row, name=name: _machine(live, row, _table(machines[name])))  # type: ignore[misc]  # bound now
    _try(lambda: live.months.restore(_table(memory.get("budgets"))))


def _line(live: Live, row: int, line: Mapping[str, Any], now: float, gap: float) -> None:
    live.energies.restore(row, _number(line["energy_joules"]))
    if "above_seconds" in line and gap <= _LONGEST:
        live.timer.above[row] = now - gap - _number(line["above_seconds"])
    if "fast" in line:
        fast, slow = ([_number(v) for v in line[key]] for key in ("fast", "slow"))
        if len(fast) != 3 or len(slow) != 3:
            raise ValueError("three edges")
        assumed = _number(line["assumed_seconds"]) if "assumed_seconds" in line else None
        live.heats.restore(row, fast, slow, _number(line["ratio"]), now - gap, assumed)
        live.restored[row] = True


def _machine(live: Live, row: int, found: Mapping[str, Any]) -> None:
    for key, values in (("watts", live.model.last), ("limit_watts", live.model.limits), ("gpus", live.model.gpus)):  # fmt: skip
        if key in found:
            values[row] = _number(found[key])
    if "calibration" in found:
        live.model.calibration.restore(row, found["calibration"])


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError("no quantity")
    return number


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _try(part: Callable[[], None]) -> None:
    try:
        part()
    except (KeyError, TypeError, ValueError):
        return
