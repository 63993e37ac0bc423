"""Losses of single elements and sides: who is above its limits then, and which nodes are dark."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from api.power import LimitPlan, LossPlan, SurvivorPlan
from power import thresholds
from power.network.contingency import Contingencies, Outcome
from power.site.circuit import Circuit
from power.site.layout import SiteLayout
from power.snapshot.documents import plain


def losses_of(layout: SiteLayout, contingencies: Contingencies, outcome: Outcome) -> list[LossPlan]:
    """Return every loss that puts an element above a limit, or that leaves a node without power."""
    circuits, count = list(layout.circuits.values()), len(layout.circuits)
    rated = np.full(len(contingencies.elements), np.inf)
    rated[:count] = [min(c.continuous_amps, c.effective_amps) for c in circuits]
    over = outcome.grown & (outcome.amps > thresholds.SURVIVOR * rated[outcome.row])
    over |= outcome.limit_grown & (outcome.limit_ratio > 1.0)
    found: dict[int, list[SurvivorPlan]] = {}
    for entry in np.flatnonzero(over).tolist():
        row = int(outcome.row[entry])
        found.setdefault(int(outcome.case[entry]), []).append(
            _survivor(contingencies.elements[row], circuits[row] if row < count else None, outcome, entry)
        )
    names = list(layout.machines)
    return [
        LossPlan(
            lost=case.lost,
            kind=case.kind.value,
            overloaded=found.get(number, []),
            unfed=[names[machine] for machine in case.unfed],
        )
        for number, case in enumerate(contingencies.cases)
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


def limits_of(contingencies: Contingencies, outcome: Outcome) -> Iterator[LimitPlan]:
    """Yield the elements with a rating in watts or volt-amperes, now and after the worst loss."""
    count = len(contingencies.elements)
    worst, case = contingencies.survivor_limits(outcome)
    limited = np.isfinite(np.minimum(contingencies.limit_watts, contingencies.limit_volt_amps))
    for row in range(count):
        if not limited[row]:
            continue
        survivor = float(worst[row])
        yield LimitPlan(
            id=contingencies.elements[row],
            watts=round(float(outcome.now.watts[row]), 1),
            load_ratio=round(float(outcome.now_limit_ratio[row]), 4),
            survivor_ratio=None if math.isnan(survivor) else round(survivor, 4),
            survivor_loss=loss_name(contingencies, int(case[row]), row),
            alerts=[],
        )


def loss_name(contingencies: Contingencies, case: int, row: int) -> str | None:
    """Return the name of the loss that is an element's worst: `RPP1-A`, `A1 + A2`, or one of its modules."""
    if case == contingencies.MODULE:
        return f"one of its {contingencies.modules[row]} modules"
    return contingencies.cases[case].name if case >= 0 else None
