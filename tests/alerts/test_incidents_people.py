"""What people do at the desk: they take incidents, silence alerts, plan maintenance."""

from __future__ import annotations

import pytest

from alerts.incidents.matchers import parse_all
from alerts.incidents.state import STORY, StateChanges
from api.alerts import Action, NotificationState, Severity, Silence
from telemetry.errors import DeskError
from tests.alerts.deliveries import SECOND, Office, alert, over, said, trip

HOT = alert("thermal", gpu="GPU-a")
LOST = alert("gpu_lost", gpu="GPU-a")


def hush(office: Office, *matchers: str, seconds: float = 600, **more: bool) -> Silence:
    """Silence some alerts from now on."""
    silence, step = office.desk.silence(
        parse_all(matchers),
        who="ada",
        why="known",
        ends=office.wall + round(seconds * SECOND),
        now=office.now,
        wall_ns=office.wall,
        **more,
    )
    office.keep(step)
    assert step.silences == (silence,)
    return silence


def take(office: Office, key: str, until: int | None = None) -> StateChanges:
    """Acknowledge an incident."""
    incident, step = office.desk.acknowledge(
        key, who="ada", why="on it", until=until, now=office.now, wall_ns=office.wall
    )
    assert incident.acknowledged is not None
    assert step.incidents == (incident,)
    office.keep(step)
    return step


# -- Acknowledge ----------------------------------------------------------------------------------


def test_who_takes_an_incident_is_told_and_it_is_not_repeated() -> None:
    office = Office()
    office.tick(LOST)
    office.tick()
    key = office.only().key
    take(office, key)
    office.wait(10 * 3600, every=60)
    assert said(office.sent) == ["trigger new", "acknowledge acknowledged"]
    note = office.only().acknowledged
    assert note is not None
    assert (note.who, note.why, note.until) == ("ada", "on it", None)


@pytest.mark.parametrize("how", ["whole", "begin", "alert"])
def test_an_incident_may_be_named_in_three_ways(how: str) -> None:
    office = Office()
    office.tick(LOST)
    office.tick()
    key = office.only().key
    take(office, {"whole": key, "begin": key[:12], "alert": LOST.key}[how])
    assert office.only().acknowledged is not None


def test_when_the_time_is_up_it_is_told_again() -> None:
    office = Office()
    office.tick(LOST)
    office.tick()
    take(office, LOST.key, until=office.wall + 7200 * SECOND)
    office.wait(7190, every=10)
    assert said(office.sent)[2:] == []
    office.wait(20)
    assert said(office.sent)[2:] == ["trigger repeat"]
    assert office.only().acknowledged is None


def test_who_gives_it_back_has_it_told_again() -> None:
    office = Office()
    office.tick(LOST)
    office.tick()
    take(office, LOST.key)
    incident, step = office.desk.unacknowledge(
        LOST.key, who="ada", why="", now=office.now, wall_ns=office.wall
    )
    assert incident.acknowledged is None
    assert said(step.notices) == ["trigger repeat"]


def test_what_happened_is_remembered_over_a_restart_and_bounded() -> None:
    office = Office()
    office.tick(LOST)
    office.tick()
    key = office.only().key
    take(office, key)
    office.restart()
    told = [(one.what, one.who, one.why) for one in office.desk.story(key)]
    assert told == [("told", "", "new"), ("acknowledged", "ada", "on it")]
    for _ in range(STORY):
        take(office, key)
    story = office.desk.story(key)
    assert len(story) == STORY
    assert (story[0].what, story[0].why) == ("told", "new")
    assert story[-1].at == office.wall


def test_an_acknowledgement_that_is_over_and_an_end_stand_in_the_story() -> None:
    office = Office()
    office.tick(LOST)
    office.tick()
    key = office.only().key
    take(office, key, until=office.wall + 60 * SECOND)
    office.wait(70)
    office.tick(over(LOST))
    office.wait(3600 - 10)
    whats = [one.what for one in office.desk.story(key)]
    assert whats == ["told", "acknowledged", "lapsed", "told", "ended"]


def test_worse_outdoes_an_acknowledgement() -> None:
    office = Office()
    office.tick(alert("gpu_hung", gpu="GPU-a", severity=Severity.TICKET))
    office.wait(20)
    take(office, office.only().key)
    office.tick(alert("gpu_hung", gpu="GPU-b"))
    office.tick()
    assert said(office.sent)[-1] == "trigger worse"
    assert office.only().acknowledged is None


def test_what_comes_long_after_somebody_took_it_is_news() -> None:
    office = Office()
    office.tick(alert("gpu_hung", gpu="GPU-a"))
    office.tick()
    take(office, office.only().key)
    office.wait(1800, every=60)
    office.tick(alert("gpu_hung", gpu="GPU-b"))
    office.wait(7200, every=60)
    assert [one.action for one in office.sent].count(Action.TRIGGER) == 1
    office.tick(alert("gpu_hung", gpu="GPU-c"))
    office.tick()
    assert said(office.sent)[-1] == "trigger new"
    assert len(office.desk.incidents()) == 2


@pytest.mark.parametrize(
    ("key", "who", "until", "message"),
    [
        (
            "gpu_lots",
            "ada",
            None,
            r"no incident 'gpu_lots'\. Did you mean|no incident 'gpu_lots'\.",
        ),
        ("", "ada", None, "no incident ''"),
        (LOST.key, "  ", None, "acknowledge: who takes it is missing"),
        (LOST.key, "a" * 501, None, "has 501 characters. Use at most 500"),
        (LOST.key, "ada", 1, "its end has passed"),
    ],
)
def test_an_acknowledgement_that_makes_no_sense_is_refused(
    key: str, who: str, until: int | None, message: str
) -> None:
    office = Office()
    office.tick(LOST)
    before = office.desk.incidents()
    with pytest.raises(DeskError, match=message):
        office.desk.acknowledge(
            key, who=who, why="", until=until, now=office.now, wall_ns=office.wall
        )
    assert office.desk.incidents() == before


def test_what_is_over_or_ambiguous_cannot_be_taken() -> None:
    office = Office()
    office.tick(LOST, alert("gpu_lost", gpu="GPU-b"))
    office.tick()
    with pytest.raises(DeskError, match=r"'gpu_lost-' may be gpu_lost-.*, gpu_lost-.*Write more"):
        take(office, "gpu_lost-")
    key = office.desk.incidents()[0].key
    office.tick(over(LOST))
    office.wait(15)
    with pytest.raises(DeskError, match="is over"):
        take(office, key)
    with pytest.raises(DeskError, match="nobody has acknowledged"):
        office.desk.unacknowledge(
            office.only().key, who="ada", why="", now=office.now, wall_ns=office.wall
        )


# -- Silence --------------------------------------------------------------------------------------


def test_a_silenced_alert_is_told_when_the_silence_ends_and_it_still_fires() -> None:
    office = Office()
    silence = hush(office, "node=dgx-01")
    office.tick(LOST, HOT)
    office.wait(300)
    assert office.standing(LOST) is NotificationState.SILENCED
    held = office.desk.held(LOST.key)
    assert held is not None
    assert (held.by, held.incident) == (silence.id, "")
    office.tick(over(HOT))
    office.wait(298)
    assert office.sent == []
    assert said(office.wait(3)) == ["trigger new"]
    assert office.sent[0].incident.alerts == (LOST,)


def test_a_silence_may_end_by_hand_and_begin_later() -> None:
    office = Office()
    silence, step = office.desk.silence(
        parse_all(["rule=~gpu_.*"]),
        who="ada", why="drill", starts=office.wall + 60 * SECOND, ends=office.wall + 3600 * SECOND,
        now=office.now, wall_ns=office.wall,
    )  # fmt: skip
    office.keep(step)
    office.wait(61)
    office.tick(LOST)
    office.wait(60)
    assert office.sent == []
    ended, step = office.desk.unsilence(
        silence.id[:6], who="bob", why="", now=office.now, wall_ns=office.wall
    )
    office.keep(step)
    assert ended.ends == office.wall
    assert office.desk.silences() == [ended]
    assert said(office.wait(2)) == ["trigger new"]
    with pytest.raises(DeskError, match="is over already"):
        office.desk.unsilence(silence.id, who="bob", why="", now=office.now, wall_ns=office.wall)


def test_an_incident_that_was_told_goes_on_in_silence_and_its_end_is_told() -> None:
    office = Office()
    office.tick(LOST)
    office.tick()
    hush(office, "rule=gpu_lost", seconds=6 * 3600)
    assert office.standing(LOST) is NotificationState.SILENCED
    office.wait(5 * 3600, every=60)
    assert said(office.sent) == ["trigger new"]
    office.tick(over(LOST))
    office.wait(15)
    assert said(office.sent) == ["trigger new", "resolve resolved"]


def test_a_silenced_cause_still_hides_its_consequences() -> None:
    office = Office()
    hush(office, "rule=node_silent")
    office.tick(alert("node_silent"), LOST)
    office.wait(60)
    assert office.sent == []
    assert office.standing(LOST) is NotificationState.INHIBITED


def test_a_step_of_the_wall_clock_ends_no_silence_and_moves_no_timer() -> None:
    for jump in (-86_400, 86_400):
        office = Office()
        hush(office, "rule=thermal", seconds=600)
        office.tick(HOT)
        office.tick(LOST)
        office.wall += jump * SECOND
        assert said(office.wait(2)) == ["trigger new"]
        office.wait(590)
        assert said(office.sent) == ["trigger new"]
        office.wait(20)
        assert said(office.sent) == ["trigger new", "trigger new"]


@pytest.mark.parametrize(
    ("matchers", "who", "why", "ends", "message"),
    [
        ([], "ada", "x", 600, "of which alerts"),
        (["node=~.*"], "ada", "x", 600, "node=~.* would hold back every alert"),
        (["rack!=r7"], "ada", "x", 600, "would hold back every alert"),
        (["node=a"], "", "x", 600, "who asks for it is missing"),
        (["node=a"], "ada", " ", 600, "why is missing"),
        (["node=a"], "ada", "x", -5, "its end has passed"),
    ],
)
def test_a_silence_that_makes_no_sense_is_refused(
    matchers: list[str], who: str, why: str, ends: int, message: str
) -> None:
    office = Office()
    with pytest.raises(DeskError, match=message):
        office.desk.silence(
            parse_all(matchers), who=who, why=why, ends=office.wall + ends * SECOND,
            now=office.now, wall_ns=office.wall,
        )  # fmt: skip
    assert office.desk.silences() == []
    with pytest.raises(DeskError, match="no silence 'abcdef'"):
        office.desk.unsilence("abcdef", who="ada", why="", now=office.now, wall_ns=office.wall)


# -- Maintenance ----------------------------------------------------------------------------------


def test_what_maintenance_leaves_behind_for_two_minutes_is_no_incident() -> None:
    office = Office()
    hush(office, "node=dgx-01", seconds=600, maintenance=True)
    office.tick(LOST)
    office.wait(620)
    assert office.standing(LOST) is NotificationState.MAINTENANCE
    office.tick(HOT)
    office.wait(60)
    assert office.standing(HOT) is NotificationState.MAINTENANCE
    office.tick(over(HOT))
    office.wait(30)
    assert office.sent == []
    assert said(office.wait(20)) == ["trigger new"]
    assert office.sent[0].incident.alerts == (LOST,)


def test_an_event_of_maintenance_that_is_only_kept_is_never_told() -> None:
    office = Office()
    hush(office, "node=dgx-01", seconds=60, maintenance=True)
    event = alert("ecc_uncontained", gpu="GPU-a")
    office.tick(event)
    for _ in range(600):
        office.tick(recovering={event.key})
    assert office.sent == []
    office = Office()
    hush(office, "node=dgx-01", seconds=60)
    office.tick(event)
    for _ in range(100):
        office.tick(recovering={event.key})
    assert said(office.sent) == ["trigger new"]  # of a mere silence, it is


def test_maintenance_and_silence_outlast_a_restart() -> None:
    office = Office()
    hush(office, "node=dgx-01", seconds=600)
    office.tick(LOST)
    office.restart(down=300)
    office.wait(290)
    assert office.standing(LOST) is NotificationState.SILENCED
    assert said(office.wait(20)) == ["trigger new"]


def test_what_fired_and_is_no_longer_there_after_a_restart_is_over() -> None:
    office = Office()
    breaker = trip("A1")
    office.tick(LOST, breaker)
    office.tick()
    office.restart(down=60)
    new = alert("gpu_lost", gpu="GPU-z")
    office.keep(office.desk.reconcile([breaker, new], office.now, office.wall))
    office.wait(15)
    assert said(office.sent) == ["trigger new"] * 3 + ["resolve resolved"]
    assert office.sent[-1].incident.alerts[0].key == LOST.key
