"""Escalation: a page that nobody acknowledges goes to the next channels, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aggregator.alerting.pipeline import timings_of
from alerts.config import AlertsConfig, EscalationConfig, RouteConfig
from alerts.delivery.routing import Router
from alerts.incidents.state import IncidentChanges
from alerts.journal.journal import Journal
from api.alerts import Action, NotificationState, Severity
from telemetry.errors import ConfigError
from tests.alerts.deliveries import NOON, SECOND, ManagerHarness, acknowledge, alert, described, over, silenced

CHANNELS: dict[str, dict[str, Any]] = {
    "oncall": {"type": "pagerduty", "key_env": "K"},
    "second": {"type": "pagerduty", "key_env": "N"},
    "lead": {"type": "ntfy", "url_env": "U"},
    "am": {"type": "alertmanager", "urls": ["http://h:9093"]},
}
STEPS = (
    EscalationConfig(after_minutes=10, channels=("second",)),
    EscalationConfig(after_minutes=30, channels=("second", "lead")),
)
CONFIG = AlertsConfig(channels=CHANNELS, escalation=STEPS)
LOST = alert("gpu_lost", gpu="GPU-a")


@pytest.fixture
def harness() -> ManagerHarness:
    """An incident manager with these steps."""
    return ManagerHarness(timings=timings_of(CONFIG))


def times(harness: ManagerHarness) -> list[tuple[int, int]]:
    """Return step and minute of all notices of escalation."""
    found = [one for one in harness.sent if one.escalation]
    assert all((one.action, one.reason) == (Action.TRIGGER, "escalated") for one in found)
    return [(one.escalation, round((one.at - NOON) / SECOND / 60)) for one in found]


def test_a_page_that_nobody_acknowledges_escalates_at_each_step_once(harness: ManagerHarness) -> None:
    harness.tick(LOST)
    harness.wait(3600, every=10)
    assert times(harness) == [(1, 10), (2, 30)]
    assert harness.manager.next_due() is not None


def test_an_acknowledgement_stops_it_and_its_end_begins_the_next_step_anew(harness: ManagerHarness) -> None:
    harness.tick(LOST)
    harness.wait(660, every=10)
    acknowledge(harness, harness.only().key, until=harness.wall + 1800 * SECOND)
    harness.wait(1790, every=10)
    assert times(harness) == [(1, 10)]
    harness.wait(3600, every=10)
    assert times(harness) == [(1, 10), (2, 41 + 20)]


def test_a_removed_acknowledgement_escalates_again(harness: ManagerHarness) -> None:
    harness.tick(LOST)
    harness.wait(60)
    key = harness.only().key
    acknowledge(harness, key)
    harness.wait(3000, every=10)
    _, step = harness.manager.unacknowledge(key, who="ada", why="", now=harness.now, wall_ns=harness.wall)
    harness.keep(step)
    harness.wait(3600, every=10)
    assert times(harness) == [(1, 51 + 10), (2, 51 + 30)]


@pytest.mark.parametrize("down", [0.0, 400.0, 4000.0])
def test_a_restart_neither_forgets_a_step_nor_repeats_it(harness: ManagerHarness, down: float) -> None:
    harness.tick(LOST)
    harness.wait(620, every=10)
    harness.restart(down=down)
    harness.wait(3600, every=10)
    assert [step for step, _ in times(harness)] == [1, 2]
    assert times(harness)[1][1] == max(30, round((621 + down) / 60))


def test_a_ticket_and_what_is_silenced_or_over_does_not_escalate(harness: ManagerHarness) -> None:
    silenced(harness, "rule=thermal", seconds=7200)
    hot = alert("thermal", gpu="GPU-b")
    harness.tick(hot, alert("gpu_lost", "dgx-02", "GPU-x", severity=Severity.TICKET), LOST)
    harness.wait(60)
    harness.tick(over(LOST))
    harness.wait(3600, every=10)
    assert harness.state(hot) is NotificationState.SILENCED
    assert times(harness) == []


def test_its_channels_receive_it_and_what_follows(tmp_path: Path, harness: ManagerHarness) -> None:
    journal = Journal.open(tmp_path / "journal.sqlite", NOON)
    router = Router(CONFIG)
    for change in ((LOST,), (over(LOST),)):
        harness.tick(*change)
        harness.wait(900, every=10)
    journal.commit(IncidentChanges(notices=tuple(harness.sent), wall_ns=NOON), router.route)
    found = [(one.channel, one.notice.action, one.notice.reason) for one in journal.waiting()]
    journal.close()
    assert found == [
        ("oncall", Action.TRIGGER, "new"),
        ("second", Action.TRIGGER, "escalated"),
        ("oncall", Action.RESOLVE, "resolved"),
        ("second", Action.RESOLVE, "resolved"),
    ]


def test_a_channel_may_be_in_a_route_too_and_a_step_that_is_gone_reaches_nobody() -> None:
    config = msgspec.structs.replace(CONFIG, routes=(RouteConfig(channels=("oncall", "lead")),), escalation=STEPS[:1])
    config.check()
    harness = ManagerHarness(timings=timings_of(CONFIG))
    harness.tick(LOST)
    harness.wait(3600, every=10)
    assert described(harness.sent) == ["trigger new", "trigger escalated", "trigger escalated"]
    router = Router(config)
    assert [list(router.route(one, NOON)) for one in harness.sent] == [["oncall", "lead"], ["second"], []]


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([(10, "nobody")], r"escalation\[0\].channels: there is no channel 'nobody'"),
        ([(10, "")], r"escalation\[0\].channels: it names nobody. Name a channel"),
        ([(0, "second")], r"escalation\[0\].after_minutes: it must be more than 0"),
        ([(10, "am")], r"escalation\[0\].channels: 'am' escalates by itself"),
        ([(30, "second"), (10, "lead")], "the steps are not in the order of their times"),
        ([(10, "oncall,second,lead,am")], "'am' escalates by itself"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(steps: list[tuple[float, str]], problem: str) -> None:
    config = msgspec.structs.replace(
        CONFIG,
        escalation=tuple(
            EscalationConfig(after_minutes=at, channels=tuple(filter(None, names.split(",")))) for at, names in steps
        ),
    )
    with pytest.raises(ConfigError, match=problem):
        config.check()


def test_a_page_must_have_a_channel_at_once() -> None:
    config = AlertsConfig(channels={"second": CHANNELS["second"]}, escalation=STEPS[:1])
    with pytest.raises(ConfigError, match="so no page is sent at once"):
        config.check()
