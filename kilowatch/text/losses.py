"""The loss of elements as text: what the others carry then, who is dark, and what must not be lost next."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from alerts.message.text import clean
from api.power import CircuitPlan, LossPlan, PlanResult, SurvivorPlan
from kilowatch.text.circuits import ESTIMATE, trip_text
from kilowatch.text.table import WIDTH

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
        over = _over(circuit)
        if over:
            amps = max(circuit.amps.values(), default=0.0)
            lines += _wrapped(f"  ! {clean(circuit.id)}  {amps:.1f} A, {over}; {_trip(circuit)}")
    for limit in answer.limits:
        if limit.load_ratio > 1.0:
            lines += _wrapped(f"  ! {clean(limit.id)}  {limit.load_ratio:.0%} of its rating")
    for node in answer.nodes:
        if node.supply_load is not None and node.supply_load > 1.0:
            lines += _wrapped(f"  ! node {clean(node.id)}  supplies {node.supply_load:.0%} loaded")
    return lines or ["  nothing is above its limits"]


def _over(circuit: CircuitPlan) -> str:
    amps = max(circuit.amps.values(), default=0.0)
    if circuit.rated_amps is not None and amps > circuit.rated_amps:
        return f"above its breaker of {circuit.rated_amps:g} A"
    if circuit.continuous_amps is not None and amps > circuit.continuous_amps:
        return f"above its continuous limit of {circuit.continuous_amps:g} A"
    return ""


def _trip(circuit: CircuitPlan) -> str:
    return trip_text(circuit.trip_seconds["earliest"], circuit.trip_seconds["latest"])


def _next(loss: LossPlan) -> str:
    parts = [_survivor(one) for one in loss.overloaded[:3]]
    if len(loss.overloaded) > 3:
        parts.append(f"{len(loss.overloaded) - 3} more above a limit")
    if loss.unfed:
        few = clean(", ".join(loss.unfed[:3]))
        more = f" and {len(loss.unfed) - 3} more" if len(loss.unfed) > 3 else ""
        parts.append(f"{few}{more} without power")
    return "; ".join(parts)


def _survivor(one: SurvivorPlan) -> str:
    if one.over == "limit" or one.amps is None:
        return f"{clean(one.id)} at {one.limit_ratio or 0:.0%} of its rating"
    limit = one.rated_amps if one.over == "rating" else one.continuous_amps
    kind = "breaker" if one.over == "rating" else "continuous limit"
    return f"{clean(one.id)} {one.amps:.1f} A, {kind} {limit or 0:g} A"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="      ", break_on_hyphens=False)
