"""Incidents on the replicated log: no page is lost, and twice is only what was under way at a kill."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import Bucket, Coordination, CoordinationError, LogEnd
from aggregator.site.alert_relay import COMPLETE_SECONDS, AlertRelay
from aggregator.site.delivery_claims import DeliveryClaims
from aggregator.site.edges import (
    AcknowledgeEdge,
    AlertEdge,
    Edge,
    RestatedEdge,
    SilenceEdge,
    TickEdge,
    UnsilenceEdge,
    decode,
    encode,
)
from aggregator.site.incident_candidate import IncidentCandidate
from aggregator.site.incident_fold import IncidentFold, position_of
from aggregator.site.leadership import Leadership
from alerts.delivery.gate import ClaimAnswer
from alerts.incidents.policy import policies_of
from alerts.notice import Notice
from alerts.rules.rule import load
from api.alerts import Action, Alert, AlertState, Matcher, Severity, Subject
from tests.kit.waiting import until

LEASE = 4.0
START = 1_763_700_000.0
RULES = policies_of([rule for rule in load() if rule.name == "circuit_trip_suspected"])


def alert(number: int, state: AlertState = AlertState.FIRING) -> Alert:
    """A tripped breaker: a page at once, each an incident of its own."""
    name = f"pdu-{number}"
    return Alert(
        f"circuit_trip_suspected/circuit/{name}",
        "circuit_trip_suspected",
        state,
        Severity.PAGE,
        "",
        subject=Subject.CIRCUIT,
        name=name,
        labels={"circuits": name},
        since=int(START * 1e9),
    )


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class Fuse:
    """Ends a candidate at its n-th step towards the outside."""

    left: int = 1 << 60
    blown: bool = False

    def burn(self) -> None:
        if self.left == 0:
            self.blown = True
        if self.blown:
            raise KilledError
        self.left -= 1


class Fragile:
    """A coordination whose caller may be killed before and after every call."""

    def __init__(self, inner: Coordination, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._inner, name)
        if name in {"replay", "serve", "watch", "log_end", "born"}:
            return method  # type: ignore[no-any-return]

        async def call(*args: object) -> object:
            self._fuse.burn()
            found = await method(*args)
            self._fuse.burn()
            return found

        return call


@dataclass
class Sending:
    """A page as it came."""

    notice: Notice
    again: bool


@dataclass
class Sender:
    """The outbox of a candidate with one channel, step by step."""

    claims: DeliveryClaims
    fuse: Fuse
    pages: list[Sending]
    waiting: dict[str, Notice] = field(default_factory=dict)
    settled: list[Notice] = field(default_factory=list)
    """As the journal has them."""

    def __post_init__(self) -> None:
        async def own(born: int) -> list[tuple[str, str]]:
            return [(notice.id, "pager") for notice in self.settled if notice.at < born]

        self.claims.settled_before = own

    def add(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self.waiting.setdefault(notice.id, notice)

    async def step(self) -> None:
        with contextlib.suppress(CoordinationError):
            await self.claims.restore()
        await self.claims.mark_settled()
        for notice in list(self.waiting.values()):
            if not self.claims.is_open():
                with contextlib.suppress(CoordinationError):
                    if await self.claims.is_sent(notice.id, "pager"):
                        self.settled.append(self.waiting.pop(notice.id))
                continue
            answer = await self.claims.claim(notice, "pager")
            if answer is ClaimAnswer.WAIT:
                return
            if answer is not ClaimAnswer.DONE:
                self.fuse.burn()
                self.pages.append(Sending(notice, answer is ClaimAnswer.AGAIN))
                self.fuse.burn()
            self.settled.append(self.waiting.pop(notice.id))
            await self.claims.mark(notice.id, "pager")


@dataclass
class Site:
    """Candidates on one coordination, in a time that the test passes in."""

    now: float = START
    pages: list[Sending] = field(default_factory=list)
    candidates: dict[str, tuple[IncidentCandidate, Fuse, asyncio.Task[None]]] = field(default_factory=dict)
    senders: dict[str, Sender] = field(default_factory=dict)
    runs: int = 0
    appended: int = 0

    def __post_init__(self) -> None:
        self.servers = MemoryServers(lambda: self.now, {Bucket.LEADERS: LEASE})
        self.anyone = self.servers.connect("anyone")

    def start(self, name: str) -> None:
        self.runs += 1
        fuse = Fuse()
        coordination: Coordination = Fragile(self.servers.connect(name), fuse)  # type: ignore[assignment]
        leadership = Leadership(coordination, "site", name, self.runs, lease_seconds=LEASE, clock=lambda: self.now)

        sender = Sender(DeliveryClaims(coordination, leadership), fuse, self.pages)
        candidate = IncidentCandidate(
            coordination,
            IncidentFold(RULES),
            leadership,
            wall=lambda: int(self.now * 1e9),
            folded=lambda _, step: sender.add(step.changes.notices),
        )
        task = asyncio.create_task(candidate.follow())
        self.candidates[name] = candidate, fuse, task
        self.senders[name] = sender

    async def kill(self, name: str) -> None:
        _, _, task = self.candidates.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def say(self, edge: Edge) -> None:
        self.appended += 1
        await self.anyone.append("edges", encode(edge), f"id-{self.appended}")
        await self.anyone.append("edges", encode(edge), f"id-{self.appended}")  # two judges say it

    async def turn(self, seconds: float = 0.5) -> None:
        """Let time pass, and every candidate do what it does."""
        self.now += seconds
        for name, (candidate, _, _) in list(self.candidates.items()):
            for _ in range(5):
                await asyncio.sleep(0)
            try:
                await candidate.leadership.step()
                await candidate.step()
                await self.senders[name].step()
            except KilledError:
                await self.kill(name)

    def follow_again(self) -> None:
        """Have all look at the log now: they do so every ten seconds of real time."""
        for name, (candidate, fuse, task) in list(self.candidates.items()):
            task.cancel()
            self.candidates[name] = candidate, fuse, asyncio.create_task(candidate.follow())

    async def settle_down(self) -> None:
        """Let time pass until one leads and may claim."""
        for _ in range(12):
            await self.turn()

    def leader(self) -> str | None:
        found = [name for name, (one, _, _) in self.candidates.items() if one.leadership.leads()]
        assert len(found) <= 1, "two lead"
        return found[0] if found else None

    async def end(self) -> None:
        for name in list(self.candidates):
            await self.kill(name)


def scene(play: Callable[[Site], object]) -> Site:
    """Play a scene with three candidates."""

    async def run() -> Site:
        site = Site()
        for name in ("a", "b", "c"):
            site.start(name)
        await play(site)  # type: ignore[misc]
        await site.end()
        return site

    return asyncio.run(run())


def opened(site: Site) -> Counter[str]:
    """How often each incident was opened to people, by its dedup key."""
    return Counter(each.notice.incident.key for each in site.pages if each.notice.reason == "new")


def test_one_leader_sends_each_page_once() -> None:
    async def play(site: Site) -> None:
        await site.turn()
        for number in range(5):
            await site.say(AlertEdge("site", 1, (alert(number),)))
            await site.turn()
        for _ in range(20):
            await site.turn()

    site = scene(play)
    assert len(site.pages) == 5
    assert set(opened(site).values()) == {1}
    assert not any(each.again for each in site.pages)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 60), st.integers(1, 6), st.booleans())
@example(11, 3, False)
def test_whenever_the_leader_is_killed_no_page_is_lost_and_twice_has_one_key(
    calls: int, pages: int, comes_back: bool
) -> None:
    async def play(site: Site) -> None:
        await site.turn()
        first = site.leader()
        assert first is not None
        site.candidates[first][1].left = calls
        for number in range(pages):
            await site.say(AlertEdge("site", 1, (alert(number),)))
            await site.turn()
        for turn in range(40):
            if turn == 20 and comes_back and first not in site.candidates:
                site.start(first)
            await site.turn()
        assert site.leader() is not None
        for name in site.candidates:
            assert not site.senders[name].waiting

    site = scene(play)
    counts = opened(site)
    assert len(counts) == pages, "no page is lost"
    assert sum(counts.values()) - pages <= 1, "twice only what was under way"
    assert sum(each.again for each in site.pages) <= 1
    twice = [key for key, count in counts.items() if count > 1]
    assert all(any(each.again for each in site.pages if each.notice.incident.key == key) for key in twice)


@pytest.mark.parametrize("calls", range(0, 24, 2))
def test_when_all_are_restarted_no_page_is_lost_and_what_was_under_way_says_so(calls: int) -> None:
    """Nobody remembers under which epoch it was claimed, and the lease has ended."""

    async def play(site: Site) -> None:
        for _ in range(3):
            await site.turn()
            leader = site.leader()
            assert leader is not None
            await site.kill(leader)
            for _ in range(14):
                await site.turn()
            site.start(leader)
        leader = site.leader()
        assert leader is not None
        site.candidates[leader][1].left = calls
        await site.say(AlertEdge("site", 1, (alert(1),)))
        for _ in range(4):
            await site.turn()
        for name in list(site.candidates):
            await site.kill(name)
        site.now += 2 * LEASE
        for name in "abc":
            site.start(name)
        for _ in range(20):
            await site.turn()

    site = scene(play)
    (count,) = opened(site).values()
    assert count <= 2
    assert sum(each.again for each in site.pages) <= 1
    assert count == 1 or [each.again for each in site.pages] == [False, True]


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), min_size=1, max_size=6))
def test_many_kills_in_a_row_lose_nothing(kills: list[tuple[int, int]]) -> None:
    async def play(site: Site) -> None:
        for number, (calls, pause) in enumerate(kills):
            leader = None
            for _ in range(14):  # the one before may be killed only now
                await site.turn()
                leader = site.leader() or leader
            assert leader is not None
            if leader in site.candidates:
                site.candidates[leader][1].left = calls
            await site.say(AlertEdge("site", 1, (alert(number),)))
            for _ in range(pause + 1):
                await site.turn()
            for name in {"a", "b", "c"} - site.candidates.keys():
                site.start(name)
        for _ in range(40):
            await site.turn()

    site = scene(play)
    counts = opened(site)
    assert len(counts) == len(kills)
    assert sum(counts.values()) - len(kills) <= len(kills)


def test_a_leader_that_was_stopped_and_wakes_up_sends_nothing() -> None:
    async def play(site: Site) -> None:
        await site.turn()
        first = site.leader()
        assert first is not None
        zombie = site.candidates.pop(first)
        for _ in range(12):
            await site.turn()
        await site.say(AlertEdge("site", 1, (alert(1),)))
        for _ in range(6):
            await site.turn()
        sent = len(site.pages)
        assert sent == 1
        site.candidates[first] = zombie
        zombie[0].leadership._until = site.now + 100  # its clock stood still, too
        for _ in range(5):
            await asyncio.sleep(0)
        await site.senders[first].step()
        assert len(site.pages) == sent
        for _ in range(5):
            await site.turn()
        assert len(site.pages) == sent

    scene(play)


def test_every_candidate_folds_the_same_state_whenever_it_began() -> None:
    async def play(site: Site) -> None:
        await site.settle_down()
        await site.say(AlertEdge("site", 1, (alert(1), alert(2))))
        for _ in range(6):
            await site.turn()
        [key, _] = sorted(opened(site))
        await site.say(AcknowledgeEdge(key, "ann", "on it"))
        await site.say(SilenceEdge((Matcher("name", "pdu-3"),), "bob", "known", int((START + 600) * 1e9)))
        await site.say(AlertEdge("site", 1, (alert(3),)))
        for _ in range(30):
            await site.turn()
        site.start("d")
        await site.turn()
        await site.say(AlertEdge("site", 1, (alert(1, AlertState.RESOLVED),)))
        for _ in range(30):
            await site.turn()
        found = []
        for candidate, _, _ in site.candidates.values():
            manager = candidate.fold.manager
            assert manager is not None
            found.append((manager.incidents(), manager.recent(), manager.silences()))
        assert found.count(found[0]) == 4
        keys = [each.notice.incident.key for each in site.pages if each.notice.reason == "new"]
        assert len(keys) == 2, "what is silenced pages nobody"

    scene(play)


def test_an_acknowledgement_from_any_member_reaches_all_and_one_of_nothing_is_refused() -> None:
    fold, refused = IncidentFold(RULES), []
    servers = MemoryServers(lambda: START, {})
    said: list[Edge] = [AlertEdge("2f", 1, (alert(1),)), AcknowledgeEdge("nothing", "ann"), UnsilenceEdge("x", "ann")]
    for number, edge in enumerate(said):
        servers.append("edges", encode(edge), str(number))
    for message in servers.records:
        step = fold.apply(message)
        assert step is not None
        refused.append(bool(step.refused))
        assert fold.apply(message) is None, "an edge counts once"
    assert refused == [False, True, True]


def test_what_a_judge_of_a_lower_epoch_says_is_left_out() -> None:
    fold = IncidentFold(RULES)
    servers = MemoryServers(lambda: START, {})
    servers.append("edges", encode(AlertEdge("2f", 2, (alert(1),))), "1")
    servers.append("edges", encode(AlertEdge("2f", 1, (alert(1, AlertState.RESOLVED),))), "2")
    servers.append("edges", b"\xc1", "3")
    for message in servers.records:
        fold.apply(message)
    assert fold.manager is not None
    assert (len(fold.manager.incidents()), fold.outdated, fold.unreadable) == (1, 1, 1)


def test_what_is_said_again_heals_a_lost_log_and_pages_nothing_twice() -> None:
    async def play(site: Site) -> None:
        await site.settle_down()
        await site.say(AlertEdge("site", 1, (alert(1), alert(2))))
        for _ in range(6):
            await site.turn()
        assert len(site.pages) == 2
        site.servers.wipe()
        site.follow_again()
        for _ in range(12):
            await site.turn()
        await site.say(RestatedEdge("site", 1, (alert(1), alert(3)), complete=True))
        for _ in range(40):
            await site.turn()
        assert set(opened(site).values()) == {1}
        assert len(opened(site)) == 3, "what is new is not lost"
        resolved = [each for each in site.pages if each.notice.action is Action.RESOLVE]
        assert len(resolved) == 1, "and what is over is"

    scene(play)


async def _unheard(*_: object) -> bool:
    """Fail as where the hint that a delivery is marked does not arrive."""
    raise CoordinationError("unheard")


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("folded", [False, True])
def test_a_page_of_which_nats_loses_the_claim_is_not_sent_again_or_says_so(folded: bool, dies: bool) -> None:
    """Another member leads at once, for the lease is lost too, and has not heard that the page was sent; or not even
    of the alert, before it is said again."""

    async def play(site: Site) -> None:
        await site.settle_down()
        led = site.leader()
        assert led is not None
        for name in {"a", "b", "c"} - {led}:
            site.senders[name].claims.is_sent = _unheard  # type: ignore[method-assign]
            if not folded:
                site.candidates[name][2].cancel()
        await site.say(AlertEdge("site", 1, (alert(1),)))
        for _ in range(6):
            await site.turn()
        assert [each.again for each in site.pages] == [False]
        site.servers.wipe()
        if dies:
            await site.kill(led)
        else:
            site.candidates[led] = site.candidates.pop(led)  # it looks at its lease last
        site.follow_again()
        await site.turn()
        await site.say(RestatedEdge("site", 2, (alert(1),)))
        for _ in range(30):
            await site.turn()
        assert site.leader() not in {None, led}
        await site.say(AlertEdge("site", 2, (alert(2),)))
        for _ in range(6):
            await site.turn()

    site = scene(play)
    first, *others, new = site.pages
    assert {each.notice.incident.key for each in others} <= {first.notice.incident.key}
    assert new.notice.incident.key != first.notice.incident.key
    assert not new.again, "nobody can have sent what is new"
    if not dies:
        assert not others, "who sent it says so"
    elif folded:
        assert [each.again for each in others] == [True]


def test_a_page_that_is_raised_right_after_all_is_lost_comes_once_and_plain() -> None:
    async def play(site: Site) -> None:
        await site.settle_down()
        site.servers.wipe()
        site.follow_again()
        await site.say(AlertEdge("site", 1, (alert(1),)))
        for _ in range(30):
            await site.turn()

    assert [each.again for each in scene(play).pages] == [False]


def folded(fold: IncidentFold, *edges: Edge) -> dict[str, dict[str, bytes]]:
    """Fold edges of a new log; return the fold's records, by kind."""
    servers = MemoryServers(lambda: START, {})
    found: dict[str, dict[str, bytes]] = {}
    for number, edge in enumerate(edges):
        servers.append("edges", encode(edge), str(number))
        step = fold.apply(servers.records[-1])
        for (kind, key), body in {} if step is None else step.changes.records.items():
            if body is not None:
                found.setdefault(kind, {})[key] = body
            else:
                found.get(kind, {}).pop(key, None)
    return found


def test_another_log_is_folded_from_its_begin_however_long_it_is_and_its_epochs_count() -> None:
    """A member was away while NATS lost everything, or all were restarted, and leaders begin at epoch 1."""
    fold = IncidentFold(RULES)
    assert fold.goes_on(LogEnd(5, 0))
    records = folded(fold, AlertEdge("site", 7, (alert(1),)))
    later = IncidentFold(RULES, position=position_of(lambda kind: records.get(kind, {})))
    assert later.goes_on(LogEnd(5, 1))
    assert not later.goes_on(LogEnd(9, 100))
    records = folded(later, AlertEdge("site", 1, (alert(2),)), AlertEdge("site", 2, (alert(3),)))
    assert (later.mark, later.outdated) == (2, 0)
    position = position_of(lambda kind: records.get(kind, {}))
    assert (position.mark, position.born, position.epochs) == (2, 9, {"site": 2})
    assert not later.goes_on(LogEnd(9, 1)), "shorter than it was: lost, and called the same"


def test_where_the_log_is_lost_what_fires_is_said_at_once_and_that_nothing_does() -> None:
    """The end of an alert may have been lost with it."""

    async def play() -> None:
        now, said = 0.0, []

        async def append(edge: Edge, _name: str) -> None:
            said.append(edge)

        relay = AlertRelay("a", append, lambda: {"2f": 3, "member/a": 0}, lambda: now)
        ours = msgspec.structs.replace(alert(1), rule="kilowatch_test", subject=Subject.NODE)
        relay.receive([], lambda: [ours], ())
        task = asyncio.create_task(relay.run())
        try:
            relay.restate()
            now = COMPLETE_SECONDS
            for _ in range(3):
                relay.restate()
            await until(lambda: len(said) == 5)
            assert [edge.evaluator for edge in said].count("2f") == 1
            relay.begin_anew()
            await until(lambda: len(said) == 7)
        finally:
            task.cancel()
        assert said[-2:] == [
            RestatedEdge("2f", 3, (), complete=True),
            RestatedEdge("member/a", 0, (ours,), complete=True),
        ]

    asyncio.run(play())


def test_out_of_a_blackout_who_led_leads_at_once_and_others_wait_for_a_lease() -> None:
    async def play(site: Site) -> None:
        for killed in (False, True):
            for _ in range(20):
                await site.turn()
            led = site.leader()
            assert led is not None
            site.servers.no_quorum = True
            for _ in range(20):
                await site.turn()
            assert site.leader() is None, "its lease ran out by its own clock"
            if killed:
                await site.kill(led)
            site.servers.no_quorum = False
            for _ in range(4):
                await site.turn()
            assert site.leader() == (None if killed else led)
        for _ in range(12):
            await site.turn()
        assert site.leader() not in {None, led}

    scene(play)


@pytest.mark.parametrize(
    "edge", [TickEdge(), AlertEdge("2f", 3, (alert(1),), ("x",)), AcknowledgeEdge("k", "w", until=5)]
)
def test_edges_are_read_as_they_were_written(edge: Edge) -> None:
    assert decode(encode(edge)) == edge
    with pytest.raises(msgspec.MsgspecError):
        decode(msgspec.msgpack.encode({"type": "later"}))
