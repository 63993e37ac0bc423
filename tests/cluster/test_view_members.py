"""Any member says who the others are, and has a node forgotten by the one that holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from aggregator.cluster.cluster_view import ClusterView
from aggregator.cluster.groups import GROUPS, OLDEST_PROTOCOL, PROTOCOL, GroupEntry, MemberBeat
from aggregator.cluster.holder import GroupHolder
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import BucketEntry
from aggregator.impairments import Impairments
from aggregator.settings.members import MembersConfig
from aggregator.view import SiteView
from telemetry.errors import NodeError
from tests.aggregator.fake_view import FakeView
from tests.kit.works import running

DEAD_AFTER = 10.0


class ForgettingView(FakeView):
    """A member that knows one node."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node, self.forgotten = node, list[str]()

    async def forget(self, node: str) -> bool:
        """Remember what was asked."""
        if node == "refused":
            raise NodeError("refused is online. Stop its collector first.")
        self.forgotten.append(node)
        return node == self.node


@dataclass
class TwoMembers:
    """Two members that know of each other; every group is at the second one."""

    now: float = 100.0
    views: dict[str, ClusterView] = field(default_factory=dict)
    own: dict[str, ForgettingView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        servers = MemoryServers(lambda: self.now, {})
        for name in "ab":
            config = MembersConfig(nats=("nats://x:4222",), member=name, dead_after_seconds=DEAD_AFTER)
            member = ClusterMember(
                config, servers.connect(name), cast(GroupHolder, None), Impairments(), clock=lambda: self.now
            )
            own = self.own[name] = ForgettingView("n1")
            own.now = lambda: self.now  # type: ignore[method-assign]
            leader = SimpleNamespace(leader="b", leads=name == "b", problem="")
            own.site_role = cast(SiteView, leader)
            self.views[name] = ClusterView(own, member)
            self.observe(name, 1)

    def observe(self, name: str, revision: int, also: str = "ab") -> None:
        """Have a member read the tables."""
        owners = {group: BucketEntry(msgspec.json.encode(GroupEntry("b", "pb", 1)), 1) for group in GROUPS}
        members = {
            each: BucketEntry(
                msgspec.json.encode(
                    MemberBeat(f"p{each}", nodes=7, load=0.2, protocol=PROTOCOL, oldest=OLDEST_PROTOCOL)
                ),
                revision,
            )
            for each in also
        }
        self.views[name]._member.planner.observe(members, owners, self.now)


def test_members_are_named_with_their_groups_and_who_leads_and_who_is_silent() -> None:
    both = TwoMembers()
    a, b = both.views["a"].members()
    assert (a.name, a.groups, a.leads, a.silent_seconds) == ("a", 0, False, None)
    assert (b.name, b.groups, b.nodes, b.leads, b.load) == ("b", 256, 7, True, 0.2)
    for step in range(1, 13):
        both.now += 1.0
        both.observe("a", 1 + step, also="a")
    _, gone = both.views["a"].members()
    assert (gone.silent_seconds, gone.groups, gone.load) == (12.0, 256, None)


async def test_a_node_is_forgotten_at_the_member_that_holds_it() -> None:
    both = TwoMembers()
    async with running(*(view.run() for view in both.views.values())):
        assert await both.views["a"].forget("n1") is True
        assert await both.views["a"].forget("n2") is False
        assert (both.own["a"].forgotten, both.own["b"].forgotten) == ([], ["n1", "n2"])
        with pytest.raises(NodeError, match="Stop its collector first"):
            await both.views["a"].forget("refused")
