"""Load that only a silent meter knew: held for a while with a growing spread, then unknown.

A meter measures what no node reports. When it falls silent, that part of its circuit's load is neither 0
nor measured: it counts as last known, with the time since the last reading, and is assumed power for
every rule. Over a restart it comes from the checkpoint, until the meter's first reading.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from power.live.confidence import uncertain
from power.live.last_measured import LAST_KNOWN_SECONDS, spread
from power.live.loads import CircuitLoads, CircuitMeters, Held
from power.live.undeclared import undeclared
from power.live.wall_power import WallPower
from power.network.topology import SiteTopology
from power.wiring import Complex, Flags, Floats

_SETTLING_SECONDS = 60.0
"""Time after a change of the reading in which its nodes' readings follow."""


class HeldLoad:
    """The last undeclared load of every circuit with a meter."""

    def __init__(self, topology: SiteTopology) -> None:
        count = len(topology.network.names)
        self._topology = topology
        self._watts: Floats = np.full(count, np.nan)
        self._deficit: Floats = np.zeros(count)
        """Watts of the nodes' sum beyond the meter."""
        self._total: Floats = np.full(count, np.nan)
        """Last watts by the meter."""
        self._currents: Complex = np.zeros((count, 3), complex)
        """Phasors of the undeclared part, amps."""
        self.at: Floats = np.full(count, -np.inf)
        """Monotonic time of the meter's last reading."""
        self.begun: Flags = np.zeros(count, bool)
        """Circuits whose meter has reported since the start."""
        self._changed_at: Floats = np.full(count, -np.inf)
        """Time of the last change of each meter that is learnt."""

    def held(self, now: float) -> Held:
        """Return what is held at `now`; it counts only where no meter reports."""
        age = now - self.at
        watts = np.nan_to_num(self._watts)
        return Held(
            watts,
            self._total,
            self._currents,
            spread(age) * watts,
            age > LAST_KNOWN_SECONDS,
            ~np.isnan(self._watts),
            self._deficit,
        )

    def learn(self, now: float, wall_power: WallPower, loads: CircuitLoads, meters: CircuitMeters) -> Flags:
        """Remember what the meters know beyond the nodes; return the circuits metered for the first
        time since the start."""
        metered = ~np.isnan(loads.metered)
        first = metered & ~self.begun
        changed_now = meters.changed_at != self._changed_at
        self._changed_at = meters.changed_at
        if not metered.any():
            return first
        self.begun |= metered
        more = undeclared(self._topology, wall_power, loads)
        excess, deficit = np.maximum(more, 0.0), np.maximum(-more, 0.0)
        # A frozen meter knows nothing of the load beyond its nodes.
        quiet = now - meters.changed_at
        excess = np.where(changed_now, excess, np.fmin(self._watts, excess))
        least = np.fmin(self._deficit, deficit)
        # What silent nodes are assumed to draw says nothing of what is beyond them: the meter dies next.
        assumed = uncertain(loads.modelled, loads.modelled - loads.assumed_below)
        excess = np.where(assumed, np.fmax(self._watts, excess), excess)
        deficit = np.where(changed_now & ~assumed, deficit, least)
        take = metered & ~np.isnan(excess) & ((quiet <= _SETTLING_SECONDS) | np.isnan(self._watts))
        self.at = np.where(metered, np.fmax(self.at, meters.heard_at), self.at)
        self._deficit = np.where(take, deficit, self._deficit)
        self._total = np.where(metered, loads.metered, self._total)
        changed = take & (excess != self._watts)
        if changed.any():
            rows = np.flatnonzero(changed)
            self._watts[rows] = excess[rows]
            whole = self._topology.single_feed[rows] >= 0
            with np.errstate(invalid="ignore", divide="ignore"):
                part = np.nan_to_num(excess[rows] / loads.watts[rows])
            self._currents[rows] = np.where(
                whole[:, None], loads.currents[rows] * part[:, None], loads.excess_currents[rows]
            )
        return first

    def checkpoint(self, row: int, now: float) -> dict[str, Any] | None:
        """Return the part of the checkpoint about one circuit; None where no meter has reported."""
        if math.isnan(self._watts[row]) or not math.isfinite(self.at[row]):
            return None
        currents = self._currents[row]
        return {
            "watts": float(self._watts[row]), "total": float(self._total[row]), "age": float(now - self.at[row]),
            "deficit": float(self._deficit[row]),
            "real": currents.real.tolist(), "imaginary": currents.imag.tolist(),
        }  # fmt: skip

    def restore(self, row: int, found: Mapping[str, Any], before: float) -> None:
        """Restore one circuit; the checkpoint is from `before`, monotonic seconds of this process. Raises
        `KeyError`, `TypeError` or `ValueError` for anything else."""
        numbers = [float(found[name]) for name in ("watts", "total", "age")]
        deficit = float(found.get("deficit", 0.0))
        poles = [float(x) for name in ("real", "imaginary") for x in found[name]]
        if len(poles) != 6 or not all(map(math.isfinite, [*numbers, deficit, *poles])) or min(*numbers, deficit) < 0:
            raise ValueError("no held load")
        self._watts[row], self._total[row] = numbers[:2]
        self._deficit[row] = deficit
        self.at[row] = before - numbers[2]
        self._currents[row] = np.array(poles[:3]) + 1j * np.array(poles[3:])
