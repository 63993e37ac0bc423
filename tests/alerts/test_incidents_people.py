"""Actions of people: they acknowledge incidents, silence alerts, plan maintenance."""

from __future__ import annotations

import msgspec
import pytest

from alerts.incidents.matchers import parse, parse_all
from alerts.incidents.state import MAX_TIMELINE
from alerts.incidents.suppression import AlertSuppressor
from api.alerts import Action, NotificationState, Severity, Silence
from telemetry.errors import ConfigError, IncidentError
from tests.alerts.deliveries import SECOND, ManagerHarness, acknowledge, alert, described, over, silenced, trip

HOT = alert("thermal", gpu="GPU-a")
LOST = alert("gpu_lost", gpu="GPU-a")


# -- Acknowledge ----------------------------------------------------------------------------------


def test_who_takes_an_incident_is_told_and_it_is_not_repeated() -> None:
    harness = ManagerHarness()
    harness.tick(LOST)
    harness.tick()
    key = harness.only().key
    acknowledge(harness, key)
    harness.wait(10 * 3600, every=60)
    assert described(harness.sent) == ["trigger new", "acknowledge acknowledged"]
    note = harness.only().acknowledged
    assert note is not None
    assert (note.who, note.why, note.until) == ("ada", "on it", None)


@pytest.mark.parametrize("how", ["whole", "begin", "alert"])
def test_an_incident_may_be_named_in_three_ways(how: str) -> None:
    harness = ManagerHarness()
    harness.tick(LOST)
    harness.tick()
    key = harness.only().key
    acknowledge(harness, {"whole": key, "begin": key[:12], "alert": LOST.key}[how])
    assert harness.only().acknowledged is not None


def test_when_the_time_is_up_it_is_told_again() -> None:
    harness = ManagerHarness()
    harness.tick(LOST)
    harness.tick()
    acknowledge(harness, LOST.key, until=harness.wall + 7200 * SECOND)
    harness.wait(7190, every=10)
    assert described(harness.sent)[2:] == []
    harness.wait(20)
    assert described(harness.sent)[2:] == ["trigger repeat"]
    assert harness.only().acknowledged is None


def test_who_gives_it_back_has_it_told_again() -> None:
    harness = ManagerHarness()
    harness.tick(LOST)
    harness.tick()
    acknowledge(harness, LOST.key)
    incident, step = harness.manager.unacknowledge(LOST.key, who="ada", why="", now=harness.now, wall_ns=harness.wall)
    assert incident.acknowledged is None
    assert described(step.notices) == ["trigger repeat"]


def test_what_happened_is_remembered_over_a_restart_and_bounded() -> None:
    harness = ManagerHarness()
    harness.tick(LOST)
    harness.tick()
    key = harness.only().key
    acknowledge(harness, key)
    harness.restart()
    told = [(one.what, one.who, one.why) for one in harness.manager.timeline(key)]
    assert told == [("told", "", "new"), ("acknowledged", "ada", "on it")]
    for _ in range(MAX_TIMELINE):
        acknowledge(harness, key)
    story = harness.manager.timeline(key)
    assert len(story) == MAX_TIMELINE
    assert (story[0].what, story[0].why) == ("told", "new")
    assert story[-1].at == harness.wall


def test_an_acknowledgement_that_is_over_and_an_end_stand_in_the_story() -> None:
    harness = ManagerHarness()
    harness.tick(LOST)
    harness.tick()
    key = harness.only().key
    acknowledge(harness, key, until=harness.wall + 60 * SECOND)
    harness.wait(70)
    harness.tick(over(LOST))
    harness.wait(3600 - 10)
    whats = [one.what for one in harness.manager.timeline(key)]
    assert whats == ["told", "acknowledged", "lapsed", "told", "ended"]


def test_a_page_rings_beside_an_acknowledged_ticket() -> None:
    harness = ManagerHarness()
    harness.tick(alert("gpu_hung", gpu="GPU-a", severity=Severity.TICKET))
    harness.wait(20)
    acknowledge(harness, harness.only().key)
    harness.tick(alert("gpu_hung", gpu="GPU-b"))
    harness.tick()
    assert described(harness.sent)[-1] == "trigger new"
    assert [one.acknowledged is None for one in harness.manager.incidents()] == [True, False]


def test_a_ticket_that_comes_long_after_somebody_took_its_incident_is_news() -> None:
    harness = ManagerHarness()
    harness.tick(alert("gpu_hung", gpu="GPU-a", severity=Severity.TICKET))
    harness.wait(20)
    acknowledge(harness, harness.only().key)
    harness.wait(1800, every=60)
    harness.tick(alert("gpu_hung", gpu="GPU-b", severity=Severity.TICKET))
    harness.wait(7200, every=60)
    assert [one.action for one in harness.sent].count(Action.TRIGGER) == 1
    harness.tick(alert("gpu_hung", gpu="GPU-c", severity=Severity.TICKET))
    harness.wait(20)
    assert described(harness.sent)[-1] == "trigger new"
    assert len(harness.manager.incidents()) == 2


@pytest.mark.parametrize(
    ("key", "who", "until", "message"),
    [
        ("gpu_lots", "ada", None, r"no incident 'gpu_lots'\. Did you mean|no incident 'gpu_lots'\."),
        ("", "ada", None, "no incident ''"),
        (LOST.key, "  ", None, "acknowledge: who is missing"),
        (LOST.key, "a" * 501, None, "has 501 characters. Use at most 500"),
        (LOST.key, "ada", 1, "its end has passed"),
    ],
)
def test_an_acknowledgement_that_makes_no_sense_is_refused(key: str, who: str, until: int | None, message: str) -> None:
    harness = ManagerHarness()
    harness.tick(LOST)
    before = harness.manager.incidents()
    with pytest.raises(IncidentError, match=message):
        harness.manager.acknowledge(key, who=who, why="", until=until, now=harness.now, wall_ns=harness.wall)
    assert harness.manager.incidents() == before


def test_what_is_over_or_ambiguous_cannot_be_taken() -> None:
    harness = ManagerHarness()
    harness.tick(LOST, alert("gpu_lost", gpu="GPU-b"))
    harness.tick()
    with pytest.raises(IncidentError, match=r"'gpu_lost-' may be gpu_lost-.*, gpu_lost-.*Write more"):
        acknowledge(harness, "gpu_lost-")
    key = harness.manager.incidents()[0].key
    harness.tick(over(LOST))
    harness.wait(15)
    with pytest.raises(IncidentError, match="is over"):
        acknowledge(harness, key)
    with pytest.raises(IncidentError, match="nobody has acknowledged"):
        harness.manager.unacknowledge(harness.only().key, who="ada", why="", now=harness.now, wall_ns=harness.wall)


# -- Silence --------------------------------------------------------------------------------------


def test_a_silenced_alert_is_told_when_the_silence_ends_and_it_still_fires() -> None:
    harness = ManagerHarness()
    silence = silenced(harness, "node=dgx-01")
    harness.tick(LOST, HOT)
    harness.wait(300)
    assert harness.state(LOST) is NotificationState.SILENCED
    held = harness.manager.status(LOST.key)
    assert held is not None
    assert (held.by, held.incident) == (silence.id, "")
    harness.tick(over(HOT))
    harness.wait(298)
    assert harness.sent == []
    assert described(harness.wait(3)) == ["trigger new"]
    assert harness.sent[0].incident.alerts == (LOST,)


def test_a_silence_may_end_by_hand_and_begin_later() -> None:
    harness = ManagerHarness()
    silence, step = harness.manager.silence(
        parse_all(["rule=~gpu_.*"]),
        who="ada",
        why="drill",
        starts=harness.wall + 60 * SECOND,
        ends=harness.wall + 3600 * SECOND,
        now=harness.now,
        wall_ns=harness.wall,
    )
    harness.keep(step)
    harness.wait(61)
    harness.tick(LOST)
    harness.wait(60)
    assert harness.sent == []
    ended, step = harness.manager.unsilence(silence.id[:6], who="bob", why="", now=harness.now, wall_ns=harness.wall)
    harness.keep(step)
    assert ended.ends == harness.wall
    assert harness.manager.silences() == [ended]
    assert described(harness.wait(2)) == ["trigger new"]
    with pytest.raises(IncidentError, match="is over already"):
        harness.manager.unsilence(silence.id, who="bob", why="", now=harness.now, wall_ns=harness.wall)


def test_an_incident_that_was_told_goes_on_in_silence_and_its_end_is_told() -> None:
    harness = ManagerHarness()
    harness.tick(LOST)
    harness.tick()
    silenced(harness, "rule=gpu_lost", seconds=6 * 3600)
    assert harness.state(LOST) is NotificationState.SILENCED
    harness.wait(5 * 3600, every=60)
    assert described(harness.sent) == ["trigger new"]
    harness.tick(over(LOST))
    harness.wait(15)
    assert described(harness.sent) == ["trigger new", "resolve resolved"]


def test_a_silenced_cause_still_hides_its_consequences() -> None:
    harness = ManagerHarness()
    silenced(harness, "rule=node_silent")
    harness.tick(alert("node_silent"), LOST)
    harness.wait(60)
    assert harness.sent == []
    assert harness.state(LOST) is NotificationState.INHIBITED


def test_a_step_of_the_wall_clock_ends_no_silence_and_moves_no_timer() -> None:
    for jump in (-86_400, 86_400):
        harness = ManagerHarness()
        silenced(harness, "rule=thermal", seconds=600)
        harness.tick(HOT)
        harness.tick(LOST)
        harness.wall += jump * SECOND
        assert described(harness.wait(2)) == ["trigger new"]
        harness.wait(590)
        assert described(harness.sent) == ["trigger new"]
        harness.wait(20)
        assert described(harness.sent) == ["trigger new", "trigger new"]


@pytest.mark.parametrize(
    ("matchers", "who", "why", "ends", "message"),
    [
        ([], "ada", "x", 600, "there is no matcher"),
        (["node=~.*"], "ada", "x", 600, "node=~.* would silence every alert"),
        (["rack!=r7"], "ada", "x", 600, "would silence every alert"),
        (["node=a"], "", "x", 600, "silence: who is missing"),
        (["node=a"], "ada", " ", 600, "why is missing"),
        (["node=a"], "ada", "x", -5, "its end has passed"),
    ],
)
def test_a_silence_that_makes_no_sense_is_refused(
    matchers: list[str], who: str, why: str, ends: int, message: str
) -> None:
    harness = ManagerHarness()
    with pytest.raises(IncidentError, match=message):
        harness.manager.silence(
            parse_all(matchers),
            who=who,
            why=why,
            ends=harness.wall + ends * SECOND,
            now=harness.now,
            wall_ns=harness.wall,
        )
    assert harness.manager.silences() == []
    with pytest.raises(IncidentError, match="no silence 'abcdef'"):
        harness.manager.unsilence("abcdef", who="ada", why="", now=harness.now, wall_ns=harness.wall)


def test_a_page_joins_no_incident_that_was_acknowledged_hours_ago() -> None:
    """Another link of the same GPU is no news within the hour; after that nobody remembers."""
    harness = ManagerHarness()
    first = alert("nvlink_down", gpu="GPU-a")
    harness.tick(first)
    harness.wait(5)
    acknowledge(harness, first.key)
    harness.wait(3 * 3600, every=60.0)
    other = msgspec.structs.replace(first, key=f"{first.key}/4", since=harness.wall)
    notices = harness.tick(other) + harness.wait(5)
    assert [one.action for one in notices] == [Action.TRIGGER]


def test_a_fault_of_our_own_at_the_end_of_a_silence_leaves_nothing_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ManagerHarness()
    silenced(harness, "node=dgx-01", seconds=60)
    harness.tick(LOST)
    harness.wait(55)
    assert harness.sent == []
    begin = AlertSuppressor.update_windows

    def failing(suppressor: AlertSuppressor, time: float) -> list[Silence]:
        turned = begin(suppressor, time)
        if turned:
            suppressor.pending.clear()
            raise RuntimeError("put in by the test")
        return turned

    with monkeypatch.context() as patch:
        patch.setattr(AlertSuppressor, "update_windows", failing)
        harness.wait(10)
    harness.wait(60)
    assert [one.action for one in harness.sent] == [Action.TRIGGER]


# -- Maintenance ----------------------------------------------------------------------------------


def test_what_maintenance_leaves_behind_for_two_minutes_is_no_incident() -> None:
    harness = ManagerHarness()
    silenced(harness, "node=dgx-01", seconds=600, maintenance=True)
    harness.tick(LOST)
    harness.wait(620)
    assert harness.state(LOST) is NotificationState.MAINTENANCE
    harness.tick(HOT)
    harness.wait(60)
    assert harness.state(HOT) is NotificationState.MAINTENANCE
    harness.tick(over(HOT))
    harness.wait(30)
    assert harness.sent == []
    assert described(harness.wait(20)) == ["trigger new"]
    assert harness.sent[0].incident.alerts == (LOST,)


def test_an_event_of_maintenance_that_is_only_kept_is_never_told() -> None:
    harness = ManagerHarness()
    silenced(harness, "node=dgx-01", seconds=60, maintenance=True)
    event = alert("ecc_uncontained", gpu="GPU-a")
    harness.tick(event)
    for _ in range(600):
        harness.tick(recovering={event.key})
    assert harness.sent == []
    harness = ManagerHarness()
    silenced(harness, "node=dgx-01", seconds=60)
    harness.tick(event)
    for _ in range(100):
        harness.tick(recovering={event.key})
    assert described(harness.sent) == ["trigger new"]  # of a mere silence, it is


def test_maintenance_and_silence_outlast_a_restart() -> None:
    harness = ManagerHarness()
    silenced(harness, "node=dgx-01", seconds=600)
    harness.tick(LOST)
    harness.restart(down=300)
    harness.wait(290)
    assert harness.state(LOST) is NotificationState.SILENCED
    assert described(harness.wait(20)) == ["trigger new"]


def test_what_fired_and_is_no_longer_there_after_a_restart_is_over() -> None:
    harness = ManagerHarness()
    breaker = trip("A1")
    harness.tick(LOST, breaker)
    harness.tick()
    harness.restart(down=60)
    new = alert("gpu_lost", gpu="GPU-z")
    harness.keep(harness.manager.reconcile([breaker, new], harness.now, harness.wall))
    harness.wait(15)
    assert described(harness.sent) == ["trigger new"] * 3 + ["resolve resolved"]
    assert harness.sent[-1].incident.alerts[0].key == LOST.key


SLOW = ("(a+)+$", "(?:a+)+", "(?P<x>a*)*", "(a|aa)+", "((a*)b)*", "(a{1,5}){1,5}", "(a?){30}a{30}",
        "x(y(z|w)+)", ".*.*.*.*=", "(.*)(.*)(.*)(.*)")  # fmt: skip
QUICK = ("dgx-.*", "gpu_.*|node_.*|x.*|y.*|z.*", "(dgx|hgx|a|b|c)-[0-9]+", "[+*]{3}", r"a\+\*", "[a+]+",
         "(ab)*", "(?i)dgx.*", "(a.*|b)c+", r"n\d", ".*a.*b.*")  # fmt: skip


@pytest.mark.parametrize("pattern", SLOW)
def test_a_pattern_that_may_take_for_ever_is_refused(pattern: str) -> None:
    """The rules would wait for it at every tick, and again after a restart."""
    with pytest.raises(ConfigError, match="may take for ever"):
        parse(f"node=~{pattern}")


@pytest.mark.parametrize("pattern", QUICK)
def test_a_pattern_as_people_write_them_is_accepted(pattern: str) -> None:
    assert parse(f"node=~{pattern}").value == pattern


def test_a_matcher_on_the_class_that_owner_was_says_its_name_now() -> None:
    """Such a matcher would fit no alert, and nobody would know."""
    with pytest.raises(ConfigError, match="Write remediation=reset"):
        parse("owner=reset")
    assert parse("owner='network team'").value == "network team"
    assert parse("remediation!=reset").is_equal is False
