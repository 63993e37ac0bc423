"""Pages while NATS has no quorum: one goes out, marked, and the log goes on as if nothing had been."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import LEASE_SECONDS, Bucket
from aggregator.impairments import Impairments
from aggregator.settings.members import MembersConfig
from aggregator.site import incidents as incidents_of_site
from aggregator.site.delivery_claims import RESTORE_SECONDS, DeliveryClaims
from aggregator.site.incident_fold import FoldStep
from aggregator.site.incidents import ClusterIncidents
from aggregator.site.role import UNHELD_SECONDS, SiteRole
from aggregator.site.unfenced import MARK, PREFIX, UNFENCED_SECONDS, UnfencedPages
from alerts.delivery.gate import ClaimAnswer
from alerts.incidents.manager import IncidentManager
from alerts.incidents.policy import DEFAULT_TIMINGS
from alerts.incidents.state import IncidentChanges, IncidentMemory
from alerts.notice import Delivery, Notice
from api.alerts import Action, Alert, AlertState, DeliveryOutcome
from tests.cluster.test_incidents import RULES, START, alert
from tests.kit.waiting import within

WALL = int(START * 1e9)
SECOND = 10**9


def manager_with(*alerts: Alert) -> IncidentManager:
    """The incident manager of the log, which has paged about some alerts."""
    found = IncidentManager(RULES, now=START, wall_ns=WALL)
    found.receive(alerts, START, WALL)
    for second in range(1, 40):
        found.receive((), START + second, WALL + second * SECOND)
    return found


def played(pages: UnfencedPages, alerts: Sequence[Alert], first: int, seconds: int = 40) -> list[Notice]:
    """What is sent in some seconds while these alerts fire."""
    return [
        notice
        for second in range(first, first + seconds)
        for notice in pages.step(alerts, lambda _: True, WALL + second * SECOND).notices
    ]


def test_a_new_page_goes_out_once_and_marked_and_what_was_paged_before_does_not_again() -> None:
    log = manager_with(alert(1))
    pages = UnfencedPages("a", log, WALL + 40 * SECOND)
    [notice] = played(pages, [alert(1), alert(2)], 40)
    assert notice.action is Action.TRIGGER
    assert notice.id.startswith(PREFIX)
    assert notice.incident.title.endswith(MARK)
    assert [one.name for one in notice.incident.alerts] == ["pdu-2"]
    # The same alert in the log makes an incident of the same key: the pager folds the two.
    log.receive([alert(2)], START + 41, WALL + 41 * SECOND)
    assert notice.incident.key in {one.key for one in log.incidents()}
    assert not pages.finish(log, WALL + 90 * SECOND).notices


def test_what_the_log_has_under_no_such_key_is_ended() -> None:
    pages = UnfencedPages("a", manager_with(), WALL + 40 * SECOND)
    [notice] = played(pages, [alert(2)], 40)
    [end] = pages.finish(manager_with(), WALL + 90 * SECOND).notices
    assert (end.action, end.incident.key) == (Action.RESOLVE, notice.incident.key)
    assert end.id != notice.id


def test_a_quorum_that_is_lost_again_soon_repeats_nothing_that_the_log_paged_meanwhile() -> None:
    """One alert was paged without it before, another by the log since, and a third is new."""
    log = manager_with()
    pages = UnfencedPages("a", log, WALL + 40 * SECOND)
    [before] = played(pages, [alert(1)], 40)
    for second in range(60, 100):
        log.receive([alert(2)] if second == 60 else (), START + second, WALL + second * SECOND)
    pages.resume(log, WALL + 100 * SECOND)
    ours = msgspec.structs.replace(alert(2), since=WALL + 59 * SECOND)  # as this member saw it
    [notice] = played(pages, [alert(1), ours, alert(3)], 100)
    assert [one.name for one in notice.incident.alerts] == ["pdu-3"]
    found = played(pages, [ours, alert(3)], 140, 900)
    ends = [one.incident.key for one in found if one.action is Action.RESOLVE]
    assert ends == [before.incident.key]
    assert set(pages.open) == {notice.incident.key}


def test_an_alert_that_is_over_meanwhile_is_ended_and_one_of_another_member_is_not_paged() -> None:
    pages = UnfencedPages("a", manager_with(), WALL + 40 * SECOND)
    assert not pages.step([alert(3)], lambda _: False, WALL + 40 * SECOND).notices
    assert len(played(pages, [alert(2)], 41)) == 1
    found = played(pages, [alert(2, AlertState.RESOLVED)], 81, 900)
    assert [one.action for one in found] == [Action.RESOLVE]
    assert not pages.open


@dataclass
class NoJournal:
    """The part of a journal that incidents read at the start."""

    memory: IncidentMemory = field(default_factory=IncidentMemory)
    deliveries: list[Delivery] = field(default_factory=list)

    def records(self, _kind: str) -> dict[str, bytes]:
        return {}

    def waiting(self) -> list[Delivery]:
        return [one for one in self.deliveries if one.outcome is DeliveryOutcome.WAITING]

    def history(self, _since: int, _limit: int) -> list[Delivery]:
        return self.deliveries


@dataclass
class Pair:
    """Two candidates on one coordination, in a time that the test passes in."""

    now: float = 100.0

    def __post_init__(self) -> None:
        self.servers = MemoryServers(lambda: self.now, {Bucket.LEADERS: LEASE_SECONDS})

    def role(self, name: str) -> SiteRole:
        config = MembersConfig(nats=("nats://a:4222",), member=name)
        return SiteRole(config, self.servers.connect(name), Impairments(), lambda: self.now)


async def test_who_led_last_speaks_without_a_quorum_and_another_only_where_nobody_is_heard() -> None:
    pair = Pair()
    one, two = pair.role("a"), pair.role("b")
    for role in (one, two):
        await role.leadership.step()
    assert (one.leads, one.unfenced, two.unfenced) == (True, False, False)
    claims = [DeliveryClaims(role.coordination, role.leadership) for role in (one, two)]
    for role, its in zip((one, two), claims, strict=True):
        its.unfenced = lambda role=role: role.unfenced  # type: ignore[misc]
        its.speaks_unfenced = lambda role=role: role.speaks_unfenced  # type: ignore[misc]
    pair.servers.no_quorum = True
    for role in (one, two):
        await role.leadership.step()
        assert not role.unfenced
    pair.now += UNFENCED_SECONDS
    for role in (one, two):
        await role.leadership.step()
    assert not one.leads
    assert (one.speaks_unfenced, two.speaks_unfenced) == (True, False)
    assert all(its.is_open() for its in claims)
    page = delivery(1, 41, DeliveryOutcome.WAITING).notice
    unfenced = msgspec.structs.replace(page, id=f"{PREFIX}b-n1-1")
    assert await claims[0].claim(page, "pager") is ClaimAnswer.AGAIN, "it may have been sent"
    assert await claims[1].claim(page, "pager") is ClaimAnswer.WAIT
    assert await claims[1].claim(unfenced, "pager") is ClaimAnswer.SEND
    two._beacon_at = pair.now
    pair.now += UNHELD_SECONDS
    assert two.speaks_unfenced, "nobody who leads is heard"
    pair.servers.no_quorum = False
    await two.leadership.step()
    assert two.leads, "the lease ended long ago"
    assert not two.unfenced


def delivery(number: int, seconds: float, outcome: DeliveryOutcome) -> Delivery:
    """A page to one channel, of so many seconds after the begin."""
    pages = UnfencedPages("a", manager_with(), WALL + 40 * SECOND)
    [notice] = played(pages, [alert(2)], 40)
    at = int((START + seconds) * SECOND)
    notice = msgspec.structs.replace(notice, id=f"n{number}", at=at)
    return Delivery(id=number, notice=notice, channel="pager", created=at, due=at, outcome=outcome)


@pytest.mark.parametrize("made_anew", [True, False])
async def test_a_page_that_waits_when_nats_loses_the_claims_is_sent_with_a_word(made_anew: bool) -> None:
    """The leader before may have sent it: its mark is lost, and nobody here has seen it. Also where the log alone
    shows that something was lost. What a member has settled it marks again."""
    pair = Pair(now=START)
    role = pair.role("a")

    async def passes(seconds: int) -> None:
        for _ in range(seconds):
            pair.now += 1
            await role.leadership.step()

    settled = delivery(1, 41, DeliveryOutcome.DELIVERED)
    waiting = delivery(2, 42, DeliveryOutcome.WAITING)
    later = delivery(3, 300, DeliveryOutcome.WAITING)
    journal = NoJournal(deliveries=[waiting, settled])
    incidents = ClusterIncidents(role, dict)
    incidents.open(journal, RULES, DEFAULT_TIMINGS, lambda *_: None, lambda: None)  # type: ignore[arg-type]
    claims, candidate = incidents.claims, incidents._candidate
    assert candidate is not None
    await claims.restore()
    await passes(100)
    assert not await candidate._check_log()
    if made_anew:
        pair.servers.wipe()
        await passes(1)
        assert await claims.claim(waiting.notice, "pager") is ClaimAnswer.WAIT, "others mark"
        assert await claims.claim(settled.notice, "pager") is ClaimAnswer.DONE
        await claims.mark_settled()
        assert await claims.is_sent("n1", "pager")
        await passes(int(RESTORE_SECONDS))
    else:
        candidate.fold.mark = 7
        incidents._answers[7] = FoldStep()
        assert await candidate._check_log(), "the log ends before what was folded"
        assert not incidents._answers, "the next 7 is of another request"
    assert await claims.claim(later.notice, "pager") is ClaimAnswer.SEND
    for _ in range(2):
        assert await claims.claim(waiting.notice, "pager") is ClaimAnswer.AGAIN
    await claims.mark("n2", "pager")
    assert await claims.claim(waiting.notice, "pager") is ClaimAnswer.DONE


async def test_who_stood_still_or_has_resigned_does_not_take_that_for_a_lost_quorum() -> None:
    pair = Pair()
    role = pair.role("a")
    await role.leadership.step()
    pair.now += 10 * UNFENCED_SECONDS
    assert not role.unfenced, "it has asked nobody meanwhile"
    await role.resign()
    leading = asyncio.ensure_future(role._lead())
    try:
        pair.servers.no_quorum = True
        async with within():
            while role.leadership.failing_since is None:  # noqa: ASYNC110 - a task of its own
                await asyncio.sleep(0.01)
        pair.servers.no_quorum = False
        pair.now += 10 * UNFENCED_SECONDS
        async with within():
            while role.unfenced:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        leading.cancel()
    assert not role.leads


async def test_a_member_without_a_quorum_pages_about_what_its_rules_find(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is empty: nothing was ever wrong before."""
    monkeypatch.setattr(incidents_of_site, "UNFENCED_TURN_SECONDS", 0.01)
    monkeypatch.setattr(incidents_of_site, "SETTLE_SECONDS", 0.0)
    pair = Pair()
    role = pair.role("a")
    await role.leadership.step()
    incidents = ClusterIncidents(role, dict)
    sent: list[Notice] = []

    def follow(_manager: IncidentManager, changes: IncidentChanges) -> None:
        sent.extend(changes.notices)

    works = incidents.open(NoJournal(), RULES, DEFAULT_TIMINGS, follow, lambda: None)  # type: ignore[arg-type]
    incidents.relay([], lambda: [alert(7)], ())
    task = asyncio.ensure_future(works["pages without a quorum"]())
    try:
        await asyncio.sleep(0.1)
        assert not sent
        pair.servers.no_quorum = True
        await role.leadership.step()
        pair.now += UNFENCED_SECONDS
        async with within():
            while not sent:  # noqa: ASYNC110 - a task of its own
                await asyncio.sleep(0.01)
        assert sent[0].incident.title.endswith(MARK)
        pair.servers.no_quorum = False
        await role.leadership.step()
        async with within():
            while len(sent) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert [one.action for one in sent] == [Action.TRIGGER, Action.RESOLVE]
    finally:
        task.cancel()
