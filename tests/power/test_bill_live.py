"""The bill while it runs: peak so far, the demand to come, an alert before a new peak, months over restarts."""

from __future__ import annotations

import json
import math
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from power.live import LivePower
from power.report.load_profile import LoadProfile, month_energy
from power.report.month_ledger import MonthLedger, NodeIdle, merge_tree
from power.site.config import BillConfig
from tests.power.stage import EPOCH, Stage, meter

SITE = """
[site]
tariff = 0.2
[bill]
demand_charge = 10.0
contract_kw = 3
[circuits.main]
breaker = 30
volts = 240
[budgets.b]
circuits = ["main"]
kwh_month = 1000
"""
EXCESS = SITE.replace("demand_charge", "excess_charge")
"""Nothing but what lies above the contract is charged."""
BERLIN = ZoneInfo("Europe/Berlin")


def beginning(text: str = SITE) -> Stage:
    """A site just after the beginning of an interval."""
    stage = Stage(text)
    stage.now += 900 - (stage.wall() / 1e9) % 900
    return stage


def drawing(stage: Stage, seconds: float, watts: float, every: float = 10.0, **more: float) -> None:
    """Let the main meter report."""
    stage.play(seconds, meters=[meter("main", watts=watts, **more)], every=every)


def test_a_new_peak_is_announced_before_its_interval_ends() -> None:
    """3 kW are agreed; 4 kW from the sixth minute on end at 3.4 kW: said nine minutes before."""
    stage = beginning(EXCESS)
    drawing(stage, 900, 2000)
    assert ("bill_peak", "bill") not in stage.firing()
    drawing(stage, 300, 2000)
    drawing(stage, 120, 4000)
    assert stage.value("budget_demand_watts", "bill") == pytest.approx((300 * 2 + 600 * 4) / 0.9, rel=0.02)
    assert stage.value("budget_peak_ratio", "bill") == pytest.approx(10 / 9, rel=0.02)
    assert stage.value("budget_peak_watts", "bill") == pytest.approx(2000, rel=0.01)
    assert ("bill_peak", "bill") in stage.firing()
    (alert,) = [one for one in stage.engine.alerts() if one.rule == "bill_peak"]
    assert "3.3 kW" in alert.description
    assert "$3.22 a month" in alert.description
    drawing(stage, 30, 0)  # the job is held back: the mean of the interval stays below
    drawing(stage, 450, 1000)
    assert stage.value("budget_peak_ratio", "bill") < 1
    drawing(stage, 300, 1000)
    assert ("bill_peak", "bill") not in stage.firing()
    assert stage.value("budget_peak_watts", "bill") < 3000
    assert math.isnan(stage.value("budget_peak_ratio", "b"))  # a budget is no bill


def test_a_contract_is_of_the_building_and_nested_circuits_count_once() -> None:
    """2.8 kW of machines are 3.64 kW at the meter, above the 3 that are agreed."""
    text = EXCESS.replace("tariff = 0.2", "tariff = 0.2\npue = 1.3").replace(
        "contract_kw = 3", 'contract_kw = 3\ncircuits = ["main", "sub"]'
    )
    text += '[circuits.sub]\nparent = "main"\nbreaker = 16\n'
    stage = beginning(text)
    readings = [meter("main", watts=2800.0), meter("sub", watts=1900.0)]
    stage.play(600, meters=readings, every=10.0)
    assert stage.value("budget_demand_watts", "bill") == pytest.approx(2800, rel=0.02)
    assert stage.value("budget_peak_ratio", "bill") == pytest.approx(2.8 * 1.3 / 3, rel=0.02)
    assert ("bill_peak", "bill") in stage.firing()


def test_a_rise_below_the_contract_is_announced_where_the_measured_peak_is_charged() -> None:
    """May had 2 kW, and 2.5 kW cost 0.5 kW more, though 3 are agreed; above them the excess is added."""
    for more, kilowatts, cost in (("", 2.5, "$5.00"), ("excess_charge = 4.0", 3.5, "$17.00")):
        stage = beginning(SITE.replace("[circuits.main]", f"{more}\n[circuits.main]"))
        stage.now -= 86_400 * 14  # to the first of June
        stage.live.months.ledger.past_peaks["2025-05"] = 2000.0
        drawing(stage, 900, 1000 * kilowatts)
        assert stage.value("budget_peak_ratio", "bill") == pytest.approx(kilowatts / 2, rel=0.02)
        assert ("bill_peak", "bill") in stage.firing()
        assert stage.snapshots is not None
        names = stage.snapshots.budget.names
        assert cost in stage.snapshots.budget.facts[names.index("bill")]["demand_cost"]
    quiet = beginning(EXCESS)
    quiet.live.months.ledger.past_peaks["2025-05"] = 2000.0
    drawing(quiet, 900, 2500)
    assert ("bill_peak", "bill") not in quiet.firing()  # no charge rises below 3 kW


def test_a_contract_without_a_charge_of_demand_announces_nothing() -> None:
    """The bill does not rise by it."""
    stage = beginning(SITE.replace("demand_charge = 10.0", ""))
    stage.live.months.ledger.past_peaks["2025-05"] = 1000.0
    drawing(stage, 300, 5000)
    assert math.isnan(stage.value("budget_peak_ratio", "bill"))


def test_without_a_contract_the_first_day_compares_with_nothing_and_the_next_with_its_peak() -> None:
    """Else each interval of a new site would be a new peak; a steady load never is one."""
    stage = beginning(SITE.replace("contract_kw = 3", ""))
    drawing(stage, 3600, 1000, every=10)
    assert math.isnan(stage.value("budget_peak_ratio", "bill"))
    drawing(stage, 86_400, 1000, every=300)
    assert stage.value("budget_peak_ratio", "bill") == pytest.approx(1)
    assert ("bill_peak", "bill") not in stage.firing()
    drawing(stage, 120, 2000)
    assert ("bill_peak", "bill") in stage.firing()


def test_the_ratchet_of_earlier_months_is_what_is_billed_anyway() -> None:
    """90 % of 10 kW in May; and in a month's first week, the month before."""
    text = SITE.replace("contract_kw = 3", "ratchet = 0.9\nratchet_months = 2")
    stage = beginning(text)
    stage.live.months.ledger.past_peaks.update({"2025-05": 10_000.0, "2025-01": 99_000.0})
    drawing(stage, 60, 4500)
    # EPOCH is 15 June 2025.
    assert stage.value("budget_peak_ratio", "bill") == pytest.approx(4500 / 9000, rel=0.02)


def test_a_restart_leaves_a_gap_that_a_counter_closes_and_a_budget_fills_otherwise() -> None:
    """Six hours down at 1 kW after six hours up: measured, recovered or filled, the month is the same."""
    for counted in (True, False):
        stage = beginning()
        ledger = stage.live.months.ledger
        for minute in range(360):
            counter = {"energy_joules": 60_000.0 * minute} if counted else {}
            drawing(stage, 60, 1000, every=60, **counter)
        memory = stage.live.checkpoint()
        other = Stage(SITE)
        other.live = LivePower(other.live.layout, 1, ledger)
        other.now = stage.now + 6 * 3600
        other.live.restore(memory, other.now, other.wall())
        more = {"energy_joules": 60_000.0 * (359 + 360 + 2)} if counted else {}
        drawing(other, 120, 1000, **more)
        whole = other.value("budget_month_forecast_joules", "b") / 3.6e6
        measured = other.value("budget_month_joules", "b") / 3.6e6
        filled = other.value("budget_month_filled_joules", "b") / 3.6e6
        # Of June, UTC, from the first reading on: of the time before nobody knows anything.
        left = 720 - (EPOCH / 1e9 + 1000 - 1_748_736_000) / 3600
        assert whole == pytest.approx(left, rel=0.01)
        assert measured == pytest.approx(12 if counted else 6, rel=0.03)
        assert filled == pytest.approx(0 if counted else 6, rel=0.03, abs=0.05)
        said = "filled" in str(other.snapshots.budget.facts[0]["so_far"])  # type: ignore[union-attr]
        assert said is not counted


@pytest.mark.parametrize("counter", [None, 3600.0, 360_000.0], ids=["no counter", "Wh", "0.1 kWh"])
def test_an_hours_energy_over_a_kill_is_within_a_hundredth_or_says_what_is_missing(counter: float | None) -> None:
    """An hour of a load that moves between 1 and 3 kW; killed after 33 minutes, seven seconds after a
    checkpoint, back after four minutes."""
    truth = 0.0
    stage = Stage(SITE, rules=())
    start = stage.now = 900 * math.ceil(stage.now / 900)

    def watts(now: float) -> float:
        return 2000 + 1000 * math.sin((now - start) / 400)

    def draw(seconds: float) -> None:
        nonlocal truth
        truth += seconds * (watts(stage.now) + watts(stage.now + seconds)) / 2

    def tick(seconds: float) -> None:
        draw(seconds)
        joules = {} if counter is None else {"energy_joules": (7 * 3.6e6 + truth) // counter * counter}
        drawing(stage, seconds, watts(stage.now + seconds), every=seconds, **joules)

    tick(1)
    truth = 0.0  # known from the first reading on
    while stage.now < start + 33 * 60:
        tick(10)
    month = stage.live.months.ledger.tail(stage.wall() / 1e9)
    memory = json.loads(json.dumps({"live": stage.live.checkpoint(), "month": month}))
    began = truth
    tick(7)  # lost with the process
    draw(233)
    other = Stage(SITE, rules=())
    other.now = stage.now + 233
    stage = other
    ended = truth + 10 * watts(stage.now + 5)
    now, wall = stage.now + 10, stage.wall() + 10 * 10**9
    merge_tree(stage.live.months.ledger.at(wall / 1e9), memory["month"]["profile"])
    stage.live.restore(memory["live"], now, wall)
    while stage.now < start + 3600:
        tick(10)
    joules = stage.value("circuit_energy_joules", "main")
    missing = stage.value("circuit_energy_missing_seconds", "main")
    if counter is not None:
        assert missing == 0
        assert joules == pytest.approx(truth, rel=0.01)
    else:
        assert missing == pytest.approx(250)
        assert joules == pytest.approx(truth - (ended - began), rel=0.01)
        assert math.isnan(stage.value("budget_month_filled_joules", "b"))  # too little is known yet
    for _ in range(70):
        tick(60)
    bill = [stage.value(f"budget_month_{name}joules", "b") for name in ("", "filled_")]
    assert sum(bill) == pytest.approx(truth, rel=0.03)
    assert (bill[1] > 0) == (counter is None)


def test_thousands_of_rows_are_computed_in_turns_and_come_to_the_same() -> None:
    """200 circuits, 32 a tick: after some ticks each has its month, as when all are computed at once."""
    names = [f"c{number}" for number in range(200)]
    text = "[site]\ntariff = 0.2\n" + "".join(f"[circuits.{name}]\nbreaker = 30\nvolts = 240\n" for name in names)
    text += f"[budgets.all]\ncircuits = {json.dumps(names)}\nkwh_month = 100000\n"
    stage = Stage(text, rules=())
    seen = set()
    for _ in range(150):
        stage.play(60, meters=[meter(name, watts=10.0 * n) for n, name in enumerate(names)], every=60)
        seen.add(stage.live.months._next)
    assert seen == {32, 64, 96, 128, 160, 192, 200}
    profile = stage.live.months.ledger.profile
    assert profile is not None
    # What is shown was computed up to eight minutes ago.
    now = stage.wall() / 1e9
    energy = month_energy(profile, now, profile.month.prices(0.2, ()))
    assert stage.value("budget_month_joules", "all") == pytest.approx(energy.measured.sum(), rel=0.05)
    assert stage.value("budget_month_forecast_joules", "all") == pytest.approx(energy.whole.sum(), rel=1e-3)
    assert stage.value("budget_peak_watts", "all") == pytest.approx(10 * 199 * 100, rel=0.01)


def test_a_circuit_of_which_nothing_is_known_is_named_and_is_no_zero() -> None:
    """A budget of two circuits, one without any reading."""
    text = (
        SITE
        + '[circuits.dark]\nbreaker = 20\nvolts = 240\nnodes = ["n"]\n[nodes.n]\n[budgets.both]\ncircuits = ["main", "dark"]\nkwh_month = 1000\n'
    )
    stage = beginning(text)
    drawing(stage, 4000, 1000, every=60)
    assert stage.snapshots is not None
    names = stage.snapshots.budget.names
    assert "without dark" in stage.snapshots.budget.facts[names.index("both")]["so_far"]
    assert stage.value("budget_month_forecast_joules", "both") == pytest.approx(
        stage.value("budget_month_forecast_joules", "b")
    )


def test_reactive_energy_comes_from_the_meter() -> None:
    """1,000 W at 0.8 are 750 var."""
    stage = beginning()
    drawing(stage, 60, 1000, power_factor=0.8)
    profile = stage.live.months.ledger.profile
    assert isinstance(profile, LoadProfile)
    assert profile.series("reactive").sum() == pytest.approx(750 * profile.series("reactive_seconds").sum())
    assert profile.series("reactive_seconds").sum() > 0


def test_the_months_midnight_is_the_sites() -> None:
    """22:30 UTC on 30 June is July in Berlin."""
    ledger = MonthLedger(BERLIN)
    at = datetime(2026, 7, 1, 0, 30, tzinfo=BERLIN).timestamp()
    assert ledger.at(at).month.name == "2026-07"
    assert MonthLedger().at(at).month.name == "2026-06"
    assert BillConfig().demand_minutes == 15
    assert NodeIdle().totals() == {}
