"""Losses of single elements and sides: who is above its limits then, and which nodes are dark."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from api.power import LimitPlan, LossPlan, SurvivorPlan
from power import thresholds
from power.network.outcome import Outcome
from power.site.circuit import Circuit
from power.site.layout import SiteLayout
from power.snapshot.documents import plain


def losses_of(layout: SiteLayout, outcome: Outcome) -> list[LossPlan]:
    """Return every loss that puts an element above a limit, or that leaves a node without power."""
    circuits, count = list(layout.circuits.values()), len(layout.circuits)
    elements = outcome.state.graph.elements
    rated = np.full(len(elements), np.inf)
    rated[:count] = [min(c.continuous_amps, c.effective_amps) for c in circuits]
    over = outcome.grown & (outcome.amps > thresholds.SURVIVOR * rated[outcome.row])
    over |= outcome.limit_grown & (outcome.limit_ratio > 1.0)
    found: dict[int, list[SurvivorPlan]] = {}
    for entry in np.flatnonzero(over).tolist():
        row = int(outcome.row[entry])
        found.setdefault(int(outcome.case[entry]), []).append(
            _survivor(elements[row], circuits[row] if row < count else None, outcome, entry)
        )
    names = list(layout.machines)
    return [
        LossPlan(
            lost=case.lost,
            kind=case.kind.value,
            overloaded=found.get(number, []),
            unfed=[names[machine] for machine in case.unfed],
        )
        for number, case in enumerate(outcome.contingencies.cases)
        if number in found or case.unfed
    ]


def _survivor(name: str, circuit: Circuit | None, outcome: Outcome, entry: int) -> SurvivorPlan:
    amps, limit = float(outcome.amps[entry]), float(outcome.limit_ratio[entry])
    over = "limit"
    if circuit is not None and amps > thresholds.SURVIVOR * circuit.effective_amps:
        over = "rating"
    elif circuit is not None and limit <= 1.0:
        over = "continuous"
    return SurvivorPlan(
        id=name,
        watts=round(float(outcome.watts[entry]), 1),
        over=over,
        amps=None if circuit is None else round(amps, 3),
        rated_amps=None if circuit is None else plain(circuit.rated_amps, 3),
        continuous_amps=None if circuit is None else plain(circuit.continuous_amps, 3),
        limit_ratio=round(limit, 4) if limit > 0 else None,
    )


def limits_of(outcome: Outcome) -> Iterator[LimitPlan]:
    """Yield the elements with a rating in watts or volt-amperes, now and after the worst loss."""
    graph = outcome.state.graph
    worst, case = outcome.survivor_limits()
    for row in np.flatnonzero(graph.limits.limited).tolist():
        survivor = float(worst[row])
        yield LimitPlan(
            id=graph.elements[row],
            watts=round(float(outcome.now.watts[row]), 1),
            load_ratio=round(float(outcome.now_limit_ratio[row]), 4),
            survivor_ratio=None if math.isnan(survivor) else round(survivor, 4),
            survivor_loss=outcome.loss_name(int(case[row]), row),
            alerts=[],
        )
