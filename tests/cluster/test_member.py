"""Rounds of a member: its heartbeat comes in time, however much there is to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggregator.cluster.groups import GROUPS
from aggregator.cluster.member import WRITES_AT_ONCE, ClusterMember
from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import Bucket
from aggregator.impairments import Impairments
from aggregator.settings.members import MembersConfig
from tests.cluster.test_memory import Time

WRITE_SECONDS = 0.2


class NodelessHolder:
    """Has no nodes."""

    highest_epoch = 0
    nodes = 0
    shares = False

    def hold(self, epochs: Mapping[str, int]) -> None:
        """Take note of nothing."""


class SlowServers:
    """Servers on which each write takes a while."""

    def __init__(self, inner: Any, clock: Time) -> None:
        self._inner, self._clock = inner, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def compare_and_set(self, *arguments: Any) -> Any:
        self._clock.now += WRITE_SECONDS
        return await self._inner.compare_and_set(*arguments)


async def test_a_member_that_claims_everything_anew_is_not_taken_for_dead() -> None:
    """The streams were wiped: it holds all groups, and no entry says so."""
    clock = Time()
    inner = MemoryServers(clock, {Bucket.MEMBERS: 10.0}).connect("a")
    config = MembersConfig(nats=("nats://a:4222",), member="a", dead_after_seconds=10.0)
    slow: Any = SlowServers(inner, clock)
    holder: Any = NodelessHolder()
    member = ClusterMember(config, slow, holder, Impairments(), clock=clock)
    for group in GROUPS:
        member.planner.started(group, 1)
        member._received.add(group)
    rounds = 0
    while len(await inner.entries(Bucket.OWNERS)) < len(GROUPS):
        began = clock.now
        await member._round()
        rounds += 1
        assert clock.now - began <= member.planner.heartbeat + WRITES_AT_ONCE * WRITE_SECONDS
    assert rounds > 5
    assert set(member.planner.held) == set(GROUPS)
