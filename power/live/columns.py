"""The columns of the circuit snapshot, from the results of a tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from power import thresholds
from power.live.confidence import SLIGHT, mask_uncertain, uncertain
from power.live.inputs import PowerInputs
from power.live.loads import CircuitLoads, CircuitMeters
from power.live.metering import NODE, STALE_LEAST, Metering
from power.live.supplies import inrush_amps
from power.live.wall_power import WallPower
from power.network.feeds import Cords
from power.network.flow import Flow
from power.network.topology import SiteTopology
from power.wiring import Flags, Floats, neutral_amps

_WARM_HEAT = 0.60
"""Heat over trip heat from which a silent meter may hide a trip: where E04 clears."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickResult:
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
    survivor_limits: Mapping[str, Floats]
    """`circuit_limit_ratio` and `circuit_survivor_limit_ratio`."""
    sustained: Floats
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
    hidden: Flags
    """Whether the load is unknown by now, and `loads` has what it was."""
    heating: Floats
    """Amps that heat the breaker: a silent node counts with its last draw."""
    state: Floats
    state_seconds: Floats
    fault: Floats
    ahead: tuple[Floats, Floats]
    swing: Floats
    joules: Floats
    missing_seconds: Floats
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


def columns(topology: SiteTopology, result: TickResult) -> dict[str, Floats]:
    """Return every quantity of `power.snapshot.quantities` that is a circuit's."""
    return (
        _load(topology, result)
        | _breaker(topology, result)
        | _what_if(topology, result)
        | _quality(topology, result)
        | _trust(topology, result)
    )


def _load(topology: SiteTopology, result: TickResult) -> dict[str, Floats]:
    network, loads = topology.network, result.loads
    amps = np.where(topology.poles, loads.amps, np.nan)
    gone = result.hidden
    # Of an unknown load only its reported part says something: that it is above a level.
    clear = np.where(gone, -1.0, thresholds.LOAD_CLEAR)
    clear_over = np.where(gone, -1.0, thresholds.OVERLOAD_CLEAR)
    mean_ratio = mask_uncertain(
        result.minute / network.continuous, result.minute_reported / network.continuous, clear, thresholds.CONTINUOUS
    )
    over = mask_uncertain(
        result.ten / network.effective, result.ten_reported / network.effective, clear_over, thresholds.OVERLOAD
    )
    watts, highest = np.where(gone, np.nan, loads.watts), np.where(gone, np.nan, loads.highest)
    sustained = np.where(gone, np.nan, result.sustained)
    # Where the breaker is taken for open, what its nodes may draw is shown still.
    shown = np.where(sustained > 0, sustained, highest)
    amps[gone] = np.nan
    return {
        "circuit_watts": watts,
        "circuit_sigma_watts": np.where(gone, np.nan, loads.sigma),
        "circuit_source": np.where(np.isnan(watts), np.nan, loads.rank),
        "circuit_load_state": result.state,
        "circuit_load_state_seconds": result.state_seconds,
        "circuit_amps": highest,
        "circuit_l1_amps": amps[:, 0],
        "circuit_l2_amps": amps[:, 1],
        "circuit_l3_amps": amps[:, 2],
        "circuit_rated_amps": network.rated,
        "circuit_effective_amps": network.effective,
        "circuit_continuous_amps": network.continuous,
        "circuit_headroom_amps": network.continuous - shown,
        "circuit_load_ratio": highest / network.rated,
        "circuit_assumed_watts": loads.assumed,
        "circuit_continuous_ratio": mean_ratio,
        "circuit_sustained_ratio": sustained / network.rated,
        "circuit_overload_ratio": np.where(topology.breakers, over, np.nan),
        "circuit_above_continuous_seconds": result.above,
        "circuit_energy_joules": result.joules,
        "circuit_energy_missing_seconds": result.missing_seconds,
    }


def _breaker(topology: SiteTopology, result: TickResult) -> dict[str, Floats]:
    inrush = inrush_amps(topology, result.inrush, result.wall_power.silent, result.off | result.dead)
    return {
        "circuit_heat_ratio": result.used,
        "circuit_heat_assumed": (result.assumed | result.hidden).astype(float),
        "circuit_trip_earliest_seconds": result.trips[:, 0],
        "circuit_trip_nominal_seconds": result.trips[:, 1],
        "circuit_trip_latest_seconds": result.trips[:, 2],
        "circuit_magnetic_ratio": np.fmax(result.peak, inrush) / topology.magnetic_amps,
        "circuit_trip_suspected": result.suspected.astype(float),
    }


def _what_if(topology: SiteTopology, result: TickResult) -> dict[str, Floats]:
    network, wall_power = topology.network, result.wall_power
    capped = (wall_power.gpus > 0) & ~np.isnan(wall_power.committed)
    could = topology.count_below(capped) > 0
    amps = np.where(could, np.fmax(result.committed.highest, result.loads.highest), np.nan)
    no_trend = uncertain(result.minute, result.minute_reported)  # a step from one assumption to another is no trend
    return {
        "circuit_committed_watts": np.where(could, np.fmax(result.committed.watts, result.loads.watts), np.nan),
        "circuit_committed_continuous_ratio": amps / network.continuous,
        "circuit_committed_rated_ratio": amps / network.effective,
        "circuit_survivor_amps": result.survivor,
        "circuit_survivor_continuous_ratio": _survives(result, network.continuous),
        "circuit_survivor_rated_ratio": _survives(result, network.effective),
        **{name: _reported(result, ratio) for name, ratio in result.survivor_limits.items()},
        "circuit_forecast_continuous_seconds": np.where(no_trend, np.nan, result.ahead[0]),
        "circuit_forecast_rated_seconds": np.where(no_trend, np.nan, result.ahead[1]),
    }


def _survives(result: TickResult, limit: Floats) -> Floats:
    """Return the ratio to a limit after the loss of another feed."""
    return _reported(result, result.survivor / limit)


def _reported(result: TickResult, ratio: Floats) -> Floats:
    """Return a ratio, or a gap where only assumed power brings it above its level."""
    return mask_uncertain(ratio, ratio * result.loads.reported_part, thresholds.SURVIVOR_CLEAR, thresholds.SURVIVOR)


def _quality(topology: SiteTopology, result: TickResult) -> dict[str, Floats]:
    loads = result.loads
    # A meter on the neutral sees the harmonics, which are set otherwise.
    metered = result.meters.neutral
    neutral = np.where(np.isnan(metered), neutral_amps(loads.currents, topology.third_harmonic), metered)
    known = ~np.isnan(loads.watts) | ~np.isnan(metered)
    neutral = np.where(known & ~np.isnan(topology.neutral_rated), neutral, np.nan)
    return {
        "circuit_neutral_amps": neutral,
        "circuit_neutral_ratio": neutral / topology.neutral_rated,
        "circuit_feed_lost": result.lost.astype(float),
        "circuit_cord_imbalance_ratio": _cords(result),
        "circuit_phase_imbalance_ratio": topology.phase_imbalance(loads.amps),
        "circuit_voltage_ratio": result.meters.volts,
        "circuit_plug_ratio": _plug(topology, result),
        "circuit_swing_ratio": result.swing,
        "circuit_swing_weak_ratio": np.where(topology.weak, result.swing, np.nan),
    }


def _trust(topology: SiteTopology, result: TickResult) -> dict[str, Floats]:
    loads, wall_power = result.loads, result.wall_power
    silent = topology.count_below(wall_power.silent)
    aside = result.undeclared
    may = np.maximum(thresholds.DEVIATION_RATIO * loads.metered, thresholds.DEVIATION_WATTS)
    # The load of a silent node is not known, nor what a meter should read.
    certain = (
        (silent == 0) & (loads.unknown_nodes == 0) & ~uncertain(loads.modelled, loads.modelled - loads.assumed_below)
    )
    stale_node = wall_power.stale | _never_heard(result)
    node_stale = topology.count_below(stale_node) > 0
    stale = result.meters.stale | (node_stale & (result.fault == 0))
    return {
        "circuit_unknown_watts": aside,
        "circuit_unknown_nodes": loads.unknown_nodes,
        "circuit_deviation_ratio": np.where(certain, np.abs(aside) / may, np.nan),
        "circuit_meter_stale": stale.astype(float),
        "circuit_meter_fault": result.fault,
        "circuit_meter_blind": _blind(topology, result, stale).astype(float),
        "circuit_silent_nodes": silent,
        "circuit_unheard_ratio": _unheard(result),
        "circuit_notices": result.notices,
    }


def _unheard(result: TickResult) -> Floats:
    """Return the part of each load that kilowatch itself does not hear; NaN for a load of nothing."""
    loads = result.loads
    load = np.fmax(np.nan_to_num(loads.watts), loads.unheard)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = loads.unheard / load
    return found


def _blind(topology: SiteTopology, result: TickResult, stale: Flags) -> Flags:
    """Return where a meter that is not used may hide an alert: by the last known load, or the heat."""
    loads = result.loads
    with np.errstate(invalid="ignore"):
        unheard = stale | (result.fault > 0) | (loads.unread > 0)
        unheard |= loads.silent_meters > SLIGHT * loads.watts
        near = result.heating >= thresholds.LOAD_CLEAR * topology.network.continuous
        near |= result.used >= _WARM_HEAT
    found: Flags = unheard & near
    return found


def _never_heard(result: TickResult) -> Flags:
    if result.now - result.started <= STALE_LEAST:
        return np.zeros_like(result.metered_nodes)
    metering = result.metering
    heard = np.zeros_like(result.metered_nodes)
    heard[metering.whole("target")[metering.whole("kind") == NODE]] = True
    return result.metered_nodes & ~heard


def _cords(result: TickResult) -> Floats:
    metered = np.where(np.isnan(result.loads.metered), np.nan, result.loads.highest)
    return result.cords.uneven(result.dead, metered)


def _plug(topology: SiteTopology, result: TickResult) -> Floats:
    """Return the load over the limit of a plug: in the circuit, or before one of its nodes."""
    meters, loads, metering = result.meters, result.loads, result.metering
    network = topology.network
    ratio = np.fmax(
        np.fmax(loads.highest / topology.plug_amps, loads.highest / meters.limit_amps), loads.watts / meters.limit_watts
    )
    ratio = mask_uncertain(ratio, ratio * loads.reported_part, thresholds.PLUG_CLEAR, thresholds.PLUG)
    limited = (metering.whole("kind") == NODE) & ~np.isnan(metering.number("limit_watts"))
    if limited.any():  # the plug's limit holds while it is silent, too
        limit = np.full(len(network.machines), np.nan)
        limit[metering.whole("target")[limited]] = metering.number("limit_watts")[limited]
        # Assumed power is no load on the node's plug now.
        load = np.where(result.wall_power.assumed > 0, np.nan, result.wall_power.watts) / limit
        np.fmax.at(ratio, network.cord_circuit, load[network.cord_machine])
    amps = metering.number("amps") / metering.number("limit_amps")
    loaded = (metering.whole("kind") == NODE) & metering.fresh(result.now) & ~np.isnan(amps)
    if loaded.any():
        load = np.full(len(network.machines), np.nan)
        np.fmax.at(load, metering.whole("target")[loaded], amps[loaded])
        np.fmax.at(ratio, network.cord_circuit, load[network.cord_machine])
    return ratio
