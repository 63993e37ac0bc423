"""The ledger and the planner: whatever happens, what was sent is stored or known to be lost."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aggregator.config import BackfillConfig
from aggregator.ingest.backfill import BackfillPlanner
from aggregator.ingest.ledger import FrameLedger, SessionAccount
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import CommandReply, FrameSpan


def fresh() -> tuple[FrameLedger, SessionAccount]:
    ledger = FrameLedger()
    return ledger, ledger.account("a", 1, 0)


def test_frames_in_order_leave_nothing_missing() -> None:
    ledger, account = fresh()
    assert all(account.receive(seq) for seq in range(5))
    assert account.missing == 0
    assert ledger.opened == []


def test_a_jump_is_a_hole_and_the_account_is_taken_up() -> None:
    ledger, account = fresh()
    account.receive(0)
    account.receive(4)
    assert account.spans() == [(1, 3)]
    assert account.missing == 3
    assert ledger.opened == [account]


def test_a_session_first_seen_in_the_middle_misses_its_beginning() -> None:
    _, account = fresh()
    account.receive(10)
    assert account.spans() == [(0, 9)]


def test_a_frame_counts_once() -> None:
    _, account = fresh()
    assert account.receive(3)
    assert not account.receive(3)
    assert account.receive(1)
    assert account.spans() == [(0, 0), (2, 2)]


def test_what_was_dropped_from_memory_is_missing_again() -> None:
    _, account = fresh()
    for seq in range(4):
        account.receive(seq)
    account.forget(2)
    assert account.spans() == [(2, 2)]
    assert account.receive(2)


def test_only_what_is_missing_is_lost() -> None:
    _, account = fresh()
    account.receive(2)
    account.receive(5)
    holes = account.lose(0, 4, "gone")
    assert [(hole.first, hole.last) for hole in holes] == [(0, 1), (3, 4)]
    assert account.missing == 0
    assert account.lose(0, 5, "gone") == []
    assert not account.receive(3), "a frame that was given up does not come back to life"


def test_what_the_ring_no_longer_has_is_lost_with_its_exact_size() -> None:
    ledger, account = fresh()
    account.receive(0)
    holes = ledger.ring("a", 1, {1: FrameSpan(1, 100, 120)})
    assert [(hole.first, hole.last, hole.reason) for hole in holes] == [(1, 99, "ring_overflow")]
    assert account.spans() == [(100, 120)]


def test_an_old_session_that_the_ring_does_not_name_is_gone() -> None:
    ledger, old = fresh()
    old.receive(0)
    old.receive(9)
    new = ledger.account("a", 2, 1)
    new.receive(3)
    holes = ledger.ring("a", 2, {})
    assert [(hole.session, hole.first, hole.last) for hole in holes] == [(1, 1, 8)]
    assert new.spans() == [(0, 2)], "the current session may be too young to stand in the ring"


def test_a_restored_account_misses_what_the_store_has_not() -> None:
    ledger, account = fresh()
    ledger.restore(account, IntervalSet([(0, 3), (6, 7)]))
    assert account.spans() == [(4, 5)]
    assert ledger.opened == [account]


# -- The planner -------------------------------------------------------------------------------

CONFIG = BackfillConfig(nodes_at_once=2, frames_per_request=10)


def always(_: str) -> bool:
    return True


def test_a_hole_may_fill_by_itself_before_it_is_asked_for() -> None:
    ledger, account = fresh()
    planner = BackfillPlanner(CONFIG)
    account.receive(2)
    planner.wake(ledger.opened, 0.0)
    assert planner.plan(always, 0.2) == []
    account.receive(0)
    account.receive(1)
    assert planner.plan(always, 0.4) == []


def test_a_request_is_bounded_and_spans_neighbouring_holes() -> None:
    _, account = fresh()
    for seq in (3, 5, 30):
        account.receive(seq)
    planner = BackfillPlanner(CONFIG)
    planner.wake([account], 0.0)
    (ask,) = planner.plan(always, 1.0)
    assert (ask.command.about, ask.command.first, ask.command.last) == (1, 0, 9)


def test_a_far_hole_is_a_request_of_its_own() -> None:
    _, account = fresh()
    account.have = IntervalSet([(1, 50), (52, 60)])
    account.end, account.missing = 60, 2
    planner = BackfillPlanner(BackfillConfig(frames_per_request=100))
    planner.wake([account], 0.0)
    (ask,) = planner.plan(always, 1.0)
    assert (ask.command.first, ask.command.last) == (0, 0)


def test_only_so_many_nodes_are_asked_at_once() -> None:
    ledger = FrameLedger()
    accounts = [ledger.account(f"n{number}", 1, number) for number in range(5)]
    for account in accounts:
        account.receive(3)
    planner = BackfillPlanner(CONFIG)
    planner.wake(ledger.opened, 0.0)
    asked = [ask.node for ask in planner.plan(always, 1.0)]
    assert asked == ["n0", "n1"]
    assert planner.plan(always, 1.0) == []
    for seq in range(3):
        accounts[0].receive(seq)
    planner.replied(accounts[0], CommandReply(about=1, first=0, last=2, sent=3), 1.1)
    assert [ask.node for ask in planner.plan(always, 1.1)] == ["n2"]


def test_a_silent_node_is_asked_again_ever_more_patiently() -> None:
    ledger, account = fresh()
    account.receive(1)
    planner = BackfillPlanner(CONFIG)
    planner.wake(ledger.opened, 0.0)
    asked, now = [], 0.0
    while now < 200:
        asked += [now] * len(planner.plan(always, now))
        now = round(now + 0.1, 1)
    waits = [round(later - first, 1) for first, later in itertools.pairwise(asked)]
    assert waits[:6] == [2, 4, 8, 16, 30, 30]


def test_a_node_that_is_offline_is_not_asked_until_it_is_back() -> None:
    ledger, account = fresh()
    account.receive(1)
    planner = BackfillPlanner(CONFIG)
    planner.wake(ledger.opened, 0.0)
    assert planner.plan(lambda _: False, 1.0) == []
    assert planner.plan(always, 2.0) == []
    planner.wake([account], 3.0)
    assert len(planner.plan(always, 4.0)) == 1


def test_nothing_is_asked_for_while_the_store_is_behind() -> None:
    ledger, account = fresh()
    account.receive(1)
    planner = BackfillPlanner(CONFIG)
    planner.wake(ledger.opened, 0.0)
    planner.share = 0.0
    assert planner.plan(always, 1.0) == []
    planner.share = 1.0
    assert len(planner.plan(always, 1.1)) == 1


def test_what_the_node_says_is_gone_is_lost_but_never_its_future() -> None:
    _, account = fresh()
    account.receive(5)
    planner = BackfillPlanner(CONFIG)
    reply = CommandReply(about=1, first=0, last=4, gone=(FrameSpan(1, 0, 2), FrameSpan(1, 4, 1000)))
    holes = planner.replied(account, reply, 1.0)
    assert [(hole.first, hole.last) for hole in holes] == [(0, 2), (4, 4)]
    assert account.receive(6)


def test_one_frame_that_never_comes_readable_does_not_hold_up_the_others() -> None:
    ledger, account = fresh()
    account.receive(9)
    planner = BackfillPlanner(BackfillConfig(frames_per_request=8))
    planner.wake(ledger.opened, 0.0)
    lost, now = [], 0.0
    for _ in range(5000):
        for ask in planner.plan(always, now):
            first, last = ask.command.first, ask.command.last
            if not first <= 4 <= last:  # a message with frame 4 in it never decodes
                for seq in range(first, last + 1):
                    account.receive(seq)
            lost += planner.replied(account, CommandReply(about=1, first=first, last=last, sent=1), now)
        now += 0.5
    assert account.missing == 0
    assert [(hole.first, hole.last, hole.reason) for hole in lost] == [(4, 4, "unreadable")]


# -- The invariant -----------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("rfle"), st.integers(0, 30), st.integers(0, 5))))
def test_the_count_of_missing_frames_is_what_a_recount_says(steps: list[tuple[str, int, int]]) -> None:
    ledger, account = fresh()
    for kind, seq, more in steps:
        match kind:
            case "r":
                account.receive(seq)
            case "f" if seq in account.have:
                account.forget(seq)
            case "l":
                account.lose(seq, seq + more, "test")
            case "e":
                account.exists(seq)
            case _:
                pass  # nothing to forget
        recount = account.have.missing(0, account.end)
        assert account.missing == sum(end - first + 1 for first, end in recount)
        assert account.missing == 0 or account in ledger.opened


class World(RuleBasedStateMachine):
    """A node with a ring, a bus that loses, doubles and reorders, an aggregator that dies."""

    SESSIONS = 3

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.sent: set[tuple[int, int]] = set()
        self.ring: set[tuple[int, int]] = set()
        self.session = 1
        self.wire: list[tuple[int, int]] = []
        self.replies: list[CommandReply] = []
        self.committed: dict[tuple[int, int], int] = {}
        self.lost: dict[tuple[int, int], int] = {}
        self.restart()

    @rule()
    def restart(self) -> None:
        """kill -9 of the aggregator: only what was committed is remembered."""
        self.ledger = FrameLedger()
        self.planner = BackfillPlanner(BackfillConfig(frames_per_request=4, nodes_at_once=2))
        self.pending: list[tuple[int, int]] = []
        self.pending_lost: list[tuple[int, int]] = []
        stored: dict[int, IntervalSet] = {}
        for session, seq in [*self.committed, *self.lost]:
            stored.setdefault(session, IntervalSet()).add(seq)
        for session, spans in stored.items():
            self.ledger.restore(self.ledger.account("n", session, session), spans)
        self.status()

    @rule()
    def new_session(self) -> None:
        """The collector starts again, with its ring."""
        if self.session < self.SESSIONS:
            self.session += 1
            self.status()

    @rule(fate=st.sampled_from(["arrives", "arrives", "is lost", "comes twice"]))
    def sample(self, fate: str) -> None:
        seq = sum(1 for session, _ in self.sent if session == self.session)
        self.sent.add((self.session, seq))
        self.ring.add((self.session, seq))
        copies = {"arrives": 1, "is lost": 0, "comes twice": 2}[fate]
        self.wire += [(self.session, seq)] * copies

    @rule(order=st.randoms())
    def deliver(self, order: object) -> None:
        order.shuffle(self.wire)  # type: ignore[attr-defined]
        wire, self.wire = self.wire, []
        for session, seq in wire:
            if self.ledger.account("n", session, session).receive(seq):
                self.pending.append((session, seq))
        replies, self.replies = self.replies, []
        for reply in replies:
            account = self.ledger.find("n", reply.about)
            if account is not None:
                self.give_up(self.planner.replied(account, reply, self.now))

    @rule()
    def lose_on_the_way(self) -> None:
        self.wire.clear()

    @rule()
    def overflow(self) -> None:
        """The ring drops its oldest frames; not the last of a session: how many there were of a
        session that left no trace anywhere is what nobody can know."""
        newest = dict(sorted(self.sent))
        for session, seq in sorted(self.ring)[:2]:
            if seq < newest[session]:
                self.ring.discard((session, seq))

    @rule()
    def commit(self) -> None:
        for key in self.pending:
            self.committed[key] = self.committed.get(key, 0) + 1
        for key in self.pending_lost:
            self.lost[key] = self.lost.get(key, 0) + 1
        self.pending, self.pending_lost = [], []

    @rule()
    def drop_from_memory(self) -> None:
        for session, seq in self.pending[-2:]:
            self.ledger.account("n", session, session).forget(seq)
        self.pending = self.pending[:-2]

    @rule()
    def status(self) -> None:
        spans: dict[int, FrameSpan] = {}
        for session, seq in sorted(self.ring):
            first = spans[session].first if session in spans else seq
            spans[session] = FrameSpan(session, first, seq)
            self.ledger.account("n", session, session)
        self.give_up(self.ledger.ring("n", self.session, spans))
        self.planner.wake(self.ledger.of("n"), self.now)

    @rule(answered=st.booleans(), arrives=st.booleans())
    def ask(self, *, answered: bool, arrives: bool) -> None:
        self.now += 40.0
        opened, self.ledger.opened = self.ledger.opened, []
        self.planner.wake(opened, self.now - 1.0)
        for each in self.planner.plan(always, self.now):
            command = each.command
            ends = sum(1 for session, _ in self.sent if session == command.about) - 1
            wanted = [(command.about, seq) for seq in range(command.first, min(command.last, ends) + 1)]
            if arrives:
                self.wire += [key for key in wanted if key in self.ring]
            if answered:
                gone = tuple(FrameSpan(*key, key[1]) for key in wanted if key not in self.ring)
                self.replies.append(
                    CommandReply(about=command.about, first=command.first, last=command.last, gone=gone)
                )

    def give_up(self, holes: list) -> None:  # type: ignore[type-arg]
        for hole in holes:
            self.pending_lost += [(hole.session, seq) for seq in range(hole.first, hole.last + 1)]

    @invariant()
    def nothing_is_stored_twice_or_both_stored_and_lost(self) -> None:
        assert all(count == 1 for count in self.committed.values())
        assert all(count == 1 for count in self.lost.values())
        assert not set(self.committed) & set(self.lost)
        assert set(self.committed) | set(self.lost) <= self.sent

    def teardown(self) -> None:
        """Let everything come to rest: then stored and lost together are what was sent."""
        if not hasattr(self, "sent"):
            return
        for _ in range(6 + 2 * len(self.sent)):
            self.status()
            self.ask(answered=True, arrives=True)
            wire, self.wire = sorted(set(self.wire)), []
            self.wire = wire
            self.deliver(_InOrder())
            self.commit()
        self.nothing_is_stored_twice_or_both_stored_and_lost()
        assert set(self.committed) | set(self.lost) == self.sent


class _InOrder:
    def shuffle(self, _: object) -> None:
        """Leave it as it is."""


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
