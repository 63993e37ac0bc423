"""The page of a circuit: what happens next, load and limits, its past, what hangs on it, and losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggregator.web.circuit_list import (
    STATUS_WORDS,
    bar,
    headroom,
    load_text,
    next_text,
    share_text,
    state_text,
)
from aggregator.web.markup import facts, link, section, table, text
from api.power import CircuitPlan, CircuitReply, CircuitState, PlanResult, RowState
from present.circuit.figures import load
from present.units import kilowatt_hours, number, percent, watts
from telemetry.text import ABSENT, counted, duration, estimated_duration

MOST_NODES = 500
"""Nodes that are listed."""


def circuit_body(reply: CircuitReply, status: int, chart: str, losses: str, jobs: str = "") -> str:
    """Return the page's content; `chart`, `losses` and `jobs` are HTML."""
    circuit = reply.circuit
    mark = STATUS_WORDS.get(status, "")
    fed = f", fed by {link(circuit.parent, 'circuits', circuit.parent)}" if circuit.parent else ""
    rules = "".join(f'<span class="badge {mark}">{text(one)}</span> ' for one in circuit.alerts)
    return (
        f"<p>{text(circuit.kind)} {text(circuit.facts.get('breaker', ''))}{fed} {rules}</p>"
        f'<p class="next">{_next(circuit)}</p>{bar(circuit, mark)}'
        f"{facts(_facts(circuit))}{_remarks(circuit)}"
        f"{section('Load', chart, 'load')}"
        f"{section('What hangs on it', _members(reply), 'members')}"
        f"{jobs}"
        f"{section('If it is lost', losses, 'losses')}"
    )


def _next(circuit: CircuitState) -> str:
    words = next_text(circuit)
    if load(circuit) is None:
        return "Its load is unknown, and with it when it trips."
    trip = circuit.trip_seconds
    if trip.earliest is None:
        if not circuit.trip_known:
            return text(circuit.facts.get("band", "When it trips is not known."))
        return words if words != ABSENT else "It does not trip at this load."
    nominal = "a typical one holds" if trip.nominal is None else f"typically {estimated_duration(trip.nominal)}"  # fmt: skip
    latest = "perhaps never" if trip.latest is None else f"at the latest {estimated_duration(trip.latest)}"  # fmt: skip
    return f'{words} <span class="dim">{nominal}, {latest}; an estimate, if the load of the last 10 s stays</span>'


def _facts(circuit: CircuitState) -> Iterator[tuple[str, str]]:
    yield "load, last 10 s", load_text(circuit)
    yield "of the breaker", f"{share_text(circuit)} of {number(circuit.rated_amps)} A"
    yield "headroom", headroom(circuit)
    yield "state of the load", state_text(circuit)
    if load(circuit) is not None:
        sigma = f" ± {watts(circuit.sigma_watts)}" if circuit.sigma_watts else ""
        yield "now", f"{watts(circuit.watts)}{sigma} by {text(circuit.source or ABSENT)}"
        yield "amps now", " ".join(f"{text(pole)} {number(amps, 1)}" for pole, amps in circuit.amps.items())  # fmt: skip
        yield "neutral", "" if circuit.neutral_amps is None else f"{circuit.neutral_amps:.1f} A"
    yield "continuous limit", f"{number(circuit.continuous_amps, 1)} A"
    if circuit.effective_amps is not None and circuit.rated_amps is not None and circuit.effective_amps < circuit.rated_amps - 0.05:  # fmt: skip
        yield "rating in this heat", f"{circuit.effective_amps:.1f} A"
    above = circuit.above_continuous_seconds
    over = f", over it for {duration(above)}" if above else ""
    yield "last minute", f"{percent(circuit.continuous_ratio)} of the continuous limit{over}"
    heat = "not known" if circuit.heat_ratio is None else f"{percent(circuit.heat_ratio)} of what trips it"  # fmt: skip
    yield "breaker heat", f"{heat} (an estimate)"
    yield (
        "assumed power",
        watts(circuit.assumed_watts) if load(circuit) is not None and circuit.assumed_watts else "",
    )
    committed = f"{watts(circuit.committed_watts)}, {percent(circuit.committed_continuous_ratio)} of the continuous limit"  # fmt: skip
    yield "power commitment", "" if circuit.committed_watts is None else committed
    survivor = circuit.survivor_continuous_ratio
    yield "after the worst loss", "" if survivor is None else f"{percent(survivor)} of the continuous limit"  # fmt: skip
    ahead = circuit.forecast_continuous_seconds
    yield "trend", "" if ahead is None else f"continuous limit in {estimated_duration(ahead)}"
    yield "redundancy group", text(circuit.group or "")
    yield "energy", "" if circuit.energy_kwh is None else kilowatt_hours(circuit.energy_kwh)


_REMARKS = {
    "remedy": "relief",
    "contributors": "most of it",
    "assumed": "assumed",
    "meter": "meter",
    "unknown_nodes": "power not known",
}
"""Facts that no field above has, with their words."""


def _remarks(circuit: CircuitState) -> str:
    rows = [
        f"<li><strong>{name}</strong>: {text(circuit.facts[fact])}</li>"
        for fact, name in _REMARKS.items()
        if circuit.facts.get(fact)
    ]
    return f"<ul>{''.join(rows)}</ul>" if rows else ""


def _members(reply: CircuitReply) -> str:
    children = ", ".join(link(name, "circuits", name) for name in reply.children)
    feeds = f"<p>It feeds {children}.</p>" if children else ""
    heaviest = sorted(reply.supplies, key=lambda row: -(row.quantities.get("wall_watts") or 0.0))
    rows = [_node(row) for row in heaviest[:MOST_NODES]]
    more = f"<p>and {len(heaviest) - MOST_NODES:,} more</p>" if len(heaviest) > MOST_NODES else ""
    heads = ("node", "at the wall", "load of its supplies", "rules that fire")
    return f"{feeds}{table(counted(len(heaviest), 'node'), heads, rows, (1, 2))}{more}"


def _node(row: RowState) -> Sequence[str]:
    load = row.quantities.get("load_ratio")
    return (
        link(row.id, "nodes", row.id),
        ("~" if row.quantities.get("assumed_watts") else "")
        + watts(row.quantities.get("wall_watts")),
        percent(load),
        text(", ".join(row.alerts)),
    )


def losses_body(name: str, plan: PlanResult, circuits: Sequence[CircuitState]) -> str:
    """Return what the loss of a circuit does to the others, worst first."""
    before = {circuit.id: circuit.load_ratio for circuit in circuits}
    taking = [one for one in (*plan.panels, *plan.circuits)
              if one.id != name and not one.lost and one.load_ratio > (before.get(one.id) or 0.0) + 0.005]  # fmt: skip
    taking.sort(key=lambda one: (one.trip_seconds.get("earliest") or 1e12, -one.load_ratio))
    dark = [node.id for node in plan.nodes if node.dark]
    unfed = ", ".join(link(node, "nodes", node) for node in dark[:50])
    more = f" and {len(dark) - 50:,} more" if len(dark) > 50 else ""
    words = f"<p>Without power then: {unfed}{more}.</p>" if dark else "<p>No node goes dark.</p>"
    if not taking:
        return f"{words}<p>No other circuit takes its load.</p>"
    heads = ("circuit", "now", "then", "what follows")
    rows = [(link(one.id, "circuits", one.id), percent(before.get(one.id)), percent(one.load_ratio), _follows(one)) for one in taking[:50]]  # fmt: skip
    return words + table("Circuits that take its load", heads, rows, (1, 2))


def _follows(circuit: CircuitPlan) -> str:
    trip = circuit.trip_seconds.get("earliest")
    if trip is not None:
        return f'<strong class="page">may trip in {estimated_duration(trip)}</strong>'
    amps = max(circuit.amps.values(), default=0.0)
    if circuit.continuous_amps is not None and amps > circuit.continuous_amps:
        return "over its continuous limit"
    return "does not trip" if circuit.trip_known else "when it trips is not known"
