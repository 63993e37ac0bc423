"""Nodes of other members, with which a member compares its own: each says once a minute what its nodes say of themselves.

All members find the same of all nodes, and since when; who leads the site speaks of it (`aggregator.site.alert_relay`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from aggregator.cluster.ask import MemberAnswers, decoded
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.port import CoordinationError
from aggregator.register.drift import ComparedNode
from aggregator.register.drift_tracker import DriftTracker, NodesElsewhere
from aggregator.register.drift_watch import Since
from aggregator.register.expected import ExpectedState, Shortfall
from telemetry.fleet import Fleet
from telemetry.wire.topics import shard_of

ASK_SECONDS = 60.0
"""Seconds between two questions: the quickest alert about a deviation waits ten minutes."""
FIRST_SECONDS = 10.0
"""Seconds between two questions until each of the others has answered once."""
ANSWER_SECONDS = 5.0
"""Seconds in which a member must answer."""
GONE_SECONDS = 150.0
"""Seconds for which a node stays that the holder of its group does not name: it may just have got the group."""


class DescribedNode(msgspec.Struct, frozen=True, array_like=True):
    """A `ComparedNode` as it travels. Fields are only added, with a default."""

    node: str
    kind: str
    facts: int
    """Position in `DriftPart.facts`: most nodes say the same."""
    online: bool
    wanted: int = -1
    """Position in `DriftPart.wanted`; -1 for none."""
    shortfalls: tuple[Shortfall, ...] = ()
    measured: dict[str, float] = {}
    rack: str = ""
    domain: str | None = None


class DriftPart(msgspec.Struct, frozen=True):
    """A member's answer. Fields are only added, with a default."""

    nodes: list[DescribedNode] = []
    facts: list[dict[str, str]] = []
    wanted: list[ExpectedState] = []
    since: Since = {}

    def compared(self) -> Iterator[ComparedNode]:
        """Yield the nodes as they are compared; of one whose facts are not there nothing is known."""
        for described in self.nodes:
            wanted = self.wanted[described.wanted] if 0 <= described.wanted < len(self.wanted) else None
            facts = self.facts[described.facts] if 0 <= described.facts < len(self.facts) else {}
            yield ComparedNode(
                described.node,
                described.kind,
                facts,
                wanted,
                described.shortfalls,
                described.measured,
                described.rack,
                described.domain,
            )


class DriftExchange:
    """The nodes of the other members for the comparison of this one; `run` it."""

    def __init__(self, tracker: DriftTracker, fleet: Fleet, member: ClusterMember, clock: Callable[[], float]) -> None:
        """`tracker`: of this member, whose nodes are in `fleet`."""
        self._tracker, self._fleet, self._member, self._clock = tracker, fleet, member, clock
        self._answers = MemberAnswers(member.coordination, member.name)
        self._known: dict[str, tuple[ComparedNode, bool, float]] = {}
        """By name what its holder said last, whether it is online, and when that was."""

    async def run(self) -> None:
        """Answer the others and ask them until cancelled."""
        while True:
            try:
                async with self._answers.serving({"drift": self.answer}):
                    while True:
                        whole = await self.ask()
                        await asyncio.sleep(ASK_SECONDS if whole else FIRST_SECONDS)
            except CoordinationError:
                await asyncio.sleep(1.0)

    async def ask(self) -> bool:
        """Ask the others once; return whether all have answered."""
        others = self._member.others(self._clock())
        bodies = await self._answers.ask_all(others, "drift", lambda _: b"", ANSWER_SECONDS)
        parts = await asyncio.to_thread(decoded, bodies, DriftPart)
        own, online = list(self._tracker.described()), self._online()
        self._tracker.elsewhere = await asyncio.to_thread(self._taken, own, online, parts)
        for part in parts.values():
            self._tracker.learn(part.since)
        return parts.keys() >= set(others)

    def _taken(self, own: Iterable[ComparedNode], online: set[str], parts: Mapping[str, DriftPart]) -> NodesElsewhere:
        """Return what the holders of nodes say, and what they said last where they don't now. Our own nodes are with
        them: one that moves is known until its new holder names it."""
        now = self._clock()
        self._known |= {node.node: (node, node.node in online, now) for node in own}
        for name, part in parts.items():
            for node, described in zip(part.compared(), part.nodes, strict=True):
                if self._holder(node.node) == name:
                    self._known[node.node] = node, described.online, now
        answered = {*parts, self._member.name}
        for name, (_, _, at) in list(self._known.items()):
            if now - at > GONE_SECONDS and self._holder(name) in answered:
                del self._known[name]
        before = self._tracker.elsewhere.nodes
        nodes = {name: node for name, (node, _, _) in self._known.items()}
        silent = {name for name, (_, its, at) in self._known.items() if not its or at < now}
        return NodesElsewhere(before if nodes == before else nodes, silent)

    def _online(self) -> set[str]:
        return {name for name, node in self._fleet.nodes.items() if node.online}

    def _holder(self, node: str) -> str:
        entry = self._member.planner.owner(shard_of(node))
        return "" if entry is None else entry.owner

    async def answer(self, body: bytes) -> bytes:
        """Answer the question of another member."""
        del body
        nodes, online, since = list(self._tracker.described()), self._online(), self._tracker.since
        return await asyncio.to_thread(lambda: msgspec.msgpack.encode(drift_part(nodes, online, since)))


def drift_part(nodes: Iterable[ComparedNode], online: set[str], since: Since) -> DriftPart:
    """Return what nodes say as a member answers it."""
    part = DriftPart([], [], [], since)
    facts: dict[tuple[tuple[str, str], ...], int] = {}
    wanted: dict[int, int] = {}
    for node in nodes:
        its = facts.setdefault(tuple(node.facts.items()), len(part.facts))
        if its == len(part.facts):
            part.facts.append(dict(node.facts))
        entry = -1
        if node.wanted is not None:
            entry = wanted.setdefault(id(node.wanted), len(part.wanted))
            if entry == len(part.wanted):
                part.wanted.append(node.wanted)
        part.nodes.append(
            DescribedNode(
                node.node,
                node.kind,
                its,
                node.node in online,
                entry,
                node.shortfalls,
                dict(node.measured),
                node.rack,
                node.domain,
            )
        )
    return part
