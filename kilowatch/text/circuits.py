"""Circuits as a tree of text: load, amps per pole, both limits, headroom, time to trip."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.message.text import clean, cut
from api.power import CircuitState, RowState
from kilowatch.text.table import WIDTH
from present.circuit.figures import load, share
from present.circuit.outlook import NextKind, next_event, outlook, trip_range
from present.circuit.rows import (
    amps_row,
    assumed_row,
    commitment_row,
    headroom_row,
    heat_row,
    limits_row,
    load_row,
    loss_row,
    meter_row,
    now_row,
    share_row,
    state_row,
    unknown_nodes_row,
)
from present.circuit.rules import rule_words
from present.row import FactRow
from present.units import percent, watts
from telemetry.text import duration

BAR = 24
_INDENT = 12
"""Columns that the tree takes, about."""
_LIKE = 0.02
"""Loads that differ by less than this share of the rating count as equal."""


def circuit_lines(circuits: Sequence[CircuitState], width: int = WIDTH) -> list[str]:
    """Return the tree; a parent is above the circuits that it feeds."""
    children: dict[str | None, list[CircuitState]] = {}
    known = {circuit.id for circuit in circuits}
    for circuit in circuits:
        parent = circuit.parent if circuit.parent in known else None
        children.setdefault(parent, []).append(circuit)
    lines: list[str] = []
    for top in children.get(None, []):
        lines += _branch(top, children, "", "")
    return [cut(line, width).rstrip() for line in lines]


def _branch(circuit: CircuitState, children: dict[str | None, list[CircuitState]], first: str, rest: str) -> list[str]:
    below = children.get(circuit.id, [])
    lines = [f"{first}{clean(circuit.id)}  {load_text(circuit)}"]
    inner = rest + ("│   " if below else "    ")
    lines += [f"{inner}{text}" for text in details(circuit)]
    for number, child in enumerate(below):
        last = number == len(below) - 1
        lines += _branch(child, children, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
    return lines


def load_text(circuit: CircuitState) -> str:
    """Return the bar, the load of about the last ten seconds, and the amps of each pole now."""
    ratio, now, amps = share(circuit), circuit.load_ratio, amps_row(circuit).value
    amps = f"  {amps}" if amps else ""
    if ratio is None or now is None:
        return f"{load_row(circuit).text}{amps}"
    changed = "" if abs(now - ratio) < _LIKE else f"  now {percent(now)}"
    return f"{bar(circuit)}{share_row(circuit).short:>5}{changed}{amps}"


def bar(circuit: CircuitState) -> str:
    """Return the load as a bar up to the rating, with a mark at the continuous limit."""
    ratio = share(circuit) or 0.0
    full = min(BAR, max(0, round(ratio * BAR)))
    cells = ["█" if cell < full else "·" for cell in range(BAR)]
    if circuit.continuous_amps and circuit.rated_amps:
        mark = min(BAR - 1, round(circuit.continuous_amps / circuit.rated_amps * BAR))
        cells[mark] = "┃" if ratio * BAR > mark else "│"
    return "".join(cells) + (">" if ratio > 1 else " ")


def details(circuit: CircuitState) -> list[str]:
    """Return the lines below a circuit, most important first."""
    lines = [limits_row(circuit).value]
    if load(circuit) is not None:
        lines += [_carries(circuit), _now(circuit)]
    lines += _ahead(circuit)
    lines.append(assumed_row(circuit).text)
    could = (commitment_row(circuit), loss_row(circuit))
    lines += _side_by_side([_labelled(row) if row.value else "" for row in could])
    lines.append(meter_row(circuit).value)
    lines += [rule_text(rule) for rule in circuit.alerts]
    unknown = unknown_nodes_row(circuit)
    lines.append(_labelled(unknown) if unknown.value else "")
    if circuit.nodes:
        lines.append(f"nodes {', '.join(circuit.nodes)}")
    return [clean(line) for line in lines if line]


def rule_text(rule: str) -> str:
    """Return a firing rule by its number in docs/power.md, and its meaning."""
    return f"! {clean(rule_words(rule))}"


def _labelled(row: FactRow) -> str:
    return f"{row.label} {row.text}"


def _carries(circuit: CircuitState) -> str:
    """Return the load of about the last ten seconds, and what it leaves below the continuous limit."""
    left = headroom_row(circuit)
    text = f"{_labelled(load_row(circuit))}, {_labelled(left)}"
    return f"{text} ({left.note})" if left.note else text


def _side_by_side(texts: list[str]) -> list[str]:
    """Return texts on one line where they have room, else each on its own: a cut figure is none."""
    texts = [text for text in texts if text]
    joined = "; ".join(texts)
    return [joined] if len(joined) <= WIDTH - _INDENT else texts


def _ahead(circuit: CircuitState) -> list[str]:
    """Return what happens next; of a trip the earliest and the latest time."""
    trip = circuit.trip_seconds
    if next_event(circuit).kind is NextKind.TRIP and trip.earliest is not None:
        return [trip_range(trip.earliest, trip.latest, " at this load")]
    row = outlook(circuit)
    return _side_by_side([row.text, row.note])


def _now(circuit: CircuitState) -> str:
    """Return the watts of now, how they are known, and the breaker's heat."""
    row, state, heat = now_row(circuit), state_row(circuit), heat_row(circuit)
    known = "" if circuit.load_state is None else f", {state.text}"
    note = f", {row.note}" if row.note else ""
    return f"{_labelled(row)}{known}{note}" + (f"; {heat.label} {heat.short}" if heat.short else "")


def row_lines(what: str, rows: Sequence[RowState]) -> list[str]:
    """Return budgets or UPS, a line each."""
    lines = []
    for row in rows:
        parts = [
            f"{name.replace('_', ' ')} {_number(name, value)}"
            for name, value in row.quantities.items()
            if value is not None
        ]
        lines.append(f"{what} {clean(row.id)}  {', '.join(parts) or 'no reading yet'}")
        lines += [f"    {rule_text(rule)}" for rule in row.alerts]
    return lines


def _number(name: str, value: float) -> str:
    if name.endswith("_ratio"):
        return percent(value)
    if name.endswith("_watts") or name == "watts":
        return watts(value)
    return duration(value) if name.endswith("_seconds") else f"{value:g}"
