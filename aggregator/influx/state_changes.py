"""The moment at which a state changes: what a mean of ten seconds can't say. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggregator.influx.aggregates import NEVER, layers
from aggregator.influx.names import METRICS, discrete
from aggregator.influx.span_ladder import DeviceRows
from telemetry.metric import Lane
from telemetry.schema import SCHEMA


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

    def take(
        self,
        device: npt.NDArray[np.int64],
        at: npt.NDArray[np.int64],
        gauges: npt.NDArray[np.float32],
    ) -> StateChanges | None:
        """Return what changed; all states of a device that is seen first. A frame older than one
        that was taken says nothing of now, and a gap is no change."""
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
            those = np.flatnonzero(changed.any(axis=1))
            if len(those):
                edges = np.where(changed, now, np.float32(np.nan))[those]
                found.append((among[those], edges))
        if not found:
            return None
        chosen = np.concatenate([rows for rows, _ in found])
        return StateChanges(
            device[chosen], at[chosen], np.concatenate([edges for _, edges in found])
        )

    def _grow(self) -> None:
        missing = self._places.size - len(self._seen)
        if missing > 0:
            room = missing + self._places.size // 8
            self._seen = np.r_[self._seen, np.full(room, NEVER, np.int64)]
            more = np.full((room, len(self._columns)), np.nan, np.float32)
            self._states = np.concatenate([self._states, more])
