"""Too much of it: alerts that flap, and storms."""

from __future__ import annotations

import itertools

import pytest

from alerts.incidents.policy import DEFAULT_TIMINGS, NotificationTimings
from api.alerts import Action, NotificationState, Severity
from tests.alerts.deliveries import ManagerHarness, alert, described, over


@pytest.mark.parametrize("period", [2, 7, 20, 60, 120, 310])
def test_a_signal_that_flaps_for_an_hour_is_told_at_most_twice_in_five_minutes(period: int) -> None:
    harness = ManagerHarness()
    hot = alert("thermal", gpu="GPU-a")
    told: list[float] = []
    for second in range(3600):
        phase = second % period
        changes = [hot] if phase == 0 else [over(hot)] if phase == period // 2 else []
        told += [harness.now for notice in harness.tick(*changes) if notice.action in {Action.TRIGGER, Action.RESOLVE}]
    first = 3 if period in {60, 120} else 2  # until it is known not to be a single fault
    assert sum(told[0] <= at < told[0] + 300 for at in told) <= first
    for at in told[first:]:
        assert sum(at <= other < at + 300 for other in told) <= 2
    assert told
    if period < 90:
        assert sum("flapping" in one for one in described(harness.sent)) == 1
        assert harness.state(hot) in {NotificationState.FLAPPING, None}


def test_an_alert_that_calms_down_is_over_after_five_minutes() -> None:
    harness = ManagerHarness()
    hot = alert("thermal", gpu="GPU-a")
    for _ in range(60):
        harness.tick(hot)
        harness.tick(over(hot))
    assert described(harness.sent) == ["trigger flapping"]
    assert harness.only().firing == 0
    harness.wait(290)
    assert len(harness.manager.incidents()) == 1
    harness.wait(600)
    assert described(harness.sent) == ["trigger flapping", "resolve resolved"]


def test_an_alert_that_was_told_before_it_flapped_is_not_told_as_new() -> None:
    harness = ManagerHarness()
    hot = alert("thermal", gpu="GPU-a")
    harness.tick(hot)
    harness.wait(5)
    for _ in range(60):
        harness.tick(over(hot), seconds=4)
        harness.tick(hot, seconds=4)
    assert described(harness.sent) == ["trigger new", "update flapping"]


def test_a_storm_is_one_page_and_nothing_of_it_is_hidden() -> None:
    harness = ManagerHarness()
    alerts = [alert("gpu_lost", f"n{node}", f"GPU-{node}") for node in range(10_000)]
    harness.tick(*alerts)
    [told] = harness.wait(10)
    assert (told.action, told.reason) == (Action.TRIGGER, "storm")
    assert told.incident.severity is Severity.PAGE
    assert told.incident.total == told.incident.firing == 10_000
    assert told.incident.title == "Storm: 10,000 incidents on 10,000 nodes: gpu_lost 10,000"
    assert told.incident.remediation is None, "the remedy of one is none of all"
    assert len(told.incident.alerts) == 100
    assert len(harness.manager.incidents()) == 10_001
    assert harness.state(alerts[7]) is NotificationState.STORM
    harness.wait(60)
    assert len(harness.sent) == 1
    harness.tick(*(over(one) for one in alerts[1:]))
    harness.wait(60)
    assert len(harness.manager.incidents()) == 2
    harness.tick(over(alerts[0]))
    harness.wait(15)
    assert described(harness.sent) == ["trigger storm", "resolve resolved"]
    assert harness.manager.incidents() == []


def test_a_storm_rings_once_and_its_number_is_kept_current() -> None:
    """Incidents that rang before it are part of it, and so are those that come last."""
    harness = ManagerHarness()
    for node in range(600):
        harness.tick(alert("gpu_lost", f"n{node}", f"GPU-{node}"))
    harness.wait(120)
    reasons = described(harness.sent)
    assert set(reasons) == {"trigger new", "trigger storm", "update storm"}
    assert reasons.count("trigger storm") == 1
    assert reasons.index("trigger storm") <= 20
    assert "trigger new" not in reasons[reasons.index("trigger storm") :]
    sent = [one for one in harness.sent if one.reason == "storm"]
    assert max(b.at - a.at for a, b in itertools.pairwise(sent)) <= 31e9
    assert harness.sent[-1].incident.total == 600


@pytest.mark.parametrize("seconds", [0, 2, 10, 30])
def test_two_hundred_nodes_that_lose_a_gpu_are_one_page(seconds: int) -> None:
    """Within a minute, with what rang before it; it says what they share, and a straggler rings nobody."""
    harness = ManagerHarness()
    hit = [f"n{number}" for number in range(200)]
    fleet = {
        name: {"rack": ["r12" if name in hit else "r1"], "driver": ["580.95"]}
        for name in [*hit, *(f"other-{number}" for number in range(400))]
    }
    harness.manager.traits = lambda: fleet
    steps = max(1, seconds)
    for step in range(steps):
        harness.tick(*(alert("gpu_lost", name, f"GPU-{name}") for name in hit[step::steps]))
    harness.wait(60 - steps)
    pages = [one for one in harness.sent if one.action is Action.TRIGGER]
    storm = pages[-1].incident
    assert described(pages)[-1] == "trigger storm"
    assert described(pages)[:-1] == ["trigger new"] * (len(pages) - 1)
    assert len(pages) <= (1 if seconds <= 10 else 8)
    newest = harness.sent[-1].incident
    title = "Storm: 200 incidents on 200 nodes: gpu_lost 200; they share rack r12"
    assert (newest.key, newest.title, newest.shared) == (storm.key, title, ("rack r12",))
    assert all(harness.state(one) is NotificationState.STORM for one in newest.alerts)
    fleet["n200"] = fleet["n7"]
    late = harness.tick(alert("gpu_lost", "n200", "GPU-n200")) + harness.wait(60)
    assert described(late) == ["update storm"]
    assert late[0].incident.total == 201
    assert [one for one in harness.sent if one.action is Action.TRIGGER] == pages


def test_another_fault_is_heard_within_a_storm() -> None:
    harness = ManagerHarness()
    alerts = [alert("gpu_lost", f"n{number}", f"GPU-{number}") for number in range(200)]
    other = alert("power_brake", "n7")
    harness.tick(*alerts, other)
    harness.wait(20)
    assert sorted(described(harness.sent)) == ["trigger new", "trigger storm"]
    assert harness.state(other) is NotificationState.NOTIFIED
    harness.tick(alert("recovery_action", "n300", "GPU-300"))
    harness.wait(5)
    assert described(harness.sent)[-1] == "trigger new"
    before = len(harness.sent)
    harness.tick(*(alert("driver_down", f"m{number}") for number in range(50)))
    harness.wait(60)
    assert described(harness.sent[before:]).count("trigger new") <= 5, "a second flood is no flood of pages"


def test_a_node_that_reports_a_thousand_pages_suppresses_no_other_nodes_page() -> None:
    """A stolen certificate, or one node that has gone mad: a few pages and a storm of its own."""
    harness = ManagerHarness()
    harness.tick(*(alert("gpu_lost", "mad", f"GPU-{n}") for n in range(1000)))
    harness.tick()
    assert described(harness.sent) == ["trigger new"] * 5 + ["trigger storm"]
    storm = harness.sent[-1].incident
    assert storm.total == 995
    assert storm.title == "Storm: 995 incidents: gpu_lost 995"
    harness.wait(5)
    for number in range(3):
        harness.tick(*(alert("gpu_lost", "mad", f"GPU-{number}-{n}") for n in range(50)))
        harness.tick(alert("gpu_lost", f"honest-{number}", f"GPU-honest-{number}"))
        harness.wait(2)
        assert harness.sent[-1].reason == "new"
        assert f"honest-{number}" in harness.sent[-1].incident.title
    harness.wait(300)  # the storm ended, and its last page has the number of all
    assert harness.sent[-1].reason == "storm"
    assert harness.sent[-1].incident.total == 1145


def test_a_few_mad_nodes_together_suppress_no_other_nodes_page() -> None:
    """Five of them fill the storm of all; what another node reports first in a minute still rings."""
    harness = ManagerHarness()
    for number in range(5):
        harness.tick(*(alert("gpu_lost", f"mad-{n}", f"GPU-{n}-{number}") for n in range(5)))
    harness.wait(12)
    assert described(harness.sent).count("trigger storm") == 1
    for number in range(3):
        honest = alert("gpu_lost", f"honest-{number}", f"GPU-honest-{number}")
        (page,) = [one for one in harness.tick(honest) + harness.wait(2) if one.reason == "new"]
        assert f"honest-{number}" in page.incident.title
        assert harness.state(honest) is NotificationState.NOTIFIED
    again = alert("gpu_lost", "honest-0", "GPU-other")  # its second in this minute
    assert harness.tick(again) + harness.wait(2) == []
    assert harness.state(again) is NotificationState.STORM


def test_a_flood_of_tickets_never_holds_a_page_back() -> None:
    harness = ManagerHarness()
    harness.tick(*(alert("thermal", f"n{n}", f"GPU-{n}", severity=Severity.TICKET) for n in range(100)))
    harness.wait(20)
    assert described(harness.sent) == ["trigger storm"]
    harness.tick(alert("gpu_lost", "n200", "GPU-x"))
    harness.tick()
    assert described(harness.sent) == ["trigger storm", "trigger new"]


def test_what_gets_worse_in_a_storm_is_told_by_itself() -> None:
    harness = ManagerHarness()
    harness.tick(*(alert("gpu_hung", f"n{n}", f"GPU-{n}", severity=Severity.TICKET) for n in range(100)))
    harness.wait(30)
    harness.tick(alert("gpu_hung", "n7", "GPU-b"))
    harness.wait(3)
    assert described(harness.sent) == ["trigger storm", "trigger new"]
    assert harness.sent[-1].incident.severity is Severity.PAGE


def test_after_a_storm_incidents_are_told_one_by_one_again() -> None:
    harness = ManagerHarness()
    harness.tick(*(alert("gpu_lost", f"n{n}", f"GPU-{n}") for n in range(DEFAULT_TIMINGS.storm_size + 1)))
    harness.wait(90)
    assert described(harness.sent) == ["trigger storm"]
    harness.tick(alert("gpu_lost", "n99", "GPU-x"))
    harness.tick()
    assert described(harness.sent) == ["trigger storm", "trigger new"]


def test_an_alert_that_flaps_in_a_storm_is_held_back_by_the_storm() -> None:
    """Its flapping was not notified: the storm's page covers it."""
    harness = ManagerHarness(timings=NotificationTimings(storm_size=1, flap_window=60, flap_start=3))
    restless = alert("gpu_lost", "n2", "GPU-2")
    harness.tick(alert("gpu_lost", "n1", "GPU-1"))
    harness.wait(2)
    harness.tick(restless, seconds=0.1)
    harness.tick(over(restless), seconds=0.1)
    harness.tick(restless, seconds=0.1)
    assert described(harness.wait(6)) == ["trigger storm"]
    assert harness.state(restless) is NotificationState.STORM
