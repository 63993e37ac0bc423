"""The state of every load: measured, modelled, last known, assumed or unknown, and since when.

A load has the worst state of its parts that are more than slight. No rule evaluates it: assumed parts
bound the quantities that rules evaluate (`power.live.confidence`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from api.power import LoadState
from power.devices.wall_power import WallSource
from power.live.confidence import SLIGHT
from power.live.loads import CircuitLoads
from power.live.metering import RANK
from power.live.wall_power import WallPower
from power.network.flow import Ints
from power.wiring import Flags, Floats

STATES = tuple(LoadState)
_NUMBER = {state: number for number, state in enumerate(STATES)}


def hidden(loads: CircuitLoads) -> Flags:
    """Return the circuits whose load is unknown by now, though a part of it was measured once."""
    with np.errstate(invalid="ignore"):
        found: Flags = loads.expired > SLIGHT * loads.watts
    return found


def hidden_nodes(wall_power: WallPower) -> Flags:
    """Return the nodes whose power is unknown by now, though a part of it was measured once."""
    with np.errstate(invalid="ignore"):
        found: Flags = wall_power.expired > SLIGHT * wall_power.watts
    return found


def load_states(loads: CircuitLoads) -> Floats:
    """Return the state of every circuit's load, as `STATES` numbers them."""
    watts = loads.watts
    with np.errstate(invalid="ignore"):
        least = SLIGHT * watts
        modelled = loads.rank >= RANK[WallSource.MODEL]
        assumed = loads.assumed - loads.last_known - loads.expired > least
        last_known = loads.last_known > least
    unknown = np.isnan(watts) | (loads.unknown_nodes > 0) | (loads.unmeasured > 0) | hidden(loads)
    return _first(unknown, assumed, last_known, modelled)


def node_states(wall_power: WallPower) -> Floats:
    """Return the state of every node's power at the wall, as `STATES` numbers them."""
    watts = wall_power.watts
    with np.errstate(invalid="ignore"):
        assumed = wall_power.assumed - wall_power.last_known - wall_power.expired > SLIGHT * watts
        last_known = wall_power.last_known > SLIGHT * watts
    return _first(np.isnan(watts) | hidden_nodes(wall_power), assumed, last_known, np.isnan(wall_power.metered))


def worst(states: Floats, rows: Sequence[Ints]) -> Floats:
    """Return the worst state of some loads, for each list of them; of none it is unknown."""
    none = float(_NUMBER[LoadState.UNKNOWN])
    return np.array([float(states[mine].max()) if len(mine) else none for mine in rows])


def _first(unknown: Flags, assumed: Flags, last_known: Flags, modelled: Flags) -> Floats:
    result: Floats = np.select(
        [unknown, assumed, last_known, modelled],
        [float(_NUMBER[state]) for state in (LoadState.UNKNOWN, LoadState.ASSUMED, LoadState.LAST_KNOWN, LoadState.MODELLED)],
        float(_NUMBER[LoadState.MEASURED]),
    )  # fmt: skip
    return result


class LoadStateTimer:
    """The state of each load, and the time since which it has it."""

    def __init__(self, circuits: int) -> None:
        self.state: Floats = np.full(circuits, np.nan)
        self._since: Floats = np.full(circuits, np.nan)
        """Monotonic seconds: the time of day may be set."""

    def update(self, now: float, state: Floats, silent_seconds: Floats) -> Floats:
        """Return the seconds for which each load has had its state; one that is last known counts from
        its meter's last reading, `silent_seconds` before."""
        changed = state != self.state
        if changed.any():
            held = (state == _NUMBER[LoadState.LAST_KNOWN]) & np.isfinite(silent_seconds)
            start = np.where(held, now - silent_seconds, now)
            self._since = np.where(changed, start, self._since)
            self.state = state
        return np.maximum(now - self._since, 0.0)

    def checkpoint(self, row: int, now: float, wall: float) -> dict[str, object] | None:
        """Return the part of the checkpoint about one circuit; `wall`: seconds since 1970 at `now`."""
        if math.isnan(self.state[row]):
            return None
        return {"state": STATES[int(self.state[row])].value, "since": float(wall - now + self._since[row])}

    def restore(self, row: int, state: str, since: float, now: float, wall: float) -> None:
        """Restore the state of one circuit, which it has had since so many seconds since 1970. Raises
        `ValueError` for one that does not exist."""
        if not math.isfinite(since):
            raise ValueError("no time")
        self.state[row] = _NUMBER[LoadState(state)]
        self._since[row] = now - max(wall - since, 0.0)
