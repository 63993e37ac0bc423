"""Groups have one holder an epoch, whatever dies, goes blind or wakes up, and in whatever order."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aggregator.cluster.groups import (
    FLAPPING_SECONDS,
    GROUPS,
    JOIN_SECONDS,
    GroupPlanner,
    MemberBeat,
    MoveKind,
    refusal,
    summary,
    target,
)
from aggregator.cluster.port import BucketEntry

DEAD_AFTER = 10.0
STEP = 1.0


class Table:
    """Entries with compare-and-set, as the port has them."""

    def __init__(self) -> None:
        self.entries: dict[str, BucketEntry] = {}
        self.revision = 0

    def write(self, key: str, value: bytes, revision: int | None = None) -> int | None:
        found = self.entries.get(key)
        if revision is not None and (0 if found is None else found.revision) != revision:
            return None
        self.revision += 1
        self.entries[key] = BucketEntry(value, self.revision)
        return self.revision


class World:
    """Members, their planners and the tables between them; time goes by in steps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.members, self.owners = Table(), Table()
        self.planners: dict[str, GroupPlanner] = {}
        self.stopped: set[str] = set()
        self.blind: set[str] = set()
        self.starts = 0
        self.holders: dict[tuple[str, int], str] = {}
        """Process that ever held a group in an epoch."""
        self.moves: Counter[str] = Counter()

    def start(self, name: str, weight: float = 1.0, protocol: int = 0, oldest: int = 0) -> None:
        self.starts += 1
        own = MemberBeat(
            start=f"s{self.starts}", weight=weight, version=f"2026.{protocol}", protocol=protocol, oldest=oldest
        )
        self.planners[name] = GroupPlanner(name, own, DEAD_AFTER, self.now)
        self.stopped.discard(name)
        self.blind.discard(name)

    def kill(self, name: str) -> None:
        del self.planners[name]
        self.stopped.discard(name)
        self.blind.discard(name)

    def step(self, seconds: float = STEP) -> None:
        self.now += seconds
        for name in sorted(self.planners):
            if name not in self.stopped:
                self.round(name)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.step()

    def round(self, name: str) -> None:
        planner = self.planners[name]
        if name in self.blind:
            planner.blind(self.now)
            assert planner.plan(self.now) == []
            return
        self.members.write(name, msgspec.json.encode(planner.beat()))
        planner.observe(dict(self.members.entries), dict(self.owners.entries), self.now)
        for move in planner.plan(self.now):
            if move.kind is MoveKind.STOP:
                planner.stopped(move.group)
            elif move.kind is MoveKind.START:
                self.hold(name, move.group, move.entry.epoch)
            else:
                revision = self.owners.write(move.group, msgspec.json.encode(move.entry), move.revision)
                if revision is None:
                    continue
                planner.written(move, revision)
                self.moves[move.group] += 1
                if move.kind is MoveKind.TAKE:
                    self.hold(name, move.group, move.entry.epoch)

    def hold(self, name: str, group: str, epoch: int) -> None:
        planner = self.planners[name]
        holder = f"{name}/{planner.own.start}"
        assert self.holders.setdefault((group, epoch), holder) == holder
        planner.started(group, epoch)

    def shares(self) -> dict[str, int]:
        return {name: len(planner.held) for name, planner in self.planners.items()}


def settled(*names: str) -> World:
    world = World()
    for name in names:
        world.start(name)
    world.run(30)
    assert sum(world.shares().values()) == len(GROUPS)
    return world


def test_members_that_start_together_move_each_group_once() -> None:
    """Five joiners wait for each other instead of passing groups on."""
    world = World()
    for name in "abcde":
        world.start(name)
        world.step(0.5)
    world.run(30)
    assert sum(world.shares().values()) == len(GROUPS)
    assert set(world.moves.values()) == {1}
    assert JOIN_SECONDS > 5 * 0.5


def test_only_the_groups_of_a_dead_member_move() -> None:
    """They move within its time to be dead and a pass; no other group does."""
    world = settled("a", "b", "c")
    lost = set(world.planners["b"].held)
    before = dict(world.moves)
    world.kill("b")
    world.run(DEAD_AFTER - 1)
    assert world.moves == before
    world.run(2 + len(lost) / 16)
    assert {group for group, count in world.moves.items() if count > before[group]} == lost
    assert sum(world.shares().values()) == len(GROUPS)


def test_a_pair_loses_one_and_the_other_holds_everything() -> None:
    """One of two is no majority that went silent at once."""
    world = settled("a", "b")
    world.kill("a")
    world.run(DEAD_AFTER + 12)
    assert world.shares() == {"b": len(GROUPS)}


def test_the_survivor_of_three_waits_longer_and_then_holds_everything() -> None:
    """Two at once may be a fault of the table; not for ever."""
    world = settled("a", "b", "c")
    held = set(world.planners["c"].held)
    world.kill("a")
    world.kill("b")
    world.run(2 * DEAD_AFTER)
    assert set(world.planners["c"].held) == held
    world.run(DEAD_AFTER + 20)
    assert world.shares() == {"c": len(GROUPS)}


def test_a_blackout_of_all_moves_nothing() -> None:
    """The table's leader died: 127 moves of living members' groups without this rule."""
    world = settled("a", "b", "c")
    before = dict(world.moves)
    world.blind |= {"a", "b", "c"}
    world.run(3 * DEAD_AFTER)
    for name in "cba":
        world.blind.discard(name)
        world.run(3)
    world.run(3 * DEAD_AFTER)
    assert world.moves == before


def test_a_process_that_stood_still_gives_up_what_others_took() -> None:
    """Its groups have a higher epoch by then, and it takes nothing out of its own sleep."""
    world = settled("a", "b", "c")
    world.stopped.add("a")
    world.run(3 * DEAD_AFTER)
    assert world.shares()["b"] + world.shares()["c"] == len(GROUPS)
    world.stopped.discard("a")
    world.step()
    assert world.shares()["a"] == 0
    world.run(60)
    assert sum(world.shares().values()) == len(GROUPS)
    assert world.shares()["a"] > 0


def test_a_lost_table_is_written_again_with_higher_epochs() -> None:
    """Epochs are in values: a table that begins again at revision 1 un-fences nobody."""
    world = settled("a", "b", "c")
    before = {group: epoch for each in world.planners.values() for group, epoch in each.held.items()}
    shares = world.shares()
    world.members, world.owners = Table(), Table()
    world.run(3 * DEAD_AFTER)
    after = {group: epoch for each in world.planners.values() for group, epoch in each.held.items()}
    assert world.shares() == shares
    assert all(after[group] > epoch for group, epoch in before.items())


def test_a_server_that_is_behind_for_some_rounds_has_not_lost_the_table() -> None:
    """Rounds of milliseconds, as while groups move: each entry keeps its epoch."""
    world = settled("a", "b")
    known, now = dict(world.owners.entries), world.now
    some = dict(list(known.items())[:100])
    planner = world.planners["a"]
    for _ in range(5):
        now += 0.05
        world.members.write("a", msgspec.json.encode(planner.beat()))
        planner.observe(dict(world.members.entries), some, now)
        assert planner.plan(now) == []
    world.now = now
    world.run(30)
    assert world.owners.entries == known


def test_a_leaving_member_hands_everything_over() -> None:
    """Nobody waits for its death."""
    world = settled("a", "b", "c")
    world.planners["a"].beat(leaving=True)
    world.run(DEAD_AFTER)
    assert world.shares()["a"] == 0
    assert sum(world.shares().values()) == len(GROUPS)


def test_a_member_that_comes_and_goes_is_given_nothing_for_a_minute() -> None:
    """Row 18: each of its returns would move its groups to and fro."""
    world = settled("a", "b")
    for _ in range(4):
        world.start("c")
        world.run(5)
        world.kill("c")
    world.run(2 * DEAD_AFTER)
    world.start("c")
    before = sum(world.moves.values())
    world.run(FLAPPING_SECONDS / 3)
    assert sum(world.moves.values()) == before
    world.run(FLAPPING_SECONDS)
    assert world.shares()["c"] > 0


def test_a_member_of_the_release_before_works_and_one_before_it_is_given_nothing() -> None:
    """Row 20: two releases run side by side, and a third is refused by its name."""
    world = World()
    for name in "ab":
        world.start(name, protocol=2, oldest=1)
    world.start("old", protocol=1, oldest=0)
    world.run(30)
    assert min(world.shares().values()) > 0
    world.start("older", protocol=0)
    before = world.moves.copy()
    world.run(3 * DEAD_AFTER)
    assert world.moves == before
    assert world.shares()["older"] == 0
    assert (
        world.planners["a"].refused
        == world.planners["old"].refused
        == {"older": "older runs 2026.0 with protocol 0, and 2026.2 needs 1 or higher: upgrade older"}
    )
    own = MemberBeat(start="x", version="2026.1", protocol=1)
    assert refusal(own, "a", world.planners["a"].own) == ""
    newer = MemberBeat(start="y", version="2026.3", protocol=3, oldest=2)
    assert refusal(own, "b", newer) == (
        "b runs 2026.3, which needs protocol 2 or higher, and this one runs 2026.1 with 1: upgrade this one"
    )


def test_a_member_takes_no_more_than_its_rate_at_once() -> None:
    """Each group begins with a refill."""
    world = World()
    world.start("a")
    for _ in range(30):
        before = len(world.planners["a"].held)
        world.step()
        assert len(world.planners["a"].held) - before <= 16
    assert world.shares() == {"a": len(GROUPS)}


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_groups_are_divided_by_weight(weight: float) -> None:
    """A machine of twice the size has about twice the groups."""
    weights = {"a": 1.0, "b": 1.0, "c": weight}
    share = Counter(target(group, weights) for group in GROUPS)["c"] / len(GROUPS)
    assert share == pytest.approx(weight / (2 + weight), rel=0.25)


def test_groups_are_shown_as_ranges() -> None:
    """People read them in the output of the command."""
    assert summary(["00", "01", "02", "7a"]) == "00-02, 7a"


class AnyOrder(RuleBasedStateMachine):
    """Deaths, blackouts, sleeps, lost tables and returns, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        for name in "abc":
            self.world.start(name)

    @rule(name=st.sampled_from("abcd"))
    def start(self, name: str) -> None:
        if name not in self.world.planners:
            self.world.start(name)

    @precondition(lambda self: self.world.planners)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.world.kill(data.draw(st.sampled_from(sorted(self.world.planners))))

    @precondition(lambda self: self.world.planners)
    @rule(data=st.data(), kind=st.sampled_from(["stopped", "blind"]))
    def turn(self, data: st.DataObject, kind: str) -> None:
        """Stop or wake a process, cut it off or let it back."""
        getattr(self.world, kind).symmetric_difference_update({data.draw(st.sampled_from(sorted(self.world.planners)))})

    @rule()
    def leave(self) -> None:
        for planner in self.world.planners.values():
            planner.beat(leaving=True)
            break

    @rule()
    def lose_the_members(self) -> None:
        self.world.members = Table()

    @rule(steps=st.sampled_from([1, 4, 15]))
    def go_on(self, steps: int) -> None:
        self.world.run(steps)

    @invariant()
    def everybody_knows_their_own_epochs(self) -> None:
        """`World.hold` checks that an epoch has one holder; and an entry has no lower one than was."""
        highest: dict[str, int] = {}
        for group, epoch in self.world.holders:
            highest[group] = max(highest.get(group, 0), epoch)
        for group, entry in self.world.owners.entries.items():
            epoch = msgspec.json.decode(entry.value)["epoch"]
            assert epoch >= highest.get(group, 0)

    def teardown(self) -> None:
        """Whatever happened, one quiet while later each group has one holder."""
        world = self.world
        world.stopped.clear()
        world.blind.clear()
        for name in [name for name, each in world.planners.items() if each.own.leaving]:
            world.kill(name)
        if not world.planners:
            world.start("a")
        world.run(6 * DEAD_AFTER + FLAPPING_SECONDS)
        moves = sum(world.moves.values())
        held = Counter(group for each in world.planners.values() for group in each.held)
        assert held == Counter(GROUPS)
        world.run(10)
        assert sum(world.moves.values()) == moves


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=6, stateful_step_count=15, deadline=None)
