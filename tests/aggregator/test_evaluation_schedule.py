"""When the rules are evaluated: soon after new readings, at once after an event, within a share of one core."""

from __future__ import annotations

import itertools

import pytest

from aggregator.alerting.evaluation_schedule import EvaluationSchedule

FLUSH = 0.2


def play(cost: float, seconds: float = 60.0, *, events: bool = False) -> list[float]:
    """Let readings come five times a second (or events all the time); return when it ran."""
    schedule, now, ran = EvaluationSchedule(1.0), 1000.0, []
    end, flush = now + seconds, now
    while now < end:
        fresh = now >= flush
        wait = schedule.wait(now, fresh=fresh or bool(ran), urgent=events)
        if not events and not fresh:
            wait = max(wait, flush - now)
        if wait > 0:
            now += min(max(wait, 1e-4), 0.01)
            continue
        ran.append(now)
        schedule.ran(now, now + cost, cost)
        now += cost
        flush = max(flush + FLUSH, now)
    return ran


@pytest.mark.parametrize("cost", [0.001, 0.01, 0.03, 0.09])
@pytest.mark.parametrize("events", [False, True], ids=["readings", "a storm of events"])
def test_it_never_takes_more_than_its_share_of_a_core(cost: float, events: bool) -> None:
    """At most a tenth, and the few runs that were saved up."""
    assert len(play(cost, events=events)) * cost <= 0.1 * 60 + 4 * cost


def test_a_cheap_run_follows_every_flush() -> None:
    """2 ms at 1,000 GPUs: five times a second."""
    assert len(play(0.002)) >= 290


@pytest.mark.parametrize("cost", [0.1, 0.3, 2.0])
def test_a_dear_run_still_comes_as_often_as_the_settings_say(cost: float) -> None:
    """100,000 GPUs are evaluated once a second, whatever that takes."""
    ran = play(cost)
    gaps = [later - before for before, later in itertools.pairwise(ran)]
    assert max(gaps) <= max(1.0, cost) + 0.02


def test_an_event_need_not_wait_where_readings_must() -> None:
    """One run is always kept for it."""
    schedule = EvaluationSchedule(1.0)
    now = 1000.0
    for _ in range(3):
        schedule.ran(now, now, 0.05)
    assert schedule.wait(now, fresh=True, urgent=False) > 0.4
    assert schedule.wait(now, fresh=True, urgent=True) == 0.0


def test_without_readings_it_waits_as_long_as_it_may() -> None:
    """Silence and stale readings are found by the clock alone."""
    schedule = EvaluationSchedule(1.0)
    assert schedule.wait(1000.0, fresh=False, urgent=False) == 0.0
    schedule.ran(1000.0, 1000.01, 0.01)
    assert schedule.wait(1000.5, fresh=False, urgent=False) == pytest.approx(0.5)
    assert schedule.wait(1002.0, fresh=False, urgent=False) == 0.0
