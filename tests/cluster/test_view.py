"""The one view of all members: readings that a holder gives are shown, and those that no holder gives are known to be
unknown."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from aggregator.cluster.ask import PART_BYTES, MemberAnswers, decoded
from aggregator.cluster.cluster_view import PastPart
from aggregator.cluster.fleet_copy import GONE_SECONDS, FleetCopy, FleetPart, FleetSource
from aggregator.cluster.groups import GROUPS
from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import Bucket, CoordinationError
from aggregator.register.node_status import status_of
from api.fleet import NodeStatus
from telemetry.fleet import Floats, gaps_of
from telemetry.gap import Gap
from telemetry.metric import Table
from telemetry.wire.topics import shard_of
from tests.aggregator.fake_view import FakeView, inventory

ALL = dict.fromkeys(GROUPS, 1)


def part_of(view: FakeView, source: FleetSource, copy: FleetCopy, member: str, **groups: int) -> FleetPart:
    """Return what a member answers, as it comes over the wire."""
    asked = copy.question(member)
    part = source.part(view.fleet, groups or ALL, asked, view.now(), [], [])
    return msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=FleetPart)


async def holder(*nodes: str) -> FakeView:
    """Return a member with some nodes that have sent a frame each."""
    view = FakeView()
    for name in nodes:
        view.add(inventory(name))
    await view.tick(0)
    return view


def power(copy: FleetCopy, node: str, now: float) -> Floats:
    """Return the power of a node's GPUs."""

    return copy.fleet.column("gpu_power_watts", now)[copy.fleet.nodes[node].rows[Table.GPU]]


async def test_a_copy_has_the_readings_states_and_ages_of_its_holders() -> None:
    """Whoever is asked shows the same fleet."""
    a, b = await holder("n1", "n2"), await holder("n3")
    sources, copy = (FleetSource("pa"), FleetSource("pb")), FleetCopy()
    groups = [{shard_of(name): 1 for name in view.fleet.nodes} for view in (a, b)]
    for second in range(3):
        parts = {
            "a": part_of(a, sources[0], copy, "a", **groups[0]),
            "b": part_of(b, sources[1], copy, "b", **groups[1]),
        }
        assert all((state.inventory is None) == bool(second) for state in parts["a"].nodes)
        copy.update(parts, 500.0 + second)
        for view in (a, b):
            for name, node in view.fleet.nodes.items():
                mine = copy.fleet.nodes[name]
                assert status_of(mine, 500.0 + second) is NodeStatus.ONLINE
                assert (mine.session, mine.seq, mine.sampled_at) == (node.session, node.seq, node.sampled_at)
                assert 500.0 + second - mine.seen == pytest.approx(view.now() - node.seen)
                for matrix, its in zip(copy.fleet.matrices, view.fleet.matrices, strict=True):
                    rows, theirs = mine.rows[its.block.table], node.rows[its.block.table]
                    np.testing.assert_array_equal(
                        matrix.gauges[rows].view(np.uint32), its.gauges[theirs].view(np.uint32)
                    )
                    np.testing.assert_array_equal(matrix.counters[rows], its.counters[theirs])
        await a.tick(second + 1)
        await b.tick(second + 1)


async def test_only_rows_that_came_since_travel_again() -> None:
    """A second without a frame costs states alone."""
    a, source, copy = await holder("n1"), FleetSource("p"), FleetCopy()
    a.monotonic += 0.5
    copy.update({"a": part_of(a, source, copy, "a")}, 500.0)
    a.monotonic += 0.5
    assert not part_of(a, source, copy, "a").blocks
    await a.tick(1)
    assert part_of(a, source, copy, "a").blocks
    other = FleetSource("another process")
    assert part_of(a, other, copy, "a").nodes[0].inventory is not None


async def test_a_node_whose_holder_does_not_answer_is_neither_well_nor_gone() -> None:
    """Its GPUs are there, and nothing is known of them."""
    a, source, copy = await holder("n1"), FleetSource("p"), FleetCopy()
    copy.update({"a": part_of(a, source, copy, "a")}, 500.0)
    assert not np.isnan(power(copy, "n1", 500.0)).any()
    for now in (501.0, 501.0 + 10 * GONE_SECONDS):
        copy.update({}, now)
        assert status_of(copy.fleet.nodes["n1"], now) is NodeStatus.UNHEARD
        assert set(gaps_of(power(copy, "n1", now)).tolist()) == {int(Gap.STALE)}
    a.monotonic += 1
    copy.update({"a": part_of(a, source, copy, "a")}, 699.0)
    copy.update({"a": part_of(a, source, copy, "a")}, 700.0)
    assert status_of(copy.fleet.nodes["n1"], 700.0) is NodeStatus.ONLINE
    assert not np.isnan(power(copy, "n1", 700.0)).any()


async def test_a_node_that_its_holder_does_not_name_goes_after_a_while() -> None:
    """A holder that has just got the group may not know all of its nodes yet."""
    a, source, copy = await holder("n1"), FleetSource("p"), FleetCopy()
    copy.update({"a": part_of(a, source, copy, "a")}, 500.0)
    a.fleet.remove("n1")
    copy.update({"a": part_of(a, source, copy, "a")}, 501.0)
    assert status_of(copy.fleet.nodes["n1"], 501.0) is NodeStatus.UNHEARD
    copy.update({"a": part_of(a, source, copy, "a")}, 502.0 + GONE_SECONDS)
    assert "n1" not in copy.fleet.nodes


async def test_of_two_that_have_a_node_the_newest_is_shown_and_the_higher_epoch_counts() -> None:
    """A member that woke up late says nothing that is believed; while a group moves both are right."""
    old, new, copy = await holder("n1"), await holder("n1"), FleetCopy()
    await new.tick(7)
    old.monotonic += 30.0
    group = shard_of("n1")
    for parts in (("old", "new"), ("new", "old")):
        views = {"old": (old, 3), "new": (new, 4)}
        answers = {
            name: part_of(views[name][0], FleetSource(name), copy, name, **{group: views[name][1]}) for name in parts
        }
        copy.update(answers, 500.0)
        assert copy.fleet.nodes["n1"].seq == 7
        assert copy.vouches("new", "n1")
        assert not copy.vouches("old", "n1")


async def test_columns_of_another_release_are_taken_by_name() -> None:
    """Members of two releases live together while they are upgraded."""
    a, copy = await holder("n1"), FleetCopy()
    part = part_of(a, FleetSource("p"), copy, "a")
    blocks = []
    for block in part.blocks:
        narrow = np.frombuffer(block.narrow, np.float32).reshape(-1, max(1, len(block.gauges)))
        order = list(reversed(range(len(block.gauges))))
        blocks.append(
            msgspec.structs.replace(
                block,
                gauges=(*(block.gauges[n] for n in order), "metric_of_tomorrow"),
                narrow=np.hstack([narrow[:, order], np.ones((len(narrow), 1), np.float32)]).tobytes(),
            )
            if block.gauges
            else block
        )
    copy.update({"a": msgspec.structs.replace(part, blocks=blocks)}, 500.0)
    np.testing.assert_array_equal(power(copy, "n1", 500.0), a.fleet.column("gpu_power_watts", a.now()))


async def test_a_long_answer_comes_in_parts_and_a_failure_says_why() -> None:
    """A server takes a message of 1 MiB."""
    servers = MemoryServers(lambda: 0.0, {Bucket.MEMBERS: 10.0})
    a, b = MemberAnswers(servers.connect("a"), "a"), MemberAnswers(servers.connect("b"), "b")
    noise = np.random.default_rng(7).bytes(3 * PART_BYTES)

    async def answer(body: bytes) -> bytes:
        if body == b"fail":
            raise ValueError("no such thing")
        return noise + body

    async with b.serving({"noise": answer}):
        assert await a.ask("b", "noise", b"!", 5.0) == noise + b"!"
        with pytest.raises(CoordinationError, match="b: ValueError: no such thing"):
            await a.ask("b", "noise", b"fail", 5.0)
        found = await a.ask_all(["b", "c"], "noise", lambda name: name.encode(), 5.0)
        assert list(found) == ["b"]


def test_an_answer_of_another_release_is_none() -> None:
    """Its member is missing then, and the others are shown."""
    good = PastPart(("g",), [], {}, {}, {}, [], None, [])
    bodies = {"a": msgspec.msgpack.encode(good), "b": msgspec.msgpack.encode({"groups": 7}), "c": b"\xc1"}
    assert decoded(bodies, PastPart) == {"a": good}
