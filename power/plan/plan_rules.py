"""Which rules the plain state of every line breaks: no history, no hold times.

E02 replaces its own early warning E01; E03 and E04 say other things and stand beside it. The levels
are those of `power.thresholds`, as in the rules that watch the live state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from power import thresholds as levels
from power.devices.thermal import Heat, cold, seconds_to_trip, used
from power.network.feeds import Cords, Losses, carry, dead_below, lost_by_load
from power.network.flow import Flow
from power.network.topology import SiteTopology
from power.network.wiring import Flags, Floats, imbalance, neutral_amps


@dataclass(frozen=True, slots=True)
class LineState:
    """What flows, what could, and what follows; arrays over lines."""

    now: Flow
    committed: Flow
    survivor_amps: Floats
    """Highest amps after the worst loss of one feed of its group; NaN outside groups."""
    neutral: Floats
    trip_seconds: Floats
    """Shape (lines, 3), estimates; inf is never, NaN where the breaker is not known."""
    alerts: tuple[tuple[str, ...], ...]


def evaluate(
    fixed: SiteTopology,
    machine_watts: Floats,
    committed_watts: Floats,
    *,
    known: Flags,
    lost: frozenset[str] = frozenset(),
    heat: Heat | None = None,
) -> LineState:
    """Return the state of every line when machines draw `machine_watts` at the wall.

    `known` marks machines of which it is known what they may draw: others commit to nothing.
    `lost` names lines that are off. `heat` is what the breakers carry over; cold when None.
    """
    network = fixed.network
    dead = dead_below(fixed, np.array([name in lost for name in network.names], dtype=bool))
    losses = Losses(fixed)
    losses.prepare(dead)
    now = carry(fixed, machine_watts, network.other_watts, losses.shares, dead)
    committed = carry(fixed, committed_watts, network.other_watts, losses.shares, dead)
    survivor = losses.survivors(machine_watts, network.other_watts)
    heat = heat or cold(len(network.names))
    seconds = seconds_to_trip(heat, np.where(dead, 0.0, now.highest / network.effective), network.element)  # fmt: skip
    seconds = np.where(dead[:, None], np.inf, seconds)  # what is off can't trip, however hot
    seconds = np.where(fixed.breakers[:, None], seconds, np.nan)
    neutral = neutral_amps(now.currents)
    could = np.bincount(fixed.below[0], known[fixed.below[1]], len(network.names)) > 0
    usual = carry(
        fixed, machine_watts, network.other_watts, network.cord_share, np.zeros_like(dead)
    )
    rules = _rules(fixed, now, committed, survivor, seconds, neutral, dead, could)
    rules["E09"] = lost_by_load(fixed, now.highest, usual.highest)
    # Hours just below the rating warm a breaker too; hot is one whose load would trip it.
    rules["E04"] |= (used(heat, network.element)[:, 0] >= levels.HEAT_WARM) & np.isfinite(seconds[:, 0])  # fmt: skip
    found: list[list[str]] = [[] for _ in network.names]
    for rule in sorted(rules):
        for index in np.flatnonzero(rules[rule]):
            found[index].append(rule)
    return LineState(now, committed, survivor, neutral, seconds, tuple(tuple(f) for f in found))


def _rules(
    fixed: SiteTopology, now: Flow, committed: Flow, survivor: Floats, seconds: Floats, neutral: Floats,
    dead: Flags, could: Flags,
) -> dict[str, Flags]:  # fmt: skip
    network = fixed.network
    amps, limit = now.highest, network.continuous
    with np.errstate(invalid="ignore"):
        return {
            "E01": (amps >= levels.LOAD * limit) & (amps <= levels.CONTINUOUS * limit),
            "E02": amps > levels.CONTINUOUS * limit,
            "E03": (amps > levels.OVERLOAD * network.effective) & fixed.breakers,
            "E04": seconds[:, 0] < levels.TRIP_SOON,
            "E07": (committed.highest > levels.COMMITTED * limit) & could,
            "E08": survivor > levels.SURVIVOR * limit,
            "E10": Cords(fixed).uneven(dead) > levels.CORDS,
            "E11": fixed.three & (phase_imbalance(fixed, now.amps) > levels.PHASES[0]),
            "E12": neutral > levels.NEUTRAL * fixed.neutral_rated,
            "E16": amps > levels.PLUG * fixed.plug_amps,
        }


def phase_imbalance(fixed: SiteTopology, amps: Floats) -> Floats:
    """Return the largest difference of a pole from the mean, over the mean; 0 below 30 % load, where
    it means nothing; NaN without three poles."""
    loaded = amps.mean(axis=1) > levels.PHASES_FROM * fixed.network.rated
    spread = np.where(loaded, imbalance(amps), 0.0)
    return np.where(fixed.three & ~np.isnan(amps.sum(axis=1)), spread, np.nan)
