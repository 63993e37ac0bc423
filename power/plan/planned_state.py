"""The electrical state of a site at given watts, as a power snapshot that the alert rules evaluate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from api.power import SnapshotKind
from power.devices.thermal import Heat, cold, seconds_to_trip, used
from power.network.contingency import Contingencies
from power.network.feeds import Cords, carry, lost_by_load
from power.network.flow import Flow, Ints
from power.network.outcome import Outcome, compute_outcome
from power.network.topology import SiteTopology
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Flags, Floats, neutral_amps


@dataclass(frozen=True, slots=True)
class PlannedState:
    """Flows, commitment, survivors and trip times; arrays over circuits."""

    now: Flow
    committed: Flow
    machine_watts: Floats
    """At the wall, over machines, as worked out again after what is lost; 0 for those without power."""
    outcome: Outcome
    """Loads after the loss of each element, and of each side."""
    survivor_case: Ints
    """Number of the worst of these losses for each circuit's amps; -1 where none puts more on it."""
    survivor_amps: Floats
    """Highest amps after the worst of these losses; NaN where none puts more on a circuit outside groups."""
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
    contingencies: Contingencies,
    heat: Heat | None = None,
) -> PlannedState:
    """Return the state of every circuit when machines draw `machine_watts` at the wall.

    `known` marks machines with a known commitment: others commit to nothing. `contingencies`: those of
    the planned switching state. `heat` is the breakers' present heat; cold when None.
    """
    network, switching, count = topology.network, contingencies.state, len(topology.network.names)
    dead = switching.dead
    drawn = switching.present_watts(machine_watts)
    outcome = compute_outcome(contingencies, drawn, network.other_watts)
    now = outcome.now.first(count)
    committed = switching.flow(switching.present_watts(committed_watts), network.other_watts).first(count)
    survivor = outcome.survivor_amps()
    worst_case = outcome.worst_amps()[1][:count]
    heat = heat or cold(len(network.names))
    seconds = seconds_to_trip(heat, np.where(dead, 0.0, now.highest / network.effective), network.element)
    seconds = np.where(dead[:, None], np.inf, seconds)  # an open circuit can't trip, however hot
    seconds = np.where(topology.breakers[:, None], seconds, np.nan)
    neutral = neutral_amps(now.currents, topology.third_harmonic)
    could = np.bincount(topology.below[0], known[topology.below[1]], len(network.names)) > 0
    usual = carry(topology, machine_watts, network.other_watts, network.cord_share, np.zeros_like(dead))
    hot = np.where(topology.breakers, used(heat, network.element)[:, 0], np.nan)
    columns = {
        "circuit_continuous_ratio": now.highest / network.continuous,
        "circuit_overload_ratio": np.where(topology.breakers, now.highest / network.effective, np.nan),
        "circuit_heat_ratio": hot,
        "circuit_trip_earliest_seconds": seconds[:, 0],
        "circuit_committed_continuous_ratio": np.where(could, committed.highest / network.continuous, np.nan),
        "circuit_committed_rated_ratio": np.where(could, committed.highest / network.effective, np.nan),
        "circuit_survivor_continuous_ratio": survivor / network.continuous,
        "circuit_survivor_rated_ratio": survivor / network.effective,
        **outcome.circuit_limits(),
        "circuit_feed_lost": lost_by_load(topology, now.highest, usual.highest).astype(float),
        "circuit_cord_imbalance_ratio": Cords(topology).uneven(dead),
        "circuit_phase_imbalance_ratio": topology.phase_imbalance(now.amps),
        "circuit_neutral_ratio": neutral / topology.neutral_rated,
        "circuit_plug_ratio": now.highest / topology.plug_amps,
    }
    snapshot = PowerSnapshot(SnapshotKind.CIRCUIT, 0, network.names, columns)
    return PlannedState(now, committed, drawn, outcome, worst_case, survivor, neutral, seconds, snapshot)
