"""The electrical state of a site at given watts, as a power snapshot that the alert rules evaluate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from api.power import SnapshotKind
from power.devices.thermal import Heat, cold, seconds_to_trip, used
from power.network.feeds import Cords, Losses, carry, dead_below, lost_by_load
from power.network.flow import Flow
from power.network.topology import SiteTopology
from power.network.wiring import Flags, Floats, neutral_amps
from power.snapshot.snapshot import PowerSnapshot


@dataclass(frozen=True, slots=True)
class PlannedState:
    """Flows, commitment, survivors and trip times; arrays over circuits."""

    now: Flow
    committed: Flow
    survivor_amps: Floats
    """Highest amps after the worst loss of one feed of its group; NaN outside groups."""
    neutral: Floats
    trip_seconds: Floats
    """Shape (circuits, 3), estimates; inf is never, NaN where the breaker is not known."""
    snapshot: PowerSnapshot
    """Quantities that rules evaluate: those of a live snapshot that need no history."""


def evaluate(
    topology: SiteTopology,
    machine_watts: Floats,
    committed_watts: Floats,
    *,
    known: Flags,
    lost: frozenset[str] = frozenset(),
    heat: Heat | None = None,
) -> PlannedState:
    """Return the state of every circuit when machines draw `machine_watts` at the wall.

    `known` marks machines with a known commitment: others commit to nothing. `lost` names circuits
    that are off. `heat` is the breakers' present heat; cold when None.
    """
    network = topology.network
    dead = dead_below(topology, np.array([name in lost for name in network.names], dtype=bool))
    losses = Losses(topology)
    losses.prepare(dead)
    now = carry(topology, machine_watts, network.other_watts, losses.shares, dead)
    committed = carry(topology, committed_watts, network.other_watts, losses.shares, dead)
    survivor = losses.survivors(machine_watts, network.other_watts)
    heat = heat or cold(len(network.names))
    seconds = seconds_to_trip(heat, np.where(dead, 0.0, now.highest / network.effective), network.element)  # fmt: skip
    seconds = np.where(dead[:, None], np.inf, seconds)  # an open circuit can't trip, however hot
    seconds = np.where(topology.breakers[:, None], seconds, np.nan)
    neutral = neutral_amps(now.currents)
    could = np.bincount(topology.below[0], known[topology.below[1]], len(network.names)) > 0
    usual = carry(
        topology, machine_watts, network.other_watts, network.cord_share, np.zeros_like(dead)
    )
    hot = np.where(topology.breakers, used(heat, network.element)[:, 0], np.nan)
    columns = {
        "circuit_continuous_ratio": now.highest / network.continuous,
        "circuit_overload_ratio": np.where(topology.breakers, now.highest / network.effective, np.nan),
        "circuit_heat_ratio": hot,
        "circuit_trip_earliest_seconds": seconds[:, 0],
        "circuit_committed_continuous_ratio": np.where(could, committed.highest / network.continuous, np.nan),
        "circuit_committed_rated_ratio": np.where(could, committed.highest / network.rated, np.nan),
        "circuit_survivor_continuous_ratio": survivor / network.continuous,
        "circuit_survivor_rated_ratio": survivor / network.rated,
        "circuit_feed_lost": lost_by_load(topology, now.highest, usual.highest).astype(float),
        "circuit_cord_imbalance_ratio": Cords(topology).uneven(dead),
        "circuit_phase_imbalance_ratio": topology.phase_imbalance(now.amps),
        "circuit_neutral_ratio": neutral / topology.neutral_rated,
        "circuit_plug_ratio": now.highest / topology.plug_amps,
    }  # fmt: skip
    snapshot = PowerSnapshot(SnapshotKind.CIRCUIT, 0, network.names, columns)
    return PlannedState(now, committed, survivor, neutral, seconds, snapshot)
