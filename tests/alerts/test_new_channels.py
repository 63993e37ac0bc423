"""Channels that are configured while something pages: told of what stands, once; over restarts in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.config import AlertsConfig, EscalationConfig, RouteConfig
from alerts.delivery.new_channels import LOOK_SECONDS, SETTLE_SECONDS, NewChannels
from alerts.delivery.routing import Router
from alerts.incidents.state import IncidentChanges
from alerts.journal.journal import Journal
from api.alerts import Alert, DeliveryOutcome, Severity
from tests.alerts.deliveries import ManagerHarness, acknowledge, alert, over, silenced

ARRIVED, REFUSED, EXPIRED = (DeliveryOutcome.DELIVERED, DeliveryOutcome.REFUSED, DeliveryOutcome.EXPIRED)
LOST = alert("gpu_lost", gpu="GPU-a")
HOT = alert("thermal", "dgx-02", "GPU-b")
TICKET = alert("thermal", "dgx-03", "GPU-c", severity=Severity.TICKET)
PHONE = {"type": "ntfy", "url": "https://ntfy.example/gpus"}
ONCALL = {"type": "pagerduty", "key_env": "K"}


class Site:
    """An aggregator from life to life: journal, incident manager and routes; every message arrives, unless a test says
    otherwise."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "alerts.sqlite"
        self.harness = ManagerHarness()
        self.journal: Journal | None = None
        self.new: NewChannels

    def start(self, *, down: float = 60.0, **channels: dict[str, Any]) -> None:
        """Begin a life with these channels."""
        self.start_with(AlertsConfig(channels=channels, working_hours=("mon-sun 00:00-24:00",)), down)

    def start_with(self, config: AlertsConfig, down: float = 60.0) -> None:
        """Begin a life with these settings."""
        config.check()
        self.end()
        harness = self.harness
        harness.restart(down=down)
        self.journal = journal = Journal.open(self.path, harness.wall)
        self.router = Router(config)
        memory = journal.memory
        self.new = NewChannels(
            config.notifiers(), self.router, memory.channels, memory.incidents, harness.now, harness.wall
        )
        self.keep(self.new.changes())

    def end(self) -> None:
        """End a life as a crash does: what is written stays."""
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def keep(self, step: IncidentChanges, outcome: DeliveryOutcome | None = ARRIVED) -> list[str]:
        """Store a step, and return what it sent: `phone trigger new`."""
        assert self.journal is not None
        self.harness.keep(step)
        self.new.note(step)
        assert self.journal.commit(step, self.router.route)
        sent = [one for one in self.journal.waiting() if one.notice in step.notices]
        if outcome is not None:
            self.journal.settle([one.id for one in sent], outcome)
        return sorted(f"{one.channel} {one.notice.action} {one.notice.reason}" for one in sent)

    def tick(self, *changes: Alert, recovering: str = "", outcome: DeliveryOutcome | None = ARRIVED) -> list[str]:
        """A second of a life: changes of alerts, and what is told of them and to new channels."""
        harness = self.harness
        harness.now, harness.wall = harness.now + 1, harness.wall + 1_000_000_000
        step = harness.manager.receive(changes, harness.now, harness.wall)
        sent = self.keep(step, outcome)
        late = self.new.notify(harness.manager, {recovering}, harness.now, harness.wall)
        return sent + self.keep(late, outcome)

    def told(self, seconds: float = SETTLE_SECONDS + 2 * LOOK_SECONDS, **more: Any) -> list[str]:
        """Return the notices of some seconds without a change."""
        return [one for _ in range(round(seconds)) for one in self.tick(**more)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.end()


def test_a_channel_that_is_added_hears_once_of_what_stands(site: Site) -> None:
    """Also over further restarts; the channel that was there is not told again."""
    site.start(oncall=ONCALL)
    site.tick(LOST, HOT)
    assert site.told() == ["oncall trigger new", "oncall trigger new"]
    site.start(oncall=ONCALL, phone=PHONE)
    assert site.told(SETTLE_SECONDS - 1) == []
    assert site.told() == ["phone trigger new_channel", "phone trigger new_channel"]
    for _ in range(2):
        site.start(oncall=ONCALL, phone=PHONE)
        assert site.told() == []
    assert site.tick(over(LOST)) == []
    assert site.told() == ["oncall resolve resolved", "phone resolve resolved"]


def test_the_first_channel_of_all_hears_of_what_was_sent_to_nobody(site: Site) -> None:
    site.start()
    site.tick(LOST)
    assert site.told() == []
    site.start(phone=PHONE)
    assert site.told() == ["phone trigger new_channel"]


def test_a_ticket_is_told_in_its_hours_too(site: Site) -> None:
    site.start()
    site.tick(TICKET)
    assert site.told(60) == []
    site.start(phone=PHONE)
    assert site.told() == ["phone trigger new_channel"]


def test_what_ended_while_nobody_watched_and_what_is_about_to_end_is_not_told(site: Site) -> None:
    site.start(oncall=ONCALL)
    site.tick(LOST, HOT)
    site.told()
    site.start(oncall=ONCALL, phone=PHONE)
    assert site.tick(over(LOST)) == []
    assert site.told(recovering=HOT.key) == ["oncall resolve resolved"]
    assert site.tick(over(HOT)) == []
    assert site.told() == ["oncall resolve resolved"]


def test_what_somebody_has_acknowledged_or_silenced_is_told_once_that_ends(site: Site) -> None:
    site.start()
    site.tick(LOST, HOT)
    site.told()
    keys = {one.group["rule"]: one.key for one in site.harness.manager.incidents()}
    acknowledge(site.harness, keys["gpu_lost"])
    silenced(site.harness, "rule=thermal", seconds=300)
    site.start(phone=PHONE)
    assert site.told(60) == []
    assert site.told(300) == ["phone trigger new_channel"]  # the silence is over
    harness = site.harness
    _, step = harness.manager.unacknowledge(keys["gpu_lost"], who="ada", why="", now=harness.now, wall_ns=harness.wall)
    assert site.keep(step) == ["phone trigger repeat"]
    assert site.told() == []  # that was it


def test_what_another_fault_inhibits_is_told_once_that_ends(site: Site) -> None:
    """Also where it was notified before its cause came, and stays so for those who were told."""
    site.start(oncall=ONCALL)
    link = alert("nvlink_down", gpu="GPU-a")
    site.tick(link)
    site.told()
    site.tick(LOST)
    site.told()
    site.start(oncall=ONCALL, phone=PHONE)
    assert site.told() == ["phone trigger new_channel"]
    assert site.harness.sent[-1].incident.group["rule"] == "gpu_lost"
    site.tick(over(LOST))
    assert "phone trigger new_channel" in site.told()
    [last] = [one for one in site.harness.sent if one.reason == "new_channel"][1:]
    assert last.incident.group["rule"] == "nvlink_down"


def test_a_storm_is_told_and_not_each_of_it(site: Site) -> None:
    site.start()
    site.tick(*(alert("gpu_lost", f"dgx-{number}", "GPU-a") for number in range(40)))
    site.told(30)
    site.start(phone=PHONE)
    assert site.told() == ["phone trigger new_channel"]
    [told] = [one for one in site.harness.sent if one.reason == "new_channel"]
    assert told.incident.title.startswith("Storm: ")


def test_only_channels_that_a_route_leads_to_are_told(site: Site) -> None:
    channels = {"oncall": ONCALL, "phone": PHONE, "chat": {"type": "webhook", "url": "http://h/c"}}
    routes = (RouteConfig(match=("rule=gpu_lost",), channels=("phone",)), RouteConfig(channels=("oncall",)))
    site.start(oncall=ONCALL)
    site.tick(LOST, HOT)
    site.told()
    site.start_with(AlertsConfig(channels=channels, routes=routes))
    assert site.told() == ["phone trigger new_channel"]


def test_other_hours_make_no_channel_new(site: Site) -> None:
    """A restart in the morning sends the other phone nothing of what a night route has sent to the first."""
    both = {"day": ONCALL, "night": PHONE}
    noon = AlertsConfig(channels=both, routes=(RouteConfig(channels=("day",)),))
    midnight = AlertsConfig(channels=both, routes=(RouteConfig(channels=("night",)),))
    site.start_with(midnight)
    site.tick(LOST)
    assert site.told() == ["night trigger new"]
    site.start_with(noon)
    assert site.told() == []


def test_a_channel_of_an_escalation_hears_of_what_has_come_to_its_step(site: Site) -> None:
    later = EscalationConfig(after_minutes=10, channels=("phone",))
    site.harness.timings = site.harness.timings.__class__(escalate=(600,))
    site.start(oncall=ONCALL)
    site.tick(LOST)
    site.told(660)
    site.tick(HOT)
    site.told()
    site.start_with(AlertsConfig(channels={"oncall": ONCALL, "phone": PHONE}, escalation=(later,)))
    assert site.told() == ["phone trigger new_channel"]
    [told] = [one for one in site.harness.sent if one.reason == "new_channel" and one.escalation]
    assert told.incident.group["rule"] == "gpu_lost"


@pytest.mark.parametrize("outcome", [REFUSED, EXPIRED])
def test_a_channel_that_is_mended_hears_of_what_it_could_not_take(site: Site, outcome: DeliveryOutcome) -> None:
    site.start(oncall=ONCALL, phone=PHONE)
    site.tick(LOST, outcome=outcome)
    assert site.told(outcome=outcome) == ["oncall trigger new", "phone trigger new"]
    site.start(oncall=ONCALL, phone=PHONE)
    assert site.told() == ["oncall trigger new_channel", "phone trigger new_channel"]
    site.start(oncall=ONCALL, phone=PHONE)
    assert site.told() == []


def test_a_channel_that_leads_elsewhere_is_new_and_one_with_another_pace_is_not(site: Site) -> None:
    site.start(phone=PHONE)
    site.tick(LOST)
    assert site.told() == ["phone trigger new"]
    site.start(phone=PHONE | {"per_minute": 6.0, "picture": False})
    assert site.told() == []
    site.start(phone=PHONE | {"url": "https://ntfy.example/mine"})
    assert site.told() == ["phone trigger new_channel"]


def test_what_still_waits_for_a_channel_that_was_mended_is_not_made_again(site: Site) -> None:
    site.start(phone=PHONE)
    site.tick(LOST, outcome=None)
    assert site.told(outcome=None) == ["phone trigger new"]
    site.start(phone=PHONE | {"url": "https://ntfy.example/mine"})
    assert site.told(outcome=None) == []
    assert site.journal is not None
    assert [one.notice.reason for one in site.journal.waiting()] == ["new"]


def test_a_channel_that_comes_back_hears_of_what_it_missed_alone(site: Site) -> None:
    site.start(phone=PHONE)
    site.tick(LOST)
    site.told()
    site.start()
    site.tick(HOT)
    site.told()
    site.start(phone=PHONE)
    assert site.told() == ["phone trigger new_channel"]
    assert site.harness.sent[-1].incident.group["rule"] == "thermal"


def test_a_journal_of_a_version_that_knew_no_channels_makes_none_new(site: Site) -> None:
    site.start(oncall=ONCALL)
    site.tick(LOST)
    site.told()
    assert site.journal is not None
    site.journal._file.drop("record", "channels", "")
    site.start(oncall=ONCALL, phone=PHONE)
    assert site.told() == []


def test_a_crash_before_it_is_told_loses_nothing(site: Site) -> None:
    site.start()
    site.tick(LOST)
    site.told()
    site.start(phone=PHONE)
    assert site.told(SETTLE_SECONDS - 2) == []
    site.start(phone=PHONE)
    assert site.told() == ["phone trigger new_channel"]


def test_members_that_are_restarted_one_after_the_other_make_the_same_notice(tmp_path: Path) -> None:
    """So that its claim lets one of them send it."""
    ids = []
    for name, down in (("first", 60.0), ("second", 600.0)):
        (tmp_path / name).mkdir()
        member = Site(tmp_path / name)
        member.start(oncall=ONCALL)
        member.tick(LOST)
        member.told()
        member.start(oncall=ONCALL, phone=PHONE, down=down)
        assert member.told() == ["phone trigger new_channel"]
        ids.append(member.harness.sent[-1].id)
        member.end()
    assert len(set(ids)) == 1
