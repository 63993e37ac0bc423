"""Figures of a circuit that screens and pages derive from its state, each in one place: the load that
countdowns are computed with, its share of the rating, its limits in watts, and the order of urgency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from api.power import CircuitState, LoadState

FAR = 1e12
"""Seconds in place of never, for sorting."""
BAR_TOP = 1.3
"""Share of the rating at which the bar of a load ends, so that all of them line up on every page and screen."""


def known(circuit: CircuitState) -> bool:
    """Return whether there is a load to show: of an unknown one only a part that was reported is a number."""
    if circuit.load_state is not LoadState.UNKNOWN:
        return True
    return circuit.watts is not None and circuit.watts > (circuit.assumed_watts or 0.0)


def share(circuit: CircuitState) -> float | None:
    """Return the amps of the highest pole over the rating, of about the last ten seconds: the load that
    countdowns are computed with. An older aggregator has only that of now; so has a circuit whose breaker is
    taken for open, though its nodes may draw what is assumed of them."""
    if circuit.load_ratio is None or not known(circuit):
        return None
    return circuit.sustained_ratio or circuit.load_ratio


def load(circuit: CircuitState) -> float | None:
    """Return the watts of the load of about the last ten seconds."""
    ratio, now = share(circuit), circuit.load_ratio
    if not known(circuit):
        return None
    if circuit.watts is None or not ratio or not now:
        return circuit.watts
    return circuit.watts * ratio / now


def assumed(circuit: CircuitState) -> bool:
    """Return whether a part of its load is assumed: of silent nodes and unread GPUs."""
    return (circuit.assumed_watts or 0.0) > 0


def assumed_share(circuit: CircuitState) -> float:
    """Return the part of its `share` that is assumed; 0 where nothing is, or no share is known."""
    ratio = share(circuit)
    if ratio is None or not assumed(circuit):
        return 0.0
    return ratio * min(1.0, (circuit.assumed_watts or 0.0) / circuit.watts) if circuit.watts else ratio


def bar_marks(circuit: CircuitState) -> list[tuple[str, float]]:
    """Return the limits that are marked on the bar of a load, `continuous` and `rating`, in shares of the rating."""
    if not circuit.rated_amps:
        return []
    its = circuit.continuous_amps
    return [*([("continuous", its / circuit.rated_amps)] if its else []), ("rating", 1.0)]


def measured_watts(circuit: CircuitState) -> float | None:
    """Return the watts for a chart; None for a load that is mostly assumed."""
    watts = circuit.watts
    return None if watts is None or (circuit.assumed_watts or 0.0) > watts / 2 else watts


def over_continuous(circuit: CircuitState) -> bool:
    """Return whether the load of about the last ten seconds is above the continuous limit."""
    ratio = share(circuit)
    if ratio is None or circuit.continuous_amps is None or circuit.rated_amps is None:
        return (circuit.continuous_ratio or 0) > 1
    return ratio * circuit.rated_amps > circuit.continuous_amps


def headroom_amps(circuit: CircuitState) -> float | None:
    """Return the amps that the load of about the last ten seconds leaves below the continuous limit."""
    ratio = share(circuit)
    if circuit.sustained_ratio is None or ratio is None:
        return circuit.headroom_amps if known(circuit) else None
    if circuit.continuous_amps is None or circuit.rated_amps is None:
        return None
    return circuit.continuous_amps - ratio * circuit.rated_amps


def watts_per_amp(circuit: CircuitState) -> float | None:
    """Return the watts per amp of the pole with the highest load."""
    highest = max((a for a in circuit.amps.values() if a), default=None)
    return None if circuit.watts is None or not highest else circuit.watts / highest


def continuous_watts(circuit: CircuitState) -> float | None:
    """Return the continuous limit in watts at the present mix of poles."""
    per_amp = watts_per_amp(circuit)
    if circuit.continuous_amps is None or per_amp is None:
        return None
    return circuit.continuous_amps * per_amp


def by_urgency(circuits: Iterable[CircuitState], status: Callable[[str], int], step: int = 1) -> list[CircuitState]:
    """Return circuits, the most urgent first: by time to trip, alert, time to the rating, load.
    `status`: how bad the worst alert of a circuit is, 0 for none; `step`: percent of load that are as urgent as each other."""

    def key(circuit: CircuitState) -> tuple[float, float, float, float]:
        trip, full = circuit.trip_seconds.earliest, circuit.forecast_rated_seconds
        # As it is shown, or coarser: rows keep their places.
        load = round(100 * max(share(circuit) or 0.0, circuit.continuous_ratio or 0.0)) // step
        return (FAR if trip is None else trip, -status(circuit.id), FAR if full is None else full, -load)

    return sorted(circuits, key=key)


def tree(circuits: Sequence[CircuitState], folded: frozenset[str] = frozenset()) -> list[tuple[int, CircuitState]]:
    """Return depth and circuit, each below its feeder, in the order given; folded ones without what they
    feed."""
    children: dict[str | None, list[CircuitState]] = {}
    known = {circuit.id for circuit in circuits}
    for circuit in circuits:
        parent = circuit.parent if circuit.parent in known else None
        children.setdefault(parent, []).append(circuit)
    found: list[tuple[int, CircuitState]] = []

    def walk(parent: str | None, depth: int) -> None:
        for circuit in children.get(parent, ()):
            found.append((depth, circuit))
            if circuit.id not in folded:
                walk(circuit.id, depth + 1)

    walk(None, 0)
    return found
