"""Budgets: present kilowatts, and the projected energy and cost of the month.

The month is the calendar's, in UTC. Energy before kilowatch's start is projected from the mean since
then; the energy seen is reported apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from api.power import SnapshotKind
from power import thresholds
from power.live.confidence import mask_uncertain, reported_load
from power.network.topology import SiteTopology
from power.network.wiring import Floats
from power.report.energy import JOULES_PER_KWH
from power.report.tariff import mean_price
from power.site.ceilings import Ceiling, ceilings
from power.site.layout import SiteLayout
from power.snapshot.snapshot import PowerSnapshot

_SEEN_SECONDS = 3600.0
"""Shortest observation from which a month is projected."""
_MEAN_SECONDS = 86_400.0
"""Time constant of the mean power that the rest of a month is projected with."""


class MonthlyBudgets:
    """Power and energy of each budget in the present month."""

    def __init__(self, layout: SiteLayout, topology: SiteTopology) -> None:
        self.ceilings = ceilings(layout)
        at = {name: number for number, name in enumerate(topology.network.names)}
        self._lines = [np.array([at[name] for name in c.circuits], np.int64) for c in self.ceilings]
        place = layout.site.site
        price = mean_price(place.tariff, place.tariffs)
        self._price = np.nan if price is None else price * place.pue
        self._currency = place.currency
        count = len(self.ceilings)
        self._month = ""
        self._joules = np.zeros(count)
        self._since = 0
        """Time of the first reading of this month, ns since 1970."""
        self._mean = np.full(count, np.nan)
        self._mean_seconds = 0.0
        self.faults: dict[str, Exception] = {}
        """Exceptions of the last snapshot, by the budget whose numbers are unknown."""

    def snapshot(
        self, wall_ns: int, seconds: float, circuit_watts: Floats, version: int, assumed: Floats
    ) -> PowerSnapshot:
        """Return the budget snapshot after `seconds` at these watts of every circuit; `assumed` is part of them."""
        self.faults = {}
        watts = self._each(lambda n: float(circuit_watts[self._lines[n]].sum()))
        unsure = self._each(lambda n: float(assumed[self._lines[n]].sum()))
        self._count(wall_ns, seconds, watts - unsure)
        limit = np.array([1000 * c.kw for c in self.ceilings])
        ratio = watts / limit
        clear = np.array([c.clear for c in self.ceilings])
        masked = mask_uncertain(
            ratio, reported_load(ratio, watts, unsure), clear, thresholds.BUDGET_FULL
        )
        projected = self._projected(wall_ns)
        energy = projected / JOULES_PER_KWH
        rows = {
            "budget_watts": watts,
            "budget_assumed_watts": unsure,
            "budget_power_ratio": ratio,
            "budget_level_ratio": self._each(lambda n: self.ceilings[n].level(masked[n])),
            "budget_energy_ratio": energy / np.array([c.kwh_month for c in self.ceilings]),
            "budget_cost_ratio": energy
            * self._price
            / np.array([c.cost_month for c in self.ceilings]),
        }
        facts: list[dict[str, str]] = [{} for _ in self.ceilings]

        def describe(number: int) -> float:
            facts[number] = self._facts(number, self.ceilings[number], float(energy[number]))
            return 0.0

        self._each(describe)
        return PowerSnapshot(
            SnapshotKind.BUDGET, version, tuple(c.name for c in self.ceilings), rows, tuple(facts)
        )

    def _each(self, compute: Callable[[int], float]) -> Floats:
        """Return a number of each budget; NaN, and a fault, where that raises."""
        found = np.full(len(self.ceilings), np.nan)
        for number, ceiling in enumerate(self.ceilings):
            try:
                found[number] = compute(number)
            except Exception as error:  # noqa: BLE001 - kept by the budget's name
                self.faults[ceiling.name] = error
        return found

    def _count(self, wall_ns: int, seconds: float, watts: Any) -> None:
        month = datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m")
        if month != self._month:
            self._month, self._since = month, wall_ns
            self._joules = np.zeros(len(self.ceilings))
        known = np.where(np.isnan(watts), 0.0, watts)
        self._joules = self._joules + known * seconds
        # A mean over a day; before a day has passed, over what there is.
        self._mean_seconds = min(self._mean_seconds + seconds, _MEAN_SECONDS)
        part = seconds / self._mean_seconds if self._mean_seconds > 0 else 1.0
        mean = np.where(np.isnan(self._mean), watts, self._mean)
        self._mean = np.where(np.isnan(watts), mean, mean + (watts - mean) * min(part, 1.0))

    def _projected(self, wall_ns: int) -> Any:
        """Return the projected joules of the whole month; NaN after too short an observation."""
        begin, end = _month_of(wall_ns)
        seen = (wall_ns - self._since) / 1e9
        if self._mean_seconds < _SEEN_SECONDS:
            return np.full(len(self.ceilings), np.nan)
        unseen = (end - begin) - seen
        return self._joules + self._mean * max(unseen, 0.0)

    def _facts(self, number: int, ceiling: Ceiling, kwh: float) -> dict[str, str]:
        facts = {
            "limit_kw": "no kW" if np.isnan(ceiling.kw) else f"{ceiling.kw:g} kW",
            "levels": f"{ceiling.warn:.0%}, {ceiling.crit:.0%} and 100 %, clear below {ceiling.clear:.0%}",
            "so_far": f"{self._joules[number] / JOULES_PER_KWH:.0f} kWh measured this month",
        }
        facts["projected"] = "too early for a projection of the month"
        if not np.isnan(kwh):
            facts["projected"] = f"about {kwh:.0f} kWh"
            if not np.isnan(self._price):
                facts["projected"] += f" for {kwh * self._price:.0f} {self._currency}"
            facts["projected"] += " by the month's end"
        return facts

    def checkpoint(self) -> dict[str, Any]:
        """Return the part of the checkpoint with the month's energy."""
        names = [c.name for c in self.ceilings]
        return {
            "month": self._month,
            "since": self._since,
            "mean_seconds": self._mean_seconds,
            "joules": dict(zip(names, self._joules.tolist(), strict=True)),
            "mean": {n: m for n, m in zip(names, self._mean.tolist(), strict=True) if m == m},  # noqa: PLR0124 - NaN is no JSON
        }

    def restore(self, memory: Mapping[str, Any]) -> None:
        """Restore a checkpoint. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        month, since = str(memory["month"]), int(memory["since"])
        seconds = float(memory["mean_seconds"])
        joules, mean = memory["joules"], memory["mean"]
        for number, ceiling in enumerate(self.ceilings):
            self._joules[number] = float(joules.get(ceiling.name, 0.0))
            self._mean[number] = float(mean.get(ceiling.name, np.nan))
        self._month, self._since, self._mean_seconds = month, since, seconds


def _month_of(wall_ns: int) -> tuple[float, float]:
    at = datetime.fromtimestamp(wall_ns / 1e9, UTC)
    begin = datetime(at.year, at.month, 1, tzinfo=UTC)
    end = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return begin.timestamp(), end.timestamp()
