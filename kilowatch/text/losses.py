"""The loss of elements as text: what the others carry then, who is dark, and what must not be lost next."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from alerts.message.text import clean
from api.power import CircuitPlan, LossPlan, PlanResult
from kilowatch.text.table import WIDTH
from present.circuit.losses import passed_limit, planned_trip, survivor_words
from present.circuit.outlook import ESTIMATE
from present.units import amperes, percent

MOST = 12
"""Most further losses that are listed."""


def loss_lines(lost: Sequence[str], answer: PlanResult) -> list[str]:
    """Return the state after a loss, from a plan that supposes it."""
    lines = [f"without {clean(' and '.join(lost))}, from the present load:"]
    lines += _loaded(answer)
    dark = [node.id for node in answer.nodes if node.dark]
    if dark:
        lines += _wrapped(f"  without power: {clean(', '.join(dark))}")
    over = [loss for loss in answer.losses if loss.overloaded or loss.unfed]
    if over:
        lines.append("and if this is lost too:")
    for loss in over[:MOST]:
        lines += _wrapped(f"  {clean(' + '.join(loss.lost))}: {_next(loss)}")
    if len(over) > MOST:
        lines.append(f"  and {len(over) - MOST} more losses with consequences; --json has all")
    return [*lines, ESTIMATE]


def _loaded(answer: PlanResult) -> list[str]:
    lines = []
    for circuit in [*answer.panels, *answer.circuits]:
        over = passed_limit(circuit)
        if over:
            amps = max(circuit.amps.values(), default=0.0)
            lines += _wrapped(f"  ! {clean(circuit.id)}  {amperes(amps)}, {over}; {planned_trip_text(circuit)}")
    for limit in answer.limits:
        if limit.load_ratio > 1.0:
            lines += _wrapped(f"  ! {clean(limit.id)}  {percent(limit.load_ratio)} of its rating")
    for node in answer.nodes:
        if node.supply_load is not None and node.supply_load > 1.0:
            lines += _wrapped(f"  ! node {clean(node.id)}  supplies {percent(node.supply_load)} loaded")
    return lines or ["  nothing is above its limits"]


def planned_trip_text(circuit: CircuitPlan) -> str:
    """Return when a circuit trips under the supposed load: a band, never, or not known."""
    trip = planned_trip(circuit)
    return trip.note or trip.text


def _next(loss: LossPlan) -> str:
    parts = [f"{clean(one.id)} {survivor_words(one)}" for one in loss.overloaded[:3]]
    if len(loss.overloaded) > 3:
        parts.append(f"{len(loss.overloaded) - 3} more above a limit")
    if loss.unfed:
        few = clean(", ".join(loss.unfed[:3]))
        more = f" and {len(loss.unfed) - 3} more" if len(loss.unfed) > 3 else ""
        parts.append(f"{few}{more} without power")
    return "; ".join(parts)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="      ", break_on_hyphens=False)
