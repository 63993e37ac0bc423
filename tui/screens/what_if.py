"""The answer to: what if this circuit is lost?"""

from __future__ import annotations

from tui.board import Board
from tui.messages.power import Plan
from tui.text import clean, clock, number, percent
from tui.theme import Line


def what_if_lines(name: str, plan: Plan, board: Board) -> list[Line]:
    """Say what a loss does to the others, worst first."""
    before = {circuit.id: circuit.load_ratio or 0.0 for circuit in board.circuits}
    others = [c for c in (*plan.panels, *plan.circuits) if c.id != name and c.load_ratio is not None
              and c.load_ratio > before.get(c.id, 0.0) + 0.005]  # fmt: skip
    others.sort(
        key=lambda c: ((c.trip_seconds or {}).get("earliest") or 1e12, -(c.load_ratio or 0))
    )
    title = f"what if {clean(name)} is lost"
    if not others:
        return [
            [(f"{title}: no other circuit takes its load; what hangs on it goes dark", "strong")]
        ]
    over_ = sum((c.load_ratio or 0) > 1 for c in others)
    lines: list[Line] = [
        [(f"{title}: {len(others)} take more, {over_} of them over 100%", "strong")]
    ]
    for circuit in others[:5]:
        trip = (circuit.trip_seconds or {}).get("earliest")
        said = "does not trip" if trip is None else f"may trip in {clock(trip)}"
        lines.append([(f"  {clean(circuit.id):<20} ", ""), (f"{percent(before.get(circuit.id))} → {percent(circuit.load_ratio)}  ", ""),
                      (said, "crit" if trip is not None else "dim")])  # fmt: skip
    if len(others) > 5:
        lines.append([(f"  and {number(len(others) - 5)} more", "dim")])
    return lines
