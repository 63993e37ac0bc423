"""Budgets and the bill: present kilowatts, the month's energy and cost, and its highest demand.

The month is the calendar's in the site's time zone. What was not measured is filled by the rules of
`power.report.load_profile`, and reported apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from api.power import SnapshotKind
from power import thresholds
from power.live.confidence import mask_uncertain, reported_load
from power.live.energy import CircuitEnergy
from power.live.metering import CIRCUIT, Metering
from power.network.flow import Ints
from power.network.topology import SiteTopology
from power.report.bill import ratchet_peak
from power.report.billed_demand import DailyPeaks, days_of
from power.report.energy import JOULES_PER_KWH
from power.report.load_profile import LoadProfile, MonthEnergy, begun_interval, demands, month_energy
from power.report.month_ledger import UNMAPPED, MonthLedger
from power.report.months import STEP, Month
from power.site.ceilings import ceilings
from power.site.config import BillConfig
from power.site.layout import SiteLayout
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Flags, Floats
from present.units import energy, money, percent, watts
from telemetry.text import duration

_RENEW_SECONDS = 60.0
"""Seconds after which the month's energy is computed again."""
_ROWS_A_TURN = 32
"""Rows that are computed in a tick at least."""
_QUIET_DAYS = 7
"""Days at a month's beginning in which its demand is compared with the month's before."""
_FIRST_SECONDS = 86_400.0
"""Known time after which the first month's own peak is something to compare with."""


class MonthlyBudgets:
    """Power, energy, cost and demand of each budget, and of the bill, in the present month."""

    def __init__(self, layout: SiteLayout, topology: SiteTopology, ledger: MonthLedger) -> None:
        self.ceilings = ceilings(layout)
        self.ledger = ledger
        at = {name: number for number, name in enumerate(topology.network.names)}
        self._lines = [np.array([at[name] for name in c.circuits], np.int64) for c in self.ceilings]
        roots = {at[name] for name, circuit in layout.circuits.items() if circuit.parent is None}
        counted = sorted(roots | {int(row) for rows in self._lines for row in rows})
        self._counted = np.array(counted, np.int64)
        """Circuits of which the month is kept: those of budgets, and those that nothing feeds."""
        self._names = tuple(topology.network.names[row] for row in counted)
        self._roots = {topology.network.names[row] for row in roots}
        self._circuits = frozenset(topology.network.names)
        self._billed: tuple[str, int, tuple[str, ...]] = ("", -1, ())
        """Rows of the bill, for a month and its profile's revision."""
        self._begun = ""
        """Month in which the rows of these circuits were begun, and those of others ended."""
        self._place = layout.site.site
        self._bill = layout.site.bill or BillConfig()
        self._unmapped = layout.site.bill is not None and not layout.site.bill.circuits
        self._energy: MonthEnergy | None = None
        self._next = 0
        """Row with which the next turn begins; the month's energy is computed again in turns."""
        self._months = [_BudgetMonth() for _ in self.ceilings]
        self._peaks = [_PeakSoFar() for _ in self.ceilings]
        self._renewed_at = -math.inf
        self.faults: dict[str, Exception] = {}
        """Exceptions of the last snapshot, by the budget whose numbers are unknown."""

    def count(self, wall: float, seconds: float, energy: CircuitEnergy, known: Flags, reactive: Floats) -> None:
        """Add the energy of the last `seconds` to the month; `reactive`: var of each circuit. `wall`:
        seconds since 1970."""
        for profile in self.ledger.between(wall - seconds, wall):
            self._begin_rows(profile, wall - seconds)
            profile.add(
                profile.positions(self._names),
                wall,
                seconds,
                energy.integrated[self._counted],
                known[self._counted],
                reactive[self._counted] * seconds,
            )
        for one in energy.recovered:
            place = int(np.searchsorted(self._counted, one.row))
            if place < len(self._counted) and self._counted[place] == one.row:
                self.ledger.recover(self._names[place], one.joules, one.start, one.end)
        found = energy.corrected
        places = np.searchsorted(self._counted, found.rows)
        for number, place in enumerate(places.tolist()):
            if place < len(self._counted) and self._counted[place] == found.rows[number]:
                self.ledger.correct(
                    self._names[place],
                    float(found.joules[number]),
                    float(found.start[number]),
                    float(found.end[number]),
                )

    def _begin_rows(self, profile: LoadProfile, now: float) -> None:
        """Begin the rows of these circuits in a month, and end those of circuits that are no more."""
        if self._begun == profile.month.name and len(profile.positions(self._names)) == len(self._names):
            return
        profile.rows(self._names, now)
        profile.end([name for name in profile.names if name not in self._circuits and name != UNMAPPED], now)
        profile.roots |= self._roots
        self._begun = profile.month.name

    def snapshot(self, wall_ns: int, circuit_watts: Floats, version: int, assumed: Floats) -> PowerSnapshot:
        """Return the budget snapshot at these watts of every circuit; `assumed` is part of them."""
        self.faults = {}
        wall = wall_ns / 1e9
        watts = self._each(lambda n: float(circuit_watts[self._lines[n]].sum()))
        unsure = self._each(lambda n: float(assumed[self._lines[n]].sum()))
        limit = np.array([1000 * c.kw for c in self.ceilings])
        ratio = watts / limit
        clear = np.array([c.clear for c in self.ceilings])
        masked = mask_uncertain(ratio, reported_load(ratio, watts, unsure), clear, thresholds.BUDGET_FULL)
        self._renew(wall)
        months = self._months
        demand = self._each(lambda n: self._demand(n, wall, float(watts[n] - unsure[n])))
        peak = self._each(lambda n: self._peaks[n].watts)
        whole = np.array([one.whole for one in months])
        rows = {
            "budget_watts": watts,
            "budget_assumed_watts": unsure,
            "budget_power_ratio": ratio,
            "budget_level_ratio": self._each(lambda n: self.ceilings[n].level(masked[n])),
            "budget_energy_ratio": whole / JOULES_PER_KWH / np.array([c.kwh_month for c in self.ceilings]),
            "budget_cost_ratio": np.array([one.money for one in months])
            / np.array([c.cost_month for c in self.ceilings]),
            "budget_month_joules": np.array([one.measured for one in months]),
            "budget_month_filled_joules": np.array([one.filled for one in months]),
            "budget_month_forecast_joules": whole,
            "budget_month_known_ratio": np.array([one.known for one in months]),
            "budget_demand_watts": demand,
            "budget_peak_watts": peak,
            "budget_peak_ratio": self._each(lambda n: float(demand[n]) / self._compared(n, wall)),
        }
        facts: list[dict[str, str]] = [{} for _ in self.ceilings]

        def describe(number: int) -> float:
            facts[number] = self._facts(number, wall, float(demand[number]), float(peak[number]))
            return 0.0

        self._each(describe)
        return PowerSnapshot(SnapshotKind.BUDGET, version, tuple(c.name for c in self.ceilings), rows, tuple(facts))

    def _each(self, compute: Callable[[int], float]) -> Floats:
        """Return a number of each budget; NaN, and a fault, where that raises."""
        found = np.full(len(self.ceilings), np.nan)
        for number, ceiling in enumerate(self.ceilings):
            try:
                found[number] = compute(number)
            except Exception as error:  # noqa: BLE001 - kept by the budget's name
                self.faults[ceiling.name] = error
        return found

    @property
    def rows(self) -> list[Ints]:
        """Return the rows of each budget's circuits."""
        return self._lines

    # -- The month ---------------------------------------------------------------------------------

    def _rows(self, number: int, profile: LoadProfile) -> tuple[str, ...]:
        """Return the rows of a profile that belong to a budget."""
        ceiling = self.ceilings[number]
        if not (ceiling.bill and self._unmapped):
            return ceiling.circuits
        if self._billed[:2] != (profile.month.name, profile.revision):
            ended = sorted(profile.roots - set(profile.going_on()) - set(ceiling.circuits))
            self._billed = (profile.month.name, profile.revision, (*ceiling.circuits, *ended, UNMAPPED))
        return self._billed[2]

    def _renew(self, wall: float) -> None:
        """Compute the month's energy again: all of it for a new month and new rows, else in turns, a tick
        each, so that no tick waits for thousands of circuits."""
        profile = self.ledger.at(wall)
        prices = profile.month.prices(self._place.tariff, self._place.tariffs)
        names, energy = profile.names, self._energy
        if energy is None or energy.month != profile.month.name or energy.names != names or wall < self._renewed_at:
            energy = self._energy = month_energy(profile, wall, prices)
            self._next, self._renewed_at = len(names), wall
        else:
            if self._next >= len(names):
                if wall - self._renewed_at < _RENEW_SECONDS:
                    return
                self._next, self._renewed_at = 0, wall
            last = self._next + max(_ROWS_A_TURN, math.ceil(len(names) / _RENEW_SECONDS))
            energy.take(self._next, month_energy(profile, wall, prices, names[self._next : last]))
            self._next = min(last, len(names))
            if self._next < len(names):
                return
        for number in range(len(self.ceilings)):
            rows = self._rows(number, profile)
            self._months[number] = _budget_month(energy, rows, self._place.pue)
            self._peaks[number].renew(profile, rows, wall, self._bill.demand_minutes)

    def _demand(self, number: int, wall: float, watts: float) -> float:
        """Return the demand of the running interval if the power stays; NaN where it is not known."""
        profile, minutes = self.ledger.at(wall), self._bill.demand_minutes
        every = self._rows(number, profile)
        rows = self.ceilings[number].circuits
        mean, over = begun_interval(profile, rows, wall, minutes)
        if math.isnan(mean):
            return watts
        others, more = every[len(rows) :], 0.0
        if others:
            beside, _ = begun_interval(profile, others, wall, minutes)
            goes_on = UNMAPPED in profile.names and math.isinf(profile.life(UNMAPPED)[1])
            more = 0.0 if math.isnan(beside) else beside * (1.0 if goes_on else over)
        return mean * over + watts * (1 - over) + more

    def _compared(self, number: int, wall: float) -> float:
        """Return the demand that is billed anyway, watts: above it the bill rises. NaN for a budget that
        is not the bill, and where there is nothing to compare with yet.

        A contract hides a rise below it only where nothing but the excess is charged.
        """
        bill, month = self._bill, self.ledger.at(wall).month
        if not self.ceilings[number].bill or not (bill.demand_charge or bill.excess_charge):
            return math.nan
        past = [self.ledger.past_peaks[name] for name in sorted(self.ledger.past_peaks) if name < month.name]
        known = []
        if bill.demand_charge:
            highest, _ = ratchet_peak(month.name, self.ledger.past_peaks, bill)
            known.append(1000 * bill.ratchet * highest)
        else:
            known.append(self._contract_watts())
        if past and wall - month.start < 86_400 * _QUIET_DAYS:
            known.append(past[-1])
        seen = self._energy is not None and self._energy.known_seconds.max(initial=0.0) >= _FIRST_SECONDS
        if past or seen or max(known) > 0:
            known.append(self._peaks[number].billed_anyway(month, wall, bill.demand_days))
        known = [watts for watts in known if watts > 0]
        return max(known) if known else math.nan

    def _contract_watts(self) -> float:
        """Return the agreed demand at the machines; it is of the building. Infinite without a contract."""
        contract = self._bill.contract_kw
        return math.inf if contract is None else 1000 * contract / self._place.pue

    def _rise(self, demand: float, compared: float, peak: float) -> float:
        """Return the money a month that a demand costs more than what is billed anyway."""
        excess = demand - max(self._contract_watts(), 0.0 if math.isnan(peak) else peak)
        charged = self._bill.demand_charge * max(demand - compared, 0.0) / self._bill.demand_days
        if excess > 0:
            charged += self._bill.excess_charge * excess
        return float(charged * self._place.pue / 1000)

    def _facts(self, number: int, wall: float, demand: float, peak: float) -> dict[str, str]:
        ceiling, month = self.ceilings[number], self._months[number]
        compared = self._compared(number, wall)
        facts = {
            "limit_kw": "no kW" if np.isnan(ceiling.kw) else watts(1000 * ceiling.kw),
            "levels": "none"
            if np.isnan(ceiling.kw)
            else f"{percent(ceiling.warn)}, {percent(ceiling.crit)} and {percent(1.0)}, clear below {percent(ceiling.clear)}",
            "so_far": f"{energy(month.measured)} measured this month",
        }
        if month.filled > 0.005 * month.measured:
            facts["so_far"] += (
                f", {energy(month.filled)} filled for hours without readings ({percent(month.known)} of the month so far is known)"
            )
        if month.unknown:
            facts["so_far"] += f", without {', '.join(month.unknown[:5])}, of which nothing is known"
        facts["projected"] = "too early for a projection of the month"
        if not math.isnan(month.whole):
            facts["projected"] = f"about {energy(month.whole)}"
            if not math.isnan(month.money):
                facts["projected"] += f" for {money(month.money, self._place.currency)}"
            facts["projected"] += " by the month's end"
        if not math.isnan(compared):
            facts["compared"] = watts(compared)
            if not math.isnan(demand):
                facts["demand"] = watts(demand)
            more = self._rise(demand, compared, peak)
            facts["demand_cost"] = f"{money(more, self._place.currency)} a month" if more > 0 else "nothing yet"
            facts["demand_minutes"] = duration(60 * self._bill.demand_minutes)
        return facts


class _PeakSoFar:
    """Highest demands of a month's finished intervals; each is looked at once while the rows stay."""

    def __init__(self) -> None:
        self.daily = DailyPeaks()
        self._key: tuple[object, ...] = ()
        self._next = 0

    @property
    def watts(self) -> float:
        """Return the month's highest; NaN before any."""
        return next(iter(self.daily.highest(1)), math.nan)

    def billed_anyway(self, month: Month, wall: float, days: int) -> float:
        """Return the demand above which one of today raises what is billed."""
        at = min(max(int((wall - month.start) // STEP), 0), len(month.minute) - 1)
        return self.daily.billed_anyway(int(days_of(month)[at]), days)

    def renew(self, profile: LoadProfile, rows: tuple[str, ...], wall: float, minutes: int) -> None:
        """Look at the intervals that have ended since."""
        key = (profile.month.name, profile.revision, rows)
        if key != self._key:
            self._key, self._next, self.daily = key, 0, DailyPeaks()
        watts = demands(profile, rows, wall, minutes, self._next)
        self.daily.add(profile.month, minutes, watts, self._next)
        self._next = max(self._next, int((wall - profile.month.start) // (60 * minutes)))


class _BudgetMonth:
    """Month of one budget: joules, and money for the whole month; NaN where not known."""

    def __init__(self) -> None:
        self.measured = self.filled = self.whole = self.money = self.known = math.nan
        self.unknown: list[str] = []
        """Circuits of which nothing is known this month: they are in no number."""


def _budget_month(energy: MonthEnergy, names: Sequence[str], pue: float) -> _BudgetMonth:
    found = _BudgetMonth()
    at = {name: row for row, name in enumerate(energy.names)}
    rows = [at[name] for name in names if name in at and energy.known_seconds[at[name]] > 0]
    found.unknown = [
        name for name in names if name != UNMAPPED and (name not in at or energy.known_seconds[at[name]] == 0)
    ]
    if not rows:
        return found
    found.measured = float((energy.measured + energy.recovered)[rows].sum())
    found.filled = float(energy.filled[rows].sum())
    found.whole = float(energy.whole[rows].sum())
    found.money = float(energy.money[:, rows].sum()) * pue
    found.known = min(float(energy.known_seconds[rows].sum() / max(energy.elapsed_seconds[rows].sum(), 1.0)), 1.0)
    return found


def reactive_power(metering: Metering, now: float, circuits: int) -> Floats:
    """Return the var of each circuit by its own meter, from volt-amperes or the power factor; NaN where
    none reports them. A meter of the whole circuit counts before those of its poles."""
    kind, target, pole = (metering.whole(name) for name in ("kind", "target", "pole"))
    watts, factor = metering.number("watts"), np.abs(metering.number("power_factor"))
    with np.errstate(invalid="ignore", divide="ignore"):
        apparent = np.where(np.isnan(metering.number("volt_amps")), watts / factor, metering.number("volt_amps"))
        var = np.sqrt(np.maximum(np.square(apparent) - np.square(watts), 0.0))
    usable = (kind == CIRCUIT) & metering.fresh(now) & np.isfinite(var)
    found = np.full(circuits, np.nan)
    whole, parts = usable & (pole < 0), usable & (pole >= 0)
    total = np.bincount(target[parts], var[parts], circuits)
    found[target[parts]] = total[target[parts]]
    found[target[whole]] = var[whole]
    return found
