"""The quantities of all power snapshots, one row each, as in the catalogue of metrics."""

from __future__ import annotations

from api.power import LoadState, SnapshotKind
from power.devices.wall_power import WallSource
from power.meters.reading import MeterFault
from power.snapshot.snapshot import Quantity
from telemetry.metric import Kind, Unit

SOURCES = tuple(enumerate(source.value for source in WallSource))
"""`circuit_source` as number and words, the best source first."""
LOAD_STATES = tuple(enumerate(state.value for state in LoadState))
METER_FAULTS = tuple(enumerate(fault.value for fault in MeterFault))


def _circuit(
    name: str, unit: Unit, text: str, *, kind: Kind = Kind.GAUGE, states: tuple[tuple[int, str], ...] = ()
) -> Quantity:
    snapshot = SnapshotKind.CIRCUIT
    return Quantity(name=f"{snapshot}_{name}", unit=unit, help=text, snapshot_kind=snapshot, kind=kind, states=states)


def _other(
    snapshot: SnapshotKind, name: str, unit: Unit, text: str, states: tuple[tuple[int, str], ...] = ()
) -> Quantity:
    return Quantity(name=f"{snapshot}_{name}", unit=unit, help=text, snapshot_kind=snapshot, states=states)


def _states(snapshot: SnapshotKind, of: str) -> tuple[Quantity, Quantity]:
    return (
        _other(snapshot, "load_state", Unit.STATE, f"How {of} is known: the worst of its parts.", LOAD_STATES),
        _other(snapshot, "load_state_seconds", Unit.SECONDS, f"Time for which {snapshot}_load_state has been so."),
    )


QUANTITIES: tuple[Quantity, ...] = (
    _circuit("watts", Unit.WATTS, "Power of the circuit at the wall."),
    _circuit("sigma_watts", Unit.WATTS, "One standard deviation of circuit_watts."),
    _circuit("source", Unit.STATE, "Source of circuit_watts: the worst one of its parts.", states=SOURCES),
    _circuit("assumed_watts", Unit.WATTS, "Assumed part of circuit_watts: silent nodes count with their power commitment, then with their last draw; unread GPUs with their limits; a silent meter with what it last knew beyond its nodes."),
    _circuit("load_state", Unit.STATE, "How circuit_watts is known: the worst of its parts that is more than slight.", states=LOAD_STATES),
    _circuit("load_state_seconds", Unit.SECONDS, "Time for which circuit_load_state has been so; a last known load counts from its meter's last reading."),
    _circuit("amps", Unit.AMPERES, "Current of the pole with the highest current."),
    _circuit("l1_amps", Unit.AMPERES, "Current of pole L1."),
    _circuit("l2_amps", Unit.AMPERES, "Current of pole L2."),
    _circuit("l3_amps", Unit.AMPERES, "Current of pole L3."),
    _circuit("neutral_amps", Unit.AMPERES, "Current of the neutral, where there is one."),
    _circuit("rated_amps", Unit.AMPERES, "Rating of the breaker."),
    _circuit("effective_amps", Unit.AMPERES, "Rating after derating for heat and grouping."),
    _circuit("continuous_amps", Unit.AMPERES, "Continuous limit: what it may carry for three hours and more."),
    _circuit("headroom_amps", Unit.AMPERES, "Headroom below the continuous limit; negative above it."),
    _circuit("load_ratio", Unit.RATIO, "Current over rating."),
    _circuit("continuous_ratio", Unit.RATIO, "Mean current of the last 60 s over the continuous limit; a gap where it exceeds a level only by circuit_assumed_watts."),
    _circuit("sustained_ratio", Unit.RATIO, "Current over rating that trip times are computed with: mean of the last 10 s, or the lowest of the last 3 s where it has risen to that after 10 s of rest."),
    _circuit("overload_ratio", Unit.RATIO, "Mean current of the last 10 s over circuit_effective_amps; a gap where it exceeds a level only by circuit_assumed_watts."),
    _circuit("above_continuous_seconds", Unit.SECONDS, "Time above the continuous limit; dips shorter than 60 s do not end it."),
    _circuit("heat_ratio", Unit.RATIO, "Heat of the breaker over its trip heat, earliest edge; an estimate."),
    _circuit("trip_earliest_seconds", Unit.SECONDS, "Seconds until it may trip at this load, an estimate; +Inf is never."),
    _circuit("trip_nominal_seconds", Unit.SECONDS, "Seconds until a typical breaker trips at this load, an estimate; +Inf is never."),
    _circuit("trip_latest_seconds", Unit.SECONDS, "Seconds until it must have tripped at this load, an estimate; +Inf is never."),
    _circuit("magnetic_ratio", Unit.RATIO, "Highest recent current, or the inrush of a restart, over the lowest current that trips at once."),
    _circuit("heat_assumed", Unit.FLAG, "1 while the heat depends on an assumed start: hours of the load that was first seen."),
    _circuit("committed_watts", Unit.WATTS, "Power commitment: what the limits in force allow in the next second."),
    _circuit("committed_continuous_ratio", Unit.RATIO, "Current at committed_watts over the continuous limit."),
    _circuit("committed_rated_ratio", Unit.RATIO, "Current at committed_watts over circuit_effective_amps."),
    _circuit("survivor_continuous_ratio", Unit.RATIO, "Current after the worst loss of another element, or of a side of its group, over the continuous limit."),
    _circuit("survivor_rated_ratio", Unit.RATIO, "Current after the worst loss of another element, or of a side of its group, over circuit_effective_amps."),
    _circuit("limit_ratio", Unit.RATIO, "Load of a transformer, or of the source of a circuit, over its rating in watts or volt-amperes, whichever is nearer."),
    _circuit("survivor_limit_ratio", Unit.RATIO, "circuit_limit_ratio after the worst loss of another element, or of a side of its group."),
    _circuit("feed_lost", Unit.FLAG, "1 while it carries nothing and its partner does, or its breaker reports a trip."),
    _circuit("cord_imbalance_ratio", Unit.RATIO, "Largest difference between the two cords of one node on it, over their sum."),
    _circuit("phase_imbalance_ratio", Unit.RATIO, "Largest difference of a pole from the mean of the poles, over the mean; 0 below 30 % load."),
    _circuit("neutral_ratio", Unit.RATIO, "Current of the neutral over its rating."),
    _circuit("voltage_ratio", Unit.RATIO, "Measured voltage over the nominal one."),
    _circuit("plug_ratio", Unit.RATIO, "Load over the limit of its smart plug."),
    _circuit("deviation_ratio", Unit.RATIO, "Difference of meter and model over the allowed one: 15 % and at least 100 W; above 1 it is too large."),
    _circuit("meter_stale", Unit.FLAG, "1 while a configured meter of it is stale and the next source is used."),
    _circuit("meter_fault", Unit.STATE, "Fault for which the reading of a meter of it is not used.", states=METER_FAULTS),
    _circuit("meter_blind", Unit.FLAG, "1 while a meter on whose load an alert may depend does not report or is not used: the last known load, or the breaker's heat, is near a limit."),
    _circuit("forecast_continuous_seconds", Unit.SECONDS, "Seconds until the trend reaches the continuous limit; +Inf is not in sight."),
    _circuit("forecast_rated_seconds", Unit.SECONDS, "Seconds until the trend reaches the rating; +Inf is not in sight."),
    _circuit("swing_ratio", Unit.RATIO, "Difference between highest and lowest current of the last 60 s over the rating, when it swung five times; 0 otherwise."),
    _circuit("swing_weak_ratio", Unit.RATIO, "circuit_swing_ratio of a circuit behind a UPS or a generator, which swings disturb."),
    _circuit("unknown_watts", Unit.WATTS, "Undeclared load: its meter less the sum of its nodes and declared loads; negative when it reads less."),
    _circuit("unknown_nodes", Unit.COUNT, "Nodes on it with unknown power: they are missing in circuit_watts."),
    _circuit("survivor_amps", Unit.AMPERES, "Current after the worst loss of another element, or of a side of its group."),
    _circuit("silent_nodes", Unit.COUNT, "Silent nodes on it: they count with assumed power, never with 0."),
    _circuit("unheard_ratio", Unit.RATIO, "Part of circuit_watts of nodes that kilowatch itself does not hear: their aggregator is gone, or the network to it. A meter of the circuit hears all of it."),
    _circuit("trip_suspected", Unit.FLAG, "1 when several nodes on it fell silent within 5 s while others report: the breaker has probably tripped."),
    _circuit("notices", Unit.COUNT, "Notes on its configuration: settings that are allowed and probably wrong."),
    _circuit("energy_joules", Unit.JOULES, "Energy since kilowatch first saw it, without assumed power; written to disk before it is exported, so that it never falls by a crash.", kind=Kind.COUNTER),
    _circuit("energy_missing_seconds", Unit.SECONDS, "Time since then that circuit_energy_joules does not cover: kilowatch was down or the load not known, and no meter's counter has covered it."),
    _other(SnapshotKind.BUDGET, "watts", Unit.WATTS, "Power that counts against the budget."),
    _other(SnapshotKind.BUDGET, "assumed_watts", Unit.WATTS, "Assumed part of budget_watts."),
    _other(SnapshotKind.BUDGET, "power_ratio", Unit.RATIO, "budget_watts over the budget's kW."),
    _other(SnapshotKind.BUDGET, "level_ratio", Unit.RATIO, "budget_power_ratio on a scale where the budget's own clear, warn and crit are 0.85, 0.90 and 0.97; a gap where it exceeds a level only by budget_assumed_watts."),
    _other(SnapshotKind.BUDGET, "month_joules", Unit.JOULES, "Energy of this month that was measured, or recovered by a meter's own counter."),
    _other(SnapshotKind.BUDGET, "month_filled_joules", Unit.JOULES, "Energy that fills this month's past hours without readings: the mean at the same hour of the day; and what stands in for silent nodes on no circuit."),
    _other(SnapshotKind.BUDGET, "month_forecast_joules", Unit.JOULES, "Energy of the whole month: measured, filled, and forecast until its end."),
    _other(SnapshotKind.BUDGET, "month_known_ratio", Unit.RATIO, "Part of this month's past hours that was measured or recovered."),
    _other(SnapshotKind.BUDGET, "demand_watts", Unit.WATTS, "Demand of the running interval (15 minutes, or as the bill says) if the power stays as it is."),
    _other(SnapshotKind.BUDGET, "peak_watts", Unit.WATTS, "Highest demand of this month; intervals without readings are not in it."),
    _other(SnapshotKind.BUDGET, "peak_ratio", Unit.RATIO, "budget_demand_watts of the bill over the demand that is billed anyway: the month's highest, the ratchet's, the contract's where only its excess is charged; above 1 the bill rises."),
    _other(SnapshotKind.BUDGET, "energy_ratio", Unit.RATIO, "Energy projected for the end of the month over the budget's kWh."),
    _other(SnapshotKind.BUDGET, "cost_ratio", Unit.RATIO, "Cost projected for the end of the month over the budget's."),
    _other(SnapshotKind.UPS, "load_ratio", Unit.RATIO, "Load over the rating, of watts or of volt-amperes, whichever is nearer to it."),
    _other(SnapshotKind.UPS, "survivor_ratio", Unit.RATIO, "ups_load_ratio after the worst loss of another element, of a side of its group, or of one of its modules."),
    _other(SnapshotKind.UPS, "on_battery", Unit.FLAG, "1 while it runs on its battery."),
    _other(SnapshotKind.UPS, "battery_low", Unit.FLAG, "1 when it reports a low battery."),
    _other(SnapshotKind.UPS, "runtime_seconds", Unit.SECONDS, "Remaining battery time at this load."),
    _other(SnapshotKind.UPS, "overload_seconds", Unit.SECONDS, "Time for which it bears this load by its overload table; +Inf is unlimited."),
    _other(SnapshotKind.SUPPLY, "load_ratio", Unit.RATIO, "Load of the supplies that must carry everything when the spare ones fail, over their rating."),
    _other(SnapshotKind.SUPPLY, "spike_ratio", Unit.RATIO, "Sum of the GPUs' shortest spikes and the host over the rating, for supplies that bear no spikes."),
    _other(SnapshotKind.SUPPLY, "cap_excess_watts", Unit.WATTS, "Sum of the GPUs' limits in force less the configured cap; negative below it."),
    _other(SnapshotKind.SUPPLY, "wall_watts", Unit.WATTS, "Power of the node at the wall, from its best source."),
    _other(SnapshotKind.SUPPLY, "assumed_watts", Unit.WATTS, "Assumed part of supply_wall_watts: the node is silent, or GPUs were not read."),
    _other(SnapshotKind.SUPPLY, "wall_sigma_watts", Unit.WATTS, "One standard deviation of supply_wall_watts."),
    *_states(SnapshotKind.BUDGET, "budget_watts"),
    *_states(SnapshotKind.UPS, "the load of the UPS"),
    *_states(SnapshotKind.SUPPLY, "supply_wall_watts"),
)  # fmt: skip

QUANTITY_BY_NAME = {quantity.name: quantity for quantity in QUANTITIES}
