"""Energy of every circuit: by its meter's own counter, and between two of its readings by the watts.

A counter counts at its steps: the reading at which its value changed. Between two steps the watts are
integrated, however coarse the steps are, and the step corrects their sum. A counter that goes on while
kilowatch is down, or while the load is unknown, gives the energy of that time too. Where there is none,
the time is counted as missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from power.live.loads import CircuitMeters
from power.live.metering import Metering
from power.network.flow import Ints
from power.report.energy import JOULES_PER_KWH, LONGEST_GAP
from power.wiring import Flags, Floats

_UNPLACED = -2
"""Slot of a counter that was restored by its meter's name and has not reported since."""
_SLACK_JOULES = JOULES_PER_KWH
"""Growth of a counter that is plausible at any time: the coarsest counters step by so much."""
_SLACK_RATIO = 2.0
"""Power, over what the breaker is rated for, up to which a counter's growth is plausible."""
_FINE_JOULES = 36_000.0
"""Growth that counts whole at a counter's first step."""
_FINE_RATIO = 0.01
"""Step of a counter, over what the breaker could have carried in a gap, up to which a counter that stood
still tells that nothing was drawn in it."""


@dataclass(frozen=True, slots=True)
class RecoveredEnergy:
    """Energy of a time without readings, known afterwards by the meter's own counter."""

    row: int
    joules: float
    start: float
    """Seconds since 1970."""
    end: float


@dataclass(frozen=True, slots=True)
class CorrectedEnergy:
    """Difference between what counters counted since their last steps, and the watts in that time."""

    rows: Ints
    joules: Floats
    """Negative where the watts were too high."""
    start: Floats
    """Seconds since 1970."""
    end: Floats


_NOTHING = CorrectedEnergy(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


class CircuitEnergy:
    """Energy of each circuit since kilowatch first saw it."""

    def __init__(self, rated_watts: Floats) -> None:
        """`rated_watts`: what each breaker is rated for, watts; NaN where not known."""
        circuits = len(rated_watts)
        self.joules: Floats = np.zeros(circuits)
        """Reported energy; never decreases."""
        self.integrated: Floats = np.zeros(circuits)
        """Joules of the last update by the watts."""
        self.known: Flags = np.zeros(circuits, dtype=bool)
        """Whether the whole load of each circuit was known in the last update."""
        self.recovered: list[RecoveredEnergy] = []
        """Energy of earlier times that became known in the last update."""
        self.corrected: CorrectedEnergy = _NOTHING
        """Corrections of the last update, beside `integrated` and `recovered`."""
        self._rated = np.where(np.isnan(rated_watts), np.inf, rated_watts)
        self._sure: Floats = np.zeros(circuits)
        """Energy up to the last step of a counter."""
        self._since: Floats = np.zeros(circuits)
        """Energy integrated since then."""
        self._watts: Floats = np.full(circuits, np.nan)
        self._counter: Floats = np.full(circuits, np.nan)
        """Counter's value, since its last step; since its first reading before any."""
        self._stepped: Flags = np.zeros(circuits, dtype=bool)
        """Whether a step was seen: the first reading lies anywhere between two steps."""
        self._step: Floats = np.full(circuits, np.nan)
        """Smallest step that was seen, joules."""
        self._read_at: Floats = np.full(circuits, -np.inf)
        """Time of the newest reading of a counter."""
        self._counted_at: Floats = np.full(circuits, -np.inf)
        """Time of the counter's last step."""
        self._counted_wall: Floats = np.full(circuits, np.nan)
        """The same in seconds since 1970."""
        self._slot = np.full(circuits, -1, dtype=np.int64)
        self._meters: dict[int, str] = {}
        """Meter of each counter, by circuit."""
        self._missing: Floats = np.zeros(circuits)
        """Seconds without energy up to the last step of a counter."""
        self._missing_since: Floats = np.zeros(circuits)
        """Seconds without energy since then; the counter's next step covers them."""
        self._gap_joules: Floats = np.zeros(circuits)
        """Energy that was integrated all the same in `_missing_since`, of the known part of the load."""
        self._gap_start: Floats = np.full(circuits, np.inf)
        self._gap_end: Floats = np.full(circuits, -np.inf)
        """Seconds since 1970 between which `_missing_since` lies."""
        self._late_start: Floats = np.full(circuits, np.nan)
        self._late_end: Floats = np.full(circuits, np.nan)
        """Gap that a reading between two steps has closed: what the next step finds more belongs to it."""

    @property
    def missing_seconds(self) -> Floats:
        """Return the time that `joules` does not cover, seconds."""
        return self._missing + self._missing_since

    def update(
        self,
        now: float,
        wall: float,
        seconds: float,
        watts: Floats,
        known: Flags,
        meters: CircuitMeters,
        metering: Metering,
    ) -> None:
        """Add the energy of the last `seconds`; `known`: whether `watts` are all of the load. `wall`:
        seconds since 1970."""
        before, self.known = self.joules, known if seconds <= LONGEST_GAP else np.zeros_like(known)
        mean = 0.5 * (watts + np.where(np.isnan(self._watts), watts, self._watts))
        bridged = seconds if seconds <= LONGEST_GAP else 0.0
        self.integrated = np.where(np.isnan(mean), 0.0, mean * bridged)
        self._since = self._since + self.integrated
        self._gap_joules = self._gap_joules + np.where(known, 0.0, self.integrated)
        self._watts = watts
        self._miss(wall, seconds, ~self.known)
        self.recovered, self.corrected = [], _NOTHING
        fresh = ~np.isnan(meters.energy) & (meters.energy_at > self._read_at)
        if fresh.any():
            self._read_counters(wall - (now - meters.energy_at), fresh, meters, metering)
        self.joules = np.maximum(before, self._sure + self._since)

    def _read_counters(self, read_at: Floats, fresh: Flags, meters: CircuitMeters, metering: Metering) -> None:
        """Take over the readings of counters that are `fresh`; `read_at`: seconds since 1970."""
        same = fresh & self._same(meters, metering) & ~np.isnan(self._counter)
        changed = same & (meters.energy != self._counter)
        # A counter that fell was reset, and has counted from 0.
        grown = np.where(meters.energy >= self._counter, meters.energy - self._counter, meters.energy)
        here = np.isfinite(self._counted_at)  # else it was read before a restart
        passed = np.where(here, meters.energy_at - self._counted_at, read_at - self._counted_wall)
        passed = np.maximum(np.where(same, passed, 0.0), 0.0)
        with np.errstate(invalid="ignore"):
            most = np.where(np.isinf(self._rated), np.inf, _SLACK_RATIO * self._rated * passed)
            # A counter that was reset stands at what was drawn since; one that fell and comes back does not.
            reset = changed & (meters.energy < self._counter)
            plausible = grown <= most + np.where(reset, _FINE_JOULES, _SLACK_JOULES)
            fine = self._step <= _FINE_RATIO * self._rated * self._missing_since
        gap = self._missing_since > 0
        # How much of the first step was counted before the first reading is not known; over a gap it is
        # taken for the energy of that time if so much may have been drawn then.
        coarse = plausible & ~self._stepped & (grown > _FINE_JOULES)
        first = changed & coarse & ~(gap & (grown <= most))
        counted = changed & plausible & ~first
        anew = fresh & ~same | changed & ~plausible
        still = same & ~changed & gap & fine
        # What was integrated before a reset is in no counter any more.
        covered = np.where(reset, self._gap_joules, self._since)
        covered = np.where(reset & ~gap, np.minimum(self._since, grown), covered)
        difference = np.where(counted, grown - covered, 0.0)
        late = np.where(gap, np.maximum(difference, 0.0), 0.0)
        for row in np.flatnonzero(counted & gap | still):
            joules = float(late[row] + self._gap_joules[row])
            self.recovered.append(
                RecoveredEnergy(int(row), joules, float(self._gap_start[row]), float(self._gap_end[row]))
            )
        rows = np.flatnonzero(difference != late)
        closed = np.isfinite(self._late_start)
        start = np.where(closed, self._late_start, self._counted_wall)
        end = np.where(closed, self._late_end, read_at)
        self.corrected = CorrectedEnergy(rows, (difference - late)[rows], start[rows], end[rows])
        self._sure = self._sure + np.where(counted | first | anew, self._since, 0.0) + difference
        self._missing = self._missing + np.where(anew | first, self._missing_since, 0.0)
        step, over = counted | first | anew, counted & gap | still
        self._step = np.where((counted | first) & (grown > 0), np.fmin(self._step, grown), self._step)
        self._stepped = np.where(step, ~anew, self._stepped)
        self._since[step] = 0.0
        for values, after in ((self._late_start, self._gap_start), (self._late_end, self._gap_end)):
            values[step] = np.nan
            values[over] = after[over]
        for values, found in (
            (self._counter, meters.energy),
            (self._counted_at, meters.energy_at),
            (self._counted_wall, read_at),
        ):
            values[step] = found[step]
        for values, nothing in (
            (self._gap_joules, 0.0),
            (self._missing_since, 0.0),
            (self._gap_start, np.inf),
            (self._gap_end, -np.inf),
        ):
            values[step | over] = nothing
        self._read_at[fresh], self._slot[fresh] = meters.energy_at[fresh], meters.energy_slot[fresh]

    def _miss(self, wall: float, seconds: float, unknown: Flags) -> None:
        """Count time without energy."""
        if seconds <= 0 or not unknown.any():
            return
        self._missing_since = self._missing_since + np.where(unknown, seconds, 0.0)
        self._gap_start = np.where(unknown, np.minimum(self._gap_start, wall - seconds), self._gap_start)
        self._gap_end = np.where(unknown, np.maximum(self._gap_end, wall), self._gap_end)

    def _same(self, meters: CircuitMeters, metering: Metering) -> Flags:
        """Return where the counter is the one of the reading before, maybe from before a restart."""
        same: Flags = self._slot == meters.energy_slot
        for row in np.flatnonzero(self._slot == _UNPLACED):
            slot = int(meters.energy_slot[row])
            same[row] = slot >= 0 and metering.meter_of(slot) == self._meters.get(int(row))
        for row in np.flatnonzero((meters.energy_slot >= 0) & (self._slot != meters.energy_slot)):
            self._meters[int(row)] = metering.meter_of(int(meters.energy_slot[row]))
        return same

    def checkpoint(self, row: int) -> dict[str, Any]:
        """Return the part of the checkpoint about one circuit."""
        found: dict[str, Any] = {"energy_joules": float(self.joules[row]), "missing_seconds": float(self._missing[row])}
        if self._missing_since[row] > 0:
            found["energy_gap"] = [float(x[row]) for x in (self._missing_since, self._gap_start, self._gap_end)]
        if not math.isnan(self._counter[row]):
            found["energy_counter"] = {
                "meter": self._meters.get(row, ""),
                "joules": float(self._counter[row]),
                "at": float(self._counted_wall[row]),
                "sure": float(self._sure[row]),
                "since": float(self._since[row]),
                "stepped": bool(self._stepped[row]),
            }
            if not math.isnan(self._step[row]):
                found["energy_counter"]["step"] = float(self._step[row])
        return found

    def restore(self, row: int, found: Mapping[str, Any], start: float, end: float) -> None:
        """Restore what was counted before a restart; between `start` and `end`, seconds since 1970,
        nothing was. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        joules, missing = (_number(found["energy_joules"]), _number(found.get("missing_seconds", 0.0)))
        seconds, since, until = (float(x) for x in found.get("energy_gap", (0.0, math.inf, -math.inf)))
        counter = found.get("energy_counter")
        if counter is not None:
            numbers = [_number(counter[name]) for name in ("joules", "at", "sure", "since")]
            self._counter[row], self._counted_wall[row], self._sure[row], self._since[row] = numbers
            self._meters[row], self._slot[row] = str(counter["meter"]), _UNPLACED
            self._stepped[row] = counter.get("stepped") is True
            if "step" in counter:
                self._step[row] = _number(counter["step"])
        else:
            self._sure[row] = joules
        self.joules[row], self._missing[row] = joules, missing
        down = max(end - start, 0.0)
        self._missing_since[row] = seconds + down
        self._gap_start[row], self._gap_end[row] = min(since, start), max(until, end)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError("no quantity")
    return number
