"""A row of the failure matrix on real processes: nothing is lost, and nothing is refilled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from aggregator.cluster.groups import FLAPPING_JOINS
from telemetry.wire.topics import shard_of
from tests.cluster.loop import DEAD_AFTER, Loop

pytestmark = [pytest.mark.systems, pytest.mark.alone, pytest.mark.timeout(900)]
UPTIME = "kilowatch_aggregator_uptime_seconds"


@pytest.fixture
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    loop = Loop(tmp_path_factory.mktemp("loop"))
    loop.nats.start()
    loop.start(*loop.members, *loop.nodes)
    yield loop
    loop.end_all()


def seen(loop: Loop) -> bool:
    """Return whether each node shows online at the member that holds it."""
    for node in loop.nodes:
        holder = loop.holder(node)
        page = loop.page(holder, "/api/v1/nodes") if holder in loop.processes else None
        states = {each["node"]: each["state"] for each in (page or {}).get("nodes", ())}
        if states.get(node) != "online":
            return False
    return True


def numbers(groups: str) -> Iterator[int]:
    """Yield the groups of a move as it is shown: `00-3f, 7a`."""
    for part in groups.split(", "):
        first, _, last = part.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


@pytest.mark.long
def test_row_18_five_members_that_start_at_once_share_all_and_one_that_flaps_is_given_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A group moves once for each member that joins at most."""
    loop = Loop(tmp_path_factory.mktemp("five"), nodes=1, names="abcde")
    try:
        loop.nats.start()
        loop.start(*loop.members, *loop.nodes)
        loop.until("members that share all groups", lambda: loop.held_by(*loop.members))
        moved = Counter(
            group
            for beat in loop.beats().values()
            for move in beat.moves
            if move.kind in {"taken", "received"}
            for group in numbers(move.groups)
        )
        assert max(moved.values()) <= len(loop.members)
        flapper = next(name for name in loop.members if name != loop.holder(loop.nodes[0]))
        stay = [name for name in loop.members if name != flapper]
        for join in range(FLAPPING_JOINS):  # quickly: it may be given groups again a minute later
            start = loop.beats()[flapper].start
            loop.kill(flapper)
            if join == FLAPPING_JOINS - 1:
                # One that is back within a heartbeat has never lost its groups.
                loop.until(
                    "its groups at the others", lambda: {entry.owner for entry in loop.owners().values()} == set(stay)
                )
            loop.start(flapper)
            loop.until(
                "its next heartbeat",
                lambda start=start: flapper in (beats := loop.beats()) and beats[flapper].start != start,
            )
        owners, began = loop.owners(), loop.sample(stay[0], UPTIME)
        loop.until("two lives of a heartbeat", lambda: loop.sample(stay[0], UPTIME) > began + 2 * DEAD_AFTER)
        assert flapper in loop.beats()
        assert loop.owners() == owners
        loop.until("the node", lambda: seen(loop))
    finally:
        loop.end_all()


@pytest.mark.long  # a busy machine loses a frame on its way, which is requested
def test_a_member_that_is_stopped_hands_over_and_nothing_is_refilled(loop: Loop) -> None:
    """Row 2: the others receive before it ends. The oracle is every frame in the collectors' rings."""
    loop.until("members that share all groups", lambda: loop.held_by(*loop.members))
    loop.until("all nodes", lambda: seen(loop))
    loop.until("no missing frame", loop.complete)
    leaver = loop.holder(loop.nodes[0])
    stay = [name for name in loop.members if name != leaver]
    requests = "kilowatch_aggregator_resend_requests_total"
    before = {name: loop.sample(name, requests) for name in stay}
    assert loop.end(leaver) == 0
    loop.until("the groups of the one that left", lambda: loop.held_by(*stay))
    loop.until("all nodes at the others", lambda: seen(loop))
    assert {name: loop.sample(name, requests) for name in stay} == before
    for node in loop.nodes:
        assert loop.end(node) == 0
    loop.until("no missing frame", loop.complete)
    for name in stay:
        assert loop.end(name) == 0
    published = loop.published()
    stored = {name: loop.stored(name) for name in loop.members}
    for name, frames in stored.items():
        assert len(frames) == len(set(frames)), f"{name} stored a frame twice"
    lost = published - {each for frames in stored.values() for each in frames}
    assert not lost, Counter((node, shard_of(node), session) for node, session, _ in lost)
    assert len(published) > 50
