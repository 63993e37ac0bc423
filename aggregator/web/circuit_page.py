"""The page of a circuit: what happens next, load and limits, its past, what hangs on it, and losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aggregator.web.bars import LOAD_AXIS, load_bar
from aggregator.web.circuit_list import ALERT_TONES, STATUS_WORDS
from aggregator.web.headline_part import headline_part
from aggregator.web.markup import fact, facts, link, section, table, text, toned
from api.power import CircuitPlan, CircuitReply, CircuitState, PlanResult, RowState
from present.circuit.losses import passed_limit, planned_trip
from present.circuit.rows import page_rows
from present.fleet.headline import circuit_headline
from present.units import percent, roughly, watts
from telemetry.text import counted

MOST_NODES = 500
"""Nodes that are listed."""


def circuit_body(
    reply: CircuitReply, status: int, chart: str, losses: str, jobs: str = "", chain: str = "", caps: str = ""
) -> str:
    """Return the page's content; `chart`, `losses`, `jobs`, `chain` and `caps` are HTML."""
    circuit, alert = reply.circuit, ALERT_TONES[status]
    mark = STATUS_WORDS.get(status, "")
    fed = f", fed by {link(circuit.parent, 'circuits', circuit.parent)}" if circuit.parent else ""
    rules = "".join(f'<span class="badge {mark}">{text(one)}</span> ' for one in circuit.alerts)
    limits = f"{load_bar(circuit, mark, tall=True)}{LOAD_AXIS}{facts((row.label, fact(row)) for row in page_rows(circuit, alert))}"
    left = chain + section("Load", chart, "load") + section("What hangs on it", _members(reply), "members") + jobs
    right = (
        section("Limits", limits, "limits")
        + section("What if", caps, "what-if")
        + section("If it is lost", losses, "losses")
    )
    title = circuit_headline(circuit, alert)
    title = replace(title, text=title.text[:1].upper() + title.text[1:])
    return (
        f"<p>{text(circuit.kind)} {text(circuit.facts.get('breaker', ''))}{fed} {rules}</p>"
        f"{headline_part(title)}"
        f'<div class="stack w15">{left}</div><div class="stack w9">{right}</div>'
    )


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
        roughly(watts(row.quantities.get("wall_watts")), partial=bool(row.quantities.get("assumed_watts"))),
        percent(load),
        text(", ".join(row.alerts)),
    )


def losses_body(name: str, plan: PlanResult, circuits: Sequence[CircuitState]) -> str:
    """Return what the loss of a circuit does to the others, worst first."""
    before = {circuit.id: circuit.load_ratio for circuit in circuits}
    taking = [
        one
        for one in (*plan.panels, *plan.circuits)
        if one.id != name and not one.lost and one.load_ratio > (before.get(one.id) or 0.0) + 0.005
    ]
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
    trip, passed = planned_trip(circuit), passed_limit(circuit)
    words = toned(text(trip.text), trip.tone)
    return f"{text(passed)}; {words}" if passed else words
