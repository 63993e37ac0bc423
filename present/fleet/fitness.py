"""Whether the fleet is fit for work, in words: its score, its states with what they cost, and the reasons."""

from __future__ import annotations

from api.fitness import FitnessShare, FleetFitness
from present.row import FactRow, Tone
from present.units import money
from telemetry.text import ABSENT

NO_HISTORY = "its history has a point in five minutes; there are no two yet"
_MOST_REASONS = 4


def fitness_row(fleet: FleetFitness | None) -> FactRow:
    """Return the score; as note the nodes of each state, with what their energy costs. Without a value before it is
    known."""
    if fleet is None or fleet.score is None:
        return FactRow("fitness", "", Tone.WARN)
    parts = []
    for state, its in fleet.states.items():
        if its.nodes:
            cost = hourly_cost(its, fleet.currency)
            parts.append(f"{its.nodes:,} {state}{'' if cost == ABSENT else f' ({cost} an hour)'}")
    tone = Tone.PLAIN if fleet.score == 100 else Tone.WARN
    return FactRow("fitness", f"{fleet.score} of 100", tone, note=f"nodes {', '.join(parts)}")


def hourly_cost(share: FitnessShare, currency: str) -> str:
    """Return what the energy of the nodes of a state costs in an hour."""
    return money(share.cost_per_hour, currency)


def reasons(fleet: FleetFitness) -> str:
    """Return how many nodes each reason has, the first few."""
    return ", ".join(f"{name} {count:,}" for name, count in list(fleet.reasons.items())[:_MOST_REASONS])
