"""The power supplies of every node: their load, and whether GPU power spikes exceed their rating."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from api.power import SnapshotKind
from power import thresholds
from power.live.confidence import mask_uncertain, reported_load
from power.live.facts import LazyFacts
from power.live.load_state import hidden_nodes
from power.live.wall_power import WallPower, WallPowerModel
from power.network.topology import SiteTopology
from power.site.machine import Machine
from power.snapshot.quantities import SOURCES
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Flags, Floats
from present.units import exact_watts


class Supplies:
    """Supply ratings as arrays over machines."""

    def __init__(
        self,
        machines: Sequence[Machine],
        topology: SiteTopology,
        supplies: Sequence[int | None],
        caps: Sequence[float | None],
    ) -> None:
        """`supplies`: number of supplies behind each cord; `caps`: configured watts per GPU of each
        machine."""
        network = topology.network
        self._cord_circuit, self._cord_machine = network.cord_circuit, network.cord_machine
        self._machines = tuple(machines)
        self._rated = np.array([m.supply_watts or np.nan for m in machines], dtype=float)
        self._count = np.array([float(m.supplies) for m in machines])
        self._needed = np.array([float(m.needed) for m in machines])
        cords = np.bincount(self._cord_machine, minlength=len(machines))
        even = self._count[self._cord_machine] / np.maximum(cords[self._cord_machine], 1)
        self._behind = np.array([np.nan if n is None else float(n) for n in supplies])
        self._behind = np.where(np.isnan(self._behind), even, self._behind)
        self._spike = np.array(
            [m.card.spike_watts if m.card and m.card.spike_watts and not m.bears_spikes else np.nan for m in machines],
            dtype=float,
        )
        self._cap = np.array([np.nan if cap is None else cap for cap in caps], dtype=float)
        self._host = np.array([m.host_watts for m in machines], dtype=float)
        self.inrush = np.array([m.inrush_amps * m.supplies for m in machines], dtype=float)
        """Amps of all supplies of a machine that is switched on."""

    def snapshot(
        self, wall_power: WallPower, model: WallPowerModel, dead: Flags, version: int, names: tuple[str, ...]
    ) -> PowerSnapshot:
        """Return the snapshot of all machines' supplies."""
        lost = np.bincount(self._cord_machine, self._behind * dead[self._cord_circuit], len(names))
        working = self._count - np.round(lost)
        carrying = np.minimum(working, self._needed)
        inside = model.curves.inside(wall_power.watts)
        with np.errstate(invalid="ignore", divide="ignore"):
            load = np.where(carrying > 0, inside / (self._rated * carrying), np.nan)
            least = reported_load(load, wall_power.watts, wall_power.assumed)
            gone = hidden_nodes(wall_power)
            clear = np.where(gone, -1.0, thresholds.SUPPLY_CLEAR)
            load = mask_uncertain(load, least, clear, thresholds.SUPPLY_OVER)
            spike = (self._host + wall_power.gpus * self._spike) / (self._rated * self._count)
        rows = {
            "supply_load_ratio": load,
            "supply_spike_ratio": spike,
            "supply_cap_excess_watts": wall_power.limit_watts - wall_power.gpus * self._cap,
            "supply_wall_watts": np.where(gone, np.nan, wall_power.watts),
            "supply_assumed_watts": wall_power.assumed,
            "supply_wall_sigma_watts": np.where(gone, np.nan, wall_power.sigma),
        }
        words = dict(SOURCES)

        def facts(row: int) -> dict[str, str]:
            machine = self._machines[row]
            rating = "not configured"
            if machine.supply_watts is not None:
                rating = f"{machine.supplies} x {exact_watts(machine.supply_watts)}, {machine.needed} needed"
            cap = self._cap[row]
            return {
                "node": names[row],
                "cap": "not configured" if np.isnan(cap) else f"{exact_watts(cap)} per GPU",
                "supplies": rating,
                "working": f"{working[row]:g} of {machine.supplies}",
                "source": words[int(wall_power.rank[row])] + _state(wall_power, row),
            }

        return PowerSnapshot(SnapshotKind.SUPPLY, version, names, rows, LazyFacts(len(names), facts))


def _state(wall_power: WallPower, row: int) -> str:
    if wall_power.silent[row]:
        return ", the node is silent"
    return ", a better source is stale" if wall_power.degraded[row] else ""


def inrush_amps(topology: SiteTopology, inrush: Floats, silent: Flags, off: Flags) -> Floats:
    """Return the peak current of each open circuit if all its dark machines were switched on at once."""
    if not off.any():
        return np.zeros(len(off))
    circuits, machines, share = topology.below
    waiting = np.where(silent[machines], inrush[machines] * share, 0.0)
    total = np.bincount(circuits, waiting, len(topology.network.names)) / topology.poles.sum(axis=1)
    return np.where(off, total, 0.0)
