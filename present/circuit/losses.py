"""A circuit of a what-if in words: the limit that it passes, and when it trips then."""

from __future__ import annotations

from api.power import CircuitPlan, SurvivorPlan
from present.circuit.outlook import CONTINUOUS, MAY_TRIP, trip_range, trip_words
from present.row import FactRow, Tone
from present.units import amperes, percent


def passed_limit(circuit: CircuitPlan) -> str:
    """Return the limit that a circuit is above; "" within both."""
    amps = max(circuit.amps.values(), default=0.0)
    if circuit.rated_amps is not None and amps > circuit.rated_amps:
        return f"above its breaker of {amperes(circuit.rated_amps)}"
    if circuit.continuous_amps is not None and amps > circuit.continuous_amps:
        return f"above its {CONTINUOUS} of {amperes(circuit.continuous_amps)}"
    return ""


def planned_trip(circuit: CircuitPlan) -> FactRow:
    """Return when a circuit trips under the supposed load: earliest and latest, or that nobody knows."""
    trip = circuit.trip_seconds
    earliest = trip.get("earliest")
    if earliest is None:
        known = circuit.trip_known and not circuit.unknown
        why = ", as its load is not" if circuit.unknown else ""
        return FactRow("trip", trip_words(known=known, why=why), Tone.DIM)
    return FactRow("trip", f"{MAY_TRIP} in", Tone.CRIT, until=earliest, note=trip_range(earliest, trip.get("latest")))


def limit_share(element: SurvivorPlan) -> float:
    """Return the load over the limit that it is above; 0 where either is not known."""
    limit = element.continuous_amps if element.over == "continuous" else element.rated_amps
    if element.over != "limit" and element.amps is not None and limit:
        return element.amps / limit
    return element.limit_ratio or 0.0


def survivor_words(element: SurvivorPlan) -> str:
    """Return the load of an element above a limit after a loss: `121% of its breaker of 20 A`."""
    over, limit = {
        "rating": ("its breaker", element.rated_amps),
        "continuous": (f"its {CONTINUOUS}", element.continuous_amps),
    }.get(element.over, ("its rating", None))
    of = "" if limit is None else f" of {amperes(limit)}"
    return f"{percent(limit_share(element) or None)} of {over}{of}"
