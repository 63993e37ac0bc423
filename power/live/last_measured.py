"""Last measurement of each node by its meter, held for a while where it is more than its model.

A plug, an outlet or a BMC measures what no driver reports. When it falls silent, a model or a declared
value says nothing of that part: as behind a circuit's meter (`power.live.held_load`) it is last known,
then unknown, until a meter measures the node again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from power.wiring import Flags, Floats

LAST_KNOWN_SECONDS = 900.0
"""Age of the last reading up to which the held part is last known; after it, it is unknown."""
SPREAD_AT_ONCE = 0.15
"""Standard deviation of the held part over its watts when the meter falls silent; it grows evenly to all
of it."""


def spread(age: Floats) -> Floats:
    """Return the standard deviation of a held part over its watts."""
    with np.errstate(invalid="ignore"):
        grown = np.clip(age / LAST_KNOWN_SECONDS, 0, 1)
    result: Floats = SPREAD_AT_ONCE + (1 - SPREAD_AT_ONCE) * grown
    return result


@dataclass(frozen=True, slots=True)
class HeldNodes:
    """Parts of the machines' power that only a silent meter knew, watts; 0 where a meter reports."""

    watts: Floats
    sigma: Floats
    expired: Floats
    """Part of `watts` that is too old to be the last known: unknown."""


class LastMeasured:
    """The last measurement of every machine by its own meters."""

    def __init__(self, machines: int) -> None:
        self._watts: Floats = np.full(machines, np.nan)
        self._excess: Floats = np.full(machines, np.nan)
        """Watts beyond the model; NaN where there was no model."""
        self._deficit: Floats = np.full(machines, np.nan)
        """Watts of the model beyond the measurement; NaN where there was no model."""
        self.at: Floats = np.full(machines, -np.inf)
        """Monotonic time of the last reading."""
        self.own: Flags = np.zeros(machines, bool)
        """Machines whose collector has read a meter in them."""

    @property
    def known(self) -> Flags:
        """Whether a meter has measured each machine."""
        found: Flags = ~np.isnan(self._watts)
        return found

    def forget(self, rows: Any) -> None:
        """Forget the last measurement of some machines."""
        self.own[rows] = False
        self._watts[rows] = self._excess[rows] = self._deficit[rows] = np.nan
        self.at[rows] = -np.inf

    def learn(self, at: Floats, measured: Floats, modelled: Floats) -> None:
        """Remember what meters measure beyond the model, and it beyond them. `at`: time of each reading; -inf without one."""
        known = np.isfinite(at) & ~np.isnan(measured)
        excess, deficit = np.maximum(measured - modelled, 0.0), np.maximum(modelled - measured, 0.0)
        # A reading that stands still says nothing of a model that moves.
        still = (measured == self._watts) & ~np.isnan(self._excess)
        excess, deficit = (
            np.where(still, np.fmin(old, new), new) for old, new in ((self._excess, excess), (self._deficit, deficit))
        )
        self._excess = np.where(known, excess, self._excess)
        self._deficit = np.where(known, deficit, self._deficit)
        self._watts = np.where(known, measured, self._watts)
        self.at = np.where(known, at, self.at)

    def held(self, now: float, watts: Floats, modelled: Floats, silent: Flags) -> HeldNodes:
        """Return what counts beside `watts` of the machines whose meters are all `silent`."""
        least = modelled + self._excess
        least = np.where(np.isnan(least), self._watts, least)
        part = np.where(silent, np.fmax(least - np.nan_to_num(watts), 0.0), 0.0)
        part = np.nan_to_num(part)
        age = now - self.at
        return HeldNodes(
            part, spread(age) * part if part.any() else part, np.where(age > LAST_KNOWN_SECONDS, part, 0.0)
        )

    def last_read(self, drawn: Floats, silent: Flags) -> Floats:
        """Return what the machines whose meters are all `silent` draw if their model errs as it did at the last reading,
        between that and what they have `drawn`; NaN for others."""
        least = np.fmin(drawn, self._watts)
        moved = np.fmax(drawn - np.nan_to_num(self._deficit), least)
        result: Floats = np.where(silent & self.known, moved, np.nan)
        return result

    def checkpoint(self, row: int, now: float) -> dict[str, float] | None:
        """Return the part of the checkpoint about one machine; None where no meter has reported."""
        if math.isnan(self._watts[row]) or not math.isfinite(self.at[row]):
            return None
        found = {"watts": float(self._watts[row]), "age": float(now - self.at[row]), "own": float(self.own[row])}
        excess, deficit = float(self._excess[row]), float(self._deficit[row])
        return found if math.isnan(excess) else found | {"excess": excess, "deficit": deficit}

    def restore(self, row: int, found: Mapping[str, Any], before: float) -> None:
        """Restore one machine; the checkpoint is from `before`, monotonic seconds of this process. Raises
        `KeyError`, `TypeError` or `ValueError` for anything else."""
        numbers = [float(found[name]) for name in ("watts", "age")]
        model = [float(found.get(name, 0.0)) for name in ("excess", "deficit")]
        if not all(map(math.isfinite, numbers + model)) or min(numbers + model) < 0:
            raise ValueError("no measurement")
        self._watts[row], self.at[row] = numbers[0], before - numbers[1]
        self.own[row] = bool(found.get("own"))
        self._excess[row], self._deficit[row] = model if "excess" in found else (np.nan, np.nan)
