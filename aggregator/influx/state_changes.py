"""Changes of states, each at its own time, which a mean of ten seconds can't show. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggregator.influx.aggregates import NEVER, layers
from aggregator.influx.names import METRICS, discrete
from aggregator.influx.span_ladder import DeviceRows
from telemetry.metric import Lane
from telemetry.wire.schema import SCHEMA


@dataclass(frozen=True, slots=True)
class StateChanges:
    """Changes of one block: a row for each device and moment; NaN where a metric did not change."""

    device: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    values: npt.NDArray[np.float32]
    """By discrete metric (`names_of`)."""


def names_of(block: int) -> list[str]:
    """Return the metrics of a block whose changes are kept; none of the slow lane, whose readings
    are all written."""
    found = SCHEMA.blocks[block]
    return [name for name in found.gauges if found.lane is Lane.FAST and discrete(METRICS[name])]


class ChangeWatcher:
    """The last states of all devices of one block."""

    def __init__(self, block: int) -> None:
        gauges = SCHEMA.blocks[block].gauges
        self._columns = [gauges.index(name) for name in names_of(block)]
        self._places = DeviceRows()
        self._seen = np.empty(0, np.int64)
        self._states = np.empty((0, len(self._columns)), np.float32)

    def detect(
        self, device: npt.NDArray[np.int64], at: npt.NDArray[np.int64], gauges: npt.NDArray[np.float32]
    ) -> StateChanges | None:
        """Return the changes, or all states of a new device. A frame older than one before it changes
        nothing, and a gap is no change."""
        if not self._columns or not len(device):
            return None
        states = gauges[:, self._columns]
        places = self._places.of(device)
        self._grow()
        found: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]] = []
        for among in layers(device, at):
            rows = places[among]
            fresh = at[among] > self._seen[rows]
            now, before = states[among], self._states[rows]
            known = np.isfinite(now) & fresh[:, None]
            changed = known & (now != before)
            self._states[rows] = np.where(known, now, before)
            self._seen[rows] = np.where(fresh, at[among], self._seen[rows])
            rows_changed = np.flatnonzero(changed.any(axis=1))
            if len(rows_changed):
                values = np.where(changed, now, np.float32(np.nan))[rows_changed]
                found.append((among[rows_changed], values))
        if not found:
            return None
        chosen = np.concatenate([rows for rows, _ in found])
        return StateChanges(device[chosen], at[chosen], np.concatenate([values for _, values in found]))

    def _grow(self) -> None:
        missing = self._places.size - len(self._seen)
        if missing > 0:
            room = missing + self._places.size // 8
            self._seen = np.r_[self._seen, np.full(room, NEVER, np.int64)]
            more = np.full((room, len(self._columns)), np.nan, np.float32)
            self._states = np.concatenate([self._states, more])
