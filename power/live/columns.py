"""The columns of the circuit snapshot, from the results of a tick."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from power import thresholds
from power.live.confidence import mask_uncertain, reported_load, uncertain
from power.live.inputs import PowerInputs
from power.live.loads import CircuitLoads, CircuitMeters
from power.live.metering import NODE, STALE_LEAST, Metering
from power.live.supplies import inrush_amps
from power.live.wall_power import WallPower
from power.network.feeds import Cords, sum_by_circuit
from power.network.flow import Flow
from power.network.topology import SiteTopology
from power.network.wiring import Flags, Floats, neutral_amps


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitInputs:
    """Results of a tick; arrays over circuits unless stated otherwise."""

    now: float
    tick: PowerInputs
    wall_power: WallPower
    meters: CircuitMeters
    loads: CircuitLoads
    undeclared: Floats
    dead: Flags
    committed: Flow
    survivor: Floats
    lasting: Floats
    trips: Floats
    minute_reported: Floats
    """Reported part of `minute`, without assumed power."""
    ten_reported: Floats
    used: Floats
    assumed: Flags
    minute: Floats
    ten: Floats
    peak: Floats
    above: Floats
    ahead: tuple[Floats, Floats]
    swing: Floats
    joules: Floats
    suspected: Flags
    off: Flags
    inrush: Floats
    """Over machines."""
    lost: Flags
    cords: Cords
    metered_nodes: Flags
    """Over machines."""
    metering: Metering
    started: float
    notices: Floats


def columns(fixed: SiteTopology, seen: CircuitInputs) -> dict[str, Floats]:
    """Return every quantity of `power.snapshot.quantities` that is a circuit's."""
    return _load(fixed, seen) | _breaker(fixed, seen) | _what_if(fixed, seen) | _quality(fixed, seen) | _trust(fixed, seen)  # fmt: skip


def _load(fixed: SiteTopology, seen: CircuitInputs) -> dict[str, Floats]:
    network, loads = fixed.network, seen.loads
    amps = np.where(fixed.poles, loads.amps, np.nan)
    lasting = mask_uncertain(seen.minute / network.continuous, seen.minute_reported / network.continuous, thresholds.LOAD_CLEAR, thresholds.CONTINUOUS)  # fmt: skip
    over = mask_uncertain(seen.ten / network.effective, seen.ten_reported / network.effective, thresholds.OVERLOAD_CLEAR, thresholds.OVERLOAD)  # fmt: skip
    return {
        "circuit_watts": loads.watts,
        "circuit_sigma_watts": loads.sigma,
        "circuit_source": np.where(np.isnan(loads.watts), np.nan, loads.rank),
        "circuit_amps": loads.highest,
        "circuit_l1_amps": amps[:, 0],
        "circuit_l2_amps": amps[:, 1],
        "circuit_l3_amps": amps[:, 2],
        "circuit_rated_amps": network.rated,
        "circuit_effective_amps": network.effective,
        "circuit_continuous_amps": network.continuous,
        "circuit_headroom_amps": network.continuous - loads.highest,
        "circuit_load_ratio": loads.highest / network.rated,
        "circuit_assumed_watts": loads.assumed,
        "circuit_continuous_ratio": lasting,
        "circuit_lasting_ratio": seen.lasting / network.rated,
        "circuit_overload_ratio": np.where(fixed.breakers, over, np.nan),
        "circuit_above_continuous_seconds": seen.above,
        "circuit_energy_joules": seen.joules,
    }  # fmt: skip


def _breaker(fixed: SiteTopology, seen: CircuitInputs) -> dict[str, Floats]:
    inrush = inrush_amps(fixed, seen.inrush, seen.wall_power.silent, seen.off | seen.dead)
    return {
        "circuit_heat_ratio": seen.used,
        "circuit_heat_assumed": seen.assumed.astype(float),
        "circuit_trip_earliest_seconds": seen.trips[:, 0],
        "circuit_trip_nominal_seconds": seen.trips[:, 1],
        "circuit_trip_latest_seconds": seen.trips[:, 2],
        "circuit_magnetic_ratio": np.fmax(seen.peak, inrush) / fixed.magnetic_amps,
        "circuit_trip_suspected": seen.suspected.astype(float),
    }


def _what_if(fixed: SiteTopology, seen: CircuitInputs) -> dict[str, Floats]:
    network, wall_power = fixed.network, seen.wall_power
    circuits, machines, _ = fixed.below
    capped = (wall_power.gpus > 0) & ~np.isnan(wall_power.committed)
    could = np.bincount(circuits, capped[machines], len(network.names)) > 0
    amps = np.where(could, np.fmax(seen.committed.highest, seen.loads.highest), np.nan)
    no_trend = uncertain(
        seen.minute, seen.minute_reported
    )  # a step from one assumption to another is no trend
    return {
        "circuit_committed_watts": np.where(could, np.fmax(seen.committed.watts, seen.loads.watts), np.nan),
        "circuit_committed_continuous_ratio": amps / network.continuous,
        "circuit_committed_rated_ratio": amps / network.rated,
        "circuit_survivor_amps": seen.survivor,
        "circuit_survivor_continuous_ratio": _survives(seen, network.continuous),
        "circuit_survivor_rated_ratio": _survives(seen, network.rated),
        "circuit_forecast_continuous_seconds": np.where(no_trend, np.nan, seen.ahead[0]),
        "circuit_forecast_rated_seconds": np.where(no_trend, np.nan, seen.ahead[1]),
    }  # fmt: skip


def _survives(seen: CircuitInputs, limit: Floats) -> Floats:
    """Return the ratio to a limit after the loss of another feed."""
    ratio = seen.survivor / limit
    least = reported_load(ratio, seen.loads.watts, seen.loads.assumed)
    return mask_uncertain(ratio, least, thresholds.SURVIVOR_CLEAR, thresholds.SURVIVOR)


def _quality(fixed: SiteTopology, seen: CircuitInputs) -> dict[str, Floats]:
    loads = seen.loads
    # Only a meter on the neutral sees the harmonics.
    metered = seen.meters.neutral
    neutral = np.where(np.isnan(metered), neutral_amps(loads.currents), metered)
    known = ~np.isnan(loads.watts) | ~np.isnan(metered)
    neutral = np.where(known & ~np.isnan(fixed.neutral_rated), neutral, np.nan)
    return {
        "circuit_neutral_amps": neutral,
        "circuit_neutral_ratio": neutral / fixed.neutral_rated,
        "circuit_feed_lost": seen.lost.astype(float),
        "circuit_cord_imbalance_ratio": _cords(seen),
        "circuit_phase_imbalance_ratio": fixed.phase_imbalance(loads.amps),
        "circuit_voltage_ratio": seen.meters.volts,
        "circuit_plug_ratio": _plug(fixed, seen),
        "circuit_swing_ratio": seen.swing,
        "circuit_swing_weak_ratio": np.where(fixed.weak, seen.swing, np.nan),
    }


def _trust(fixed: SiteTopology, seen: CircuitInputs) -> dict[str, Floats]:
    loads, wall_power, count = seen.loads, seen.wall_power, len(fixed.network.names)
    circuits, machines, _ = fixed.below
    silent = sum_by_circuit(circuits, wall_power.silent[machines].astype(float), count)
    aside = seen.undeclared
    may = np.maximum(thresholds.DEVIATION_RATIO * loads.metered, thresholds.DEVIATION_WATTS)
    # The load of a silent node is not known, nor what a meter should read.
    certain = (silent == 0) & (loads.unknown_nodes == 0)
    stale_node = wall_power.stale | _never_heard(seen)
    node_stale = np.bincount(circuits, stale_node[machines], count) > 0
    return {
        "circuit_unknown_watts": aside,
        "circuit_unknown_nodes": loads.unknown_nodes,
        "circuit_deviation_ratio": np.where(certain, np.abs(aside) / may, np.nan),
        "circuit_meter_stale": (seen.meters.stale | node_stale).astype(float),
        "circuit_silent_nodes": silent,
        "circuit_notices": seen.notices,
    }


def _never_heard(seen: CircuitInputs) -> Flags:
    if seen.now - seen.started <= STALE_LEAST:
        return np.zeros_like(seen.metered_nodes)
    metering = seen.metering
    heard = np.zeros_like(seen.metered_nodes)
    heard[metering.whole("target")[metering.whole("kind") == NODE]] = True
    return seen.metered_nodes & ~heard


def _cords(seen: CircuitInputs) -> Floats:
    metered = np.where(np.isnan(seen.loads.metered), np.nan, seen.loads.highest)
    return seen.cords.uneven(seen.dead, metered)


def _plug(fixed: SiteTopology, seen: CircuitInputs) -> Floats:
    """Return the load over the limit of a plug: in the circuit, or before one of its nodes."""
    meters, loads, metering = seen.meters, seen.loads, seen.metering
    network = fixed.network
    ratio = np.fmax(
        np.fmax(loads.highest / fixed.plug_amps, loads.highest / meters.limit_amps),
        loads.watts / meters.limit_watts,
    )
    least = reported_load(ratio, loads.watts, loads.assumed)
    ratio = mask_uncertain(ratio, least, thresholds.PLUG_CLEAR, thresholds.PLUG)
    limited = (metering.whole("kind") == NODE) & ~np.isnan(metering.number("limit_watts"))
    if limited.any():  # the plug's limit holds while it is silent, too
        limit = np.full(len(network.machines), np.nan)
        limit[metering.whole("target")[limited]] = metering.number("limit_watts")[limited]
        # Assumed power is no load on the node's plug now.
        load = np.where(seen.wall_power.assumed > 0, np.nan, seen.wall_power.watts) / limit
        np.fmax.at(ratio, network.cord_circuit, load[network.cord_machine])
    amps = metering.number("amps") / metering.number("limit_amps")
    loaded = (metering.whole("kind") == NODE) & metering.fresh(seen.now) & ~np.isnan(amps)
    if loaded.any():
        load = np.full(len(network.machines), np.nan)
        np.fmax.at(load, metering.whole("target")[loaded], amps[loaded])
        np.fmax.at(ratio, network.cord_circuit, load[network.cord_machine])
    return ratio
