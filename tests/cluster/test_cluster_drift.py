"""Nodes that differ, over several members: judged among all nodes, the same at each, and said by who leads."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.cluster.cluster_drift import GONE_SECONDS, DriftExchange, DriftPart, drift_part
from aggregator.cluster.groups import GROUPS, OLDEST_PROTOCOL, PROTOCOL, GroupEntry, MemberBeat
from aggregator.cluster.holder import GroupHolder
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import BucketEntry
from aggregator.impairments import Impairments
from aggregator.register.drift import compared, drift_of
from aggregator.register.drift_tracker import SHARED_SECONDS, DriftTracker
from aggregator.register.drift_watch import DriftConfig
from aggregator.register.expected import ExpectedState, NodeMatch
from aggregator.settings.members import MembersConfig
from aggregator.site.alert_relay import SITE, evaluator_of
from api.alerts import Alert, AlertState, Severity
from telemetry.fleet import Fleet
from telemetry.wire.topics import shard_of
from tests.aggregator.test_drift import dgx, fleet, gpu, host
from tests.cluster.loop import Loop
from tests.cluster.test_loop import UPTIME
from tests.kit.night import NIGHT
from tests.kit.works import running

SECOND = 10**9
ODD = "dgx-002"
TEXT = "kernel 5.15 (5 of 6 have 6.8.0-51-generic)"
HOLD = 600


class Pair:
    """Two members, six nodes between them, and one of these differs: neither has five nodes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.servers = MemoryServers(lambda: self.now, {})
        self.fleets = {name: Fleet() for name in "ab"}
        self.trackers = {name: DriftTracker((), DriftConfig(hold_seconds=HOLD, rollout_seconds=HOLD)) for name in "ab"}
        self.members: dict[str, ClusterMember] = {}
        self.drifts: dict[str, DriftExchange] = {}
        self.holders: dict[str, str] = {}
        for name in "ab":
            self.start(name)
        for number, inventory in enumerate(fleet({2: host(kernel="5.15")}, 6)):
            self.move(inventory.node, "a" if number < 3 else "b", number)

    def start(self, name: str) -> None:
        """Start a member, or a new process of it."""
        config = MembersConfig(nats=("nats://x:4222",), member=name, dead_after_seconds=1e9)
        member = self.members[name] = ClusterMember(
            config, self.servers.connect(name), cast(GroupHolder, None), Impairments(), clock=lambda: self.now
        )
        self.drifts[name] = DriftExchange(self.trackers[name], self.fleets[name], member, lambda: self.now)

    def move(self, node: str, to: str, number: int) -> None:
        """Let a member have a node and its group."""
        for its in self.fleets.values():
            if node in its.nodes:
                its.remove(node)
        self.holders[shard_of(node)] = to
        what = host(kernel="5.15")(dgx(number)) if node == ODD else dgx(number)
        self.fleets[to].place(what).online = True
        entries = {
            group: BucketEntry(msgspec.json.encode(GroupEntry(self.holders.get(group, "a"), "p", 1)), 1)
            for group in GROUPS
        }
        beat = MemberBeat("p", protocol=PROTOCOL, oldest=OLDEST_PROTOCOL)
        beats = {name: BucketEntry(msgspec.json.encode(beat), 1) for name in "ab"}
        for member in self.members.values():
            member.planner.observe(beats, entries, self.now)

    async def go_on(self, seconds: float = SHARED_SECONDS, *answering: str) -> None:
        """Let time pass, all ask, and all compare."""
        self.now += seconds
        async with self.serving(answering or ("a", "b")):
            for drift in self.drifts.values():
                await drift.ask()
        for name, tracker in self.trackers.items():
            await tracker.update(self.fleets[name], {}, self.now, int(self.now * SECOND))

    @asynccontextmanager
    async def serving(self, names: tuple[str, ...]) -> AsyncIterator[None]:
        """Let members answer."""
        async with running(*(self.drifts[name].run() for name in names)):
            yield

    def reported(self) -> list[Mapping[str, str]]:
        """Return what each member has by part."""
        return [
            {part.key: part.problems["node_differs"] for part in tracker.parts() if part.problems}
            for tracker in self.trackers.values()
        ]


async def reporting() -> Pair:
    """Return members that report the node."""
    pair = Pair()
    await pair.go_on()
    await pair.go_on()
    assert pair.reported() == [{}, {}], "it has not lasted"
    await pair.go_on(HOLD)
    assert pair.reported() == [{f"drift/{ODD}": TEXT}] * 2
    return pair


async def test_a_node_is_compared_with_those_of_all_members_and_both_find_the_same() -> None:
    pair = await reporting()
    newest = pair.trackers["b"].newest
    assert newest is not None
    assert [(group.nodes, group.evaluated) for group in newest.groups] == [(6, True)]
    alone = drift_of([compared(each.inventory) for each in pair.fleets["a"].nodes.values()], 0)
    assert not alone.groups[0].evaluated, "three nodes have no majority"


def test_who_leads_the_site_speaks_of_nodes_that_differ() -> None:
    """All members find the same, under the same key: it pages once."""
    alert = Alert(
        key=f"node_differs/drift/{ODD}", rule="node_differs", severity=Severity.INFO, state=AlertState.FIRING, node=ODD
    )
    assert {evaluator_of(alert, member) for member in "ab"} == {SITE}


async def test_a_member_that_does_not_answer_ends_and_begins_nothing() -> None:
    pair = await reporting()
    for _ in range(3):
        await pair.go_on(GONE_SECONDS, "b")  # a is silent, with the node that differs
    assert pair.reported()[1] == {f"drift/{ODD}": TEXT}
    assert ODD in pair.trackers["b"].elsewhere.silent
    late = Pair()
    await late.go_on()
    await late.go_on(HOLD, "b")
    await late.go_on(SHARED_SECONDS, "b")
    assert late.reported()[1] == {}


async def test_a_node_that_moves_is_reported_without_a_gap() -> None:
    """Its alert has the same key at both, and since when it differs is known to both."""
    pair = await reporting()
    pair.move(ODD, "b", 2)
    for _ in range(3):
        await pair.go_on()
        assert pair.reported() == [{f"drift/{ODD}": TEXT}] * 2


async def test_a_member_that_is_new_knows_since_when() -> None:
    """A member may lead the next moment, and would end what it did not find yet."""
    pair = await reporting()
    pair.trackers["b"] = DriftTracker((), DriftConfig(hold_seconds=HOLD, rollout_seconds=HOLD))
    pair.start("b")
    pair.move(ODD, "a", 2)
    for _ in range(3):
        await pair.go_on()
    assert pair.reported() == [{f"drift/{ODD}": TEXT}] * 2


async def test_a_node_that_its_holder_does_not_name_any_more_is_dropped() -> None:
    pair = await reporting()
    pair.fleets["a"].remove(ODD)
    await pair.go_on()
    assert ODD in pair.trackers["b"].elsewhere.nodes, "it may just have got the group"
    for _ in range(6):
        await pair.go_on()
    assert ODD not in pair.trackers["b"].elsewhere.nodes
    await pair.go_on()
    assert pair.reported() == [{}, {}]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=12, max_size=12), st.sets(st.integers(0, 11), max_size=3))
def test_whoever_has_which_node_the_result_is_that_of_one_aggregator(members: list[str], odd: set[int]) -> None:
    """An answer has everything that is compared: facts, declarations, measurements and domains."""
    declared = ExpectedState(match=NodeMatch(node="dgx-00[0-3]"), gpus=8, kernel=("6.*",))
    nodes = []
    for number in range(12):
        said = dgx(number)
        if number in odd:
            said = (gpu(7, present=False), host(rack="r1", product="X"), host(kernel="5"))[number % 3](said)
        measured = str(1e9 if number in odd else 2e9)
        said = host(**{"rack": "r1", "measured:memory": measured})(said)
        nodes.append(compared(said, declared if number < 4 else None))
    parts = []
    for name in "abc":
        its = [node for node, member in zip(nodes, members, strict=True) if member == name]
        body = msgspec.msgpack.encode(drift_part(its, set(), {}))
        parts.append(msgspec.msgpack.decode(body, type=DriftPart))
    joint = [node for part in parts for node in part.compared()]
    joint.sort(key=lambda node: node.node)
    assert drift_of(joint, 1) == drift_of(nodes, 1)


# -- On real processes ----------------------------------------------------------------------------


@pytest.fixture
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    loop = Loop(tmp_path_factory.mktemp("drift"), nodes=6, more="[drift]\nhold_seconds = 5\n")
    odd = loop.folder / f"{loop.nodes[0]}.toml"
    odd.write_text(odd.read_text().replace("?seed", "?gpus=7&seed"))
    loop.nats.start()
    loop.start(*loop.members, *loop.nodes)
    yield loop
    loop.end_all()


@pytest.mark.systems
@pytest.mark.nightly
@pytest.mark.skipif(NIGHT not in os.environ, reason="by night: three members for four minutes")
@pytest.mark.timeout(600)
def test_a_node_that_differs_is_one_incident_whoever_leads(loop: Loop) -> None:
    """Its kind has six nodes, of which no member has five."""

    def incidents(member: str) -> list[str]:
        page = loop.page(member, "/api/v1/incidents") or {}
        return [
            each["key"]
            for each in page.get("incidents", ())
            if any((one["rule"], one["node"]) == ("node_differs", loop.nodes[0]) for one in each["alerts"])
        ]

    loop.until("all groups held", lambda: loop.held_by(*loop.members))
    loop.until("an incident at all", lambda: all(incidents(name) for name in loop.members))
    (first,) = incidents(loop.members[0])
    leader = next(each["name"] for each in loop.page(loop.members[0], "/api/v1/status")["members"] if each["leads"])
    loop.kill(leader)
    rest = [name for name in loop.members if name != leader]
    loop.until("its groups at the others", lambda: loop.held_by(*rest))
    began = loop.sample(rest[0], UPTIME)
    loop.until("what the new leader has not found would be over", lambda: loop.sample(rest[0], UPTIME) > began + 70)
    for name in rest:
        assert incidents(name) == [first]
