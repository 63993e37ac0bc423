"""Loads of circuits since this dashboard was started."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from api.power import CircuitHistoryReply
from present.circuit.figures import measured_watts
from tui.state.dashboard_state import DashboardState

KEPT = 1200
"""Instants that are held."""
Past = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Times in ns since 1970, and watts."""


EVERY = 10 * 10**9
"""ns between two instants that the aggregator keeps."""


def joined(own: Past, stored: CircuitHistoryReply | None, until: int, span: int) -> Past:
    """Return the loads that this dashboard has seen, preceded by stored ones where they do not fill `span`
    seconds; then at the distance of the stored ones, so that nothing looks like a gap."""
    at, watts = own
    if stored is None or not stored.at or (len(at) and at[0] <= until - span * 10**9):
        return own
    kept = np.array(stored.at)
    values = np.array(stored.values, np.float64)
    before = kept <= until
    if len(at):
        before &= kept < at[0] - EVERY // 2
        seldom = np.flatnonzero(np.diff(at // EVERY, prepend=-1))
        at, watts = at[seldom], watts[seldom]
    return np.concatenate([kept[before], at]), np.concatenate([values[before], watts])


class Loads:
    """Loads of all circuits at the newest instants."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, np.ndarray[Any, Any]]] = deque(maxlen=KEPT)
        self._names: tuple[str, ...] = ()

    def add(self, state: DashboardState) -> None:
        """Add an instant; other circuits clear the loads, an answer without circuits adds nothing."""
        names = tuple(circuit.id for circuit in state.circuits)
        if names and names != self._names:
            self._kept.clear()
            self._names = names
        at = state.circuits_at
        if names and at and (not self._kept or self._kept[-1][0] != at):
            self._kept.append((at, np.array([measured_watts(c) for c in state.circuits], np.float32)))

    def of(self, name: str, until: int) -> Past:
        """Return the watts of a circuit up to an instant, and a little after: circuits are computed later."""
        if name not in self._names:
            return np.empty(0), np.empty(0)
        row = self._names.index(name)
        pairs = [(at, values[row]) for at, values in self._kept if at <= until + 2_000_000_000]
        return np.array([at for at, _ in pairs]), np.array([v for _, v in pairs], np.float64)
