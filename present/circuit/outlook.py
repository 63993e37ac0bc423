"""The outlook of a circuit: what happens next and when its breaker trips, worded once for every face and for alerts.

Two countdowns, never mixed: the trip is the breaker's curve and the heat in it; the trend leads to a limit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum, auto
from typing import NamedTuple

from api.power import CircuitState
from present.circuit.figures import assumed, known, over_continuous
from present.row import FactRow, Tone, Wording
from telemetry.text import ABSENT, estimated_duration

CONTINUOUS = "continuous limit"
MAY_TRIP = "may trip"
ESTIMATE = "Times are estimates; a breaker may trip earlier or later."
_ESTIMATE = "an estimate; a breaker may trip earlier or later"


class NextKind(Enum):
    """Kinds of what is ahead of a circuit, if its load or its trend goes on."""

    UNKNOWN = auto()
    """The load is not known, and with it what follows."""
    TRIP = auto()
    """The breaker may trip at the earliest: by its curve and the heat in it."""
    FULL = auto()
    """The trend reaches the rating."""
    OVER = auto()
    """The load is over the continuous limit; the seconds are for how long."""
    ASSUMED = auto()
    """The load would be over the continuous limit by the assumed power of silent nodes."""
    CONTINUOUS = auto()
    """The trend reaches the continuous limit."""
    WAS_OVER = auto()
    """The last minute was over the continuous limit; the load has fallen."""
    NOTHING = auto()


class NextEvent(NamedTuple):
    """The most urgent thing ahead of a circuit."""

    kind: NextKind
    seconds: float | None = None
    """Until then, at the instant of the circuit's state; of OVER, since then."""


def next_event(circuit: CircuitState) -> NextEvent:
    """Return what happens to a circuit next. Trip and trend are never mixed."""
    if not known(circuit):
        return NextEvent(NextKind.UNKNOWN)
    if circuit.trip_seconds.earliest is not None:
        return NextEvent(NextKind.TRIP, circuit.trip_seconds.earliest)
    if circuit.forecast_rated_seconds is not None:
        return NextEvent(NextKind.FULL, circuit.forecast_rated_seconds)
    if over_continuous(circuit):
        if assumed(circuit) and circuit.continuous_ratio is None:  # not known
            return NextEvent(NextKind.ASSUMED)
        return NextEvent(NextKind.OVER, circuit.above_continuous_seconds)
    if circuit.forecast_continuous_seconds is not None:
        return NextEvent(NextKind.CONTINUOUS, circuit.forecast_continuous_seconds)
    if (circuit.continuous_ratio or 0) > 1:
        return NextEvent(NextKind.WAS_OVER)
    return NextEvent(NextKind.NOTHING)


def pressed(circuit: CircuitState) -> bool:
    """Return whether a limit is passed or forecast to be."""
    return next_event(circuit).kind not in {NextKind.NOTHING, NextKind.UNKNOWN}


def next_row(circuit: CircuitState, alert: Tone = Tone.PLAIN, elapsed: float = 0.0) -> FactRow:
    """Return what happens to a circuit next. `alert`: the tone of its worst alert; `elapsed`: seconds since the
    instant of its state."""
    kind, seconds = next_event(circuit)
    left = max(0.0, (seconds or 0.0) - elapsed)
    match kind:
        case NextKind.TRIP:
            tone = alert or Tone.STRONG
            if left < 1:
                return FactRow("next", f"{MAY_TRIP} now", tone, short="trip now")
            return FactRow("next", f"{MAY_TRIP} in", tone, until=left, short="trip")
        case NextKind.FULL:
            return FactRow("next", "trend: rating in", alert, until=left, short="100% in")
        case NextKind.OVER:
            return FactRow("next", f"over its {CONTINUOUS}", alert, since=seconds, short="> continuous")
        case NextKind.ASSUMED:
            return FactRow("next", "over by assumed power", Tone.STALE, short="assumed power")
        case NextKind.CONTINUOUS:
            return FactRow("next", f"trend: {CONTINUOUS} in", Tone.DIM, until=left, short="limit in")
        case NextKind.WAS_OVER:
            return FactRow("next", f"fell below its {CONTINUOUS}", Tone.DIM, short="was over")
        case NextKind.NOTHING | NextKind.UNKNOWN:
            return FactRow("next", ABSENT, Tone.DIM)


def outlook(
    circuit: CircuitState, alert: Tone = Tone.PLAIN, elapsed: float = 0.0, clock: Wording = estimated_duration
) -> FactRow:
    """Return what happens next with all that is known of the trip, for a circuit's page. `clock` words its times."""
    row = next_row(circuit, alert, elapsed)
    trip = circuit.trip_seconds
    match next_event(circuit).kind:
        case NextKind.TRIP:
            ends = "a typical one of its kind holds"
            if trip.nominal is not None:
                end = (
                    "perhaps never"
                    if trip.latest is None
                    else f"at the latest {clock(max(0.0, trip.latest - elapsed))}"
                )
                ends = f"typically {clock(max(0.0, trip.nominal - elapsed))}, {end}"
            return replace(row, note=f"{ends}; an estimate, if the load of the last 10 s stays")
        case NextKind.NOTHING | NextKind.UNKNOWN:
            return FactRow(row.label, no_trip(circuit))
        case _:
            return replace(row, note=no_trip(circuit))


def no_trip(circuit: CircuitState) -> str:
    """Return why there is no time to trip: the breaker does not trip, or nobody knows when."""
    if not known(circuit):
        return trip_words(known=False, why=", as its load is not")
    why = circuit.facts.get("band", "").removeprefix("not known")
    if why == circuit.facts.get("band", ""):
        why = ", as part of its load is assumed" if assumed(circuit) else ""
    return trip_words(known=circuit.trip_known, why=why)


def trip_words(*, known: bool, why: str = "") -> str:
    """Return that a breaker does not trip, or that nobody knows when it does."""
    return "does not trip at this load" if known else f"when it trips is not known{why}"


def trip_range(earliest: float, latest: float | None, basis: str = "") -> str:
    """Return the earliest and the latest time to trip: `may trip in 22 s .. 75 s (estimate)`."""
    start = "now" if earliest < 1 else f"in {estimated_duration(earliest)}"
    end = "never" if latest is None else estimated_duration(latest)
    return f"{MAY_TRIP} {start} .. {end}{basis} (estimate)"


def trip_band(earliest: float, nominal: float, latest: float) -> str:
    """Return when a breaker trips, for alerts: always a band. NaN is not known, infinity is never."""
    if math.isnan(earliest):
        return "not known, as its load is not"
    if math.isinf(earliest):
        return "it does not trip at this load"
    if earliest == 0:
        end = "perhaps never" if math.isinf(latest) else f"within {estimated_duration(latest)}"
        usual = "" if math.isinf(nominal) else f", typically after {estimated_duration(nominal)}"
        return f"at any moment{usual}, {end}; {_ESTIMATE}"
    first = estimated_duration(earliest)
    if math.isinf(nominal):
        return f"after {first} at the earliest, more likely never; {_ESTIMATE}"
    usual = f"typically after {estimated_duration(nominal)}"
    if math.isinf(latest):
        return f"after {first} at the earliest, {usual}, perhaps never; {_ESTIMATE}"
    return f"between {first} and {estimated_duration(latest)}, {usual}; {_ESTIMATE}"
