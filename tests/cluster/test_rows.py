"""Rows of the failure matrix on real processes: nothing is lost, nobody is paged twice, nothing moves that need
not, and every member answers for all.

One site is broken row after row, for to start it takes longer than a row. The oracle of all rows is at the
end: what was published, and what the webhook received. How long a page takes, also while parts die, is measured
by `make cluster-faults`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from aggregator.cluster.groups import PROTOCOL
from telemetry.runtime.release import release
from tests.cluster import faults
from tests.cluster.hall import HOT_RULE, Hall, hall_in
from tests.cluster.loop import DEAD_AFTER, SINGLE

pytestmark = [pytest.mark.systems, pytest.mark.alone, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hall]:
    with hall_in(tmp_path_factory.mktemp("rows"), feeds=17, gpus=2000, spill_seconds=15.0) as hall:
        yield hall


def test_row_22_a_breaker_over_three_members_pages_once(hall: Hall) -> None:
    feed = hall.overload()
    hall.paged(feed)
    hall.paged_once(feed)


def test_rows_4_and_5_a_judge_killed_while_it_sends_has_the_page_sent_again_under_its_key(hall: Hall) -> None:
    """A page is in flight, and a breaker trips at the second in which the judge dies."""
    loop, leader = hall.loop, hall.sure_leader()
    flying = hall.pager.held = hall.overload()
    loop.until("a page in flight", lambda: hall.pager.pages(HOT_RULE, flying))
    feed = hall.overload()
    with faults.killed(hall, leader):
        hall.pager.held = ""
        hall.paged(feed)
        loop.until("the page once more", lambda: hall.check_pages(flying) == 2)
        for each in (flying, feed):
            hall.paged_once(each)
    assert hall.check_pages(flying) == 2
    hall.whole()


def test_row_10_without_most_servers_members_go_on_and_the_page_comes_once(hall: Hall) -> None:
    """Row 11 too: then without any. Whoever had a group has it when they are back."""
    loop = hall.loop
    loop.until("no missing frame", loop.complete)
    owners = loop.owners()
    with faults.servers_killed(hall, 0, 1):
        loop.until("all members see it", lambda: all("cluster_lost" in hall.health(name) for name in loop.members))
        feed = hall.overload()
        with faults.servers_killed(hall, 2):
            loop.until("frames that only the rings have", lambda: len(hall.rack.sampled()) % 5 == 0)
    hall.paged(feed)
    hall.whole()
    hall.paged_once(feed)
    loop.until("what the rings kept", loop.complete)
    assert {group: entry.owner for group, entry in loop.owners().items()} == {
        group: entry.owner for group, entry in owners.items()
    }


def test_row_13_a_server_that_is_cut_off_leaves_one_writer_an_epoch(hall: Hall) -> None:
    """It leads the table of owners, and stands still for longer than a member may be silent."""
    loop, owners = hall.loop, hall.loop.owners()
    number = loop.nats.servers.index(loop.nats.stream_leader("KV_kw-loop-owners"))
    with faults.server_stopped(hall, number):
        loop.until("the table without it", lambda: loop.owners(but=number), 60)
        feed = hall.overload()
        hall.paged(feed)
        hall.rack.wait(DEAD_AFTER + 2)
    hall.whole()
    hall.paged_once(feed)
    # A member that was connected there may have been taken for dead: then under a higher epoch.
    for group, entry in loop.owners().items():
        assert entry.epoch > owners[group].epoch or entry == owners[group]


@pytest.mark.long
def test_row_14_a_member_that_is_cut_off_drops_out_and_comes_back(hall: Hall) -> None:
    """It goes on, sends nothing, and drops the groups that others have."""
    loop = hall.loop
    lonely = next(name for name in loop.members if name != hall.sure_leader())
    stay = [name for name in loop.members if name != lonely]
    before = loop.owners()
    with loop.cut(lonely):
        feed = hall.overload()
        loop.until("its groups at the others", lambda: {entry.owner for entry in loop.owners().values()} == set(stay))
        assert "cluster_lost" in hall.health(lonely)
        hall.paged(feed)
        after = loop.owners()
        moved = {group: (before[group], entry) for group, entry in after.items() if entry.epoch != before[group].epoch}
        strangers = {group: each for group, each in moved.items() if each[0].owner != lonely}
        assert moved
        assert not strangers, f"{lonely} was cut off: {strangers}; {loop.beats()}"
    hall.whole()
    hall.paged_once(feed)
    assert all(entry.epoch >= after[group].epoch for group, entry in loop.owners().items())


def test_row_12_wiped_streams_cost_no_frame_no_page_and_no_epoch(hall: Hall) -> None:
    """Epochs go on rising, and what fires is said again under its key."""
    loop, before = hall.loop, hall.loop.owners()
    with faults.streams_wiped(hall):
        feed = hall.overload()
        loop.until("the table is written anew", lambda: len(loop.owners()) == 256)
        hall.paged(feed)
    hall.whole()
    hall.paged_once(feed)
    highest = max(entry.epoch for entry in before.values())
    assert min(entry.epoch for entry in loop.owners().values()) > highest


@pytest.mark.long
def test_rows_3_and_6_a_judge_that_slept_is_fenced_and_pages_nothing_again(hall: Hall) -> None:
    """It is taken for dead, and drops the groups that others have."""
    loop, zombie = hall.loop, hall.sure_leader()
    stay = [name for name in loop.members if name != zombie]
    with faults.stopped(hall, zombie):
        feed = hall.overload()
        hall.paged(feed)
        loop.until("its groups at the others", lambda: {entry.owner for entry in loop.owners().values()} == set(stay))
        epochs = {group: entry.epoch for group, entry in loop.owners().items()}
    hall.whole()
    hall.paged_once(feed)
    assert all(entry.epoch >= epochs[group] for group, entry in loop.owners().items())


def test_row_1_a_member_that_is_killed_loses_its_groups_and_no_frame(hall: Hall) -> None:
    """Its groups go to the others, no other groups move, and a breaker that trips meanwhile is paged."""
    loop = hall.loop
    leader = hall.sure_leader()
    victim = next(name for name in loop.members if name != leader)
    stay = [name for name in loop.members if name != victim]
    loop.until("no missing frame", loop.complete)
    owners = loop.owners()
    feed = hall.overload()
    with faults.killed(hall, victim):
        hall.paged(feed)
        loop.until("its groups at the others", lambda: loop.held_by(*stay))
        moved = [group for group, entry in loop.owners().items() if entry.epoch != owners[group].epoch]
        assert {owners[group].owner for group in moved} == {victim}
        assert f"member/{victim}" in hall.health(leader)
        loop.until("what the spill lacked", loop.complete)
    hall.whole()
    hall.paged_once(feed)


def test_row_9_no_group_of_a_living_member_moves_when_the_leader_of_the_log_dies(hall: Hall) -> None:
    """No death is concluded from a blackout. Row 8 too: clients that were connected there go on elsewhere."""
    loop = hall.loop
    owners = loop.owners()
    number = loop.nats.servers.index(loop.nats.stream_leader("kw-loop-log"))
    feed = hall.overload()
    with faults.servers_killed(hall, number):
        hall.paged(feed)
        loop.until("the table is back", lambda: len(loop.owners()) == 256)
        loop.until("all nodes again", hall.seen)
        loop.until("no missing frame", loop.complete)
        assert loop.owners() == owners
    hall.paged_once(feed)


def test_rows_15_and_16_a_storage_that_is_away_or_damaged_stops_nothing(hall: Hall) -> None:
    """Members go on, say so, and catch up; a file that is torn is named, and the others are answered."""
    loop, storage = hall.loop, hall.loop.storage
    assert storage is not None
    with faults.storage_away(hall):
        loop.until(
            "all members say so", lambda: all("shared_storage_failing" in hall.health(name) for name in loop.members)
        )
        loop.until("the nodes show", hall.seen)
    whole = next(iter(storage.rglob("*.parquet")))
    torn = whole.with_name(f"{whole.name.partition('Z-')[0]}Z-0000000001.parquet")
    torn.write_bytes(whole.read_bytes()[:-9])
    loop.until("it is named", lambda: all(torn.name in hall.health(name) for name in loop.members))
    loop.until("all answer", lambda: all(loop.answered(name, loop.nodes[0]) for name in loop.members))
    torn.unlink()
    loop.until("all is well", lambda: not any("shared_storage_failing" in hall.health(name) for name in loop.members))


def test_row_15_a_member_whose_disk_is_full_goes_on_and_stores_what_came_later(hall: Hall) -> None:
    loop = hall.loop
    full = loop.holder(loop.nodes[0])
    stored = "kilowatch_aggregator_frames_stored_total"
    with faults.disk_full(hall, full):
        loop.until("it says so", lambda: "store_failing" in hall.health(full))
        before = loop.sample(full, stored)
        hall.rack.wait(2)
        assert loop.sample(full, stored) == before
        loop.until("the present is shown", hall.seen)
        feed = hall.overload()
        hall.paged(feed)
    loop.until("all is stored", lambda: loop.sample(full, stored) > before)
    loop.until("it is well", lambda: "store_failing" not in hall.health(full))
    hall.whole()
    hall.paged_once(feed)


def test_row_17_wrong_clocks_move_nothing_and_page_once(hall: Hall) -> None:
    """Leases are held by monotonic clocks, incidents by the log's."""
    loop = hall.loop
    owners, judge = loop.owners(), hall.sure_leader()
    first, second, third = loop.members
    with faults.clocks_stepped(hall, {first: 30.0, second: -30.0}):
        feed = hall.overload()
        hall.paged(feed)
        with faults.clocks_stepped(hall, {third: -120.0}):
            hall.rack.wait(DEAD_AFTER)
            hall.paged_once(feed)
    assert loop.owners() == owners
    assert hall.sure_leader() == judge


@pytest.mark.long
def test_row_19_a_judge_with_a_tenth_of_the_time_slows_no_other_member(hall: Hall) -> None:
    """The page comes, from it or from the next judge; the others store what they receive."""
    loop, slow = hall.loop, hall.sure_leader()
    others = [name for name in loop.members if name != slow]
    with faults.slowed(hall, slow):
        feed = hall.overload()
        before = {name: loop.sample(name, "kilowatch_aggregator_frames_stored_total") for name in others}
        hall.paged(feed)
        for name in others:
            loop.until(
                f"frames stored at {name}",
                lambda name=name: loop.sample(name, "kilowatch_aggregator_frames_stored_total") > before[name],
            )
    hall.whole()
    hall.paged_once(feed)


@pytest.mark.long
def test_row_20_two_releases_run_side_by_side_and_a_third_is_refused_by_its_name(hall: Hall) -> None:
    """One before the protocol had a number, as 2026.1, and a later one; both would take groups if they were let."""
    loop, leader = hall.loop, hall.sure_leader()
    old = next(name for name in loop.members if name != leader)
    stay = [name for name in loop.members if name != old]
    with faults.ended(hall, old):
        loop.until("its groups at the others", lambda: loop.held_by(*stay))
        owners = loop.owners()
        with faults.other_release(hall, old, 0, 0, checks=False):
            text = f"{old} runs {release()} with protocol 0, and {release()} needs 1 or higher: upgrade {old}"
            loop.until("all say why", lambda: all(text in hall.health(name) for name in stay))
        with faults.other_release(hall, old, 9, 9):
            text = f"runs {release()} with protocol {PROTOCOL}, and {release()} needs 9 or higher"
            loop.until("it says why", lambda: text in hall.health(old))
            assert old not in loop.beats()
        assert loop.owners() == owners
        with faults.other_release(hall, old, PROTOCOL - 1, 0):
            loop.until("it has its groups", lambda: loop.held_by(*loop.members))
            loop.until("all nodes on every member", lambda: all(map(hall.sees, loop.members)))
            feed = hall.overload()
            hall.paged(feed)
            hall.paged_once(feed)
            for name in loop.members:
                assert all(loop.answered(name, node) for node in loop.nodes)
                assert not loop.page(name, "/api/v1/nodes")["missing"]
    hall.whole()


@pytest.mark.long
def test_row_21_a_power_cut_loses_no_page_that_was_claimed_and_no_frame(hall: Hall) -> None:
    """Simulated: members start again from what they had synced. nats-server syncs before it acknowledges, and keeps
    what it wrote."""
    loop = hall.loop
    with faults.power_cut(hall):
        flying = hall.pager.held = hall.overload()
        loop.until("a page in flight", lambda: hall.pager.pages(HOT_RULE, flying))
        feed = hall.overload()
    hall.pager.held = ""
    hall.paged(feed)
    hall.whole()
    for each in (flying, feed):
        hall.paged_once(each)
    loop.until("what the rings kept", loop.complete)


@pytest.mark.long
def test_row_7_the_last_of_three_judges_and_holds_all(hall: Hall) -> None:
    """The judge and another member die at once, as a breaker trips."""
    loop, leader = hall.loop, hall.sure_leader()
    other, last = (name for name in loop.members if name != leader)
    feed = hall.overload()
    with faults.killed(hall, leader, other):
        hall.paged(feed)
        loop.until("all groups at one", lambda: loop.held_by(last))
        hall.paged_once(feed)
        loop.until("what the spills lacked", loop.complete)
    hall.whole()
    hall.paged_once(feed)


def test_every_frame_is_answered_once_by_every_member_and_every_page_came_once(hall: Hall) -> None:
    """The oracle of all rows before. One aggregator that had all of it answers with the same bytes."""
    loop = hall.loop
    loop.start(SINGLE)
    loop.until(
        "all that the rings have at one",
        lambda: (
            loop.sample(SINGLE, "kilowatch_aggregator_frames_stored_total") > 180
            and loop.sample(SINGLE, "kilowatch_aggregator_holes_open") == 0
        ),
    )
    hall.rest()
    hot = [feed for feed in hall.feeds if hall.pager.pages(HOT_RULE, feed)]
    assert not any(hall.pager.pages("circuit_overload", feed) for feed in hot)
    racks = [nodes[0] for nodes in hall.feeds.values()]
    hall.check_frames(loop.nodes, racks, loop.members)
    node = loop.nodes[1]  # it has been at several members
    times = sorted(loop.sampled(node))
    hall.check_frames([node], [], [SINGLE])
    power, energy = (f"gpu={loop.gpu(node)}&metric={name}" for name in ("gpu_power_watts", "gpu_energy_joules_total"))
    # Of an hour that is over members have roll-ups too, which don't keep the lowest reading of a counter.
    begin = max(times[0] // 10**9 - 1, times[-1] // 10**9 // 3600 * 3600)
    for about, step in (
        (power, "0"),
        (power, "7s"),
        (energy, "1m"),
        (f"node={node}&metric=node_cpu_utilization_ratio", "10s"),
    ):
        query = f"/api/v1/history?{about}&step={step}&from={begin}&to={times[-1] // 10**9 + 1}"
        one = loop.body(SINGLE, query)
        assert len(json.loads(one)["at"]) > 1
        assert {loop.body(name, query) == one for name in loop.members} == {True}, query
    for feed in hot:
        hall.check_pages(feed)
    for name in loop.members:
        assert loop.end(name) == 0
