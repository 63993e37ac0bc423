"""Questions of members about the GPUs of their jobs that others have, as they travel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import numpy as np
import pytest

from aggregator.cluster.cluster_peers import ClusterPeers, PeersPart, PeersQuestion, StatedPart
from aggregator.cluster.groups import GROUPS, OLDEST_PROTOCOL, PROTOCOL, GroupEntry, MemberBeat
from aggregator.cluster.holder import GroupHolder
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.memory import MemoryCoordination, MemoryServers
from aggregator.cluster.port import BucketEntry
from aggregator.impairments import Impairments
from aggregator.settings.members import MembersConfig
from alerts.rules.peers_elsewhere import STATED
from tests.alerts.split_job import ROUND, SplitJobs
from tests.kit.works import running

NODES = {"n0": "a", "n1": "b", "n2": "c"}


class Counted(MemoryCoordination):
    """A connection that counts the bytes of its questions and their answers."""

    asked = answered = 0

    async def request(self, subject: str, payload: bytes, seconds: float) -> bytes:
        """Return the first answer to a request."""
        self.asked += len(payload)
        found = await super().request(subject, payload, seconds)
        self.answered += len(found)
        return found


class Talking(SplitJobs):
    """Members that ask each other by messages."""

    def join(self, old: Collection[str] = ()) -> None:
        """Connect the members; those of a release before serve no such question."""
        self.servers = MemoryServers(lambda: self.now, {})
        self.connections = {name: Counted(self.servers, name) for name in self.parts}
        self.old = old
        self.peers: dict[str, ClusterPeers] = {}
        self.impairments: dict[str, Impairments] = {}
        for name, part in self.parts.items():
            config = MembersConfig(nats=("nats://x:4222",), member=name, dead_after_seconds=1e9)
            impairments = self.impairments[name] = Impairments()
            member = ClusterMember(
                config, self.connections[name], cast(GroupHolder, None), impairments, clock=lambda: self.now
            )
            beat = msgspec.json.encode(MemberBeat("p", protocol=PROTOCOL, oldest=OLDEST_PROTOCOL))
            owners = {group: BucketEntry(msgspec.json.encode(GroupEntry("a", "p", 1)), 1) for group in GROUPS}
            member.planner.observe(dict.fromkeys(self.parts, BucketEntry(beat, 1)), owners, 0.0)
            assert part.elsewhere is not None
            self.peers[name] = ClusterPeers(part.elsewhere, member, impairments, lambda: self.now)

    def exchange(self, *, moved: bool = False) -> None:
        """Leave the questions to `talk`."""

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Have the members answer while the block runs."""
        async with running(*(its.run() for name, its in self.peers.items() if name not in self.old)):
            yield

    def unheard(self, name: str) -> list[str]:
        """Return what a member says about jobs without a verdict."""
        return [one.reason for one in self.impairments[name].current() if one.rule == "peers_unheard"]

    async def talk(self, seconds: float) -> None:
        """Pass time."""
        end = self.now + seconds
        while self.now < end:
            self.run(ROUND)
            for name, its in self.peers.items():
                if name not in self.old:
                    await its.ask()


async def test_a_node_that_is_slow_as_a_whole_is_found_by_messages() -> None:
    """The same alerts as one aggregator has; while a member is cut off they stay as they are."""
    split = Talking({"1": [*NODES]}, NODES)
    split.join()
    async with split.answering():
        await split.talk(60)
        split.slow["n0"] = 0.2
        await split.talk(180)
        wanted = {f"straggler/n0/n0-{n}" for n in range(8)}
        assert split.firing == split.one.firing == wanted
        split.servers.cut_off = {"b", "c"}
        await split.talk(300)
        assert split.parts["a"].firing == wanted
        split.servers.cut_off = set()
        split.slow.clear()
        await split.talk(240)
        assert split.firing == split.one.firing == set()
    of_a_round = split.connections["a"]
    assert of_a_round.asked / (split.now / ROUND) < 2 * 1200
    assert of_a_round.answered / (split.now / ROUND) < 2 * 800


async def test_a_job_without_a_verdict_is_said_when_it_lasts_longer_than_a_move() -> None:
    split = Talking({"1": [*NODES]}, NODES)
    split.join()
    async with split.answering():
        await split.talk(60)
        split.servers.cut_off = {"b", "c"}
        await split.talk(180)
        assert split.unheard("a") == []
        await split.talk(90)
        assert split.unheard("a") == [
            "1 group of GPUs of a job and a model can't be compared: b does not answer; c does not answer"
        ]
        split.servers.cut_off = set()
        await split.talk(60)
        assert split.unheard("a") == []


async def test_a_member_with_another_time_is_named() -> None:
    split = Talking({"1": [*NODES]}, NODES)
    split.join()
    split.parts["b"].ahead = 70
    async with split.answering():
        await split.talk(300)
        named = "1 group of GPUs of a job and a model can't be compared: {} has another time than we have"
        assert split.unheard("a") == split.unheard("c") == [named.format("b")]
        split.parts["b"].ahead = 0
        await split.talk(240)
        assert [split.unheard(name) for name in NODES.values()] == [[], [], []]


async def test_nothing_is_asked_where_no_job_is_in_several_places() -> None:
    split = Talking({"1": ["n0"], "2": ["n1"], "3": ["n2"]}, NODES)
    split.join()
    async with split.answering():
        await split.talk(60)
    assert [its.asked for its in split.connections.values()] == [0, 0, 0]


async def test_a_member_of_a_release_before_answers_nothing_and_nothing_is_lost_by_it() -> None:
    """Members that do answer are compared; two of eight GPUs are outliers among them."""
    split = Talking({"1": [*NODES]}, NODES)
    split.join(old={"c"})
    async with split.answering():
        await split.talk(60)
        split.slow = {"n0/1": 0.2, "n1/1": 0.2}
        await split.talk(180)
        assert split.firing == {"straggler/n0/n0-1", "straggler/n1/n1-1"}
        split.slow.clear()
        await split.talk(240)
        assert split.firing == set()


async def test_an_answer_is_bounded_however_many_gpus_it_is_about() -> None:
    nodes = {f"n{number}": "b" if number else "a" for number in range(33)}
    split = Talking({"1": [*nodes]}, nodes)
    split.join()
    async with split.answering():
        await split.talk(60)
        elsewhere = split.parts["a"].elsewhere
        assert elsewhere is not None
        question = PeersQuestion(elsewhere.wanted.astype("<u8").tobytes())
        body = await split.peers["b"].answer(msgspec.msgpack.encode(question))
    part = msgspec.msgpack.decode(body, type=PeersPart)
    assert len(part.statements) == 7
    for its in part.statements.values():
        (rows,), (compared,) = np.frombuffer(its.rows, "<u4"), np.frombuffer(its.compared, "<u4")
        assert rows == compared == 256
        assert len(its.values) == STATED * np.dtype(its.kind).itemsize


@pytest.mark.parametrize(
    "wrong",
    [
        StatedPart(1, values=b"\0" * 5),
        StatedPart(1, values=b"\0" * 8),
        StatedPart(1, kind="|O"),
        StatedPart(1, b"\x09\0\0\0", b"\x01\0\0\0", b"\0\0\0\0"),
        StatedPart(1, b"\0\0\0\0" * 2, b"\x01\0\0\0" * 2, b"\0\0\0\0" * 2),
        StatedPart(1, b"\0\0\0\0", b"", b""),
    ],
    ids=["bytes", "too many values", "objects", "place", "twice", "lengths"],
)
async def test_an_answer_that_does_not_fit_is_none(wrong: StatedPart) -> None:
    """The other one counts, and rules go on."""
    split = Talking({"1": [*NODES]}, NODES)
    split.join(old={"b"})

    async def answer(_: bytes) -> bytes:
        return msgspec.msgpack.encode(PeersPart({"key": wrong}))

    async with split.answering(), split.peers["b"]._answers.serving({"peers": answer}):
        await split.talk(30)
    elsewhere = split.parts["a"].elsewhere
    assert elsewhere is not None
    assert elsewhere.moments("b") == {}
    assert len(elsewhere.moments("c")) == 7
