"""The fitness of the fleet in one line."""

from __future__ import annotations

from api.fitness import FleetFitness
from present.fleet.fitness import fitness_row, reasons
from tui.kit.text import clean


def fitness_line(fleet: FleetFitness | None) -> str:
    """Return whether the fleet is good in one line: `fitness 87 of 100: nodes 14 fit, 1 degraded, 1 out (5.10 EUR an
    hour); silent 1`; "" before it is known."""
    its = fitness_row(fleet)
    if fleet is None or not its.value:
        return ""
    why = clean(reasons(fleet))
    return f"{its.label} {its.value}: {its.note}{f'; {why}' if why else ''}"
