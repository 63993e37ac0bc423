"""The bill of a month, against answers that are worked out beside it from the hours of the calendar.

October 2026 in Berlin has 745 hours: the 25th has 25. March has 743.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from api.bill import BillLine, MonthBill
from power.report.bill import month_bill
from power.report.billed_demand import DailyPeaks
from power.report.load_profile import LoadProfile, begun_interval, demands, month_energy
from power.report.month_ledger import UNMAPPED, MonthLedger, NodeIdle, merge_tree, profile_tree
from power.report.months import month_at, month_named, months_between
from power.site.config import BillConfig, SiteConfig
from power.site.tariff import TariffRate
from telemetry.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")
OCTOBER = month_named("2026-10", BERLIN)
Watts = Callable[[datetime], float | None]


def profile_of(watts: Watts, month: str = "2026-10", until: float = math.inf, var: float = math.nan) -> LoadProfile:
    """A month in which a circuit draws what is said of each local minute; None is not known."""
    profile = LoadProfile(month_named(month, BERLIN))
    rows = profile.rows(["main"])
    at = float(profile.month.start)
    while at < min(profile.month.end, until):
        drawn = watts(datetime.fromtimestamp(at, BERLIN))
        at += 300
        known = drawn is not None
        profile.add(rows, at, 300.0, np.array([300.0 * (drawn or 0.0)]), np.array([known]), np.array([300.0 * var]))
    return profile


def bill_of(
    profile: LoadProfile,
    place: SiteConfig,
    terms: BillConfig,
    now: float = math.inf,
    past: dict[str, float] | None = None,
) -> MonthBill:
    """The bill of the only circuit."""
    return month_bill(
        profile,
        NodeIdle(),
        min(now, profile.month.end),
        place=place,
        terms=terms,
        rows=["main"],
        past_peaks=past or {},
        timezone="Europe/Berlin",
    )


def line(bill: MonthBill, name: str) -> BillLine:
    """A line by its name."""
    return next(one for one in bill.lines if one.name == name)


@pytest.mark.parametrize(("month", "hours"), [("2026-10", 745), ("2026-03", 743), ("2026-02", 672), ("2026-12", 744)])
def test_a_month_has_the_hours_of_its_calendar(month: str, hours: int) -> None:
    """The day of a change of clocks has 23 or 25 hours, and the hour that comes twice is twice there."""
    found = month_named(month, BERLIN)
    assert found.hours == hours
    assert len(found.minute) == 4 * hours
    days = [found.when(n).day for n in range(len(found.minute))]
    lengths = {days.count(day) / 4 for day in days}
    assert lengths == {745: {24, 25}, 743: {24, 23}}.get(hours, {24})
    assert month_at(found.start, BERLIN).name == month
    assert month_at(found.end - 1, BERLIN).name == month
    assert datetime.fromtimestamp(found.start, BERLIN).hour == 0


def test_a_month_that_is_none_says_what_to_write() -> None:
    """Not a traceback of the calendar."""
    for name in ("2026-13", "october", "2026-1", "1926-10"):
        with pytest.raises(ConfigError, match="Write 2026-10"):
            month_named(name, BERLIN)


def test_ten_days_of_downtime_are_filled_and_said_and_not_left_out() -> None:
    """1 kW all October, ten days down: 745 kWh and not two thirds of it; 240 of them are filled."""
    profile = profile_of(lambda at: None if 11 <= at.day <= 20 else 1000.0)
    bill = bill_of(profile, SiteConfig(tariff=0.25), BillConfig())
    assert bill.kwh_measured == pytest.approx(505)
    assert bill.kwh_filled == pytest.approx(240)
    assert (bill.hours, bill.hours_known, bill.hours_elapsed) == (745, 505, 745)
    assert bill.total == pytest.approx(745 * 0.25)
    assert line(bill, "energy, filled").amount == pytest.approx(60)
    assert bill.intervals_unknown == 4 * 240


def test_a_projection_in_the_middle_of_the_month_is_of_the_whole_truth() -> None:
    """On the 25th, with ten days down; the budget sees the same as the bill."""
    now = datetime(2026, 10, 25, 12, tzinfo=BERLIN).timestamp()
    profile = profile_of(lambda at: None if 11 <= at.day <= 20 else 1000.0, until=now)
    energy = month_energy(profile, now, OCTOBER.prices(0.25, ()))
    assert energy.whole.sum() / 3.6e6 == pytest.approx(745)
    assert energy.money.sum() == pytest.approx(745 * 0.25)
    assert energy.known_seconds[0] / 3600 == pytest.approx((now - OCTOBER.start) / 3600 - 240)
    bill = bill_of(profile, SiteConfig(tariff=0.25), BillConfig(), now)
    assert bill.kwh_forecast == pytest.approx(745 - (now - OCTOBER.start) / 3600)
    assert bill.total_forecast == pytest.approx(745 * 0.25)
    assert not bill.finished


@pytest.mark.parametrize(
    ("price", "gone", "range_"),
    [(0.25, {}, (0.5, 1.5)), (-0.25, {}, (1.5, 0.5)), (0.25, {20}, (12 / 13, 18 / 13)), (0.25, {*range(18, 23)}, None)],
    ids=["of seven days", "paid for drawing", "the quietest was not measured", "two days are too few"],
)
def test_a_month_ends_between_its_quietest_and_its_busiest_days(
    price: float, gone: set[int], range_: tuple[float, float] | None
) -> None:
    """1 kW, but for a day of 0.5 and one of 1.5 in the week before noon of the 25th."""
    now = datetime(2026, 10, 25, 12, tzinfo=BERLIN).timestamp()
    drawn = {20: 500.0, 22: 1500.0}
    profile = profile_of(lambda at: None if at.day in gone else drawn.get(at.day, 1000.0), until=now)
    bill = bill_of(profile, SiteConfig(tariff=price), BillConfig(), now)
    assert bill.total is not None
    assert bill.total_forecast is not None
    if range_ is None:
        assert (bill.total_least, bill.total_most) == (None, None)
        return
    coming = bill.total_forecast - bill.total
    ends = [bill.total + part * coming for part in range_]
    assert [bill.total_least, bill.total_most] == pytest.approx(ends, rel=0.02)
    assert bill_of(profile, SiteConfig(tariff=price), BillConfig()).total_least is None, "it is over"


def test_a_gap_is_filled_by_the_hour_of_the_day_and_priced_by_its_own_hours() -> None:
    """2 kW by day and 0.5 kW at night, at 0.40 and 0.10; two days and a night are missing."""
    night = TariffRate(start="22:00", end="06:00", price=0.10)
    place = SiteConfig(tariff=0.40, tariffs=(night,), pue=1.5)

    def is_night(at: datetime) -> bool:
        return at.hour >= 22 or at.hour < 6

    def drawn(at: datetime) -> float:
        return 500.0 if is_night(at) else 2000.0

    profile = profile_of(lambda at: None if at.day in {7, 8, 25} else drawn(at))
    bill = bill_of(profile, place, BillConfig())
    kwh = {True: 0.0, False: 0.0}
    at = datetime(2026, 9, 30, 22, tzinfo=UTC)  # midnight in Berlin, in summer
    for _ in range(745):
        here = at.astimezone(BERLIN)
        kwh[is_night(here)] += drawn(here) / 1000
        at += timedelta(hours=1)
    assert bill.total == pytest.approx(1.5 * (kwh[True] * 0.10 + kwh[False] * 0.40))
    assert {band.price: band.kwh for band in bill.bands} == pytest.approx(
        {0.40: 1.5 * kwh[False], 0.10: 1.5 * kwh[True]}
    )
    assert bill.kwh_filled == pytest.approx(2 * 36 + 36.5)  # the 25th has an hour of night more


def test_hours_with_a_negative_price_earn_money() -> None:
    """Sunday noons of October 2026: four Sundays, three hours each at -0.05."""
    noon = TariffRate(start="12:00", end="15:00", price=-0.05, days=("sun",))
    bill = bill_of(profile_of(lambda _: 4000.0), SiteConfig(tariff=0.20, tariffs=(noon,)), BillConfig())
    assert bill.total == pytest.approx(4 * (745 - 12) * 0.20 - 4 * 12 * 0.05)
    assert bill.bands[-1].amount == pytest.approx(-2.4)


def test_a_short_peak_is_billed_by_its_interval() -> None:
    """10 kW, and 40 kW from 14:05 to 14:20 on the 14th: 15 min take 30 kW of it, 30 min 25 kW."""

    def drawn(at: datetime) -> float:
        return 40_000.0 if at.day == 14 and at.hour == 14 and 5 <= at.minute < 20 else 10_000.0

    profile = profile_of(drawn)
    for minutes, kw, when in ((15, 30.0, "14:00"), (30, 25.0, "14:00"), (60, 17.5, "14:00")):
        terms = BillConfig(demand_minutes=minutes, demand_charge=12.0)  # type: ignore[arg-type]
        bill = bill_of(profile, SiteConfig(), terms)
        assert bill.peak_kw == pytest.approx(kw)
        assert bill.peak_at == f"2026-10-14T{when}+02:00"
        assert line(bill, "demand").amount == pytest.approx(12 * kw)


def test_the_mean_of_three_days_highest_hours_is_billed() -> None:
    """18 and 17 kW on one day, 12 on another, 9 on a third: (18 + 12 + 9) / 3; the second hour of a day counts nothing."""
    kw = {(5, 10): 18_000.0, (5, 18): 17_000.0, (11, 7): 12_000.0, (25, 2): 9_000.0}
    profile = profile_of(lambda at: kw.get((at.day, at.hour), 4000.0))
    terms = BillConfig(demand_minutes=60, demand_days=3, demand_charge=10.0)
    bill = bill_of(profile, SiteConfig(), terms)
    assert bill.peak_kw == pytest.approx(18.0)
    assert line(bill, "demand").quantity == pytest.approx(13.0)
    assert line(bill, "demand").amount == pytest.approx(130.0)
    assert line(bill, "demand").note == "mean of the highest 60 min of 3 days of the month"
    past = {"2026-09": 15_000.0}
    terms = BillConfig(demand_minutes=60, demand_days=3, demand_charge=10.0, ratchet=1.0)
    assert line(bill_of(profile, SiteConfig(), terms, past=past), "demand").amount == pytest.approx(150.0)


def test_what_raises_the_mean_of_three_days() -> None:
    """A day's own highest so far, or the third highest of other days, whichever is more; any demand while days lack."""
    peaks = DailyPeaks({0: 9.0, 3: 14.0, 4: 12.0, 7: 5.0})
    assert peaks.billed_anyway(9, 3) == 9.0
    assert peaks.billed_anyway(3, 3) == 14.0
    assert peaks.billed_anyway(7, 3) == 9.0
    assert peaks.billed_anyway(9, 1) == 14.0
    assert peaks.billed_anyway(9, 5) == 0.0


def test_contract_ratchet_and_excess() -> None:
    """80 % of August's 60 kW is billed though October had 30; 5 kW above the contract cost more."""
    profile = profile_of(lambda at: 30_000.0 if (at.day, at.hour) == (5, 10) else 8000.0)
    terms = BillConfig(
        demand_charge=10.0,
        contract_kw=25,
        contract_charge=2.0,
        excess_charge=15.0,
        ratchet=0.8,
        ratchet_months=3,
        fixed_charge=40.0,
    )
    past = {"2026-06": 90_000.0, "2026-08": 60_000.0, "2026-09": 20_000.0}
    bill = bill_of(profile, SiteConfig(), terms, past=past)
    amounts = {one.name: one.amount for one in bill.lines}
    assert amounts == {"energy, measured": None, "demand": 480, "excess demand": 75, "contract": 50, "fixed": 40}
    assert bill.total == 645
    assert "2026-08" in line(bill, "demand").note  # June is more than three months ago
    alone = bill_of(profile, SiteConfig(), terms)
    assert line(alone, "demand").amount == pytest.approx(300)


def test_the_power_factor_costs_what_is_beyond_it_and_is_unknown_without_a_meter() -> None:
    """8 kW with 6 kvar are 0.8; 0.9 allows 3.875 kvar."""
    terms = BillConfig(demand_charge=10.0, power_factor=0.9, reactive_charge=0.02, power_factor_adjusts_demand=True)
    bill = bill_of(profile_of(lambda _: 8000.0, var=6000.0), SiteConfig(), terms)
    allowed = math.sqrt((8 / 0.9) ** 2 - 8**2)
    assert bill.power_factor == pytest.approx(0.8)
    assert line(bill, "reactive energy").amount == pytest.approx(745 * (6 - allowed) * 0.02)
    assert line(bill, "demand").quantity == pytest.approx(8 * 0.9 / 0.8)
    unknown = bill_of(profile_of(lambda _: 8000.0), SiteConfig(), terms)
    assert line(unknown, "reactive energy").amount is None
    assert "no meter" in line(unknown, "reactive energy").note
    assert line(unknown, "demand").quantity == 8


def test_a_gap_makes_no_peak_and_an_interval_half_known_has_no_demand() -> None:
    """Energy that a counter recovered is billed as energy; nobody knows its highest quarter of an hour."""

    def known(at: datetime) -> float | None:
        return None if at.day == 3 or (at.day == 4 and at.minute < 10) else 5000.0

    profile = profile_of(known)
    start = datetime(2026, 10, 3, tzinfo=BERLIN).timestamp()
    profile.recover("main", 24 * 5 * 3.6e6, start, start + 86_400)
    bill = bill_of(profile, SiteConfig(tariff=0.1), BillConfig())
    assert bill.kwh_recovered == pytest.approx(120)
    assert bill.peak_kw == 5
    assert bill.intervals_unknown == 96 + 24
    assert bill.kwh_filled == pytest.approx(24 * 5 / 6)
    watts = demands(profile, ["main"], OCTOBER.end, 15)
    assert np.isnan(watts[4 * 48 + 4 * 24 : 4 * 48 + 4 * 24 + 1]).all()


def test_nothing_known_is_no_zero() -> None:
    """A month without readings has no bill; too few hours fill nothing."""
    empty = bill_of(LoadProfile(OCTOBER), SiteConfig(tariff=0.2), BillConfig(demand_charge=5.0))
    assert (empty.hours_known, empty.kwh_filled, empty.peak_kw) == (0, None, None)
    assert empty.unknown == ["main"]
    assert line(empty, "demand").amount is None
    few = profile_of(lambda at: 1000.0 if (at.day, at.hour) == (1, 0) and at.minute < 30 else None)
    bill = bill_of(few, SiteConfig(tariff=0.2), BillConfig())
    assert (bill.kwh_measured, bill.kwh_filled) == (0.5, None)
    assert line(bill, "energy, filled").amount is None


def test_a_month_survives_the_disk_and_the_change_of_months() -> None:
    """What is read back gives the same bill; a midnight in Berlin begins another month."""
    profile = profile_of(lambda at: None if at.day == 9 else 1000.0 + at.hour, var=100.0)
    again = LoadProfile(OCTOBER)
    merge_tree(again, profile_tree(profile))
    merge_tree(again, profile_tree(profile, 5, 9))  # a checkpoint beside it changes nothing
    terms = BillConfig(demand_charge=3.0, power_factor=0.95, reactive_charge=0.1)
    assert bill_of(again, SiteConfig(tariff=0.2), terms) == bill_of(profile, SiteConfig(tariff=0.2), terms)
    ledger = MonthLedger(BERLIN)
    ledger.begin(again, NodeIdle())
    assert ledger.at(OCTOBER.end - 1) is again
    fresh = ledger.at(OCTOBER.end)
    assert (fresh.month.name, [one.month.name for one, _ in ledger.finished]) == ("2026-11", ["2026-10"])


def at(day: int, hour: int = 0, minute: int = 0) -> float:
    """An instant of October in Berlin."""
    return datetime(2026, 10, day, hour, minute, tzinfo=BERLIN).timestamp()


def drawn_by(profile: LoadProfile, name: str, watts: float, since: float, until: float) -> None:
    """Let a row draw that for so long; it begins there if it is new."""
    for now in np.arange(since, until, 900.0):
        step = min(900.0, until - now)
        profile.add(
            profile.rows([name], now),
            now + step,
            step,
            np.array([watts * step]),
            np.array([True]),
            np.array([math.nan]),
        )


def bill_of_rows(profile: LoadProfile, rows: list[str], now: float = OCTOBER.end) -> MonthBill:
    """The bill of some rows at 0.30 a kWh and 10 a kW."""
    return month_bill(
        profile,
        NodeIdle(),
        now,
        place=SiteConfig(tariff=0.3),
        terms=BillConfig(demand_charge=10.0),
        rows=rows,
        past_peaks={},
        timezone="Europe/Berlin",
    )


def test_a_node_that_is_mapped_in_mid_month_is_billed_once() -> None:
    """1 kW, on no circuit until the 9th and on one from then on: 745 kWh, nothing filled, one peak."""
    profile = LoadProfile(OCTOBER, [UNMAPPED])
    drawn_by(profile, UNMAPPED, 1000, OCTOBER.start, at(9))
    profile.end([UNMAPPED], at(9))
    drawn_by(profile, "rack", 1000, at(9), OCTOBER.end)
    bill = bill_of_rows(profile, ["rack", UNMAPPED])
    assert (bill.kwh_measured, bill.kwh_filled) == (pytest.approx(745), 0)
    assert bill.peak_kw == pytest.approx(1)
    assert (bill.hours_known, bill.intervals_unknown) == (745, 0)
    assert "rack counts from 2026-10-09 00:00+02:00 on." in bill.rules
    assert f"{UNMAPPED} counts until 2026-10-09 00:00+02:00." in bill.rules
    early = bill_of_rows(profile, ["rack", UNMAPPED], at(20))
    assert early.kwh_forecast == pytest.approx(745 - 19 * 24)


def test_a_circuit_that_begins_or_ends_in_the_month_neither_wipes_its_peak_nor_has_an_invented_past() -> None:
    """40 kW on the 5th, a rack of 10 kW from the 19th on, another until the 12th at noon."""
    profile = LoadProfile(OCTOBER, ["main", "old"])
    drawn_by(profile, "main", 1000, OCTOBER.start, at(5))
    drawn_by(profile, "main", 40_000, at(5), at(5, 1))
    drawn_by(profile, "main", 1000, at(5, 1), OCTOBER.end)
    drawn_by(profile, "old", 2000, OCTOBER.start, at(12, 12, 7))
    profile.end(["old"], at(12, 12, 7))
    drawn_by(profile, "new", 10_000, at(19), OCTOBER.end)
    bill = bill_of_rows(profile, ["main", "old", "new"])
    assert bill.peak_kw == pytest.approx(42)
    assert bill.kwh_filled == 0
    assert bill.kwh_measured == pytest.approx(745 + 39 + 2 * (11.5 * 24 + 7 / 60) + 10 * (745 - 18 * 24))
    assert bill.intervals_unknown == 0
    watts = demands(profile, ["main", "old", "new"], OCTOBER.end, 15)
    half = int((at(12, 12) - OCTOBER.start) // 900)
    # Seven of fifteen minutes of 2 kW.
    assert watts[half] == pytest.approx(1000 + 2000 * 7 / 15)
    # A gap of the new one is filled in its own life only.
    assert begun_interval(profile, ["main", "old", "new"], at(25), 15)[1] == 0
    mean, over = begun_interval(profile, ["main", "old", "new"], at(25, 0, 5), 15)
    assert (mean, over) == (pytest.approx(11_000), pytest.approx(1 / 3))


def test_lives_survive_the_disk_a_copy_and_a_row_that_comes_back() -> None:
    """What a row drew while it was none is known: nothing."""
    profile = LoadProfile(OCTOBER)
    drawn_by(profile, "rack", 1000, at(3), at(9))
    profile.end(["rack"], at(9))
    profile.roots.add("rack")
    again = LoadProfile(OCTOBER)
    merge_tree(again, json.loads(json.dumps(profile_tree(profile))))
    for one in (again, again.copied(), again.copied(["rack"])):
        assert (one.life("rack"), one.roots) == ((at(3), at(9)), {"rack"})
    drawn_by(again, "rack", 1000, at(20), OCTOBER.end)
    assert again.life("rack") == (at(3), math.inf)
    bill = bill_of_rows(again, ["rack"])
    assert bill.kwh_measured == pytest.approx(6 * 24 + 745 - 19 * 24)
    assert bill.kwh_filled == 0
    with pytest.raises(ValueError, match="life of rack"):
        merge_tree(again, {"start": OCTOBER.start, "rows": {"rack": {"begins": 5.0, "ends": 4.0}}})


def test_a_row_that_was_there_in_the_month_before_begins_with_the_month() -> None:
    """And its silent first week is filled; a row that is new then is not."""
    ledger = MonthLedger(BERLIN)
    before = month_named("2026-09", BERLIN)
    drawn_by(ledger.at(before.start), "old", 1000, before.end - 7200, before.end)
    drawn_by(ledger.at(at(8)), "old", 1000, at(8), OCTOBER.end)
    drawn_by(ledger.at(at(8)), "new", 1000, at(8), OCTOBER.end)
    bill = bill_of_rows(ledger.at(at(8)), ["old", "new"])
    assert bill.kwh_filled == pytest.approx(7 * 24)
    ended = ledger.at(at(9))
    ended.end(["old"], at(30))
    november = month_named("2026-11", BERLIN)
    ledger.at(november.start).rows(["old", "new"], november.start + 3600.0)
    assert ledger.at(november.start).life("old")[0] == november.start + 3600
    assert ledger.at(november.start).life("new")[0] == november.start


def test_energy_that_is_recovered_over_midnight_goes_to_its_month_day_and_price() -> None:
    """A gap from 22:00 on 31 October to 04:00, 6 kWh: two in October; by the hours' prices in November."""
    written: dict[str, tuple[LoadProfile, NodeIdle]] = {}
    ledger = MonthLedger(BERLIN, written.get)
    start, end = OCTOBER.end - 7200, OCTOBER.end + 4 * 3600
    drawn_by(ledger.at(start - 3600), "main", 1000, start - 3600, start)
    ledger.at(end).rows(["main"], end)
    written["2026-10"] = ledger.finished.pop()  # it has been written in the meantime
    ledger.recover("main", 6 * 3.6e6, start, end)
    (october, _), november = ledger.finished[0], ledger.at(end)
    assert october.series("recovered").sum() == pytest.approx(2 * 3.6e6)
    assert october.series("recovered")[0, -8:] == pytest.approx([0.25 * 3.6e6] * 8)
    assert november.series("recovered")[0, :16] == pytest.approx([0.25 * 3.6e6] * 16)
    night = TariffRate(start="02:00", end="04:00", price=0.10)
    bill = month_bill(
        november,
        NodeIdle(),
        end,
        place=SiteConfig(tariff=0.40, tariffs=(night,)),
        terms=BillConfig(),
        rows=["main"],
        past_peaks={},
        timezone="Europe/Berlin",
    )
    assert line(bill, "energy, recovered").amount == pytest.approx(2 * 0.40 + 2 * 0.10)
    ledger.correct("main", 3.6e6, OCTOBER.end - 900, OCTOBER.end + 900)
    assert october.series("corrected")[0, -1] == pytest.approx(1.8e6)
    assert november.series("corrected")[0, 0] == pytest.approx(1.8e6)


def test_energy_of_last_month_that_becomes_known_late_leaves_the_present_month() -> None:
    """A gap that ended before midnight; a checkpoint holds neither."""
    ledger = MonthLedger(BERLIN)
    drawn_by(ledger.at(at(31)), "main", 1000, at(31), at(31, 20))
    november = ledger.at(OCTOBER.end + 60.0)
    drawn_by(november, "main", 1000, OCTOBER.end, OCTOBER.end + 60.0)
    ledger.recover("main", 3.6e6, at(31, 20), at(31, 21))
    assert ledger.profile is november
    assert [one.month.name for one, _ in ledger.finished] == ["2026-10"]
    assert ledger.finished[0][0].series("recovered").sum() == pytest.approx(3.6e6)
    assert ledger.changed_from == at(31, 20)


def test_a_stand_in_for_silent_nodes_is_filled_and_makes_no_demand_above_a_hundredth() -> None:
    """1,000 W report, and one of 500 W is silent for a day; on another day one of 5 W."""
    profile = LoadProfile(OCTOBER)
    drawn_by(profile, UNMAPPED, 1000, OCTOBER.start, OCTOBER.end)
    for day, watts in ((7, 500.0), (9, 5.0)):
        for number in range(96):
            profile.stand_in(UNMAPPED, at(day) + 900 * (number + 1), 900.0, 900 * watts)
    again = LoadProfile(OCTOBER)
    merge_tree(again, json.loads(json.dumps(profile_tree(profile))))
    for one in (profile, again):
        bill = bill_of_rows(one, [UNMAPPED])
        assert (bill.kwh_measured, bill.kwh_filled) == (pytest.approx(745), pytest.approx(12.12))
        assert bill.intervals_unknown == 96
        assert bill.peak_kw == pytest.approx(1.005)
        assert bill.hours_known == pytest.approx(745 - 8 - 24 * 5 / 1005, abs=0.01)
        assert any("silent node on no circuit" in rule for rule in bill.rules)


def test_a_profile_of_thousands_of_rows_has_exact_room_and_no_series_that_nobody_wrote() -> None:
    """2,000 rows: two series of float32."""
    profile = LoadProfile(OCTOBER)
    names = [f"c{number}" for number in range(2000)]
    rows = profile.rows(names, OCTOBER.start)
    some = np.full(2000, 1000.0)
    profile.add(rows, OCTOBER.start + 1.0, 1.0, some, some > 0, np.full(2000, math.nan))
    assert profile.nbytes == 2 * 2000 * 2980 * 4


def test_the_months_of_a_time_begin_at_local_midnight() -> None:
    zone = ZoneInfo("Europe/Berlin")
    begin, end = (int(datetime(2026, *day, tzinfo=zone).timestamp()) * 10**9 for day in ((10, 31), (12, 1)))
    november = int(datetime(2026, 11, 1, tzinfo=zone).timestamp()) * 10**9
    assert list(months_between(begin, end, zone)) == ["2026-10", "2026-11"]
    assert months_between(begin, end, zone)["2026-11"] == november == begin + 86400 * 10**9
    assert list(months_between(begin, end + 1, zone)) == ["2026-10", "2026-11", "2026-12"]
    assert list(months_between(november, november, zone)) == ["2026-11"]
