"""The bill of a month: energy by the hour's price, demand, contract, power factor, and idle GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
import numpy as np

from api.bill import BillLine, IdleNode, MonthBill, PriceBand
from power.report.billed_demand import DailyPeaks, days_of, words_of
from power.report.energy import JOULES_PER_KWH
from power.report.load_profile import ROWS_AT_ONCE, LoadProfile, demands, fillings, known_part
from power.report.month_ledger import UNMAPPED, NodeIdle
from power.report.months import STEP
from power.site.config import BillConfig, SiteConfig
from power.site.layout import SiteLayout
from power.wiring import Floats
from present.units import percent, watts

_RANGE_DAYS, _LEAST_DAYS = 7, 3
"""Past days whose energy says how far a month may come out from its forecast, and how many are too few."""
_DAY_KNOWN = 0.9
"""Part of a day that must be measured."""
_MOST_IDLE = 100
"""Nodes that are listed."""
_MOST_LIVES = 10
"""Rows that began or ended in a month and are listed."""
_FINISHED_RULES = (
    "A past hour without readings is filled with the circuit's mean power at the same hour of the day over the month's known time, else with its mean over all of it; a meter's own counter counts before that.",
    "Neither filled nor recovered energy makes a demand: nobody knows when in the gap it was drawn.",
    "An idle GPU is one below 5 % utilisation; it costs its own watts at the wall.",
)
_RUNNING_RULE = "Hours to come are forecast with the mean at the same hour of the day over the last seven days; demand is the highest so far."

_STAND_IN_RULE = "A silent node on no circuit counts with the power that it reported last: that is in what was filled."


def billed_rows(bill: BillConfig | None, layout: SiteLayout | None, profile: LoadProfile | None = None) -> list[str]:
    """Return the rows of the load profile that are billed: the configured circuits, else all that nothing
    feeds, those that ended in the profile's month, and the nodes on no circuit."""
    if bill is not None and bill.circuits:
        inside = set() if layout is None else {below for name in bill.circuits for below in layout.below(name) - {name}}
        return [name for name in bill.circuits if name not in inside]
    circuits = {} if layout is None else layout.circuits
    ended = set() if profile is None else profile.roots - set(profile.going_on())
    return [*(name for name, one in circuits.items() if one.parent is None), *sorted(ended - circuits.keys()), UNMAPPED]


def highest_demand(bill: BillConfig, layout: SiteLayout | None, profile: LoadProfile) -> float | None:
    """Return the demand of a month that ended and that is billed, watts at the machines; None where none is known."""
    rows = billed_rows(bill, layout, profile)
    watts = demands(profile, rows, profile.month.end, bill.demand_minutes)
    return _daily(profile, bill, watts).mean(bill.demand_days)


def _daily(profile: LoadProfile, bill: BillConfig, watts: Floats) -> DailyPeaks:
    found = DailyPeaks()
    found.add(profile.month, bill.demand_minutes, watts)
    return found


def months_before(month: str, count: int) -> list[str]:
    """Return the names of that many months before one, oldest first."""
    last = 12 * int(month[:4]) + int(month[5:]) - 1
    return [f"{at // 12:04}-{at % 12 + 1:02}" for at in range(last - count, last)]


def month_bill(
    profile: LoadProfile,
    idle: NodeIdle,
    now: float,
    *,
    place: SiteConfig,
    terms: BillConfig,
    rows: Sequence[str],
    past_peaks: Mapping[str, float],
    timezone: str,
) -> MonthBill:
    """Return the bill of a month at `now`, seconds since 1970. `past_peaks`: highest demands of earlier
    months, watts at the machines, by month."""
    month, pue = profile.month, place.pue
    sums = _sums(profile, now, [name for name in rows if name in profile.names])
    heard, hours_known = sums.heard, sums.known_hours
    unknown = [name for name in rows if name not in heard and name != UNMAPPED]
    measured, recovered, filled, forecast = sums.joules
    prices = month.prices(place.tariff, place.tariffs)
    passed = month.elapsed(now)
    energies = {"measured": measured, "recovered": recovered, "filled": filled, "forecast": forecast}
    lines = [_energy_line(name, energies[name], prices, pue) for name in ("measured", "recovered", "filled")]
    watts = demands(profile, heard, now, terms.demand_minutes)
    peak = float(np.nanmax(watts)) * pue / 1000 if np.isfinite(watts).any() else None
    mean = _daily(profile, terms, watts).mean(terms.demand_days)
    billed = None if mean is None else mean * pue / 1000
    factor, excess_kvarh = _reactive(profile, heard, terms.power_factor)
    lines += _demand_lines(billed, peak, factor, terms, ratchet_peak(month.name, past_peaks, terms, pue))
    lines += _other_lines(factor, None if excess_kvarh is None else excess_kvarh * pue, terms)
    lines = [line for line in lines if line.amount != 0 or line.quantity or line.name.endswith("measured")]
    total = _sum([line.amount for line in lines])
    coming = _energy_line("forecast", forecast, prices, pue).amount
    ended = now >= month.end
    end = total if ended or total is None or coming is None else round(total + coming, 4)
    least = most = None
    if not ended and end is not None and coming is not None:
        least, most = _range(profile, sums, now, end, coming)
    at = [number for number, value in enumerate(watts) if value == np.nanmax(watts)] if peak is not None else []
    past = np.floor((min(now, month.end) - month.start) / (60 * terms.demand_minutes))
    return MonthBill(
        month=month.name,
        timezone=timezone,
        currency=place.currency,
        pue=pue,
        finished=ended,
        hours=month.hours,
        hours_elapsed=round(float(passed.sum()) / 3600, 4),
        hours_known=round(hours_known, 4),
        kwh_measured=_kwh(measured) or 0.0,
        kwh_recovered=_kwh(recovered) or 0.0,
        kwh_filled=_kwh(filled) if heard else None,
        kwh_forecast=_kwh(forecast) if heard else None,
        peak_kw=None if peak is None else round(peak, 4),
        peak_at=month.when(at[0] * terms.demand_minutes * 60 // STEP).isoformat(timespec="minutes") if at else "",
        demand_minutes=terms.demand_minutes,
        intervals_unknown=int(past - np.isfinite(watts).sum()),
        power_factor=None if factor is None else round(factor, 4),
        lines=lines,
        total=total,
        total_forecast=end,
        total_least=least,
        total_most=most,
        bands=_bands(measured + recovered + np.nan_to_num(filled), prices, pue),
        idle=_idle(idle, place),
        unknown=unknown,
        rules=[*_FINISHED_RULES, *(() if ended else (_RUNNING_RULE,)), *_life_rules(profile, heard), *((_STAND_IN_RULE,) if sums.stood_in else ())],
    )  # fmt: skip


def without(bill: MonthBill, missing: Sequence[str]) -> MonthBill:
    """Return a bill that says which aggregators did not answer."""
    if not missing:
        return bill
    rule = f"Not in these numbers are the idle GPUs that {', '.join(missing)} counted, and hours that nobody else did."
    return msgspec.structs.replace(bill, missing=list(missing), rules=[*bill.rules, rule])


class _Sums(NamedTuple):
    """Energy of the rows of a bill together."""

    heard: list[str]
    """Rows of which anything is known."""
    joules: Floats
    """Measured, recovered, filled and forecast, of each interval."""
    known: Floats
    """Seconds of each interval in which all of them were known, of those in which any lived."""
    known_hours: float
    """Hours in which all of them were known, of those in which any lived."""
    stood_in: bool
    """Whether anything stood in for silent nodes."""


def _sums(profile: LoadProfile, now: float, rows: Sequence[str]) -> _Sums:
    """Return the sums over some rows of a month."""
    count = len(profile.month.minute)
    heard: list[str] = []
    joules, least, longest = np.zeros((4, count)), np.full(count, float(STEP)), np.zeros(count)
    stood_in = False
    for first in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[first : first + ROWS_AT_ONCE]
        known = profile.series("seconds", part) + profile.series("recovered_seconds", part)
        part = [name for name, some in zip(part, np.any(known, axis=1), strict=True) if some]
        if not part:
            continue
        heard += part
        known = known[known.any(axis=1)] * known_part(profile, part)
        lived = profile.lived(now, part)
        least = np.minimum(least, (known + STEP - lived).min(axis=0))
        longest = np.maximum(longest, lived.max(axis=0))
        stood_in = stood_in or bool(profile.series("stand_in", part).any())
        energies = profile.energy(part), profile.series("recovered", part), *fillings(profile, now, part)
        joules += [each.sum(axis=0) for each in energies]
    whole = np.clip(least + longest - STEP, 0.0, longest)
    return _Sums(heard, joules, whole, float(whole.sum()) / 3600, stood_in)


def _range(
    profile: LoadProfile, sums: _Sums, now: float, end: float, coming: float
) -> tuple[float | None, float | None]:
    """Return the least and the most that a month will cost, where `coming` of it is forecast: if each day to come is as
    the quietest or the busiest of the last seven that were measured; None where they are too few."""
    days = days_of(profile.month)
    today = int(days[min(int((now - profile.month.start) // STEP), len(days) - 1)])
    past = range(max(0, today - _RANGE_DAYS), today)
    joules = np.nan_to_num(sums.joules[:3]).sum(axis=0)
    found = np.array([joules[days == day].sum() for day in past if sums.known[days == day].mean() >= _DAY_KNOWN * STEP])
    if len(found) < _LEAST_DAYS or not found.mean() > 0:
        return None, None
    ends = sorted(end + coming * (day / found.mean() - 1.0) for day in (found.min(), found.max()))
    return round(float(ends[0]), 4), round(float(ends[1]), 4)


def _life_rules(profile: LoadProfile, rows: Sequence[str]) -> list[str]:
    """Return which rows began or ended in the month."""
    found, zone = [], profile.month.zone
    for name in rows:
        begins, ends = profile.life(name)
        if begins > profile.month.start:
            found.append(f"{name} counts from {datetime.fromtimestamp(begins, zone).isoformat(' ', 'minutes')} on.")
        if ends < profile.month.end:
            found.append(f"{name} counts until {datetime.fromtimestamp(ends, zone).isoformat(' ', 'minutes')}.")
    if len(found) > _MOST_LIVES:
        more = len(found) - _MOST_LIVES
        found = [*found[:_MOST_LIVES], f"{more} more begin or end in the month."]
    return found


def _kwh(joules: Floats) -> float | None:
    found = float(joules.sum()) / JOULES_PER_KWH
    return round(found, 4) if math.isfinite(found) else None


def _energy_line(name: str, joules: Floats, prices: Floats, pue: float) -> BillLine:
    kwh = pue * joules / JOULES_PER_KWH
    with np.errstate(invalid="ignore"):
        amount = float(np.where(kwh == 0, 0.0, kwh * prices).sum())
    known, single = math.isfinite(amount), np.unique(prices)
    quantity = float(kwh.sum())
    return BillLine(
        name=f"energy, {name}",
        quantity=round(quantity, 4) if math.isfinite(quantity) else None,
        unit="kWh",
        price=float(single[0]) if len(single) == 1 and math.isfinite(single[0]) else None,
        amount=round(amount, 4) if known else None,
        note=""
        if known
        else "too few hours are known to fill the others"
        if not math.isfinite(quantity)
        else "no tariff: write [power.site] tariff = 0.30",
    )


def ratchet_peak(month: str, past: Mapping[str, float], terms: BillConfig, pue: float = 1.0) -> tuple[float, str]:
    """Return the highest demand of the months that the ratchet looks at, kW, and its month; 0 and no name
    where none is known. `past` in watts, by month."""
    names = [name for name in months_before(month, terms.ratchet_months) if name in past]
    highest = max(names, key=lambda name: past[name], default="")
    return (past[highest] * pue / 1000, highest) if highest else (0.0, "")


def _demand_lines(
    mean: float | None, peak: float | None, factor: float | None, terms: BillConfig, past: tuple[float, str]
) -> list[BillLine]:
    if not (terms.demand_charge or terms.excess_charge):
        return []
    floor = terms.ratchet * past[0]
    if mean is None and floor <= 0:
        return [BillLine(name="demand", unit="kW", price=terms.demand_charge, note="no interval is known yet")]
    billed, note = mean or 0.0, words_of(terms)
    if terms.power_factor_adjusts_demand and terms.power_factor is not None:
        if factor is None:
            note += "; the power factor is not known, so it is not adjusted"
        elif factor < terms.power_factor:
            billed *= terms.power_factor / factor
            note += f", times {terms.power_factor:g} over the power factor {factor:.3f}"
    if floor > billed:
        billed, note = (floor, f"ratchet: {percent(terms.ratchet)} of {watts(1000 * past[0])} in {past[1]}")
    lines = [_line("demand", billed, "kW", terms.demand_charge, note)]
    if terms.contract_kw is not None and peak is not None and terms.excess_charge:
        excess = max(peak - terms.contract_kw, 0.0)
        lines.append(
            _line(
                "excess demand",
                excess,
                "kW",
                terms.excess_charge,
                f"above the contract's {watts(1000 * terms.contract_kw)}",
            )
        )
    return lines


def _other_lines(factor: float | None, excess_kvarh: float | None, terms: BillConfig) -> list[BillLine]:
    lines = []
    if terms.contract_kw is not None and terms.contract_charge:
        lines.append(_line("contract", terms.contract_kw, "kW", terms.contract_charge, "agreed demand"))
    if terms.reactive_charge and excess_kvarh is None:
        lines.append(
            BillLine(
                name="reactive energy",
                unit="kvarh",
                price=terms.reactive_charge,
                note="not known: no meter of what is billed reports volt-amperes or a power factor",
            )
        )
    elif terms.reactive_charge and excess_kvarh is not None and factor is not None:
        note = f"beyond a power factor of {terms.power_factor:g}; the month's was {factor:.3f}"
        lines.append(_line("reactive energy", excess_kvarh, "kvarh", terms.reactive_charge, note))
    if terms.fixed_charge:
        lines.append(_line("fixed", 1.0, "month", terms.fixed_charge, ""))
    return lines


def _line(name: str, quantity: float, unit: str, price: float, note: str) -> BillLine:
    return BillLine(
        name=name, quantity=round(quantity, 4), unit=unit, price=price, amount=round(quantity * price, 4), note=note
    )


def _reactive(profile: LoadProfile, rows: Sequence[str], least: float | None) -> tuple[float | None, float | None]:
    """Return the month's power factor, and the kvarh beyond the least one; None where a row does not
    report it in nine tenths of its time."""
    seconds, known = profile.series("seconds", rows), profile.series("reactive_seconds", rows)
    if not len(seconds) or (known.sum(axis=1) < 0.9 * seconds.sum(axis=1)).any() or not known.any():
        return None, None
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(seconds > 0, known / seconds, 0.0)
    active = float((profile.series("joules", rows) * part).sum()) / JOULES_PER_KWH
    reactive = float(profile.series("reactive", rows).sum()) / JOULES_PER_KWH
    if active <= 0:
        return None, None
    allowed = 0.0 if least is None else active * math.tan(math.acos(least))
    return active / math.hypot(active, reactive), max(reactive - allowed, 0.0)


def _bands(joules: Floats, prices: Floats, pue: float) -> list[PriceBand]:
    found = []
    for price in sorted(np.unique(prices[np.isfinite(prices)]).tolist(), reverse=True):
        kwh = pue * float(joules[prices == price].sum()) / JOULES_PER_KWH
        if kwh:
            found.append(PriceBand(price=price, kwh=round(kwh, 4), amount=round(kwh * price, 4)))
    return found


def _idle(idle: NodeIdle, place: SiteConfig) -> list[IdleNode]:
    priced = place.tariff is not None or bool(place.tariffs)
    nodes = [
        IdleNode(
            node=name,
            gpu_hours=round(gpus / 3600, 4),
            idle_gpu_hours=round(unused / 3600, 4),
            ratio=round(unused / gpus, 4),
            kwh=round(joules / JOULES_PER_KWH, 4),
            cost=round(money * place.pue, 4) if priced else None,
        )
        for name, (gpus, unused, joules, money) in idle.totals().items()
        if gpus > 0
    ]
    return sorted(nodes, key=lambda one: (-one.kwh, one.node))[:_MOST_IDLE]


def _sum(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return round(math.fsum(known), 4) if known else None
