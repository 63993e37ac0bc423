"""When the rules are judged: soon after news, at once after an event, within a share of one core."""

from __future__ import annotations

import itertools

import pytest

from aggregator.alerting.evaluation_schedule import EvaluationSchedule

FLUSH = 0.2


def play(cost: float, seconds: float = 60.0, *, events: bool = False) -> list[float]:
    """Let news come five times a second (or events all the time); return when it ran."""
    rhythm, now, ran = EvaluationSchedule(1.0), 1000.0, []
    end, flush = now + seconds, now
    while now < end:
        news = now >= flush
        wait = rhythm.wait(now, news=news or bool(ran), urgent=events)
        if not events and not news:
            wait = max(wait, flush - now)
        if wait > 0:
            now += min(max(wait, 1e-4), 0.01)
            continue
        ran.append(now)
        rhythm.ran(now, now + cost, cost)
        now += cost
        flush = max(flush + FLUSH, now)
    return ran


@pytest.mark.parametrize("cost", [0.001, 0.01, 0.03, 0.09])
@pytest.mark.parametrize("events", [False, True], ids=["news", "a storm of events"])
def test_it_never_takes_more_than_its_share_of_a_core(cost: float, events: bool) -> None:
    """A tenth, and the few runs that were saved up."""
    assert len(play(cost, events=events)) * cost <= 0.1 * 60 + 4 * cost


def test_a_cheap_run_follows_every_flush() -> None:
    """2 ms at 1,000 GPUs: five times a second."""
    assert len(play(0.002)) >= 290


@pytest.mark.parametrize("cost", [0.1, 0.3, 2.0])
def test_a_dear_run_still_comes_as_often_as_the_settings_say(cost: float) -> None:
    """100,000 GPUs are judged once a second, whatever that takes."""
    ran = play(cost)
    gaps = [later - before for before, later in itertools.pairwise(ran)]
    assert max(gaps) <= max(1.0, cost) + 0.02


def test_an_event_need_not_wait_where_news_must() -> None:
    """One run is always kept for it."""
    rhythm = EvaluationSchedule(1.0)
    now = 1000.0
    for _ in range(3):
        rhythm.ran(now, now, 0.05)
    assert rhythm.wait(now, news=True, urgent=False) > 0.4
    assert rhythm.wait(now, news=True, urgent=True) == 0.0


def test_without_news_it_waits_as_long_as_it_may() -> None:
    """Silence and stale readings are found by the clock alone."""
    rhythm = EvaluationSchedule(1.0)
    assert rhythm.wait(1000.0, news=False, urgent=False) == 0.0
    rhythm.ran(1000.0, 1000.01, 0.01)
    assert rhythm.wait(1000.5, news=False, urgent=False) == pytest.approx(0.5)
    assert rhythm.wait(1002.0, news=False, urgent=False) == 0.0
