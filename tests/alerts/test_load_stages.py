"""The limits of one circuit's load, as the shipped rules have them: the worst alone pages, and each worse one anew."""

from __future__ import annotations

import pytest

from alerts.incidents.policy import policies_of
from alerts.rules.rule import load
from api.alerts import Alert, AlertState, NotificationState, Subject
from tests.alerts.deliveries import ManagerHarness, acknowledge, over, silenced

RULES = {rule.name: rule for rule in load()}
POLICIES = policies_of(RULES.values())
MILD_TO_WORST = ("circuit_load", "circuit_continuous", "circuit_overload", "circuit_thermal_warm", "circuit_thermal_hot")  # fmt: skip
LOAD, CONTINUOUS, OVERLOAD, WARM, HOT = MILD_TO_WORST


def exceeded(rule: str, circuit: str = "office") -> Alert:
    """Return the alert of one limit, as the engine gives it."""
    return Alert(
        key=f"{rule}/circuit/{circuit}",
        rule=rule,
        state=AlertState.FIRING,
        severity=RULES[rule].severity,
        node="",
        subject=Subject.CIRCUIT,
        name=circuit,
        labels={"circuit": circuit},
        summary=f"{rule} on {circuit}",
    )


@pytest.fixture
def harness() -> ManagerHarness:
    return ManagerHarness(POLICIES)


def pages(harness: ManagerHarness) -> list[str]:
    """Return the rule of the first alert of each page, in order."""
    return [one.incident.alerts[0].rule for one in harness.sent if one.reason == "new"]


@pytest.mark.parametrize("first", range(len(MILD_TO_WORST)))
def test_all_limits_at_once_are_one_page_of_the_worst(harness: ManagerHarness, first: int) -> None:
    """In whichever order they come within a tick; the milder ones stay in sight below it."""
    milder = MILD_TO_WORST[first:] + MILD_TO_WORST[:first]
    harness.tick(*map(exceeded, milder))
    harness.wait(300)
    assert pages(harness) == [HOT]
    incident = harness.only()
    assert {key.partition("/")[0] for key in incident.inhibited} == set(MILD_TO_WORST) - {HOT}
    for rule in MILD_TO_WORST[:-1]:
        status = harness.manager.status(exceeded(rule).key)
        assert status is not None
        assert status.state is NotificationState.INHIBITED


def test_each_worse_limit_pages_anew_also_after_an_acknowledgement(harness: ManagerHarness) -> None:
    for number, rule in enumerate((CONTINUOUS, OVERLOAD, WARM, HOT), 1):
        harness.tick(exceeded(rule))
        harness.wait(60)
        assert len(pages(harness)) == number
        for incident in harness.manager.incidents():
            if incident.acknowledged is None:
                acknowledge(harness, incident.key)
    assert pages(harness) == [CONTINUOUS, OVERLOAD, WARM, HOT]


def test_a_load_that_falls_pages_nobody_within_the_grace_of_its_milder_limit(harness: ManagerHarness) -> None:
    """The mean of a minute remembers the overload: 90 s for it, the usual 15 s for any other."""
    harness.tick(*map(exceeded, (CONTINUOUS, OVERLOAD, HOT)))
    harness.wait(60)
    harness.tick(over(exceeded(HOT)))
    assert harness.wait(13) == harness.sent[1:]  # its end
    assert pages(harness) == [HOT]
    harness.wait(5)
    assert pages(harness) == [HOT, OVERLOAD]
    harness.tick(over(exceeded(OVERLOAD)))
    harness.wait(80)
    assert pages(harness) == [HOT, OVERLOAD]
    harness.wait(20)
    assert pages(harness) == [HOT, OVERLOAD, CONTINUOUS]


def test_all_limits_that_end_with_the_worst_page_nobody_again(harness: ManagerHarness) -> None:
    harness.tick(*map(exceeded, MILD_TO_WORST))
    harness.wait(60)
    harness.tick(over(exceeded(HOT)), over(exceeded(WARM)), over(exceeded(OVERLOAD)))
    harness.wait(60)
    harness.tick(over(exceeded(CONTINUOUS)), over(exceeded(LOAD)))
    harness.wait(600)
    assert pages(harness) == [HOT]
    assert harness.manager.incidents() == []


def test_what_was_notified_of_a_milder_limit_goes_on_below_a_worse_one(harness: ManagerHarness) -> None:
    """Nothing is announced as resolved that fires, and the worse one's end rings nobody again."""
    harness.tick(exceeded(OVERLOAD))
    harness.wait(60)
    harness.tick(exceeded(HOT))
    harness.wait(60)
    assert pages(harness) == [OVERLOAD, HOT]
    harness.tick(over(exceeded(HOT)))
    ends = harness.wait(120)
    assert [one.incident.group["rule"] for one in ends] == [HOT]
    assert [one.group["rule"] for one in harness.manager.incidents()] == [OVERLOAD]


def test_a_silence_of_a_milder_limit_hides_no_worse_one(harness: ManagerHarness) -> None:
    silenced(harness, f"rule={OVERLOAD}", "circuit=office", seconds=3600)
    harness.tick(exceeded(OVERLOAD))
    harness.wait(60)
    assert pages(harness) == []
    harness.tick(exceeded(HOT))
    harness.wait(60)
    assert pages(harness) == [HOT]


def test_the_load_of_another_circuit_is_another_page(harness: ManagerHarness) -> None:
    harness.tick(exceeded(HOT), exceeded(OVERLOAD, "rack"))
    harness.wait(60)
    assert sorted(pages(harness)) == [OVERLOAD, HOT]
