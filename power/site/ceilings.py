"""Ceilings on power and on a month's energy: configured budgets, and the budget of a panel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from power import thresholds
from power.site.config import BudgetConfig
from power.site.layout import SiteLayout


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A budget with all its levels; NaN is a limit that is not set."""

    name: str
    circuits: tuple[str, ...]
    """Circuits and panels that count, each once: one below another of the same budget counts with it."""
    kw: float
    warn: float
    crit: float
    clear: float
    kwh_month: float
    cost_month: float
    bill: bool = False
    """Whether it is what the utility bills: its demand is compared with the highest of the month."""

    def level(self, ratio: float) -> float:
        """Return a ratio on the scale of the rules, which have one set of levels for all budgets: the
        budget's own levels lie at `thresholds.BUDGET` and its like."""
        if math.isnan(ratio) or ratio >= 1.0:
            return ratio
        own = (0.0, self.clear, self.warn, self.crit, 1.0)
        usual = (0.0, thresholds.BUDGET_CLEAR, thresholds.BUDGET, thresholds.BUDGET_NEAR, 1.0)
        return float(np.interp(ratio, own, usual))


def ceilings(layout: SiteLayout) -> tuple[Ceiling, ...]:
    """Return the budgets of a site, those of panels last."""
    budgets = dict(layout.site.budgets)
    for name, panel in layout.site.panels.items():
        if panel.budget_kw:
            budgets.setdefault(name, BudgetConfig(circuits=(name,), kw=panel.budget_kw))
    found = []
    for name, spec in budgets.items():
        counted = _outermost(spec.circuits, layout)
        limits = [math.nan if x is None else x for x in (spec.kw, spec.kwh_month, spec.cost_month)]
        found.append(Ceiling(name, counted, limits[0], spec.warn, spec.crit, spec.clear, limits[1], limits[2]))
    if layout.site.bill is not None:
        roots = tuple(name for name, circuit in layout.circuits.items() if circuit.parent is None)
        counted = _outermost(layout.site.bill.circuits or roots, layout)
        none = math.nan
        found.append(Ceiling("bill", counted, none, none, none, none, none, none, True))
    return tuple(found)


def _outermost(circuits: Sequence[str], layout: SiteLayout) -> tuple[str, ...]:
    """Return circuits without those that another of them feeds: their energy is in its."""
    inside = {below for circuit in circuits for below in layout.below(circuit) - {circuit}}
    return tuple(name for name in dict.fromkeys(circuits) if name not in inside)
