"""The headline and the figures of a month's bill: what it will cost, and how much of it is known. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from api.bill import MonthBill
from api.report import Upkeep
from api.use import UseReply, UseRow
from present.bill import UNKNOWN, demand_row, total_rows
from present.device.figures import UNKNOWN as ABSENT_FIGURE
from present.device.figures import DeviceFigure
from present.fleet.headline import Headline, Urgency, sentence
from present.row import FactRow, Tone
from present.units import at_least, energy, is_partial, kilowatt_hours, money, number, percent, roughly, watts
from telemetry.text import counted, short_duration

_WELL_KNOWN = 0.98
"""Part of the hours so far from which on a month counts as known."""
NOBODY, UNREPORTED = "nobody", "not reported"
"""Names of the GPUs that no job held, and of those whose nodes do not say."""


def bill_headline(bill: MonthBill) -> Headline:
    """Return the headline of a bill."""
    total, *rest = total_rows(bill)
    known = bill.hours_known / bill.hours_elapsed if bill.hours_elapsed else 0.0
    doubts = [total.note] if total.note else []
    if known < _WELL_KNOWN:
        doubts.append(f"{percent(known)} of its hours are measured")
    if bill.unknown:
        doubts.append(f"nothing is known of {counted(len(bill.unknown), 'circuit')}")
    if not bill.lines or bill.total is None:
        text = f"{bill.month}: {kilowatt_hours(bill.kwh_measured)} measured"
        why = ["no price is set, so that its cost is not known", *doubts[1 if total.note else 0 :]]
        return Headline(Urgency.UNKNOWN, text, sentence(*why))
    if bill.finished:
        text, why = f"{bill.month} cost {total.value}", doubts
    elif rest and rest[0].value != UNKNOWN:
        text = f"{bill.month} will cost ~{rest[0].value}"
        why = [f"{total.value} so far", rest[0].note, *doubts]
    else:
        text, why = (
            f"{bill.month} has cost {at_least(total.value, partial=bool(total.note) or (known < _WELL_KNOWN and not bill.kwh_filled))} so far",
            [rest[0].note if rest else "", *doubts],
        )
        doubts = doubts or ["no forecast"]
    return Headline(Urgency.UNKNOWN if doubts else Urgency.WELL, text, sentence(*why))


def bill_figures(bill: MonthBill, today: Upkeep | None = None) -> Iterator[DeviceFigure]:
    """Yield the figures of a bill. `today`: the energy of the present day, where the month is the present one."""
    if not bill.finished:
        yield _today(today, bill.currency)
    yield _month(bill)
    yield _demand(bill)
    yield _idle(bill)
    if not bill.finished:
        _, end = total_rows(bill)
        known = end.value != UNKNOWN
        row = FactRow(
            "by the month's end",
            f"~{end.value}" if known else ABSENT_FIGURE,
            Tone.PLAIN if known else Tone.STALE,
            note=end.note,
        )
        yield DeviceFigure(row)


def _today(today: Upkeep | None, currency: str) -> DeviceFigure:
    if today is None:
        return DeviceFigure(FactRow("today", ABSENT_FIGURE, Tone.STALE, note="nothing is measured yet"))
    missing = today.unknown_hours > 0.05
    cost = "no price is set" if today.cost is None else money(today.cost, currency)
    gap = f"; without {short_duration(3600 * today.unknown_hours)} of it" if missing else ""
    return DeviceFigure(FactRow("today", at_least(kilowatt_hours(today.kwh), partial=missing), note=f"{cost}{gap}"))


def _month(bill: MonthBill) -> DeviceFigure:
    filled = bill.kwh_filled or 0.0
    known = bill.hours_known / bill.hours_elapsed if bill.hours_elapsed else None
    words = kilowatt_hours(bill.kwh_measured + bill.kwh_recovered + filled)
    if not filled and known is not None and known < _WELL_KNOWN:
        words = at_least(words, partial=True)
    parts = [f"{kilowatt_hours(bill.kwh_measured)} measured"]
    if filled:
        words = roughly(words, partial=True)
        parts.append(f"~{kilowatt_hours(filled)} filled")
    if known is not None:
        parts.append(f"{percent(known)} of its hours known")
    label = "the month" if bill.finished else "the month so far"
    return DeviceFigure(FactRow(label, words, note="; ".join(parts)), known)


def _demand(bill: MonthBill) -> DeviceFigure:
    its = demand_row(bill)
    if bill.peak_kw is None:
        return DeviceFigure(FactRow(its.label, ABSENT_FIGURE, Tone.STALE, note="no interval is wholly measured"))
    when = its.value.removeprefix(watts(1000 * bill.peak_kw)).strip()
    missing = f"{counted(bill.intervals_unknown, 'interval')} not known" if bill.intervals_unknown else ""
    words = at_least(watts(1000 * bill.peak_kw), partial=bool(missing))
    return DeviceFigure(FactRow(its.label, words, note="; ".join(filter(None, (when, missing)))))


def _idle(bill: MonthBill) -> DeviceFigure:
    hours, idle = (sum(getattr(one, name) for one in bill.idle) for name in ("gpu_hours", "idle_gpu_hours"))
    if not hours:
        return DeviceFigure(FactRow("idle GPUs", ABSENT_FIGURE, Tone.STALE, note="the use of no GPU is known"))
    costs = [one.cost for one in bill.idle if one.cost is not None]
    cost = f"{money(sum(costs), bill.currency)} of energy; " if costs else ""
    note = f"{cost}{percent(idle / hours)} of the time below 5% use"
    return DeviceFigure(FactRow("idle GPUs", f"{number(idle, 1)} GPU hours", note=note), idle / hours)


@dataclass(frozen=True, slots=True)
class UserLine:
    """A line of who used the energy of a month."""

    name: str
    person: bool
    """Whether it is a user, and not what no job held."""
    joules: float | None
    energy: str
    hours: str
    use: str
    cost: str
    idle: str
    """Cost of the time below 5% use."""


def user_lines(reply: UseReply) -> Iterator[UserLine]:
    """Yield who used the GPUs of a month, the most energy first, then what no job held."""
    rows = sorted(reply.rows, key=lambda one: -(_joules(one) or 0.0))
    yield from (_line(one, one.user or UNKNOWN, reply.currency, person=bool(one.user)) for one in rows)
    for name, its in ((NOBODY, reply.unheld), (UNREPORTED, reply.unreported)):
        if its is not None:
            yield _line(its, name, reply.currency, person=False)


def _joules(row: UseRow) -> float | None:
    return row.energy_joules if row.wall_joules is None else row.wall_joules


def _line(row: UseRow, name: str, currency: str, *, person: bool) -> UserLine:
    def cell(words: str, value: float | None, coverage: float | None) -> str:
        return UNKNOWN if value is None else roughly(words, partial=is_partial(coverage))

    coverage = row.energy_coverage if row.wall_joules is None else row.wall_coverage
    where = " at the GPUs" if row.wall_joules is None and row.energy_joules is not None else ""
    return UserLine(
        name,
        person,
        _joules(row),
        cell(energy(_joules(row)), _joules(row), coverage) + where,
        cell(number(row.gpu_hours, 1), row.gpu_hours, row.hours_coverage),
        cell(percent(row.utilization_ratio), row.utilization_ratio, row.utilization_coverage),
        cell(money(row.cost, currency), row.cost, row.cost_coverage),
        cell(money(row.idle_cost, currency), row.idle_cost, row.idle_coverage),
    )


@dataclass(frozen=True, slots=True)
class DayEnergy:
    """Energy of a day of the month."""

    kwh: float
    filled: float
    """kWh of the time that was not read, at the day's mean power."""


def days_words(days: Sequence[DayEnergy | None]) -> str:
    """Return the sentence of a chart of days; None is a day of which nothing is known."""
    known = [one for one in days if one is not None]
    if not known:
        return "nothing is stored of these days"
    most = kilowatt_hours(max(one.kwh for one in known))
    dark = len(days) - len(known)
    missing = f", {counted(dark, 'day')} not known" if dark else ""
    return f"energy of each day at the wall, up to {most}{missing}"
